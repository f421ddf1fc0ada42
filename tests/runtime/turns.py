"""Events, graphs and random turns to plan, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from soev.domain import (
    ROOT_STREAM,
    BudgetExceeded,
    Cancelled,
    Compaction,
    EffectIntent,
    EffectResult,
    Element,
    Ended,
    Event,
    Failure,
    Input,
    ModelOutput,
    NodeName,
    Request,
    ToolCall,
    ToolOutput,
    Trace,
    TransientError,
    stamped,
    stream_name,
)
from soev.runtime._actions import Fault, hand_off_view
from soev.runtime._effects import Effector, abandon
from soev.runtime._graph import Budget, Graph
from soev.runtime._plan import (
    Action,
    HandBack,
    Intend,
    OpenTasks,
    Planner,
    Recover,
    RunStep,
    Trip,
    plan,
)
from soev.runtime._turn import read_turn


class Note(Event):
    """An event of the tests' own."""

    type: ClassVar[str] = "note"

    text: str = ""


class Doc(Element):
    """An element of the tests' own."""

    tag: ClassVar[str] = "doc"


async def step(view: Trace) -> Sequence[Event]:
    """Stand for any step. Plans never run it."""
    return (Note(),)


class Mail:
    """An effect. Plans never perform it."""

    effector: Effector
    cancellation = staticmethod(abandon)

    async def recovery(
        self, trace: Trace, intent: EffectIntent, effector: Effector
    ) -> Sequence[Event]:
        return ()

    def intend(self, trace: Trace) -> EffectIntent:
        return EffectIntent(kind="mail")


@dataclass
class Team:
    """A delegation to sub-agents that all run one graph."""

    graph: Graph
    size: Callable[[Trace], int] = lambda view: 1
    broken: tuple[int, ...] = ()
    error: Exception = field(default_factory=lambda: ValueError("no graph"))

    def hand_offs(self, parent: Trace, /) -> Sequence[Event]:
        return [Input(payload=n) for n in range(1, self.size(parent) + 1)] or [Note()]

    def graph_for(self, task: Input, /) -> Graph:
        if task.payload in self.broken:
            raise self.error
        return self.graph

    def hand_back(self, child: Trace, /) -> Sequence[Event]:
        return (Note(text=str(len(child))),)


def graph_of(
    nodes: dict[str, object],
    edges: Mapping[str, str | Callable[[Trace], NodeName | None]] | None = None,
    *,
    joins: str = "",
    budget: Budget | None = None,
) -> Graph:
    """Make a graph: nodes by name, the first one is the entry; targets as words or a router."""
    graph = Graph()
    for name, runs in nodes.items():
        graph.add_node(name, runs)  # type: ignore[arg-type]  # tables of nodes mix the kinds
    for source, targets in (edges or {}).items():
        if callable(targets):
            graph.add_conditional_edge(source, targets)
        else:
            for target in targets.split():
                graph.add_edge(source, target)
    for join in joins.split():
        graph.add_join(join)
    if budget is not None:
        graph.set_budget(budget)
    graph.set_entry_point(next(iter(nodes)))
    return graph


def steps(names: str) -> dict[str, object]:
    """Name steps."""
    return dict.fromkeys(names.split(), step)


def log(*events: Event | Sequence[Event]) -> list[Event]:
    """Stamp seq and `left` as a store does. A list is one append."""
    seqs: dict[str, int] = {}
    stored: list[Event] = []
    for part in events:
        batch = [part] if isinstance(part, Event) else list(part)
        for place, event in enumerate(batch):
            seqs[event.stream] = seqs.get(event.stream, 0) + 1
            left = sum(later.stream == event.stream for later in batch[place + 1 :])
            stored.append(stamped(event, seq=seqs[event.stream], left=left))
    return stored


def ends(events: Sequence[Event]) -> list[int]:
    """Return the lengths at which an append ended."""
    open_parts: dict[str, int] = {}
    found = []
    for count, event in enumerate(events, 1):
        open_parts[event.stream] = event.left or 0
        if not any(open_parts.values()):
            found.append(count)
    return found


def note(node: str, stream: str = ROOT_STREAM) -> Note:
    """Return an event that a step returned."""
    return Note(origin=node, stream=stream)


def output(node: str, stream: str = ROOT_STREAM, calls: int = 1) -> ModelOutput:
    """Return a model's answer that calls tools."""
    called = tuple(ToolCall(id=f"c{n}", name="t", arguments={}) for n in range(calls))
    return ModelOutput(origin=node, stream=stream, calls=called)


