"""Makes harnesses, from what a project says about its agents."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_soev.harness._clock import HarnessClock
from pytest_soev.harness._harness import Harness
from pytest_soev.harness._process import Agents, Parts
from pytest_soev.harness._sweeping import CrashReport, swept
from soev.adapters import InMemoryTraceStore
from soev.domain import ChatModel, TraceStore
from soev.golden import agents_of

if TYPE_CHECKING:
    from soev.runtime import AgentCatalog


def in_memory(clock: HarnessClock) -> TraceStore:
    """Make the store that a harness has by default.

    Args:
        clock: The harness' clock.
    """
    return InMemoryTraceStore(clock=clock)


class HarnessFactory:
    """Makes harnesses. It lasts as long as the pytest run, so `@given` can use it.

    Args:
        agents: Gives the project's agents: what `soev_agents` returned.
        store: Makes a store, from the harness' clock if it takes a parameter.
        resources: Gives what an agent's `build` gets, from the harness.
        schedule: The token of the one schedule that sweeps run, None for all.
    """

    def __init__(
        self,
        agents: object,
        store: Callable[..., TraceStore] = in_memory,
        resources: Callable[[Harness], object] = lambda soev: None,
        schedule: str | None = None,
    ) -> None:
        self._agents, self._store, self._resources = agents, store, resources
        self._schedule = schedule

    def __call__(
        self,
        agents: AgentCatalog | Agents | Callable[..., Any] | None = None,
        *,
        store: TraceStore | None = None,
        clock: HarnessClock | None = None,
        lease_ttl: float = 30.0,
        resources: Callable[[Harness], object] | None = None,
    ) -> Harness:
        """Return a fresh harness, which is a context manager as well.

        Args:
            agents: The agents, in any form that `soev_agents` may have. None takes those.
            store: The store. None makes one.
            clock: The clock. None makes one.
            lease_ttl: The seconds that a lease lasts.
            resources: Gives what an agent's `build` gets, from the harness.
        """
        return self.assembled(
            agents=agents, store=store, clock=clock, lease_ttl=lease_ttl, resources=resources
        )

    def assembled(
        self,
        *,
        agents: object = None,
        store: TraceStore | None = None,
        resources: Callable[[Harness], object] | None = None,
        clock: HarnessClock | None = None,
        **parts: Any,
    ) -> Harness:
        """Return a harness with some parts of the caller's: a model, a world, a crash plan."""
        return Harness(
            self._parts(agents=agents, store=store, resources=resources, clock=clock, **parts)
        )

    async def crash_everywhere(
        self,
        scenario: Callable[[Harness], Awaitable[object]],
        faults: Sequence[str] = ("crash", "lost-ack"),
        *,
        agents: object = None,
        resources: Callable[[Harness], object] | None = None,
    ) -> CrashReport:
        """Play a scenario once for each point at which its process can die.

        It runs in the deterministic world. A step of the scenario goes on in a new process when
        one died, a person answers what recoveries ask, and the model gives an answer that was not
        recorded once more.

        Args:
            scenario: An async function of a harness. It must script the model itself.
            faults: `crash` for a death at each named point, `lost-ack` for each append that is
                stored while its caller gets an error.
            agents: The agents, as in a call.
            resources: Gives what an agent's `build` gets, as in a call.

        Raises:
            ValueError: There is no such fault.
        """

        def parts() -> Parts:
            return self._parts(agents=agents, resources=resources)

        return swept(parts, scenario, faults, self._schedule)

    def _parts(
        self,
        *,
        agents: object = None,
        store: TraceStore | None = None,
        resources: Callable[[Harness], object] | None = None,
        clock: HarnessClock | None = None,
        **parts: Any,
    ) -> Parts:
        source = self._agents if agents is None else agents
        factory = self._store

        def made_agents(model: ChatModel) -> Agents:
            return agents_of(source, "soev_agents", model)

        def made_store(clock: HarnessClock) -> TraceStore:
            if store is not None:
                return store
            return factory(clock) if inspect.signature(factory).parameters else factory()

        return Parts(
            agents=made_agents,
            resources=resources or self._resources,
            store=made_store,
            clock=clock or HarnessClock(),
            **parts,
        )
