"""Graphs: the steps of one turn, and what follows each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, TypeGuard

from soev.domain import (
    BudgetExceeded,
    Cancelled,
    Compaction,
    EffectIntent,
    EffectResult,
    Ended,
    Event,
    Failure,
    Input,
    ModelOutput,
    NodeName,
    Opened,
    Trace,
)
from soev.runtime._effects import EffectStep

MAX_NAME: Final = 64

# What the runtime alone records, so no step may return it.
RUNTIME_EVENTS: Final = (
    Input,
    Opened,
    Ended,
    Cancelled,
    Failure,
    BudgetExceeded,
    EffectIntent,
    EffectResult,
)

Step = Callable[[Trace], Awaitable[Sequence[Event]]]
Router = Callable[[Trace], NodeName | None]


class Delegation(Protocol):
    """A node that runs sub-agents, each as a task with a stream of its own."""

    def graph_for(self, task: Input, /) -> Graph:
        """Return the graph of a task, the same one for the same task.

        Args:
            task: The input that heads the task.
        """
        ...

    def hand_offs(self, parent: Trace, /) -> Sequence[Event]:
        """Return an Input for each task, and other events as results without a task.

        It is pure, since it is called again when the tasks ended.

        Args:
            parent: The view of the stream that delegates.
        """
        ...

    def hand_back(self, child: Trace, /) -> Sequence[Event]:
        """Return the events that report an ended task: at least one, no Input, no Request.

        Args:
            child: The task's view.
        """
        ...


def is_effect(step: object) -> TypeGuard[EffectStep]:
    """Whether what a node runs is an effect."""
    return hasattr(step, "intend")


def is_delegation(step: object) -> TypeGuard[Delegation]:
    """Whether what a node runs hands work to sub-agents."""
    return not hasattr(step, "intend") and hasattr(step, "hand_offs")


@dataclass(frozen=True, slots=True)
class Node:
    """A named step. The name is the `origin` of what it records.

    Args:
        name: The name, unique in its graph.
        step: What it runs.
    """

    name: NodeName
    step: Step | EffectStep | Delegation


@dataclass(frozen=True, slots=True)
class Edge:
    """What follows a node: fixed targets, or a router that picks one.

    Args:
        source: The node.
        targets: The nodes that follow, more than one for a fan-out. A target's place, from 1, is
            part of the stream name of its branch.
        router: The function that picks what follows, then there are no targets.
    """

    source: NodeName
    targets: tuple[NodeName, ...] = ()
    router: Router | None = None


class Spent(NamedTuple):
    """What one stream has used of its budget in the current turn.

    Args:
        outputs: Its model outputs that call tools.
        trips: How often it passed the cap.
        outputs_since: The same outputs, since the last response.
        trips_since: The same trips, since the last response.
    """

    outputs: int = 0
    trips: int = 0
    outputs_since: int = 0
    trips_since: int = 0

    def after(self, event: Event) -> Spent:
        """Return what is used after one more event of the stream's own."""
        if isinstance(event, ModelOutput) and event.calls:
            return Spent(self.outputs + 1, self.trips, self.outputs_since + 1, self.trips_since)
        if isinstance(event, BudgetExceeded):
            return self._replace(trips=self.trips + 1, trips_since=self.trips_since + 1)
        if isinstance(event, Input):
            return self._replace(outputs_since=0, trips_since=0)
        return self


@dataclass(frozen=True, slots=True)
class Budget:
    """A cap on the model outputs that call tools, in one stream of a turn.

    The output that passes the cap is followed by BudgetExceeded in place of its tools.

    Args:
        cap: How many such outputs are let through.
        resume_at: The node that runs after the cap was passed.
        tolerance: How often the stream resumes there. One more trip ends the stream.
        resets_on_answer: Whether the count starts anew at each response.
    """

    cap: int
    resume_at: NodeName
    tolerance: int
    resets_on_answer: bool = False

    def trip(self, spent: Spent) -> BudgetExceeded | None:
        """Return what to record when the cap is passed, else None.

        Args:
            spent: What the stream has used, the output in question included.
        """
        outputs, trips = self._counted(spent)
        return BudgetExceeded(cap=self.cap, trip=trips + 1) if outputs > self.cap else None

    def is_over(self, spent: Spent) -> bool:
        """Whether the stream ends at its last trip, since no more is tolerated."""
        return self._counted(spent)[1] > self.tolerance

    def _counted(self, spent: Spent) -> tuple[int, int]:
        if self.resets_on_answer:
            return spent.outputs_since, spent.trips_since
        return spent.outputs, spent.trips

    def withdraws_tools(self, view: Trace) -> bool:
        """Whether the next model call on a view gets no tools, since no trip is left.

        Args:
            view: The stream's view.
        """
        for event in reversed(view):
            if event.stream == view.stream and not isinstance(event, Compaction | Failure):
                return isinstance(event, BudgetExceeded) and event.trip >= self.tolerance
        return False


