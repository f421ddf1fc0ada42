"""An event loop with virtual time, in which a strategy says what happens next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVarTuple

from pytest_soev.world._agenda import Agenda
from pytest_soev.world._errors import DeadlockError, EndlessError, OutsideError
from pytest_soev.world._lanes import Lane
from pytest_soev.world._lives import OUTSIDE, Life, current_life
from pytest_soev.world._stacks import stack_of
from pytest_soev.world._stage import Actor, Stage
from pytest_soev.world._strategies import Fifo, Ready, Strategy

Args = TypeVarTuple("Args")
Mode = Literal["strict", "wild"]

MAX_STEPS: Final = 10_000
MAX_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a schedule may be.

    Args:
        steps: The most handles that run.
        seconds: The most virtual seconds.
    """

    steps: int = MAX_STEPS
    seconds: float = MAX_SECONDS


class WorldLoop(Agenda):
    """An event loop whose time stands still while anything is ready, and then jumps.

    Where more than one lane is ready its strategy picks. In the strict mode only answers from
    outside are picked from, at a `boundary`, and all else has the order of asyncio; in the wild
    mode any lane that is ready may go on. It needs no thread of the caller, opens nothing and
    serves one `run_until_complete` at a time.

    Args:
        strategy: What picks. By default the order of asyncio.
        mode: Which lanes are picked from.
        limits: How long a schedule may be.
    """

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        mode: Mode = "wild",
        limits: Limits = Limits(),  # frozen
    ) -> None:
        super().__init__(strict=mode == "strict")
        self._strategy, self._limits = strategy or Fifo(), limits
        self.stage = Stage(self, self._drive, self.finalize)
        self.steps = 0
        self.answers: list[int] = []
        self.widths: list[int] = []
        self.trace: list[object] = []
        self.frozen: Callable[[], tuple[str, ...]] = tuple
        self._batch, self._stopping = 0, False
        self._main: asyncio.Future[Any] | None = None

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Do as `call_soon`. Another thread has no place in a schedule and is refused."""
        if not self.stage.is_driver():
            raise OutsideError("thread that wakes it")
        return self.call_soon(callback, *args, context=context)

    def is_running(self) -> bool:
        """Whether `run_until_complete` is in progress."""
        return self._main is not None

    def close(self) -> None:
        """Take down what is left, without letting it do anything."""
        if self.closed:
            return
        tasks = self.lanes.tasks()
        self.closed = True
        self.stage.clear()
        for task in tasks:
            _taken_down(task)
        self.forget()

    # --- driving ---

    def run_until_complete(self, future: Any) -> Any:
        """Run a coroutine or future to its end, and return its result.

        Raises:
            DeadlockError: Nothing is left that could happen.
            EndlessError: A limit was passed.
        """
        main = asyncio.ensure_future(future, loop=self)
        main.add_done_callback(self._stop)
        self._main, self._stopping = main, False
        try:
            self.stage.play()
        finally:
            self._main = None
            main.remove_done_callback(self._stop)
        return main.result()

    def _stop(self, future: asyncio.Future[Any]) -> None:
        self._stopping = True

    def _drive(self, actor: Actor) -> None:
        """Run handles for as long as the actor drives and the schedule goes on."""
        while actor.driving:
            if self._batch <= 0:
                if self._stopping:
                    return
                self._begin_batch()
            self._batch -= 1
            if not self.lanes.ready:
                self._batch = 0
                continue
            self._run(self._next())

    def _run(self, lane: Lane) -> None:
        handle = self.lanes.take(lane)
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > self._limits.steps:
            raise EndlessError("steps", self._limits.steps, self._waiting())
        self._current = lane
        handle._run()
        self._current = None

    def _begin_batch(self) -> None:
        """Let time pass when nothing is ready, and make ready whose time has come."""
        if not self.lanes.ready:
            due = self.next_time()
            if due is None:
                raise DeadlockError(self._waiting(), self.frozen())
            if due > self._limits.seconds:
                raise EndlessError("virtual seconds", self._limits.seconds, self._waiting())
            self.now = max(self.now, due)
        self.make_due()
        self._batch = self.lanes.count

    def _next(self) -> Lane:
        ready = self.lanes.ready
        if len(ready) == 1:
            return ready[0]
        ready = sorted(ready, key=_since)
        if self.strict:
            inner = next((lane for lane in ready if not lane.boundary), None)
            if inner is not None:
                return inner
        answer = self._strategy.choose([Ready(lane.number, lane.life.name) for lane in ready])
        self.answers.append(answer)
        self.widths.append(len(ready))
        self.trace.append((len(ready), answer))
        return ready[answer]

    def _waiting(self) -> tuple[str, ...]:
        tasks = self.lanes.tasks()
        return tuple(stack_of(task, self.lanes.life_of(task) or OUTSIDE) for task in tasks)

    # --- processes ---

    def stop_here(self) -> None:
        """Stop the calling step where it stands, when its process has stopped."""
        lane = self._current
        assert lane is not None
        lane.life.held = self.stage.actor
        self._current = None
        self.stage.hold()
        self._current = lane

    def stand_still(self, life: Life) -> None:
        """Let a process that was killed or frozen do nothing more, from this moment on."""
        self.lanes.sort()
        if self.life is life:
            self.stop_here()

    def go_on(self, life: Life) -> None:
        """Let a frozen process go on, first of all the step that was stopped in its middle."""
        context = Context()
        self.call_soon(self._thaw, life, context=context)

    def _thaw(self, life: Life) -> None:
        actor, life.held, life.frozen = life.held, None, False
        self.lanes.sort()
        if actor is not None and not life.dead:
            self.stage.go_on(actor)

    def finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close an asynchronous generator that nobody refers to any more, as asyncio does."""
        if not self.closed and not current_life.get().dead:
            self.call_soon(self._finish, generator)

    def _finish(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Made only now, so that a schedule that is over leaves no coroutine that was never awaited.
        self.create_task(generator.aclose())


async def boundary() -> None:
    """Wait for something outside: a schedule may let anything else happen first.

    On another event loop it gives way once.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, WorldLoop):
        await loop.boundary()
    else:
        await asyncio.sleep(0)


async def passed(seconds: float) -> None:
    """Return when some virtual seconds are over, by the clock of the process that waits.

    Args:
        seconds: How many.
    """
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    timer = loop.call_later(seconds, _settle, over)
    try:
        await over
    finally:
        timer.cancel()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _since(lane: Lane) -> int:
    return lane.since


def _taken_down(task: asyncio.Task[Any]) -> None:
    """Close what a task was in the middle of, without letting it do anything."""
    coroutine = task.get_coro()
    for _ in range(100):
        try:
            if coroutine is not None:
                coroutine.close()
            return
        except BaseException:  # noqa: BLE001  # it is over, whatever its cleaning up does
            continue
