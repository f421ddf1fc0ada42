"""Leases of runs: renewal, the own deadline, losing one, and what comes through a renewal."""

import asyncio
from collections.abc import Sequence

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    Event,
    Head,
    Input,
    LeaseLostError,
    OutcomeUnknownError,
    StoreRewoundError,
    StoreUnavailableError,
    Trace,
)
from soev.runtime._codec import encode
from soev.runtime._runs import Runs
from tests.runtime.world import (
    HELLO,
    FaultyTraceStore,
    Gate,
    JumpingLoop,
    LoopClock,
    line,
    names,
    react,
    says,
    thread_of,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> object:
    """Run on a loop whose time jumps, so that nothing waits."""
    return ("asyncio", {"loop_factory": JumpingLoop})


@pytest.fixture
def clock() -> LoopClock:
    """Tell the loop's time."""
    return LoopClock()


async def passed(seconds: float) -> None:
    """Return when some seconds of the loop's time are over."""
    ended = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, ended.set)
    await ended.wait()


async def test_a_lease_is_renewed_as_long_as_the_run_lasts(clock: LoopClock) -> None:
    """A step that takes ten leases' time keeps the lease, renewed at least every third of it."""
    store, gate = FaultyTraceStore(InMemoryTraceStore(clock=clock)), Gate()
    thread = thread_of(line(a=gate), store, Runs(lease_ttl=3, clock=clock))
    running = asyncio.create_task(thread.send(HELLO))
    await passed(30)
    assert await thread.running()
    gate.opened.set()
    assert names(await running) == ["Input", "gate", "Ended"]
    assert 30 <= store.calls["renew"] <= 34


async def test_a_renewal_without_an_answer_is_tried_again(clock: LoopClock) -> None:
    """A store that is away for less than the lease lasts does not end the run."""
    store, gate = FaultyTraceStore(InMemoryTraceStore(clock=clock)), Gate()
    store.faults = {("renew", 1): "before", ("renew", 2): "after", ("renew", 3): "before"}
    thread = thread_of(line(a=gate), store, Runs(lease_ttl=3, clock=clock))
    running = asyncio.create_task(thread.send(HELLO))
    await passed(6)
    gate.opened.set()
    assert names(await running) == ["Input", "gate", "Ended"]


async def test_the_run_ends_at_its_own_deadline(clock: LoopClock) -> None:
    """Without an answer until the deadline the step is cancelled before the lease runs out."""
    store, gate = FaultyTraceStore(InMemoryTraceStore(clock=clock)), Gate()
    store.always["renew"] = "before"
    thread = thread_of(line(a=gate), store, Runs(lease_ttl=3, clock=clock))
    begun = clock.monotonic()
    with pytest.raises(StoreUnavailableError, match=r"The store cannot `renew` now"):
        await thread.send(HELLO)
    assert gate.cancelled
    assert 2.69 <= clock.monotonic() - begun < 2.75
    assert "release" not in store.calls
    assert (await thread.status()).state == "running"
    await passed(0.4)
    assert (await thread.status()).state == "interrupted"


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_an_append_is_repeated_until_the_deadline(clock: LoopClock, fault: str) -> None:
    """A run whose append gets no answer repeats it until its deadline, then it stops."""
    store = FaultyTraceStore(InMemoryTraceStore(clock=clock))
    thread = thread_of(react(1), store, Runs(lease_ttl=3, clock=clock))
    await thread.submit(HELLO)
    store.always = {"append": fault, "renew": "before"}
    with pytest.raises((StoreUnavailableError, OutcomeUnknownError)):
        await thread.resume()
    assert len(set(store.batches[1:])) == 1
    assert len(store.batches) > 3
    assert 2.69 <= clock.monotonic() <= 3.8


