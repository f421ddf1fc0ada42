"""Simulated processes: each has a registry of runs, clocks and a handle on the store of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from pytest_soev.world._errors import ProcessDiedError
from pytest_soev.world._lives import Life, current_life
from pytest_soev.world._loop import WorldLoop
from pytest_soev.world._points import Counting
from pytest_soev.world._stores import ProcessStore
from pytest_soev.world._surface import NumberedTask
from pytest_soev.world._time import CountedIds, ProcessClock
from pytest_soev.world._witness import Witness
from soev.domain import TraceStore
from soev.runtime import (
    CORE_EVENT_TYPES,
    Agent,
    AgentCatalog,
    EventTypes,
    Graph,
    Resources,
    Runs,
    Thread,
)

T = TypeVar("T")


class Surroundings(Protocol):
    """What a process stands in: the schedule that it is part of."""

    loop: WorldLoop
    witness: Witness
    calls: Counting
    lease_ttl: float

    def note(self, what: str, who: str) -> None:
        """Write something into the schedule's trace."""
        ...


class Process:
    """A process that can be killed, frozen and started again. Made by `Simulation.process`.

    Args:
        simulation: The schedule that it is part of.
        life: Its first life.
    """

    def __init__(self, simulation: Surroundings, life: Life) -> None:
        self._simulation = simulation
        self.name = life.name
        self._begin(life)

    def _begin(self, life: Life) -> None:
        simulation = self._simulation
        self._life = life
        self.clock, self.ids = ProcessClock(simulation.loop, life), CountedIds(str(life))
        self.store: TraceStore = ProcessStore(
            simulation.witness, simulation.loop, life, simulation.calls
        )
        self.runs = Runs(lease_ttl=simulation.lease_ttl, clock=self.clock, ids=self.ids)
        self._died: asyncio.Future[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it was not killed since it last began."""
        return not self._life.dead

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self._life.frozen

    # --- work ---

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin some work in this process, and return its task.

        Args:
            work: The coroutine. It begins once the caller gives way.

        Raises:
            ProcessDiedError: The process is dead.
        """
        if not self.alive:
            work.close()
            raise ProcessDiedError(self.name)
        context = copy_context()
        context.run(current_life.set, self._life)
        return NumberedTask(work, loop=self._simulation.loop, context=context, name=self.name)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work in this process, and return its result.

        Args:
            work: The coroutine.

        Raises:
            ProcessDiedError: The process is dead, or died before the work was done.
        """
        return await self.joined(self.start(work))

    async def joined(self, task: asyncio.Task[T]) -> T:
        """Wait for work that was started, and return its result.

        Args:
            task: What `start` returned.

        Raises:
            ProcessDiedError: The process died before the work was done.
        """
        if self._died is None:
            self._died = self._simulation.loop.create_future()
        died = self._died
        if self.alive:
            await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ProcessDiedError(self.name)
        return task.result()

    # --- what happens to it ---

    def kill(self) -> None:
        """Stop it for ever, in the middle of what it does. Nothing of it runs again."""
        if not self.alive:
            return
        self._life.dead = True
        self._simulation.note("kill", str(self._life))
        if self._died is not None and not self._died.done():
            self._simulation.loop.in_store(self._died.set_result, None)
        self._simulation.loop.stand_still(self._life)

    def freeze(self, seconds: float = 0.0) -> None:
        """Stop it where it stands, while time and its leases go on.

        Args:
            seconds: When it goes on by itself; 0 for not before `thaw`.
        """
        if self._life.frozen or not self.alive:
            return
        self._life.frozen = True
        self._simulation.note("freeze", str(self._life))
        if seconds:
            self._simulation.loop.in_store(
                self._simulation.loop.call_later, seconds, self._thaw_if, self._life
            )
        self._simulation.loop.stand_still(self._life)

    def thaw(self) -> None:
        """Let it go on where it stands."""
        self._thaw_if(self._life)

    def _thaw_if(self, life: Life) -> None:
        if life is self._life and life.frozen and not life.dead:
            self._simulation.note("thaw", str(life))
            self._simulation.loop.go_on(life)

    def restart(self) -> None:
        """Begin again with nothing but the store. What still ran is killed."""
        self.kill()
        life = self._life
        self._begin(Life(life.name, life.number + 1, life.offset, life.rate))
        self._simulation.note("restart", str(self._life))

    # --- soev in it ---

    def thread(
        self, thread_id: str, graph: Graph | None, types: EventTypes = CORE_EVENT_TYPES
    ) -> Thread:
        """Return a thread of this process, made by hand.

        Args:
            thread_id: The thread.
            graph: The graph of every turn.
            types: The classes of its events.
        """
        return Thread(thread_id, graph, self.store, self.runs, event_types=types, version="1")

    def catalog(
        self, agents: Mapping[str, Agent[Any, Any]], resources: Resources | None = None
    ) -> AgentCatalog:
        """Return a catalog of this process.

        Args:
            agents: The agents, by name.
            resources: Makes what they get, None for nothing.
        """
        given = {} if resources is None else {"resources": resources}
        return AgentCatalog(
            self.store, agents, self.runs, version="1", ids=self.ids, clock=self.clock, **given
        )

    def __repr__(self) -> str:
        return f"Process({str(self._life)!r})"
