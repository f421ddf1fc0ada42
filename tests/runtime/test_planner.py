"""The planner of a growing trace, held to the definition at every append."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soev.domain import Event, Failure, Input, Trace, TransientError
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Graph
from soev.runtime._plan import Fault, Plan, Planner, RunStep, plan
from soev.runtime._turn import read_turn, turn_state

from .turns import (
    Crew,
    Mail,
    Team,
    actions,
    ends,
    failed,
    graph_of,
    intent,
    log,
    note,
    request,
    step,
    steps,
)

LATER = 10**9
seeds = st.integers(0, 2**32).map(Random)
examples = settings(max_examples=40, deadline=None)


def outcome(ask: Callable[[], Plan]) -> Plan | str:
    """Return a plan, or the name of the error when it found a mismatch."""
    try:
        return ask()
    except GraphMismatchError as error:
        return type(error).__name__


def agree(graph: Graph, events: list[Event], planners: list[Planner]) -> Counter[str]:
    """Hold planners to the definition at the end of every append, and count the actions."""
    seen: Counter[str] = Counter()
    stops = set(ends(events))
    for count, event in enumerate(events, 1):
        for planner in planners:
            planner.feed(event)
        if count in stops:
            trace = Trace(events[:count])
            for planner in planners:
                defined = outcome(lambda: plan(graph, trace, since=planner.since))  # noqa: B023  # called here
                assert outcome(planner.plan) == defined, f"after event {count}"
                due = defined.actions if isinstance(defined, Plan) else ()
                streams = [getattr(action, "stream", "the turn") for action in due]
                assert len(set(streams)) == len(streams), "one action for each stream"
                assert "the turn" not in streams or len(streams) == 1, "the end is the only action"
                seen.update(type(action).__name__ for action in due)
    return seen


@examples
@given(seeds)
def test_planner_agrees_with_the_definition_at_every_append(random: Random) -> None:
    """Fed event by event, the planner says what the plan of the whole trace says."""
    crew = Crew(random)
    events = crew.turn(40)
    begun = [0, random.randint(1, len(events)), LATER]
    agree(crew.graph, events, [Planner(crew.graph, since=since) for since in begun])


@examples
@given(seeds)
def test_planner_agrees_on_a_graph_that_changed(random: Random) -> None:
    """On a log of another graph the planner gives the same plan or finds a mismatch too."""
    events = Crew(random).turn(30)
    graph = Crew(random).graph
    agree(graph, events, [Planner(graph), Planner(graph, since=LATER)])


@examples
@given(seeds)
def test_planner_agrees_after_it_loaded_a_log(random: Random) -> None:
    """Planned for the first time, and after each new beginning of a run, it still agrees."""
    crew = Crew(random)
    events = crew.turn(40)
    planner = Planner(crew.graph)
    for count, event in enumerate(events, 1):
        planner.feed(event)
        if random.random() < 0.3 and count in ends(events):
            planner.since = random.randint(0, count)
            assert planner.plan() == plan(crew.graph, Trace(events[:count]), since=planner.since)
            assert planner.trace == Trace(events[:count])


def test_random_turns_reach_every_action() -> None:
    """The turns that these properties try have every kind of action among their plans."""
    seen: Counter[str] = Counter()
    for seed in range(25):
        crew = Crew(Random(seed))
        events = crew.turn(40)
        seen += agree(crew.graph, events, [Planner(crew.graph)])
    kinds = {"RunStep", "Intend", "Recover", "OpenTasks", "HandBack", "Trip", "Fault", "End"}
    assert set(seen) == kinds


@examples
@given(seeds)
def test_retry_finds_what_failed(random: Random) -> None:
    """After a transient Failure the next run finds due what was due, in the same streams."""
    crew = Crew(random)
    events = crew.turn(40)
    for count, event in enumerate(events, 1):
        over = read_turn(events[: count - 1]).failed
        if isinstance(event, Failure) and event.transient and not over:
            with_it = plan(crew.graph, Trace(events[:count]), since=count)
            without = plan(crew.graph, Trace(events[: count - 1]), since=count)
            assert with_it.actions == without.actions


@examples
@given(seeds)
def test_plan_and_status_read_the_same_state(random: Random) -> None:
    """A plan's state is what status says while nobody holds the lease."""
    crew = Crew(random)
    events = crew.turn(25)
    for count in ends(events):
        state = plan(crew.graph, Trace(events[:count])).state
        assert state == turn_state(events[:count], held=False)


