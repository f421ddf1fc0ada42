"""A harness in the deterministic world, whose process may die in the middle of every step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from pytest_soev.harness._harness import Harness
from pytest_soev.harness._process import Parts, Work
from pytest_soev.harness._repeating import Key, RepeatingModel
from pytest_soev.world import ProcessDiedError, Simulation, passed
from soev.domain import (
    Cancelled,
    Compaction,
    EffectIntent,
    EffectResult,
    Failure,
    Input,
    JsonValue,
    LeaseHeldError,
    LeaseLostError,
    ModelOutput,
    Opened,
    Request,
    Trace,
)
from soev.runtime import AgentCatalog, ModelCall, ThreadState

T = TypeVar("T")
MOST_LIVES: Final = 20
SAID: Final = (Opened.type, Input.type, Cancelled.type)


class SweptHarness(Harness):
    """A harness that carries each step through, however often its process dies.

    Requests of recoveries are answered by somebody who knows the truth.

    Args:
        parts: What it is made of.
        simulation: The schedule that it runs in.
    """

    def __init__(self, parts: Parts, simulation: Simulation) -> None:
        clock: Any = simulation.clock
        model = RepeatingModel()
        super().__init__(
            replace(parts, model=model, clock=clock, store=lambda clock: simulation.store)
        )
        self._simulation, self._repeating = simulation, model
        self._witness, self.store = simulation.witness, simulation.store
        self.world.durable = simulation.witness.intents.__contains__
        self.process = simulation.process("desk")

    def _begin(self) -> AgentCatalog:
        """Build the agents for the process as it is now."""
        self._agents = self._parts.agents(self.model)
        made, process = self._parts.resources(self), self.process

        async def resources(agent: object) -> object:
            return made

        self._catalog = process.catalog(self._watch.agents(self._agents), resources)
        self._lives += 1
        return self._catalog

    async def _do(self, work: Work[T], then: Work[T] | None = None) -> T:
        """Do one thing, again in a new process when one died, until it is done."""
        value = await self._carried(work, then, await self._place())
        asked = await self._asked()
        if asked is not None:
            request, intent = asked
            trace: Any = await self.answer(request, await self._truth(intent))
            value = trace if isinstance(value, Trace) else value
        if self._thread_id is not None:
            self._trace = await self._read().trace()
        self._watch.check()
        return value

    async def _truth(self, intent: EffectIntent) -> JsonValue:
        """Say what became of an act, as a person does who looks it up."""
        done = await self.world.query(intent)
        if isinstance(done, EffectResult):
            return {"happened": True, "output": done.output}
        return {"happened": False}

    async def _carried(
        self, work: Work[T], then: Work[T] | None, before: tuple[str | None, int]
    ) -> T:
        chosen = work
        for _ in range(MOST_LIVES):
            catalog = self._begin() if not self._lives else self._catalog
            try:
                return await self.process.call(_called(chosen, catalog))
            except ProcessDiedError:
                await self._new_life()
            except (LeaseHeldError, LeaseLostError):
                await passed(self._parts.lease_ttl / 3)
            if then is not None and (chosen is then or await self._said(before)):
                chosen = then
        raise ProcessDiedError(self.process.name)

    async def restart(self) -> None:
        """Start the process again, once the leases of the old one are over."""
        await self._new_life()
        await passed(self._parts.lease_ttl)

    async def _new_life(self) -> None:
        self.process.restart()
        self._repeating.died([key async for key in self.recorded()])
        self._begin()

    async def _place(self) -> tuple[str | None, int]:
        """Return the thread of the harness, and where it stands."""
        if self._thread_id is None:
            return None, 0
        return self._thread_id, (await self.store.head(self._thread_id)).position

    async def _said(self, before: tuple[str | None, int]) -> bool:
        """Tell whether the log has what a step was to record.

        Args:
            before: The thread, and where it stood, when the step began.
        """
        if self._thread_id is None:
            return False
        start = before[1] if self._thread_id == before[0] else 0
        page = await self.store.read(self._thread_id, after=start)
        return any(entry.event.type in SAID for entry in page.entries)

    async def thread_ids(self) -> list[str]:
        """Return the ids of all threads, in the order of their names."""
        return sorted(info.thread_id for info in await self.store.threads(limit=1000))

    async def seen(self, thread_id: str) -> tuple[ThreadState, Trace]:
        """Return the state and the trace of a thread."""
        thread = self._read(thread_id)
        return (await thread.status()).state, await thread.trace()

    async def replayed(self, trace: Trace) -> list[ModelCall]:
        """Rebuild the model calls of a trace with today's code."""
        return await self._replayed(trace)

    async def recorded(self) -> AsyncIterator[Key]:
        """Yield the thread, stream and request of each model call that the logs have."""
        for thread_id in await self.thread_ids():
            for event in await self._read(thread_id).trace():
                if isinstance(event, ModelOutput | Compaction | Failure) and event.request_hash:
                    yield thread_id, event.stream, event.request_hash

    async def _asked(self) -> tuple[Request, EffectIntent] | None:
        """Return a request that waits beside an open intent of its stream, and the intent."""
        if self._thread_id is None or not (await self._place())[1]:
            return None
        trace = await self._read().trace()
        done = {event.intent for event in trace.of(EffectResult)}
        left = {event.stream: event for event in trace.of(EffectIntent) if event.id not in done}
        for request in await self.pending():
            if request.stream in left:
                return request, left[request.stream]
        return None


async def _called(work: Work[T], catalog: AgentCatalog) -> T:
    return await work(catalog)
