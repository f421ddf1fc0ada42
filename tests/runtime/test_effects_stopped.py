"""Effects that a cancel, a stop, a close, a delete or a lost lease finds in progress."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Input,
    LeaseLostError,
    ModelOutput,
    Request,
    StoreUnavailableError,
    Trace,
)
from soev.runtime._effects import Effector
from soev.runtime._errors import ThreadActiveError
from soev.runtime._runs import Runs
from tests.runtime.deeds import (
    Case,
    Mail,
    Mailer,
    ask_person,
    ask_world,
    await_result,
    mailing,
    points,
    told,
)
from tests.runtime.world import (
    HELLO,
    FaultyTraceStore,
    JumpingLoop,
    LoopClock,
    line,
    names,
    thread_of,
)

pytestmark = pytest.mark.anyio

Policy = Callable[
    [Trace, EffectIntent, Effector, asyncio.Task[EffectResult]], Awaitable[Sequence[Event]]
]
Acting = asyncio.Task[EffectResult]


def decides(*events: Event) -> Policy:
    """Make a cancellation that returns these at once."""

    async def cancellation(
        trace: Trace,
        intent: EffectIntent,
        effector: Effector,
        performing: Acting,
    ) -> Sequence[Event]:
        return list(events)

    return cancellation


async def in_the_act(case: Case, *, changed: bool) -> "asyncio.Task[Trace]":
    """Run a thread until its act is in front of the world, or behind it."""
    if changed:
        case.mailer.linger = asyncio.Event()
    else:
        case.mailer.hold = asyncio.Event()
    running = asyncio.create_task(case.thread.send(HELLO))
    await (case.mailer.changed if changed else case.mailer.entered).wait()
    return running


@pytest.mark.parametrize("changed", [False, True])
async def test_abandon_leaves_the_intent_open(changed: bool) -> None:
    """With `abandon` the act is cancelled, nothing is recorded, and recovery settles it later."""
    case = Case()
    running = await in_the_act(case, changed=changed)
    assert (await case.thread.cancel()).state == "cancelled"
    assert names(await running) == ["Input", "model", "EffectIntent", "Cancelled"]
    assert case.mailer.cancelled
    assert not await case.thread.running()
    with pytest.raises(ThreadActiveError, match="nobody knows yet what became of"):
        await case.thread.submit(HELLO)
    case.mailer.hold = case.mailer.linger = None
    assert names(await case.thread.resume())[3:] == ["Cancelled", "EffectResult"]
    assert case.world.acts.total() == 1
    assert (await case.thread.status()).state == "cancelled"
    await case.thread.submit(HELLO)


async def test_a_cancellation_may_await_the_act() -> None:
    """A policy that waits for the act gets its result, recorded after Cancelled."""
    case = Case(cancellation=await_result)
    running = await in_the_act(case, changed=True)
    await case.thread.cancel()
    assert case.mailer.linger is not None
    case.mailer.linger.set()
    assert names(await running)[2:] == ["EffectIntent", "Cancelled", "EffectResult"]
    assert not case.mailer.cancelled
    await case.thread.submit(HELLO)


async def test_what_a_cancellation_decides_is_recorded_after_cancelled() -> None:
    """An EffectResult of the policy settles the intent, with the intent's id set."""
    case = Case(cancellation=decides(EffectResult(error="called off")))
    running = await in_the_act(case, changed=False)
    await case.thread.cancel()
    trace = await running
    assert names(trace)[3:] == ["Cancelled", "EffectResult"]
    assert trace.of(EffectResult)[0].intent == trace.of(EffectIntent)[0].id
    assert case.mailer.cancelled


async def test_a_cancellation_may_ask_a_person() -> None:
    """A Request of the policy waits after Cancelled, and its answer leads to recovery."""
    policy = decides(Request(kind="effect", actor="person"))
    case = Case(ask_person, policy)
    running = await in_the_act(case, changed=True)
    await case.thread.cancel()
    request = (await running).latest(Request)
    status = await case.thread.status()
    assert (status.state, len(status.pending)) == ("cancelled", 1)
    trace = await case.thread.send(Input(payload="it went out"), answering=request)
    assert names(trace)[3:] == ["Cancelled", "Request", "Input", "EffectResult"]


