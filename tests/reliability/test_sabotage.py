"""The oracle is tested too: each planted bug is caught by the scenario that is named for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import pytest

from pytest_soev.world import (
    Exhaustion,
    Fault,
    FaultKind,
    Outcome,
    Replay,
    Scenario,
    SchedulePlan,
    Steady,
)
from tests.reliability import plants
from tests.reliability.graphs import EFFECT, FAN, GRAPHS
from tests.reliability.plants import Plant
from tests.reliability.races import RACES
from tests.reliability.report import LEDGER
from tests.reliability.rules import Story, as_calm, holds
from tests.reliability.traps import (
    ABA,
    CHANGED,
    CLOSED_STEP,
    FORK,
    HAND_BACK,
    LONG,
    NAN,
    NEXT,
    OVERTAKEN,
    SECRET,
    STATUS,
    STOPPED,
    SUBCLASS,
    TAKEOVER,
    WIRE,
)

MOST = 500
DELETED = GRAPHS[-1]
Outcomes = Iterator[Outcome[Story]]


@dataclass(frozen=True)
class Hunt:
    """A scenario with the schedules of it that are to catch something.

    Args:
        scenario: The scenario.
        how: Runs schedules of it.
        calm: Whether each has to leave the log of a calm run.
    """

    scenario: Scenario[Story]
    how: Callable[[Scenario[Story]], Outcomes]
    calm: bool = False

    def prepared(self) -> Callable[[], int | None]:
        """Make the calm run, and return what hunts from then on.

        Returns:
            A function that returns the number of the schedule that caught something, or None.
        """
        check = as_calm(self.scenario.run()) if self.calm else holds

        def hunted() -> int | None:
            for number, outcome in enumerate(islice(self.how(self.scenario), MOST), 1):
                try:
                    check(outcome)
                except Exception:  # noqa: BLE001  # whatever it is, it was caught
                    return number
            return None

        return hunted


def orders(scenario: Scenario[Story]) -> Outcomes:
    """Run every order to two deviations, from both usual orders."""
    yield from turns(scenario)
    yield from _explored(scenario, Steady)


def turns(scenario: Scenario[Story]) -> Outcomes:
    """Run every order to two deviations in which processes take turns."""
    yield from _explored(scenario, Replay)


def _explored(scenario: Scenario[Story], strategy: type[Replay] | type[Steady]) -> Outcomes:
    explored = Exhaustion(2)
    while not explored.exhausted:
        outcome = scenario.run(SchedulePlan(), strategy(explored.next_answers()))
        explored.learn(outcome.widths)
        yield outcome


def blows(scenario: Scenario[Story]) -> Outcomes:
    """Crash and freeze at every point."""
    kinds: tuple[FaultKind, ...] = ("crash", "freeze")
    for at in range(1, len(scenario.run().points) + 1):
        for kind in kinds:
            yield scenario.run(SchedulePlan(faults=(Fault(kind, at, seconds=45),)))


def failures(scenario: Scenario[Story]) -> Outcomes:
    """Let each store call fail in each way of which the caller cannot know the outcome."""
    kinds: tuple[FaultKind, ...] = ("lost", "late", "disconnect")
    for at in range(1, len(scenario.run().calls) + 1):
        for kind in kinds:
            yield scenario.run(SchedulePlan(faults=(Fault(kind, at),)))


def takeovers(scenario: Scenario[Story]) -> Outcomes:
    """Stop a process where nothing but its lease keeps it from going on."""
    for point in (
        "lease.acquired",
        "effect.intending",
        "run.append.sending",
        "effect.intended",
        "effect.performing",
        "effect.performed",
    ):
        yield scenario.run(SchedulePlan(faults=(Fault("freeze", 1, point, seconds=0),)))


def named(name: str) -> Scenario[Story]:
    """Return a race."""
    return next(each for each in RACES if each.name == name)


TWO_RUNS = Hunt(named("resume and resume"), orders)
CANCEL = Hunt(named("resume and cancel"), orders)
RESPONSES = Hunt(named("respond and respond"), orders)
STEAL = Hunt(named("renew and steal"), orders)
FOLLOW = Hunt(named("follow and finish"), orders)
DELETE = Hunt(named("resume and delete"), orders)
REOPENED = Hunt(DELETED, blows, calm=True)
CRASHES = Hunt(EFFECT, blows, calm=True)
UNKNOWN = Hunt(EFFECT, failures, calm=True)
FROZEN = Hunt(TAKEOVER, takeovers)
BRANCHES = Hunt(FAN, orders, calm=True)

PLANTS: tuple[tuple[Plant, Hunt], ...] = (
    (plants.no_epoch_check, Hunt(ABA, orders)),
    (plants.epoch_stands_still, Hunt(ABA, orders)),
    (plants.renew_without_epoch, Hunt(ABA, orders)),
    (plants.release_without_epoch, Hunt(ABA, orders)),
    (plants.no_position_check, CANCEL),
    (plants.check_then_act, RESPONSES),
    (plants.no_fence, Hunt(OVERTAKEN, takeovers)),
    (plants.renew_makes_a_row, STEAL),
    (plants.steal_by_another_clock, TWO_RUNS),
    (plants.one_incarnation, REOPENED),
    (plants.delete_leaves_the_head, DELETE),
    (plants.fork_mints_ids, Hunt(FORK, turns)),
    (plants.fork_drops_intents, Hunt(FORK, turns)),
    (plants.new_batch_per_retry, UNKNOWN),
    (plants.read_back_in_place_of_retry, UNKNOWN),
    (plants.appends_are_cut, Hunt(STOPPED, turns)),
    (plants.cancel_is_not_tried_again, CANCEL),
    (plants.submit_is_not_checked_again, RESPONSES),
    (plants.perform_before_the_intent, CRASHES),
    (plants.perform_in_recovery, CRASHES),
    (plants.result_dropped_on_stop, Hunt(STOPPED, turns)),
    (plants.result_opens_again, CRASHES),
    (plants.recovery_does_not_wait, Hunt(WIRE, orders)),
    (plants.no_deadline, FROZEN),
    (plants.no_renewal, Hunt(LONG, orders)),
    (plants.stop_is_swallowed, Hunt(CLOSED_STEP, orders)),
    (plants.run_of_any_turn, Hunt(NEXT, orders)),
    (plants.ended_turn_is_planned, Hunt(CHANGED, orders)),
    (plants.seq_counts_failures, Hunt(HAND_BACK, orders)),
    (plants.join_by_completion, BRANCHES),
    (plants.status_from_two_reads, Hunt(STATUS, turns)),
    (plants.follow_ends_early, FOLLOW),
    (plants.nan_as_null, Hunt(NAN, orders)),
    (plants.subclass_is_cut, Hunt(SUBCLASS, orders)),
    (plants.secret_in_failure, Hunt(SECRET, orders)),
    (plants.ended_twice, CRASHES),
)
HUNTS = tuple({(hunt.scenario.name, hunt.how): hunt for _, hunt in PLANTS}.values())


@pytest.mark.parametrize(("plant", "hunt"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_a_planted_bug_is_caught(plant: Plant, hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario that is named for a bug catches it within 500 schedules."""
    hunted = hunt.prepared()
    plant(monkeypatch)
    caught = hunted()
    bug = " ".join((plant.__doc__ or "").split()).rstrip(".")
    LEDGER.planted(bug, hunt.scenario.name, caught)
    assert caught is not None


@pytest.mark.parametrize(
    "hunt", HUNTS, ids=lambda hunt: f"{hunt.scenario.name}, {hunt.how.__name__}"
)
def test_nothing_is_caught_where_nothing_is_planted(hunt: Hunt) -> None:
    """The same schedules of today's runtime break no rule."""
    assert hunt.prepared()() is None


def test_there_are_enough_planted_bugs() -> None:
    """The list holds at least two dozen bugs, each of them once."""
    assert len({plant for plant, _ in PLANTS}) == len(PLANTS) >= 24
