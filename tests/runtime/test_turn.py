"""What a turn's events say about it, without a graph."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soev.domain import (
    ROOT_STREAM,
    Cancelled,
    EffectIntent,
    EffectResult,
    Ended,
    Event,
    Failure,
    Head,
    Input,
    LogEntry,
    Opened,
    Request,
    StoredEvent,
    Trace,
)
from soev.runtime._turn import (
    ThreadState,
    cancelled,
    open_requests,
    opening_input,
    opens_turn,
    pending,
    read_turn,
    turn_starts,
    turn_state,
)

from .turns import Crew, failed, intent, log, note, request, result

BRANCH, TASK = "main/a#1.1", "main/b#1.2"
FRESH = Input(payload="hi")


class Reference:
    """The contract's sentences about a turn, said once more and as plainly as can be."""

    def __init__(self, events: Sequence[Event]) -> None:
        starts = [
            n
            for n, event in enumerate(events)
            if isinstance(event, Input) and event.stream == ROOT_STREAM and event.answers is None
        ]
        self.turn = list(events[starts[-1] :]) if starts else []

    def has(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.turn)

    def last_ones(self) -> list[Event]:
        return [
            event
            for n, event in enumerate(self.turn)
            if not any(
                later.stream == event.stream or later.stream.startswith(event.stream + "/")
                for later in self.turn[n + 1 :]
            )
        ]

    def failures(self, *, transient: bool) -> bool:
        return any(
            isinstance(event, Failure) and event.transient is transient
            for event in self.last_ones()
        )

    def open_streams(self) -> set[str]:
        found = set()
        for n, event in enumerate(self.turn):
            settled = [
                later.intent
                for later in self.turn[n:]
                if isinstance(later, EffectResult) and later.stream == event.stream
            ]
            if isinstance(event, EffectIntent) and event.id not in settled:
                found.add(event.stream)
        return found

    def requests(self) -> list[Request]:
        if self.has(Ended):
            return []
        waiting = [event for event in self.last_ones() if isinstance(event, Request)]
        if self.has(Cancelled) or self.failures(transient=False):
            return [event for event in waiting if event.stream in self.open_streams()]
        return waiting

    def state(self, held: bool) -> ThreadState:
        if self.has(Cancelled):
            return "cancelled"
        if self.has(Ended) or not self.turn:
            return "finished"
        if held:
            return "running"
        if self.failures(transient=False):
            return "failed"
        if any(isinstance(event, Request) for event in self.last_ones()):
            return "waiting"
        return "failed" if self.failures(transient=True) else "interrupted"

    def accepts(self, held: bool) -> bool:
        over = self.state(held) in ("cancelled", "finished", "failed")
        return over and not self.open_streams()


def agree(events: Sequence[Event]) -> None:
    """Hold the reading of a log, and of the turn alone, to the reference."""
    expected = Reference(events)
    for given_events in (events, expected.turn, Trace(events)):
        reading = read_turn(given_events)
        for held in (True, False):
            assert turn_state(given_events, held) == expected.state(held)
            assert reading.accepts_input(held=held) is expected.accepts(held)
        assert list(pending(given_events)) == expected.requests()
        assert set(reading.intents) == expected.open_streams()
        assert [given_events[n] for n in reading.pending()] == expected.requests()
    assert list(open_requests(Trace(events))) == expected.requests()
    assert cancelled(Trace(events)) is expected.has(Cancelled)


ALPHABET: list[Event] = [
    note("a"),
    note("a", BRANCH),
    request("a"),
    request("a", BRANCH),
    request("b", TASK),
    failed("a"),
    failed("a", BRANCH),
    failed("b", TASK, transient=True),
    intent("a", BRANCH),
    result("a", BRANCH),
    Input(answers=2),
    Cancelled(input=1),
    Ended(),
]


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_every_small_turn(length: int) -> None:
    """State, pending requests and whether an input is accepted, for every turn of few events."""
    for events in product(ALPHABET, repeat=length):
        agree(log(FRESH, *events))


def test_log_without_a_turn() -> None:
    """A log that no input opened has no turn, so it is finished."""
    for events in ([], [Opened(agent="x")], [note("a")]):
        agree(log(*events))
        assert turn_state(events, held=True) == "finished"


@given(st.integers(0, 2**32).map(Random))
@settings(max_examples=30, deadline=None)
def test_random_turns(random: Random) -> None:
    """The same holds at every event of random turns with branches, tasks and effects."""
    events = Crew(random).turn(30)
    for count in range(len(events) + 1):
        agree(events[:count])


def test_only_the_current_turn_counts() -> None:
    """What an earlier turn left behind is settled by the next input."""
    events = log(FRESH, note("a"), failed("a", BRANCH), Cancelled(input=1), FRESH, note("a"))
    agree(events)
    assert turn_state(events, held=False) == "interrupted"


def test_recovery_request_of_a_cancelled_turn_is_pending() -> None:
    """After Cancelled a request still waits when an intent of its stream is open."""
    events = log(FRESH, intent("a"), Cancelled(input=1), request("a"))
    assert pending(events) == (events[-1],)
    assert not read_turn(events).accepts_input(held=False)


def test_opens_turn() -> None:
    """Inputs that answer nothing open a turn or a task."""
    assert opens_turn(FRESH)
    assert not opens_turn(Input(answers=1))
    assert not opens_turn(note("a"))


def test_turn_starts() -> None:
    """The indices of inputs that answer nothing are found, heads of tasks included."""
    head = Input(stream=TASK, origin="b")
    events = log(Opened(agent="x"), FRESH, request("a"), Input(answers=3), head, FRESH)
    assert turn_starts(events) == [1, 4, 5]


def test_readers_refuse_a_view() -> None:
    """A view does not show the whole thread, so no request is looked for in it."""
    view = Trace(log(FRESH)).view("main")
    with pytest.raises(ValueError, match="does not show the whole thread"):
        open_requests(view)
    with pytest.raises(ValueError, match="does not show the whole thread"):
        cancelled(view)


class Backwards:
    """A store that is read backwards, and counts how far."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events, self.reads = events, 0

    async def head(self, thread_id: str) -> Head:
        return Head(len(self.events), "life")

    async def read_back(
        self, thread_id: str, *, before: Head
    ) -> AsyncIterator[LogEntry[StoredEvent]]:
        for position in range(before.position, 0, -1):
            self.reads += 1
            event = self.events[position - 1]
            stored = StoredEvent(event.type, event.model_dump_json(), event.stream, event.origin)
            yield LogEntry(position, stored)


class Inputs:
    """Decodes inputs, and nothing else."""

    def decode(self, stored: StoredEvent) -> Event:
        assert stored.type == "input"
        return Input.model_validate_json(stored.data)


@pytest.mark.anyio
async def test_opening_input_reads_back_no_further_than_it_must() -> None:
    """The root's last fresh input is found from the end, without decoding anything else."""
    head = Input(payload="task", stream=TASK)
    events = log(FRESH, note("a"), Input(payload="second"), request("a"), Input(answers=4), head)
    store = Backwards(events)
    found = await opening_input(store, "t", Inputs())  # type: ignore[arg-type]  # what is read of a store
    assert found is not None
    assert found.payload == "second"
    assert store.reads == 4


@pytest.mark.anyio
async def test_opening_input_of_a_thread_without_a_turn() -> None:
    """Where no input is recorded there is None."""
    store = Backwards(log(Opened(agent="x")))
    assert await opening_input(store, "t", Inputs()) is None  # type: ignore[arg-type]  # what is read of a store