@pytest.mark.parametrize(
    "policy",
    [
        decides(ModelOutput()),
        decides(EffectResult(), EffectResult()),
        decides(EffectResult(intent="other")),
        decides(EffectResult(output=float("nan"))),
    ],
    ids=["output", "two", "other", "nan"],
)
async def test_a_wrong_decision_records_nothing(policy: Policy) -> None:
    """A policy that returns anything else leaves the intent to recovery."""
    case = Case(cancellation=policy)
    running = await in_the_act(case, changed=True)
    await case.thread.cancel()
    assert names(await running)[2:] == ["EffectIntent", "Cancelled"]
    assert case.mailer.cancelled


async def test_a_cancellation_that_raises_records_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a policy raises goes to the log of the process."""

    async def broken(
        trace: Trace,
        intent: EffectIntent,
        effector: Effector,
        performing: Acting,
    ) -> Sequence[Event]:
        raise OSError("no line")

    case = Case(cancellation=broken)
    running = await in_the_act(case, changed=True)
    await case.thread.cancel()
    assert names(await running)[2:] == ["EffectIntent", "Cancelled"]
    assert "no line" in caplog.text


async def test_an_act_that_raised_while_its_cancellation_decided_records_nothing() -> None:
    """After a stop neither the error of the act nor a Failure is recorded."""
    case = Case(cancellation=await_result)
    case.mailer.fails = OSError("reset")
    running = await in_the_act(case, changed=True)
    await case.thread.cancel()
    assert case.mailer.linger is not None
    case.mailer.linger.set()
    assert names(await running)[2:] == ["EffectIntent", "Cancelled"]


async def test_a_result_that_came_first_is_recorded_whatever_the_policy() -> None:
    """An act that returned while the policy decided has its own result recorded."""
    asked, decided = asyncio.Event(), asyncio.Event()

    async def slow(
        trace: Trace,
        intent: EffectIntent,
        effector: Effector,
        performing: Acting,
    ) -> Sequence[Event]:
        asked.set()
        await decided.wait()
        return [EffectResult(error="called off")]

    case = Case(cancellation=slow)
    running = await in_the_act(case, changed=True)
    await case.thread.cancel()
    await asked.wait()
    assert case.mailer.linger is not None
    case.mailer.linger.set()
    for _ in range(5):
        await asyncio.sleep(0)
    decided.set()
    assert (await running).of(EffectResult)[0].output == "sent"


async def test_an_act_that_returned_before_the_cancel_is_recorded() -> None:
    """E5: the result is on its way to the store when the turn is cancelled; it follows."""
    case = Case()
    store = FaultyTraceStore(case.store)

    async def cancel(call: int) -> None:
        if call == 3:
            await case.other().cancel()

    store.hooks["append"] = cancel
    await case.thread.submit(HELLO)
    trace = await thread_of(case.graph, store, Runs()).resume()
    assert names(trace)[2:] == ["EffectIntent", "Cancelled", "EffectResult"]
    assert case.world.acts.total() == 1
    assert not await case.thread.running()


async def test_a_cancel_while_the_result_is_stored_follows_it() -> None:
    """E6: an append in flight ends, then comes Cancelled."""
    case = Case()
    await case.thread.submit(HELLO)
    store = FaultyTraceStore(case.store)
    sending, answered = asyncio.Event(), asyncio.Event()

    async def slow(call: int) -> None:
        if call == 3:
            sending.set()
            await answered.wait()

    store.hooks["append"] = slow
    runs = Runs()
    running = asyncio.create_task(thread_of(case.graph, store, runs).resume())
    await sending.wait()
    stopping = asyncio.create_task(runs.stop("t-1"))
    await asyncio.sleep(0)
    answered.set()
    await stopping
    assert names(await running)[2:] == ["EffectIntent", "EffectResult"]
    assert (await case.thread.status()).state == "interrupted"


async def test_a_cancel_before_the_intent_leaves_no_intent() -> None:
    """E0: the intent's append meets Cancelled, and nothing is recorded or performed."""
    case = Case()
    await case.thread.submit(HELLO)
    store = FaultyTraceStore(case.store)

    async def cancel(call: int) -> None:
        if call == 2:
            await case.other().cancel()

    store.hooks["append"] = cancel
    trace = await thread_of(case.graph, store, Runs()).resume()
    assert names(trace) == ["Input", "model", "Cancelled"]
    assert not case.mailer.performed


