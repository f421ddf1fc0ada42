"""The engine's own cost of a step, by the length of the thread, in memory and in SQLite."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Figures
from benchmarks.worlds import Pace, bare_graph, effect_graph, react_graph, run_thread
from soev.adapters import InMemoryTraceStore, SqliteTraceStore
from soev.domain import EffectResult, LogEntry, StoredEvent, TraceStore
from soev.runtime import Graph, encode

LENGTHS = (10, 100, 1_000, 10_000)
ROUNDS = 5
COSTS: dict[tuple[str, int], float] = {}


def floor(rows: list[StoredEvent]) -> float:
    """Return the median seconds to dump an event's payload and to append it to a list."""
    payloads = [json.loads(row.data) for row in rows]
    samples = []
    for payload in payloads * max(1, 2_000 // len(payloads)):
        log: list[str] = []
        begin = perf_counter()
        log.append(json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
        samples.append(perf_counter() - begin)
    return median(samples)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("world", ["bare", "react"])
def test_step_in_memory(
    benchmark: BenchmarkFixture, figures: Figures, world: str, length: int
) -> None:
    """The last steps of a thread of so many events, without I/O."""
    graphs: dict[str, Callable[[int, Pace], Graph]] = {"bare": bare_graph, "react": react_graph}
    samples: list[float] = []
    rows: list[StoredEvent] = []

    def run() -> None:
        pace = Pace()
        graph = graphs[world](length, pace)
        trace = asyncio.run(run_thread(InMemoryTraceStore(), "t", graph))
        samples.append(pace.last_steps())
        rows[:] = [encode(event) for event in trace[2:202]]

    gc.collect()
    benchmark.pedantic(run, rounds=ROUNDS if length > 10 else 200)
    cost = COSTS[world, length] = median(samples)
    base = floor(rows)
    benchmark.extra_info.update(step_us=cost * 1e6, floor_us=base * 1e6)
    named = "with rendering and hash" if world == "react" else "without rendering"
    goal, limit = (6.5, 15) if world == "react" else (4.5, 10)
    figures.ratio(
        f"step in memory, {named}, N = {length:,}, to its floor", cost / base, goal, limit
    )
    if length == LENGTHS[-1] and (world, 10) in COSTS:
        figures.ratio(
            f"step in memory, {named}, N = {length:,} to N = 10", cost / COSTS[world, 10], 1, 1.3
        )


async def in_sqlite(path: Path, graph: Graph) -> list[LogEntry[StoredEvent]]:
    """Run one thread in a SQLite file and return its rows."""
    async with SqliteTraceStore(path) as store:
        await run_thread(store, "t", graph)
        page = await store.read("t")
        return list(page.entries)


class RawLog:
    """Plain sqlite3 that appends and commits texts, one at a time.

    Args:
        path: The file.
        rows: The texts, again and again.
    """

    def __init__(self, path: Path, rows: list[StoredEvent]) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE log (position INTEGER PRIMARY KEY, data TEXT)")
        self._rows = cycle(rows)

    def append(self) -> float:
        """Append the next text, and return the seconds."""
        text = next(self._rows).data
        begin = perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO log (data) VALUES (?)", (text,))
        self._connection.execute("COMMIT")
        return perf_counter() - begin


class Beside(Pace):
    """Lets a plain append take its turn at each step, and counts its time as none."""

    def __init__(self, log: RawLog) -> None:
        super().__init__()
        self._log, self._spent = log, 0.0
        self.floors: list[float] = []

    def tick(self) -> None:
        """Note a moment, then append."""
        self.moments.append(perf_counter() - self._spent)
        begin = perf_counter()
        self.floors.append(self._log.append())
        self._spent += perf_counter() - begin


def test_step_in_sqlite(benchmark: BenchmarkFixture, figures: Figures, tmp_path: Path) -> None:
    """A step at `synchronous=FULL` beside plain appends and commits of the same bytes, in turns."""
    entries = asyncio.run(in_sqlite(tmp_path / "first.db", bare_graph(400, Pace())))
    rows = [entry.event for entry in entries[2:]]
    steps, floors = [], []
    numbers = iter(range(1_000))

    def run() -> None:
        number = next(numbers)
        pace = Beside(RawLog(tmp_path / f"{number}.raw", rows))
        asyncio.run(in_sqlite(tmp_path / f"{number}.db", bare_graph(400, pace)))
        steps.append(pace.last_steps(400))
        floors.append(median(pace.floors))

    benchmark.pedantic(run, rounds=15)
    ratio = median(step / base for step, base in zip(steps, floors, strict=True))
    benchmark.extra_info.update(step_us=median(steps) * 1e6, floor_us=median(floors) * 1e6)
    figures.ratio("step in SQLite, FULL, to a plain append and commit", ratio, 1.3, 2)


def test_stored_bytes(figures: Figures, tmp_path: Path) -> None:
    """The size of a file of a 2,000-event thread beside the bytes of its payloads."""
    path = tmp_path / "size.db"
    entries = asyncio.run(in_sqlite(path, bare_graph(2_000, Pace())))
    payload = sum(len(entry.event.data.encode()) for entry in entries)
    size = sum(file.stat().st_size for file in tmp_path.glob("size.db*"))
    figures.ratio("bytes stored in SQLite, 2,000 events, to the payload", size / payload, 1.3, 2)


async def many(store: TraceStore, threads: int, at_once: int) -> float:
    """Run many threads of three steps, so many at a time, and return the seconds."""
    queue = iter(range(threads))

    async def work() -> None:
        for number in queue:
            await run_thread(store, f"t-{number}", bare_graph(5, Pace()))

    begin = perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return perf_counter() - begin


def test_many_threads_in_sqlite(figures: Figures, tmp_path: Path) -> None:
    """Threads a second when many run at once, and as many plain appends in the same run."""

    async def run() -> tuple[float, list[StoredEvent]]:
        async with SqliteTraceStore(tmp_path / "many.db") as store:
            spent = await many(store, 1_000, 64)
            page = await store.read("t-0")
            return spent, [entry.event for entry in page.entries]

    spent, rows = asyncio.run(run())
    log = RawLog(tmp_path / "many.raw", rows)
    plain = median(log.append() for _ in range(500))
    figures.add(
        "1,000 threads, 64 at a time, SQLite FULL",
        f"{1_000 / spent:,.0f} threads/s",
        "1,200",
        "600",
    )
    appends = 4
    figures.ratio(
        "the same, seconds a thread to as many plain commits",
        spent / 1_000 / (plain * appends),
        1,
        2,
    )


class CountingStore(InMemoryTraceStore):
    """Counts its appends."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0

    async def append(self, *call: Any, **options: Any) -> Sequence[LogEntry[StoredEvent]]:
        """Count an append, then make it."""
        self.appends += 1
        return await super().append(*call, **options)


def test_turn_with_an_effect(figures: Figures) -> None:
    """A turn of one model step, and the same with an effect after it: appends and seconds."""

    def run(act: bool) -> tuple[int, float]:
        store = CountingStore()
        begin = perf_counter()
        trace = asyncio.run(run_thread(store, "t", effect_graph(act)))
        assert len(trace.of(EffectResult)) == act
        return store.appends, perf_counter() - begin

    samples = [(run(act=False), run(act=True)) for _ in range(200)]
    (plain, _), (acting, _) = samples[0]
    figures.add(
        "appends of a turn with an effect, beyond one without", str(acting - plain), "", "2"
    )
    without, with_one = (median(each[1] for each in side) for side in zip(*samples, strict=True))
    figures.add("its time in memory, to that without", f"{with_one / without:.2f} x")
    assert acting - plain <= 2
