"""Threads: inputs, status, cancel, fork and delete."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    BudgetExceeded,
    Cancelled,
    EffectIntent,
    Ended,
    Event,
    Failure,
    Head,
    Input,
    JsonSchema,
    JsonValue,
    LogEntry,
    ModelOutput,
    Opened,
    PositionOutOfRangeError,
    Request,
    StoredEvent,
    ThreadExistsError,
    TransientError,
    UnknownThreadError,
    stamped,
)
from soev.runtime._codec import CORE_EVENT_TYPES, encode
from soev.runtime._errors import InputDeniedError, NothingToCancelError, ThreadActiveError
from soev.runtime._graph import Budget
from soev.runtime._runs import Runs
from soev.runtime._thread import Thread
from soev.runtime._turn import opening_input
from tests.runtime.world import (
    HELLO,
    CountedIds,
    FaultyTraceStore,
    Gate,
    asks,
    line,
    names,
    raises,
    react,
    says,
    thread_of,
)

pytestmark = pytest.mark.anyio

FAILED = Failure(error_type="ValueError", message="no", transient=False)
FAILED_FOR_NOW = Failure(error_type="TransientError", message="no", transient=True)
ASKED = Request(kind="approval", actor="person")
INTENT = EffectIntent(kind="refund", id="i-1")


async def written(*events: Event, store: InMemoryTraceStore | None = None) -> Thread:
    """Return a thread whose log holds these events, each appended by itself."""
    store = store or InMemoryTraceStore()
    head = Head()
    for place, event in enumerate(events):
        stored = encode(stamped(event, origin="a"))
        await store.append("t-1", [stored], after=head, batch=str(place))
        head = await store.head("t-1")
    return thread_of(None, store)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "finished"),
        ([Opened(agent="a")], "finished"),
        ([HELLO, Ended()], "finished"),
        ([HELLO, Cancelled(input=1)], "cancelled"),
        ([HELLO, FAILED, Cancelled(input=1)], "cancelled"),
        ([HELLO, FAILED], "failed"),
        ([HELLO, ASKED], "waiting"),
        ([HELLO, FAILED_FOR_NOW], "failed"),
        ([HELLO], "interrupted"),
        ([HELLO, ModelOutput(text="a")], "interrupted"),
        ([HELLO, FAILED_FOR_NOW, ModelOutput(text="a")], "interrupted"),
        ([HELLO, Ended(), HELLO], "interrupted"),
    ],
)
async def test_each_row_of_status(events: list[Event], state: str) -> None:
    """The state follows from the events of the current turn when no lease is held."""
    status = await (await written(*events)).status()
    assert (status.state, status.position) == (state, len(events))


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([HELLO], "running"),
        ([HELLO, FAILED], "running"),
        ([HELLO, ASKED], "running"),
        ([HELLO, Ended()], "finished"),
        ([HELLO, Cancelled(input=1)], "cancelled"),
    ],
)
async def test_a_held_lease_runs_a_turn_that_is_not_over(events: list[Event], state: str) -> None:
    """A lease makes a turn running, unless it is cancelled or finished."""
    store = InMemoryTraceStore()
    thread = await written(*events, store=store)
    await store.acquire("t-1", "somebody", 30, request="r")
    assert (await thread.status()).state == state
    assert await thread.running()
    assert await thread.held_elsewhere()


async def test_status_names_what_waits() -> None:
    """Pending requests come with the positions that they were recorded at."""
    status = await (await written(Opened(agent="a"), HELLO, ASKED)).status()
    assert [(entry.position, entry.event.kind) for entry in status.pending] == [(3, "approval")]


async def test_open_records_opened_and_the_input_in_one_append() -> None:
    """`open` makes a thread with two events, and a second `open` is refused."""
    thread = thread_of(line(a=says("hi")))
    entries = await thread.open("helper", HELLO)
    assert [(e.position, type(e.event).__name__, e.event.version) for e in entries] == [
        (1, "Opened", "1.0"),
        (2, "Input", "1.0"),
    ]
    with pytest.raises(ThreadExistsError, match=r"Thread 't-1' exists already"):
        await thread.open("helper", HELLO)


async def test_submit_by_hand_makes_a_thread() -> None:
    """A thread made by hand takes its first input without `open`."""
    entry = await thread_of(line(a=says("hi"))).submit(HELLO)
    assert (entry.position, entry.event.seq, entry.event.left) == (1, 1, 0)


async def test_submit_refuses_an_input_that_answers_by_itself() -> None:
    """Only `submit` says which request an input answers."""
    with pytest.raises(InputDeniedError, match=r"it has `answers=3` already"):
        await thread_of(line(a=says("hi"))).submit(Input(payload=1, answers=3))


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"a": [1, float("nan")]}, "$.a[1]"),
        ({"a": float("inf")}, "$.a"),
        ({"a": "\ud800"}, "$.a"),
        ([0, 2**64], "$[1]"),
        (-(2**63) - 1, "$"),
    ],
)
async def test_payloads_that_no_store_holds_are_refused(payload: JsonValue, path: str) -> None:
    """A value beyond JSON, or beyond 64 bits, is refused with its path and nothing is recorded."""
    thread = thread_of(line(a=says("hi")))
    with pytest.raises(InputDeniedError) as caught:
        await thread.submit(Input.model_construct(payload=payload))
    assert caught.value.path == path
    assert (await thread.status()).position == 0


async def test_a_payload_too_large_for_the_store_is_refused() -> None:
    """The store's own limit denies an input too."""
    thread = thread_of(line(a=says("hi")), InMemoryTraceStore(max_event=100))
    with pytest.raises(InputDeniedError, match=r"limit"):
        await thread.submit(Input(payload="x" * 200))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([HELLO], r"its turn was interrupted\. Run it on with `Thread.resume`"),
        ([HELLO, ASKED], r"its turn waits for the 'approval' request at position 2\. Answer it"),
        ([HELLO, INTENT, FAILED], r"nobody knows yet what became of its 'refund' effect"),
        ([HELLO, INTENT, Cancelled(input=1)], r"nobody knows yet what became of its 'refund'"),
    ],
)
async def test_a_turn_that_is_not_over_takes_no_input(events: list[Event], message: str) -> None:
    """A fresh input is refused with what to do first, and nothing is recorded."""
    thread = await written(*events)
    with pytest.raises(ThreadActiveError, match=message):
        await thread.submit(HELLO)
    assert (await thread.status()).position == len(events)