async def test_a_run_whose_lease_was_taken_records_nothing(clock: LoopClock) -> None:
    """A process that was frozen past its lease finds it taken and writes nothing."""
    store, gate = InMemoryTraceStore(clock=clock), Gate()
    frozen = thread_of(line(a=gate), store, Runs(lease_ttl=3, clock=clock))
    running = asyncio.create_task(frozen.send(HELLO))
    await gate.entered.wait()
    clock.advance(4)
    other = thread_of(line(a=says("other")), store, Runs(lease_ttl=3, clock=clock))
    assert names(await other.resume()) == ["Input", "other", "Ended"]
    gate.opened.set()
    with pytest.raises(LeaseLostError, match=r"\(epoch 1\) is lost\. Resume the thread"):
        await running
    assert names(await other.trace()) == ["Input", "other", "Ended"]


async def test_a_renewal_that_finds_the_lease_taken_ends_the_run(clock: LoopClock) -> None:
    """The loser of a lease stops at its next renewal and leaves the winner alone."""
    store, gate = InMemoryTraceStore(clock=clock), Gate()
    thread = thread_of(line(a=gate), store, Runs(lease_ttl=9, clock=clock))
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    lease = (await store.head("t-1")).lease
    assert lease is not None
    await store.release(lease)
    winner = await store.acquire("t-1", "winner", 30, request="r")
    with pytest.raises(LeaseLostError):
        await running
    assert clock.monotonic() < 4
    assert gate.cancelled
    assert (await store.head("t-1")).lease == winner


async def test_a_cancel_elsewhere_is_seen_by_a_renewal(clock: LoopClock) -> None:
    """A run learns of a Cancelled that another process recorded within a third of the lease."""
    store, gate = InMemoryTraceStore(clock=clock), Gate()
    thread = thread_of(line(a=gate), store, Runs(lease_ttl=9, clock=clock))
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    await thread_of(None, store).cancel()
    assert names(await running) == ["Input", "Cancelled"]
    assert gate.cancelled
    assert clock.monotonic() <= 3
    assert not await thread.running()


async def test_other_events_that_a_renewal_sees_are_read(clock: LoopClock) -> None:
    """What came in meanwhile is part of the log before the step's own events."""
    store, gate = InMemoryTraceStore(clock=clock), Gate()
    faulty = FaultyTraceStore(store)
    thread = thread_of(line(a=gate), faulty, Runs(lease_ttl=9, clock=clock))
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    apart = encode(Input(payload=1, stream="main/work#0.1"))
    await store.append("t-1", [apart], after=await store.head("t-1"), batch="apart")
    await passed(4)
    gate.opened.set()
    assert names(await running) == ["Input", "Input", "gate", "Ended"]
    assert len(faulty.batches) == 2


async def test_a_head_that_fell_ends_the_run(clock: LoopClock) -> None:
    """A store that lost events is never written to quietly."""
    store, gate = InMemoryTraceStore(clock=clock), Gate()
    thread = thread_of(line(a=says("one"), b=gate), store, Runs(lease_ttl=9, clock=clock))
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    log = store._logs["t-1"]
    log.row.position = 1
    del log.entries[1:]
    with pytest.raises(StoreRewoundError, match=r"ends at position 1, but position 2"):
        await running
    assert gate.cancelled


async def test_a_conflict_with_a_lower_head_ends_the_run(clock: LoopClock) -> None:
    """An append that finds fewer events than were read raises, and stores nothing."""
    memory = InMemoryTraceStore(clock=clock)
    store = FaultyTraceStore(memory)
    thread = thread_of(react(1), store, Runs(clock=clock))
    await thread.submit(HELLO)

    async def lose(call: int) -> None:
        if call == 3:
            memory._logs["t-1"].row.position = 1
            del memory._logs["t-1"].entries[1:]

    store.hooks["append"] = lose
    with pytest.raises(StoreRewoundError, match=r"position 1, but position 2 was read"):
        await thread.resume()


async def test_a_model_that_never_waits_lets_the_renewal_run(clock: LoopClock) -> None:
    """A run of many steps that answer at once still renews its lease in time."""
    store = FaultyTraceStore(InMemoryTraceStore(clock=clock))
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)

    async def move(call: int) -> None:
        loop.seconds += 0.01

    store.hooks["append"] = move
    thread = thread_of(react(500), store, Runs(lease_ttl=3, clock=clock))
    trace = await thread.send(HELLO)
    assert len(trace) == 1003
    assert store.calls["renew"] >= 9


