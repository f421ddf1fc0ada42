"""What tests of effects share: a world that counts, effects, crashes, and logs to compare."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    ENVELOPE,
    EffectIntent,
    EffectResult,
    Event,
    ModelOutput,
    Request,
    Trace,
    TraceStore,
    fault_plan,
    reached,
)
from soev.runtime._effects import EffectCancellation, Effector, EffectRecovery, abandon
from soev.runtime._graph import Graph
from soev.runtime._runs import Runs
from soev.runtime._thread import Thread
from tests.runtime.world import line, says, thread_of


class Crash(BaseException):
    """A process that dies."""


class World:
    """Counts the acts of each intent, and can be asked by an intent's id."""

    def __init__(self) -> None:
        self.acts: Counter[str] = Counter()

    def done(self, intent: EffectIntent) -> bool:
        """Whether an intent was acted on."""
        return self.acts[str(intent.id)] > 0


class Mailer:
    """An effector that sends mails into a World.

    `hold` makes the act wait in front of the world, `linger` behind it. `fails` is raised once
    the world has changed, `returns` is what the act returns in place of its result.
    """

    def __init__(self, world: World, timeout: float | None = None) -> None:
        self.world, self.timeout = world, timeout
        self.performed: Counter[str] = Counter()
        self.entered, self.changed = asyncio.Event(), asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.linger: asyncio.Event | None = None
        self.fails: BaseException | None = None
        self.returns: object = None
        self.cancelled = False

    async def perform(self, intent: EffectIntent) -> EffectResult:
        self.performed[str(intent.id)] += 1
        self.entered.set()
        try:
            if self.hold is not None:
                await self.hold.wait()
            reached("world.sending")
            self.world.acts[str(intent.id)] += 1
            reached("world.changed")
            self.changed.set()
            if self.linger is not None:
                await self.linger.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.fails is not None:
            raise self.fails
        if self.returns is not None:
            return self.returns  # type: ignore[return-value]  # that is what is tested
        return EffectResult(output="sent")


async def ask_world(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
    """Recover by asking the world, and act when it says that nothing happened."""
    assert isinstance(effector, Mailer)
    if effector.world.done(intent):
        return [EffectResult(output="sent")]
    return [await effector.perform(intent)]


async def ask_person(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
    """Recover by asking a person, and believe the answer."""
    request = trace.latest(Request)
    answer = None if request is None else trace.response_to(request)
    if answer is None:
        return [Request(kind="effect", actor="person")]
    return [EffectResult(output=answer.payload)]


async def await_result(
    trace: Trace, intent: EffectIntent, effector: Effector, performing: "asyncio.Task[EffectResult]"
) -> Sequence[Event]:
    """Decide by waiting for the act."""
    return [await performing]


class Mail:
    """An effect that sends a mail."""

    def __init__(
        self,
        mailer: Mailer,
        recovery: EffectRecovery = ask_world,
        cancellation: EffectCancellation = abandon,
    ) -> None:
        self.effector: Effector = mailer
        self.recovery, self.cancellation = recovery, cancellation
        self.views: list[Trace] = []

    def intend(self, trace: Trace) -> EffectIntent:
        self.views.append(trace)
        return EffectIntent(kind="mail", args={"to": "ann"})


def mailing(mail: object, *, before: str = "model", after: str = "end") -> Graph:
    """Make a graph of a step, the effect and another step."""
    steps: dict[str, Any] = {before: says(before), "mail": mail, after: says(after)}
    return line(**steps)


def told(trace: Sequence[Event]) -> list[tuple[str, str, str | None, str]]:
    """Return what a log says, without ids, times and order across streams."""
    dropped = {*ENVELOPE, "id", "intent"}
    return sorted(
        (
            (event.stream, type(event).__name__, event.origin, _payload(event, dropped))
            for event in trace
        ),
        key=lambda row: row[0],
    )


def _payload(event: Event, dropped: set[str]) -> str:
    return repr(sorted(event.model_dump(exclude=dropped).items()))


@contextmanager
def points(strike: Callable[[int, str], None] = lambda number, point: None) -> Iterator[list[str]]:
    """Note the named points that are passed, and call `strike` at each with its number from 1."""
    passed: list[str] = []

    def note(point: str) -> None:
        passed.append(point)
        strike(len(passed), point)

    token = fault_plan.set(note)
    try:
        yield passed
    finally:
        fault_plan.reset(token)


async def died(thread: Thread, crash: int | str) -> bool:
    """Run a thread in a process that dies at a point, and tell whether it came that far."""

    def die(number: int, point: str) -> None:
        if crash in {number, point}:
            raise Crash(point)

    with points(die):
        try:
            await thread.resume()
        except Crash:
            return True
    return False


async def expire(store: TraceStore, thread_id: str = "t-1") -> None:
    """End the lease of a process that is dead, as time would."""
    lease = (await store.head(thread_id)).lease
    if lease is not None:
        await store.release(lease)


class Case:
    """A thread with an effect, a world, and as many processes as a test makes."""

    def __init__(
        self,
        recovery: EffectRecovery = ask_world,
        cancellation: EffectCancellation = abandon,
        timeout: float | None = None,
    ) -> None:
        self.store = InMemoryTraceStore()
        self.world, self.runs = World(), Runs()
        self.mailer = Mailer(self.world, timeout)
        self.mail = Mail(self.mailer, recovery, cancellation)
        self.graph = mailing(self.mail)
        self.thread = thread_of(self.graph, self.store, self.runs)

    def other(self, graph: Graph | None = None, store: TraceStore | None = None) -> Thread:
        """Return the thread in another process."""
        return thread_of(graph or self.graph, store or self.store, Runs())


def outputs(trace: Sequence[Event]) -> list[str]:
    """Return the texts of the model outputs."""
    return [event.text for event in trace if isinstance(event, ModelOutput)]
