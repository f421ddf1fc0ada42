"""Runs of the runtime survive crashes, freezes and failing stores, at every point."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_soev.world import (
    BrokenRuleError,
    Fault,
    Mode,
    Outcome,
    Pct,
    Process,
    Scenario,
    Setting,
    Simulation,
    Talk,
    boundary,
    carry_on,
    exhaust,
    fail_each_call,
    log_of,
    passed,
    raced,
    shuffle,
    sweep,
)
from soev.domain import Head, Input, LeaseHeldError, LeaseLostError
from tests.world.scenarios import ONE_STEP, REACT_LOOP, SCENARIOS, Log, one_step

ROOT = Path(__file__).parents[2]
EAGER = [False, True] if sys.version_info >= (3, 12) else [False]

named = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


@named
def test_a_crash_at_any_point_changes_nothing(scenario: Scenario[Log]) -> None:
    """Killed at any named point and started again, a talk leaves the log of a calm run."""
    report = sweep(scenario)
    report.check()
    assert report.runs == len(scenario.run().points) > 15


@named
def test_a_freeze_at_any_point_changes_nothing(scenario: Scenario[Log]) -> None:
    """Frozen at any named point for longer than its lease, a process leaves the same log."""
    sweep(scenario, kinds=("freeze",)).check()


@named
def test_a_store_that_fails_once_changes_nothing(scenario: Scenario[Log]) -> None:
    """Any one store call may fail in any way, and the log is that of a calm run."""
    fail_each_call(scenario).check()


def test_a_crash_in_the_recovery_of_a_crash_changes_nothing() -> None:
    """Killed at any two points, one after the other, a talk leaves the log of a calm run."""
    report = sweep(ONE_STEP, depth=2)
    report.check()
    assert report.runs > 300


def test_late_writes_and_crashes_together_change_nothing() -> None:
    """An append whose rows land after a crash of its process is recorded once."""
    for call in range(1, 6):
        for point in range(1, 60, 4):
            faults = (Fault("late", call, "append", seconds=20), Fault("crash", point))
            token = f"strict:+{faults[0]}+{faults[1]}"
            assert REACT_LOOP.again(token).result() == REACT_LOOP.run().result(), token


async def turn_of(process: Process) -> Log:
    """Resume the thread in a process, and return the thread's log as it sees it."""
    await process.thread("t-1", one_step()).resume()
    return await log_of(process.store)


async def takeover(sim: Simulation) -> tuple[object, ...]:
    """Freeze a process before its append, let another one run the turn, and thaw the first."""
    a, b = sim.process("a"), sim.process("b")
    await a.call(a.thread("t-1", one_step()).submit(Input(payload="Hello")))
    running = a.start(turn_of(a))
    while not a.frozen:
        await boundary()
    with pytest.raises(LeaseHeldError):
        await b.call(turn_of(b))
    await passed(sim.lease_ttl + 1)
    await b.call(turn_of(b))
    before = await log_of(sim.store)
    a.thaw()
    (late,) = await raced(running)
    return type(late), before == await log_of(sim.store), before


def test_a_late_append_of_a_frozen_process_is_fenced() -> None:
    """A process frozen past its lease loses it, and appends nothing when it wakes."""
    scenario = Scenario("takeover", takeover)
    fault = Fault("freeze", 1, "step.calling", seconds=0)
    late, same, log = scenario.again(f"strict:+{fault}").result()
    assert (late, same) == (LeaseLostError, True)
    assert log == ONE_STEP.run().result()


def test_a_late_append_is_fenced_wherever_its_process_froze() -> None:
    """It makes no difference at which point of its run the process was frozen."""
    scenario = Scenario("takeover", takeover)
    for point in ("lease.acquired", "step.calling", "run.append.sending"):
        fault = Fault("freeze", 1, point, seconds=0)
        assert scenario.again(f"strict:+{fault}").result()[:2] == (LeaseLostError, True)


async def two_resumes(sim: Simulation) -> tuple[list[object], Log]:
    """Let two processes resume one turn."""
    a, b = sim.process("a"), sim.process("b")
    await a.call(a.thread("t-1", one_step()).submit(Input(payload="Hello")))
    came = await raced(a.start(turn_of(a)), b.start(turn_of(b)))
    return came, await log_of(sim.store)


