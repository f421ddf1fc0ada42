"""What a plan is made of: the actions, and the rules about a graph that decide between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from soev.domain import (
    BudgetExceeded,
    Cancelled,
    EffectIntent,
    Event,
    Failure,
    Input,
    NodeName,
    Trace,
    TransientError,
    parse_stream,
    stamped,
    stream_name,
)
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Delegation, Graph, Node, is_delegation, is_effect
from soev.runtime._turn import ThreadState

MAX_STREAM_NAME: Final = 1_000
MAX_FAN_OUTS: Final = 32


@dataclass(frozen=True, slots=True)
class RunStep:
    """A step is due.

    Args:
        stream: The stream that it runs in.
        node: The node.
    """

    stream: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class Intend:
    """An effect is due: intend, append, perform, append the result.

    Args:
        stream: The stream that it runs in.
        node: The node.
    """

    stream: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class Recover:
    """An intent was left without a result, so its recovery is due.

    Args:
        stream: The stream of the intent.
        node: The node that intended.
        intent: The intent.
    """

    stream: str
    node: NodeName
    intent: EffectIntent


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """A delegation starts its tasks, or those that are missing.

    Args:
        stream: The stream that delegates.
        node: The delegation.
    """

    stream: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class HandBack:
    """All tasks of a delegation ended, so it reports them.

    Args:
        stream: The stream that delegates.
        node: The delegation.
    """

    stream: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class Trip:
    """A model output passed the budget's cap.

    Args:
        stream: The stream of the output.
        node: The node of the output, the origin of what is recorded.
        event: What to record.
    """

    stream: str
    node: NodeName
    event: BudgetExceeded


@dataclass(frozen=True, slots=True)
class Fault:
    """The graph is wrong for this trace.

    Args:
        stream: The stream that stops.
        failure: What to record, its stream and origin filled in.
        error: What the graph's own code raised, for the log of the process.
    """

    stream: str
    failure: Failure
    error: Exception | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class End:
    """No stream has anything left to do, and none waits."""


Action = RunStep | Intend | Recover | OpenTasks | HandBack | Trip | Fault | End


@dataclass(frozen=True, slots=True)
class Plan:
    """What must happen next.

    Args:
        actions: At most one for each stream, parents before their streams, siblings by index.
        state: The state of the thread while nobody holds its lease.
    """

    actions: tuple[Action, ...]
    state: ThreadState


class Done(NamedTuple):
    """A stream has nothing left to do.

    Args:
        join: The join at which its branch ended, or None.
    """

    join: NodeName | None = None


def moves(event: Event) -> bool:
    """Whether an event can have branches and tasks: all but Failures and Cancelled."""
    return not isinstance(event, Failure | Cancelled)


def hand_off_view(view: Trace) -> Trace:
    """Return what `hand_offs` is shown of a view, so that a retry after a Failure sees the same.

    Args:
        view: The view of the stream that delegates.
    """
    stop = len(view)
    while stop and view[stop - 1].stream == view.stream and not moves(view[stop - 1]):
        stop -= 1
    return view[:stop]


def first_node(stream: str) -> NodeName:
    """Return the node that a branch begins with, or the delegation of a task."""
    parts = parse_stream(stream)
    return parts.node if parts else ""


def order(stream: str) -> tuple[tuple[int, int, str], ...]:
    """Return where a stream stands among the others: parents first, then siblings by index."""
    parts = parse_stream(stream)
    return (*order(parts.parent), (parts.seq, parts.index, parts.node)) if parts else ()


def place(action: Action) -> tuple[tuple[int, int, str], ...]:
    """Return where an action stands among those of other streams."""
    return () if isinstance(action, End) else order(action.stream)


def failure_of(error: BaseException, *, transient: bool | None = None) -> Failure:
    """Return what to record of an error that the team's own code raised.

    Args:
        error: The error.
        transient: Whether a resume tries again. The default says so of a TransientError.
    """
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # an error may fail to tell itself
        message = "(its text could not be read)"
    return Failure(
        error_type=type(error).__name__,
        message=message.encode("utf-8", "replace").decode("utf-8"),
        transient=isinstance(error, TransientError) if transient is None else transient,
    )


def fault(stream: str, node: NodeName, reason: str | Exception, *, retry: bool = False) -> Fault:
    """Return the Fault of a stream.

    Args:
        stream: The stream that stops.
        node: The node whose edge, or whose tasks, it is about.
        reason: What the team's own code raised, or what is wrong.
        retry: Whether a TransientError is tried again.
    """
    error = reason if isinstance(reason, Exception) else None
    failure = failure_of(error or ValueError(reason), transient=None if retry else False)
    return Fault(stream, stamped(failure, stream=stream, origin=node), error)


def known(graph: Graph, node: NodeName | None, position: int) -> Node:
    """Return a node that the log names and that decides what is next.

    Raises:
        GraphMismatchError: The graph has no such node.
    """
    if node is None or not graph.has_node(node):
        raise GraphMismatchError(node or "", position, "the graph has no such node")
    return graph.node(node)


def recovery(graph: Graph | None, stream: str, intent: EffectIntent, position: int) -> Recover:
    """Return the Recover of an open intent.

    Args:
        graph: The stream's graph, None when it could not be built.
        stream: The stream.
        intent: The intent.
        position: The intent's position.

    Raises:
        GraphMismatchError: The graph has no such node, or it is no effect.
    """
    if graph is not None and not is_effect(known(graph, intent.origin, position).step):
        raise GraphMismatchError(
            intent.origin or "", position, "it has an open intent there, and the node is no effect"
        )
    return Recover(stream, intent.origin or "", intent)


def after(graph: Graph, node: NodeName, view: Callable[[], Trace]) -> tuple[NodeName, ...]:
    """Return the targets of a node's edge: what its router picks, or its fixed targets.

    Args:
        graph: The graph.
        node: The node.
        view: Makes the view that a router is shown.

    Raises:
        Exception: The router raised it.
        ValueError: The router named an unknown node.
    """
    edge = graph.edge(node)
    if edge is None or edge.router is None:
        return edge.targets if edge else ()
    target = edge.router(view())
    if target is None:
        return ()
    if not graph.has_node(target):
        raise ValueError(f"the router after {node!r} picked {target!r}, which is no node")
    return (target,)


def step_action(graph: Graph, stream: str, node: NodeName) -> RunStep | Intend:
    """Return the action for a node that is due and that is no delegation."""
    return (Intend if is_effect(graph.node(node).step) else RunStep)(stream, node)


def fan_out_problem(graph: Graph, names: list[str], fans: int) -> str | None:
    """Say why a fan-out cannot start, None when it can.

    Args:
        graph: The stream's graph.
        names: The streams of the branches. A target that is a join opens none.
        fans: How many fan-outs the stream is nested in.
    """
    if fans >= MAX_FAN_OUTS:
        return f"fan-outs are nested deeper than {MAX_FAN_OUTS}"
    opened = [name for name in names if not graph.is_join(first_node(name))]
    return name_problem(max(opened, key=len, default=""))


def name_problem(name: str) -> str | None:
    """Say why no stream can have a name, None when one can."""
    if len(name) <= MAX_STREAM_NAME:
        return None
    return f"the name of a stream would pass {MAX_STREAM_NAME:,} characters: {name[:80]}..."


def join_problem(joins: set[NodeName]) -> str | None:
    """Say why branches cannot meet, None when they can."""
    if len(joins) <= 1:
        return None
    return f"the branches reached different joins: {', '.join(map(repr, sorted(joins)))}"


def branch_names(stream: str, seq: int, targets: tuple[NodeName, ...]) -> list[str]:
    """Return the streams of a fan-out's branches, in the order of its targets."""
    return [stream_name(stream, node, seq, index) for index, node in enumerate(targets, 1)]


