"""How one event is shown to a model: its text, its elements by number, its calls by handle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from soev.domain import (
    ENVELOPE,
    ArgumentMark,
    AssistantMessage,
    Compaction,
    Content,
    Element,
    Input,
    MessagePart,
    ModelOutput,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutput,
    ToolOutputBase,
    UserMessage,
    canonical_json,
    elements_in,
)
from soev.runtime import CitationStrategy, Numbering

NO_RESULT: Final = "Error: this call has no result. It did not run, or was stopped before it ended."
NOTHING: Final = "(nothing)"
SUMMARY: Final = "Summary of the conversation before this point:"

_SNAPSHOT = re.compile(r"-\d[\d-]*")
_NOT_SHOWN = ENVELOPE | {"call_id", "error", "elements"}


@dataclass(frozen=True, slots=True)
class Rendering:
    """How the events of one view are written as messages.

    Args:
        numbers: The numbers and handles of the view.
        marks: For each tool, which arguments hold ids.
        citations: How citations are written back into text, or None to leave them out.
        model: The model that is shown the messages. It alone gets its reasoning back.
    """

    numbers: Numbering
    marks: Mapping[str, tuple[ArgumentMark, ...]]
    citations: CitationStrategy | None
    model: str

    def input(self, event: Input) -> UserMessage:
        """Write what came from outside: the payload, then the elements that came with it."""
        lines = self._elements(event)
        if event.payload not in (None, "") or not lines:
            lines.insert(0, self._json(event.payload, event))
        return UserMessage(_joined(lines))

    def summary(self, event: Compaction) -> UserMessage:
        """Write a compaction, which stands in place of what it covers."""
        return UserMessage(f"{SUMMARY}\n{event.text}")

    def output(self, event: ModelOutput, handles: Sequence[str]) -> AssistantMessage:
        """Write what the model said: its text with citations, and its calls by handle.

        Args:
            event: The output.
            handles: The handle of each of its calls.
        """
        calls = tuple(map(self._call, event.calls, handles))
        own = event.reasoning is not None and _same_model(event.model, self.model)
        return AssistantMessage(self._cited(event), calls, event.reasoning if own else None)

    def result(self, result: ToolOutputBase | None, handle: str) -> ToolMessage:
        """Write the one result of a call: an error for a call that has none."""
        if result is None:
            return ToolMessage(handle, NO_RESULT)
        lines: list[Content] = []
        if result.error is not None:
            lines.append(f"Error: {result.error}")
        if isinstance(result, ToolOutput):
            lines.append(result.text)
        else:
            lines.append(self._fields(result))
        content = _joined([line for line in lines if line] + self._elements(result))
        return ToolMessage(handle, content or NOTHING)

    def _fields(self, result: ToolOutputBase) -> str:
        fields = result.model_dump(mode="json", serialize_as_any=True, exclude=set(_NOT_SHOWN))
        return self._json(fields, result) if fields else ""

    def _json(self, value: JsonValue, event: Input | ToolOutputBase) -> str:
        if isinstance(value, str):
            return value
        ids = {element.id for element in elements_in(event)}
        return "" if value is None else canonical_json(self._by_number(value, ids))

    def _by_number(self, value: JsonValue, ids: set[str]) -> JsonValue:
        """Put a number in place of each element inside a JSON value."""
        if isinstance(value, list):
            return [self._by_number(item, ids) for item in value]
        if not isinstance(value, dict):
            return value
        real = value.get("id")
        if "tag" in value and isinstance(real, str) and real in ids:
            return f"[{self.numbers.number(real)}]"
        return {key: self._by_number(item, ids) for key, item in value.items()}

    def _elements(self, event: Input | ToolOutputBase) -> list[Content]:
        distinct = {element.id: element for element in reversed(list(elements_in(event)))}
        return [self._element(element) for element in reversed(distinct.values())]

    def _element(self, element: Element) -> Content:
        head = f"[{self.numbers.number(element.id)}] "
        if element.ref is not None:
            head += f"part of [{self.numbers.number(element.ref)}]: "
        shown = element.show()
        return head + shown if isinstance(shown, str) else (TextPart(head), *shown)

    def _call(self, call: ToolCall, handle: str) -> ToolCall:
        shown = dict(call.arguments)
        for mark in self.marks.get(call.name, ()):
            if mark.field in shown:
                pointer = "/" + mark.field.replace("~", "~0").replace("/", "~1")
                shown[mark.field] = self._marked(shown[mark.field], pointer, mark, call)
        return ToolCall(id=handle, name=call.name, arguments=shown, raw=call.raw)

    def _marked(
        self, value: JsonValue, pointer: str, mark: ArgumentMark, call: ToolCall
    ) -> JsonValue:
        if isinstance(value, list):
            items = enumerate(value)
            return [self._marked(item, f"{pointer}/{place}", mark, call) for place, item in items]
        if not isinstance(value, str) or pointer in call.unresolved:
            return value
        if mark.kind == "result":
            return self.numbers.handle(value) or value
        number = self.numbers.number(value)
        return value if number is None else str(number)

    def _cited(self, event: ModelOutput) -> str:
        """Write the citations back into the text, each where its mark stood."""
        if self.citations is None or not event.citations:
            return event.text
        pieces, done = list[str](), 0
        for citation in sorted(event.citations, key=lambda each: each.at):
            pieces.append(event.text[done : citation.at])
            done = citation.at
            if citation.invalid is not None:
                pieces.append(self.citations.write_invalid(citation.invalid))
                continue
            found = [self.numbers.number(real) for real in citation.ids]
            mark = self.citations.write([number for number in found if number is not None])
            before = "".join(pieces)[-1:]
            pieces.append(f" {mark}" if before and not before.isspace() else mark)
        return "".join([*pieces, event.text[done:]])


def _same_model(wrote: str | None, reads: str) -> bool:
    """Whether two names mean one model. A provider answers with a dated name for a short one."""
    if wrote is None or not wrote.startswith(reads):
        return False
    dated = wrote[len(reads) :]
    return not dated or _SNAPSHOT.fullmatch(dated) is not None


def _joined(lines: Iterable[Content]) -> Content:
    """Put contents below each other: one text, or message parts when there is an image."""
    listed = list(lines)
    texts = [line for line in listed if isinstance(line, str)]
    if len(texts) == len(listed):
        return "\n".join(texts)
    parts: list[MessagePart] = []
    for place, line in enumerate(listed):
        own: tuple[MessagePart, ...] = (TextPart(line),) if isinstance(line, str) else line
        for part in (TextPart("\n"), *own) if place else own:
            if isinstance(part, TextPart) and parts and isinstance(parts[-1], TextPart):
                parts[-1] = TextPart(parts[-1].text + part.text)
            else:
                parts.append(part)
    return tuple(parts)
