"""What is to happen: at once, at a time, or when an answer from outside comes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import itertools
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar, TypeVarTuple

from pytest_soev.world._lanes import Lane, Lanes
from pytest_soev.world._lives import OUTSIDE, STORE, Life, current_life
from pytest_soev.world._surface import NumberedTask, Surface

T = TypeVar("T")
Args = TypeVarTuple("Args")

SAME_MOMENT: Final = 1e-9


class Agenda(Surface):
    """Takes what is to happen, and puts it into the lane that it belongs to.

    Args:
        strict: Whether a job's answer comes when the strategy says so, as other answers do.
    """

    def __init__(self, *, strict: bool) -> None:
        super().__init__()
        self.strict, self.lanes, self.now = strict, Lanes(), 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Lane]] = []
        self._numbers = itertools.count()
        self._current: Lane | None = None

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.closed

    @property
    def life(self) -> Life:
        """The process whose code runs now."""
        return OUTSIDE if self._current is None else self._current.life

    def _lane_of(self, callback: Callable[..., object], context: Context | None) -> Lane:
        life = current_life.get() if context is None else context.get(current_life, OUTSIDE)
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return self.lanes.lane(owner, life)
        # What happens inside a job, and its answer, are the job's own.
        current = self._current
        if current is not None and isinstance(current.owner, concurrent.futures.Future):
            return current
        return self.lanes.lane(life, life)

    def time(self) -> float:
        """Return the running process's own seconds."""
        return self.life.local(self.now)

    def call_soon(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Let a callback run once what is ready has run."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.closed:
            self.lanes.add(self._lane_of(callback, context), handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Let a callback run when some seconds of the process's own time are over."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Let a callback run at a moment of the process's own time."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.closed:
            lane, due = self._lane_of(callback, context), self.life.shared(when)
            heapq.heappush(self._timers, (due, next(self._numbers), timer, lane))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled timer where it is: it is dropped when its time comes."""

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Make a task, in the process of the one that makes it."""
        if self.closed:
            coro.close()
            raise RuntimeError("The schedule is over, so nothing new begins.")
        if self._factory is None:
            return NumberedTask(coro, loop=self, name=name, context=context, **options)
        if context is not None:
            options["context"] = context
        task: asyncio.Task[T] = self._factory(self, coro, **options)
        if name is not None:
            task.set_name(name)
        # An eager task has begun already, and may stand inside of a store by now.
        if not task.done():
            self.lanes.lane(task, (context or copy_context()).get(current_life, OUTSIDE))
        return task

    def run_in_executor(
        self,
        executor: concurrent.futures.Executor | None,
        func: Callable[[*Args], T],
        *args: *Args,
    ) -> asyncio.Future[T]:
        """Run a job inline: once it is its lane's turn, and its answer comes one turn later."""
        job: concurrent.futures.Future[T] = concurrent.futures.Future()
        lane = self.lanes.lane(job, current_life.get())

        def run() -> None:
            if not job.set_running_or_notify_cancel():
                return
            try:
                result = Context().run(func, *args)
            except Exception as error:  # noqa: BLE001  # it belongs to whoever awaits the job
                job.set_exception(error)
            else:
                job.set_result(result)

        answer = asyncio.wrap_future(job, loop=self)
        target = self.lanes.boundary(lane) if self.strict else lane
        self.lanes.add(target, asyncio.Handle(run, (), self))
        return answer

    async def boundary(self) -> None:
        """Wait for an answer from outside, which comes when the strategy says so."""
        answer = self.create_future()
        task = asyncio.current_task(self)
        lane = self.lanes.boundary(self.lanes.lane(task, current_life.get()))
        self.lanes.add(lane, asyncio.Handle(_answer, (answer,), self))
        await answer

    def in_store(self, work: Callable[..., object], *args: Any) -> None:
        """Let something happen in the store, whatever becomes of the process that asked."""
        context = copy_context()
        context.run(current_life.set, STORE)
        self.call_soon(work, *args, context=context)

    # --- time ---

    def next_time(self) -> float | None:
        """Return when the next timer is due, None when none is set."""
        while self._timers and (self._timers[0][2].cancelled() or self._timers[0][3].life.dead):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def make_due(self) -> None:
        """Make ready whose time has come."""
        while self._timers and self._timers[0][0] <= self.now + SAME_MOMENT:
            _, _, timer, lane = heapq.heappop(self._timers)
            if not timer.cancelled() and not lane.life.dead:
                self.lanes.add(lane, timer)

    def forget(self) -> None:
        """Let everything go that was still to happen."""
        self._timers.clear()
        self.lanes.forget()


def _answer(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