@pytest.mark.parametrize("last", [FAILED, FAILED_FOR_NOW, Ended(), Cancelled(input=1)])
async def test_a_turn_that_is_over_takes_an_input(last: Event) -> None:
    """A fresh input is accepted in a failed, finished or cancelled turn."""
    assert (await (await written(HELLO, last)).submit(HELLO)).position == 3


async def test_a_response_goes_to_the_stream_of_its_request() -> None:
    """A response is recorded beside its request, with the request's seq in `answers`."""
    task = "main/work#1.1"
    request = stamped(ASKED, stream=task)
    thread = await written(HELLO, stamped(HELLO, stream=task), request)
    (waiting,) = (await thread.status()).pending
    entry = await thread.submit(Input(payload=True), answering=waiting.event)
    assert isinstance(entry.event, Input)
    assert (entry.event.stream, entry.event.answers, entry.event.origin) == (task, 2, None)


async def test_a_request_is_answered_once() -> None:
    """The second response to a request is denied."""
    thread = thread_of(line(a=asks(), b=says("on")))
    request = (await thread.send(HELLO)).latest(Request)
    await thread.submit(Input(payload="yes"), answering=request)
    with pytest.raises(InputDeniedError, match=r"does not wait for a response.*Thread.status"):
        await thread.submit(Input(payload="no"), answering=request)


