"""The scenario graphs beside a real store and in real time: the same plays, word for word."""

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from pytest_soev.world import CountedIds, Scenario, Simulation, Witness, World
from soev.domain import TraceStore
from soev.runtime import CORE_EVENT_TYPES, EventTypes, Graph, Runs, Thread
from tests.reliability.graphs import Stage
from tests.reliability.rules import Story, story_of

T = TypeVar("T")


class RealProcess:
    """What a play takes for a process: this one. Its graphs run on asyncio.

    Args:
        name: Its name, which its ids carry.
        store: Its handle on the store.
        lease_ttl: The seconds that its leases last.
    """

    alive = True

    def __init__(self, name: str, store: TraceStore, lease_ttl: float) -> None:
        self.name, self.store = name, store
        self.runs = Runs(lease_ttl=lease_ttl, ids=CountedIds(name))

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work."""
        return await work

    def thread(
        self, thread_id: str, graph: Graph | None, types: EventTypes = CORE_EVENT_TYPES
    ) -> Thread:
        """Return a thread of this process."""
        return Thread(thread_id, graph, self.store, self.runs, event_types=types, version="1")


class Reality:
    """What a play takes for a schedule: a real store behind a witness, and a world.

    Args:
        store: The store.
        world: What effects act on.
        life: Which life of the play's processes this is, from 1: the earlier ones have died.
        lease_ttl: The seconds that leases last.
        alone: Whether nobody else writes to the store, so that the witness has seen it all.
    """

    def __init__(
        self,
        store: TraceStore,
        world: World,
        *,
        life: int = 1,
        lease_ttl: float = 30.0,
        alone: bool = True,
    ) -> None:
        self.witness = Witness(store)
        self.store: TraceStore = self.witness
        self.world = world
        world.durable = self.witness.intents.__contains__
        self._life, self._lease_ttl, self._alone = life, lease_ttl, alone

    def process(self, name: str) -> RealProcess:
        """Return a process."""
        return RealProcess(f"{name}#{self._life}", self.store, self._lease_ttl)

    def stage(self, kind: type[Stage] = Stage) -> Stage:
        """Return what graphs act on."""
        return kind(cast("Simulation", self))

    async def play(self, scenario: Scenario[Story]) -> Story:
        """Play a scenario to its end, hold the store to its rules, and tell what it came to."""
        story = await scenario.play(cast("Simulation", self))  # it has what a play uses
        if self._alone:
            await self.witness.check()
        if self.world.refused:
            raise self.world.refused[0]
        assert not story.broken, story.broken
        return story

    async def told(self, *threads: str) -> Story:
        """Tell what threads and the world have come to."""
        story = Story()
        await story_of(cast("Simulation", self), story, threads)
        return story
