"""Random orders and random blows, thousands of them: every log is that of a calm run."""

import random
from collections.abc import Iterator

import pytest

from pytest_soev.world import Fault, FaultKind, Mode, Outcome, Pct, Report, Scenario, SchedulePlan
from tests.reliability.crowds import CROWDS, PATIENT
from tests.reliability.graphs import GRAPHS
from tests.reliability.races import RACES
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import Story, as_calm, holds

PART = 290
PARTS = 3 * SOAK
CROWD = 60 if SOAK == 1 else 12 * SOAK
TWICE = 20
BLOWS: tuple[FaultKind, ...] = ("crash", "freeze")
FAILURES: tuple[FaultKind, ...] = ("refuse", "lost", "late", "disconnect", "slow", "busy")


def in_parts(scenarios: tuple[Scenario[Story], ...]) -> Iterator[object]:
    """Yield each scenario with the number of each part of its seeds."""
    for scenario in scenarios:
        for part in range(PARTS):
            yield pytest.param(scenario, part, id=f"{scenario.name}-{part}")


def blows(seed: int, points: int, calls: int) -> tuple[Fault, ...]:
    """Return up to two things that go wrong with a seed: a blow, and a store call that fails."""
    draw = random.Random(seed)
    blow = Fault(draw.choice(BLOWS), draw.randint(1, points), seconds=45)
    failure = Fault(draw.choice(FAILURES), draw.randint(1, calls))
    return draw.choice([(), (blow,), (failure,), (blow, failure)])


@pytest.mark.parametrize(("scenario", "part"), list(in_parts(GRAPHS)))
def test_a_random_order_with_random_blows_changes_nothing(
    scenario: Scenario[Story], part: int
) -> None:
    """Whatever comes in whatever order, a graph leaves the log and the acts of a calm run."""
    calm = scenario.run()
    report = Report(scenario, as_calm(calm))
    for seed in range(part * PART, (part + 1) * PART):
        faults = blows(seed, len(calm.points), len(calm.calls))
        outcome = scenario.run(SchedulePlan((), faults), Pct(seed))
        report.add(outcome)
        if seed % TWICE == 0:
            again = scenario.run(SchedulePlan((), faults), Pct(seed))
            assert again.identity == outcome.identity, outcome.plan.token
    LEDGER.ran("T3", "PCT, with blows", report)
    report.check()


@pytest.mark.parametrize(("scenario", "part"), list(in_parts(RACES)))
def test_a_random_order_of_a_race_has_one_winner(scenario: Scenario[Story], part: int) -> None:
    """No random order of two callers breaks a rule."""

    def noted(outcome: Outcome[Story]) -> None:
        LEDGER.saw(holds(outcome).seen)

    report = Report(scenario, noted)
    for seed in range(part * PART, (part + 1) * PART):
        outcome = scenario.run(None, Pct(seed))
        report.add(outcome)
        if seed % TWICE == 0:
            again = scenario.run(None, Pct(seed))
            assert again.identity == outcome.identity, outcome.plan.token
    LEDGER.ran("T3", "PCT", report)
    report.check()


@pytest.mark.parametrize("mode", ["strict", "wild"])
@pytest.mark.parametrize("scenario", CROWDS, ids=lambda scenario: scenario.name)
def test_a_crowd_with_wrong_clocks_changes_nothing(scenario: Scenario[Story], mode: Mode) -> None:
    """Three processes at once, a day apart, that freeze and die, leave the log of a calm run."""
    calm = scenario.run()
    report = Report(scenario, as_calm(calm))
    for seed in range(CROWD):
        faults = mishaps(seed, len(calm.points), len(calm.calls))
        report.add(scenario.run(SchedulePlan((), faults, mode), Pct(seed)))
    LEDGER.ran("T3", f"PCT, {mode}, three processes with wrong clocks, with blows", report)
    report.check()


def mishaps(seed: int, points: int, calls: int) -> tuple[Fault, ...]:
    """Return two blows, shorter and longer than a lease, and a store call that fails."""
    draw = random.Random(seed)
    return (
        Fault("freeze", draw.randint(1, points), seconds=draw.choice((5, 12, 20))),
        Fault(draw.choice(BLOWS), draw.randint(1, points), seconds=12),
        Fault(draw.choice(FAILURES), draw.randint(1, calls), seconds=draw.choice((1.3, 4, 11))),
    )


@pytest.mark.parametrize("at", range(1, 4))
@pytest.mark.parametrize("point", ["store.renew.sent", "store.renew.answered"])
def test_a_freeze_inside_a_renewal_is_no_fall_of_the_head(point: str, at: int) -> None:
    """A head that a process learned before it was frozen is not held to what came later."""
    plan = SchedulePlan(faults=(Fault("freeze", at, point, seconds=60),))
    as_calm(PATIENT.run())(PATIENT.run(plan))