def request(node: str, stream: str = ROOT_STREAM) -> Request:
    """Return a request that a node returned."""
    return Request(kind="approval", actor="person", origin=node, stream=stream)


def failed(node: str, stream: str = ROOT_STREAM, *, transient: bool = False) -> Failure:
    """Return a failure of a node."""
    return Failure(error_type="E", message="m", transient=transient, origin=node, stream=stream)


def intent(node: str, stream: str = ROOT_STREAM, key: str = "i1") -> EffectIntent:
    """Return an intent of a node."""
    return EffectIntent(kind="mail", id=key, origin=node, stream=stream)


def result(node: str, stream: str = ROOT_STREAM, key: str = "i1") -> EffectResult:
    """Return the result of an intent."""
    return EffectResult(intent=key, origin=node, stream=stream)


def tripped(node: str, trip: int = 1, stream: str = ROOT_STREAM, cap: int = 1) -> BudgetExceeded:
    """Return a passing of the cap."""
    return BudgetExceeded(cap=cap, trip=trip, origin=node, stream=stream)


def actions(graph: Graph, events: Sequence[Event], since: int | None = None) -> tuple[Action, ...]:
    """Plan a log by the definition and by the planner, and hold one to the other.

    Without `since` the run began after the last event.
    """
    begun = len(events) if since is None else since
    planner = Planner(graph, since=begun)
    for event in events:
        planner.feed(event)
    defined = plan(graph, Trace(events), since=begun)
    assert planner.plan() == defined
    return defined.actions


