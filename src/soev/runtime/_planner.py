"""The plan of a growing trace, for the work of what moved.

`Planner` keeps a cursor for each stream of the current turn. Feeding an event updates one cursor
and asks no graph. Planning asks the graph about the streams that moved and remembers its answers
about the others. `plan` is the definition that it is held to.
"""

from __future__ import annotations

from soev.domain import (
    BudgetExceeded,
    EffectIntent,
    Event,
    Failure,
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
    HandBack,
    OpenTasks,
    Plan,
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
    name_problem,
    no_branch,
    recovery,
    step_action,
    task_graph,
)
from soev.runtime._cursor import PLAIN, Children, Cursor, Log
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Delegation, Graph, is_delegation
from soev.runtime._turn import is_final, opens_turn


class _Decisions:
    """What the graph says about the streams that the log knows, kept until they move."""

    def __init__(self, graph: Graph, since: int) -> None:
        self.graph, self.since = graph, since
        self.log = Log()
        self.ready: dict[str, Cursor] = {}

    def actions(self) -> tuple[Action, ...]:
        """First the turn."""
        log = self.log
        if log.ended or not log.begun or log.cancelled > self.since:
            return ()
        if log.is_over(self.since):
            found = [(each.order, self._recovery(each)) for each in log.intents.values()]
            found.sort(key=lambda item: item[0])
            return tuple(action for _, action in found if action is not None)
        log.main.graph = self.graph
        if self._visit(log.main):
            return (End(),)
        ready = list(self.ready.values())
        if len(ready) > 1:
            ready.sort(key=lambda cursor: cursor.order)
        return tuple(cursor.action for cursor in ready if cursor.action is not None)

    def _visit(self, at: Cursor) -> Done | None:
        """Look at a stream again, as far as it or the streams below it moved."""
        touched = at.touched
        if touched:
            at.touched = []
            waited = at.children.cursors if at.children else {}
            for kid in touched:
                kid.queued = False
                at.stale = at.stale or kid.name not in waited
        if at.stale:
            self._leave(at)
            at.stale = False
            at.outcome = self._decide(at)
        elif touched and at.children:
            for kid in touched:
                at.children.count(kid.outcome, -1)
                at.children.count(self._visit(kid))
            at.outcome = self._settle(at, at.children)
        return at.outcome

    def _decide(self, at: Cursor) -> Done | None:
        """Then each stream: the first row that fits."""
        if at.kind in PLAIN and at.intent is None:
            return self._follow(at)
        last = at.last
        if last is None:
            return self._reach(at, first_node(at.name))
        if self._stopped(at) or (is_final(last) and at.intent is None):
            return self._rescue(at)
        if at.intent is not None:
            return self._act(at, self._recovery(at))
        if isinstance(last, Request):
            return None
        if isinstance(last, Failure):
            return self._due(at, known(_graph(at), last.origin, at.position).name)
        if opens_turn(last):
            return self._due(at, _graph(at).entry_point)
        if isinstance(last, BudgetExceeded):
            return self._tripped(at, last)
        return self._follow(at)

    def _tripped(self, at: Cursor, last: BudgetExceeded) -> Done | None:
        budget = _graph(at).budget
        if budget is None:
            problem = "it passed a cap there, and the graph has no budget"
            raise GraphMismatchError(last.origin or "", at.position, problem)
        return Done() if budget.is_over(at.spent) else self._due(at, budget.resume_at)

    def _follow(self, at: Cursor) -> Done | None:
        graph = _graph(at)
        position, origin = at.decides()
        node = known(graph, origin, position).name
        if at.calling and graph.budget:
            trip = graph.budget.trip(at.spent)
            if trip is not None:
                return self._act(at, Trip(at.name, node, trip))
        try:
            targets = after(graph, node, lambda: self.log.builder.view(at.name))
        except Exception as error:  # noqa: BLE001  # the team's own code may raise anything
            return self._act(at, fault(at.name, node, error))
        if at.kids:
            check_branches(targets, at.hanging(tasks=False))
        if len(targets) > 1:
            return self._fan_out(at, node, targets)
        return self._reach(at, targets[0]) if targets else Done()

    def _reach(self, at: Cursor, node: NodeName) -> Done | None:
        if at.branch and _graph(at).is_join(node):
            return Done(node)
        return self._due(at, node)

    def _due(self, at: Cursor, node: NodeName) -> Done | None:
        delegation = delegated(_graph(at), node, at.hanging(tasks=True))
        if delegation is not None:
            return self._delegate(at, node, delegation)
        return self._act(at, step_action(_graph(at), at.name, node))

    def _fan_out(self, at: Cursor, node: NodeName, targets: tuple[NodeName, ...]) -> Done | None:
        graph, names = _graph(at), branch_names(at.name, at.at, targets)
        problem = fan_out_problem(graph, names, at.fans)
        if problem:
            return self._act(at, fault(at.name, node, problem))
        children = at.children = Children(node)
        for name, target in zip(names, targets, strict=True):
            kid = self.log.cursors.get(name)
            if graph.is_join(target) and (kid is None or kid.last is None or kid.head):
                children.count(Done(target))
            elif kid is not None and kid.head is not None:
                raise no_branch(name, kid.opened)
            else:
                self._enter(at, children, kid or self.log.cursor(name), graph)
        return self._settle(at, children)

    def _delegate(self, at: Cursor, node: NodeName, delegation: Delegation) -> Done | None:
        problem = name_problem(stream_name(at.name, node, at.at, 1))
        if problem:
            return self._act(at, fault(at.name, node, problem))
        tasks = [self.log.cursors[name] for name in at.hanging(tasks=True)]
        graphs: list[Graph] = []
        for task in tasks:
            graph = _made(task, delegation)
            if isinstance(graph, Exception):
                return self._act(at, fault(at.name, node, graph, retry=True))
            graphs.append(graph)
        missing = self._is_missing(at, delegation, tasks)
        children = at.children = Children(node, delegates=True, missing=missing)
        if missing:
            self._act(at, OpenTasks(at.name, node))
        for task, graph in zip(tasks, graphs, strict=True):
            self._enter(at, children, task, graph)
        return self._settle(at, children)

    def _is_missing(self, at: Cursor, delegation: Delegation, tasks: list[Cursor]) -> bool:
        if not tasks:
            return True
        wanted = hand_off_count(delegation, self.log.builder.view(at.name))
        indices = {task.order[-1][1] for task in tasks}
        return wanted is not None and not indices.issuperset(range(1, wanted + 1))

    def _enter(self, at: Cursor, children: Children, kid: Cursor, graph: Graph) -> None:
        """Wait for a branch or a task."""
        kid.graph, kid.branch = graph, not children.delegates
        kid.fans = at.fans + kid.branch
        children.cursors[kid.name] = kid
        children.count(self._visit(kid))

    def _settle(self, at: Cursor, children: Children) -> Done | None:
        """Say what follows the branches or tasks, once all of them ended."""
        if children.missing:
            return None
        if children.open:
            return self._act(at, None)
        if children.delegates:
            return self._act(at, HandBack(at.name, children.node))
        joins = {join for join, count in children.joins.items() if count}
        problem = join_problem(joins)
        if problem:
            return self._act(at, fault(at.name, children.node, problem))
        if joins:
            return self._due(at, joins.pop())
        self._act(at, None)
        return Done()

    def _rescue(self, at: Cursor) -> Done | None:
        """Settle the open intents below a stream that stopped."""
        for name, cursor in self.log.intents.items():
            if name.startswith(at.name + "/"):
                self._act(cursor, self._recovery(cursor))
                cursor.stale = True
                at.rescued.append(cursor)
        return None

    def _recovery(self, at: Cursor) -> Action | None:
        """Return what settles a stream's open intent, None while a request about it waits."""
        if at.intent is None or isinstance(at.last, Request) or self._stopped(at):
            return None
        found = self.found(at)
        graph = found if isinstance(found, Graph) else None
        return recovery(graph, at.name, at.intent, at.intended)

    def _stopped(self, at: Cursor) -> bool:
        """Whether a stream ends with a Failure of this run."""
        return isinstance(at.last, Failure) and at.position > self.since

    def found(self, at: Cursor) -> Graph | Exception:
        """Find the graph of a stream from its name."""
        parts = parse_stream(at.name)
        if parts is None or at.parent is None:
            return self.graph
        graph = self.found(at.parent)
        if isinstance(graph, Exception) or at.head is None:
            return graph
        step = known(graph, parts.node, at.opened).step
        return _made(at, step) if is_delegation(step) else TypeError(f"{parts.node!r} delegates")

    def _act(self, at: Cursor, action: Action | None) -> Done | None:
        """Set what is due in a stream. It has something left to do, so there is no outcome."""
        at.action = action
        if action is None:
            self.ready.pop(at.name, None)
        else:
            self.ready[at.name] = at
        return None

    def _leave(self, at: Cursor) -> None:
        """Take back what was decided about a stream and the streams below it."""
        self._act(at, None)
        if at.children is None and not at.rescued:
            return
        below = [*at.rescued, *(at.children.cursors.values() if at.children else ())]
        at.rescued, at.children = [], None
        for kid in below:
            kid.stale = True
            self._leave(kid)

    def forget(self) -> None:
        """Take back all decisions."""
        self.ready.clear()
        for cursor in self.log.cursors.values():
            cursor.stale, cursor.action, cursor.children, cursor.rescued = True, None, None, []
            cursor.made = cursor.made if isinstance(cursor.made, Graph) else None


