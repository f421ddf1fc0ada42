"""Holds recorded decisions against the ones that today's graph takes. Nothing is executed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from soev.domain import (
    ROOT_STREAM,
    Cancelled,
    Ended,
    Event,
    Input,
    NodeName,
    Opened,
    parse_stream,
)
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Graph
from soev.runtime._plan import Action, End, Fault, Planner
from soev.runtime._replay import told
from soev.runtime._turn import opens_turn


@dataclass(frozen=True, slots=True)
class Divergence:
    """A recorded decision that today's graph would not take.

    Args:
        position: The position of the event that the decision led to.
        stream: The stream of the decision.
        recorded: The node that the run went to, None for the end of the turn.
        planned: The node that today's graph goes to, None when nothing is due or the turn ends.
        reason: What differs, in a sentence.
    """

    position: int
    stream: str
    recorded: NodeName | None
    planned: NodeName | None
    reason: str


def retrace(events: Sequence[Event], graph_for: Callable[[Input], Graph]) -> list[Divergence]:
    """Ask today's graph for each decision that a thread recorded, and compare.

    Each decision is judged on what its stream had recorded before it, so one divergence does not
    hide the next.

    Args:
        events: One thread's events in log order, decoded.
        graph_for: Builds the graph of the turn that an input opened.

    Returns:
        The decisions that differ, in log order. Empty when today's graph takes them all.
    """
    judge = _Judge(graph_for)
    return [found for event in events if (found := judge.judge(event)) is not None]


class _Judge:
    """Walks a log once, with a planner for the root and, within a turn, one for each stream."""

    def __init__(self, graph_for: Callable[[Input], Graph]) -> None:
        self._graph_for = graph_for
        self._graph: Graph | None = None
        self._log: list[Event] = []
        self._root = Planner(Graph(), since=sys.maxsize)
        self._below: dict[str, Planner] = {}
        self._left: dict[str, int] = {}

    def judge(self, event: Event) -> Divergence | None:
        """Judge the next event of the log, then take it in."""
        found = None
        first = not self._left.get(event.stream)
        if self._graph is not None and _is_judged(event, first=first):
            found = self._judged(event)
        self._left[event.stream] = event.left or 0
        self._take(event)
        if opens_turn(event) and event.stream == ROOT_STREAM:
            found = self._begin(event)
        return found

    def _begin(self, event: Input) -> Divergence | None:
        """Build the graph of the turn that an input opened."""
        self._below, self._graph = {}, None
        try:
            self._graph = self._graph_for(event)
        except Exception as error:  # noqa: BLE001  # the project's own code may raise anything
            reason = f"the graph of the turn could not be built: {told(error)}"
            return Divergence(len(self._log), event.stream, None, None, reason)
        self._root.use(self._graph)
        return None

    def _take(self, event: Event) -> None:
        self._log.append(event)
        self._root.feed(event)
        for stream, planner in self._below.items():
            if _counts(event.stream, stream):
                planner.feed(event)

    def _planner(self, stream: str) -> Planner:
        """Return the planner that knows a stream, those above it and those below it."""
        if stream == ROOT_STREAM:
            return self._root
        if stream not in self._below:
            assert self._graph is not None
            planner = Planner(self._graph, since=sys.maxsize)
            for event in self._log:
                if _counts(event.stream, stream):
                    planner.feed(event)
            self._below[stream] = planner
        return self._below[stream]

    def _judged(self, event: Event) -> Divergence | None:
        parts = parse_stream(event.stream)
        asked = event.stream
        if parts is not None and isinstance(event, Input):
            asked = parts.parent
        position = len(self._log) + 1
        recorded = None if isinstance(event, Ended) else event.origin
        try:
            actions = self._planner(event.stream).plan().actions
        except GraphMismatchError as error:
            return Divergence(position, asked, recorded, None, str(error))
        action = next((a for a in actions if stream_of(a) == asked), None)
        planned = node_of(action)
        if isinstance(event, Ended) and isinstance(action, End):
            return None
        if not isinstance(event, Ended) and action is not None and planned == recorded:
            return None
        return Divergence(position, asked, recorded, planned, _reason(recorded, action))


def _is_judged(event: Event, *, first: bool) -> bool:
    """Whether an event followed from a decision of the graph, and was the first to do so."""
    if isinstance(event, Ended):
        return True
    if isinstance(event, Opened | Cancelled) or not first:
        return False
    return not (isinstance(event, Input) and event.origin is None)


def _counts(stream: str, judged: str) -> bool:
    """Whether the events of a stream count for another: it hangs under it, or the other way."""
    return stream == judged or judged.startswith(stream + "/") or stream.startswith(judged + "/")


def stream_of(action: Action) -> str:
    """Return the stream that an action is for."""
    return ROOT_STREAM if isinstance(action, End) else action.stream


def node_of(action: Action | None) -> NodeName | None:
    """Return the node that an action wants, None for the end and for none at all."""
    if action is None or isinstance(action, End):
        return None
    return action.failure.origin if isinstance(action, Fault) else action.node


def _reason(recorded: NodeName | None, action: Action | None) -> str:
    went = "ended" if recorded is None else f"went to {recorded!r}"
    if isinstance(action, Fault):
        return f"the recorded turn {went}; today's graph fails: {action.failure.message}"
    if action is None:
        return f"the recorded turn {went}; today nothing is due there"
    if isinstance(action, End):
        return f"the recorded turn {went}; today's graph ends the turn"
    return f"the recorded turn {went}; today's graph goes to {action.node!r}"
