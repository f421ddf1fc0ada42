"""Takes ids, times and secrets out of a thread's log."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from re import Pattern
from typing import Any, Final, Literal

from soev.domain import StoredEvent, canonical_json
from soev.golden._errors import SecretFoundError
from soev.golden._secrets import NAME, Found, Placeholders, find_secrets

IdClass = Literal["calls", "elements", "intents"]
ID_CLASSES: Final[tuple[IdClass, ...]] = ("calls", "elements", "intents")
START: Final = datetime(2000, 1, 1, tzinfo=UTC)
# A hash is random by nature and says nothing; reasoning is a provider's, and breaks when touched.
_UNTOUCHED = ("request_hash", "reasoning")


def scrub_ids(
    events: Sequence[StoredEvent],
    classes: Collection[IdClass] = ID_CLASSES,
    *,
    arguments: bool = True,
) -> tuple[StoredEvent, ...]:
    """Number the ids of calls, elements and intents, the same one wherever it occurs.

    Args:
        events: The log, in its final order.
        classes: The classes of ids to number.
        arguments: Whether a text in a call's arguments that equals an id is that id.
    """
    names = _Names(frozenset(classes), arguments)
    payloads = [json.loads(event.data) for event in events]
    for event, payload in zip(events, payloads, strict=True):
        names.collect(event.type, payload)
    return tuple(
        replace(event, data=canonical_json(names.renamed(event.type, payload)))
        for event, payload in zip(events, payloads, strict=True)
    )


@dataclass
class _Names:
    """The new names of ids, in order of first appearance."""

    classes: frozenset[IdClass]
    arguments: bool
    by_class: dict[IdClass, dict[str, str]] = field(
        default_factory=lambda: {each: {} for each in ID_CLASSES}
    )

    def collect(self, type: str, payload: dict[str, Any]) -> None:
        for call in payload.get("calls", ()) if type == "model_output" else ():
            self._note("calls", call.get("id"))
        self._note("calls", payload.get("call_id"))
        for element in _elements(payload):
            self._note("elements", element.get("ref"))
            self._note("elements", element.get("id"))
        if type == "effect_intent":
            self._note("intents", payload.get("id"))

    def _note(self, of: IdClass, value: object) -> None:
        if of in self.classes and isinstance(value, str) and value:
            known = self.by_class[of]
            known.setdefault(value, f"{of[:-1]}-{len(known) + 1}")

    def renamed(self, type: str, payload: dict[str, Any]) -> Any:
        calls, elements = self.by_class["calls"], self.by_class["elements"]
        for call in payload.get("calls", ()) if type == "model_output" else ():
            call["id"] = calls.get(call["id"], call["id"])
            if self.arguments:
                # They hold the real ids of what the model wrote by number.
                call["arguments"] = _mapped(call["arguments"], {**calls, **elements}.get)
        for citation in payload.get("citations", ()) if type == "model_output" else ():
            citation["ids"] = [elements.get(each, each) for each in citation["ids"]]
        if isinstance(payload.get("call_id"), str):
            payload["call_id"] = calls.get(payload["call_id"], payload["call_id"])
        for element in _elements(payload):
            for key in ("id", "ref"):
                if isinstance(element.get(key), str):
                    element[key] = elements.get(element[key], element[key])
        self._intents(type, payload)
        return payload

    def _intents(self, type: str, payload: dict[str, Any]) -> None:
        key = {"effect_intent": "id", "effect_result": "intent"}.get(type)
        if key is not None and isinstance(payload.get(key), str):
            payload[key] = self.by_class["intents"].get(payload[key], payload[key])
        if type == "effect_intent":
            payload["args"] = _mapped(payload["args"], self.by_class["elements"].get)


def _elements(value: object) -> Iterator[dict[str, Any]]:
    """Yield what is an element in a payload: an object with a tag and an id."""
    if isinstance(value, dict):
        if isinstance(value.get("tag"), str) and isinstance(value.get("id"), str):
            yield value
        for item in value.values():
            yield from _elements(item)
    elif isinstance(value, list):
        for item in value:
            yield from _elements(item)


def _mapped(value: Any, name: Callable[[str], str | None]) -> Any:
    if isinstance(value, str):
        return name(value) or value
    if isinstance(value, list):
        return [_mapped(item, name) for item in value]
    if isinstance(value, dict):
        return {key: _mapped(item, name) for key, item in value.items()}
    return value


def scrub_times(events: Sequence[StoredEvent]) -> tuple[StoredEvent, ...]:
    """Let the log begin in the year 2000, with gaps of whole seconds."""
    times = [event.ts for event in events if event.ts is not None]
    first = min(times, default=START)
    return tuple(
        event
        if event.ts is None
        else replace(event, ts=START + timedelta(seconds=int((event.ts - first).total_seconds())))
        for event in events
    )


def scrub_secrets(
    events: Iterable[StoredEvent],
    placeholders: Placeholders,
    patterns: Sequence[Pattern[str]] = (),
) -> tuple[StoredEvent, ...]:
    """Replace what looks like a secret in any text, and the values of names that say so.

    Args:
        events: The log.
        placeholders: The secrets that are known already. They are found again everywhere.
        patterns: More shapes, of the project.
    """
    scrubbing = _Scrubbing(placeholders, tuple(patterns))
    return tuple(
        replace(event, data=canonical_json(scrubbing.payload(event.type, json.loads(event.data))))
        for event in events
    )


@dataclass(frozen=True)
class _Scrubbing:
    placeholders: Placeholders
    patterns: tuple[Pattern[str], ...]

    def payload(self, type: str, payload: dict[str, Any]) -> dict[str, Any]:
        text = payload.get("text")
        found = find_secrets(text, self.patterns) if isinstance(text, str) else []
        for citation in payload.get("citations", ()) if type == "model_output" and found else ():
            citation["at"] = self._moved(citation["at"], text, found)
        return {
            key: item if key in _UNTOUCHED else self.value(key, item)
            for key, item in payload.items()
        }

    def _moved(self, at: int, text: Any, found: Sequence[Found]) -> int:
        """Return where an offset in a text is once the secrets before it are replaced."""
        before = [each for each in found if each.stop <= at]
        return at + sum(
            len(self.placeholders.of(text[each.start : each.stop])) - (each.stop - each.start)
            for each in before
        )

    def value(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.value(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(key, item) for item in value]
        if not isinstance(value, str):
            return value
        if NAME.match(key) and value and not value.startswith("<secret-"):
            return self.placeholders.of(value)
        return self.placeholders.replace(value, find_secrets(value, self.patterns))


def refuse_secrets(
    file: str,
    text: str,
    patterns: Sequence[Pattern[str]] = (),
    allowed: Collection[str] = (),
) -> None:
    """Refuse a text that still holds what looks like a secret.

    Args:
        file: The file that the text is for.
        text: Its text.
        patterns: More shapes, of the project.
        allowed: Values that the project says are no secrets.

    Raises:
        SecretFoundError: A line holds one. The value is not in the error.
    """
    for line, content in enumerate(text.split("\n"), 1):
        for each in find_secrets(content, patterns):
            if content[each.start : each.stop] not in allowed and not _harmless(each, content):
                raise SecretFoundError(file, line, each.kind)


def _harmless(found: Found, line: str) -> bool:
    """Tell whether a random token is a provider's reasoning, which is never readable text."""
    return found.kind == "a random token" and '"reasoning":' in line[: found.start]