async def test_a_response_may_not_change_the_model() -> None:
    """A response names the turn's model or none."""
    thread = thread_of(line(a=asks()))
    request = (await thread.send(Input(payload="hi", model="small"))).latest(Request)
    with pytest.raises(InputDeniedError, match=r"names the model 'large'.*runs with 'small'"):
        await thread.submit(Input(payload=1, model="large"), answering=request)
    await thread.submit(Input(payload=1, model="small"), answering=request)


async def test_a_response_must_fit_its_schema() -> None:
    """A payload that `expects` refuses is denied with its path, and the request still waits."""
    expects: JsonSchema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
    }
    thread = thread_of(line(a=asks(expects=expects), b=says("on")))
    request = (await thread.send(HELLO)).latest(Request)
    with pytest.raises(InputDeniedError, match=r"the 'approval' request does not take it") as no:
        await thread.submit(Input(payload={"ok": "yes"}), answering=request)
    assert no.value.path == "$.ok"
    trace = await thread.send(Input(payload={"ok": True}), answering=request)
    assert names(trace)[-2:] == ["on", "Ended"]


async def test_send_without_a_graph_records_the_input() -> None:
    """Without a graph `send` records and then says how to get one."""
    thread = thread_of(None)
    with pytest.raises(ValueError, match=r"Thread 't-1' has no graph.*`resuming=True`"):
        await thread.send(HELLO)
    assert (await thread.status()).position == 1


@pytest.mark.parametrize("thread_id", ["", "x" * 201, "ä" * 128, "a\nb", "\ud800"])
def test_ids_that_no_store_keeps_are_refused(thread_id: str) -> None:
    """An id is 1 to 200 printable characters and at most 255 bytes."""
    with pytest.raises(ValueError, match=r"Use 1 to 200 printable characters, at most 255 bytes"):
        thread_of(None, thread_id=thread_id)


async def test_cancel_ends_a_waiting_turn() -> None:
    """`cancel` records Cancelled with the position of the opening input."""
    thread = thread_of(line(a=asks()))
    await thread.send(HELLO)
    status = await thread.cancel(input=1)
    assert (status.state, status.pending, status.position) == ("cancelled", (), 3)
    assert (await thread.trace()).latest(Cancelled) == stamped(
        Cancelled(input=1), seq=3, left=0, version="1.0", ts=(await thread.trace())[-1].ts
    )


@pytest.mark.parametrize(
    ("events", "meant", "reason"),
    [
        ([], None, "it has no turn"),
        ([HELLO, Ended()], None, "its turn is finished"),
        ([HELLO, FAILED], None, "its turn is failed"),
        ([HELLO, FAILED_FOR_NOW], None, "its turn is failed"),
        ([HELLO, Cancelled(input=1)], None, "its turn is cancelled"),
        ([HELLO], 4, "the current turn was opened at position 1, not at 4"),
    ],
)
async def test_what_is_over_cannot_be_cancelled(
    events: list[Event], meant: int | None, reason: str
) -> None:
    """A turn that is over, or another than was meant, is not cancelled."""
    thread = await written(*events)
    with pytest.raises(NothingToCancelError) as caught:
        await thread.cancel(input=meant)
    assert caught.value.reason == reason
    assert (await thread.status()).position == len(events)


async def test_cancel_wins_over_a_response_that_came_between() -> None:
    """A cancel that loses its append reads again and is recorded after the response."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread, other = thread_of(line(a=asks(), b=says("on")), store), thread_of(None, store.store)
    request = (await thread.send(HELLO)).latest(Request)

    async def respond(call: int) -> None:
        if call == 3:
            await other.submit(Input(payload=1), answering=request)

    store.hooks["append"] = respond
    assert (await thread.cancel()).position == 4
    assert names(await thread.trace())[-2:] == ["Input", "Cancelled"]


async def test_cancel_of_a_turn_that_another_one_replaced_is_refused() -> None:
    """A cancel never hits a turn that opened after it read."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread, other = thread_of(line(a=asks()), store), thread_of(None, store.store)
    await thread.send(HELLO)

    async def replace(call: int) -> None:
        if call == 3:
            await other.cancel()
            await other.submit(HELLO)

    store.hooks["append"] = replace
    with pytest.raises(NothingToCancelError, match=r"opened at position 4, not at 1"):
        await thread.cancel()


