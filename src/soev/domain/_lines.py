"""The growing lists that traces are windows on.

A `Line` is what one stream sees: a list that only grows, so every window on it stays right. A
branch's line goes on from a window on its parent's. A `Weave` keeps the streams of one thread
and brings their lines up to date when somebody looks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from soev.domain._event import ROOT_STREAM, Event, Input

S = TypeVar("S")
MAX_FOLDS = 16


class Fold(Protocol[S]):
    """A value that grows with a view, one event at a time. It is kept with the trace.

    A fold is hashable and compared by value, and a state must stay right when later events are
    added: share what grows and keep a count.
    """

    def start(self) -> S:
        """Return the state before any event."""
        ...

    def step(self, state: S, event: Event) -> S:
        """Return the state after one more event."""
        ...

    def fork(self, state: S) -> S:
        """Return the state that a branch goes on from."""
        ...


@dataclass(frozen=True, slots=True)
class StreamName:
    """The parts of a branch's or a task's stream name: `PARENT/NODE#SEQ.I`.

    Args:
        parent: The stream that it hangs under.
        node: The first node of the branch, or the delegation of the task.
        seq: The seq of the parent's event that it hangs on, 0 for none.
        index: Its 1-based place among its siblings.
    """

    parent: str
    node: str
    seq: int
    index: int


def parse_stream(name: str) -> StreamName | None:
    """Take a stream's name apart, or return None for one that hangs under no other."""
    parent, slash, tail = name.rpartition("/")
    node, hash_, numbers = tail.rpartition("#")
    seq, dot, index = numbers.partition(".")
    if not (slash and hash_ and dot and seq.isdecimal() and index.isdecimal()):
        return None
    return StreamName(parent, node, int(seq), int(index))


def stream_name(parent: str, node: str, seq: int, index: int) -> str:
    """Return the name of the stream of an edge's, or a hand-off's, 1-based `index`-th item."""
    return f"{parent}/{node}#{seq}.{index}"