async def test_an_act_that_has_not_begun_never_begins() -> None:
    """E2: a stop while the intent is stored makes `performing` a cancelled task."""
    seen: list[bool] = []

    async def policy(
        trace: Trace,
        intent: EffectIntent,
        effector: Effector,
        performing: Acting,
    ) -> Sequence[Event]:
        seen.append(performing.cancelled())
        return []

    case = Case(cancellation=policy)
    await case.thread.submit(HELLO)
    store = FaultyTraceStore(case.store)
    sending, answered = asyncio.Event(), asyncio.Event()

    async def slow(call: int) -> None:
        if call == 2:
            sending.set()
            await answered.wait()

    store.hooks["append"] = slow
    runs = Runs()
    running = asyncio.create_task(thread_of(case.graph, store, runs).resume())
    await sending.wait()
    await runs.stop("t-1", wait=False)
    await asyncio.sleep(0)
    answered.set()
    assert names(await running) == ["Input", "model", "EffectIntent"]
    assert seen == [True]
    assert not case.mailer.performed
    assert names(await case.thread.resume())[3:] == ["EffectResult", "end", "Ended"]


@pytest.mark.parametrize("way", ["stop", "close"])
async def test_stop_and_close_ask_the_cancellation(way: str) -> None:
    """The decision is recorded without Cancelled, and the lease is given back at once."""
    case = Case(cancellation=await_result)
    running = await in_the_act(case, changed=True)
    ending = case.runs.stop("t-1") if way == "stop" else case.runs.close(0)
    stopping = asyncio.create_task(ending)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopping.done()
    assert case.mailer.linger is not None
    case.mailer.linger.set()
    await stopping
    assert names(await running)[2:] == ["EffectIntent", "EffectResult"]
    status = await case.thread.status()
    assert status.state == "interrupted"
    assert names(await case.other().resume())[4:] == ["end", "Ended"]


async def test_a_stop_does_not_end_the_turn() -> None:
    """A stopped run records what its last effect came to; the end is left to a resume."""
    case = Case(cancellation=await_result)
    thread = thread_of(line(mail=case.mail), case.store, case.runs)  # type: ignore[arg-type]  # an effect is a node too
    case.mailer.linger = asyncio.Event()
    running = asyncio.create_task(thread.send(HELLO))
    await case.mailer.changed.wait()
    stopping = asyncio.create_task(case.runs.stop("t-1"))
    for _ in range(5):
        await asyncio.sleep(0)
    case.mailer.linger.set()
    await stopping
    assert names(await running) == ["Input", "EffectIntent", "EffectResult"]
    assert (await thread.status()).state == "interrupted"
    assert names(await thread_of(thread._graph, case.store).resume())[3:] == ["Ended"]


async def test_delete_asks_the_cancellation_first() -> None:
    """A delete waits for the effect's decision, then nothing of the thread is left."""
    case = Case(cancellation=await_result)
    running = await in_the_act(case, changed=True)
    deleting = asyncio.create_task(case.thread.delete())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not deleting.done()
    assert case.mailer.linger is not None
    case.mailer.linger.set()
    await deleting
    await asyncio.wait((running,))
    assert (await case.store.head("t-1")).position == 0
    assert case.world.acts.total() == 1


async def test_a_recovery_in_progress_is_cancelled() -> None:
    """E8: a cancel stops a recovery, drops what it would say, and leaves the intent open."""
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        if not entered.is_set():
            entered.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cancelled.set()
        return [EffectResult(output="settled")]

    case = Case(recovery)
    case.mailer.fails = OSError("reset")
    await case.thread.send(HELLO)
    running = asyncio.create_task(case.thread.resume())
    await entered.wait()
    await case.thread.cancel()
    assert names(await running)[3:] == ["Failure", "Cancelled"]
    assert cancelled.is_set()
    assert names(await case.thread.resume())[4:] == ["Cancelled", "EffectResult"]


