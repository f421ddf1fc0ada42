"""Events as stores keep them, and the proof that they read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from soev.domain import (
    ENVELOPE,
    BudgetExceeded,
    Cancelled,
    Compaction,
    EffectIntent,
    EffectResult,
    Element,
    ElementReader,
    ElementTypes,
    Ended,
    Event,
    Failure,
    Input,
    LogEntry,
    ModelOutput,
    Opened,
    Request,
    StoredEvent,
    ToolOutput,
    UnencodableError,
    check_json,
    stamped,
    write_checked,
)
from soev.runtime._errors import UnknownEventTypeError, UnreadableEventError
from soev.runtime._pens import EventPen, NotPlain
from soev.runtime._sameness import difference

_LONGEST_FIELD: Final = 200
_EXCLUDED: Final = set(ENVELOPE)
_UPGRADE: Final = Event.upgrade.__func__  # type: ignore[attr-defined]  # a classmethod, compared by its function


def encode(event: Event) -> StoredEvent:
    """Return an event as a store keeps it: tag, envelope, and payload as canonical JSON text.

    Args:
        event: The event. Its seq and time stay as they are, None until a store appends it.

    Raises:
        TypeError: The event's class declares no `type` of its own.
        UnencodableError: A value that JSON cannot hold.
    """
    tag = type_of(type(event))
    return _stored(event, tag, _payload(event, tag))


def _stored(event: Event, tag: str, text: str) -> StoredEvent:
    return StoredEvent(
        tag,
        text,
        event.stream,
        event.origin,
        event.version,
        event.seq,
        event.ts,
        event.left,
    )


def type_of(cls: type[Event]) -> str:
    """Return the tag that a concrete event class declares.

    Raises:
        TypeError: The class declares none.
    """
    tag = cls.__dict__.get("type")
    if not isinstance(tag, str):
        raise TypeError(
            f"`{cls.__name__}` declares no `type`: give it one, such as `type = 'note'`."
        )
    return tag


def _payload(event: Event, tag: str) -> str:
    try:
        data = event.model_dump(mode="json", serialize_as_any=True, exclude=_EXCLUDED)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        for name in type(event).__pydantic_fields__.keys() - ENVELOPE:
            check_json(_opened(getattr(event, name)), tag, f"$.{name}")
        raise UnencodableError(tag, "$", str(error)) from error
    return write_checked(data, tag)


def _opened(value: object) -> object:
    """Show what a pydantic object holds, so that the place of a bad value can be named."""
    fields = getattr(type(value), "__pydantic_fields__", None)
    if fields is not None:
        return {name: _opened(getattr(value, name)) for name in fields}
    return [_opened(item) for item in value] if isinstance(value, tuple) else value


class EventTypes:
    """The classes that stored events are read back into, by tag and former tag.

    Args:
        types: Event classes, and element classes that the events hold.
        elements: More element classes, before those in `types`.

    Raises:
        ValueError: Two classes share a tag.
        TypeError: A class declares no tag, or is neither an event nor an element.
    """

    def __init__(self, *types: type[Event | Element], elements: ElementTypes | None = None) -> None:
        self.events: tuple[type[Event], ...] = tuple(
            dict.fromkeys(each for each in types if issubclass(each, Event))
        )
        held = [each for each in types if issubclass(each, Element)]
        self.elements = (elements or ElementTypes()).including(*held)
        for each in types:
            if not issubclass(each, (Event, Element)):
                raise TypeError(f"`{each.__name__}` is no class of events or elements.")
        self._by_tag: dict[str, type[Event]] = {}
        for cls in self.events:
            self._add(cls)
        self._reader = ElementReader(self.elements)

    def _add(self, cls: type[Event]) -> None:
        for tag in (type_of(cls), *cls.former_types):
            if self._by_tag.setdefault(tag, cls) is not cls:
                raise ValueError(
                    f"`{cls.__name__}` and `{self._by_tag[tag].__name__}` share the type {tag!r}. "
                    "Give one of them another."
                )

    def including(self, *types: type[Event | Element]) -> EventTypes:
        """Return a new set with more classes. This one does not change.

        Raises:
            ValueError: Two classes share a tag.
        """
        return EventTypes(*self.events, *types, elements=self.elements)

    def decode(self, stored: StoredEvent) -> Event:
        """Read a stored event back into its class, with its envelope and its elements.

        Args:
            stored: The event as the store keeps it. An older payload is upgraded first.

        Raises:
            UnknownEventTypeError: No listed class has, or had, the tag.
            UnknownElementTypeError: The same for an element in it.
            UnreadableEventError: The text does not fit the class.
        """
        cls = self._by_tag.get(stored.type)
        if cls is None:
            raise UnknownEventTypeError(stored.type, tuple(sorted(self._by_tag)))
        event = self._read(cls, stored, _upgraded(cls, stored))
        return stamped(
            event,
            stream=stored.stream,
            origin=stored.origin,
            seq=stored.seq,
            ts=stored.ts,
            version=stored.version,
            left=stored.left,
        )

    def _read(self, cls: type[Event], stored: StoredEvent, text: str) -> Event:
        """Validate a payload, with the elements in it."""
        reader = self._reader
        if reader.version != stored.version:
            reader = self._reader = ElementReader(self.elements, stored.version)
        try:
            return cls.model_validate_json(text, context=reader)
        except ValidationError as error:
            field, problem = _first(error)
            raise UnreadableEventError(stored.type, problem, field) from error

    def encode_readable(self, event: Event) -> StoredEvent:
        """Return an event as a store keeps it, proven to read back equal.

        Equal means with the same types all the way down, and with the same text when it is
        written again.

        Raises:
            UnreadableEventError: It would not, or its class is not listed.
            UnencodableError: A value that JSON cannot hold.
            TypeError: The event's class declares no `type` of its own.
        """
        cls = type(event)
        tag = type_of(cls)
        if self._by_tag.get(tag) is not cls:
            raise UnreadableEventError(
                tag,
                f"its class `{cls.__name__}` is not listed; add it to the agent's `event_types`",
            )
        pen = _PENS.get(cls)
        text = None if pen is None else _written(pen, event)
        if pen is None or text is None:
            stored = encode(event)
            self._prove(event, stored)
            return stored
        stored = _stored(event, tag, text)
        names = pen.json_in(event)
        if names:
            self._prove_plain(event, stored, names)
        return stored

    def _prove_plain(self, event: Event, stored: StoredEvent, names: list[str]) -> None:
        """Check fields of plain JSON: in these, equal values are the same values."""
        back = self._read(type(event), stored, stored.data).__dict__
        held = event.__dict__
        for name in names:
            if held[name] != back[name]:
                raise UnreadableEventError(stored.type, "it is read back as another value", name)

    def _prove(self, event: Event, stored: StoredEvent) -> None:
        """Check that a stored event reads back as the event that it was made from."""
        try:
            back = self.decode(stored)
        except UnreadableEventError:
            raise
        except Exception as error:
            raise UnreadableEventError(stored.type, str(error)) from error
        found = difference(event, back)
        if found is not None:
            field, problem = found
            raise UnreadableEventError(stored.type, problem, field)
        if _payload(back, stored.type) != stored.data:
            raise UnreadableEventError(
                stored.type,
                "writing it again gives another text (a set has no order: use a tuple)",
            )

    def entry(self, entry: LogEntry[StoredEvent]) -> LogEntry[Event]:
        """Read a log entry back, at the same position.

        Raises:
            UnknownEventTypeError: As in `decode`.
            UnknownElementTypeError: As in `decode`.
            UnreadableEventError: As in `decode`, with the position.
        """
        try:
            return LogEntry(entry.position, self.decode(entry.event))
        except UnreadableEventError as error:
            raise UnreadableEventError(
                error.type, error.problem, error.field, error.thread_id, entry.position
            ) from error


def _upgraded(cls: type[Event], stored: StoredEvent) -> str:
    """Return the payload's text, rewritten by the class when it knows older payloads."""
    if getattr(cls.upgrade, "__func__", None) is _UPGRADE:
        return stored.data
    try:
        data = json.loads(stored.data)
    except (ValueError, RecursionError) as error:
        raise UnreadableEventError(stored.type, f"it is no JSON ({error})") from error
    return json.dumps(cls.upgrade(data, stored.version))


