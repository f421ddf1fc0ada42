"""Runs: what is appended, what is recorded of failures, conflicts, stops and store errors."""

import asyncio
import logging
from collections.abc import Sequence
from typing import ClassVar

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    Cancelled,
    EffectIntent,
    Ended,
    Event,
    Failure,
    Input,
    LeaseHeldError,
    ModelOutput,
    Request,
    StoreUnavailableError,
    Trace,
    TransientError,
    UnknownThreadError,
    call_site,
    fault_plan,
)
from soev.runtime._codec import encode
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Graph, Step
from soev.runtime._runs import Runs
from tests.runtime.world import (
    HELLO,
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


class Crash(BaseException):
    """A process that dies."""


def returns(*events: object) -> Step:
    """Make a step that returns these, whatever they are."""

    async def step(view: Trace) -> Sequence[Event]:
        return list(events)  # type: ignore[arg-type]  # that is what is tested

    return step


class Unlisted(Event):
    """An event that no agent declares."""

    type: ClassVar[str] = "unlisted"


async def test_a_turn_ends_in_the_append_of_its_last_step() -> None:
    """`Ended` is the last event of the last append, and the lease goes with it."""
    store = FaultyTraceStore(InMemoryTraceStore())
    trace = await thread_of(line(a=says("one"), b=says("two")), store).send(HELLO)
    assert [(type(e).__name__, e.stream, e.origin, e.seq, e.left, e.version) for e in trace] == [
        ("Input", "main", None, 1, 0, "1.0"),
        ("ModelOutput", "main", "a", 2, 0, "1.0"),
        ("ModelOutput", "main", "b", 3, 1, "1.0"),
        ("Ended", "main", None, 4, 0, "1.0"),
    ]
    assert store.calls == {"head": 1, "append": 3, "read": 1, "acquire": 1}


async def test_the_trace_of_a_run_is_the_trace_of_the_store() -> None:
    """What a run returns equals what is read back, times included."""
    thread = thread_of(react(3))
    assert await thread.send(HELLO) == await thread.trace()


async def test_what_a_step_sets_in_the_envelope_is_overwritten() -> None:
    """A step has no say in stream, origin, seq, version and left."""
    forged = ModelOutput(text="x", stream="other", origin="z", seq=9, version="0", left=4)
    trace = await thread_of(line(a=returns(forged, forged))).send(HELLO)
    assert [(e.stream, e.origin, e.seq, e.version, e.left) for e in trace[1:3]] == [
        ("main", "a", 2, "1.0", 2),
        ("main", "a", 3, "1.0", 1),
    ]


@pytest.mark.parametrize(
    ("returned", "error_type", "message"),
    [
        (returns(), "ValueError", "A step returned no event"),
        (returns("text"), "TypeError", "A step returned a str among its events"),
        (returns(HELLO), "ValueError", "A step returned an Input, which the runtime alone"),
        (returns(Ended()), "ValueError", "A step returned an Ended"),
        (returns(Cancelled(input=1)), "ValueError", "A step returned a Cancelled"),
        (
            returns(Request(kind="k", actor="person"), ModelOutput()),
            "ValueError",
            "a Request before other events",
        ),
        (returns(Unlisted()), "UnreadableEventError", "its class `Unlisted` is not listed"),
        (returns(ModelOutput(text="\ud800")), "UnencodableError", "at $.text, a lone surrogate"),
        (returns(ModelOutput(text="x" * 2_000_000)), "UnencodableError", "bytes"),
        (
            returns(Request(kind="k", actor="person", expects={"type": "nothing"})),
            "ValueError",
            "The Request 'k' expects what is no JSON Schema",
        ),
    ],
)
async def test_what_a_step_may_not_return_is_a_failure(
    returned: Step, error_type: str, message: str
) -> None:
    """A wrong result is recorded as a final Failure of the node, and nothing else of it."""
    trace = await thread_of(line(a=returned)).send(HELLO)
    failure = trace[-1]
    assert isinstance(failure, Failure)
    assert (len(trace), failure.error_type, failure.origin, failure.transient) == (
        2,
        error_type,
        "a",
        False,
    )
    assert message in failure.message


async def test_a_step_that_returns_one_event_alone_is_a_failure() -> None:
    """A single event is no sequence of events."""

    async def step(view: Trace) -> Sequence[Event]:
        return ModelOutput(text="x")  # type: ignore[return-value]  # that is what is tested

    failure = (await thread_of(line(a=step)).send(HELLO))[-1]
    assert isinstance(failure, Failure)
    assert failure.message == ("A step returned a ModelOutput. Return a list or tuple of events.")


async def test_what_a_step_raises_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The Failure has class and text without keys, the traceback goes to the log alone."""
    error = KeyError("key sk-abcdefghijklmnopqrstuvwxyz")
    error.request_hash = "h" * 64  # type: ignore[attr-defined]  # as LlmStep marks what a model raised
    with caplog.at_level(logging.ERROR, logger="soev"):
        failure = (await thread_of(line(a=raises(error))).send(HELLO))[-1]
    assert isinstance(failure, Failure)
    assert (failure.error_type, failure.message) == ("KeyError", "'key <secret>'")
    assert (failure.request_hash, failure.transient) == ("h" * 64, False)
    assert "Traceback" in caplog.text
    assert "sk-abcdef" not in caplog.text


async def test_a_group_of_one_error_fails_as_that_error() -> None:
    """A task group's wrapper hides neither the class nor that the error is transient."""
    group = ExceptionGroup("tasks", [TransientError("busy")])
    failure = (await thread_of(line(a=raises(group))).send(HELLO))[-1]
    assert isinstance(failure, Failure)
    assert (failure.error_type, failure.message, failure.transient) == (
        "TransientError",
        "busy",
        True,
    )


async def test_an_error_whose_text_breaks_still_fails_the_step() -> None:
    """An error that cannot say what it is, or says what nobody can store, is recorded."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    thread = thread_of(line(a=raises(Broken()), b=raises(ValueError("\ud800"))))
    failure = (await thread.send(HELLO))[-1]
    assert isinstance(failure, Failure)
    assert failure.message == "Broken"
    other = (await thread_of(line(a=raises(ValueError("\ud800")))).send(HELLO))[-1]
    assert isinstance(other, Failure)
    assert other.message == "?"


async def test_a_step_that_cancels_itself_fails() -> None:
    """A CancelledError that nobody asked for is a failure of the step, not a stop."""

    async def step(view: Trace) -> Sequence[Event]:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner
        return []

    failure = (await thread_of(line(a=step)).send(HELLO))[-1]
    assert isinstance(failure, Failure)
    assert (failure.error_type, failure.transient) == ("CancelledError", False)


async def test_a_router_that_raises_is_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    """A router's error is a final Failure with the node whose edge it is."""

    def router(view: Trace) -> str | None:
        raise ZeroDivisionError("by nothing")

    graph = Graph()
    graph.add_node("a", says("one"))
    graph.add_conditional_edge("a", router)
    graph.set_entry_point("a")
    with caplog.at_level(logging.ERROR, logger="soev"):
        trace = await thread_of(graph).send(HELLO)
    failure = trace[-1]
    assert isinstance(failure, Failure)
    assert (names(trace), failure.origin, failure.transient) == (
        ["Input", "one", "Failure"],
        "a",
        False,
    )
    assert "ZeroDivisionError" in caplog.text


async def test_a_step_knows_its_call_site() -> None:
    """The call site is set around a step, and nowhere else."""
    sites = []

    async def step(view: Trace) -> Sequence[Event]:
        sites.append(call_site.get())
        return [ModelOutput(text="x")]

    await thread_of(line(a=step)).send(HELLO)
    (site,) = sites
    assert site is not None
    assert (site.thread_id, site.agent, site.stream, site.node) == ("t-1", None, "main", "a")
    assert call_site.get() is None


async def test_a_response_goes_on_at_the_edge_of_the_request() -> None:
    """A turn waits at a Request, with the lease given back, and goes on after the response."""
    thread = thread_of(line(a=asks(), b=says("on")))
    request = (await thread.send(HELLO)).latest(Request)
    assert (await thread.status()).state == "waiting"
    assert not await thread.running()
    trace = await thread.send(Input(payload="yes"), answering=request)
    assert names(trace) == ["Input", "Request", "Input", "on", "Ended"]


async def test_a_trace_that_lacks_only_ended_gets_it() -> None:
    """A log that was cut before `Ended` is ended by an append of `Ended` alone."""
    store = InMemoryTraceStore()
    graph = line(a=says("one"))
    await thread_of(line(a=says("one"), b=asks()), store).send(HELLO)
    fork = await thread_of(graph, store).fork(at=2)
    assert names(await fork.resume()) == ["Input", "one", "Ended"]
    assert not await fork.running()


async def test_a_finished_turn_takes_no_lease() -> None:
    """A resume with nothing due reads and returns."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread = thread_of(line(a=says("one")), store)
    done = await thread.send(HELLO)
    assert await thread.resume() == done
    assert store.calls["acquire"] == 1
    assert len(await thread_of(line(a=says("x")), thread_id="t-0").resume()) == 0


@pytest.mark.parametrize("crash", [1, 2, 3, 4, 5])
async def test_a_crash_at_any_append_and_a_resume_give_the_same_log(crash: int) -> None:
    """A process that dies before an append leaves a log that another one completes."""
    whole = names(await thread_of(react(2)).send(HELLO))
    memory, dead = InMemoryTraceStore(), Runs()
    await thread_of(react(2), memory).submit(HELLO)
    store = FaultyTraceStore(memory)

    async def die(call: int) -> None:
        if call == crash:
            raise Crash

    store.hooks["append"] = die
    with pytest.raises(Crash):
        await thread_of(react(2), store, dead).resume()
    lease = (await memory.head("t-1")).lease
    assert lease is not None
    assert lease.owner == dead.owner
    with pytest.raises(LeaseHeldError, match=rf"is run by '{dead.owner}'"):
        await thread_of(react(2), memory).resume()
    await memory.release(lease)
    trace = await thread_of(react(2), memory).resume()
    assert names(trace) == whole
    assert [event.seq for event in trace] == list(range(1, len(whole) + 1))


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
async def test_an_append_without_an_answer_is_repeated(call: int, fault: str) -> None:
    """The identical append is repeated, so the log is as if nothing had broken."""
    whole = names(await thread_of(react(2)).send(HELLO))
    memory = InMemoryTraceStore()
    await thread_of(react(2), memory).submit(HELLO)
    store = FaultyTraceStore(memory)
    store.faults["append", call] = store.faults["append", call + 1] = fault
    trace = await thread_of(react(2), store).resume()
    assert names(trace) == whole
    assert store.batches[call - 1] == store.batches[call] == store.batches[call + 1]
    assert len(set(store.batches)) == 5


@pytest.mark.parametrize("operation", ["acquire", "release"])
async def test_a_lease_call_without_an_answer_is_repeated(operation: str) -> None:
    """An acquire or release whose outcome is unknown is made again."""
    store = FaultyTraceStore(InMemoryTraceStore())
    store.faults[operation, 1] = "after"
    gate, runs = Gate(), Runs()
    thread = thread_of(line(a=gate), store, runs)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    await runs.stop("t-1")
    await running
    assert not await thread.running()
    assert store.calls["acquire"] == (2 if operation == "acquire" else 1)


async def test_an_acquire_that_the_store_refuses_ends_the_run() -> None:
    """A store that is away at the start raises to the caller, and nothing is recorded."""
    store = FaultyTraceStore(InMemoryTraceStore())
    store.always["acquire"] = "before"
    thread = thread_of(line(a=says("x")), store)
    with pytest.raises(StoreUnavailableError, match=r"The store cannot `acquire` now"):
        await thread.send(HELLO)
    assert (await thread.status()).state == "interrupted"


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
async def test_a_cancel_before_any_append_ends_the_run(call: int) -> None:
    """A Cancelled that another process recorded drops the events of the step in progress."""
    memory = InMemoryTraceStore()
    thread = thread_of(react(2), memory)
    await thread.submit(HELLO)
    store = FaultyTraceStore(memory)

    async def cancel(number: int) -> None:
        if number == call:
            await thread.cancel()

    store.hooks["append"] = cancel
    trace = await thread_of(react(2), store, Runs()).resume()
    assert names(trace)[call:] == ["Cancelled"]
    assert not await thread.running()
    assert (await thread.status()).state == "cancelled"


async def test_a_run_that_finds_nothing_to_do_comes_to_rest() -> None:
    """A turn that another process ended before the acquire is left by one empty append."""
    memory = InMemoryTraceStore()
    other, store = thread_of(react(1), memory), FaultyTraceStore(memory)
    await other.submit(HELLO)

    async def finish(call: int) -> None:
        await other.resume()

    store.hooks["acquire"] = finish
    trace = await thread_of(react(1), store).resume()
    assert names(trace) == ["Input", "ModelOutput", "ToolOutput", "done", "Ended"]
    assert store.calls["append"] == 1
    assert not await other.running()


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_coming_to_rest_is_repeated_too(fault: str) -> None:
    """An empty append without an answer is repeated, and the lease is given back once."""
    memory = InMemoryTraceStore()
    other, store = thread_of(react(1), memory), FaultyTraceStore(memory)
    await other.submit(HELLO)

    async def finish(call: int) -> None:
        await other.resume()

    store.hooks["acquire"] = finish
    store.faults["append", 1] = fault
    assert len(await thread_of(react(1), store).resume()) == 5
    assert store.batches[0] == store.batches[1]
    assert not await other.running()


async def test_a_run_never_executes_the_turn_of_another_input() -> None:
    """A run that comes to rest and finds a new turn leaves it to a run of its own."""
    memory = InMemoryTraceStore()
    other, store = thread_of(line(a=says("mine")), memory), FaultyTraceStore(memory)
    await other.submit(HELLO)

    async def replace(call: int) -> None:
        await other.cancel()
        await other.submit(HELLO)

    store.hooks["acquire"] = replace
    trace = await thread_of(line(a=says("wrong")), store).resume()
    assert names(trace) == ["Input", "Cancelled", "Input"]
    assert not await other.running()


async def test_an_event_that_came_between_keeps_the_events_of_the_step() -> None:
    """After a conflict the step's events are appended again under a new batch id."""
    memory = InMemoryTraceStore()
    graph = line(a=asks("first"), b=asks("second"), c=says("end"))
    thread = thread_of(graph, memory)
    first = (await thread.send(HELLO)).latest(Request)
    await thread.submit(Input(payload=1), answering=first)
    store = FaultyTraceStore(memory)
    task = "main/work#1.1"

    async def write(number: int) -> None:
        if number == 1:
            await _append_apart(memory, task)

    store.hooks["append"] = write
    trace = await thread_of(graph, store, Runs()).resume()
    assert names(trace) == ["Input", "Request", "Input", "Input", "Request"]
    assert len(set(store.batches)) == 2
    assert trace[-1].seq == 4


async def _append_apart(store: InMemoryTraceStore, stream: str) -> None:
    head = await store.head("t-1")
    await store.append("t-1", [encode(Input(payload=1, stream=stream))], after=head, batch="apart")


async def test_a_deleted_thread_ends_its_run() -> None:
    """A run whose thread was deleted elsewhere records nothing and says so."""
    memory = InMemoryTraceStore()
    await thread_of(react(1), memory).submit(HELLO)
    store = FaultyTraceStore(memory)

    async def delete(number: int) -> None:
        await memory.delete("t-1")

    store.hooks["append"] = delete
    with pytest.raises(UnknownThreadError, match=r"no thread 't-1'"):
        await thread_of(react(1), store).resume()
    assert (await memory.head("t-1")).position == 0


async def test_cancel_stops_the_step_in_progress() -> None:
    """`cancel` in the same process cancels the step, and its events are dropped."""
    gate = Gate()
    thread = thread_of(line(a=gate, b=says("never")))
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    assert (await thread.cancel()).state == "cancelled"
    assert names(await running) == ["Input", "Cancelled"]
    assert gate.cancelled
    assert not await thread.running()


async def test_a_step_that_swallows_its_cancel_is_dropped_too() -> None:
    """What a step returns in spite of a stop is not recorded."""
    entered = asyncio.Event()

    async def stubborn(view: Trace) -> Sequence[Event]:
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return [ModelOutput(text="in spite")]
        return []

    runs = Runs()
    thread = thread_of(line(a=stubborn), runs=runs)
    running = asyncio.create_task(thread.send(HELLO))
    await entered.wait()
    await runs.stop("t-1")
    assert names(await running) == ["Input"]
    assert (await thread.status()).state == "interrupted"


async def test_a_stop_never_cuts_an_append() -> None:
    """A stop while an append is in flight waits for its answer and gives the lease back."""
    memory, runs = InMemoryTraceStore(), Runs()
    await thread_of(react(1), memory).submit(HELLO)
    store = FaultyTraceStore(memory)
    sending, answered = asyncio.Event(), asyncio.Event()

    async def slow(number: int) -> None:
        sending.set()
        await answered.wait()

    store.hooks["append"] = slow
    thread = thread_of(react(1), store, runs)
    running = asyncio.create_task(thread.resume())
    await sending.wait()
    stopping = asyncio.create_task(runs.stop("t-1"))
    await asyncio.sleep(0)
    again = asyncio.create_task(runs.stop("t-1"))
    await asyncio.sleep(0)
    assert not stopping.done()
    answered.set()
    await stopping
    await again
    assert names(await running) == ["Input", "ModelOutput"]
    assert not await thread.running()


async def test_cancelling_the_caller_does_not_stop_the_run() -> None:
    """A caller that goes away leaves the run to itself."""
    gate = Gate()
    thread = thread_of(line(a=gate))
    caller = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    caller.cancel()
    await asyncio.wait((caller,))
    assert caller.cancelled()
    gate.opened.set()
    assert names(await thread.resume()) == ["Input", "gate", "Ended"]


async def test_two_resumes_in_one_process_join() -> None:
    """The second resume waits for the run of the first, and the step runs once."""
    gate, runs, store = Gate(), Runs(), InMemoryTraceStore()
    thread = thread_of(line(a=gate), store, runs)
    first = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    second = asyncio.create_task(thread_of(line(a=says("other")), store, runs).resume())
    await asyncio.sleep(0)
    gate.opened.set()
    assert names(await second) == names(await first) == ["Input", "gate", "Ended"]


async def test_the_second_of_two_processes_is_refused() -> None:
    """Another process gets LeaseHeldError, writes nothing, and the trace once it is over."""
    gate, store = Gate(), InMemoryTraceStore()
    running = asyncio.create_task(thread_of(line(a=gate), store).send(HELLO))
    await gate.entered.wait()
    other = thread_of(line(a=says("other")), store, Runs())
    with pytest.raises(LeaseHeldError, match=r"Follow it with `Thread.follow`"):
        await other.resume()
    assert await other.held_elsewhere()
    gate.opened.set()
    assert names(await running) == names(await other.resume()) == ["Input", "gate", "Ended"]


async def test_a_new_turn_awaits_the_dying_run_of_the_old_one() -> None:
    """After a cancel a new input at once gets a run of its own."""
    gate, runs, store = Gate(), Runs(), InMemoryTraceStore()
    thread = thread_of(line(a=gate), store, runs)
    first = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    await thread.cancel()
    trace = await thread_of(line(a=says("new")), store, runs).send(HELLO)
    assert names(trace) == ["Input", "Cancelled", "Input", "new", "Ended"]
    await first


async def test_joining_does_not_try_a_new_failure_again() -> None:
    """What failed after `resume` was called was not in the log, so it is not tried again."""
    runs, store = Runs(), InMemoryTraceStore()
    entered, go_on, calls = asyncio.Event(), asyncio.Event(), []

    async def step(view: Trace) -> Sequence[Event]:
        calls.append(1)
        entered.set()
        await go_on.wait()
        raise TransientError("later")

    thread = thread_of(line(a=step), store, runs)
    first = asyncio.create_task(thread.send(HELLO))
    await entered.wait()
    second = asyncio.create_task(thread_of(line(a=step), store, runs).resume())
    await asyncio.sleep(0)
    go_on.set()
    assert names(await first) == names(await second) == ["Input", "Failure"]
    assert len(calls) == 1


async def test_a_store_that_breaks_for_good_is_no_failure() -> None:
    """A store's error ends the run with it, and the thread is interrupted."""
    memory = InMemoryTraceStore()
    await thread_of(react(1), memory).submit(HELLO)
    store = FaultyTraceStore(memory)
    store.faults["append", 2] = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        await thread_of(react(1), store).resume()
    assert names(await thread_of(None, memory).trace()) == ["Input", "ModelOutput"]
    assert (await thread_of(None, memory).status()).state == "interrupted"


async def test_fault_points_stand_where_a_harness_may_strike() -> None:
    """The named points of lease, append and step are reached in order."""
    points: list[str] = []
    token = fault_plan.set(points.append)
    try:
        await thread_of(line(a=says("x"))).send(HELLO)
    finally:
        fault_plan.reset(token)
    own = [point for point in points if not point.startswith("store.")]
    assert own == ["lease.acquire.sending", "lease.acquired", "step.calling", "run.append.sending"]


async def test_a_graph_that_lost_a_node_records_nothing() -> None:
    """A log that today's graph does not fit raises, and the thread stays as it was."""
    store = InMemoryTraceStore()
    await thread_of(line(old=asks()), store).send(HELLO)
    request = (await thread_of(None, store).trace()).latest(Request)
    await thread_of(None, store).submit(Input(payload=1), answering=request)
    thread = thread_of(line(new=says("x")), store)
    with pytest.raises(GraphMismatchError, match=r"node 'old'") as caught:
        await thread.resume()
    assert caught.value.node == "old"
    assert len(await thread.trace()) == 3
    assert not await thread.running()


async def test_an_open_effect_is_left_for_a_version_that_can_recover_it() -> None:
    """A log with an open intent is not run on, and its lease is given back."""
    store = InMemoryTraceStore()
    await thread_of(None, store).submit(HELLO)
    intent = encode(EffectIntent(kind="refund", id="i-1", origin="a"))
    await store.append("t-1", [intent], after=await store.head("t-1"), batch="b")
    thread = thread_of(line(a=says("x")), store)
    with pytest.raises(ValueError, match=r"."):
        await thread.resume()
    assert len(await thread.trace()) == 2
    assert not await thread.running()


def test_a_loop_that_closes_stops_its_runs() -> None:
    """The end of the event loop is a stop: no Failure is recorded, and the lease is given back."""
    store = InMemoryTraceStore()

    async def leave() -> None:
        gate = Gate()
        running = asyncio.create_task(thread_of(line(a=gate), store).send(HELLO))
        await gate.entered.wait()
        running.cancel()

    async def look() -> tuple[list[str], bool]:
        thread = thread_of(None, store)
        return names(await thread.trace()), await thread.running()

    asyncio.run(leave())
    assert asyncio.run(look()) == (["Input"], False)