class Crew:
    """Makes random graphs, and random turns that are valid for them.

    Args:
        random: Where all choices come from.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.graph = self.make(depth=0)
        self.events: list[Event] = []
        self.since = 0
        self.seqs: dict[str, int] = {}
        self.ids = 0

    def make(self, depth: int) -> Graph:
        """Make a graph whose routers and hand-offs depend on the length of the view."""
        pick = self.random
        names = [f"n{n}" for n in range(pick.randint(2, 6))]
        graph = Graph()
        for name in names:
            kind = pick.random()
            runs: object = step
            if kind < 0.15:
                runs = Mail()
            elif kind < 0.3 and depth < 2:
                size, offset = pick.randint(1, 4), pick.randint(0, 3)
                broken = (pick.randint(1, 3),) if pick.random() < 0.15 else ()
                error = pick.choice([ValueError("no graph"), TransientError("not now")])
                runs = Team(self.make(depth + 1), _sized(size, offset), broken, error)
            graph.add_node(name, runs)  # type: ignore[arg-type]  # one of the three kinds
        for name in names:
            self._leave(graph, name, names)
        for name in names[1:]:
            if pick.random() < 0.4:
                graph.add_join(name)
        graph.set_entry_point(names[0])
        if pick.random() < 0.7:
            graph.set_budget(
                Budget(
                    pick.randint(0, 2), pick.choice(names), pick.randint(0, 2), pick.random() < 0.5
                )
            )
        return graph

    def _leave(self, graph: Graph, name: str, names: list[str]) -> None:
        pick, kind = self.random, self.random.random()
        if kind < 0.35:
            for target in pick.sample(names, pick.randint(2, min(3, len(names)))):
                graph.add_edge(name, target)
        elif kind < 0.6:
            graph.add_edge(name, pick.choice(names))
        elif kind < 0.9:
            answers = [pick.choice([*names, *names, None]) for _ in range(3)]
            if pick.random() < 0.1:
                answers[0] = pick.choice(["nowhere", "raise"])
            graph.add_conditional_edge(name, _routed(answers))

    def turn(self, appends: int) -> list[Event]:
        """Run a thread for a number of appends and return its log."""
        self.append(Input(payload="go"))
        for _ in range(appends):
            due = plan(self.graph, Trace(self.events), since=self.since).actions
            chance = self.random.random()
            if chance < 0.1 or not due:
                if not self.outside():
                    break
            else:
                self.act(self.random.choice(due))
        return self.events

    def outside(self) -> bool:
        """Let something happen that no plan asks for. False when nothing can."""
        reading = read_turn(self.events)
        ways: list[Callable[[], None]] = []
        if self.since < len(self.events):
            ways += [self.restart] * 3
        for waiting in reading.pending().values():
            answer = Input(payload="yes", stream=waiting.stream, answers=waiting.seq)
            ways += [lambda answer=answer: self.append(answer)] * 4  # type: ignore[misc]  # bound now
        if reading.accepts_input(held=False):
            ways.append(lambda: self.append(Input(payload="again")))
        if reading.state(held=False) in {"waiting", "interrupted"}:
            ways.append(lambda: self.append(Cancelled(input=1)))
        if ways:
            self.random.choice(ways)()
        return bool(ways)

    def restart(self) -> None:
        """Crash, and begin a new run."""
        self.since = len(self.events)

    def append(self, *events: Event) -> None:
        """Append events, all in one stream unless they are heads of tasks."""
        for place, event in enumerate(events):
            self.seqs[event.stream] = self.seqs.get(event.stream, 0) + 1
            left = sum(later.stream == event.stream for later in events[place + 1 :])
            self.events.append(stamped(event, seq=self.seqs[event.stream], left=left))

    def act(self, action: Action) -> None:
        """Perform an action with a random outcome."""
        match action:
            case RunStep(stream, node):
                self.append(*self.returned(node, stream))
            case Intend(stream, node):
                self.intend(stream, node)
            case Recover(stream, node, opened):
                self.append(self.recovered(stream, node, opened))
            case OpenTasks(stream, node):
                self.open(stream, node)
            case HandBack(stream, node):
                self.append(*self.or_failure(stream, node, [note(node, stream)]))
            case Trip(stream, node, event):
                self.append(stamped(event, stream=stream, origin=node))
            case Fault(_, failure):
                self.append(failure)
            case _:
                self.append(Ended())

    def or_failure(self, stream: str, node: str, events: list[Event]) -> list[Event]:
        """Fail now and then."""
        chance = self.random.random()
        if chance < 0.9:
            return events
        return [failed(node, stream, transient=chance < 0.97)]

    def returned(self, node: str, stream: str) -> list[Event]:
        """Return what a step may return."""
        pick = self.random
        call = ToolCall(id=f"c{pick.randint(1, 3)}", name="t", arguments={})
        shown = (Doc(id=f"d{pick.randint(1, 5)}"),)
        called = ModelOutput(origin=node, stream=stream, calls=(call,))
        tool = ToolOutput(
            origin=node, stream=stream, call_id=f"c{pick.randint(1, 3)}", elements=shown
        )
        ways: list[list[Event]] = [
            [note(node, stream)],
            [ModelOutput(origin=node, stream=stream, text="hi")],
            [called],
            [called],
            [called, note(node, stream)],
            [called, request(node, stream)],
            [tool],
            [tool],
            [tool, tool],
            [request(node, stream)],
            [Compaction(text="s", through=1, origin=node, stream=stream)],
        ]
        return self.or_failure(stream, node, pick.choice(ways))

    def intend(self, stream: str, node: str) -> None:
        """Record an intent, and what became of the act."""
        self.ids += 1
        self.append(intent(node, stream, f"i{self.ids}"))
        chance = self.random.random()
        if chance < 0.4:
            self.append(result(node, stream, f"i{self.ids}"))
        elif chance < 0.6:
            self.append(failed(node, stream, transient=chance < 0.5))
        else:
            self.restart()

    def recovered(self, stream: str, node: str, opened: EffectIntent) -> Event:
        """Return what a recovery may return, or its failure."""
        chance = self.random.random()
        if chance < 0.5:
            return EffectResult(intent=opened.id, origin=node, stream=stream)
        if chance < 0.8:
            return request(node, stream)
        return failed(node, stream, transient=chance < 0.9)

    def open(self, stream: str, node: str) -> None:
        """Open the missing tasks of a hand-off, now and then only some of them."""
        planner = Planner(self.graph, since=self.since)
        for event in self.events:
            planner.feed(event)
        runs = planner.graph(stream).node(node).step
        assert isinstance(runs, Team)
        given = runs.hand_offs(hand_off_view(planner.view(stream)))
        seq, there = planner.seq(stream), planner.tasks(stream)
        heads = [
            stamped(event, stream=stream_name(stream, node, seq, index), origin=node)
            for index, event in enumerate(given, 1)
            if isinstance(event, Input)
        ]
        missing: list[Event] = [head for head in heads if head.stream not in there]
        if missing and self.random.random() < 0.2:
            missing = missing[: self.random.randint(1, len(missing))]
        events = missing or [stamped(event, stream=stream, origin=node) for event in given]
        self.append(*self.or_failure(stream, node, list(events)))


def _sized(size: int, offset: int) -> Callable[[Trace], int]:
    return lambda view: (len(view) + offset) % size


def _routed(answers: Sequence[NodeName | None]) -> Callable[[Trace], NodeName | None]:
    def route(view: Trace) -> NodeName | None:
        answer = answers[len(view) % len(answers)]
        if answer == "raise":
            raise KeyError("no way")
        return answer

    return route