async def test_a_failure_of_recovery_may_follow_cancelled() -> None:
    """In a cancelled turn only recovery runs, and its Failure is recorded."""

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        raise OSError("down")

    case = Case(recovery)
    running = await in_the_act(case, changed=True)
    await case.thread.cancel()
    await running
    assert names(await case.thread.resume())[3:] == ["Cancelled", "Failure"]
    assert names(await case.thread.resume())[3:] == ["Cancelled", "Failure", "Failure"]


class Timed(Case):
    """A case on a loop whose time jumps, with a lease of three seconds."""

    def __init__(self, clock: LoopClock, timeout: float | None = None) -> None:
        super().__init__(timeout=timeout)
        self.clock = clock
        self.store = InMemoryTraceStore(clock=clock)
        self.runs = Runs(lease_ttl=3, clock=clock)
        self.thread = thread_of(self.graph, self.store, self.runs)


@pytest.fixture
def clock() -> LoopClock:
    """Tell the loop's time."""
    return LoopClock()


jumping = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": JumpingLoop})], ids=["jumping"]
)


@jumping
async def test_an_act_is_bounded_by_its_timeout(clock: LoopClock) -> None:
    """`perform` is stopped when its effector's `timeout` is over, and its outcome is unknown."""
    case = Timed(clock, timeout=7)
    case.mailer.hold = asyncio.Event()
    trace = await case.thread.send(HELLO)
    assert names(trace)[2:] == ["EffectIntent", "Failure"]
    (failure,) = trace.of(Failure)
    assert "longer than its effector's `timeout` of 7 seconds" in failure.message
    assert case.mailer.cancelled
    assert clock.monotonic() == pytest.approx(7)


@jumping
async def test_a_recovery_waits_until_no_act_can_be_on_its_way(clock: LoopClock) -> None:
    """Recovery begins once the intent's time plus the timeout is over by the store's clock."""
    asked: list[float] = []

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        asked.append(clock.monotonic())
        return await ask_world(trace, intent, effector)

    case = Timed(clock, timeout=60)
    case.mail.recovery = recovery
    running = await in_the_act(case, changed=False)
    started = clock.monotonic()
    await case.runs.stop("t-1")
    await running
    assert case.mailer.hold is not None
    case.mailer.hold.set()
    assert names(await case.thread.resume())[3:] == ["EffectResult", "end", "Ended"]
    assert asked == [pytest.approx(started + 60)]


@jumping
async def test_the_wait_before_a_recovery_outlasts_an_outage(clock: LoopClock) -> None:
    """A store that is away for a moment while its clock is asked for is asked again."""
    case = Timed(clock, timeout=5)
    running = await in_the_act(case, changed=True)
    await case.runs.stop("t-1")
    await running
    store = FaultyTraceStore(case.store)
    store.faults["head", 1] = store.faults["head", 2] = "before"
    trace = await thread_of(case.graph, store, Runs(lease_ttl=3, clock=clock)).resume()
    assert names(trace)[3:] == ["EffectResult", "end", "Ended"]
    assert store.calls["head"] > 2


async def test_a_timeout_of_the_act_itself_is_told_as_it_is() -> None:
    """A TimeoutError that `perform` raises keeps its own text."""
    case = Case(timeout=60)
    case.mailer.fails = TimeoutError("the gateway gave up")
    (failure,) = (await case.thread.send(HELLO)).of(Failure)
    assert (failure.error_type, failure.message) == ("TimeoutError", "the gateway gave up")


@jumping
async def test_a_stop_ends_the_wait_before_a_recovery(clock: LoopClock) -> None:
    """A recovery that waits for its time can be cancelled."""
    case = Timed(clock, timeout=600)
    running = await in_the_act(case, changed=False)
    await case.runs.stop("t-1")
    await running
    waits = asyncio.Event()
    with points(lambda number, point: waits.set() if point == "effect.waiting" else None):
        waiting = asyncio.create_task(case.thread.resume())
        await waits.wait()
    await case.thread.cancel()
    assert names(await waiting)[3:] == ["Cancelled"]
    assert clock.monotonic() < 600


