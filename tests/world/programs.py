"""Generated asyncio programs, and asyncio's own loop with virtual time to compare with."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from itertools import count
from typing import Any, TypeVar

from hypothesis import strategies as st

from pytest_soev.world._surface import NumberedFuture, NumberedTask

Program = tuple[object, ...]
Log = list[tuple[object, ...]]
T = TypeVar("T")

# The loops of these programs have virtual time, so nothing really waits.
pause = asyncio.sleep

NUMBERS = st.integers(0, 3)
SECONDS = st.integers(0, 3)


def _ops(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.tuples(st.just("gather"), several),
        st.tuples(st.just("group"), several),
        st.tuples(st.just("in turn"), several),
        st.tuples(st.just("timeout"), SECONDS, inner),
        st.tuples(st.just("wait_for"), SECONDS, inner),
        st.tuples(st.just("lock"), inner),
        st.tuples(st.just("shield"), SECONDS, inner),
        st.tuples(st.just("cancel later"), SECONDS, inner),
        st.tuples(st.just("cancel soon"), inner),
        st.tuples(st.just("finally"), inner),
    )


LEAVES = st.one_of(
    st.tuples(st.just("log"), NUMBERS),
    st.tuples(st.just("sleep"), SECONDS),
    st.tuples(st.just("thread"), NUMBERS),
    st.tuples(st.just("set")),
    st.tuples(st.just("wait"), SECONDS),
    st.tuples(st.just("put"), NUMBERS),
    st.tuples(st.just("get"), SECONDS),
    st.tuples(st.just("notify")),
    st.tuples(st.just("condition"), SECONDS),
    st.tuples(st.just("call_later"), SECONDS, NUMBERS),
    st.tuples(st.just("call_soon"), NUMBERS),
    st.tuples(st.just("raise")),
)

PROGRAMS: st.SearchStrategy[Program] = st.recursive(LEAVES, _ops, max_leaves=12)


class Interpreter:
    """Runs one program, and logs what happens and when."""

    def __init__(self) -> None:
        self.log: Log = []
        self.event, self.lock = asyncio.Event(), asyncio.Lock()
        self.queue: asyncio.Queue[object] = asyncio.Queue(1)
        self.condition = asyncio.Condition()

    def note(self, *what: object) -> None:
        self.log.append((*what, round(asyncio.get_running_loop().time())))

    async def main(self, program: Program) -> Log:
        await self.run(program)
        me = asyncio.current_task()
        while left := sorted(asyncio.all_tasks() - {me}, key=hash):
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        self.note("end")
        return self.log

    async def run(self, program: Program) -> None:
        """Run a program. What it raises is logged, but for a cancellation."""
        name, *args = program
        self.note(name)
        method: Callable[..., Awaitable[None]] = getattr(self, "do_" + str(name).replace(" ", "_"))
        try:
            await method(*args)
        except asyncio.CancelledError:
            self.note("cancelled", name)
            raise
        except Exception as error:  # noqa: BLE001  # what is raised is part of the comparison
            self.note(type(error).__name__, name)

    def task(self, program: Program) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self.run(program))

    async def do_log(self, number: int) -> None:
        self.note("log", number)

    async def do_sleep(self, seconds: int) -> None:
        await pause(seconds)

    async def do_thread(self, number: int) -> None:
        self.note("thread", await asyncio.to_thread(lambda: number))

    async def do_set(self) -> None:
        self.event.set()

    async def do_wait(self, seconds: int) -> None:
        async with asyncio.timeout(seconds):
            await self.event.wait()
        self.event.clear()

    async def do_put(self, number: int) -> None:
        async with asyncio.timeout(2):
            await self.queue.put(number)

    async def do_get(self, seconds: int) -> None:
        self.note("got", await asyncio.wait_for(self.queue.get(), seconds))

    async def do_notify(self) -> None:
        async with self.condition:
            self.condition.notify_all()

    async def do_condition(self, seconds: int) -> None:
        async with self.condition, asyncio.timeout(seconds):
            await self.condition.wait()

    async def do_call_later(self, seconds: int, number: int) -> None:
        asyncio.get_running_loop().call_later(seconds, self.note, "later", number)

    async def do_call_soon(self, number: int) -> None:
        asyncio.get_running_loop().call_soon(self.note, "soon", number)

    async def do_raise(self) -> None:
        raise ValueError

    async def do_gather(self, programs: tuple[Program, ...]) -> None:
        await asyncio.gather(*map(self.run, programs), return_exceptions=True)

    async def do_group(self, programs: tuple[Program, ...]) -> None:
        async with asyncio.TaskGroup() as group:
            for program in programs:
                group.create_task(self.run(program))

    async def do_in_turn(self, programs: tuple[Program, ...]) -> None:
        for program in programs:
            await self.run(program)

    async def do_timeout(self, seconds: int, program: Program) -> None:
        async with asyncio.timeout(seconds):
            await self.run(program)

    async def do_wait_for(self, seconds: int, program: Program) -> None:
        await asyncio.wait_for(self.run(program), seconds)

    async def do_lock(self, program: Program) -> None:
        if self.lock.locked():
            return
        async with self.lock:
            await self.run(program)

    async def do_shield(self, seconds: int, program: Program) -> None:
        shielded = self.task(program)
        async with asyncio.timeout(seconds):
            await asyncio.shield(shielded)

    async def do_cancel_later(self, seconds: int, program: Program) -> None:
        task = self.task(program)
        asyncio.get_running_loop().call_later(seconds, task.cancel)
        await asyncio.wait((task,))

    async def do_cancel_soon(self, program: Program) -> None:
        task = self.task(program)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))

    async def do_finally(self, program: Program) -> None:
        try:
            await self.run(program)
        finally:
            await asyncio.sleep(0)
            self.note("finally")


def log_of(loop: asyncio.AbstractEventLoop, program: Program, *, eager: bool = False) -> Log:
    """Run a program on a loop, and return its log."""
    if eager:
        make: Any = getattr(asyncio, "create_eager_task_factory")  # noqa: B009  # there from 3.12 on
        loop.set_task_factory(make(NumberedTask))

    async def main() -> Log:
        return await Interpreter().main(program)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


class _Jumping(selectors.SelectSelector):
    """Never waits: it moves its loop's time."""

    loop: "StockLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.seconds += timeout
        return ready


class _InlineExecutor(ThreadPoolExecutor):
    """Runs each job in a turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(1)
        self._loop = loop

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        job: Future[T] = Future()

        def run() -> None:
            if job.set_running_or_notify_cancel():
                job.set_result(fn(*args, **kwargs))

        self._loop.call_soon(run, context=Context())
        return job


class StockLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with virtual time and jobs that run inline.

    Where asyncio's order depends on memory addresses or on the digits of a clock it is fixed: its
    sets of tasks are in the order of their numbers, and timers of one moment in the order of
    their making.
    """

    def __init__(self) -> None:
        self.seconds, self._timers = 0.0, 0
        self.task_numbers, self.future_numbers = count(1), count(1)
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-3
        self.set_default_executor(_InlineExecutor(self))

    def time(self) -> float:
        return self.seconds

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        if self.get_task_factory() is None:
            return NumberedTask(coro, loop=self, **options)  # type: ignore[arg-type]  # it counts as ours does
        return super().create_task(coro, **options)

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)  # type: ignore[arg-type]  # it counts as ours does

    def call_at(  # type: ignore[override]  # it hands on whatever it gets
        self, when: float, callback: Any, *args: Any, **kwargs: Any
    ) -> asyncio.TimerHandle:
        self._timers += 1
        return super().call_at(when + self._timers * 1e-9, callback, *args, **kwargs)