class Graph:
    """The nodes and edges of one turn. It is built anew for each turn.

    The runtime never changes it, so nothing may change it while its turn runs.
    """

    def __init__(self) -> None:
        self._nodes: dict[NodeName, Node] = {}
        self._edges: dict[NodeName, Edge] = {}
        self._joins: set[NodeName] = set()
        self._entry_point: NodeName | None = None
        self._budget: Budget | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in the order in which they were added."""
        return tuple(self._nodes.values())

    @property
    def budget(self) -> Budget | None:
        """The budget of each of its streams, or None."""
        return self._budget

    @property
    def entry_point(self) -> NodeName:
        """The node that runs first.

        Raises:
            ValueError: None was set.
        """
        if self._entry_point is None:
            raise ValueError(
                "The graph has no entry point. Set one with `Graph.set_entry_point(name)`."
            )
        return self._entry_point

    def add_node(self, name: NodeName, step: Step | EffectStep | Delegation) -> None:
        """Add a node.

        Args:
            name: Its name: 1 to 64 characters, without `/` and `#`.
            step: What it runs. An object with `intend` is an EffectStep, one with `hand_offs` a
                Delegation, anything else that can be called a Step.

        Raises:
            ValueError: The name is taken, or no node can have it.
            TypeError: The step is none of the three.
        """
        if not 1 <= len(name) <= MAX_NAME or "/" in name or "#" in name:
            raise ValueError(
                f"No node can have the name {name!r}. "
                f"Use 1 to {MAX_NAME} characters without `/` and `#`."
            )
        if name in self._nodes:
            raise ValueError(f"The graph has a node {name!r} already. Use another name.")
        if not (is_effect(step) or is_delegation(step) or callable(step)):
            raise TypeError(
                f"Node {name!r} cannot run a {type(step).__name__}. Give it an async function, an "
                "`EffectStep` (with `intend`) or a `Delegation` (with `hand_offs`)."
            )
        self._nodes[name] = Node(name, step)

    def add_edge(self, source: NodeName, target: NodeName) -> None:
        """Add a fixed target. A second one from the same source makes a fan-out.

        Args:
            source: The node that it follows.
            target: The node that runs next.

        Raises:
            ValueError: A node is unknown, the edge is there, or the source has a router.
        """
        self._check_known(source, target)
        edge = self._edges.get(source, Edge(source))
        if edge.router is not None:
            raise ValueError(
                f"Node {source!r} has a router, so it gets no edge to {target!r}. "
                f"Let the router return {target!r}."
            )
        if target in edge.targets:
            raise ValueError(f"The edge from {source!r} to {target!r} is there already. Drop it.")
        self._edges[source] = replace(edge, targets=(*edge.targets, target))

    def add_conditional_edge(self, source: NodeName, router: Router) -> None:
        """Let a router pick what follows a node.

        Args:
            source: The node that it follows. It has no edge yet.
            router: A pure function from the stream's view to the next node, None for the end.

        Raises:
            ValueError: The source is unknown or has an edge.
        """
        self._check_known(source)
        if source in self._edges:
            raise ValueError(
                f"Node {source!r} has an edge, so it gets no router. Let one router pick each "
                "target."
            )
        self._edges[source] = Edge(source, router=router)

    def add_join(self, name: NodeName) -> None:
        """Mark a node as the place where branches meet.

        A branch that reaches it by an edge ends. When all branches ended, it runs once in the
        stream that fanned out. In a stream that is no branch it is an ordinary node.

        Args:
            name: The node.

        Raises:
            ValueError: The node is unknown.
        """
        self._check_known(name)
        self._joins.add(name)

    def is_join(self, name: NodeName) -> bool:
        """Whether a node is marked as a join.

        Raises:
            ValueError: The node is unknown.
        """
        self._check_known(name)
        return name in self._joins

    def set_entry_point(self, name: NodeName) -> None:
        """Set, or replace, the node that runs first.

        Raises:
            ValueError: The node is unknown.
        """
        self._check_known(name)
        self._entry_point = name

    def set_budget(self, budget: Budget) -> None:
        """Set, or replace, the budget of each of its streams.

        Raises:
            ValueError: `budget.resume_at` is unknown.
        """
        self._check_known(budget.resume_at)
        self._budget = budget

    def node(self, name: NodeName) -> Node:
        """Return a node.

        Raises:
            ValueError: The node is unknown.
        """
        node = self._nodes.get(name)
        if node is None:
            raise self._unknown(name)
        return node

    def has_node(self, name: NodeName) -> bool:
        """Whether there is a node of this name."""
        return name in self._nodes

    def edge(self, source: NodeName) -> Edge | None:
        """Return the edge that leaves a node, None where a stream ends after it.

        Raises:
            ValueError: The node is unknown.
        """
        if source not in self._nodes:
            raise self._unknown(source)
        return self._edges.get(source)

    def _check_known(self, *names: NodeName) -> None:
        for name in names:
            if name not in self._nodes:
                raise self._unknown(name)

    def _unknown(self, name: NodeName) -> ValueError:
        known = ", ".join(repr(node) for node in self._nodes) or "none"
        return ValueError(
            f"The graph has no node {name!r} (it has {known}). "
            "Add it with `Graph.add_node`, or correct the name."
        )