@jumping
async def test_a_paused_process_records_nothing_and_another_recovers(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that was frozen past its lease in an act is refused when it wakes."""
    case = Timed(clock)
    asked: list[Event] = []
    case.mail.cancellation = decides(EffectResult(error="never"))
    running = await in_the_act(case, changed=True)
    clock.advance(10)
    other = thread_of(mailing(Mail(Mailer(case.world))), case.store, Runs(lease_ttl=3, clock=clock))
    trace = await other.resume()
    assert names(trace)[2:] == ["EffectIntent", "EffectResult", "end", "Ended"]
    assert case.mailer.linger is not None
    case.mailer.linger.set()
    with pytest.raises(LeaseLostError):
        await running
    assert told(await other.trace()) == told(trace)
    assert case.world.acts.total() == 1
    assert not asked
    assert "could not be recorded" in caplog.text


@jumping
async def test_a_lost_lease_cancels_the_act_and_asks_nothing(clock: LoopClock) -> None:
    """Once a renewal finds the lease gone, the act is cancelled and no policy is called."""
    asked: list[int] = []

    async def policy(
        trace: Trace,
        intent: EffectIntent,
        effector: Effector,
        performing: Acting,
    ) -> Sequence[Event]:
        asked.append(1)
        return [EffectResult(error="never")]

    case = Timed(clock)
    case.mail.cancellation = policy
    running = await in_the_act(case, changed=False)
    clock.advance(10)
    lease = await case.store.acquire("t-1", "other", 3, request="r")
    with pytest.raises(LeaseLostError):
        await running
    assert case.mailer.cancelled
    assert not asked
    assert names(await case.thread.trace())[2:] == ["EffectIntent"]
    assert (await case.store.head("t-1")).lease == lease


@jumping
async def test_a_deadline_ends_a_decision_too(clock: LoopClock) -> None:
    """A policy that waits longer than the lease can be kept is cancelled, and nothing recorded."""
    case = Timed(clock)
    case.mail.cancellation = await_result
    store = FaultyTraceStore(case.store)
    case.thread = thread_of(case.graph, store, case.runs)
    running = await in_the_act(case, changed=True)
    store.always["renew"] = store.always["append"] = "before"
    await case.runs.stop("t-1")
    assert case.mailer.cancelled
    await asyncio.wait((running,))
    assert isinstance(running.exception(), StoreUnavailableError)
    assert names(await case.thread.trace())[2:] == ["EffectIntent"]


@jumping
async def test_no_act_begins_after_the_own_deadline(clock: LoopClock) -> None:
    """F2: an intent whose append took longer than the lease lasts is left to recovery."""
    case = Timed(clock)
    await case.thread.submit(HELLO)
    store = FaultyTraceStore(case.store)

    async def slow(call: int) -> None:
        if call == 2:
            clock.advance(2.9)

    store.hooks["append"] = slow
    with pytest.raises(LeaseLostError):
        await thread_of(case.graph, store, case.runs).resume()
    assert names(await case.thread.trace())[2:] == ["EffectIntent"]
    assert not case.mailer.performed


@jumping
async def test_a_cancel_elsewhere_reaches_the_act_by_the_renewal(clock: LoopClock) -> None:
    """C3: a Cancelled of another process is seen within a third of the lease's time."""
    case = Timed(clock)
    case.mail.cancellation = decides(EffectResult(error="called off"))
    running = await in_the_act(case, changed=False)
    begun = clock.monotonic()
    await thread_of(None, case.store, Runs(lease_ttl=3, clock=clock)).cancel()
    assert names(await running)[2:] == ["EffectIntent", "Cancelled", "EffectResult"]
    assert clock.monotonic() - begun <= 1


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "7"])
async def test_a_timeout_is_a_number_of_seconds(timeout: object) -> None:
    """Another timeout is a Failure before anything is intended."""
    case = Case()
    case.mailer.timeout = timeout  # type: ignore[assignment]  # that is what is tested
    trace = await case.thread.send(HELLO)
    assert names(trace) == ["Input", "model", "Failure"]
    assert "The `timeout` of an effector is" in trace.of(Failure)[0].message
    assert not case.mailer.performed


async def test_the_log_of_a_stop_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A stop that abandons an act is no error of anybody."""
    case = Case()
    running = await in_the_act(case, changed=False)
    with caplog.at_level(logging.DEBUG, logger="soev"):
        await case.runs.stop("t-1")
        await running
    assert [record for record in caplog.records if record.name == "soev"] == []