def _graph(at: Cursor) -> Graph:
    assert at.graph is not None
    return at.graph


def _made(task: Cursor, delegation: Delegation) -> Graph | Exception:
    """Return the graph of a task. A run asks for it once."""
    if task.made is None:
        assert task.head is not None
        task.made = task_graph(delegation, task.head)
    return task.made


class Planner:
    """Plans a thread that grows: what `plan` says of the whole trace, for the work of what moved.

    It lives as long as the run that feeds it. Older turns cost it nothing.

    Args:
        graph: The graph of the current turn.
        since: The position of the thread when the run took its lease.
    """

    def __init__(self, graph: Graph, *, since: int = 0) -> None:
        self._decisions = _Decisions(graph, since)
        self._log = self._decisions.log

    @property
    def since(self) -> int:
        """The position of the thread when the run took its lease."""
        return self._decisions.since

    @since.setter
    def since(self, position: int) -> None:
        """Begin a run: what failed up to this position is looked at again."""
        self._decisions.since = position
        self._decisions.forget()

    def use(self, graph: Graph) -> None:
        """Go on with another graph, as when the next turn began.

        Args:
            graph: The graph of the turn that the last fresh input opened.
        """
        self._decisions.graph = graph
        self._decisions.forget()

    @property
    def trace(self) -> Trace:
        """The thread's trace."""
        return self._log.builder.trace()

    def view(self, stream: str) -> Trace:
        """Return what a step is given, or a recovery, which can ask it for `thread` to know more.

        Args:
            stream: The stream.
        """
        return self._log.builder.view(stream, whole=stream in self._log.intents)

    def feed(self, event: Event) -> None:
        """Take the next event of the log.

        Args:
            event: The event. One without a seq counts as the next of its stream.
        """
        main = self._log.main
        cursor = self._log.feed(event)
        if self._log.main is not main:
            self._decisions.ready.clear()
        cursor.stale = True
        if cursor.head is event and cursor.parent is not None:
            cursor.parent.stale = True
        cursor.touch()

    def plan(self) -> Plan:
        """Decide what must happen next.

        Raises:
            GraphMismatchError: The graph does not fit what the turn recorded.
        """
        try:
            return Plan(self._decisions.actions(), self._log.state())
        except BaseException:
            self._decisions.forget()
            raise

    def seq(self, stream: str) -> int:
        """Return the seq that the branches and tasks of a stream hang on now.

        Args:
            stream: The stream.
        """
        return self._log.cursor(stream).at

    def intent(self, stream: str) -> EffectIntent | None:
        """Return the open intent of a stream of the current turn, or None."""
        cursor = self._log.intents.get(stream)
        return cursor.intent if cursor else None

    def tasks(self, stream: str) -> tuple[str, ...]:
        """Return the tasks that a stream has opened at its last event, by index.

        Args:
            stream: The stream that delegates.
        """
        return tuple(self._log.cursor(stream).hanging(tasks=True))

    def graph(self, stream: str) -> Graph:
        """Return the graph that a stream of the current turn runs on.

        Args:
            stream: The stream.

        Raises:
            Exception: `graph_for` raised it for the task that the stream belongs to.
        """
        found = self._decisions.found(self._log.cursor(stream))
        if isinstance(found, Exception):
            raise found
        return found
