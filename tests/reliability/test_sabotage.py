"""The oracle is tested too: each planted bug is caught by the scenario that is named for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import pytest

from pytest_soev.world import (
    BrokenRuleError,
    Exhaustion,
    Fault,
    FaultKind,
    Outcome,
    Replay,
    Scenario,
    SchedulePlan,
    Steady,
    UndurableActError,
)
from tests.reliability.graphs import EFFECT, FAN
from tests.reliability.plants import Plant, effects, runs, stores
from tests.reliability.races import RACES
from tests.reliability.report import LEDGER
from tests.reliability.rules import Story, as_calm, holds
from tests.reliability.traps import (
    ABA,
    CHANGED,
    CLOSED_STEP,
    DELETED,
    FORK,
    HAND_BACK,
    LONG,
    NAN,
    NEXT,
    OVERTAKEN,
    RENEWED,
    REOPENED,
    SECRET,
    STATUS,
    STOPPED,
    STOPPED_AFTER,
    STOPPED_APPEND,
    SUBCLASS,
    SWALLOWED,
    TAKEOVER,
    WIRE,
)

MOST = 500
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

    def prepared(self) -> Callable[[], Iterator[list[str]]]:
        """Make the calm run, and return what hunts from then on.

        Returns:
            A function that yields what is wrong with each schedule, in words that begin with the
            rule that does not hold.
        """
        check = as_calm(self.scenario.run()) if self.calm else holds

        def hunted() -> Iterator[list[str]]:
            for outcome in islice(self.how(self.scenario), MOST):
                yield wrongs(outcome, check)

        return hunted


def wrongs(outcome: Outcome[Story], check: Callable[[Outcome[Story]], object]) -> list[str]:
    """Return what is wrong with a schedule, nothing when all is well."""
    try:
        check(outcome)
    except BrokenRuleError as error:
        return [f"{error.rule}: {error.problem}"]
    except UndurableActError as error:
        return [f"I6: {error}"]
    except Exception as error:  # noqa: BLE001  # whatever else went wrong is told too
        return [str(error), *(outcome.value.broken if outcome.value is not None else ())]
    return []


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


def late_appends(scenario: Scenario[Story]) -> Outcomes:
    """Lose the answer of one append after another: its rows land five seconds later."""
    for at in range(2, 5):
        yield scenario.run(SchedulePlan(faults=(Fault("late", at, "append", seconds=5),)))


@dataclass(frozen=True)
class Case:
    """A planted bug, and the hunt that is to catch it.

    Args:
        plant: The bug.
        hunt: The hunt.
        sign: How the words begin that count as a catch. By default the rule that the bug breaks.
    """

    plant: Plant
    hunt: Hunt
    sign: str = ""

    @property
    def caught_as(self) -> str:
        """How the words begin that count as a catch."""
        return self.sign or f"{self.plant.rule}:"

    def catch(self, found: Iterator[list[str]]) -> int | None:
        """Return the number of the schedule that caught the bug by its rule, or None."""
        for number, words in enumerate(found, 1):
            if any(each.startswith(self.caught_as) for each in words):
                return number
        return None


CANCEL = Hunt(named("resume and cancel"), orders)
RESPONSES = Hunt(named("respond and respond"), orders)
CRASHES = Hunt(EFFECT, blows, calm=True)
UNKNOWN = Hunt(EFFECT, failures, calm=True)
LEASES, RENEWALS = Hunt(ABA, orders), Hunt(RENEWED, orders)
FORKED = Hunt(FORK, turns)

CASES: tuple[Case, ...] = (
    Case(stores.no_epoch_check, LEASES),
    Case(stores.epoch_stands_still, LEASES),
    Case(stores.release_without_epoch, LEASES),
    Case(stores.renew_without_epoch, RENEWALS),
    Case(stores.renew_makes_a_row, Hunt(named("renew and steal"), orders)),
    Case(stores.no_position_check, CANCEL),
    Case(stores.check_then_act, RESPONSES),
    Case(stores.no_fence, Hunt(OVERTAKEN, takeovers)),
    # Whoever is robbed finds that its lease is gone, and no race allows that.
    Case(
        stores.steal_by_another_clock,
        Hunt(named("resume and resume"), orders),
        "a loser got LeaseLostError",
    ),
    Case(stores.one_incarnation, Hunt(REOPENED, turns)),
    Case(stores.lives_are_not_compared, Hunt(REOPENED, turns)),
    Case(stores.delete_leaves_the_head, Hunt(DELETED, turns)),
    Case(stores.fork_mints_ids, FORKED),
    Case(stores.fork_drops_intents, FORKED),
    Case(effects.fork_performs, FORKED),
    # An append that was made twice shows in the log alone.
    Case(effects.new_batch_per_retry, UNKNOWN, "I15:"),
    Case(effects.read_back_in_place_of_retry, UNKNOWN, "I15:"),
    Case(effects.appends_are_cut, Hunt(STOPPED_APPEND, late_appends)),
    Case(effects.cancel_is_not_tried_again, CANCEL, "a loser got PositionConflictError"),
    Case(effects.submit_is_not_checked_again, RESPONSES, "not one loser"),
    Case(effects.perform_before_the_intent, CRASHES),
    Case(effects.perform_in_recovery, CRASHES),
    Case(effects.result_dropped_on_stop, Hunt(STOPPED, turns)),
    Case(effects.result_dropped_after_the_act, Hunt(STOPPED_AFTER, turns)),
    Case(effects.result_opens_again, CRASHES),
    Case(effects.recovery_does_not_wait, Hunt(WIRE, orders)),
    Case(effects.no_deadline, Hunt(TAKEOVER, takeovers)),
    Case(effects.no_renewal, Hunt(LONG, orders)),
    Case(runs.stop_is_swallowed, Hunt(CLOSED_STEP, orders)),
    Case(runs.uncancel_is_missing, Hunt(SWALLOWED, turns)),
    Case(runs.run_of_any_turn, Hunt(NEXT, orders)),
    Case(runs.ended_turn_is_planned, Hunt(CHANGED, orders)),
    Case(runs.seq_counts_failures, Hunt(HAND_BACK, orders)),
    # What a join is shown stands in what its step says, and so in the log.
    Case(runs.join_by_completion, Hunt(FAN, orders, calm=True), "I15:"),
    Case(runs.status_from_two_reads, Hunt(STATUS, turns)),
    Case(runs.follow_ends_early, Hunt(named("follow and finish"), orders), "follow gave"),
    Case(runs.nan_as_null, Hunt(NAN, orders)),
    # Both are read off what a step that returns such an event leaves: a Failure, or not.
    Case(runs.subclass_is_cut, Hunt(SUBCLASS, orders), "D3:"),
    Case(runs.secret_in_failure, Hunt(SECRET, orders)),
    Case(runs.ended_twice, CRASHES),
)
HUNTS = tuple({(case.hunt.scenario.name, case.hunt.how): case.hunt for case in CASES}.values())

LISTED: dict[str, Plant] = {
    "no epoch check": stores.no_epoch_check,
    "no position check": stores.no_position_check,
    "check-then-act append": stores.check_then_act,
    "no fence at all": stores.no_fence,
    "epoch reset on delete": stores.one_incarnation,
    "renew without epoch": stores.renew_without_epoch,
    "renew re-creates a row": stores.renew_makes_a_row,
    "release without epoch": stores.release_without_epoch,
    "steal by a local clock": stores.steal_by_another_clock,
    "new batch id per retry": effects.new_batch_per_retry,
    "read-back instead of retry": effects.read_back_in_place_of_retry,
    "perform before the intent's ack": effects.perform_before_the_intent,
    "perform in recovery without asking": effects.perform_in_recovery,
    "result dropped when cancel lands after perform": effects.result_dropped_after_the_act,
    "append not shielded": effects.appends_are_cut,
    "swallow cancel": runs.stop_is_swallowed,
    "`uncancel` missing": runs.uncancel_is_missing,
    "status from two reads": runs.status_from_two_reads,
    "follow ends before the last read": runs.follow_ends_early,
    "join by completion order": runs.join_by_completion,
    "fork re-mints intent ids": stores.fork_mints_ids,
    "fork performs": effects.fork_performs,
    "delete leaves the lease's row": stores.delete_leaves_the_head,
    "NaN as null": runs.nan_as_null,
    "subclass field cut": runs.subclass_is_cut,
    "secret in a Failure's message": runs.secret_in_failure,
    "ttl not enforced at the own deadline": effects.no_deadline,
    "seq counts Failures": runs.seq_counts_failures,
    "a run not bound to its turn": runs.run_of_any_turn,
    "an ended turn judged by its graph": runs.ended_turn_is_planned,
}
"""The bugs that the test plan asks for, by its words. The others were found worth the while."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.plant.name)
def test_a_planted_bug_is_caught(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario that is named for a bug catches it by its rule within 500 schedules."""
    hunted = case.hunt.prepared()
    case.plant.plant(monkeypatch)
    caught = case.catch(hunted())
    killer = f"{case.hunt.scenario.name}, read as `{case.caught_as.rstrip(':')}`"
    LEDGER.planted(f"{case.plant.rule}: {case.plant.bug}", killer, caught)
    assert caught is not None


@pytest.mark.parametrize(
    "hunt", HUNTS, ids=lambda hunt: f"{hunt.scenario.name}, {hunt.how.__name__}"
)
def test_nothing_is_caught_where_nothing_is_planted(hunt: Hunt) -> None:
    """The same schedules of today's runtime break no rule."""
    assert not any(hunt.prepared()())


def test_there_are_enough_planted_bugs() -> None:
    """The list holds each bug once, and each that the test plan asks for."""
    planted = [case.plant for case in CASES]
    assert len(set(planted)) == len(planted) >= 24
    assert set(LISTED.values()) <= set(planted)
    assert len(set(LISTED.values())) == len(LISTED)


def test_a_catch_by_another_rule_does_not_count() -> None:
    """What a schedule finds counts only when it is read as the rule that the bug breaks."""
    case = Case(Plant("I3", "name", "bug", lambda patch: None), CANCEL)
    assert case.catch(iter([["I4: x", "a loser"], [], ["nobody", "I3: y"]])) == 3
    assert case.catch(iter([["I4: x"], ["I33: x"]])) is None
