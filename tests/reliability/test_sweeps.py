"""A crash or a freeze at any point, and a store that fails at any call, change nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from pytest_soev.world import (
    Fault,
    FaultKind,
    Outcome,
    Report,
    Scenario,
    SchedulePlan,
    fail_each_call,
    sweep,
)
from tests.reliability.graphs import EFFECT, EFFECTS, GRAPHS
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import Story, as_calm

PARTS = 4
ONCE: Sequence[FaultKind] = ("refuse", "lost", "late", "disconnect", "slow", "busy", "full")

each_graph = pytest.mark.parametrize("scenario", GRAPHS, ids=lambda scenario: scenario.name)
each_effect = pytest.mark.parametrize("scenario", EFFECTS, ids=lambda scenario: scenario.name)


def done(part: str, how: str, report: Report[Story]) -> None:
    """Note a report, and raise when a schedule of it failed."""
    LEDGER.ran(part, how, report)
    report.check()


def noting(scenario: Scenario[Story]) -> tuple[Report[Story], list[Story]]:
    """Return a report that holds each schedule to the calm run, and keeps its story."""
    stories: list[Story] = []
    check = as_calm(scenario.run())

    def expect(outcome: Outcome[Story]) -> None:
        check(outcome)
        story = outcome.result()
        stories.append(story)
        LEDGER.saw(["recovery called"] * (story.recoveries > 0))
        LEDGER.saw(["recovery called twice"] * (story.recoveries > 1))
        LEDGER.saw(["fresh input refused beside an open intent"] * story.refusals)

    return Report(scenario, expect, exhausted=True), stories


@each_graph
def test_a_crash_or_a_freeze_at_any_point_changes_nothing(scenario: Scenario[Story]) -> None:
    """Struck at any named point, a graph leaves the log and the acts of a calm run."""
    report, _ = noting(scenario)
    kinds: Sequence[FaultKind] = ("crash", "freeze")
    swept = sweep(scenario, kinds=kinds, expect=report.expect)
    done("T1 depth 1", "crash and freeze at every point", swept)
    assert swept.runs == 2 * len(scenario.run().points)


def struck_again(scenario: Scenario[Story], firsts: Sequence[SchedulePlan]) -> list[SchedulePlan]:
    """Return each plan with a crash more, at each point that comes after its last one."""
    return [
        replace(first, faults=(*first.faults, Fault("crash", at)), answers=())
        for first in firsts
        for at in range(first.faults[-1].at + 1, len(scenario.run(first).points) + 1)
    ]


def crashes(scenario: Scenario[Story], part: int) -> list[SchedulePlan]:
    """Return one crash at each point of a part of the points, the parts taking turns."""
    points = range(1 + part, len(scenario.run().points) + 1, PARTS)
    return [SchedulePlan(faults=(Fault("crash", at),)) for at in points]


def in_parts() -> Iterator[object]:
    """Yield each graph with each part of its points: of most, a usual run takes the first alone."""
    for scenario in GRAPHS:
        for part in range(PARTS):
            marks = [pytest.mark.soak] if part and scenario is not EFFECT else []
            yield pytest.param(scenario, part, marks=marks, id=f"{scenario.name}-{part}")


@pytest.mark.parametrize(("scenario", "part"), list(in_parts()))
def test_a_crash_after_a_crash_changes_nothing(scenario: Scenario[Story], part: int) -> None:
    """Killed at a point, and again at any point of the way back, a graph leaves the calm log."""
    report, _ = noting(scenario)
    for plan in struck_again(scenario, crashes(scenario, part)):
        report.add(scenario.run(plan))
    done("T1 depth 2", "two crashes", report)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("scenario", EFFECTS[:3], ids=lambda scenario: scenario.name)
def test_three_crashes_change_nothing(scenario: Scenario[Story], part: int) -> None:
    """No three crashes make a difference to an effect: of every eighth pair each third is tried."""
    report, stories = noting(scenario)
    for plan in struck_again(scenario, struck_again(scenario, crashes(scenario, part))[::8]):
        report.add(scenario.run(plan))
    done("T1 depth 3", "three crashes, every eighth pair and all that follow", report)
    assert any(story.recoveries > 1 for story in stories)


@each_graph
def test_a_store_call_that_fails_changes_nothing(scenario: Scenario[Story]) -> None:
    """Each store call may fail once, in each way, and the log is that of a calm run."""
    report, _ = noting(scenario)
    failed = fail_each_call(scenario, ONCE if SOAK > 1 else ONCE[:5], expect=report.expect)
    done("T8", "each store call fails once, in each way", failed)


@each_effect
def test_a_late_write_and_a_crash_change_nothing(scenario: Scenario[Story]) -> None:
    """Rows that land after the crash of their process are recorded once, or refused."""
    report, _ = noting(scenario)
    for call in range(1, 6):
        for point in range(2, 60, 9 if SOAK == 1 else 2):
            faults = (Fault("late", call, "append", seconds=20), Fault("crash", point))
            report.add(scenario.run(SchedulePlan(faults=faults)))
    done("T8", "a late append, and a crash", report)