def _first(error: ValidationError) -> tuple[str | None, str]:
    """Return the field and the problem of a validation's first error, without the value."""
    first: Any = error.errors(include_url=False, include_input=False, include_context=False)[0]
    # What stands in a row may be anybody's, also where a field's name is read.
    field = ".".join(str(part) for part in first["loc"])
    return field[:_LONGEST_FIELD] or None, first["msg"]


def entry_of(types: EventTypes, thread_id: str, entry: LogEntry[StoredEvent]) -> LogEntry[Event]:
    """Read a log entry of a thread back.

    Raises:
        UnknownEventTypeError: As in `EventTypes.decode`.
        UnknownElementTypeError: As in `EventTypes.decode`.
        UnreadableEventError: As in `EventTypes.decode`, with the thread and the position.
    """
    try:
        return types.entry(entry)
    except UnreadableEventError as error:
        raise UnreadableEventError(
            error.type, error.problem, error.field, thread_id, entry.position
        ) from error


CORE_EVENT_TYPES: Final = EventTypes(
    Opened,
    Input,
    Ended,
    ModelOutput,
    ToolOutput,
    Request,
    EffectIntent,
    EffectResult,
    Compaction,
    BudgetExceeded,
    Failure,
    Cancelled,
)
"""The classes of all core events."""

_PENS: Final = {cls: EventPen(cls) for cls in CORE_EVENT_TYPES.events}


def _written(pen: EventPen, event: Event) -> str | None:
    """Return a plain event's text, or None for one that takes the long way."""
    try:
        text = pen.write(event)
        if not text.isascii():
            text.encode()
    except (NotPlain, UnicodeEncodeError):
        return None
    return text


class Declaring(Protocol):
    """What names the classes that its threads record: an agent."""

    @property
    def element_types(self) -> Sequence[type[Element]]:
        """The classes of elements, beyond the core ones."""
        ...

    @property
    def event_types(self) -> Sequence[type[Event]]:
        """The classes of events, beyond the core ones."""
        ...


def event_types_of(agents: Iterable[Declaring]) -> EventTypes:
    """Return the core types and all that some agents declare.

    Raises:
        ValueError: Two classes share a tag.
    """
    types = CORE_EVENT_TYPES
    for agent in agents:
        types = types.including(*agent.event_types, *agent.element_types)
    return types
