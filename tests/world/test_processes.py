"""Simulated processes are killed, frozen and started again in the middle of a step."""

import asyncio
import weakref
from collections.abc import Callable, Coroutine

import pytest

from pytest_soev.world import Process, ProcessDiedError, Simulation, boundary, passed, raced
from soev.domain import reached


class Diary:
    """Notes what happens, and whether the schedule was over by then."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.over = False

    def note(self, line: str) -> None:
        self.lines.append(f"{line}, after the end" if self.over else line)


class Thing:
    """Something that can be referred to weakly."""


async def victim(process: Process, diary: Diary) -> None:
    """Die in the middle of a step, with a `finally`, an `except` and a weak reference around."""
    thing = Thing()
    weakref.finalize(thing, diary.note, "collected")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            await boundary()
            diary.note("alive")
            process.kill()
            diary.note("undead")
    except BaseException:
        diary.note("except")
        raise
    finally:
        diary.note("finally")
        del thing


def test_nothing_of_a_killed_process_runs() -> None:
    """A kill stops a process in mid-step: no `except`, `finally` or weakref callback runs."""
    diary = Diary()

    async def scenario(sim: Simulation) -> None:
        process = sim.process("a")
        with pytest.raises(ProcessDiedError, match="'a' was killed"):
            await process.call(victim(process, diary))
        await asyncio.sleep(0)
        await passed(3000)
        diary.over = True

    Simulation().run(scenario).result()
    assert [line for line in diary.lines if "after the end" not in line] == ["alive"]


def test_a_process_that_waits_is_killed_from_outside() -> None:
    """A kill reaches each task of a process, whatever it waits for."""
    diary = Diary()

    async def sleeper() -> None:
        try:
            await asyncio.to_thread(diary.note, "job")
            await passed(1)
            diary.note("woke")
        finally:
            diary.note("finally")

    async def scenario(sim: Simulation) -> tuple[str, ...]:
        process = sim.process("a")
        task = process.start(sleeper())
        while not diary.lines:
            await boundary()
        process.kill()
        await passed(10)
        assert not task.done()
        diary.over = True
        return tuple(diary.lines)

    assert Simulation().run(scenario).result() == ("job",)


def test_a_frozen_process_goes_on_where_it_stood() -> None:
    """A freeze holds a process in mid-step while time passes; a thaw lets it go on there."""

    async def work(process: Process, log: list[object]) -> None:
        log.append(process.clock.monotonic())
        process.freeze(40)
        log.append(process.clock.monotonic())
        await boundary()
        log.append("done")

    async def scenario(sim: Simulation) -> list[object]:
        process, log = sim.process("a"), list[object]()
        await process.call(work(process, log))
        return log

    assert Simulation().run(scenario).result() == [0.0, 40.0, "done"]


def test_other_tasks_of_a_frozen_process_stand_still_too() -> None:
    """No task of a frozen process runs before the step that stands is finished."""

    async def chatter(log: list[str]) -> None:
        for number in range(3):
            await boundary()
            log.append(f"chat {number}")

    async def stop(process: Process, log: list[str]) -> None:
        log.append("stop")
        process.freeze(10)
        log.append("go")

    async def scenario(sim: Simulation) -> list[str]:
        process, log = sim.process("a"), list[str]()
        first = process.start(stop(process, log))
        await raced(first, process.start(chatter(log)))
        return log

    assert Simulation().run(scenario).result() == ["stop", "go", "chat 0", "chat 1", "chat 2"]


def test_a_process_freezes_twice_in_one_step() -> None:
    """A step that was thawed can be frozen again, and killed after that."""

    async def work(process: Process, log: list[float]) -> None:
        for _ in range(2):
            process.freeze(5)
            log.append(process.clock.monotonic())
        process.kill()
        log.append(-1)

    async def scenario(sim: Simulation) -> list[float]:
        process, log = sim.process("a"), list[float]()
        with pytest.raises(ProcessDiedError):
            await process.call(work(process, log))
        return log

    assert Simulation().run(scenario).result() == [5, 10]


async def _nothing() -> str:
    return "done"


def test_a_restart_begins_with_fresh_runs() -> None:
    """A process that was started again has other runs, ids and a store that answers."""

    async def scenario(sim: Simulation) -> None:
        process = sim.process("a")
        runs, store, owner = process.runs, process.store, process.runs.owner
        process.restart()
        assert process.alive
        assert process.runs is not runs
        assert process.runs.owner != owner
        assert await process.call(_nothing()) == "done"
        assert (await process.store.head("t-1")).position == 0
        with pytest.raises(ProcessDiedError):
            await store.head("t-1")

    Simulation().run(scenario).result()


def test_a_dead_process_starts_nothing() -> None:
    """Work for a dead process is refused."""

    async def scenario(sim: Simulation) -> None:
        process = sim.process("a")
        process.kill()
        with pytest.raises(ProcessDiedError, match="Start its work again after `restart"):
            process.start(_nothing())

    Simulation().run(scenario).result()


def test_points_are_counted_in_processes_alone() -> None:
    """A named point counts where a process passes it, and says which."""

    async def work() -> None:
        reached("here")

    async def scenario(sim: Simulation) -> None:
        reached("outside")
        await sim.process("a").call(work())
        sim.process("a").restart()
        await sim.process("a").call(work())

    assert Simulation().run(scenario).points == ("a:here", "a#2:here")


@pytest.mark.parametrize(("offset", "rate"), [(0, 1), (86_400, 1.1), (-86_400, 0.9)])
def test_a_process_has_a_clock_of_its_own(offset: float, rate: float) -> None:
    """Its clock and its timers go at its own rate, ahead by its own offset."""

    async def work(process: Process) -> tuple[float, float]:
        before = process.clock.monotonic()
        await passed(11)
        return before, process.clock.monotonic()

    async def scenario(sim: Simulation) -> tuple[float, float, float]:
        process = sim.process("a", offset=offset, rate=rate)
        before, after = await process.call(work(process))
        return before, after, sim.loop.now

    before, after, shared = Simulation().run(scenario).result()
    assert before == offset
    assert after == pytest.approx(offset + 11)
    assert shared == pytest.approx(11 / rate)


def test_equal_runs_have_one_identity() -> None:
    """The hash of a schedule is that of its choices and points, and a kill changes it."""

    def make(kills: bool) -> Callable[[Simulation], Coroutine[object, object, None]]:
        async def work() -> None:
            await boundary()
            reached("here")

        async def scenario(sim: Simulation) -> None:
            await sim.process("a").call(work())
            if kills:
                sim.process("a").kill()

        return scenario

    calm, again, killed = (Simulation().run(make(kills)) for kills in (False, False, True))
    assert calm.identity == again.identity != killed.identity
