"""The simulated loop: virtual time, choices, what it refuses, and how it ends."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from pytest_soev.world import (
    DeadlockError,
    EndlessError,
    Limits,
    OutsideError,
    Ready,
    Replay,
    Setting,
    Simulation,
    WorldLoop,
    boundary,
    passed,
)


def run(main: Awaitable[Any], loop: WorldLoop | None = None) -> Any:
    """Run something on a loop, and close it."""
    loop = loop or WorldLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


async def hour() -> float:
    """Let most of an hour pass, and return the time."""
    await passed(3599)
    return asyncio.get_running_loop().time()


def test_time_jumps_when_nothing_is_ready() -> None:
    """An hour passes at once."""
    assert run(hour()) == 3599


async def busy() -> float:
    """Let the loop turn, and return the time."""
    for _ in range(100):
        await asyncio.sleep(0)
    return asyncio.get_running_loop().time()


def test_time_stands_still_while_anything_is_ready() -> None:
    """No time passes while tasks run."""
    assert run(busy()) == 0


async def connect() -> None:
    """Open a connection."""
    await asyncio.open_connection("localhost", 80)


async def call_program() -> None:
    """Start a subprocess."""
    await asyncio.create_subprocess_exec("true")


async def look_up() -> None:
    """Look a host up."""
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


async def hear_signal() -> None:
    """Listen to a signal."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)


async def be_woken() -> None:
    """Be woken by another thread, and raise what it got for it."""
    loop, raised = asyncio.get_running_loop(), []

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except OutsideError as error:
            raised.append(error)

    thread = threading.Thread(target=wake)
    thread.start()
    thread.join()
    raise raised[0]


@pytest.mark.parametrize(
    ("main", "what"),
    [
        (connect, "socket"),
        (call_program, "subprocess"),
        (look_up, "host name"),
        (hear_signal, "signal"),
        (be_woken, "thread that wakes it"),
    ],
)
def test_what_no_schedule_decides_is_refused(
    main: Callable[[], Awaitable[None]], what: str
) -> None:
    """A socket, a subprocess, a signal and another thread raise at once."""
    with pytest.raises(OutsideError, match=f"has no {what}"):
        run(main())


async def wait_for_ever() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


async def deadlock() -> None:
    """Wait for a task that waits for ever."""
    waiting = asyncio.create_task(wait_for_ever(), name="forgotten")
    await asyncio.wait((waiting,))


def test_a_deadlock_shows_where_each_task_waits() -> None:
    """Nothing ready, no timer and no end: the report has the await stack of each task."""
    with pytest.raises(DeadlockError) as caught:
        run(deadlock())
    assert any(
        "forgotten in outside: wait_for_ever (test_loop.py:" in task and "Event.wait" in task
        for task in caught.value.tasks
    )
    assert "Nothing is left that could happen" in str(caught.value)


async def spin() -> None:
    """Never stop, and let no time pass."""
    while True:
        await boundary()


async def tick() -> None:
    """Let time pass and never stop."""
    while True:
        await passed(100)


@pytest.mark.parametrize(("main", "what"), [(spin, "10000 steps"), (tick, "3600 virtual seconds")])
def test_a_schedule_without_an_end_is_stopped(
    main: Callable[[], Awaitable[None]], what: str
) -> None:
    """Ten thousand steps, or an hour, are too many."""
    with pytest.raises(EndlessError, match=f"did not end within {what}"):
        run(main())


def test_limits_can_be_set() -> None:
    """A loop has the limits that it is given."""
    with pytest.raises(EndlessError, match="within 10 steps"):
        run(spin(), WorldLoop(limits=Limits(steps=10)))


class Odd:
    """Takes the lane in front, and notes how many there were."""

    def __init__(self) -> None:
        self.widths: list[int] = []

    def choose(self, lanes: Sequence[Ready]) -> int:
        self.widths.append(len(lanes))
        return 0


async def two_tasks() -> list[str]:
    """Let two tasks do two things inside, then one outside."""
    log: list[str] = []

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        log.append(f"{name} in")
        await boundary()
        log.append(f"{name} out")

    await asyncio.gather(work("a"), work("b"))
    return log


def test_the_strict_mode_has_choices_only_at_boundaries() -> None:
    """Steps inside of a process have one order; answers from outside come in any."""
    strict, wild = Odd(), Odd()
    run(two_tasks(), WorldLoop(strict, mode="strict"))
    run(two_tasks(), WorldLoop(wild, mode="wild"))
    assert strict.widths == [2]
    assert len(wild.widths) > 3
    log = run(two_tasks(), WorldLoop(Replay([1]), mode="strict"))
    assert log == ["a in", "b in", "b out", "a out"]


async def cancelled_job() -> list[str]:
    """Cancel a job after it ran, before its answer comes."""
    log: list[str] = []
    task = asyncio.create_task(asyncio.to_thread(log.append, "ran"))
    while not log:
        await boundary()
    task.cancel()
    await asyncio.wait((task,))
    return [*log, "cancelled" if task.cancelled() else "done"]


def test_a_cancel_lands_between_a_job_and_its_answer() -> None:
    """A job runs in one turn and answers in another one, so it may run and still be cancelled."""
    assert run(cancelled_job(), WorldLoop(mode="strict")) == ["ran", "cancelled"]


async def left_generator(log: list[str]) -> None:
    """Leave a generator in its middle."""

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            await asyncio.sleep(0)
            log.append("closed")

    async for _ in numbers():
        break
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)
    log.append("end")


def test_a_generator_that_is_left_is_closed() -> None:
    """As on asyncio's loop, a generator that nobody refers to any more runs its `finally`."""
    log: list[str] = []
    run(left_generator(log))
    assert log == ["closed", "end"]


def test_a_runner_of_asyncio_can_use_the_loop() -> None:
    """`asyncio.Runner` works with it."""
    with asyncio.Runner(loop_factory=WorldLoop) as runner:
        assert runner.run(busy()) == 0


async def raises(sim: Simulation) -> None:
    """Raise an error."""
    await boundary()
    raise KeyError("lost")


def test_a_failure_names_the_token_that_runs_it_again() -> None:
    """What a scenario raised carries the token of its schedule as a note."""
    outcome = Simulation(setting=Setting(mode="wild")).run(raises)
    with pytest.raises(KeyError, match="lost") as caught:
        outcome.result()
    assert caught.value.__notes__ == ["Run this schedule again: scenario.again('wild:')"]


async def leaves_a_task(sim: Simulation) -> None:
    """End while a task still waits."""
    sim.process("a").start(wait_for_ever())
    await boundary()


def test_a_task_that_is_left_is_reported() -> None:
    """Tasks of living processes that a scenario leaves behind are part of the outcome."""
    assert Simulation().run(leaves_a_task).left == ("a",)
