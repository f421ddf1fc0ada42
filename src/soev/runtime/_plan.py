"""What must happen next in a turn: one pure function of a graph and a trace.

`plan` is the definition. It reads the whole turn each time, so that each line can be held beside
the contract's table. `Planner` in `_planner.py` gives the same answers for the work of what moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from soev.domain import (
    ROOT_STREAM,
    BudgetExceeded,
    Cancelled,
    Event,
    Failure,
    Input,
    ModelOutput,
    NodeName,
    Request,
    Trace,
    parse_stream,
    stream_name,
)
from soev.runtime._actions import (
    Action,
    Done,
    End,
    Fault,
    HandBack,
    Intend,
    OpenTasks,
    Plan,
    Recover,
    RunStep,
    Trip,
    after,
    branch_names,
    check_branches,
    delegated,
    fan_out_problem,
    fault,
    first_node,
    hand_off_count,
    join_problem,
    known,
    moves,
    name_problem,
    no_branch,
    order,
    place,
    recovery,
    step_action,
    task_graph,
)
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import RUNTIME_EVENTS, Delegation, Graph, Spent, is_delegation
from soev.runtime._planner import Planner
from soev.runtime._turn import above, is_final, opens_turn, read_turn

__all__ = [
    "Action",
    "End",
    "Fault",
    "HandBack",
    "Intend",
    "OpenTasks",
    "Plan",
    "Planner",
    "Recover",
    "RunStep",
    "Trip",
    "plan",
]


def plan(graph: Graph, trace: Trace, *, since: int = 0) -> Plan:
    """Decide what must happen next in a thread's current turn.

    Args:
        graph: The graph of the turn.
        trace: The thread's trace.
        since: The position of the thread when this run took its lease. A Failure or Cancelled up
            to it was found, a later one happened in this run.

    Raises:
        GraphMismatchError: The graph does not fit what the turn recorded.
    """
    thread = trace.thread
    actions = _Turn(graph, thread, since).actions()
    return Plan(actions, read_turn(thread).state(held=False))


class _Own(NamedTuple):
    """An event of one stream: its place in the log, in its stream, and itself."""

    position: int
    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class _Stream:
    """A stream as the plan finds it.

    Args:
        name: Its name.
        graph: The graph that it runs on.
        own: Its own events in the turn.
        branch: Whether it is a branch.
        fans: How many fan-outs it is nested in.
    """

    name: str
    graph: Graph
    own: list[_Own]
    branch: bool = False
    fans: int = 0

    @property
    def seq(self) -> int:
        """The seq that branches and tasks hang on."""
        return next((seq for _, seq, event in reversed(self.own) if moves(event)), 0)


class _Turn:
    """One reading of the current turn. Each method is a part of the contract's table."""

    def __init__(self, graph: Graph, trace: Trace, since: int) -> None:
        self.graph, self.trace, self.since = graph, trace, since
        self.reading = read_turn(trace)
        self.own: dict[str, list[_Own]] = {}
        self.opened: dict[str, int] = {}
        self.found: list[Action] = []
        start, seqs = len(trace) - len(trace.turn), dict[str, int]()
        for position, event in enumerate(trace, 1):
            seqs[event.stream] = event.seq or seqs.get(event.stream, 0) + 1
            if position > start:
                self.own.setdefault(event.stream, []).append(
                    _Own(position, seqs[event.stream], event)
                )
                for name in (event.stream, *above(event.stream)):
                    self.opened.setdefault(name, position)

    def actions(self) -> tuple[Action, ...]:
        """First the turn."""
        if self.reading.ended or not self.reading.begun:
            return ()
        cancels = [at for at, _, event in self.own[ROOT_STREAM] if isinstance(event, Cancelled)]
        if any(position > self.since for position in cancels):
            return ()
        stands = self.reading.standing.items()
        if cancels or any(is_final(event) and index < self.since for index, event in stands):
            self.recover_below("")
        elif self.stream(_Stream(ROOT_STREAM, self.graph, self.own[ROOT_STREAM])):
            return (End(),)
        return tuple(sorted(self.found, key=place))

    def stream(self, at: _Stream) -> Done | None:
        """Then each stream: the first row that fits."""
        if not at.own:
            return self.reach(at, first_node(at.name))
        position, _, last = at.own[-1]
        intent = at.name in self.reading.intents
        if self.stopped(position, last) or (is_final(last) and not intent):
            return self.recover_below(at.name + "/")
        if intent:
            return self.recover(at.name, at.graph)
        if isinstance(last, Request):
            return None
        if isinstance(last, Failure):
            return self.due(at, known(at.graph, last.origin, position).name)
        if opens_turn(last):
            return self.due(at, at.graph.entry_point)
        if isinstance(last, BudgetExceeded):
            return self.tripped(at, position, last)
        return self.follow(at, position, last)

    def tripped(self, at: _Stream, position: int, last: BudgetExceeded) -> Done | None:
        """The budget's `resume_at`, or the end after more trips than are tolerated."""
        budget = at.graph.budget
        if budget is None:
            raise GraphMismatchError(
                last.origin or "", position, "it passed a cap there, and the graph has no budget"
            )
        return Done() if budget.is_over(self.spent(at)) else self.due(at, budget.resume_at)

    def follow(self, at: _Stream, position: int, last: Event) -> Done | None:
        """The budget, then N's edge."""
        node = last.origin
        if isinstance(last, Input):
            asked = {seq: (p, e.origin) for p, seq, e in at.own if isinstance(e, Request)}
            position, node = asked.get(last.answers or 0, (position, None))
        name = known(at.graph, node, position).name
        trip = at.graph.budget.trip(self.spent(at)) if at.graph.budget else None
        if trip is not None and calls_in_last_append(at.own):
            self.found.append(Trip(at.name, name, trip))
            return None
        return self.edge(at, name)

    def edge(self, at: _Stream, node: NodeName) -> Done | None:
        """The fixed target or the router's answer, or branches, or the stream's end."""
        try:
            targets = after(at.graph, node, lambda: self.trace.view(at.name))
        except Exception as error:  # noqa: BLE001  # the team's own code may raise anything
            return self.fault(at, node, error)
        check_branches(targets, self.hanging(at, tasks=False))
        if len(targets) > 1:
            return self.fan_out(at, node, targets)
        return self.reach(at, targets[0]) if targets else Done()

    def reach(self, at: _Stream, node: NodeName) -> Done | None:
        """Go to a node by an edge: a branch ends at a join."""
        if at.branch and at.graph.is_join(node):
            return Done(node)
        return self.due(at, node)

    def due(self, at: _Stream, node: NodeName) -> Done | None:
        """A node is due."""
        delegation = delegated(at.graph, node, self.hanging(at, tasks=True))
        if delegation is not None:
            return self.delegate(at, node, delegation)
        self.found.append(step_action(at.graph, at.name, node))
        return None

    def fan_out(self, at: _Stream, node: NodeName, targets: tuple[NodeName, ...]) -> Done | None:
        """Branches start, each is planned by the table, and the join that they reached runs."""
        names = branch_names(at.name, at.seq, targets)
        problem = fan_out_problem(at.graph, names, at.fans)
        if problem:
            return self.fault(at, node, problem)
        ends = []
        for name in names:
            own = self.own.get(name, [])
            if self.is_task(name):
                if not at.graph.is_join(first_node(name)):
                    raise no_branch(name, self.opened[name])
                own = []
            ends.append(self.stream(_Stream(name, at.graph, own, True, at.fans + 1)))
        if None in ends:
            return None
        joins = {end.join for end in ends if end is not None and end.join is not None}
        problem = join_problem(joins)
        if problem:
            return self.fault(at, node, problem)
        return self.due(at, joins.pop()) if joins else Done()

    def delegate(self, at: _Stream, node: NodeName, delegation: Delegation) -> Done | None:
        """Tasks are opened, each is planned by the table, and what they did is handed back."""
        tasks = self.hanging(at, tasks=True)
        problem = name_problem(stream_name(at.name, node, at.seq, 1))
        if problem:
            return self.fault(at, node, problem)
        graphs = {name: task_graph(delegation, self.head(name)) for name in tasks}
        for graph in graphs.values():
            if isinstance(graph, Exception):
                return self.fault(at, node, graph, retry=True)
        missing = not tasks or self.is_missing(at, delegation, tasks)
        ended = not missing
        for name, graph in graphs.items():
            assert isinstance(graph, Graph)
            done = self.stream(_Stream(name, graph, self.own[name], fans=at.fans))
            ended = ended and done is not None
        if missing or ended:
            self.found.append((OpenTasks if missing else HandBack)(at.name, node))
        return None

    def is_missing(self, at: _Stream, delegation: Delegation, tasks: dict[str, int]) -> bool:
        """Whether a hand-off was cut in the middle of its tasks."""
        wanted = hand_off_count(delegation, self.trace.view(at.name))
        indices = {order(name)[-1][1] for name in tasks}
        return wanted is not None and not indices.issuperset(range(1, wanted + 1))

    def recover(self, name: str, graph: Graph | None = None) -> Done | None:
        """Settle a stream's open intent, unless a request about it waits."""
        position, _, last = self.own[name][-1]
        if not isinstance(last, Request) and not self.stopped(position, last):
            graph = graph or self.graph_of(name)
            intent = self.reading.intents[name]
            opened = next(at for at, _, event in self.own[name] if event is intent)
            self.found.append(recovery(graph, name, intent, opened))
        return None

    def recover_below(self, prefix: str) -> Done | None:
        """Settle the open intents of the streams whose name begins like this."""
        for name in self.reading.intents:
            if name.startswith(prefix):
                self.recover(name)
        return None

    def graph_of(self, name: str) -> Graph | None:
        """Find the graph of a stream from its name, None when it cannot be built."""
        parts = parse_stream(name)
        if parts is None:
            return self.graph
        graph = self.graph_of(parts.parent)
        if graph is None or not self.is_task(name):
            return graph
        step = known(graph, parts.node, self.opened[name]).step
        found = task_graph(step, self.head(name)) if is_delegation(step) else None
        return found if isinstance(found, Graph) else None

    def stopped(self, position: int, last: Event) -> bool:
        """Whether a stream ends with a Failure of this run."""
        return isinstance(last, Failure) and position > self.since

    def spent(self, at: _Stream) -> Spent:
        """Count what the stream has used of its budget."""
        return reduce(Spent.after, (event for _, _, event in at.own), Spent())

    def fault(
        self, at: _Stream, node: NodeName, reason: str | Exception, *, retry: bool = False
    ) -> Done | None:
        """Stop a stream for which the graph is wrong."""
        self.found.append(fault(at.name, node, reason, retry=retry))
        return None

    def head(self, task: str) -> Input:
        """Return the input that heads a task."""
        event = self.own[task][0].event
        assert isinstance(event, Input)
        return event

    def is_task(self, name: str) -> bool:
        """Whether a stream is a task: an Input heads it."""
        return name in self.own and isinstance(self.own[name][0].event, Input)

    def hanging(self, at: _Stream, *, tasks: bool) -> dict[str, int]:
        """Return the tasks or branches on the stream's last event, and where they began."""
        found = {}
        for name, position in self.opened.items():
            parts = parse_stream(name)
            here = parts is not None and (parts.parent, parts.seq) == (at.name, at.seq)
            if here and self.is_task(name) is tasks:
                found[name] = position
        return dict(sorted(found.items(), key=lambda item: order(item[0])))


def calls_in_last_append(own: list[_Own]) -> bool:
    """Whether a stream ends with an output with calls, or with what its node returned with it."""
    last = own[-1].event
    for _, _, event in reversed(own):
        returned = event.origin == last.origin and not isinstance(event, RUNTIME_EVENTS)
        if not returned or (event is not last and event.left == 0):
            return False
        if isinstance(event, ModelOutput) and event.calls:
            return True
    return False
