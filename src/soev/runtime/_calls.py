"""Calls of a view, found by a key without walking the view again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from soev.domain import Event, Input, ModelOutput, ToolCall
from soev.runtime._growing import Growing


class _Groups:
    """Calls by key, shared by all states of one line."""

    __slots__ = ("by_key", "size")

    def __init__(self) -> None:
        self.by_key: dict[Hashable, list[tuple[int, ToolCall]]] = {}
        self.size = 0


class CallGroups:
    """The calls of a turn, grouped by a key. It is bounded by its own count."""

    __slots__ = ("_base", "_count", "_groups")

    def __init__(self, base: CallGroups | None = None) -> None:
        self._base, self._groups, self._count = base, _Groups(), 0

    def of(self, key: Hashable) -> Iterator[ToolCall]:
        """Yield the calls of a key, the earliest first."""
        if self._base is not None:
            yield from self._base.of(key)
        for place, call in self._groups.by_key.get(key, ()):
            if place >= self._count:
                return
            yield call

    def add(self, key: Hashable, call: ToolCall) -> CallGroups:
        """Return the groups with one more call."""
        newest = self if self._count == self._groups.size else CallGroups(self)
        newest._groups.by_key.setdefault(key, []).append((newest._count, call))
        newest._groups.size += 1
        grown = CallGroups.__new__(CallGroups)
        grown._base, grown._groups = newest._base, newest._groups
        grown._count = newest._count + 1
        return grown


@dataclass(frozen=True, slots=True)
class CallsOfTurn:
    """A fold over a view: the calls of its current turn by a key.

    Args:
        key: The key of a call, None to leave it out. Compared by value.
    """

    key: Callable[[ToolCall], Hashable | None]

    def start(self) -> CallGroups:
        """Return no calls."""
        return CallGroups()

    def step(self, state: CallGroups, event: Event) -> CallGroups:
        """Take the calls of an output; begin anew with a turn."""
        if opens_turn(event):
            return CallGroups()
        if isinstance(event, ModelOutput):
            for call in event.calls:
                key = self.key(call)
                if key is not None:
                    state = state.add(key, call)
        return state

    def fork(self, state: CallGroups) -> CallGroups:
        """Go on from the parent's calls."""
        return CallGroups(state)


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """A fold over a view: its calls by id, in all turns."""

    def start(self) -> Growing[str, ToolCall]:
        """Return no calls."""
        return Growing()

    def step(self, state: Growing[str, ToolCall], event: Event) -> Growing[str, ToolCall]:
        """Take the calls of an output."""
        if isinstance(event, ModelOutput):
            for call in event.calls:
                state = state.add(call.id, call)
        return state

    def fork(self, state: Growing[str, ToolCall]) -> Growing[str, ToolCall]:
        """Go on from the parent's calls."""
        return Growing(state)


def opens_turn(event: Event) -> bool:
    """Whether an event of a view opens a turn, or is the head of a task."""
    return isinstance(event, Input) and event.answers is None


def name_of(call: ToolCall) -> str:
    """Return the tool that a call names: the key of limits."""
    return call.name
