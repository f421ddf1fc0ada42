"""The sweeps find planted bugs: an oracle that never fails proves nothing."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from pytest_soev.world import (
    Scenario,
    ScheduleFailedError,
    Setting,
    Simulation,
    Talk,
    boundary,
    carry_on,
    fail_each_call,
    log_of,
    survive,
    sweep,
)
from soev.adapters import InMemoryTraceStore
from soev.domain import Clock, Event, LogEntry, ModelOutput, StoredEvent, Trace, TraceStore
from soev.runtime import Graph
from tests.world.scenarios import ONE_STEP, REACT_LOOP, Log


class FreshBatches(InMemoryTraceStore):
    """A store whose callers make a new batch id for each attempt."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._numbers = count(1)

    async def append(
        self, thread_id: str, events: Sequence[StoredEvent], *, batch: str, **rest: Any
    ) -> Sequence[LogEntry[StoredEvent]]:
        return await super().append(
            thread_id, events, batch=f"{batch}-{next(self._numbers)}", **rest
        )


def fresh_batches(clock: Clock) -> TraceStore:
    """Make the broken store."""
    return FreshBatches(clock)


def test_a_new_batch_id_for_each_attempt_is_found() -> None:
    """An append that is repeated under another id is recorded twice, and the report says where."""
    broken = Scenario("ReAct loop", REACT_LOOP.play, Setting(store=fresh_batches))
    broken.run().result()
    with pytest.raises(ScheduleFailedError, match=r"again\('strict:\+l(ost|ate)@any\.\d+'\)\n"):
        fail_each_call(broken, ("lost", "late")).check()


def counted() -> Scenario[Log]:
    """Make a scenario whose step depends on how often its process called it."""

    async def play(sim: Simulation) -> Log:
        calls = count(1)

        async def step(view: Trace) -> Sequence[Event]:
            await boundary()
            return [ModelOutput(text=f"Call {next(calls)}.")]

        graph = Graph()
        graph.add_node("step", step)
        graph.set_entry_point("step")
        await survive(sim.process("a"), lambda each: carry_on(each, lambda: graph, Talk()))
        return await log_of(sim.store)

    return Scenario("counted", play)


def test_a_step_that_is_not_pure_is_found() -> None:
    """A step that says something else when it runs again makes another log after a crash."""
    with pytest.raises(ScheduleFailedError, match="differs from a calm run") as caught:
        sweep(counted()).check()
    assert caught.value.token.startswith("strict:+crash@any.")
    assert 0 < caught.value.failed < caught.value.runs


def test_a_crash_that_nobody_survives_is_found() -> None:
    """A scenario that does not start its process again fails at each crash."""

    async def play(sim: Simulation) -> None:
        process = sim.process("a")
        await process.call(ONE_STEP.play(sim))

    report = sweep(Scenario("fragile", play))
    assert len(report.failures) > 0
