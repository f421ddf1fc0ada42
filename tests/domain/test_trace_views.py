"""Views of random threads, held to the sentences of the contract said once more."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from soev.domain import (
    ROOT_STREAM,
    Cancelled,
    Event,
    Input,
    ModelOutput,
    Request,
    ToolCall,
    ToolOutput,
    ToolOutputBase,
    Trace,
    TraceBuilder,
    parse_stream,
)
from tests.runtime.turns import Crew, log, note

seeds = st.integers(0, 2**32).map(Random)
examples = settings(max_examples=30, deadline=None)


class Naive:
    """What each stream sees, worked out from the whole log each time."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = list(events)

    def own(self, stream: str) -> list[Event]:
        return [event for event in self.events if event.stream == stream]

    def is_task(self, stream: str) -> bool:
        own = self.own(stream)
        return stream != ROOT_STREAM and bool(own) and isinstance(own[0], Input)

    def branches(self, stream: str, seq: int | None) -> list[str]:
        found = {}
        for name in {event.stream for event in self.events}:
            parts = parse_stream(name)
            if parts and (parts.parent, parts.seq) == (stream, seq) and not self.is_task(name):
                found[parts.index] = name
        return [found[index] for index in sorted(found)]

    def woven(self, stream: str) -> list[Event]:
        """Its own events, and after each the branches that hang on it."""
        seen: list[Event] = []
        for event in self.own(stream):
            seen.append(event)
            for branch in self.branches(stream, event.seq):
                seen += self.woven(branch)
        return seen

    def view(self, stream: str) -> list[Event]:
        parts = parse_stream(stream)
        if parts is None or self.is_task(stream):
            return self.woven(stream)
        before = Naive([e for e in self.events if self.counts(e, parts.parent, parts.seq)])
        return before.view(parts.parent) + self.woven(stream)

    def counts(self, event: Event, parent: str, seq: int) -> bool:
        """Whether an event came in the parent before its fan-out, or in its earlier branches."""
        if event.stream == parent:
            return (event.seq or 0) <= seq
        hangs = event.stream
        while (parts := parse_stream(hangs)) is not None:
            if parts.parent == parent:
                return parts.seq < seq
            hangs = parts.parent
        return True

    def opening(self, stream: str) -> Input | None:
        heads = [
            event
            for event in self.view(stream)
            if isinstance(event, Input) and event.answers is None
        ]
        return heads[-1] if heads else None

    def results(self, stream: str) -> list[tuple[ToolCall, ToolOutputBase]]:
        found: dict[int, tuple[ToolCall, ToolOutputBase]] = {}
        view = self.view(stream)
        for place, event in enumerate(view):
            if isinstance(event, ToolOutputBase):
                call = nearest(view[:place], event)
                if call is not None:
                    found.setdefault(id(call), (call, event))
        return list(found.values())


def nearest(before: Sequence[Event], result: ToolOutputBase) -> ToolCall | None:
    """Find the nearest earlier call of a result's id in its stream, else in those above."""
    stream: str | None = result.stream
    while stream is not None:
        for event in reversed(before):
            if event.stream == stream and isinstance(event, ModelOutput):
                for call in reversed(event.calls):
                    if call.id == result.call_id:
                        return call
        parts = parse_stream(stream)
        stream = parts.parent if parts else None
    return None


def streams_of(events: Sequence[Event]) -> list[str]:
    """Return the streams of a log, first appearance first."""
    return list(dict.fromkeys(event.stream for event in events))


def check(view: Trace, naive: Naive) -> None:
    """Hold one view, and all that it tells, to the naive one."""
    stream, expected = view.stream, naive.view(view.stream)
    assert list(view) == expected
    assert list(reversed(view)) == expected[::-1]
    assert view.opening == naive.opening(stream)
    start = expected.index(view.opening) if view.opening else len(expected)
    if view.opening:
        start = max(n for n, event in enumerate(expected) if event is view.opening)
    assert list(view.turn) == expected[start:]
    assert list(reversed(view.turn)) == expected[start:][::-1]
    for kind in (Event, Input, ToolOutput, ModelOutput, Request):
        found = [event for event in expected if isinstance(event, kind)]
        assert view.of(kind) == tuple(found)
        assert view.latest(kind) == (found[-1] if found else None)
    shown = [e for event in expected for e in getattr(event, "elements", ())]
    assert view.elements() == tuple(dict.fromkeys(shown))
    results = naive.results(stream)
    assert [(id(call), each) for call, each in view.results().items()] == [
        (id(call), each) for call, each in results
    ]


@examples
@given(seeds)
def test_views_of_whole_logs(random: Random) -> None:
    """Every stream's view of a finished log is what the contract says."""
    events = Crew(random).turn(40)
    trace, naive = Trace(events), Naive(events)
    assert trace.streams == tuple(streams_of(events))
    for stream in streams_of(events):
        check(trace.view(stream), naive)


@examples
@given(seeds)
def test_views_of_a_growing_log(random: Random) -> None:
    """Asked at any moment and in any order, a growing log gives the same views, and keeps them."""
    events = Crew(random).turn(40)
    builder = TraceBuilder()
    kept: list[tuple[Trace, list[Event]]] = []
    for count, event in enumerate(events, 1):
        builder.feed(event)
        naive = Naive(events[:count])
        for stream in streams_of(events[:count]):
            if random.random() < 0.15:
                view = builder.view(stream)
                check(view, naive)
                kept.append((view, list(view)))
    for view, seen in kept:
        assert list(view) == seen
    assert list(builder.trace()) == events


@examples
@given(seeds)
def test_responses(random: Random) -> None:
    """A request's response is the input of its stream that names its seq."""
    events = Crew(random).turn(40)
    trace = Trace(events)
    for event in trace.of(Request):
        answers = [
            each
            for each in events
            if isinstance(each, Input) and (each.stream, each.answers) == (event.stream, event.seq)
        ]
        assert trace.response_to(event) == (answers[0] if answers else None)


def test_cancel_in_the_middle_of_branches() -> None:
    """Branches stand after the event that they hang on, also when a Cancelled came between."""
    a, b = "main/a#2.1", "main/b#2.2"
    fresh = Input(payload="hi")
    events = log(fresh, note("s"), note("b", b), Cancelled(input=1), note("a", a), fresh)
    assert [event.stream for event in Trace(events).view("main")] == [
        "main", "main", a, b, "main", "main",
    ]  # fmt: skip


def test_resumed_branch_does_not_rebuild_the_lines() -> None:
    """A run that begins in the middle of a fan-out extends each line, and copies none."""
    a, b = "main/a#2.1", "main/b#2.2"
    builder = TraceBuilder()
    for event in log(Input(payload="hi"), note("s"), note("a", a), note("b", b)):
        builder.feed(event)
    lines = {builder.view(stream)._line for stream in (a, b)}
    for _ in range(5):
        builder.feed(note("a", a))
        assert builder.view(a)._line in lines
        assert builder.view(b)._line in lines
