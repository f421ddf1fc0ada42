"""Fan-outs, branches and joins, on hand-made traces."""

from __future__ import annotations

import pytest

from soev.domain import Cancelled, Event, Input, Trace
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Router
from soev.runtime._plan import End, Fault, RunStep, plan

from .turns import actions, failed, graph_of, log, note, request, steps

FRESH = Input(payload="hi")
A, B = "main/a#2.1", "main/b#2.2"
FORK = graph_of(
    steps("start a b meet last"),
    {"start": "a b", "a": "meet", "b": "meet", "meet": "last"},
    joins="meet",
)
STARTED: list[Event] = [FRESH, note("start")]


def due(events: list[Event], since: int | None = None) -> list[tuple[str, str]]:
    """Return the streams and nodes that are due on the fork."""
    planned = actions(FORK, log(*events), since)
    return [(action.stream, action.node) for action in planned if isinstance(action, RunStep)]


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        ([], [(A, "a"), (B, "b")]),
        ([note("a", A)], [(B, "b")]),
        ([note("b", B)], [(A, "a")]),
        ([note("b", B), note("a", A)], [("main", "meet")]),
        ([note("b", B), note("a", A), note("meet")], [("main", "last")]),
        ([request("a", A)], [(B, "b")]),
        ([request("a", A), note("b", B)], []),
        ([request("a", A), note("b", B), Input(answers=1, stream=A)], [("main", "meet")]),
        ([failed("a", A, transient=True)], [(A, "a"), (B, "b")]),
        ([failed("a", A, transient=True), note("b", B)], [(A, "a")]),
        ([failed("a", A)], []),
        ([note("a", A), Cancelled(input=1)], []),
        (
            [note("a", A), note("b", B), failed("meet", transient=True)],
            [("main", "meet")],
        ),
    ],
)
def test_branches(moved: list[Event], expected: list[tuple[str, str]]) -> None:
    """Branches start together, and the join runs once in the stream that fanned out."""
    assert due([*STARTED, *moved]) == expected


@pytest.mark.parametrize("transient", [True, False])
def test_failure_of_a_branch_lets_the_others_go_on(transient: bool) -> None:
    """A Failure of this run stops its branch alone, until each other ended, waits or failed."""
    events = [*STARTED, failed("a", A, transient=transient)]
    assert due(events, since=2) == [(B, "b")]
    assert due([*events, note("b", B)], since=2) == []
    assert plan(FORK, Trace(log(*events, note("b", B))), since=2).state == "failed"


def test_branches_hang_on_the_last_event_that_moved() -> None:
    """Failures of the stream that fanned out do not change the names of its branches."""
    events = [FRESH, failed("start", transient=True), note("start")]
    assert due(events) == [("main/a#3.1", "a"), ("main/b#3.2", "b")]


def test_no_join_ends_the_stream_that_fanned_out() -> None:
    """Branches that reach no join end, and with them the turn."""
    graph = graph_of(steps("start a b"), {"start": "a b"})
    assert actions(graph, log(*STARTED, note("a", A), note("b", B))) == (End(),)


def test_one_branch_that_reaches_the_join_is_enough() -> None:
    """A branch that ends without a join does not hold the others' join."""
    graph = graph_of(steps("start a b meet"), {"start": "a b", "a": "meet"}, joins="meet")
    events = log(*STARTED, note("a", A), note("b", B))
    assert actions(graph, events) == (RunStep("main", "meet"),)


def test_different_joins_are_a_fault() -> None:
    """Branches of one fan-out that reach different joins stop the stream that fanned out."""
    graph = graph_of(
        steps("start a b one two"), {"start": "a b", "a": "one", "b": "two"}, joins="one two"
    )
    events = log(*STARTED, note("a", A), note("b", B))
    (action,) = actions(graph, events)
    assert isinstance(action, Fault)
    assert (action.stream, action.failure.origin) == ("main", "start")
    assert "'one', 'two'" in action.failure.message
    assert not action.failure.transient
    assert actions(graph, log(*events, action.failure)) == ()


def test_target_that_is_a_join_is_a_branch_that_ended() -> None:
    """A join among the targets holds nothing up and has no events."""
    graph = graph_of(steps("start a meet"), {"start": "meet a", "a": "meet"}, joins="meet")
    stream = "main/a#2.2"
    assert actions(graph, log(*STARTED)) == (RunStep(stream, "a"),)
    assert actions(graph, log(*STARTED, note("a", stream))) == (RunStep("main", "meet"),)


def test_fan_out_to_joins_alone() -> None:
    """When all targets are one and the same kind of join, different ones are a fault at once."""
    graph = graph_of(steps("start one two"), {"start": "one two"}, joins="one two")
    (action,) = actions(graph, log(*STARTED))
    assert isinstance(action, Fault)


NESTED = graph_of(
    steps("start a b c d meet last"),
    {"start": "a b", "a": "c d", "b": "meet", "c": "meet", "d": "meet", "meet": "last"},
    joins="meet",
)
C, D = f"{A}/c#1.1", f"{A}/d#1.2"


