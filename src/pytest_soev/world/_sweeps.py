"""Many schedules of one scenario: crash sweeps, exhaustive and random orders, and their report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Generic, TypeVar

from pytest_soev.world._errors import WorldError
from pytest_soev.world._plans import Fault, FaultKind, SchedulePlan, shrink
from pytest_soev.world._simulation import Outcome, Setting, Simulation
from pytest_soev.world._strategies import Exhaustion, Pct, Replay, Steady, Strategy

T = TypeVar("T")


@dataclass(frozen=True)
class Scenario(Generic[T]):
    """What happens in each schedule, whose order and faults differ.

    Args:
        name: Its name in reports.
        play: Runs it in a fresh simulation, and returns what a check is to look at.
        setting: What its schedules have in common.
    """

    name: str
    play: Callable[[Simulation], Coroutine[Any, Any, T]]
    setting: Setting = field(default_factory=Setting)

    def run(self, plan: SchedulePlan | None = None, strategy: Strategy | None = None) -> Outcome[T]:
        """Run one schedule.

        Args:
            plan: Its faults and answers. None for a calm run.
            strategy: What answers at the choices instead of the plan.
        """
        return Simulation(plan, strategy, setting=self.setting).run(self.play)

    def again(self, token: str) -> Outcome[T]:
        """Run the schedule of a token.

        Args:
            token: What a failed schedule printed.
        """
        return self.run(SchedulePlan.parse(token))


class ScheduleFailedError(WorldError):
    """A schedule of a scenario failed.

    Args:
        name: The scenario.
        token: The smallest plan that was found to fail.
        failed: How many schedules failed.
        runs: How many were run.
        problem: What went wrong.
    """

    def __init__(self, name: str, token: str, failed: int, runs: int, problem: str) -> None:
        super().__init__(name, token, failed, runs, problem)
        self.name, self.token, self.failed, self.runs = name, token, failed, runs
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"{self.failed} of {self.runs} schedules of {self.name!r} failed. Run the smallest "
            f"again: scenario.again({self.token!r})\n{self.problem}"
        )


Check = Callable[[Outcome[T]], None]


@dataclass
class Report(Generic[T]):
    """What many schedules of one scenario came to.

    Args:
        scenario: The scenario.
        expect: Raises when an outcome is wrong.
        runs: How many schedules were run.
        exhausted: Whether no schedule of those asked for was left out.
        steps: How many handles ran in all.
        points: How often each named point was passed, without the process.
        failures: The plans that failed, with what went wrong.
    """

    scenario: Scenario[T]
    expect: Check[T]
    runs: int = 0
    exhausted: bool = False
    steps: int = 0
    points: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[SchedulePlan, BaseException]] = field(default_factory=list)

    def add(self, outcome: Outcome[T]) -> None:
        """Count a schedule, and check what became of it.

        Args:
            outcome: What became of it.
        """
        self.runs += 1
        self.steps += outcome.steps
        self.points.update(point.partition(":")[2] for point in outcome.points)
        wrong = self._wrong(outcome)
        if wrong is not None:
            self.failures.append((outcome.plan, wrong))

    def _wrong(self, outcome: Outcome[T]) -> BaseException | None:
        try:
            self.expect(outcome)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the schedule's failure
            return error
        return None

    def check(self) -> None:
        """Raise when a schedule failed, with the smallest plan that fails in the same way.

        Raises:
            ScheduleFailedError: One failed.
        """
        if not self.failures:
            return
        plan, error = min(self.failures, key=_size)

        def fails(smaller: SchedulePlan) -> bool:
            return type(self._wrong(self.scenario.run(smaller))) is type(error)

        small = shrink(plan, fails) if fails(plan) else plan
        problem = f"{type(error).__name__}: {error}"
        raise ScheduleFailedError(
            self.scenario.name, small.token, len(self.failures), self.runs, problem
        ) from error


def _size(failure: tuple[SchedulePlan, BaseException]) -> tuple[int, int]:
    plan, _ = failure
    return len(plan.faults), sum(answer != 0 for answer in plan.answers)


def ends_well(outcome: Outcome[Any]) -> None:
    """Raise what the scenario raised."""
    outcome.result()


def same_as(calm: Outcome[T]) -> Check[T]:
    """Make a check that a scenario returns what it returned in a calm run.

    Args:
        calm: The calm run.
    """
    expected = calm.result()

    def check(outcome: Outcome[T]) -> None:
        value = outcome.result()
        if value != expected:
            raise AssertionError(
                f"The outcome differs from a calm run:\n{_differs(value, expected)}"
            )

    return check


def _differs(value: object, expected: object) -> str:
    if isinstance(value, tuple) and isinstance(expected, tuple):
        pairs = zip_longest(value, expected)
        first = next(((a, b) for a, b in pairs if a != b), (value, expected))
        return f"here {first[0]!r}\ncalm {first[1]!r}"
    return f"here {value!r}\ncalm {expected!r}"


def sweep(
    scenario: Scenario[T],
    *,
    depth: int = 1,
    kinds: Sequence[FaultKind] = ("crash",),
    seconds: float = 45.0,
    expect: Check[T] | None = None,
) -> Report[T]:
    """Strike at every named point of a scenario; at depth 2 also at every point after that.

    Args:
        scenario: The scenario. It must survive: restart what died, thaw what froze.
        depth: How many blows a schedule has.
        kinds: What strikes: `crash`, `freeze`, or both.
        seconds: How long a freeze lasts.
        expect: Checks each outcome. By default it is that of a calm run.
    """
    calm = scenario.run()
    report = Report(scenario, expect or same_as(calm), exhausted=True)
    level = [calm]
    for _ in range(depth):
        following = []
        for outcome in level:
            for plan in _one_more(outcome, kinds, seconds):
                following.append(scenario.run(plan))
                report.add(following[-1])
        level = following
    return report


def _one_more(
    outcome: Outcome[Any], kinds: Sequence[FaultKind], seconds: float
) -> Iterator[SchedulePlan]:
    """Yield the plans that have one blow more, later than the others."""
    plan = outcome.plan
    first = max((fault.at for fault in plan.faults), default=0)
    for at in range(first + 1, len(outcome.points) + 1):
        for kind in kinds:
            yield replace(plan, faults=(*plan.faults, Fault(kind, at, seconds=seconds)), answers=())


def fail_each_call(
    scenario: Scenario[T],
    kinds: Sequence[FaultKind] = ("refuse", "lost", "late", "disconnect", "slow"),
    *,
    lasting: bool = False,
    expect: Check[T] | None = None,
) -> Report[T]:
    """Let each store call of a scenario fail in each way.

    Args:
        scenario: The scenario.
        kinds: The ways.
        lasting: Whether all calls after it fail too. Then no outcome is as in a calm run.
        expect: Checks each outcome. By default it is that of a calm run.
    """
    calm = scenario.run()
    report = Report(scenario, expect or same_as(calm), exhausted=True)
    for at in range(1, len(calm.calls) + 1):
        for kind in kinds:
            fault = Fault(kind, at, lasting=lasting)
            report.add(scenario.run(SchedulePlan(faults=(fault,), mode=calm.plan.mode)))
    return report


def exhaust(
    scenario: Scenario[T],
    *,
    deviations: int = 2,
    cap: int = 40_000,
    faults: tuple[Fault, ...] = (),
    expect: Check[T] = ends_well,
) -> Report[T]:
    """Run every order of a scenario that differs from a usual one in at most some choices.

    There are two usual orders: that of asyncio, in which processes take turns, and the one in which
    a process goes on for as long as it can.

    Args:
        scenario: The scenario.
        deviations: The most choices that are made otherwise.
        cap: The most schedules. The report says `exhausted` when that was enough.
        faults: What goes wrong in each of them.
        expect: Checks each outcome. By default it must not raise.
    """
    report = Report(scenario, expect, exhausted=True)
    for strategy in (Replay, Steady):
        orders = Exhaustion(deviations)
        while not orders.exhausted and report.runs < cap:
            plan = SchedulePlan((), faults, scenario.setting.mode)
            outcome = scenario.run(plan, strategy(orders.next_answers()))
            orders.learn(outcome.widths)
            report.add(outcome)
        report.exhausted = report.exhausted and orders.exhausted
    return report


def shuffle(
    scenario: Scenario[T],
    seeds: Iterable[int],
    *,
    strategy: Callable[[int], Strategy] = Pct,
    faults: Callable[[int], tuple[Fault, ...]] = lambda seed: (),
    expect: Check[T] = ends_well,
) -> Report[T]:
    """Run random orders of a scenario.

    Args:
        scenario: The scenario.
        seeds: One for each schedule.
        strategy: Makes the strategy of a seed.
        faults: Makes what goes wrong with a seed.
        expect: Checks each outcome. By default it must not raise.
    """
    report = Report(scenario, expect)
    mode = scenario.setting.mode
    for seed in seeds:
        report.add(scenario.run(SchedulePlan((), faults(seed), mode), strategy(seed)))
    return report
