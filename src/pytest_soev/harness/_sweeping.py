"""Every crash of a scenario, in one report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pytest_soev.harness._errors import HarnessError
from pytest_soev.harness._harness import Harness
from pytest_soev.harness._process import Parts
from pytest_soev.harness._swept import SweptHarness
from pytest_soev.world import Fault, Outcome, Report, Scenario, SchedulePlan, Simulation, sweep
from soev.domain import ModelOutput

Told = Callable[[Harness], Awaitable[object]]
SweptFault = Literal["crash", "lost-ack"]

_WORDS: Final = {
    "effect.intending": "{effect} about to be intended",
    "effect.intended": "{effect} intended, not performed",
    "effect.performing": "{effect} about to be performed",
    "world.sending": "{effect} about to be performed",
    "world.changed": "{effect} performed, result not recorded",
    "world.answered": "{effect} performed, result not recorded",
    "effect.performed": "{effect} performed, result not recorded",
    "effect.recorded": "result of {effect} recorded",
    "effect.recovering": "{effect} about to be recovered",
    "effect.recovered": "{effect} recovered, result not recorded",
    "model.request.sending": "model about to be asked",
    "model.request.sent": "model asked, not answered",
    "model.reply.read": "model answered, answer not recorded",
    "step.calling": "step about to run",
    "run.append.sending": "append about to be sent",
}


class SweepFailedError(HarnessError):
    """A scenario comes to something else when its process crashes.

    Args:
        failed: How many schedules failed.
        runs: How many were run.
        plan: The first that failed, in words.
        problem: What was wrong after it.
        token: The plan for `--soev-schedule`.
    """

    def __init__(self, failed: int, runs: int, plan: str, problem: str, token: str) -> None:
        super().__init__(failed, runs, plan, problem, token)
        self.failed, self.runs, self.plan = failed, runs, plan
        self.problem, self.token = problem, token

    def __str__(self) -> str:
        return (
            f"{self.failed} of {self.runs} schedules failed. {self.plan}; then: {self.problem}\n"
            f"Run this one alone: --soev-schedule={self.token}"
        )


@dataclass(frozen=True)
class Story:
    """What a scenario came to.

    Args:
        answers: For each thread its state and the texts of its outputs.
        acts: How often acts of each kind were done.
        repeated: The kinds of intents that were acted on more than once.
        calls: The thread, stream and request hash of each recorded model call.
        rebuilt: Whether today's code rebuilds each of them as it was sent.
    """

    answers: tuple[tuple[str, str, tuple[str, ...]], ...]
    acts: tuple[tuple[str, int], ...]
    repeated: tuple[str, ...]
    calls: tuple[tuple[str, str, str], ...]
    rebuilt: bool


@dataclass(frozen=True)
class CrashReport:
    """What a sweep found.

    Args:
        points: How many points a calm run passes.
        report: The schedules that were run.
        words: A plan in words.
    """

    points: int
    report: Report[Story]
    words: Callable[[SchedulePlan], str]

    @property
    def runs(self) -> int:
        """How many schedules were run, beside the calm one."""
        return self.report.runs

    def check(self) -> None:
        """Raise when a schedule failed, with the first of them in words.

        Raises:
            SweepFailedError: One failed.
        """
        __tracebackhide__ = True
        if self.report.failures:
            plan, error = self.report.failures[0]
            failed = len(self.report.failures)
            told, token = self.words(plan), SchedulePlan(faults=plan.faults).token
            raise SweepFailedError(failed, self.runs, told, str(error), token) from error


def swept(
    parts: Callable[[], Parts], told: Told, faults: Sequence[str], schedule: str | None = None
) -> CrashReport:
    """Run a scenario once for each crash and each lost answer.

    Args:
        parts: Makes what the harness of one schedule is made of.
        told: The scenario.
        faults: What goes wrong: `crash`, `lost-ack`, or both.
        schedule: The token of the one schedule to run, None for all.

    Raises:
        ValueError: There is no such fault, or the token is none.
    """
    unknown = [each for each in faults if each not in get_args(SweptFault)]
    if unknown:
        raise ValueError(
            f"A sweep has no fault {unknown[0]!r}. Use `crash` and `lost-ack`; "
            "`pytest_soev.world` has frozen processes."
        )

    async def play(simulation: Simulation) -> Story:
        soev = SweptHarness(parts(), simulation)
        await told(soev)
        soev.model.check()
        soev.crash.check()
        return await story(soev)

    scenario = Scenario(getattr(told, "__qualname__", "scenario"), play)
    calm = scenario.run()
    check = _as_calm(calm.result())
    report = Report(scenario, check, exhausted=True)
    if schedule is not None:
        report.add(scenario.run(SchedulePlan.parse(schedule)))
        return CrashReport(len(calm.points), report, _words(calm))
    if "crash" in faults:
        report = sweep(scenario, expect=check)
    if "lost-ack" in faults:
        appends = sum(call.endswith(":append") for call in calm.calls)
        for number in range(1, appends + 1):
            fault = Fault("lost", number, "append")
            report.add(scenario.run(SchedulePlan(faults=(fault,))))
    return CrashReport(len(calm.points), report, _words(calm))


def _words(calm: Outcome[Story]) -> Callable[[SchedulePlan], str]:
    kinds = [kind for kind, _ in calm.result().acts]
    effect = f"effect {kinds[0]}" if len(kinds) == 1 else "an effect"

    def words(plan: SchedulePlan) -> str:
        if not plan.faults:
            return "nothing goes wrong"
        fault = plan.faults[0]
        if not 1 <= fault.at <= len(calm.points):
            return f"{fault}"
        if fault.kind == "lost":
            return f"lost-ack of append {fault.at}: it was stored, and the caller got an error"
        point = calm.points[fault.at - 1].partition(":")[2]
        what = _WORDS.get(point, f"at {point}").format(effect=effect)
        return f"crash at {fault.at} of {len(calm.points)}: {what}"

    return words


async def story(soev: SweptHarness) -> Story:
    """Return what a scenario came to.

    Args:
        soev: The harness that it was played in.
    """
    answers, rebuilt = [], True
    for thread_id in await soev.thread_ids():
        state, trace = await soev.seen(thread_id)
        texts = tuple(event.text for event in trace.of(ModelOutput))
        answers.append((thread_id, state, texts))
        rebuilt = rebuilt and all(
            call.same_request is not False for call in await soev.replayed(trace)
        )
    return Story(
        tuple(answers),
        tuple(sorted(soev.world.performed().items())),
        soev.world.repeated_kinds(),
        tuple([key async for key in soev.recorded()]),
        rebuilt,
    )


def _as_calm(calm: Story) -> Callable[[Outcome[Story]], None]:
    """Hold a schedule to the calm run, what hurts most first."""

    def check(outcome: Outcome[Story]) -> None:
        found = outcome.result()
        problem = _problem(found, calm)
        if problem is not None:
            raise AssertionError(problem)

    return check


def _problem(found: Story, calm: Story) -> str | None:
    acts, wanted = dict(found.acts), dict(calm.acts)
    for kind in sorted(acts.keys() | wanted.keys()):
        if acts.get(kind, 0) != wanted.get(kind, 0):
            times = f"{acts.get(kind, 0)} times, and {wanted.get(kind, 0)} times in a calm run"
            twice = (acts.get(kind, 0), wanted.get(kind, 0)) == (2, 1)
            return f"effect {kind} performed {'twice' if twice else times}"
    if found.repeated != calm.repeated:
        return f"effect {found.repeated[0]} performed again for one intent"
    if found.answers != calm.answers:
        return f"the answers are {found.answers!r}, and {calm.answers!r} in a calm run"
    if found.calls != calm.calls:
        return "the model was sent something else than in a calm run"
    if not found.rebuilt:
        return "today's code does not rebuild what the model was sent"
    return None