def test_join_runs_once_on_each_level() -> None:
    """Two levels that share a join run it twice: in the inner branch, then in the root."""
    inner = [*STARTED, note("a", A), note("b", B), note("c", C)]
    assert actions(NESTED, log(*inner)) == (RunStep(D, "d"),)
    inner.append(note("d", D))
    assert actions(NESTED, log(*inner)) == (RunStep(A, "meet"),)
    inner.append(note("meet", A))
    assert actions(NESTED, log(*inner)) == (RunStep(A, "last"),)


def test_branch_that_ran_a_join_can_end_without_one() -> None:
    """After the inner join the branch goes on by the join's edge, and ends where there is none."""
    events = [*STARTED, note("a", A), note("b", B), note("c", C), note("d", D)]
    ended = [*events, note("meet", A), note("last", A)]
    assert actions(NESTED, log(*ended)) == (RunStep("main", "meet"),)


def test_failed_join_in_a_branch_runs_there_again() -> None:
    """A join that failed in the branch that fanned out is run again, not reached."""
    events = [*STARTED, note("a", A), note("b", B), note("c", C), note("d", D)]
    assert actions(NESTED, log(*events, failed("meet", A, transient=True))) == (RunStep(A, "meet"),)


def test_nested_view_of_the_join() -> None:
    """The join sees the branches by index, nested ones inside their parent."""
    events = log(*STARTED, note("b", B), note("a", A), note("d", D), note("c", C), note("meet", A))
    view = Trace(events).view("main")
    assert [event.stream for event in view] == ["main", "main", A, C, D, A, B]
    assert [event.stream for event in Trace(events).view(A)] == ["main", "main", A, C, D, A]
    assert [event.stream for event in Trace(events).view(D)] == ["main", "main", A, D]
    assert [event.stream for event in Trace(events).view(B)] == ["main", "main", B]


def test_loop_may_fan_out_again() -> None:
    """Each fan-out of a loop has branches of its own."""
    graph = graph_of(
        steps("start a b meet"),
        {"start": "a b", "a": "meet", "b": "meet", "meet": "start"},
        joins="meet",
    )
    events = [*STARTED, note("a", A), note("b", B), note("meet"), note("start")]
    assert actions(graph, log(*events)) == (
        RunStep("main/a#4.1", "a"),
        RunStep("main/b#4.2", "b"),
    )


def nested(levels: int) -> tuple[str, list[Event]]:
    """Return a branch that is nested so deep, and the log that leads to it."""
    stream, events = "main", [FRESH, note("start")]
    for level in range(levels):
        stream += f"/start#{1 if level else 2}.1"
        events.append(note("start", stream))
    return stream, events


def test_fan_outs_nested_too_deep_are_a_fault() -> None:
    """A graph that fans out into itself stops at 32 levels."""
    graph = graph_of(steps("start b"), {"start": "start b"})
    stream, events = nested(31)
    assert RunStep(f"{stream}/start#1.1", "start") in actions(graph, log(*events))
    stream, events = nested(32)
    (fault,) = [a for a in actions(graph, log(*events)) if isinstance(a, Fault)]
    assert (fault.stream, fault.failure.origin) == (stream, "start")
    assert "deeper than 32" in fault.failure.message


def test_stream_name_that_is_too_long_is_a_fault() -> None:
    """A branch whose name would pass 1,000 characters is not opened."""
    long = "n" * 64
    graph = graph_of(steps(f"{long} b"), {long: f"{long} b"})
    stream, events = "main", [FRESH, note(long)]
    for level in range(14):
        stream += f"/{long}#{1 if level else 2}.1"
        events.append(note(long, stream))
    assert len(stream) == 970
    (fault,) = [a for a in actions(graph, log(*events)) if isinstance(a, Fault)]
    assert fault.stream == stream
    assert "1,000 characters" in fault.failure.message


@pytest.mark.parametrize(
    "edges",
    [{"start": "b a"}, {"start": "b c"}, {"start": "a"}, {}, {"start": lambda view: "a"}],
)
def test_recorded_branch_must_be_among_the_targets(edges: dict[str, str | Router]) -> None:
    """A branch that today's graph would not start under its index is a mismatch."""
    graph = graph_of(steps("start a b c"), edges)
    with pytest.raises(GraphMismatchError, match="position 3, node 'a'"):
        actions(graph, log(*STARTED, note("a", A)))


def test_new_target_beside_recorded_branches_starts() -> None:
    """A fan-out that got a target more starts it, since the recorded branches still fit."""
    graph = graph_of(steps("start a b c"), {"start": "a b c"})
    assert actions(graph, log(*STARTED, note("a", A), note("b", B))) == (
        RunStep("main/c#2.3", "c"),
    )


def test_branch_goes_on_in_its_own_stream() -> None:
    """A branch of several steps asks its routers about its own view."""
    graph = graph_of(
        steps("start a b c meet"),
        {"start": "a b", "a": "c", "c": lambda view: "meet" if len(view) == 4 else None},
        joins="meet",
    )
    events = [*STARTED, note("b", B), note("a", A)]
    assert actions(graph, log(*events)) == (RunStep(A, "c"),)
    assert actions(graph, log(*events, note("c", A))) == (RunStep("main", "meet"),)