def task_graph(delegation: Delegation, head: Input) -> Graph | Exception:
    """Return the graph of a task, or what went wrong when it was made."""
    try:
        graph = delegation.graph_for(head)
        graph.entry_point  # noqa: B018  # a graph without one cannot run
    except Exception as error:  # noqa: BLE001  # the team's own code may raise anything
        return error
    return graph


def hand_off_count(delegation: Delegation, view: Trace) -> int | None:
    """Return how many tasks a delegation wants, None when it cannot tell now.

    What it raises is recorded when the engine asks it, so here it only leaves the count open.
    """
    try:
        events = delegation.hand_offs(hand_off_view(view))
        return sum(isinstance(event, Input) for event in events)
    except Exception:  # noqa: BLE001  # the team's own code may raise anything
        return None


def delegated(graph: Graph, node: NodeName, tasks: dict[str, int]) -> Delegation | None:
    """Return the delegation that is due, None when the node is none.

    Args:
        graph: The stream's graph.
        node: The node that is due.
        tasks: The tasks that hang on the stream's last event, and where they were opened.

    Raises:
        GraphMismatchError: The tasks are those of another delegation.
    """
    step = graph.node(node).step
    delegation = step if is_delegation(step) else None
    for name, position in tasks.items():
        if delegation is None or first_node(name) != node:
            problem = f"it runs tasks there, and in today's graph {node!r} is due"
            raise GraphMismatchError(first_node(name), position, problem)
    return delegation


def no_branch(name: str, position: int) -> GraphMismatchError:
    """Return the error for a task that has the name of a branch that today's graph starts."""
    problem = "a task began there, and in today's graph it is a branch"
    return GraphMismatchError(first_node(name), position, problem)


def check_branches(targets: tuple[NodeName, ...], branches: dict[str, int]) -> None:
    """Hold the branches that hang on a stream's last event against today's targets.

    Args:
        targets: What follows in today's graph.
        branches: The recorded branches, and where they began.

    Raises:
        GraphMismatchError: One of them is not among the targets under its index.
    """
    for name, position in branches.items():
        parts = parse_stream(name)
        assert parts is not None
        fans_out = len(targets) > 1
        if not fans_out or targets[parts.index - 1 : parts.index] != (parts.node,):
            problem = f"branch {parts.index} began there, and today's graph has no such branch"
            raise GraphMismatchError(parts.node, position, problem)
