"""The store of a simulated process fails as it is told, and the witness sees broken rules."""

import asyncio
import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_soev.world import BrokenRuleError, Fault, SchedulePlan, Setting, Simulation, passed
from soev.adapters import InMemoryTraceStore
from soev.domain import (
    Clock,
    Head,
    Lease,
    LeaseLostError,
    LogEntry,
    OutcomeUnknownError,
    PositionConflictError,
    StoredEvent,
    StoreUnavailableError,
    TraceStore,
)

EVENT = StoredEvent("input", '{"payload":"x"}')
INPUT = StoredEvent("input", '{"answers":null,"elements":[],"model":null,"payload":"x"}')
Entry = LogEntry[StoredEvent]


async def append(
    sim: Simulation,
    after: Head = Head(),  # noqa: B008  # frozen
    batch: str = "b",
    event: StoredEvent = EVENT,
) -> Sequence[Entry]:
    """Append one event in process a."""
    process = sim.process("a")
    return await process.call(process.store.append("t-1", [event], after=after, batch=batch))


async def position(sim: Simulation) -> int:
    """Return where the log stands."""
    return (await sim.store.head("t-1")).position


def faulty(*faults: Fault) -> Simulation:
    """Make a simulation with faults."""
    return Simulation(SchedulePlan(faults=faults))


@pytest.mark.parametrize(
    ("kind", "error", "stored", "later"),
    [
        ("refuse", StoreUnavailableError, 0, 0),
        ("busy", StoreUnavailableError, 0, 0),
        ("full", StoreUnavailableError, 0, 0),
        ("disconnect", OutcomeUnknownError, 0, 0),
        ("lost", OutcomeUnknownError, 1, 1),
        ("late", OutcomeUnknownError, 0, 1),
        ("slow", None, 1, 1),
    ],
)
def test_a_write_fails_as_it_is_told(
    kind: Any, error: type[Exception] | None, stored: int, later: int
) -> None:
    """What the caller hears, and what is stored at once and later, is the fault's."""

    async def scenario(sim: Simulation) -> tuple[object, int, int]:
        try:
            came: object = len(await append(sim))
        except (StoreUnavailableError, OutcomeUnknownError) as raised:
            came = type(raised)
        at_once = await position(sim)
        await passed(2)
        return came, at_once, await position(sim)

    assert faulty(Fault(kind)).run(scenario).result() == (error or 1, stored, later)


@pytest.mark.parametrize("kind", ["lost", "late", "disconnect"])
def test_the_identical_call_tells_an_unknown_outcome(kind: Any) -> None:
    """The same append again is stored once, and so is what another one wrote after it."""

    async def scenario(sim: Simulation) -> int:
        with pytest.raises(OutcomeUnknownError, match="`append` on thread 't-1' is unknown"):
            await append(sim)
        assert [entry.position for entry in await append(sim)] == [1]
        await passed(2)
        with pytest.raises(PositionConflictError):
            await append(sim, batch="other")
        return await position(sim)

    assert faulty(Fault(kind)).run(scenario).result() == 1


def test_a_late_write_can_lose_to_another_one() -> None:
    """Rows that land late are refused where somebody else wrote meanwhile."""

    async def scenario(sim: Simulation) -> Sequence[str]:
        with pytest.raises(OutcomeUnknownError):
            await append(sim)
        await append(sim, batch="other")
        await passed(2)
        page = await sim.store.read("t-1")
        return [entry.event.data for entry in page.entries]

    assert faulty(Fault("late")).run(scenario).result() == [EVENT.data]