class Line:
    """What one stream sees, as a list that only grows.

    Places are counted from the first event of the view, those of the base included.
    """

    __slots__ = ("base", "folds", "hits", "items", "name", "offset")

    def __init__(self, name: str, base: tuple[Line, int] | None = None) -> None:
        self.name = name
        self.base = base
        self.offset = base[1] if base else 0
        self.items: list[Event] = []
        self.hits: dict[object, tuple[list[int], list[int]]] = {}
        self.folds: dict[Any, list[Any]] = {}

    @property
    def stop(self) -> int:
        """The number of events."""
        return self.offset + len(self.items)

    def at(self, place: int) -> Event:
        """Return the event at a place."""
        line = self
        while place < line.offset and line.base is not None:
            line = line.base[0]
        return line.items[place - line.offset]

    def walk(self, start: int, stop: int) -> Iterator[Event]:
        """Yield the events from one place to another."""
        if start < self.offset and self.base is not None:
            yield from self.base[0].walk(start, min(stop, self.offset))
        items, offset = self.items, self.offset
        for place in range(max(start - offset, 0), stop - offset):
            yield items[place]

    def back(self, start: int, stop: int) -> Iterator[Event]:
        """Yield the events from before one place back to another."""
        items, offset = self.items, self.offset
        for place in range(stop - offset - 1, max(start - offset, 0) - 1, -1):
            yield items[place]
        if start < offset and self.base is not None:
            yield from self.base[0].back(start, min(stop, offset))

    def last(self, types: type[Event] | tuple[type[Event], ...], start: int, stop: int) -> int:
        """Return the place of the last event of the classes in a window, or -1."""
        return self._last(types, lambda event: isinstance(event, types), start, stop)

    def opening(self, start: int, stop: int) -> int:
        """Return the place of the input that opened the last turn in a window, or -1."""
        return self._last(Input, self._opens, start, stop, key="openings")

    def places(self, types: type[Event], start: int, stop: int) -> list[int]:
        """Return the places of the events of a class in a window."""
        found: list[int] = []
        if start < self.offset and self.base is not None:
            found = self.base[0].places(types, start, min(stop, self.offset))
        own = max(stop - self.offset, 0)
        hits = self._hits(types, lambda event: isinstance(event, types), own)
        first = bisect_left(hits, start - self.offset)
        return found + [self.offset + hit for hit in hits[first : bisect_left(hits, own)]]

    def fold(self, fold: Fold[S], stop: int) -> S:
        """Return a fold's state over the first `stop` events, from the last one kept here."""
        own = stop - self.offset
        if own <= 0 and self.base is not None:
            return self.base[0].fold(fold, stop)
        kept = self.folds.get(fold)
        if kept is None or kept[0] > own:
            upto, state = 0, self._beginning(fold)
        else:
            upto, state = kept
        if upto == own:
            return state
        for event in self.items[upto:own]:
            state = fold.step(state, event)
        if kept is None:
            self._keep(fold, [own, state])
        elif kept[0] < own:
            kept[:] = own, state
        return state

    def _beginning(self, fold: Fold[S]) -> S:
        return fold.fork(self.base[0].fold(fold, self.base[1])) if self.base else fold.start()

    def _keep(self, fold: Fold[S], kept: list[Any]) -> None:
        if len(self.folds) >= MAX_FOLDS:
            del self.folds[next(iter(self.folds))]
        self.folds[fold] = kept

    def _opens(self, event: Event) -> bool:
        if not isinstance(event, Input) or event.answers is not None:
            return False
        return event.stream == self.name or self.name.startswith(event.stream + "/")

    def _last(
        self,
        types: object,
        test: Callable[[Event], bool],
        start: int,
        stop: int,
        key: object = None,
    ) -> int:
        line: Line = self
        while True:
            own = stop - line.offset
            if own > 0:
                hits = line._hits(types if key is None else key, test, own)
                count = bisect_left(hits, own)
                if count:
                    place = line.offset + hits[count - 1]
                    return place if place >= start else -1
            if line.base is None:
                return -1
            line, stop = line.base[0], min(stop, line.offset)

    def _hits(self, key: object, test: Callable[[Event], bool], own: int) -> list[int]:
        """Return the own places of what passes a test, scanned as far as asked for."""
        scanned, hits = self.hits.setdefault(key, ([0], []))
        for place in range(scanned[0], own):
            if test(self.items[place]):
                hits.append(place)
        scanned[0] = max(scanned[0], own)
        return hits


class _Stream:
    """One stream of a thread: its own events, what hangs under it, and its line when asked for."""

    __slots__ = (
        "answers", "index", "kids", "line", "marks", "name", "own", "parent", "places", "seq",
        "seqs", "spliced", "task",
    )  # fmt: skip

    def __init__(self, name: str, parent: _Stream | None, seq: int, index: int) -> None:
        self.name, self.parent, self.seq, self.index = name, parent, seq, index
        self.task = False
        self.own: list[Event] = []
        self.seqs: list[int] = []
        self.places: list[int] = []
        self.kids: dict[int, dict[int, _Stream]] = {}
        self.answers: dict[int, int] = {}
        self.line: Line | None = None
        self.marks: list[int] = []
        self.spliced = False

    def drop_line(self) -> None:
        """Forget the line, and those of the branches that go on from it."""
        self.line, self.marks, self.spliced = None, [], False
        for kids in self.kids.values():
            for kid in kids.values():
                if not kid.task:
                    kid.drop_line()

    def passed(self, kid: _Stream) -> bool:
        """Whether the line went on past the events of a branch, so that no more fit in."""
        if self.line is None:
            return False
        taken, hangs = len(self.marks) - 1, bisect_right(self.seqs, kid.seq)
        return taken > hangs or (taken == hangs and self.spliced)


