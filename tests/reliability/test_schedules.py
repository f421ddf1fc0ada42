"""Random orders and random blows, thousands of them: every log is that of a calm run."""

import random

import pytest

from pytest_soev.world import Fault, FaultKind, Outcome, Pct, Report, Scenario, SchedulePlan
from tests.reliability.graphs import GRAPHS
from tests.reliability.races import RACES
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import Story, as_calm, holds

SEEDS = 120 * SOAK
TWICE = 20
BLOWS: tuple[FaultKind, ...] = ("crash", "freeze")
FAILURES: tuple[FaultKind, ...] = ("refuse", "lost", "late", "disconnect", "slow", "busy")


def blows(seed: int, points: int, calls: int) -> tuple[Fault, ...]:
    """Return up to two things that go wrong with a seed: a blow, and a store call that fails."""
    draw = random.Random(seed)
    blow = Fault(draw.choice(BLOWS), draw.randint(1, points), seconds=45)
    failure = Fault(draw.choice(FAILURES), draw.randint(1, calls))
    return draw.choice([(), (blow,), (failure,), (blow, failure)])


@pytest.mark.parametrize("scenario", GRAPHS, ids=lambda scenario: scenario.name)
def test_a_random_order_with_random_blows_changes_nothing(scenario: Scenario[Story]) -> None:
    """Whatever comes in whatever order, a graph leaves the log and the acts of a calm run."""
    calm = scenario.run()
    report = Report(scenario, as_calm(calm))
    for seed in range(SEEDS):
        faults = blows(seed, len(calm.points), len(calm.calls))
        outcome = scenario.run(SchedulePlan((), faults), Pct(seed))
        report.add(outcome)
        if seed % TWICE == 0:
            again = scenario.run(SchedulePlan((), faults), Pct(seed))
            assert again.identity == outcome.identity
    LEDGER.ran("T3", "PCT, with blows", report)
    report.check()


@pytest.mark.parametrize("scenario", RACES, ids=lambda scenario: scenario.name)
def test_a_random_order_of_a_race_has_one_winner(scenario: Scenario[Story]) -> None:
    """No random order of two callers breaks a rule."""

    def noted(outcome: Outcome[Story]) -> None:
        LEDGER.saw(holds(outcome).seen)

    report = Report(scenario, noted)
    for seed in range(SEEDS):
        report.add(scenario.run(None, Pct(seed)))
    LEDGER.ran("T3", "PCT", report)
    report.check()
