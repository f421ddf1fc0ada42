"""The harness: one agent process in a test, over a store, a clock, a model and a world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pytest_soev.harness._errors import (
    NotSettledError,
)
from pytest_soev.harness._process import ProcessUnderTest
from soev.domain import (
    ChatRequest,
    Input,
    JsonValue,
    Opened,
    Request,
    Trace,
)
from soev.runtime import (
    AgentCatalog,
    ModelCall,
    Thread,
    ThreadState,
    accepted,
    refusing,
    replay,
)

T = TypeVar("T")
MOST_ANSWERS = 20


class Harness(ProcessUnderTest):
    """One process that runs your agents in a test, without a network, a model or a clock.

    Its steps act on the thread that was opened last. Each raises what was found wrong meanwhile:
    a step that changed an event, an impure router, an act outside of an effect, a broken log.

    Attributes:
        model: The scripted model that the agents were made with.
        world: What their effects change.
        clock: Gives timestamps and measures leases.
        crash: The plan of a crash.
        store: The store. It outlives the process.

    Args:
        parts: What it is made of.
    """

    @property
    def thread(self) -> Thread:
        """A handle on the thread that was opened last, for reading it and for `soev_golden`.

        Raises:
            NoThreadError: None was.
        """
        return self._read()

    @property
    def requests(self) -> tuple[ChatRequest, ...]:
        """What the model was sent, in order."""
        return self.model.requests

    async def open(self, agent: str, payload: JsonValue) -> Thread:
        """Open a thread with its first input. Nothing runs.

        Args:
            agent: The agent's name.
            payload: What is said.
        """
        __tracebackhide__ = True
        before, self._threads = self._thread_id, self._threads + 1
        thread_id = f"thread-{self._threads}"

        async def work(catalog: AgentCatalog) -> Thread:
            self._thread_id = thread_id
            try:
                await catalog.open(agent, Input(payload=payload), thread_id=thread_id)
            except Exception:
                self._thread_id = before
                raise
            return self._read()

        return await self._do(work, self._opened)

    async def run(self, agent: str, payload: JsonValue) -> Trace:
        """Open a thread with its first input, and run its turn.

        Args:
            agent: The agent's name.
            payload: What is said.

        Returns:
            The trace.
        """
        __tracebackhide__ = True
        await self.open(agent, payload)
        return await self.resume()

    async def send(self, payload: JsonValue) -> Trace:
        """Say the next thing in the thread, and run its turn.

        Args:
            payload: What is said.
        """
        __tracebackhide__ = True
        thread_id, input = self._there(), Input(payload=payload)

        async def work(catalog: AgentCatalog) -> Trace:
            return await (await catalog.thread(thread_id, input=input)).send(input)

        return await self._do(work, self._resumed)

    async def resume(self) -> Trace:
        """Run the turn until nothing is due."""
        __tracebackhide__ = True
        self._there()
        return await self._do(self._resumed, self._resumed)

    async def answer(self, request: Request, payload: JsonValue) -> Trace:
        """Answer a request, and run the turn.

        Args:
            request: The request.
            payload: The answer.
        """
        __tracebackhide__ = True
        thread_id, input = self._there(), Input(payload=payload)

        async def work(catalog: AgentCatalog) -> Trace:
            thread = await catalog.thread(thread_id, resuming=True)
            return await thread.send(input, answering=request)

        return await self._do(work, self._resumed)

    async def cancel(self) -> None:
        """Cancel the turn."""
        __tracebackhide__ = True
        thread_id = self._there()

        async def work(catalog: AgentCatalog) -> object:
            return await (await catalog.thread(thread_id)).cancel()

        await self._do(work, self._opened)

    async def fork(self, at: int) -> Thread:
        """Copy the log up to a position into a new thread, and go on there.

        Args:
            at: The position of the last event to copy, the end of an append.
        """
        __tracebackhide__ = True
        thread_id = self._there()

        async def work(catalog: AgentCatalog) -> Thread:
            self._thread_id = (await (await catalog.thread(thread_id)).fork(at=at)).id
            return self._read()

        return await self._do(work)

    async def status(self) -> ThreadState:
        """Return the state of the thread."""
        return (await self._read().status()).state

    async def pending(self) -> Sequence[Request]:
        """Return the requests that the turn waits for."""
        return [each.event for each in (await self._read().status()).pending]

    def trace(self) -> Trace:
        """Return the trace, as it was at the end of the last step of the test.

        Raises:
            NoThreadError: No thread was opened.
        """
        self._there()
        assert self._trace is not None
        return self._trace

    async def replay(self) -> list[ModelCall]:
        """Rebuild every model call of the thread with today's code. Nothing is executed."""
        return await self._replayed(self.trace())

    async def _replayed(self, trace: Trace) -> list[ModelCall]:
        opened = trace.latest(Opened)
        assert opened is not None
        agent = self._agents[opened.agent]

        def graph_for(input: Input) -> Any:
            return agent.build(refusing("resources"), accepted(agent.input, input)[1], input.model)

        return await replay(list(trace), graph_for)

    def run_sync(self, scenario: Callable[[Harness], Coroutine[Any, Any, T]]) -> T:
        """Run an async function of this harness in a loop of its own, where no loop runs.

        Args:
            scenario: The function, such as `lambda soev: soev.run("desk", "Hello")`.
        """
        return asyncio.run(scenario(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Check what the test promised, unless it failed already."""
        if error is None:
            self.check()

    def __repr__(self) -> str:
        thread = "no thread" if self._thread_id is None else f"thread {self._thread_id!r}"
        events = 0 if self._trace is None else len(self._trace)
        sent = len(self.requests)
        return f"Harness({thread}, {events} events, {sent} model calls, {self.world!r})"


async def settled(soev: Harness, answer: JsonValue = None) -> Trace:
    """Go on with a turn until it is over, and answer each request on the way.

    Args:
        soev: The harness.
        answer: The answer to every request, such as `{"happened": True}`. None answers none.

    Returns:
        The trace.

    Raises:
        NotSettledError: The turn waits, or does not end.
    """
    __tracebackhide__ = True
    trace = await soev.resume()
    pending = await soev.pending()
    for _ in range(MOST_ANSWERS):
        if not pending or answer is None:
            break
        trace = await soev.answer(pending[0], answer)
        pending = await soev.pending()
    state = await soev.status()
    if state in {"finished", "cancelled"}:
        return trace
    requests = tuple(f"{each.kind}: {each.prompt or 'no prompt'}" for each in pending)
    raise NotSettledError(state, requests)