async def test_a_response_that_lost_against_a_cancel_is_denied() -> None:
    """A response whose turn was cancelled before its append reads again and is refused."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread, other = thread_of(line(a=asks()), store), thread_of(None, store.store)
    request = (await thread.send(HELLO)).latest(Request)

    async def cancel(call: int) -> None:
        if call == 3:
            await other.cancel()

    store.hooks["append"] = cancel
    with pytest.raises(InputDeniedError, match=r"does not wait"):
        await thread.submit(Input(payload=1), answering=request)


async def test_a_submit_does_not_make_a_deleted_thread_anew() -> None:
    """An input whose thread is deleted before its append is refused."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread = thread_of(line(a=says("hi")), store)
    await thread.send(HELLO)

    async def delete(call: int) -> None:
        await store.store.delete("t-1")

    store.hooks["append"] = delete
    with pytest.raises(UnknownThreadError, match=r"no thread 't-1'"):
        await thread.submit(HELLO)
    assert (await store.store.head("t-1")).position == 0


async def test_a_submit_that_lost_does_not_go_into_another_life_of_the_thread() -> None:
    """An input whose thread went away between two tries is refused, not put into a new one."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread, other = thread_of(line(a=says("x")), store), thread_of(line(a=says("y")), store.store)
    await thread.send(HELLO)
    heads = store.calls["head"]

    async def write(call: int) -> None:
        await other.send(HELLO)

    async def make_anew(call: int) -> None:
        if call == heads + 2:
            await other.delete()
            await other.send(HELLO)

    store.hooks = {"append": write, "head": make_anew}
    with pytest.raises(UnknownThreadError):
        await thread.submit(HELLO)
    assert names(await other.trace()) == ["Input", "y", "Ended"]


@pytest.mark.parametrize("operation", ["open", "submit", "cancel"])
async def test_an_unknown_outcome_from_outside_is_repeated(operation: str) -> None:
    """The identical append is repeated, so what was stored is stored once."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread = thread_of(line(a=asks()), store)
    if operation == "cancel":
        await thread.send(HELLO)
    made = len(store.batches)
    store.faults["append", made + 1] = "after"
    if operation == "open":
        await thread.open("helper", HELLO)
    elif operation == "submit":
        await thread.submit(HELLO)
    else:
        await thread.cancel()
    first, second = store.batches[made:]
    assert first == second
    assert (await thread.status()).position == {"open": 2, "submit": 1, "cancel": 3}[operation]


async def test_fork_copies_up_to_a_position() -> None:
    """A fork has the first events under a fresh id, and goes on by itself."""
    thread = thread_of(line(a=says("one"), b=says("two")))
    await thread.send(HELLO)
    fork = await thread.fork(at=2)
    assert fork.id != thread.id
    assert names(await fork.trace()) == ["Input", "one"]
    assert (await fork.status()).state == "interrupted"
    assert names(await fork.resume()) == ["Input", "one", "two", "Ended"]
    assert len(await thread.trace()) == 4


@pytest.mark.parametrize("at", [0, 5, -1])
async def test_fork_outside_the_log_is_refused(at: int) -> None:
    """A fork is cut at a position of the log."""
    thread = thread_of(line(a=says("one"), b=says("two")))
    await thread.send(HELLO)
    with pytest.raises(PositionOutOfRangeError, match=rf"has no position {at}\. Use one from 1"):
        await thread.fork(at=at)


async def test_fork_inside_an_append_is_refused() -> None:
    """A fork is cut at the end of an append: between an output and `Ended` it is not."""
    thread = thread_of(line(a=says("one")))
    await thread.send(HELLO)
    with pytest.raises(PositionOutOfRangeError, match=r"Cut it at 1 or 3\."):
        await thread.fork(at=2)