async def test_nothing_is_left_after_a_run(clock: LoopClock) -> None:
    """A run leaves no task and no timer behind."""
    thread = thread_of(react(2), InMemoryTraceStore(clock=clock), Runs(clock=clock))
    before = asyncio.all_tasks()
    await thread.send(HELLO)
    assert asyncio.all_tasks() == before
    loop = asyncio.get_running_loop()
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []  # type: ignore[attr-defined]  # no public way to ask


async def test_an_unknown_outcome_outside_is_raised_after_30_seconds(clock: LoopClock) -> None:
    """`submit` repeats its append for 30 seconds, then the caller learns of it."""
    store = FaultyTraceStore(InMemoryTraceStore(clock=clock))
    store.always["append"] = "after"
    thread = thread_of(react(1), store, Runs(clock=clock))
    with pytest.raises(OutcomeUnknownError, match=r"The outcome of `append` on thread 't-1'"):
        await thread.submit(HELLO)
    assert 30 <= clock.monotonic() <= 32
    assert len(set(store.batches)) == 1
    assert (await store.store.head("t-1")).position == 1


async def test_stop_during_an_acquire_without_an_answer_gives_the_lease_back(
    clock: LoopClock,
) -> None:
    """A run that is stopped while it takes its lease runs no step and leaves no lease."""
    store, runs = FaultyTraceStore(InMemoryTraceStore(clock=clock)), Runs(clock=clock)
    store.faults["acquire", 1] = "after"
    asked = asyncio.Event()

    async def ask(call: int) -> None:
        asked.set()

    store.hooks["acquire"] = ask
    thread = thread_of(line(a=says("never")), store, runs)
    await thread.submit(HELLO)
    running = asyncio.create_task(thread.resume())
    await asked.wait()
    await runs.stop("t-1")
    assert names(await running) == ["Input"]
    assert (await store.head("t-1")).lease is None


@pytest.mark.parametrize(("slow", "runs"), [(2.6, True), (2.8, False)])
async def test_the_deadline_counts_from_before_the_acquire(
    clock: LoopClock, slow: float, runs: bool
) -> None:
    """A lease whose answer took too long is not trusted: no step begins."""
    store = FaultyTraceStore(InMemoryTraceStore(clock=clock))

    async def wait(call: int) -> None:
        clock.advance(slow)

    store.hooks["acquire"] = wait
    thread = thread_of(line(a=says("in time")), store, Runs(lease_ttl=3, clock=clock))
    if runs:
        assert names(await thread.send(HELLO)) == ["Input", "in time", "Ended"]
    else:
        with pytest.raises(LeaseLostError):
            await thread.send(HELLO)
        assert names(await thread.trace()) == ["Input"]


async def test_an_acquire_without_any_answer_is_given_up(clock: LoopClock) -> None:
    """An acquire is repeated for as long as the lease would have lasted."""
    store = FaultyTraceStore(InMemoryTraceStore(clock=clock))
    store.always["acquire"] = OutcomeUnknownError("t-1", "acquire", "the connection broke")
    thread = thread_of(react(1), store, Runs(lease_ttl=5, clock=clock))
    with pytest.raises(OutcomeUnknownError, match=r"`acquire`"):
        await thread.send(HELLO)
    assert 5 <= clock.monotonic() <= 7
    assert Head() == Head(0)


async def test_a_step_may_clean_up_after_its_cancel(clock: LoopClock) -> None:
    """A step is cancelled once, however many reasons to end the run come after it."""
    store = FaultyTraceStore(InMemoryTraceStore(clock=clock))
    store.always["renew"] = "before"
    entered, cleaned = asyncio.Event(), asyncio.Event()

    async def tidy(view: Trace) -> Sequence[Event]:
        try:
            entered.set()
            await passed(60)
        finally:
            await passed(5)
            cleaned.set()
        return []

    runs = Runs(lease_ttl=3, clock=clock)
    running = asyncio.create_task(thread_of(line(a=tidy), store, runs).send(HELLO))
    await entered.wait()
    await runs.stop("t-1")
    assert cleaned.is_set()
    with pytest.raises(StoreUnavailableError):
        await running
