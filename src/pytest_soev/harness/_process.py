"""The process that a harness runs agents in, and what is seen of it from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pytest_soev.harness._clock import HarnessClock
from pytest_soev.harness._crash import CrashPlan
from pytest_soev.harness._errors import (
    DeadProcessError,
    LeftTasksError,
    NoThreadError,
)
from pytest_soev.harness._life import Life, LifeStore
from pytest_soev.harness._watch import Watch
from pytest_soev.harness._world import HarnessWorld
from pytest_soev.world import CountedIds, Witness
from soev.adapters import ScriptedChatModel
from soev.domain import (
    ChatModel,
    Trace,
    TraceStore,
    fault_plan,
)
from soev.runtime import (
    Agent,
    AgentCatalog,
    Runs,
    Thread,
    event_types_of,
)

T = TypeVar("T")
Agents = Mapping[str, Agent[Any, Any]]
Work = Callable[[AgentCatalog], Awaitable[T]]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a harness is made of.

    Args:
        agents: Gives the agents by name, from the model that they use.
        resources: Gives what an agent's `build` gets, from the harness. It is called again at
            each start of the process.
        store: Makes the store, from the clock.
        clock: Gives timestamps and measures leases.
        model: The scripted model.
        world: What effects change.
        crash: The plan of a crash.
        lease_ttl: The seconds that a lease lasts.
    """

    agents: Callable[[ChatModel], Agents]
    resources: Callable[[Any], object]
    store: Callable[[HarnessClock], TraceStore]
    clock: HarnessClock = field(default_factory=HarnessClock)
    model: ScriptedChatModel = field(default_factory=ScriptedChatModel)
    world: HarnessWorld = field(default_factory=HarnessWorld)
    crash: CrashPlan = field(default_factory=CrashPlan)
    lease_ttl: float = 30.0


class ProcessUnderTest:
    """One process that runs agents, and what is seen of it from outside."""

    def __init__(self, parts: Parts) -> None:
        self.clock, self.model, self.world = parts.clock, parts.model, parts.world
        self.crash, self._parts = parts.crash, parts
        witness = Witness(parts.store(parts.clock))
        self.store: TraceStore = witness
        self._witness = witness
        self.world.durable = witness.intents.__contains__
        self._watch = Watch(self.world)
        self._threads, self._lives = 0, 0
        self._thread_id: str | None = None
        self._trace: Trace | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._life: Life | None = None
        self._spectator = Runs(clock=self.clock, ids=CountedIds("spectator"))

    def _begin(self) -> AgentCatalog:
        """Start the process: a new owner, with nothing but the store."""
        parts = self._parts
        self._lives += 1
        self._life = Life(self.crash)
        ids = CountedIds(f"process-{self._lives}")
        runs = Runs(lease_ttl=parts.lease_ttl, clock=self.clock, ids=ids)
        self._agents = parts.agents(self.model)
        made = parts.resources(self)

        async def resources(agent: Agent[Any, Any]) -> object:
            return made

        self._catalog = AgentCatalog(
            LifeStore(self.store, self._life),
            self._watch.agents(self._agents),
            runs,
            version="test",
            resources=resources,
            ids=ids,
            clock=self.clock,
        )
        return self._catalog

    async def _opened(self, catalog: AgentCatalog) -> Thread:
        """Do nothing more: what was to be recorded is."""
        return self._read()

    async def _resumed(self, catalog: AgentCatalog) -> Trace:
        return await (await catalog.thread(self._there(), resuming=True)).resume()

    async def _do(self, work: Work[T], then: Work[T] | None = None) -> T:
        """Do one thing in the process, and look at what it did.

        Args:
            work: What to do.
            then: What is left of it once the log has what it records. Only a sweep asks for it.
        """
        __tracebackhide__ = True
        catalog = self._begin() if self._life is None else self._catalog
        life = self._life
        assert life is not None
        if life.crash is not None:
            raise DeadProcessError
        before = asyncio.all_tasks()
        token = fault_plan.set(life.reached)
        try:
            return await work(catalog)
        finally:
            fault_plan.reset(token)
            self._tasks |= asyncio.all_tasks() - before
            await self._seen_to(life)

    async def _seen_to(self, life: Life) -> None:
        """Look at what the process did, and raise that it died, or what it did wrong."""
        __tracebackhide__ = True
        if life.crash is not None:
            await self._bury(life)
        if self._thread_id is not None:
            self._trace = await self._read().trace()
        if life.crash is not None:
            raise life.crash from None
        self._watch.check()
        await self._witness.check()

    async def restart(self) -> None:
        """Start the process again: a new owner, over the same store, clock, world and script.

        What still runs is killed first. The clock moves past the leases that the old process left.
        """
        if self._life is not None:
            self._life.end("restart")
            await self._bury(self._life)
            self.clock.advance(self._parts.lease_ttl)
        self._begin()

    async def _bury(self, life: Life) -> None:
        """Take down what the dead process left. Nothing that it still does leaves a trace."""
        left = {task for task in self._tasks if not task.done()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        # Nobody reads what became of them, and asyncio would complain of that.
        for task in self._tasks | life.struck:
            if task.done() and not task.cancelled():
                task.exception()
        self._tasks.clear()

    def _there(self) -> str:
        if self._thread_id is None:
            raise NoThreadError
        return self._thread_id

    def _read(self, thread_id: str | None = None) -> Thread:
        """Return a handle on a thread that reads, whatever became of the process."""
        meant = thread_id or self._there()
        types = event_types_of(self._agents.values())
        return Thread(meant, None, self.store, self._spectator, event_types=types)

    def check(self) -> None:
        """Hold the test to what it promised: scripts are used up, and nothing is left running.

        Raises:
            OffScriptError: The model was called once more than its script has steps.
            UnusedStepsError: The script has steps that no call used.
            LeftTasksError: Asyncio tasks are left.
            HarnessError: A step, a router or an effect broke a rule; a crash did not happen.
        """
        __tracebackhide__ = True
        self._watch.check()
        self.model.check()
        self.crash.check()
        left = sorted(
            task.get_name() for task in self._tasks if not task.done() or task.cancelled()
        )
        if left:
            raise LeftTasksError(tuple(left))
