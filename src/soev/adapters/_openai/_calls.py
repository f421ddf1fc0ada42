"""Tool calls, put together from deltas that may come in turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from soev.adapters._openai._text import mended, text_in
from soev.domain import ToolCall, UnencodableError, check_json

Json = Mapping[str, JsonValue]


@dataclass(slots=True)
class _Writing:
    """A call that is being written, and its place among the calls."""

    place: int
    id: str = ""
    name: str = ""
    written: list[str] = field(default_factory=list)

    def add(self, delta: Json) -> None:
        self.id = self.id or text_in(delta, "id")
        function = delta.get("function")
        if not isinstance(function, dict):
            return
        name = text_in(function, "name")
        if name != self.name:
            self.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            self.written.append(json.dumps(arguments))
        elif isinstance(arguments, str):
            self.written.append(arguments)

    def call(self) -> ToolCall:
        written = mended("".join(self.written))
        arguments = _object(written)
        if arguments is None:
            return ToolCall(id=mended(self.id), name=mended(self.name), raw=written)
        return ToolCall(id=mended(self.id), name=mended(self.name), arguments=arguments)


def _object(written: str) -> dict[str, JsonValue] | None:
    """Read a JSON object. Nothing written at all is what models write for no arguments."""
    if not written.strip():
        return {}
    try:
        value = json.loads(written)
        check_json(value)
    except (ValueError, RecursionError, UnencodableError):
        return None
    return value if isinstance(value, dict) else None


class Calls:
    """The calls of one answer.

    A delta belongs to the call of its index. A server that numbers no calls goes on with the last
    one until it gives another id; one that gives every call the same number begins each with an id
    and a name.
    """

    def __init__(self) -> None:
        self._all: list[_Writing] = []
        self._latest: dict[int, _Writing] = {}

    def __len__(self) -> int:
        """Count the calls."""
        return len(self._all)

    def add(self, delta: Json) -> None:
        """Take a delta. One that says nothing begins no call."""
        if not (delta.get("function") or delta.get("id")):
            return
        index = delta.get("index")
        number = index if isinstance(index, int) else self._unnumbered(text_in(delta, "id"))
        call = self._latest.get(number)
        if call is None or _begins_another(call, delta):
            call = self._latest[number] = _Writing(number)
            self._all.append(call)
        call.add(delta)

    def _unnumbered(self, id_: str) -> int:
        known = [number for number, call in self._latest.items() if call.id == id_]
        last = max(self._latest, default=-1)
        if id_:
            return known[0] if known else last + 1
        return max(last, 0)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls in the order of their numbers."""
        return tuple(each.call() for each in sorted(self._all, key=lambda each: each.place))


def _begins_another(call: _Writing, delta: Json) -> bool:
    id_, function = text_in(delta, "id"), delta.get("function")
    named = isinstance(function, dict) and bool(text_in(function, "name"))
    return bool(call.id and id_ and id_ != call.id and named)
