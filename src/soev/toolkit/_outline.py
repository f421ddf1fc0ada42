"""What of a view is shown to a model, in order, as a value that grows with the view."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from soev.domain import (
    Compaction,
    Event,
    Input,
    ModelOutput,
    NodeName,
    Request,
    ToolOutputBase,
    parse_stream,
)

W = TypeVar("W")


class Item(NamedTuple):
    """One thing that is shown, with its place in its stream.

    Args:
        event: The event. The results of an output's calls go with it.
        seq: Its seq in its stream.
        hollow: Whether a compaction covers it. Then only its calls still count.
    """

    event: Input | ModelOutput | Compaction
    seq: int
    hollow: bool = False


class _Log(Generic[W]):
    """The items of one line of views: those of the outline that it goes on from, then its own."""

    __slots__ = ("base", "items", "places", "seqs", "written")

    def __init__(self, base: Outline[W] | None = None) -> None:
        self.base = base
        self.items: list[Item] = []
        self.seqs: dict[str, int] = {} if base is None else dict(base.log.seqs)
        own: dict[int, int] = {}
        self.places: tuple[dict[int, int], ...] = (own, *(base.log.places if base else ()))
        self.written: W | None = None

    def rewritten(self, items: list[Item]) -> _Log[W]:
        """Return a log of other items. What it knows of the events stays."""
        log: _Log[W] = _Log()
        log.items, log.seqs, log.places = items, self.seqs, self.places
        return log


@dataclass(frozen=True, slots=True)
class Outline(Generic[W]):
    """What is shown of a view. Outlines of one line share their items.

    Args:
        log: The shared items, and what was written of them.
        count: How many items count.
        open: The place of the newest output of the turn, whose calls can still get results, or -1.
        strays: How many results came that belong to an earlier output.
        results: How many results with a call id there are.
        asked: The stream and seq of each hidden request that has no answer yet.
    """

    log: _Log[W]
    count: int = 0
    open: int = -1
    strays: int = 0
    results: int = 0
    asked: tuple[tuple[str, int], ...] = ()

    def items(self, start: int = 0) -> Iterator[Item]:
        """Yield the items from one place on."""
        base = self.log.base
        offset = 0 if base is None else base.count
        if base is not None and start < offset:
            yield from base.items(start)
        for place in range(max(start - offset, 0), self.count - offset):
            yield self.log.items[place]

    def at(self, place: int) -> Item:
        """Return the item at a place."""
        outline = self
        while outline.log.base is not None and place < outline.log.base.count:
            outline = outline.log.base
        return outline.log.items[place - (outline.log.base.count if outline.log.base else 0)]

    def open_output(self) -> ModelOutput | None:
        """Return the output whose calls can still get results."""
        event = self.at(self.open).event if self.open >= 0 else None
        return event if isinstance(event, ModelOutput) else None

    def handle(self, result: ToolOutputBase) -> str:
        """Return the handle of a result: `r1` for the first that has a call id.

        Sibling branches can use one call id twice, so the result itself is looked up, not its id.
        """
        found = (places[id(result)] for places in self.log.places if id(result) in places)
        return f"r{next(found)}"


@dataclass(frozen=True, slots=True)
class OutlineFold(Generic[W]):
    """The fold that makes outlines.

    Args:
        key: What the written form depends on, so that two builders don't share it.
        hidden: The nodes whose requests are answered without the model being shown the answer.
    """

    key: Hashable
    hidden: frozenset[NodeName] = frozenset()

    def start(self) -> Outline[W]:
        """Return the outline of no events."""
        log: _Log[W] = _Log()
        return Outline(log)

    def fork(self, state: Outline[W]) -> Outline[W]:
        """Return the outline that a branch goes on from."""
        return replace(state, log=_Log(state))

    def step(self, state: Outline[W], event: Event) -> Outline[W]:
        """Return the outline with one more event."""
        seqs = state.log.seqs
        seq = seqs[event.stream] = event.seq or seqs.get(event.stream, 0) + 1
        if isinstance(event, ModelOutput):
            return _added(state, event, seq, opens=state.count)
        if isinstance(event, Input):
            return self._heard(state, event, seq)
        if isinstance(event, Compaction):
            return _compacted(state, event)
        if isinstance(event, Request) and event.origin in self.hidden:
            return replace(state, asked=(*state.asked, (event.stream, seq)))
        if isinstance(event, ToolOutputBase) and event.call_id is not None:
            state.log.places[0][id(event)] = state.results + 1
            strays = state.strays + _strays(state, event)
            seen = state.results + 1
            return Outline(state.log, state.count, state.open, strays, seen, state.asked)
        return state

    def _heard(self, state: Outline[W], event: Input, seq: int) -> Outline[W]:
        if event.answers is None:
            return _added(state, event, seq, opens=-1)
        answered = (event.stream, event.answers)
        if answered not in state.asked:
            return _added(state, event, seq, opens=state.open)
        asked = tuple(request for request in state.asked if request != answered)
        return replace(state, asked=asked)


def _added(state: Outline[W], event: Input | ModelOutput, seq: int, *, opens: int) -> Outline[W]:
    state.log.items.append(Item(event, seq))
    count = state.count + 1
    return Outline(state.log, count, opens, state.strays, state.results, state.asked)


def _strays(state: Outline[W], event: ToolOutputBase) -> bool:
    """Whether a result belongs to no call of the open output."""
    output = state.open_output()
    return output is None or all(call.id != event.call_id for call in output.calls)


def _compacted(state: Outline[W], event: Compaction) -> Outline[W]:
    """Put a compaction in place of what it covers. What was written starts anew."""
    items: list[Item] = []
    summary, opens = Item(event, event.through), -1
    waits = True
    for place, item in enumerate(state.items()):
        hangs = _hangs(event.stream, item)
        if waits and hangs is not None:
            items.append(summary)
            waits = False
        covered = hangs is not None and hangs <= event.through
        if not covered:
            opens = len(items) if place == state.open else opens
            items.append(item)
        elif isinstance(item.event, ModelOutput) and item.event.calls:
            items.append(item._replace(hollow=True))
    if waits:
        items.append(summary)
    return replace(state, log=state.log.rewritten(items), count=len(items), open=opens)


def _hangs(stream: str, item: Item) -> int | None:
    """Return the seq of a stream that an item is at, or whose branch it is in, else None.

    An earlier compaction of the stream counts as its beginning: each later one covers it.
    """
    own, seq = item.event.stream, item.seq
    if own == stream and isinstance(item.event, Compaction):
        return 0
    while own != stream:
        parts = parse_stream(own)
        if parts is None:
            return None
        own, seq = parts.parent, parts.seq
    return seq
