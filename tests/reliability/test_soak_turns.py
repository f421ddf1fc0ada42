"""Many turns of several worker processes, while workers are killed and the server crashes."""

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_soev.world import passed
from soev.adapters import PostgresTraceStore
from soev.domain import Ended, Input, StoreUnavailableError
from soev.runtime import Runs, Thread
from tests import postgres
from tests.reliability.graphs import talk
from tests.reliability.killed import FiledWorld
from tests.reliability.real import Reality
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import holds
from tests.reliability.workers import LOOK, MAKES, MOST_THREADS, kind_of

ROOT = Path(__file__).parents[2]
WORKERS = 4
LEASE = 2.0
TURNS = 5_000 if SOAK == 1 else 10_000
TURNS_OF_A_THREAD = 25

pytestmark = pytest.mark.skipif(
    postgres.DSN is not None, reason="only a server that the tests have started may be restarted"
)


@dataclass
class Callers:
    """Whoever talks to the threads: one process, which is not killed.

    Args:
        store: Its store.
        threads: How many threads there are.
        turns: How many turns each is given.
        patience: The most seconds until all are over: longer, and some thread is stuck.
    """

    store: PostgresTraceStore
    threads: int
    turns: int
    patience: float
    given: Counter[str] = field(default_factory=Counter)
    runs: Runs = field(default_factory=Runs)

    @property
    def ids(self) -> Sequence[str]:
        """The threads."""
        return [f"t-{number}" for number in range(self.threads)]

    async def talk(self) -> None:
        """Open a turn in each thread whose last one is over, until none is left to open."""
        while True:
            try:
                ended = await self._ended()
            except StoreUnavailableError:
                ended = set()
            due = [each for each in self.ids if not self.given[each] or each in ended]
            if len(ended) == self.threads and self._over():
                return
            await asyncio.gather(*(self._open(each) for each in due))
            await passed(LOOK)

    def _over(self) -> bool:
        return all(self.given[each] == self.turns for each in self.ids)

    async def _ended(self) -> set[str]:
        found = await self.store.threads(limit=MOST_THREADS)
        return {each.thread_id for each in found if each.last_type == Ended.type}

    async def _open(self, thread_id: str) -> None:
        if self.given[thread_id] == self.turns:
            return
        thread = Thread(thread_id, None, self.store, self.runs, version="1")
        try:
            await thread.submit(Input(payload=str(self.given[thread_id])))
        except StoreUnavailableError:
            return  # nothing was stored
        self.given[thread_id] += 1


async def struck(
    pauses: Iterable[float], over: asyncio.Event, strike: Callable[[], Awaitable[None]]
) -> int:
    """Strike after each of some pauses, in seconds, until it is over. Return how often."""
    times = 0
    for seconds in pauses:
        try:
            async with asyncio.timeout(seconds):
                await over.wait()
        except TimeoutError:
            await strike()
            times += 1
        else:
            break
    return times


def between(least: float, most: float, draw: random.Random) -> Iterator[float]:
    """Yield pauses for ever."""
    while True:
        yield draw.uniform(least, most)


@asynccontextmanager
async def crew_of(schema: str, world: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the program of the workers, and see that they died only when it killed them."""
    words = (postgres.dsn(), schema, str(world), str(WORKERS), str(LEASE), "0")
    crew = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.reliability.workers", *words, cwd=ROOT, stdout=PIPE
    )
    assert crew.stdout is not None
    await crew.stdout.readline()  # from here on it takes signals
    try:
        yield crew
    finally:
        crew.terminate()
        said, _ = await crew.communicate()
    assert json.loads(said)["crashed"] == 0, said


async def soaked(
    schema: str, callers: Callers, world: Path, kills: Iterable[float], restarts: Iterable[float]
) -> tuple[int, int]:
    """Run turns in worker processes that are killed, on a server that crashes.

    Args:
        schema: Where the threads are.
        callers: Who talks to them.
        world: The file that effects write to.
        kills: The seconds before each killed worker.
        restarts: The seconds before each crash of the server.

    Returns:
        How many workers were killed, and how often the server crashed.
    """
    over = asyncio.Event()

    async def restart() -> None:
        await asyncio.to_thread(postgres.own_server().restart)

    async with crew_of(schema, world) as crew:

        async def kill() -> None:
            crew.send_signal(signal.SIGUSR1)

        async with asyncio.TaskGroup() as group:
            killed = group.create_task(struck(kills, over, kill))
            crashed = group.create_task(struck(restarts, over, restart))
            async with asyncio.timeout(callers.patience):
                await callers.talk()
            over.set()
    return killed.result(), crashed.result()


async def hold_to_calm(callers: Callers, world: Path) -> None:
    """Hold every log and the world to calm runs: nothing is lost, and nothing is done twice."""
    said = [str(number) for number in range(callers.turns)]
    calm = [holds(talk("turns", make, *said).run()) for make in MAKES]
    here, acts = Reality(callers.store, FiledWorld(world)), 0
    for thread_id in callers.ids:
        story, expected = await here.told(thread_id), calm[kind_of(thread_id)]
        assert not story.broken, story.broken
        assert [bare(line) for line in story.log] == [bare(line) for line in expected.log]
        acts += sum(expected.acts)
    assert set(here.world.acts) == here.witness.intents
    assert sorted(here.world.acts.values()) == [1] * acts


def bare(line: str) -> str:
    """Return a line of a log without its thread."""
    return line.partition(" ")[2]


def run(
    world: Path, threads: int, turns: int, patience: float, *pauses: Iterable[float]
) -> tuple[int, int]:
    """Run turns among faults, and hold what they leave to calm runs."""

    async def both() -> tuple[int, int]:
        schema = await asyncio.to_thread(postgres.made_schema)
        async with postgres.open_store(schema, patience=LEASE / 4, listen=False) as store:
            talking = Callers(store, threads, turns, patience)
            faults = await soaked(schema, talking, world, *pauses)
            await hold_to_calm(talking, world)
        return faults

    killed, crashed = asyncio.run(both())
    how = f"{killed} killed workers and {crashed} crashes of the server, PostgreSQL"
    LEDGER.counted("T7", "turns of several workers", how, threads * turns)
    return killed, crashed


def test_turns_outlive_killed_workers_and_a_crashed_server(tmp_path: Path) -> None:
    """A hundred turns lose nothing, act once and end, though workers and their server die."""
    assert run(tmp_path / "world", 20, 5, 60, (0.6, 0.4), (0.8,)) == (2, 1)


@pytest.mark.soak
def test_thousands_of_turns_outlive_killed_workers_and_crashed_servers(tmp_path: Path) -> None:
    """The same for thousands of turns, in minutes of kills and crashes."""
    draw = random.Random(0)
    kills, restarts = between(2, 10, draw), between(5, 40, draw)
    killed, crashed = run(
        tmp_path / "world", TURNS // TURNS_OF_A_THREAD, TURNS_OF_A_THREAD, 900, kills, restarts
    )
    assert killed
    assert crashed