async def test_fork_of_an_unknown_thread_is_refused() -> None:
    """There is nothing to copy under an unknown id."""
    with pytest.raises(UnknownThreadError, match=r"no thread 't-1'"):
        await thread_of(None).fork(at=1)


async def test_a_fork_with_an_unknown_outcome_is_made_once() -> None:
    """A copy that was stored without an answer is known again by its fresh id."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread = thread_of(line(a=says("one")), store)
    await thread.send(HELLO)
    store.faults["copy", 1] = "after"
    fork = await thread.fork(at=3)
    assert len(await fork.trace()) == 3
    assert len(await store.threads()) == 2


async def test_a_fresh_id_that_is_taken_is_drawn_again() -> None:
    """A fork tries another id when the first one has events."""
    store, ids = InMemoryTraceStore(), CountedIds("taken")
    await thread_of(line(a=says("x")), store, thread_id="taken-1").send(HELLO)
    thread = Thread("t-1", line(a=says("one")), store, Runs(), ids=ids)
    await Thread("t-1", line(a=says("one")), store, Runs()).send(HELLO)
    assert (await thread.fork(at=1)).id == "taken-2"


async def test_delete_stops_the_run_and_removes_the_log() -> None:
    """A thread that is deleted while it runs leaves nothing behind."""
    gate = Gate()
    thread = thread_of(line(a=gate))
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    await thread.delete()
    await asyncio.wait((running,))
    running.exception()
    assert gate.cancelled
    assert (await thread.status()).position == 0
    assert not await thread.running()
    await thread.delete()


async def test_trace_is_of_all_turns() -> None:
    """The thread's trace holds every event in log order."""
    thread = thread_of(react(2))
    await thread.send(HELLO)
    trace = await thread.send(HELLO)
    assert trace == await thread.trace()
    assert [event.seq for event in trace] == list(range(1, 15))
    assert trace.opening is trace[7]


async def test_a_trip_is_recorded_with_the_node_of_its_output() -> None:
    """An output that passes the cap is followed by BudgetExceeded, not by its tools."""
    graph = react(9)
    graph.set_budget(Budget(cap=1, resume_at="model", tolerance=1))
    trace = await thread_of(graph).send(HELLO)
    trips = trace.of(BudgetExceeded)
    assert [(trip.cap, trip.trip, trip.origin) for trip in trips] == [
        (1, 1, "model"),
        (1, 2, "model"),
    ]
    assert isinstance(trace[-1], Ended)


async def test_a_transient_failure_is_tried_again() -> None:
    """A transient failure is tried again by the next resume, a final one is not."""
    thread = thread_of(line(a=raises(TransientError("later"))))
    assert names(await thread.send(HELLO)) == ["Input", "Failure"]
    assert (await thread.status()).state == "failed"
    assert names(await thread.resume()) == ["Input", "Failure", "fine", "Ended"]


class Counted(InMemoryTraceStore):
    """A store that knows how many of its backward readings are still open."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.begun = 0, 0

    async def read_back(
        self, thread_id: str, *, before: Head
    ) -> AsyncIterator[LogEntry[StoredEvent]]:
        """Count a reading from its first entry to its end."""
        self.open, self.begun = self.open + 1, self.begun + 1
        try:
            async for entry in super().read_back(thread_id, before=before):
                yield entry
        finally:
            self.open -= 1


async def test_reading_a_turn_back_leaves_nothing_open() -> None:
    """A log that is read back only as far as the turn's input is let go of at once."""
    store = Counted()
    thread = thread_of(line(a=says("one")), store)
    await thread.send(HELLO)
    await thread.send(HELLO)
    await thread.status()
    await opening_input(store, thread.id, CORE_EVENT_TYPES)
    assert (store.begun, store.open) == (3, 0)
