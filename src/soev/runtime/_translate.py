"""Turns the numbers and handles in a call's arguments into real ids, and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from soev.domain import ArgumentMark, JsonValue, ToolCall
from soev.runtime._numbering import Numbering

_LONGEST = 18


def resolved(call: ToolCall, marks: Sequence[ArgumentMark], numbering: Numbering) -> ToolCall:
    """Return a call with real ids in place of numbers and handles.

    What names nothing, or an element of a class that the argument does not accept, stays as it
    was written, and its JSON pointer goes into `unresolved`.

    Args:
        call: The call as the model wrote it.
        marks: Which arguments hold numbers and handles.
        numbering: The numbers and handles that the model was shown.
    """
    unresolved: list[str] = []
    arguments: dict[str, JsonValue] = dict(call.arguments)
    for mark in marks:
        if mark.field in arguments:

            def real(value: JsonValue, mark: ArgumentMark = mark) -> str | None:
                return _real(value, mark, numbering)

            arguments[mark.field] = _each(
                arguments[mark.field], real, pointer(mark.field), unresolved
            )
    if not marks:
        return call
    return call.model_copy(update={"arguments": arguments, "unresolved": tuple(unresolved)})


def written(
    call: ToolCall, marks: Sequence[ArgumentMark], numbering: Numbering
) -> dict[str, JsonValue]:
    """Return a recorded call's arguments as a model is shown them: numbers and handles.

    Args:
        call: The call as it is recorded.
        marks: Which arguments hold ids.
        numbering: The numbers and handles of the view that the model is shown.
    """
    arguments: dict[str, JsonValue] = dict(call.arguments)
    for mark in marks:
        if mark.field in arguments:

            def shown(value: JsonValue, mark: ArgumentMark = mark) -> str | None:
                return _shown(value, mark, numbering)

            arguments[mark.field] = _each(
                arguments[mark.field], shown, pointer(mark.field), [], set(call.unresolved)
            )
    return arguments


def pointer(*keys: str | int) -> str:
    """Return the JSON pointer of a path."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def _each(
    value: JsonValue,
    one: Callable[[JsonValue], str | None],
    path: str,
    missed: list[str],
    skipped: Collection[str] = (),
) -> JsonValue:
    """Translate one value, or each item of a list; note the pointers of those without a match."""
    if isinstance(value, list):
        return [
            _each(item, one, f"{path}/{place}", missed, skipped) for place, item in enumerate(value)
        ]
    if value is None or path in skipped:
        return value
    found = one(value)
    if found is None:
        missed.append(path)
        return value
    return found


def _real(value: JsonValue, mark: ArgumentMark, numbering: Numbering) -> str | None:
    if mark.kind == "result":
        return numbering.call(value.strip()) if isinstance(value, str) else None
    number = _number(value)
    element = None if number is None else numbering.element(number)
    return element.id if isinstance(element, mark.accepts) else None


def _shown(value: JsonValue, mark: ArgumentMark, numbering: Numbering) -> str | None:
    if not isinstance(value, str):
        return None
    if mark.kind == "result":
        return numbering.handle(value)
    number = numbering.number(value)
    return None if number is None else str(number)


def _number(value: JsonValue) -> int | None:
    """Read a number that a model wrote as a number or as a text."""
    if isinstance(value, str):
        digits = value.strip()
        short = len(digits) <= _LONGEST
        return int(digits) if short and digits.isascii() and digits.isdecimal() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
