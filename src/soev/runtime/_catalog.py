"""Agents by name over one store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from soev.domain import (
    Clock,
    Ended,
    Event,
    Ids,
    Input,
    LogEntry,
    Opened,
    ThreadExistsError,
    ThreadInfo,
    TraceStore,
    UnknownElementTypeError,
    UnknownThreadError,
)
from soev.runtime._agent import Agent, Resources, accepted, no_resources
from soev.runtime._codec import CORE_EVENT_TYPES, event_types_of
from soev.runtime._errors import (
    AgentMismatchError,
    InputDeniedError,
    UnknownAgentError,
    UnknownEventTypeError,
    UnreadableEventError,
)
from soev.runtime._graph import Graph
from soev.runtime._inputs import Accept, fresh_input
from soev.runtime._outside import TurnSnapshot, turn_snapshot
from soev.runtime._runs import Runs
from soev.runtime._system import SYSTEM_CLOCK, SYSTEM_IDS
from soev.runtime._thread import Thread

CLOSING_TIME: Final = 10.0
PAGE: Final = 50

_log = logging.getLogger("soev")


class AgentCatalog:
    """Agents by name over one store: it opens threads, and gets them to run, answer and read.

    `async with` closes the runs that the catalog made itself.

    Args:
        store: The store of the threads.
        agents: The agents by the names that threads are opened under.
        runs: This process's runs, shared between its catalogs. None makes new ones.
        version: The version of the code, which each event records.
        resources: Gives an agent's `build` what it needs.
        ids: Makes the ids of threads and appends.
        clock: Measures the time of the runs that the catalog makes.

    Raises:
        ValueError: Two classes of one agent share a tag.
    """

    def __init__(  # noqa: PLR0913  # the reference's own signature, and the two ports of the machine
        self,
        store: TraceStore,
        agents: Mapping[str, Agent[Any, Any]],
        runs: Runs | None = None,
        *,
        version: str,
        resources: Resources = no_resources,
        ids: Ids = SYSTEM_IDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store, self._agents, self._version = store, dict(agents), version
        self._resources, self._ids = resources, ids
        self._runs = runs or Runs(clock=clock, ids=ids)
        self._made_runs = runs is None
        self._types = {name: event_types_of([agent]) for name, agent in self._agents.items()}

    @property
    def agents(self) -> Mapping[str, Agent[Any, Any]]:
        """The agents by name, for reading."""
        return MappingProxyType(self._agents)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._made_runs:
            await self._runs.close(CLOSING_TIME)

    async def open(
        self, name: str, input: Input, *, thread_id: str | None = None
    ) -> tuple[Thread, Sequence[LogEntry[Event]]]:
        """Open a thread for an agent and record its first input. Nothing runs.

        Args:
            name: The agent.
            input: The first input.
            thread_id: The id of the thread, None for a fresh one.

        Returns:
            The thread, with the graph of its first turn, and what was recorded.

        Raises:
            UnknownAgentError: The catalog has no such agent.
            InputDeniedError: The input does not fit the agent, or `build` refused it.
            ThreadExistsError: The id has events already.
        """
        agent = self._agent(name)
        graph, accept = await self._built(agent, input)
        while True:
            new_id = self._ids.new() if thread_id is None else thread_id
            thread = self._thread(new_id, name, graph, accept)
            try:
                return thread, await thread.open(name, input)
            except ThreadExistsError:
                if thread_id is not None:
                    raise

    async def thread(
        self,
        thread_id: str,
        *,
        agent: str | None = None,
        input: Input | None = None,
        resuming: bool = False,
    ) -> Thread:
        """Return an existing thread.

        Args:
            thread_id: The thread.
            agent: The agent that it must be for, None for any.
            input: The fresh input that comes next. The graph is built for it.
            resuming: Whether the graph is built for the turn in progress. With neither, or when
                there is no turn, the thread has no graph.

        Raises:
            UnknownThreadError: There is no such thread.
            UnknownAgentError: The catalog has not its agent, or the log names none.
            AgentMismatchError: The thread is another agent's.
            InputDeniedError: The input does not fit the agent, or `build` refused it.
            ValueError: Both `input` and `resuming` are given.
        """
        if input is not None and resuming:
            raise ValueError(
                "A graph serves one turn: give `input` for the next one, or `resuming=True` for "
                "the one in progress."
            )
        name = await self._agent_of(thread_id)
        if agent is not None and agent != name:
            raise AgentMismatchError(thread_id, agent, name)
        found = self._agent(name, thread_id)
        if input is not None:
            graph, accept = await self._built(found, input)
            return self._thread(thread_id, name, graph, accept)
        if resuming:
            turn = await turn_snapshot(self._store, thread_id, self._types[name])
            if turn.opening is not None:
                graph, _ = await self._built(found, turn.opening)
                return self._thread(thread_id, name, graph, _no_graph, turn.opened_at)
        return self._thread(thread_id, name, None, _no_graph)

    async def unfinished(self, limit: int = 50) -> list[str]:
        """Return the ids of threads that somebody should resume, those with new activity first.

        Nobody runs them, and they were interrupted, failed for a moment, or have an effect whose
        outcome nobody knows and no request asks for.

        Args:
            limit: The most ids to return.
        """
        found: list[str] = []
        last: ThreadInfo | None = None
        while len(found) < limit:
            infos = await self._store.threads(before=last, limit=PAGE)
            found += [info.thread_id for info in infos if await self._is_unfinished(info)]
            if len(infos) < PAGE:
                break
            last = infos[-1]
        return found[:limit]

    async def _is_unfinished(self, info: ThreadInfo) -> bool:
        types = self._types.get(info.agent or "")
        if types is None or info.lease is not None or info.last_type == Ended.type:
            return False
        try:
            turn = await turn_snapshot(self._store, info.thread_id, types)
        except (UnknownEventTypeError, UnknownElementTypeError, UnreadableEventError) as error:
            # One thread that today's code cannot read must not keep the others from going on.
            _log.warning("Thread %r is left out of the unfinished ones: %s", info.thread_id, error)
            return False
        return turn.head.lease is None and _is_left(turn)

    async def _agent_of(self, thread_id: str) -> str:
        """Return the name in a thread's `Opened`."""
        page = await self._store.read(thread_id, limit=1)
        if not page.entries:
            raise UnknownThreadError(thread_id)
        first = page.entries[0].event
        opened = CORE_EVENT_TYPES.decode(first) if first.type == Opened.type else None
        if not isinstance(opened, Opened):
            raise UnknownAgentError(None, tuple(self._agents), thread_id)
        return opened.agent

    def _agent(self, name: str, thread_id: str | None = None) -> Agent[Any, Any]:
        agent = self._agents.get(name)
        if agent is None:
            raise UnknownAgentError(name, tuple(self._agents), thread_id)
        return agent

    async def _built(self, agent: Agent[Any, Any], input: Input) -> tuple[Graph, Accept]:
        """Build the graph of a turn, and what accepts the one input that it was built for."""
        recorded, turn = accepted(agent.input, fresh_input(input, None))
        graph = agent.build(await self._resources(agent), turn, recorded.model)

        def accept(given: Input) -> Input:
            if given != input:
                raise InputDeniedError(
                    "the graph of this handle was built for another input",
                    "Get the thread from the catalog with this `input`.",
                )
            return recorded

        return graph, accept

    def _thread(
        self,
        thread_id: str,
        name: str,
        graph: Graph | None,
        accept: Accept,
        turn: int | None = None,
    ) -> Thread:
        return Thread(
            thread_id,
            graph,
            self._store,
            self._runs,
            name,
            accept,
            self._types[name],
            self._version,
            ids=self._ids,
            turn=turn,
        )


def _no_graph(input: Input) -> Input:
    """Refuse a fresh input: no graph was built for it."""
    raise InputDeniedError(
        "this handle has no graph for a fresh input",
        "Get the thread from the catalog with this `input`.",
    )


def _is_left(turn: TurnSnapshot) -> bool:
    """Whether a thread that nobody runs has something due: an intent, or a turn to go on with."""
    reading = turn.reading
    asked = {request.stream for request in reading.pending().values()}
    if any(stream not in asked for stream in reading.intents):
        return True
    state = reading.state(held=False)
    return state == "interrupted" or (state == "failed" and not reading.failed)
