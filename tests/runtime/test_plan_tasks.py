"""Delegations and their tasks, on hand-made traces."""

from __future__ import annotations

import pytest

from soev.domain import Cancelled, Event, Input, Trace, TransientError
from soev.runtime._actions import hand_off_view
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Graph
from soev.runtime._plan import End, Fault, HandBack, OpenTasks, Planner, Recover, RunStep

from .turns import (
    Mail,
    Team,
    actions,
    failed,
    graph_of,
    intent,
    log,
    note,
    request,
    result,
    step,
    steps,
)

FRESH = Input(payload="hi")
CHILD = graph_of(steps("work check"), {"work": "check"})
ONE, TWO = "main/team#2.1", "main/team#2.2"
STARTED: list[Event] = [FRESH, note("start")]


def head(index: int, stream: str = "main/team#2") -> Input:
    """Return the head of a task."""
    return Input(payload=index, stream=f"{stream}.{index}", origin="team")


def parent(team: object = None) -> Graph:
    """Return a graph that delegates to two sub-agents."""
    runs = team or Team(CHILD, lambda view: 2)
    return graph_of({"start": step, "team": runs, "last": step}, {"start": "team", "team": "last"})


OPENED = [*STARTED, head(1), head(2)]
WORKED = [*OPENED, note("work", TWO), note("check", TWO), note("work", ONE), note("check", ONE)]


@pytest.mark.parametrize(
    ("events", "due"),
    [
        (STARTED, (OpenTasks("main", "team"),)),
        ([*STARTED, failed("team", transient=True)], (OpenTasks("main", "team"),)),
        ([*STARTED, head(1)], (OpenTasks("main", "team"), RunStep(ONE, "work"))),
        (OPENED, (RunStep(ONE, "work"), RunStep(TWO, "work"))),
        ([*OPENED, note("work", TWO)], (RunStep(ONE, "work"), RunStep(TWO, "check"))),
        ([*OPENED, request("work", TWO)], (RunStep(ONE, "work"),)),
        ([*OPENED, failed("work", TWO)], ()),
        (WORKED[:-1], (RunStep(ONE, "check"),)),
        (WORKED, (HandBack("main", "team"),)),
        ([*WORKED, failed("team", transient=True)], (HandBack("main", "team"),)),
        ([*WORKED, failed("team")], ()),
        ([*WORKED, [note("team"), note("team")]], (RunStep("main", "last"),)),
        ([*WORKED, note("team"), note("last")], (End(),)),
        ([*STARTED, note("team")], (RunStep("main", "last"),)),
        ([*OPENED, Cancelled(input=1)], ()),
    ],
)
def test_delegation(events: list[Event], due: tuple[object, ...]) -> None:
    """Tasks are opened, run side by side, and are handed back when all of them ended."""
    assert actions(parent(), log(*events)) == due


def test_failure_of_a_task_of_this_run_lets_the_others_go_on() -> None:
    """A failed task holds the delegation, and its siblings go on."""
    events = log(*OPENED, failed("work", ONE))
    assert actions(parent(), events, since=4) == (RunStep(TWO, "work"),)
    rest = log(*OPENED, failed("work", ONE), note("work", TWO), note("check", TWO))
    assert actions(parent(), rest, since=4) == ()


def test_hand_offs_without_an_input_are_opened_too() -> None:
    """Whether there are tasks is found out by the engine: the plan opens them."""
    graph = parent(Team(CHILD, lambda view: 0))
    assert actions(graph, log(*STARTED)) == (OpenTasks("main", "team"),)


def test_hand_offs_see_the_same_after_a_failure() -> None:
    """The view of `hand_offs` is cut before the Failures and Cancelled that came later."""
    trace = Trace(log(*STARTED, failed("team", transient=True), Cancelled(input=1)))
    assert list(hand_off_view(trace.view("main"))) == list(trace)[:2]


def test_hand_offs_see_failures_of_branches() -> None:
    """Only the stream's own Failures are cut off: what stands in a branch is part of the view."""
    events = log(*STARTED, failed("a", "main/a#2.1"), failed("team", transient=True))
    assert list(hand_off_view(Trace(events).view("main"))) == events[:3]


def test_count_of_tasks_is_asked_on_the_cut_view() -> None:
    """A retry after a Failure opens the same number of tasks."""
    graph = parent(Team(CHILD, len))
    events = [*STARTED, failed("team", transient=True), head(1), head(2)]
    assert actions(graph, log(*events)) == (RunStep(ONE, "work"), RunStep(TWO, "work"))


def test_hand_offs_that_raise_hold_nothing_up() -> None:
    """The tasks that are there go on: the engine records the error when it asks at their end."""

    def size(view: Trace) -> int:
        raise ValueError("not today")

    assert actions(parent(Team(CHILD, size)), log(*WORKED)) == (HandBack("main", "team"),)


@pytest.mark.parametrize(
    ("error", "transient"), [(ValueError("no graph"), False), (TransientError("later"), True)]
)
def test_graph_that_cannot_be_made_is_a_fault(error: Exception, transient: bool) -> None:
    """What `graph_for` raises is a Failure of the delegation, and no task starts beside it."""
    graph = parent(Team(CHILD, lambda view: 2, broken=(2,), error=error))
    (fault,) = actions(graph, log(*OPENED))
    assert isinstance(fault, Fault)
    assert (fault.stream, fault.failure.origin) == ("main", "team")
    assert (fault.failure.transient, fault.error) == (transient, error)
    events = log(*OPENED, fault.failure)
    assert actions(graph, events, since=4) == ()
    assert actions(graph, events, since=5) == ((fault,) if transient else ())


