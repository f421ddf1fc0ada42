"""The schedules come to what they are for: named points, and turns of events."""

from collections import Counter
from collections.abc import Iterable

from pytest_soev.world import Fault, Outcome, Pct, Scenario, SchedulePlan, exhaust, sweep
from tests.reliability.graphs import EFFECT, GRAPHS
from tests.reliability.races import RACES
from tests.reliability.report import LEDGER, SOAK, SOMETIMES
from tests.reliability.rules import Story
from tests.reliability.traps import CLOSED_STEP, LONG, STOPPED, TAKEOVER, WIRE

ENOUGH = 0.9 if SOAK == 1 else 1.0


def came_up(outcome: Outcome[Story]) -> Iterable[str]:
    """Yield what a schedule came to."""
    story = outcome.result()
    yield from (point.partition(":")[2] for point in outcome.points)
    yield from story.seen
    for often, name in enumerate(("recovery called", "recovery called twice"), 1):
        if story.recoveries >= often:
            yield name
    if story.refusals:
        yield "fresh input refused beside an open intent"


def test_the_schedules_reach_what_they_are_for() -> None:
    """Nine in ten of the named points and turns of events are reached, in a long run all."""
    reached: Counter[str] = Counter()

    def note(outcome: Outcome[Story]) -> None:
        reached.update(came_up(outcome))

    runs: list[Scenario[Story]] = [*GRAPHS, CLOSED_STEP, LONG, STOPPED, WIRE]
    for scenario in runs:
        note(scenario.run())
        note(scenario.run(None, Pct(1)))
    for scenario in (*RACES, STOPPED):
        exhaust(scenario, deviations=1, cap=60, expect=note)
    sweep(EFFECT, depth=1, expect=note)
    for point in ("run.append.sending", "effect.intended", "effect.performed"):
        note(TAKEOVER.run(SchedulePlan(faults=(Fault("freeze", 1, point, seconds=0),))))
    for first in ("effect.intended", "world.changed"):
        faults = (Fault("crash", 1, first), Fault("crash", 1, "world.asking"))
        note(EFFECT.run(SchedulePlan(faults=faults)))
    LEDGER.saw(reached.elements())
    missing = [name for name in SOMETIMES if not reached[name]]
    assert len(missing) <= (1 - ENOUGH) * len(SOMETIMES), missing
    assert len(SOMETIMES) >= 40
