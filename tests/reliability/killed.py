"""A program that runs a turn in processes of its own, and kills or stops them at named points.

It is started as `python -m tests.reliability.killed MODE DIRECTORY [WORD...]` and prints one line
of JSON for each run. The world is a file with a line for each act, so it outlives every process.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from soev.adapters import SqliteTraceStore
from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    Input,
    LeaseHeldError,
    LeaseLostError,
    ModelOutput,
    Trace,
    fault_plan,
    reached,
)
from soev.runtime import (
    EffectCancellation,
    Effector,
    EffectRecovery,
    Graph,
    Runs,
    Thread,
    abandon,
)

LATER = timedelta(minutes=5)
LOOK = 0.05
Strike = Callable[[int, str], None]


class LaterClock:
    """This machine's clock as it will be when every lease of an earlier process is over."""

    def __init__(self, life: int) -> None:
        from soev.runtime._system import SystemClock  # noqa: PLC0415  # after the fork

        self._clock, self._ahead = SystemClock(), life * LATER

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()


class FileWorld:
    """A world in a file: each act is a line with the intent's id, on the disk at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def act(self, intent: EffectIntent) -> None:
        """Change the world."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{intent.id}\n")
            file.flush()
            os.fsync(file.fileno())

    def acts(self) -> Counter[str]:
        """Return how often each intent was acted on."""
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        return Counter(text.split())

    async def perform(self, intent: EffectIntent) -> EffectResult:
        reached("world.sending")
        self.act(intent)
        reached("world.changed")
        return EffectResult(output="sent")


class Mail:
    """An effect whose recovery asks the world."""

    def __init__(self, world: FileWorld) -> None:
        self.effector: Effector = world
        self.recovery: EffectRecovery = self._ask
        self.cancellation: EffectCancellation = abandon
        self._world = world

    def intend(self, trace: Trace) -> EffectIntent:
        return EffectIntent(kind="mail", args={"to": "ann"})

    async def _ask(self, trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        if self._world.acts()[str(intent.id)]:
            return [EffectResult(output="sent")]
        return [await effector.perform(intent)]


async def speaks(view: Trace) -> Sequence[Event]:
    """Say the same each time."""
    return [ModelOutput(text="Done.")]


def graph_on(world: FileWorld) -> Graph:
    """Make a graph of a step, an effect and a step."""
    graph = Graph()
    graph.add_node("model", speaks)
    graph.add_node("mail", Mail(world))
    graph.add_node("end", speaks)
    graph.add_edge("model", "mail")
    graph.add_edge("mail", "end")
    graph.set_entry_point("model")
    return graph


async def turn(directory: Path, life: int) -> None:
    """Run the one turn of the thread from where it stands, as soon as nobody else does."""
    async with SqliteTraceStore(directory / "log.db", clock=LaterClock(life)) as store:
        runs = Runs(lease_ttl=1)
        thread = Thread("t-1", graph_on(FileWorld(directory / "world")), store, runs)
        if not (await store.head("t-1")).position:
            await thread.submit(Input(payload="Hello"))
        while True:
            try:
                await thread.resume()
            except LeaseHeldError:
                await store.wait("t-1", after=await store.head("t-1"), timeout=LOOK)
            else:
                return


def forked(work: Callable[[], None]) -> int:
    """Do work in a process of its own, and return that."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except LeaseLostError:
        code = 3
    finally:
        os._exit(code)


def lived(directory: Path, life: int, strike: Strike) -> Callable[[], None]:
    """Return the life of one process, which is struck at its named points."""

    def work() -> None:
        passed = 0

        def note(point: str) -> None:
            nonlocal passed
            passed += 1
            strike(passed, point)

        fault_plan.set(note)
        asyncio.run(turn(directory, life))

    return work


def killing(at: int) -> Strike:
    """Kill the process at a point."""

    def strike(number: int, point: str) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return strike


def stopping(where: str) -> Strike:
    """Stop the process at the first point of a name after it has taken the lease."""
    held = stopped = False

    def strike(number: int, point: str) -> None:
        nonlocal held, stopped
        held = held or point == "lease.acquired"
        if held and not stopped and point == where:
            stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)

    return strike


def spare(number: int, point: str) -> None:
    """Let the process go on."""


def left_behind(directory: Path) -> dict[str, Any]:
    """Return what is in the log, without ids, and what was done to the world."""

    async def read() -> list[str]:
        async with SqliteTraceStore(directory / "log.db") as store:
            return [entry.event.data for entry in (await store.read("t-1")).entries]

    events = [re.sub(r"\"[0-9a-f]{32}\"", '"ID"', data) for data in asyncio.run(read())]
    acts = FileWorld(directory / "world").acts()
    return {"log": events, "acts": sorted(acts.values())}


def kills(directory: Path, words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Kill a process at each point of a word (`3` or `3,5` for two in a row), then run to the end.

    Args:
        directory: Where the runs keep their files.
        words: What to run; nothing runs each point once until a process survives it.
    """
    plans = [[int(at) for at in word.split(",")] for word in words]
    numbers = iter(plans) if plans else ([at] for at in range(1, 10_000))
    for number, plan in enumerate(numbers):
        place = directory / str(number)
        place.mkdir()
        died = 0
        for life, at in enumerate(plan):
            _, status = os.waitpid(forked(lived(place, life, killing(at))), 0)
            died += os.WIFSIGNALED(status)
        _, status = os.waitpid(forked(lived(place, len(plan), spare)), 0)
        yield {"plan": plan, "died": died, "code": os.WEXITSTATUS(status), **left_behind(place)}
        if not plans and not died:
            return


def pauses(directory: Path, words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Stop a process at a point, let another run the turn, and let the first go on.

    The clock is the real one, and so is the second that the lease lasts.

    Args:
        directory: Where the runs keep their files.
        words: The names of the points.
    """
    for number, word in enumerate(words):
        place = directory / str(number)
        place.mkdir()
        first = forked(lived(place, 0, stopping(word)))
        _, status = os.waitpid(first, os.WUNTRACED)
        stopped = os.WIFSTOPPED(status)
        _, second = os.waitpid(forked(lived(place, 0, spare)), 0)
        before = left_behind(place)
        if stopped:
            os.kill(first, signal.SIGCONT)
            _, status = os.waitpid(first, 0)
        yield {
            "point": word,
            "stopped": stopped,
            "code": os.WEXITSTATUS(second),
            "late": os.WEXITSTATUS(status),
            "same": before == left_behind(place),
            **before,
        }


def main() -> None:
    """Run what the command line says."""
    mode, directory, *words = sys.argv[1:]
    runs = kills if mode == "kill" else pauses
    for outcome in runs(Path(directory), words):
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
