"""Each of the nine races has one winner in every order, and a loser with a named error."""

import pytest

from pytest_soev.world import Outcome, Report, Scenario, exhaust
from tests.reliability.races import RACES
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import Story, holds

DEVIATIONS = 2 if SOAK == 1 else 3
CAP = 40_000 // len(RACES) * (1 if SOAK == 1 else 20)

each_race = pytest.mark.parametrize("scenario", RACES, ids=lambda scenario: scenario.name)


def noted(outcome: Outcome[Story]) -> None:
    """Hold a race to the rules, and note what came up in it."""
    story = holds(outcome)
    LEDGER.saw(story.seen)
    LEDGER.saw(["recovery called"] * (story.recoveries > 0))


def explored(scenario: Scenario[Story], deviations: int) -> Report[Story]:
    """Run every order to some deviations, and raise when one of them went wrong."""
    report = exhaust(scenario, deviations=deviations, cap=CAP, expect=noted)
    LEDGER.ran("T2", f"every order to {deviations} deviations", report)
    report.check()
    return report


@each_race
def test_every_order_has_one_winner(scenario: Scenario[Story]) -> None:
    """No order of two callers that deviates twice breaks a rule, and none is left out."""
    assert explored(scenario, 2).exhausted


@pytest.mark.soak
@each_race
def test_every_order_to_three_deviations_has_one_winner(scenario: Scenario[Story]) -> None:
    """One deviation more breaks nothing either, as far as the cap lets it go."""
    explored(scenario, 3)
