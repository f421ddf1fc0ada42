"""The small world that effects change."""

import pytest

from pytest_soev.world import (
    Fault,
    Process,
    ProcessDiedError,
    RecordingEffector,
    SchedulePlan,
    Simulation,
    UndurableActError,
    World,
)
from soev.domain import EffectIntent, EffectResult, Head, StoredEvent, TransientError

REFUND = EffectIntent(kind="refund", args={"order": "o-1"}, id="i-1")


async def perform(sim: Simulation, effector: RecordingEffector) -> EffectResult:
    """Record the intent, and perform it in a process."""
    event = StoredEvent("effect_intent", '{"args":null,"id":"i-1","kind":"refund"}')
    await sim.store.append("t-1", [event], after=Head(), batch="b")
    return await sim.process("a").call(effector.perform(REFUND))


def test_an_act_is_counted_by_its_intent() -> None:
    """The world counts acts by intent and kind, and answers with the intent's id."""

    async def scenario(sim: Simulation) -> EffectResult:
        result = await perform(sim, RecordingEffector(sim.world))
        assert sim.world.acts == {"i-1": 1}
        assert sim.world.count() == sim.world.count("refund") == 1
        assert sim.world.happened("refund")
        assert not sim.world.happened("mail")
        assert sim.world.repeated() == {}
        return result

    assert Simulation().run(scenario).result().intent == "i-1"


def test_an_act_before_its_intent_fails_the_schedule() -> None:
    """The world acts on recorded intents alone, and a schedule that tries fails."""

    async def scenario(sim: Simulation) -> int:
        with pytest.raises(UndurableActError, match="'i-1' began before the intent was recorded"):
            await sim.process("a").call(RecordingEffector(sim.world).perform(REFUND))
        return sim.world.count()

    outcome = Simulation().run(scenario)
    assert isinstance(outcome.error, UndurableActError)


@pytest.mark.parametrize(
    ("point", "acts"), [("world.sending", 0), ("world.changed", 1), ("world.answered", 1)]
)
def test_a_crash_in_the_act_leaves_the_world_as_it_is(point: str, acts: int) -> None:
    """A process that dies in the act has changed the world, or not, by the point of its death."""

    async def scenario(sim: Simulation) -> int:
        with pytest.raises(ProcessDiedError):
            await perform(sim, RecordingEffector(sim.world))
        return sim.world.count("refund")

    plan = SchedulePlan(faults=(Fault("crash", 1, point),))
    assert Simulation(plan).run(scenario).result() == acts


def test_an_act_can_fail_after_the_world_changed() -> None:
    """An effector that raises after the act leaves it to recovery to ask."""

    async def scenario(sim: Simulation) -> bool | None:
        effector = RecordingEffector(sim.world, fails=(TransientError(), None))
        with pytest.raises(TransientError):
            await perform(sim, effector)
        assert effector.performed == {"i-1": 1}
        return await effector.ask(REFUND)

    assert Simulation().run(scenario).result() is True


@pytest.mark.parametrize(
    ("world", "before", "after"),
    [
        (World("honest"), False, True),
        (World("lying"), True, False),
        (World("silent"), None, None),
    ],
    ids=["honest", "lying", "silent"],
)
def test_a_world_answers_as_honestly_as_it_is(
    world: World, before: bool | None, after: bool | None
) -> None:
    """Asked about an intent, an honest world tells the truth, a lying one not, a silent nothing."""
    assert world.asked("i-1") is before
    world.act(REFUND)
    assert world.asked("i-1") is after


@pytest.mark.parametrize(("drops", "acts"), [(False, 2), (True, 1)])
def test_a_world_may_know_a_repeat(drops: bool, acts: int) -> None:
    """A world that drops repeats acts once on an intent; each attempt is counted in both."""
    world = World(drops_repeats=drops)
    world.act(REFUND)
    world.act(REFUND)
    assert (world.acts["i-1"], world.attempts["i-1"]) == (acts, 2)
    assert world.repeated() == ({} if drops else {"i-1": 2})


def test_an_effector_needs_a_process_that_lives() -> None:
    """An act of a dead process never reaches the world."""

    async def kill(process: Process, effector: RecordingEffector) -> None:
        process.kill()
        await effector.perform(REFUND)

    async def scenario(sim: Simulation) -> int:
        process = sim.process("a")
        with pytest.raises(ProcessDiedError):
            await process.call(kill(process, RecordingEffector(sim.world)))
        return sim.world.count()

    assert Simulation().run(scenario).result() == 0
