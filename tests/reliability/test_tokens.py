"""Schedules that once failed, run first on each change: each by the token that it printed."""

import pytest

from pytest_soev.world import Scenario
from tests.reliability.graphs import GRAPHS
from tests.reliability.rules import Story, as_calm, holds
from tests.reliability.test_liveness import OUTAGE

ONCE_FAILED = {
    "a lease whose taking was unknown for longer than it lasts": (
        "effect",
        "strict:+freeze@any.7~45+disconnect@any.5",
    ),
    "a deletion that landed after the thread was opened again": (
        "delete, then open again",
        "strict:+freeze@any.73~45+late@any.13",
    ),
    "an outage in which a deadline passed while an append was repeated": (
        "outage of the store",
        "strict:+lost@any.7*",
    ),
    "a first append that was answered after the thread was deleted": (
        "delete, then open again",
        "strict:+crash@any.27~45+late@any.4",
    ),
}


@pytest.mark.parametrize(("name", "token"), ONCE_FAILED.values(), ids=list(ONCE_FAILED))
def test_what_once_failed_changes_nothing(name: str, token: str) -> None:
    """The schedule of a token leaves the log and the acts of a calm run."""
    if name == OUTAGE.name:
        holds(OUTAGE.again(token))
        return
    scenario: Scenario[Story] = next(each for each in GRAPHS if each.name == name)
    as_calm(scenario.run())(scenario.again(token))
