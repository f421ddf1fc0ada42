"""Graphs: what they accept, what they refuse, and what they read back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from soev.domain import Compaction, Event, Input, Trace
from soev.runtime._effects import abandon
from soev.runtime._graph import (
    Budget,
    Edge,
    Graph,
    Node,
    Spent,
    is_delegation,
    is_effect,
)

from .turns import Mail, Team, failed, graph_of, log, note, output, step, steps, tripped


def test_nodes_are_read_back() -> None:
    """A graph keeps its nodes in the order in which they were added."""
    graph = graph_of(steps("b a"))
    assert graph.nodes == (Node("b", step), Node("a", step))
    assert graph.node("a") == Node("a", step)
    assert graph.has_node("a")
    assert not graph.has_node("c")


@pytest.mark.parametrize("name", ["", "n" * 65, "a/b", "a#b"])
def test_node_names_are_checked(name: str) -> None:
    """A name that could not be part of a stream's name is refused."""
    with pytest.raises(ValueError, match="1 to 64 characters"):
        Graph().add_node(name, step)


def test_longest_node_name_is_accepted() -> None:
    """A name of 64 characters is a name."""
    assert graph_of(steps("n" * 64)).has_node("n" * 64)


def test_node_name_is_taken_once() -> None:
    """A second node of the same name is refused."""
    with pytest.raises(ValueError, match="has a node 'a' already"):
        graph_of(steps("a")).add_node("a", step)


def test_kinds_of_nodes() -> None:
    """An object with `intend` is an effect, one with `hand_offs` a delegation."""
    assert is_effect(Mail())
    assert is_delegation(Team(Graph()))
    assert not is_effect(step)
    assert not is_delegation(step)
    assert not is_effect(Team(Graph()))
    graph_of({"a": Mail(), "b": Team(Graph()), "c": step})


def test_node_that_runs_nothing_is_refused() -> None:
    """A step that cannot be called, and is neither effect nor delegation, is a TypeError."""
    with pytest.raises(TypeError, match="Node 'a' cannot run a str"):
        Graph().add_node("a", "step")  # type: ignore[arg-type]  # that is what is refused


def test_edges_are_read_back() -> None:
    """Targets are kept in the order added; a node without an edge has none."""
    graph = graph_of(steps("a b c"), {"a": "c b", "b": "b"})
    assert graph.edge("a") == Edge("a", ("c", "b"))
    assert graph.edge("b") == Edge("b", ("b",))
    assert graph.edge("c") is None


def test_router_is_read_back() -> None:
    """An edge with a router has no targets."""

    def route(view: Trace) -> str | None:
        return None

    graph = graph_of(steps("a"), {"a": route})
    assert graph.edge("a") == Edge("a", (), route)


@pytest.mark.parametrize(
    ("change", "given", "message"),
    [
        (Graph.add_edge, ("a", "x"), "no node 'x'"),
        (Graph.add_edge, ("x", "a"), "no node 'x'"),
        (Graph.add_edge, ("a", "b"), "from 'a' to 'b' is there already"),
        (Graph.add_edge, ("b", "a"), "'b' has a router"),
        (Graph.add_conditional_edge, ("x", len), "no node 'x'"),
        (Graph.add_conditional_edge, ("a", len), "'a' has an edge"),
        (Graph.add_conditional_edge, ("b", len), "'b' has an edge"),
        (Graph.add_join, ("x",), "no node 'x'"),
        (Graph.is_join, ("x",), "no node 'x'"),
        (Graph.set_entry_point, ("x",), "no node 'x'"),
        (Graph.set_budget, (Budget(1, "x", 1),), "no node 'x'"),
        (Graph.node, ("x",), "no node 'x'"),
        (Graph.edge, ("x",), "no node 'x'"),
    ],
)
def test_calls_that_do_not_fit_are_refused(
    change: Callable[..., object], given: tuple[object, ...], message: str
) -> None:
    """Unknown nodes, an edge that is there, and an edge beside a router are ValueErrors."""
    graph = graph_of(steps("a b c"), {"a": "b", "b": lambda view: None})
    with pytest.raises(ValueError, match=message):
        change(graph, *given)


def test_error_names_the_nodes_that_are_there() -> None:
    """An unknown name is answered with the names that would do."""
    with pytest.raises(ValueError, match=r"\(it has 'a', 'b'\)"):
        graph_of(steps("a b")).node("c")


def test_entry_point_and_budget_can_be_replaced() -> None:
    """The last entry point and the last budget count."""
    graph = graph_of(steps("a b"))
    assert graph.budget is None
    graph.set_entry_point("b")
    graph.set_budget(Budget(1, "a", 1))
    graph.set_budget(Budget(2, "b", 0))
    assert graph.entry_point == "b"
    assert graph.budget == Budget(cap=2, resume_at="b", tolerance=0, resets_on_answer=False)


def test_graph_without_entry_point_says_how_to_set_one() -> None:
    """Asking for the entry point of a graph that has none is a ValueError."""
    with pytest.raises(ValueError, match="set_entry_point"):
        Graph().entry_point  # noqa: B018  # the property is what is refused


def test_joins_are_marked() -> None:
    """A node is a join once it is marked."""
    graph = graph_of(steps("a b"), joins="b")
    assert graph.is_join("b")
    assert not graph.is_join("a")


FRESH = Input(payload="hi")


@pytest.mark.parametrize(
    ("events", "withdraws"),
    [
        ([], False),
        ([FRESH], False),
        ([FRESH, output("m"), tripped("m", 1)], False),
        ([FRESH, output("m"), tripped("m", 2)], True),
        ([FRESH, output("m"), tripped("m", 3)], True),
        ([FRESH, tripped("m", 2), failed("m"), Compaction(text="s", through=1)], True),
        ([FRESH, tripped("m", 2), output("m")], False),
        ([FRESH, tripped("m", 2), FRESH], False),
    ],
)
def test_budget_withdraws_tools_after_the_last_trip(events: list[Event], withdraws: bool) -> None:
    """Tools are withdrawn while the last tolerated trip is the stream's latest own event."""
    view = Trace(log(*events)).view("main")
    assert Budget(cap=1, resume_at="m", tolerance=2).withdraws_tools(view) is withdraws


def test_budget_looks_at_own_events_alone() -> None:
    """Events of branches after a trip, or the parent's trip before a branch, do not count."""
    budget = Budget(cap=1, resume_at="m", tolerance=1)
    events = log(FRESH, tripped("m"), note("a", "main/a#2.1"))
    trace = Trace(events)
    assert budget.withdraws_tools(trace.view("main"))
    assert not budget.withdraws_tools(trace.view("main/a#2.1"))
    assert not budget.withdraws_tools(trace.view("main/b#2.2"))


def test_what_is_spent() -> None:
    """Outputs with calls and trips are counted, in the turn and since the last response."""
    spent = Spent()
    for event in [output("m"), output("m", calls=0), tripped("m"), FRESH, output("m"), note("m")]:
        spent = spent.after(event)
    assert spent == Spent(outputs=2, trips=1, outputs_since=1, trips_since=0)


@pytest.mark.anyio
async def test_abandon_decides_nothing() -> None:
    """The policy that gives an act up returns no event and touches nothing."""
    assert await abandon(None, None, None, None) == ()  # type: ignore[arg-type]  # it looks at none