def test_graph_without_an_entry_point_is_a_fault() -> None:
    """A task's graph that could not start is one that could not be made."""
    (fault,) = actions(parent(Team(Graph(), lambda view: 2)), log(*OPENED))
    assert isinstance(fault, Fault)
    assert "entry point" in fault.failure.message


def test_open_intent_below_a_failed_delegation_is_recovered() -> None:
    """Under a stream that stopped only recoveries are due."""
    child = graph_of({"work": Mail(), "check": step}, {"work": "check"})
    team = Team(child, lambda view: 2, broken=(2,))
    events = log(*OPENED, intent("work", ONE), failed("team"), request("work", ONE))
    answered = log(*events, Input(answers=3, stream=ONE))
    opened = events[4]
    assert actions(parent(team), events) == ()
    assert actions(parent(team), answered) == (Recover(ONE, "work", opened),)  # type: ignore[arg-type]  # an intent


def test_cancelled_turn_recovers_in_tasks() -> None:
    """After Cancelled the open intents of tasks are recovered, unless a request waits there."""
    child = graph_of({"work": Mail()})
    events = log(*OPENED, intent("work", ONE), intent("work", TWO, "i2"), Cancelled(input=1))
    graph = parent(Team(child, lambda view: 2))
    assert [action.stream for action in actions(graph, events) if isinstance(action, Recover)] == [
        ONE,
        TWO,
    ]
    assert len(actions(graph, log(*events, request("work", ONE)))) == 1
    assert len(actions(graph, log(*events, result("work", ONE)))) == 1


def test_join_is_an_ordinary_node_in_a_task() -> None:
    """A task is no branch, so a join runs in it."""
    child = graph_of(steps("work meet"), {"work": "meet"}, joins="meet")
    graph = parent(Team(child, lambda view: 1))
    assert actions(graph, log(*STARTED, head(1), note("work", ONE))) == (RunStep(ONE, "meet"),)


def test_delegation_as_the_join_of_a_fan_out() -> None:
    """A join that delegates has tasks under names that its own branch would have had."""
    team = Team(CHILD, lambda view: 1)
    graph = graph_of(
        {"start": step, "team": team, "b": step}, {"start": "team b", "b": "team"}, joins="team"
    )
    events = [*STARTED, note("b", "main/b#2.2")]
    assert actions(graph, log(*events)) == (OpenTasks("main", "team"),)
    events.append(head(1))
    assert actions(graph, log(*events)) == (RunStep(ONE, "work"),)
    events += [note("work", ONE), note("check", ONE)]
    assert actions(graph, log(*events)) == (HandBack("main", "team"),)
    assert [event.stream for event in Trace(log(*events)).view("main")] == [
        "main",
        "main",
        "main/b#2.2",
    ]


def test_delegation_as_the_first_node_of_a_branch() -> None:
    """Its tasks hang on seq 0 of a branch that has no event of its own."""
    team = Team(CHILD, lambda view: 1)
    graph = graph_of({"start": step, "team": team, "b": step}, {"start": "team b"})
    task = f"{ONE}/team#0.1"
    opened = [*STARTED, head(1, f"{ONE}/team#0")]
    assert actions(graph, log(*STARTED))[0] == OpenTasks(ONE, "team")
    assert actions(graph, log(*opened))[0] == RunStep(task, "work")
    ended = [*opened, note("work", task), note("check", task)]
    assert actions(graph, log(*ended))[0] == HandBack(ONE, "team")


def test_nested_delegation() -> None:
    """A task may delegate in turn."""
    child = graph_of({"work": step, "team": Team(CHILD, lambda view: 1)}, {"work": "team"})
    graph = parent(Team(child, lambda view: 1))
    events = [*STARTED, head(1), note("work", ONE)]
    assert actions(graph, log(*events)) == (OpenTasks(ONE, "team"),)
    inner = f"{ONE}/team#2.1"
    events += [head(1, f"{ONE}/team#2"), note("work", inner), note("check", inner)]
    assert actions(graph, log(*events)) == (HandBack(ONE, "team"),)
    events.append(note("team", ONE))
    assert actions(graph, log(*events)) == (HandBack("main", "team"),)


def test_tasks_of_another_node_are_a_mismatch() -> None:
    """Tasks that today's graph would not have opened there are refused, not forgotten."""
    graph = graph_of({"start": step, "other": step, "team": step}, {"start": "other"})
    with pytest.raises(GraphMismatchError, match="position 3, node 'team'"):
        actions(graph, log(*OPENED))


def test_task_that_would_be_a_branch_is_a_mismatch() -> None:
    """A task is not taken for a branch when today's graph starts one of its name."""
    graph = graph_of(steps("start team b"), {"start": "team b"})
    with pytest.raises(GraphMismatchError, match="position 3, node 'team': a task began there"):
        actions(graph, log(*STARTED, head(1)))


def test_planner_tells_the_engine_what_tasks_need() -> None:
    """The planner gives the seq that tasks hang on, their names and their graphs."""
    planner = Planner(parent())
    for event in log(*OPENED, failed("team", transient=True)):
        planner.feed(event)
    assert planner.seq("main") == 2
    assert planner.tasks("main") == (ONE, TWO)
    assert planner.graph(ONE) is CHILD
    assert planner.graph(f"{ONE}/x#1.1") is CHILD
    assert list(planner.view(ONE)) == log(head(1))
    assert planner.graph("main") is planner.graph("main/x#2.1")


def test_planner_raises_what_graph_for_raised() -> None:
    """Who asks for the graph of a task that has none gets the error."""
    planner = Planner(parent(Team(CHILD, broken=(1,))))
    for event in log(*OPENED):
        planner.feed(event)
    with pytest.raises(ValueError, match="no graph"):
        planner.graph(ONE)
