"""Calls of a view, found by a key without walking the view again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from soev.domain import Event, Input, ModelOutput, ToolCall, ToolOutputBase, parse_stream
from soev.runtime._growing import Growing


class _Groups:
    """Calls by key, shared by all states of one line."""

    __slots__ = ("by_key", "keys", "size")

    def __init__(self) -> None:
        self.by_key: dict[Hashable, list[tuple[int, ToolCall]]] = {}
        self.keys: dict[int, Hashable] = {}
        self.size = 0


class CallGroups:
    """The calls of a turn, grouped by a key. It is bounded by its own count."""

    __slots__ = ("_base", "_count", "_groups")

    def __init__(self, base: CallGroups | None = None) -> None:
        self._base, self._groups, self._count = base, _Groups(), 0

    def like(self, call: ToolCall) -> Iterator[ToolCall]:
        """Yield the calls with the key of this very call, the earliest first, itself among them."""
        groups: CallGroups | None = self
        while groups is not None:
            # The id of a call stays its own: the groups keep the call.
            key = groups._groups.keys.get(id(call))
            if key is not None:
                return self._of(key)
            groups = groups._base
        return iter(())

    def _of(self, key: Hashable) -> Iterator[ToolCall]:
        if self._base is not None:
            yield from self._base._of(key)
        for place, call in self._groups.by_key.get(key, ()):
            if place >= self._count:
                return
            yield call

    def add(self, key: Hashable, call: ToolCall) -> CallGroups:
        """Return the groups with one more call."""
        newest = self if self._count == self._groups.size else CallGroups(self)
        newest._groups.by_key.setdefault(key, []).append((newest._count, call))
        newest._groups.keys[id(call)] = key
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
class Done:
    """How many calls of each tool have a result without an error in a turn.

    Args:
        counts: The counts by tool.
        open: The tool of each call without a result, by stream and id. Only the fold that goes
            on from the newest state reads and changes it.
    """

    counts: Mapping[str, int]
    open: dict[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class DoneOfTurn:
    """A fold over a view: the counts of its current turn."""

    def start(self) -> Done:
        """Return no counts."""
        return Done({}, {})

    def step(self, state: Done, event: Event) -> Done:
        """Note the calls of an output, count a result; begin anew with a turn."""
        if opens_turn(event):
            return self.start()
        if isinstance(event, ModelOutput):
            state.open.update({(event.stream, call.id): call.name for call in event.calls})
        name = _answered(state, event) if isinstance(event, ToolOutputBase) else None
        if name is None:
            return state
        return Done({**state.counts, name: state.counts.get(name, 0) + 1}, state.open)

    def fork(self, state: Done) -> Done:
        """Go on from the parent's counts."""
        return Done(state.counts, dict(state.open))


def _answered(state: Done, event: ToolOutputBase) -> str | None:
    """Return the tool whose call a result answers without an error, in its stream or above it."""
    stream: str | None = event.stream
    while stream is not None and event.call_id is not None:
        name = state.open.pop((stream, event.call_id), None)
        if name is not None:
            return name if event.error is None else None
        parts = parse_stream(stream)
        stream = parts.parent if parts else None
    return None


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
