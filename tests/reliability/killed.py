"""A program that plays scenario graphs in processes of its own, and kills or stops them.

It is started as `python -m tests.reliability.killed MODE DIRECTORY GRAPH [WORD...]`, where GRAPH is
a place in `GRAPHS`, and prints one line of JSON for each run. The world is a file with a line for
each act, so it outlives every process.
"""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pytest_soev.world import Scenario, World
from soev.adapters import SqliteTraceStore
from soev.domain import EffectIntent, JsonValue, fault_plan
from soev.runtime._system import SystemClock
from tests.reliability.graphs import GRAPHS
from tests.reliability.real import Reality
from tests.reliability.rules import Story

LATER = timedelta(minutes=5)
Strike = Callable[[int, str], None]
Outcome = dict[str, Any]


class LaterClock:
    """This machine's clock as it will be when the leases of so many lives are over."""

    def __init__(self, lives: int) -> None:
        self._clock, self._ahead = SystemClock(), lives * LATER

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()


class FiledWorld(World):
    """A world in a file: each act is a line with the intent's id, on the disk at once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.look()

    def look(self) -> None:
        """Count what is in the file."""
        self.acts.clear()
        if self._path.exists():
            self.acts.update(self._path.read_text(encoding="utf-8").split())

    def act(self, intent: EffectIntent) -> JsonValue:
        said = super().act(intent)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{intent.id}\n")
            file.flush()
            os.fsync(file.fileno())
        return said

    def asked(self, intent_id: str) -> bool | None:
        self.look()
        return super().asked(intent_id)


@dataclass(frozen=True)
class Place:
    """Where a run keeps its files, and what it plays.

    Args:
        scenario: The scenario.
        directory: The directory.
        lease_ttl: The seconds that a lease lasts.
    """

    scenario: Scenario[Story]
    directory: Path
    lease_ttl: float = 30.0

    async def played(self, life: int, lives_ago: int) -> None:
        """Play the scenario from where its log stands.

        Args:
            life: Which process this is, from 1.
            lives_ago: After how many leases the clock of this one begins.
        """
        world = FiledWorld(self.directory / "world")
        clock = LaterClock(lives_ago)
        async with SqliteTraceStore(self.directory / "log.db", clock=clock) as store:
            here = Reality(store, world, life=life, lease_ttl=self.lease_ttl, alone=False)
            await here.play(self.scenario)

    def left_behind(self) -> Outcome:
        """Return what is in the log and in the world, and the rules that are broken."""

        async def read() -> Story:
            async with SqliteTraceStore(self.directory / "log.db") as store:
                return await Reality(store, FiledWorld(self.directory / "world")).told("t-1", "t-2")

        story = asyncio.run(read())
        return {"log": story.log, "acts": story.acts, "broken": story.broken}

    def cleared(self) -> Outcome:
        """Return the same, and remove the files."""
        outcome = self.left_behind()
        shutil.rmtree(self.directory)
        return outcome


def forked(work: Callable[[], None]) -> int:
    """Do work in a process of its own, and return that."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  # nobody else would ever see it
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(process: int) -> int:
    """Wait for a process, and return its exit code, negative for the signal that killed it."""
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def lived(place: Place, strike: Strike, life: int, lives_ago: int) -> int:
    """Start the life of one process, which is struck at its named points."""

    def work() -> None:
        numbers = count(1)
        fault_plan.set(lambda point: strike(next(numbers), point))
        asyncio.run(place.played(life, lives_ago))

    return forked(work)


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


def kills(scenario: Scenario[Story], directory: Path, words: Sequence[str]) -> Iterator[Outcome]:
    """Kill processes at named points, then run to the end.

    Args:
        scenario: What they play.
        directory: Where the runs keep their files.
        words: `3` for the third point, `3,5` for two processes in a row, `3,*` for every point of
            the second until it survives. Nothing is `*`.
    """
    for word in words or ["*"]:
        *first, last = word.split(",")
        plans = ([*first, str(at)] for at in count(1)) if last == "*" else iter([[*first, last]])
        for plan in plans:
            outcome = killed(scenario, directory, [int(at) for at in plan])
            yield outcome
            if outcome["died"] < len(plan):
                break


def killed(scenario: Scenario[Story], directory: Path, plan: list[int]) -> Outcome:
    """Kill a process at each point of a plan, one after the other."""
    place = Place(scenario, directory / "-".join(map(str, plan)))
    place.directory.mkdir()
    died = 0
    for lives, at in enumerate(plan):
        died += ended(lived(place, killing(at), lives + 1, lives)) == -signal.SIGKILL
    code = ended(lived(place, spare, len(plan) + 1, len(plan)))
    return {"plan": plan, "died": died, "code": code, **place.cleared()}


def pauses(scenario: Scenario[Story], directory: Path, words: Sequence[str]) -> Iterator[Outcome]:
    """Stop processes at points, let others run the turn, and let the first go on.

    The clock is the real one, and so is the second that the lease lasts. All runs are under way at
    the same time, since they wait more than they work.

    Args:
        scenario: What they play.
        directory: Where the runs keep their files.
        words: The names of the points.
    """
    places = [Place(scenario, directory / str(number), 1.0) for number in range(len(words))]
    for place in places:
        place.directory.mkdir()
    first = [lived(place, stopping(word), 1, 0) for place, word in zip(places, words, strict=True)]
    stopped = [os.WIFSTOPPED(os.waitpid(each, os.WUNTRACED)[1]) for each in first]
    codes = [ended(each) for each in [lived(place, spare, 2, 0) for place in places]]
    before = [place.left_behind() for place in places]
    for each in first:
        os.kill(each, signal.SIGCONT)
    late = [ended(each) for each in first]
    for number, place in enumerate(places):
        yield {
            "point": words[number],
            "stopped": stopped[number],
            "code": codes[number],
            "late": late[number],
            "same": before[number] == place.left_behind(),
            **before[number],
        }


def creations(
    scenario: Scenario[Story], directory: Path, words: Sequence[str]
) -> Iterator[Outcome]:
    """Kill a process at each statement with which it makes the tables, then play a scenario.

    Args:
        scenario: What is played then.
        directory: Where the runs keep their files.
        words: None.
    """
    for at in count(1):
        place = Place(scenario, directory / str(at))
        place.directory.mkdir()
        died = ended(forked(partial(make_tables, place, killing(at)))) == -signal.SIGKILL
        code = ended(lived(place, spare, 1, 0))
        yield {"plan": [at], "died": int(died), "code": code, **place.cleared()}
        if not died:
            return


def make_tables(place: Place, strike: Strike) -> None:
    """Make the tables of a store, and strike before each statement."""
    numbers, connect = count(1), sqlite3.connect

    def traced(*given: Any, **more: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **more)
        connection.set_trace_callback(lambda statement: strike(next(numbers), statement))
        return connection

    async def look() -> None:
        async with SqliteTraceStore(place.directory / "log.db") as store:
            await store.head("")

    sqlite3.connect = traced  # type: ignore[assignment]  # in this process, which ends here
    asyncio.run(look())


MODES = {"kill": kills, "stop": pauses, "create": creations}


def main() -> None:
    """Run what the command line says."""
    mode, place, number, *words = sys.argv[1:]
    scenario, directory = GRAPHS[int(number)], Path(place)
    # What is built at its first use would be built by each process anew.
    (directory / "warm").mkdir()
    asyncio.run(Place(scenario, directory / "warm").played(1, 0))
    for outcome in MODES[mode](scenario, directory, words):
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