@given(st.permutations([1, 1, 1, 2, 2, 2, 3, 3, 3]))
def test_order_of_branches_does_not_change_the_join(order: list[int]) -> None:
    """Whatever order branches finish in, the join is due and sees them by their index."""
    graph = graph_of(
        steps("start a b c meet"),
        {
            "start": "a b c",
            "a": lambda view: "meet" if len(view) == 5 else "a",
            "b": lambda view: "meet" if len(view) == 5 else "b",
            "c": lambda view: "meet" if len(view) == 5 else "c",
        },
        joins="meet",
    )
    branches = {1: "main/a#2.1", 2: "main/b#2.2", 3: "main/c#2.3"}
    moved = [note("abc"[branch - 1], branches[branch]) for branch in order]
    events = log(Input(), note("start"), *moved)
    agree(graph, events, [Planner(graph), Planner(graph, since=LATER)])
    assert actions(graph, events) == (RunStep("main", "meet"),)
    seen = [event.stream for event in Trace(events).view("main")]
    assert seen == ["main"] * 2 + [name for name in branches.values() for _ in range(3)]


def test_plan_asks_only_what_moved() -> None:
    """A step in one branch asks no router of another branch, and none of an earlier step."""
    asked: list[str] = []

    def route(view: Trace) -> str:
        asked.append(view.stream)
        return "b" if view.stream.startswith("main/b") else "c"

    graph = graph_of(steps("start b c"), {"start": "b c", "b": route, "c": route})
    planner = Planner(graph)
    for event in log(Input(), note("start"), note("b", "main/b#2.1"), note("c", "main/c#2.2")):
        planner.feed(event)
    planner.plan()
    asked.clear()
    for _ in range(3):
        planner.feed(note("b", "main/b#2.1"))
        planner.plan()
        planner.plan()
    assert asked == ["main/b#2.1"] * 3


def test_feed_asks_no_graph() -> None:
    """Feeding a log calls no router, so an old graph is not needed to load it."""
    graph = graph_of({"a": step}, {"a": lambda view: pytest.fail("a router was asked")})
    planner = Planner(graph)
    for event in log(Input(), note("a"), note("a"), request("a")):
        planner.feed(event)
    assert planner.plan().actions == ()


def test_mismatch_can_be_asked_again() -> None:
    """A planner that found a mismatch says so again, and goes on when the next turn fits."""
    graph = graph_of(steps("a"))
    planner = Planner(graph)
    for event in log(Input(), note("gone")):
        planner.feed(event)
    for _ in range(2):
        with pytest.raises(GraphMismatchError, match="position 2, node 'gone'"):
            planner.plan()
    planner.feed(Input())
    assert planner.plan().actions == (RunStep("main", "a"),)


def test_stopped_stream_hears_of_a_deep_one() -> None:
    """Below a stream that stopped, what moves two levels down changes what is recovered."""
    child = graph_of({"work": step, "mail": Mail(), "rest": step}, {"work": "mail rest"})
    graph = graph_of({"start": step, "team": Team(child)}, {"start": "team"})
    task = "main/team#2.1"
    deep = f"{task}/mail#2.1"
    events = log(
        Input(),
        note("start"),
        Input(stream=task, origin="team"),
        note("work", task),
        intent("mail", deep),
        failed("team"),
        request("mail", deep),
        Input(answers=2, stream=deep),
        failed("mail", deep),
    )
    seen = agree(graph, events, [Planner(graph, since=5)])
    assert seen["Recover"] == 3


def test_task_in_place_of_a_branch_is_noticed() -> None:
    """A task that begins under the name of a branch that was due is a mismatch from then on."""
    graph = graph_of(steps("start team b"), {"start": "team b"})
    planner = Planner(graph)
    for event in log(Input(), note("start")):
        planner.feed(event)
    assert planner.plan().actions[0] == RunStep("main/team#2.1", "team")
    planner.feed(Input(stream="main/team#2.1", origin="team"))
    with pytest.raises(GraphMismatchError, match="a task began there"):
        planner.plan()


def test_new_run_asks_for_a_graph_again() -> None:
    """A graph that could not be made for a moment is made in the next run."""
    team = Team(graph_of(steps("work")), broken=(1,), error=TransientError("not now"))
    graph = graph_of({"start": step, "team": team}, {"start": "team"})
    task = "main/team#2.1"
    planner = Planner(graph)
    for event in log(Input(), note("start"), Input(payload=1, stream=task, origin="team")):
        planner.feed(event)
    (fault,) = planner.plan().actions
    assert isinstance(fault, Fault)
    planner.feed(fault.failure)
    team.broken = ()
    assert planner.plan().actions == ()
    planner.since = 4
    assert planner.plan().actions == (RunStep(task, "work"),)


def test_older_turns_are_dropped() -> None:
    """A fresh input drops the cursors of the last turn, so no turn pays for another."""
    graph = graph_of(steps("start b c"), {"start": "b c"})
    planner = Planner(graph)
    turn = [Input(), note("start")]
    for count in range(50):
        at = 2 * count + 2
        for event in (*turn, note("b", f"main/b#{at}.1"), note("c", f"main/c#{at}.2")):
            planner.feed(event)
        assert [type(action).__name__ for action in planner.plan().actions] == ["End"]
    assert len(planner._log.cursors) == 3
