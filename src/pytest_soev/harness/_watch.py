"""Agents whose steps, routers and effects are watched while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_soev.harness._errors import ChangedEventError, HarnessError, ImpureError
from pytest_soev.harness._world import HarnessWorld
from soev.domain import EffectIntent, EffectResult, Event, Input, NodeName, Trace
from soev.runtime import Agent, Effector, EffectRecovery, Graph, Router, Step, encode


@dataclass(eq=False)
class Watch:
    """What was found while agents ran.

    Args:
        world: The world that their effects change.
        problems: What is wrong, in the order found.
    """

    world: HarnessWorld
    problems: list[HarnessError] = field(default_factory=list)

    def agents(self, agents: Mapping[str, Agent[Any, Any]]) -> dict[str, Agent[Any, Any]]:
        """Return the same agents, watched.

        Args:
            agents: The agents by name.
        """
        return {name: _WatchedAgent(agent, self) for name, agent in agents.items()}

    def check(self) -> None:
        """Raise the first problem.

        Raises:
            HarnessError: There is one.
        """
        problems = [*self.problems, *self.world.problems]
        if problems:
            raise problems[0]

    def found(self, problem: HarnessError) -> None:
        """Note a problem. What runs goes on, and the step of the test raises it."""
        self.problems.append(problem)


class _WatchedAgent:
    """An agent that builds watched graphs."""

    def __init__(self, agent: Agent[Any, Any], watch: Watch) -> None:
        self._agent, self._watch = agent, watch
        self.input = agent.input
        self.element_types, self.event_types = agent.element_types, agent.event_types

    def build(self, resources: Any, turn: Any, model: str | None) -> Graph:
        return watched(self._agent.build(resources, turn, model), self._watch)


def watched(graph: Graph, watch: Watch) -> Graph:
    """Return a graph of the same shape, whose parts are watched.

    Args:
        graph: The graph.
        watch: What keeps the findings.
    """
    made = Graph()
    for node in graph.nodes:
        made.add_node(node.name, _watched_step(node.name, node.step, watch))
    for node in graph.nodes:
        edge = graph.edge(node.name)
        if edge is not None and edge.router is not None:
            made.add_conditional_edge(node.name, _watched_router(node.name, edge.router, watch))
        elif edge is not None:
            for target in edge.targets:
                made.add_edge(node.name, target)
        if graph.is_join(node.name):
            made.add_join(node.name)
    made.set_entry_point(graph.entry_point)
    if graph.budget is not None:
        made.set_budget(graph.budget)
    return made


def _watched_step(name: NodeName, step: Any, watch: Watch) -> Any:
    if hasattr(step, "intend"):
        return _WatchedEffect(name, step, watch)
    if hasattr(step, "hand_offs"):
        return _WatchedDelegation(step, watch)
    return _WatchedStep(name, step, watch)


def _watched_router(name: NodeName, router: Router, watch: Watch) -> Router:
    def route(view: Trace) -> NodeName | None:
        first, second = router(view), router(view)
        if first != second:
            what = f"the router after {name!r}"
            watch.found(ImpureError(what, repr(first), repr(second)))
        return first

    return route


class _WatchedStep:
    """A step, after which the events that it was shown must be as they were."""

    def __init__(self, name: NodeName, step: Step, watch: Watch) -> None:
        self.__wrapped__ = step
        self._name, self._watch = name, watch

    async def __call__(self, view: Trace) -> Sequence[Event]:
        shown = tuple(view)
        before = [encode(event).data for event in shown]
        try:
            return await self.__wrapped__(view)
        finally:
            self._compare(shown, before)

    def _compare(self, shown: Sequence[Event], before: Sequence[str]) -> None:
        for event, text in zip(shown, before, strict=True):
            now = encode(event).data
            if now != text:
                what = f"the {type(event).__name__}"
                self._watch.found(ChangedEventError(self._name, what, text, now))


class _WatchedEffector:
    """The world in place of an effect's own effector."""

    def __init__(self, effector: Effector, world: HarnessWorld) -> None:
        self.timeout: float | None = getattr(effector, "timeout", None)
        self._effector, self._world = effector, world

    async def perform(self, intent: EffectIntent) -> EffectResult:
        return await self._world.performed_by(self._effector, intent)


class _WatchedEffect:
    """An effect that acts on the world of the test."""

    def __init__(self, name: NodeName, effect: Any, watch: Watch) -> None:
        self._name, self._effect, self._watch = name, effect, watch
        self.effector = _WatchedEffector(effect.effector, watch.world)
        self.recovery: EffectRecovery = effect.recovery

    def intend(self, trace: Trace) -> EffectIntent:
        first: EffectIntent = self._effect.intend(trace)
        second = self._effect.intend(trace)
        if first != second:
            what = f"`intend` of the effect {self._name!r}"
            self._watch.found(ImpureError(what, repr(first), repr(second)))
        return first

    async def cancellation(
        self,
        trace: Trace,
        intent: EffectIntent,
        effector: Effector,
        performing: asyncio.Task[EffectResult],
    ) -> Sequence[Event]:
        decided: Sequence[Event] = await self._effect.cancellation(
            trace, intent, effector, performing
        )
        return decided


class _WatchedDelegation:
    """A delegation whose sub-agents are watched too."""

    def __init__(self, delegation: Any, watch: Watch) -> None:
        self._delegation, self._watch = delegation, watch

    def graph_for(self, task: Input) -> Graph:
        return watched(self._delegation.graph_for(task), self._watch)

    def hand_offs(self, parent: Trace) -> Sequence[Event]:
        events: Sequence[Event] = self._delegation.hand_offs(parent)
        return events

    def hand_back(self, child: Trace) -> Sequence[Event]:
        events: Sequence[Event] = self._delegation.hand_back(child)
        return events