def test_a_write_whose_caller_is_cancelled_still_arrives() -> None:
    """A cancel cannot call back what is on its way."""

    async def scenario(sim: Simulation) -> int:
        process = sim.process("a")
        task = process.start(process.store.append("t-1", [EVENT], after=Head(), batch="b"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()
        await passed(1)
        return await position(sim)

    assert Simulation().run(scenario).result() == 1


@pytest.mark.parametrize("kind", ["refuse", "busy", "disconnect", "lost", "late"])
def test_a_read_that_breaks_is_unavailable(kind: Any) -> None:
    """A read has no outcome that could be unknown."""

    async def scenario(sim: Simulation) -> None:
        with pytest.raises(StoreUnavailableError, match="cannot `head` now"):
            await sim.process("a").store.head("t-1")

    faulty(Fault(kind, 1, "head")).run(scenario).result()


def test_a_row_can_read_badly() -> None:
    """A corrupt row is cut in the middle, and only for the call that is struck."""

    async def scenario(sim: Simulation) -> list[str]:
        await append(sim)
        store = sim.process("a").store
        pages = [await store.read("t-1") for _ in range(2)]
        return [page.entries[-1].event.data for page in pages]

    cut, whole = faulty(Fault("corrupt", 1, "read")).run(scenario).result()
    assert whole == EVENT.data
    assert whole.startswith(cut)
    assert len(cut) < len(whole)


def test_a_fault_can_last() -> None:
    """A lasting fault strikes each later call too."""

    async def scenario(sim: Simulation) -> list[bool]:
        came = []
        for _ in range(3):
            try:
                await sim.process("a").store.head("t-1")
                came.append(True)
            except StoreUnavailableError:
                came.append(False)
        return came

    assert faulty(Fault("busy", 2, lasting=True)).run(scenario).result() == [True, False, False]


class Careless(InMemoryTraceStore):
    """A store that takes an append under any lease."""

    async def append(
        self,
        thread_id: str,
        events: Sequence[StoredEvent],
        *,
        lease: Lease | None = None,
        **rest: Any,
    ) -> Sequence[Entry]:
        rest["release"] = False
        return await super().append(thread_id, events, lease=None, **rest)


class Forgetful(InMemoryTraceStore):
    """A store that loses the newest event of a log once it has two."""

    async def head(self, thread_id: str) -> Head:
        log = self._logs.get(thread_id)
        if log is not None and log.row.position == 2:
            log.entries.pop()
            log.row.position = 1
        return await super().head(thread_id)


class Generous(InMemoryTraceStore):
    """A store that gives every caller the lease of the first epoch."""

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        self._logs[thread_id].row.release()
        lease = await super().acquire(thread_id, owner, ttl, request=request)
        return Lease(thread_id, lease.incarnation, owner, 1, lease.expires)


async def stale_append(sim: Simulation) -> None:
    """Append under a lease that somebody else took meanwhile."""
    await append(sim)
    old = await sim.store.acquire("t-1", "a", 1, request="1")
    await passed(2)
    await sim.store.acquire("t-1", "b", 1, request="2")
    head = await sim.store.head("t-1")
    await sim.store.append("t-1", [EVENT], after=head, batch="c", lease=old)


async def two_events(sim: Simulation) -> None:
    """Append twice, and read the head."""
    await append(sim)
    await append(sim, await sim.store.head("t-1"), "c")
    await sim.store.head("t-1")


async def two_holders(sim: Simulation) -> None:
    """Acquire twice."""
    await append(sim)
    await sim.store.acquire("t-1", "a", 1, request="1")
    await sim.store.acquire("t-1", "b", 1, request="2")


@pytest.mark.parametrize(
    ("store", "scenario", "rule"),
    [
        (Careless, stale_append, "I3"),
        (Forgetful, two_events, "I1"),
        (Generous, two_holders, "I4"),
    ],
)
def test_the_witness_sees_a_broken_store(
    store: Callable[..., TraceStore], scenario: Any, rule: str
) -> None:
    """A store that takes a stale append, loses an event or gives a lease twice is found out."""

    def make(clock: Clock) -> TraceStore:
        return store(clock=clock)

    with pytest.raises(BrokenRuleError) as caught:
        Simulation(setting=Setting(store=make)).run(scenario).result()
    assert caught.value.rule == rule
    Simulation().run(two_events).result()


def test_the_store_clock_can_be_set() -> None:
    """The store's clock moves with the world's, and can be set forward and back."""

    async def scenario(sim: Simulation) -> list[float]:
        await passed(5)
        times = [sim.clock.monotonic()]
        for step in (10, -20):
            sim.clock.advance(step)
            times.append(sim.clock.monotonic())
        return times

    assert Simulation().run(scenario).result() == [5, 15, -5]


def test_the_witness_does_not_take_a_new_life_for_an_old_one() -> None:
    """A call of an earlier life comes between the first rows of a new one and its first read."""
    sim = Simulation()

    async def scenario(sim: Simulation) -> None:
        await append(sim)
        store = sim.process("a").store
        old = await store.acquire("t-1", "a", 3, request="r-1")
        await store.delete("t-1")
        await append(sim, batch="c", event=StoredEvent("ended", "{}"))
        with pytest.raises(LeaseLostError):
            await store.renew(old, 3)

    sim.run(scenario).result()


def test_a_wait_is_taken_down_with_its_schedule() -> None:
    """A generator that waits for a thread when the schedule ends complains of nothing."""
    sim = Simulation()

    async def follow(sim: Simulation) -> None:
        async for _ in sim.process("a").thread("t-1", None).watch():
            pass

    async def scenario(sim: Simulation) -> None:
        await append(sim, event=INPUT)
        sim.process("a").start(follow(sim))
        await passed(1)

    heard: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, heard.append
    try:
        left = sim.run(scenario).left
        del sim
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert left == ("a",)
    assert not heard
