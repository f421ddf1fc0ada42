"""Plans: tokens, faults, shrinking, and the strategies that answer."""

import subprocess
import sys
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_soev.world import (
    Exhaustion,
    Fault,
    FaultKind,
    Pct,
    Priorities,
    Ready,
    Replay,
    Scenario,
    ScheduleFailedError,
    SchedulePlan,
    Setting,
    Simulation,
    Steady,
    boundary,
    exhaust,
    raced,
    shrink,
    shuffle,
)

KINDS: tuple[FaultKind, ...] = ("crash", "freeze", "lost", "late", "slow", "corrupt", "refuse")

FAULTS = st.builds(
    Fault,
    kind=st.sampled_from(KINDS),
    at=st.integers(1, 999),
    where=st.sampled_from(["any", "append", "store.append.sent", "read_back"]),
    lasting=st.booleans(),
    seconds=st.integers(0, 400).map(lambda tenths: tenths / 10),
)
PLANS = st.builds(
    SchedulePlan,
    answers=st.lists(st.integers(0, 3)).map(tuple),
    faults=st.lists(FAULTS, max_size=3).map(tuple),
    mode=st.sampled_from(["strict", "wild"]),
)


def trimmed(plan: SchedulePlan) -> tuple[int, ...]:
    """Return a plan's answers without the zeros at the end."""
    answers = list(plan.answers)
    while answers and answers[-1] == 0:
        answers.pop()
    return tuple(answers)


def lanes(*numbers: int) -> list[Ready]:
    """Make lanes that are ready, each of a process of its own."""
    return [Ready(number, str(number)) for number in numbers]


@given(plan=PLANS)
def test_a_token_is_read_back(plan: SchedulePlan) -> None:
    """Each plan has a token that means the same plan, and the same token."""
    again = SchedulePlan.parse(plan.token)
    assert (again.faults, again.mode, again.answers) == (plan.faults, plan.mode, trimmed(plan))
    assert again.token == plan.token == str(plan)


def test_a_token_is_short() -> None:
    """Answers that repeat are written once."""
    plan = SchedulePlan((0, 0, 0, 1, 2, 2, 0), (Fault("crash", 17), Fault("lost", 3, "append")))
    assert plan.token == "strict:0x3.1.2x2+crash@any.17+lost@append.3"


@pytest.mark.parametrize(
    "token", ["", "strict", "loose:1", "strict:1.x", "strict:a", "strict:1+crash", "wild:+boom@a.1"]
)
def test_what_is_no_token_is_refused(token: str) -> None:
    """A text that no schedule printed is a ValueError."""
    with pytest.raises(ValueError, match="is no"):
        SchedulePlan.parse(token)


def test_a_fault_that_no_token_could_say_is_refused() -> None:
    """Faults are counted from 1."""
    with pytest.raises(ValueError, match="There is no fault 'crash' at 0"):
        Fault("crash", 0)


@given(needed=st.sets(st.integers(0, 30), max_size=3), plan=PLANS)
def test_shrinking_leaves_what_a_failure_needs(needed: set[int], plan: SchedulePlan) -> None:
    """Only the answers and faults without which the plan does not fail are left."""
    answers = tuple(1 if place in needed else number for place, number in enumerate([2] * 31))
    crash = Fault("crash", 5)
    plan = SchedulePlan(answers, (*plan.faults, crash), plan.mode)

    def fails(smaller: SchedulePlan) -> bool:
        padded = smaller.answers + (0,) * 31
        return all(padded[place] == 1 for place in needed) and crash in smaller.faults

    small = shrink(plan, fails)
    assert small.answers == tuple(
        int(place in needed) for place in range(max(needed, default=-1) + 1)
    )
    assert [fault for fault in small.faults if fault != crash] == []


@pytest.mark.parametrize("deviations", [0, 1, 2, 5])
def test_exhaustion_runs_each_order_once(deviations: int) -> None:
    """Every list of answers with so many deviations at most comes once, and then it says so."""
    widths = (2, 3, 1, 2, 2)
    orders, seen = Exhaustion(deviations), []
    while not orders.exhausted:
        answers = orders.next_answers()
        seen.append(answers + (0,) * (len(widths) - len(answers)))
        orders.learn(widths)
    expected = {
        each
        for each in product(*map(range, widths))
        if sum(answer != 0 for answer in each) <= deviations
    }
    assert sorted(seen) == sorted(expected)


def test_priorities_are_kept_until_a_demotion() -> None:
    """The lane that is ranked first goes on, until a demotion puts it last."""
    strategy = Priorities(order=(0, 1, 0), demotions=(2,))
    ready = [lanes(7, 8), lanes(7, 8, 9), lanes(7, 8, 9), lanes(7, 8, 9)]
    assert [each[strategy.choose(each)].lane for each in ready] == [7, 9, 7, 7]


def test_answers_that_fit_no_more_are_the_usual_order() -> None:
    """A recorded answer beyond the lanes that are ready, or that is missing, is 0."""
    strategy = Replay([1, 5])
    assert [strategy.choose(lanes(3, 4)) for _ in range(3)] == [1, 0, 0]


def test_a_steady_order_stays_with_a_lane_and_its_process() -> None:
    """What went last goes on while it can, then its process, and an answer lets another one in."""
    strategy = Steady([0, 0, 1])
    one, two, friend = Ready(1, "a"), Ready(2, "b"), Ready(3, "a")
    asked = [[one, two, friend], [two, friend], [two, friend], [friend, two], [friend]]
    went = [each[strategy.choose(each)] for each in asked]
    assert went == [one, friend, two, two, friend]


async def lost_update(sim: Simulation) -> int:
    """Let two processes read a number, and write it back one higher."""
    number = [0]

    async def add() -> None:
        read = number[0]
        await boundary()
        await boundary()
        number[0] = read + 1

    async def late() -> None:
        for _ in range(3):
            await boundary()
        await add()

    await raced(sim.process("a").start(add()), sim.process("b").start(late()))
    assert number == [2]
    return number[0]


def test_a_race_is_found_and_shrunk_to_its_deviations() -> None:
    """Both searches find an update that is lost, and report a token that loses it again."""
    scenario = Scenario("lost update", lost_update)
    scenario.run().result()
    found = [exhaust(scenario, deviations=2), shuffle(scenario, range(50), strategy=Pct)]
    for report in found:
        with pytest.raises(
            ScheduleFailedError, match="schedules of 'lost update' failed"
        ) as caught:
            report.check()
        plan = SchedulePlan.parse(caught.value.token)
        assert 1 <= sum(answer != 0 for answer in plan.answers) <= 2
        with pytest.raises(AssertionError):
            scenario.again(caught.value.token).result()
    assert found[0].exhausted


def test_a_seed_is_replayed_by_its_token() -> None:
    """The token of a random schedule makes the schedule with the same identity."""
    scenario = Scenario("lost update", lost_update, Setting(mode="wild"))
    for seed in range(30):
        outcome = scenario.run(strategy=Pct(seed))
        assert scenario.again(outcome.token).identity == outcome.identity


def test_the_plugin_does_not_import_the_world() -> None:
    """Whoever only has the plugin installed does not pay for the deterministic world."""
    code = "import sys, pytest_soev.plugin; print('pytest_soev.world' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