class Weave:
    """The streams of one thread, fed event by event in log order."""

    __slots__ = ("log", "streams")

    def __init__(self, name: str = ROOT_STREAM) -> None:
        self.log = Line(name)
        self.streams: dict[str, _Stream] = {}

    def feed(self, event: Event) -> None:
        """Take the next event of the log. One without a seq counts as the next of its stream."""
        stream = self.streams.get(event.stream) or self._open(event.stream)
        if not stream.own:
            self._begin(stream, event)
        elif stream.parent is not None and not stream.task:
            self._disorder(stream)
        if isinstance(event, Input) and event.answers is not None:
            stream.answers.setdefault(event.answers, len(self.log.items))
        stream.seqs.append(event.seq or (stream.seqs[-1] + 1 if stream.seqs else 1))
        stream.own.append(event)
        stream.places.append(len(self.log.items))
        self.log.items.append(event)

    def line(self, name: str) -> Line:
        """Return the line of a stream, up to date. A stream without an event counts as a branch."""
        return self._caught_up(self.streams.get(name) or self._open(name))

    def names(self, count: int) -> tuple[str, ...]:
        """Return the streams among the first `count` events, first appearance first."""
        begun = [s for s in self.streams.values() if s.own and s.places[0] < count]
        return tuple(s.name for s in sorted(begun, key=lambda s: s.places[0]))

    def answer(self, stream: str, seq: int, count: int) -> Input | None:
        """Return the input among the first `count` events that answers a request."""
        found = self.streams.get(stream)
        place = None if found is None else found.answers.get(seq)
        event = None if place is None or place >= count else self.log.items[place]
        return event if isinstance(event, Input) else None

    def seq(self, event: Event) -> int | None:
        """Return the seq of an event, also of one that was not stored yet, None for a stranger."""
        stream = self.streams.get(event.stream)
        if event.seq is not None or stream is None:
            return event.seq
        found = (seq for own, seq in zip(stream.own, stream.seqs, strict=True) if own is event)
        return next(found, None)

    def _open(self, name: str) -> _Stream:
        parts = parse_stream(name)
        parent = None
        if parts is not None:
            parent = self.streams.get(parts.parent) or self._open(parts.parent)
        stream = _Stream(name, parent, parts.seq if parts else 0, parts.index if parts else 0)
        self.streams[name] = stream
        return stream

    def _begin(self, stream: _Stream, event: Event) -> None:
        """Settle at its first event whether a stream is a task or a branch."""
        stream.task = isinstance(event, Input)
        if stream.task:
            stream.drop_line()
        elif stream.parent is not None:
            stream.parent.kids.setdefault(stream.seq, {})[stream.index] = stream
            self._disorder(stream)

    def _disorder(self, stream: _Stream) -> None:
        """Rebuild, when next asked for, each line above that has gone on past this branch."""
        kid, parent = stream, stream.parent
        while parent is not None and not kid.task:
            if parent.passed(kid):
                parent.drop_line()
            kid, parent = parent, parent.parent

    def _caught_up(self, stream: _Stream) -> Line:
        line = self._grown(stream, len(stream.own))
        if not stream.spliced:
            self._splice(stream, line, stream.seqs[-1] if stream.seqs else 0)
        return line

    def _grown(self, stream: _Stream, count: int) -> Line:
        """Bring a line to its first own events, without the branches on the last of them.

        They are left out while they run, so that their next event fits in.
        """
        line = stream.line
        if line is None or not stream.own:
            line = stream.line = Line(stream.name, self._base(stream))
            stream.marks, stream.spliced = [line.offset], False
        for taken in range(len(stream.marks) - 1, count):
            if not stream.spliced:
                self._splice(stream, line, stream.seqs[taken - 1] if taken else 0)
            line.items.append(stream.own[taken])
            stream.marks.append(line.stop)
            stream.spliced = False
        return line

    def _base(self, stream: _Stream) -> tuple[Line, int] | None:
        parent = stream.parent
        if parent is None or stream.task:
            return None
        hangs = bisect_right(parent.seqs, stream.seq)
        return self._grown(parent, hangs), parent.marks[hangs]

    def _splice(self, stream: _Stream, line: Line, seq: int) -> None:
        kids = stream.kids.get(seq)
        if not kids:
            return
        for index in sorted(kids):
            line.items.extend(self._caught_up(kids[index]).items)
        stream.spliced = True
