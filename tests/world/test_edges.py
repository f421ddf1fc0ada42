"""The less common ways through the deterministic world."""

import asyncio
import copy
import pickle

import pytest

from pytest_soev.world import (
    BrokenRuleError,
    DeadlockError,
    EndlessError,
    OutsideError,
    Process,
    ProcessDiedError,
    ScheduleFailedError,
    Simulation,
    UndurableActError,
    WorldError,
    WorldLoop,
    boundary,
    survive,
)
from soev.domain import Head, Input, StoredEvent
from tests.world.scenarios import AGENT

EVENT = StoredEvent("input", '{"payload":"x"}')
INTENT = StoredEvent("effect_intent", '{"args":null,"id":"i-1","kind":"refund"}')
RESULT = StoredEvent("effect_result", '{"error":null,"intent":"i-1","output":null}')

ERRORS = [
    BrokenRuleError("I1", "it changed"),
    DeadlockError(("a task",), ("a",)),
    EndlessError("steps", 10, ("a task",)),
    OutsideError("socket"),
    ProcessDiedError("a"),
    ScheduleFailedError("race", "strict:1", 1, 2, "it failed"),
    UndurableActError("i-1"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle(error: WorldError) -> None:
    """Each error has a text, and is the same after pickle and copy."""
    assert str(error)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again)) == (type(error), str(error))


async def many_tasks() -> int:
    """Make many tasks that end, and count what the loop still knows."""
    for _ in range(2000):
        await asyncio.create_task(boundary())
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WorldLoop)
    return len(loop.lanes._lanes)


def test_tasks_that_ended_are_forgotten() -> None:
    """A long schedule does not keep what is over."""
    loop = WorldLoop()
    try:
        assert loop.run_until_complete(many_tasks()) < 1000
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("events", "rule"),
    [([INTENT, RESULT], None), ([RESULT], "I7"), ([INTENT, RESULT, RESULT], "I7")],
)
def test_the_witness_knows_results(events: list[StoredEvent], rule: str | None) -> None:
    """A result without an intent, and a second one, break a rule."""

    async def scenario(sim: Simulation) -> None:
        await sim.store.append("t-1", events, after=Head(), batch="b")

    error = Simulation().run(scenario).error
    assert (error.rule if isinstance(error, BrokenRuleError) else error) == rule


def test_a_thread_is_copied_and_deleted_through_a_process() -> None:
    """The handle of a process reaches every method of the store."""

    async def scenario(sim: Simulation) -> list[str]:
        store = sim.process("a").store
        await store.append("t-1", [EVENT], after=Head(), batch="b")
        await store.copy("t-1", "t-2", through=1)
        await store.delete("t-1")
        await store.append("t-1", [EVENT, EVENT], after=Head(), batch="c")
        lease = await store.acquire("t-1", "a", 5, request="r")
        await store.release(lease)
        head = await store.wait("t-1", after=Head(), timeout=1)
        assert head.position == 2
        assert [entry.position async for entry in store.read_back("t-1", before=head)] == [2, 1]
        return sorted(info.thread_id for info in await store.threads())

    assert Simulation().run(scenario).result() == ["t-1", "t-2"]


def test_a_process_has_a_catalog() -> None:
    """A catalog of a process opens threads in its store, with its ids."""

    async def scenario(sim: Simulation) -> str:
        process = sim.process("a")
        catalog = process.catalog({"helper": AGENT})
        thread, _ = await process.call(catalog.open("helper", Input(payload="Hello")))
        return thread.id

    assert Simulation().run(scenario).result().startswith("id~a~")


def test_a_process_that_always_dies_is_given_up() -> None:
    """Work that kills its process each time does not go on for ever."""

    async def die(process: Process) -> None:
        process.kill()

    async def scenario(sim: Simulation) -> None:
        await survive(sim.process("a"), die)

    with pytest.raises(WorldError, match="Process 'a' died 20 times"):
        Simulation().run(scenario).result()


def test_what_nobody_handles_is_kept() -> None:
    """An error in a plain callback is part of the outcome."""

    def fail() -> None:
        raise ValueError("in a callback")

    async def scenario(sim: Simulation) -> None:
        sim.loop.call_soon(fail)
        await boundary()

    (complaint,) = Simulation().run(scenario).complaints
    assert str(complaint["exception"]) == "in a callback"
