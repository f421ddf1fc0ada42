"""Reads the arguments of calls, compares them, and says to a model what does not fit."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError

from soev.domain import ArgumentMark, JsonValue, ToolCall
from soev.runtime._marks import Filling, marks_of, recorded_fields, written_name
from soev.runtime._numbering import Numbering
from soev.runtime._translate import pointer, written

_MOST_LISTED = 20
_MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class Reading:
    """How the calls of one tool are read.

    Args:
        cls: The pydantic model of its arguments.
        recorded: Its `Recorded` fields, each with its name in JSON.
        marks: Which of its fields hold ids.
    """

    cls: type[BaseModel]
    recorded: tuple[tuple[str, str], ...]
    marks: tuple[ArgumentMark, ...]

    def __hash__(self) -> int:
        """Hash by the class, which the rest follows from."""
        return hash(self.cls)

    def parse(self, call: ToolCall, filling: Filling) -> BaseModel:
        """Return the arguments of a call, with what the view gives in them.

        Raises:
            ValidationError: They do not fit.
        """
        data: dict[str, JsonValue] = dict(call.arguments)
        for _, field in self.recorded:
            data[field] = []
        return self.cls.model_validate_json(json.dumps(data), context=filling)


def reading_of(arguments: type[BaseModel]) -> Reading:
    """Return how calls with these arguments are read.

    Raises:
        ValueError: A mark stands where no call could be translated.
    """
    return _reading(arguments)


@lru_cache(maxsize=512)
def _reading(arguments: type[BaseModel]) -> Reading:
    return Reading(arguments, tuple(recorded_fields(arguments).items()), marks_of(arguments))


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two calls identical: the tool, and the parsed arguments without `Recorded` ones.

    Args:
        readings: How the calls of each tool are read, by name.
    """

    readings: tuple[tuple[str, Reading], ...]

    def __call__(self, call: ToolCall) -> Hashable | None:
        """Return the key of a call, None for one that no tool could run."""
        reading = next((each for name, each in self.readings if name == call.name), None)
        if reading is None or call.raw is not None or call.unresolved:
            return None
        try:
            arguments = reading.parse(call, Filling(None))
        except ValidationError:
            return None
        recorded = {name for name, _ in reading.recorded}
        fields = ((name, _key(value)) for name, value in arguments if name not in recorded)
        return (call.name, tuple(fields))


def _key(value: Any) -> Hashable:
    """Return a key that two values share only when they are equal and of one class throughout."""
    if isinstance(value, BaseModel):
        return (type(value), tuple((name, _key(each)) for name, each in value))
    if isinstance(value, Mapping):
        return (type(value), frozenset((_key(key), _key(each)) for key, each in value.items()))
    if isinstance(value, (set, frozenset)):
        return (type(value), frozenset(_key(each) for each in value))
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_key(each) for each in value))
    try:
        hash(value)
    except TypeError:
        return (type(value), repr(value))
    return (type(value), value)


def misfit(call: ToolCall, error: ValidationError, reading: Reading, numbering: Numbering) -> str:
    """Say which arguments do not fit, a line for each field, in what the model wrote.

    Args:
        call: The call.
        error: What pydantic found.
        reading: How the call is read.
        numbering: The numbers and handles that the model was shown.
    """
    shown = written(call, reading.marks, numbering)
    lines: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        missing = each["type"] == "missing"
        path, value = _place(shown, each["loc"], missing=missing)
        told = lines.setdefault(path, [])
        problem = each["msg"].removeprefix("Value error, ")
        if problem not in told:
            told.append(problem)
        if not missing and path:
            values[path] = f" (you wrote {_quoted(value)})"
    rows = [
        f"- {f'`{path}`: ' if path else ''}{'; '.join(told)}{values.get(path, '')}"
        for path, told in lines.items()
    ]
    return "\n".join([f"The arguments of `{call.name}` do not fit:", *rows])


def _place(
    arguments: JsonValue, loc: Iterable[str | int], *, missing: bool
) -> tuple[str, JsonValue]:
    """Return the path of a value as the model wrote it, and the value."""
    taken: list[str] = []
    value = arguments
    keys = list(loc)
    for place, key in enumerate(keys):
        found, inner = _inner(value, key)
        if not found and not (missing and place == len(keys) - 1):
            continue
        taken.append(str(key))
        value = inner
    return ".".join(taken), value


def _inner(value: JsonValue, key: str | int) -> tuple[bool, JsonValue]:
    """Look up a key or place; pydantic's names of a union's members are found nowhere."""
    if isinstance(value, dict) and isinstance(key, str) and key in value:
        return True, value[key]
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return True, value[key]
    return False, None


def _quoted(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"


def no_object(call: ToolCall, reading: Reading) -> str:
    """Say that the arguments are no JSON object, and what would be one."""
    hidden = {name for name, _ in reading.recorded}
    fields = [
        f"`{written_name(name, field)}`{'' if field.is_required() else ' (optional)'}"
        for name, field in reading.cls.__pydantic_fields__.items()
        if name not in hidden
    ]
    wanted = f" with {', '.join(fields)}" if fields else ""
    return (
        f"The arguments of `{call.name}` must be one JSON object{wanted}. "
        f"You wrote {_quoted(call.raw)}."
    )


def nothing_named(call: ToolCall, reading: Reading, numbering: Numbering) -> str:
    """Say which numbers and handles name nothing acceptable, and which would."""
    rows = [
        f"- {_misnamed(call, each, mark, numbering)}"
        for each in call.unresolved
        for mark in reading.marks
        if each == pointer(mark.field) or each.startswith(pointer(mark.field) + "/")
    ]
    return "\n".join([f"The arguments of `{call.name}` name what is not there:", *rows])


def _misnamed(call: ToolCall, path: str, mark: ArgumentMark, numbering: Numbering) -> str:
    places = path.removeprefix(pointer(mark.field)).split("/")[1:]
    keys: list[str | int] = [mark.field, *(int(place) for place in places)]
    where, value = _place(dict(call.arguments), keys, missing=False)
    if mark.kind == "result":
        wanted, valid = "the handle of a result", list(numbering.calls)
    else:
        names = " or ".join(each.__name__ for each in mark.accepts)
        wanted = f"the number of a {names}"
        shown = sorted(numbering.elements.items())
        valid = [str(number) for number, each in shown if isinstance(each, mark.accepts)]
    return f"`{where}`: {_quoted(value)} is not {wanted}. {_listed(valid)}"


def _listed(valid: Sequence[str]) -> str:
    if not valid:
        return "There is none yet."
    listed = ", ".join(valid[-_MOST_LISTED:])
    return f"Valid: {'…, ' if len(valid) > _MOST_LISTED else ''}{listed}."