def test_two_resumes_have_one_winner_in_every_order() -> None:
    """In every order to four deviations one runs the turn, and the other one is refused."""
    calm = ONE_STEP.run().result()

    def expect(outcome: Outcome[tuple[list[object], Log]]) -> None:
        came, log = outcome.result()
        assert log == calm
        assert all(each == calm or isinstance(each, LeaseHeldError) for each in came)
        assert any(each == calm for each in came)

    report = exhaust(Scenario("resume and resume", two_resumes), deviations=4, expect=expect)
    report.check()
    assert report.exhausted
    assert report.runs > 15


async def renew_and_steal(sim: Simulation) -> str:
    """Let one process renew its lease around the moment of its end, while another takes it."""
    a, b = sim.process("a"), sim.process("b")
    await a.call(a.thread("t-1", None).submit(Input(payload="Hello")))
    lease = await a.call(a.store.acquire("t-1", "a", 3, request="r-1"))

    async def renew() -> object:
        await passed(3)
        return await a.store.renew(lease, 3)

    async def steal() -> object:
        await passed(3)
        return await b.store.acquire("t-1", "b", 3, request="r-2")

    renewed, stolen = await raced(a.start(renew()), b.start(steal()))
    head: Head = await sim.store.head("t-1")
    assert head.lease is not None
    if isinstance(renewed, LeaseLostError):
        assert head.lease.owner == "b"
        return "stolen"
    assert isinstance(stolen, LeaseHeldError)
    return "renewed"


def test_a_renewal_and_a_steal_have_one_winner() -> None:
    """Whichever comes first has the lease; both orders are reached."""
    seen = []
    report = exhaust(
        Scenario("renew and steal", renew_and_steal),
        expect=lambda outcome: seen.append(outcome.result()),
    )
    report.check()
    assert set(seen) == {"renewed", "stolen"}
    assert report.exhausted


async def crowd(sim: Simulation) -> Log:
    """Let three processes with wrong clocks carry one talk on at the same time."""
    talk = Talk(inputs=("Hello", "And now?"))
    processes = [
        sim.process("a"),
        sim.process("b", offset=86_400, rate=1.1),
        sim.process("c", offset=-86_400, rate=0.9),
    ]
    came = await raced(*(each.start(carry_on(each, one_step, talk)) for each in processes))
    assert came == [None, None, None]
    return await log_of(sim.store)


@pytest.mark.parametrize("mode", ["strict", "wild"])
def test_clocks_that_are_wrong_change_nothing(mode: Mode) -> None:
    """Three processes, a day apart and ten percent fast or slow, leave one log of both turns."""
    setting = Setting(mode=mode, lease_ttl=9)
    report = shuffle(Scenario("crowd", crowd, setting), range(40), strategy=Pct)
    report.check()


@pytest.mark.parametrize("eager", EAGER)
def test_tasks_may_begin_at_once(eager: bool) -> None:
    """With eager tasks, where Python has them, a crash at any point changes nothing either."""
    calm = REACT_LOOP.run().result()
    scenario = Scenario("eager", REACT_LOOP.play, Setting(eager=eager, mode="wild"))
    report = shuffle(
        scenario, range(40), faults=lambda seed: (Fault("crash", seed + 1),), expect=same_log(calm)
    )
    report.check()


def same_log(calm: Log) -> Callable[[Outcome[Log]], None]:
    """Make a check that a log is that of a calm run."""

    def check(outcome: Outcome[Log]) -> None:
        assert outcome.result() == calm

    return check


IDENTITIES = """
from pytest_soev.world import Fault, Pct, Scenario, SchedulePlan, Setting
from tests.world.scenarios import REACT_LOOP
scenario = Scenario("wild", REACT_LOOP.play, Setting(mode="wild"))
for seed in range(5):
    plan = SchedulePlan(faults=(Fault("crash", 10 * seed + 1),), mode="wild")
    print(scenario.run(plan, Pct(seed)).identity)
"""


def test_a_schedule_is_the_same_in_another_process() -> None:
    """Another hash seed, and other addresses in memory, change no schedule."""
    printed = set()
    for seed in ("0", "1", "random"):
        ran = subprocess.run(
            [sys.executable, "-c", IDENTITIES],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
        )
        printed.add(ran.stdout)
    (identities,) = printed
    assert len(set(identities.split())) == 5


def test_the_witness_is_heard() -> None:
    """A rule that is broken fails the schedule, also when its scenario ends well."""

    async def scenario(sim: Simulation) -> None:
        sim.witness.broken.append(BrokenRuleError("I1", "it is a test"))

    with pytest.raises(BrokenRuleError, match="I1 does not hold: it is a test"):
        Simulation().run(scenario).result()
