"""Each race has one winner in every order, and losers with a named error."""

import pytest

from pytest_soev.world import Outcome, Scenario, exhaust
from tests.reliability.races import RACES
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import Story, holds
from tests.reliability.trios import TRIOS

DEVIATIONS = 3 if SOAK == 1 else 4
CAP = 40_000


def noted(outcome: Outcome[Story]) -> None:
    """Hold a race to the rules, and note what came up in it."""
    story = holds(outcome)
    LEDGER.saw(story.seen)
    LEDGER.saw(["recovery called"] * (story.recoveries > 0))


@pytest.mark.parametrize("scenario", [*RACES, *TRIOS], ids=lambda scenario: scenario.name)
def test_every_order_has_one_winner(scenario: Scenario[Story]) -> None:
    """No order that deviates three times, in a long run four, breaks a rule; none is left out."""
    report = exhaust(scenario, deviations=DEVIATIONS, cap=CAP, expect=noted)
    LEDGER.ran("T2", f"every order to {DEVIATIONS} deviations", report)
    report.check()
    assert report.exhausted
