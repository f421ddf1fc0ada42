"""What tests of runs share: a loop without waiting, stores that fail, and small graphs."""

import asyncio
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import Any

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    Event,
    Head,
    Input,
    JsonSchema,
    Lease,
    LogEntry,
    ModelOutput,
    OutcomeUnknownError,
    Page,
    Request,
    StoredEvent,
    StoreUnavailableError,
    ThreadInfo,
    ToolCall,
    ToolOutput,
    Trace,
    TraceStore,
)
from soev.runtime._graph import Graph, Step
from soev.runtime._runs import Runs
from soev.runtime._thread import Thread


class _Jumping(selectors.SelectSelector):
    """Never waits: when nothing is ready it moves its loop's time to the next timer."""

    loop: "JumpingLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("Nothing is left that could happen.")
        if not ready and timeout:
            self.loop.seconds += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when nothing else is to be done."""

    def __init__(self) -> None:
        self.seconds = 0.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.seconds


class LoopClock:
    """Tells the time of a JumpingLoop, and what `advance` put on top of it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def advance(self, seconds: float) -> None:
        self.ahead += seconds


class CountedIds:
    """Ids that are different and easy to read."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix, self._count = prefix, count(1)

    def new(self) -> str:
        return f"{self._prefix}-{next(self._count)}"


Hook = Callable[[int], Awaitable[None]]


class FaultyTraceStore:
    """A store in front of another that fails where it is told to.

    `faults` maps an operation and its call number, from 1, to `before` (nothing is stored),
    `after` (stored, and no answer) or an exception. `hooks` holds what happens before each call
    of an operation.
    """

    def __init__(self, store: TraceStore) -> None:
        self.store = store
        self.faults: dict[tuple[str, int], str | Exception] = {}
        self.always: dict[str, str | Exception] = {}
        self.hooks: dict[str, Hook] = {}
        self.calls: dict[str, int] = {}
        self.batches: list[str] = []

    async def _call(
        self, operation: str, thread_id: str, call: Callable[[], Awaitable[Any]]
    ) -> Any:
        number = self.calls[operation] = self.calls.get(operation, 0) + 1
        if operation in self.hooks:
            await self.hooks[operation](number)
        fault = self.faults.get((operation, number), self.always.get(operation))
        if isinstance(fault, Exception):
            raise fault
        if fault == "before":
            raise StoreUnavailableError(operation, "it is away")
        answer = await call()
        if fault == "after":
            raise OutcomeUnknownError(thread_id, operation, "the connection broke")
        return answer

    async def append(
        self,
        thread_id: str,
        events: Sequence[StoredEvent],
        *,
        after: Head,
        batch: str,
        lease: Lease | None = None,
        release: bool = False,
    ) -> Sequence[LogEntry[StoredEvent]]:
        self.batches.append(batch)
        entries: Sequence[LogEntry[StoredEvent]] = await self._call(
            "append",
            thread_id,
            lambda: self.store.append(
                thread_id, events, after=after, batch=batch, lease=lease, release=release
            ),
        )
        return entries

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        page: Page = await self._call(
            "read", thread_id, lambda: self.store.read(thread_id, after=after, limit=limit)
        )
        return page

    def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[LogEntry[StoredEvent]]:
        return self.store.read_back(thread_id, before=before)

    async def head(self, thread_id: str) -> Head:
        head: Head = await self._call("head", thread_id, lambda: self.store.head(thread_id))
        return head

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        head: Head = await self._call(
            "wait", thread_id, lambda: self.store.wait(thread_id, after=after, timeout=timeout)
        )
        return head

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        return await self.store.threads(agent=agent, before=before, limit=limit)

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        await self._call(
            "copy", thread_id, lambda: self.store.copy(thread_id, new_id, through=through)
        )

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        await self._call(
            "delete", thread_id, lambda: self.store.delete(thread_id, incarnation=incarnation)
        )

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        lease: Lease = await self._call(
            "acquire",
            thread_id,
            lambda: self.store.acquire(thread_id, owner, ttl, request=request),
        )
        return lease

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        answer: tuple[Lease, Head] = await self._call(
            "renew", lease.thread_id, lambda: self.store.renew(lease, ttl)
        )
        return answer

    async def release(self, lease: Lease) -> None:
        await self._call("release", lease.thread_id, lambda: self.store.release(lease))


class Gate:
    """Where a step waits until the test lets it go on."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.cancelled = False

    async def __call__(self, view: Trace) -> Sequence[Event]:
        self.entered.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return [ModelOutput(text="gate")]


def says(text: str) -> Step:
    """Make a step that returns one output."""

    async def step(view: Trace) -> Sequence[Event]:
        return [ModelOutput(text=text)]

    return step


def raises(*errors: Exception | None) -> Step:
    """Make a step that raises these errors in turn; None, and what comes after, succeeds."""
    left = list(errors)

    async def step(view: Trace) -> Sequence[Event]:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return [ModelOutput(text="fine")]

    return step


def asks(kind: str = "approval", expects: JsonSchema | None = None) -> Step:
    """Make a step that asks a person."""

    async def step(view: Trace) -> Sequence[Event]:
        return [Request(kind=kind, actor="person", expects=expects)]

    return step


def line(**steps: Step) -> Graph:
    """Make a graph in which each step follows the one before."""
    graph, names = Graph(), list(steps)
    for name, step in steps.items():
        graph.add_node(name, step)
    for source, target in pairwise(names):
        graph.add_edge(source, target)
    graph.set_entry_point(names[0])
    return graph


def react(rounds: int) -> Graph:
    """Make a graph of a model that calls a tool some times in each turn, and of that tool."""

    async def model(view: Trace) -> Sequence[Event]:
        done = len(view.turn.of(ToolOutput))
        if done >= rounds:
            return [ModelOutput(text="done")]
        call = ToolCall(id=f"c{len(view)}", name="look", arguments={"round": done})
        return [ModelOutput(calls=(call,), finish="tools")]

    async def tools(view: Trace) -> Sequence[Event]:
        output = view.latest(ModelOutput)
        assert output is not None
        return [ToolOutput(call_id=output.calls[0].id, text="seen")]

    def after_model(view: Trace) -> str | None:
        output = view.latest(ModelOutput)
        return "tools" if output is not None and output.calls_tools else None

    graph = Graph()
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_conditional_edge("model", after_model)
    graph.add_edge("tools", "model")
    graph.set_entry_point("model")
    return graph


def thread_of(
    graph: Graph | None,
    store: TraceStore | None = None,
    runs: Runs | None = None,
    thread_id: str = "t-1",
) -> Thread:
    """Make a thread by hand."""
    return Thread(thread_id, graph, store or InMemoryTraceStore(), runs or Runs(), version="1.0")


def names(trace: Sequence[Event]) -> list[str]:
    """Return the classes of events, an output with its text."""
    return [
        event.text if isinstance(event, ModelOutput) and event.text else type(event).__name__
        for event in trace
    ]


HELLO = Input(payload="Hello")
