"""Replay, resume and status of recorded threads, by their length."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Figures
from benchmarks.worlds import Pace, bare_graph, react_graph, run_thread
from soev.adapters import InMemoryTraceStore, SqliteTraceStore
from soev.domain import Ended, Event, Head, Input, ModelOutput
from soev.golden import ImportOptions, import_conversations
from soev.runtime import CORE_EVENT_TYPES, Graph, Runs, Thread, encode, replay

CONVERSATIONS = os.environ.get("SOEV_BENCH_CONVERSATIONS")
PER_EVENT: dict[int, float] = {}


def recorded(length: int) -> Sequence[Event]:
    """Return the events of a thread that a ReActAgent recorded."""
    return tuple(asyncio.run(run_thread(InMemoryTraceStore(), "t", react_graph(length, Pace()))))


@pytest.mark.parametrize("length", [1_000, 10_000])
def test_replay_by_length(benchmark: BenchmarkFixture, figures: Figures, length: int) -> None:
    """Every model call of one thread rebuilt, hashed and compared."""
    events = recorded(length)
    seconds: list[float] = []

    def run() -> None:
        graph = react_graph(length, Pace())
        begin = perf_counter()
        calls = asyncio.run(replay(events, lambda _: graph))
        assert all(call.same_request for call in calls)
        seconds.append(perf_counter() - begin)

    benchmark.pedantic(run, rounds=3)
    spent = PER_EVENT[length] = median(seconds) / length
    calls = sum(isinstance(event, ModelOutput) for event in events)
    figures.add(
        f"replay of a {length:,}-event thread",
        f"{calls / median(seconds):,.0f} calls/s",
        "20,000",
        "5,000",
    )
    if length == 10_000 and 1_000 in PER_EVENT:
        figures.ratio(
            "replay, an event of 10,000 to one of 1,000", spent / PER_EVENT[1_000], 1, 1.3
        )


@pytest.mark.skipif(CONVERSATIONS is None, reason="SOEV_BENCH_CONVERSATIONS names no file")
def test_replay_of_conversations(benchmark: BenchmarkFixture, figures: Figures) -> None:
    """Conversations that others recorded, in OpenAI's message format, from a file of the caller."""
    assert CONVERSATIONS is not None
    path = Path(CONVERSATIONS)
    options = ImportOptions(file=path.name, agent="agent", name="conversation", skip_bad=True)
    imported = import_conversations(path.read_text("utf-8"), options)
    threads = [[CORE_EVENT_TYPES.decode(row) for row in trace.events] for trace in imported.traces]
    graph = react_graph(10, Pace())
    seconds: list[float] = []
    made: list[int] = []

    def run() -> None:
        begin = perf_counter()
        made.append(sum(len(asyncio.run(replay(each, lambda _: graph))) for each in threads))
        seconds.append(perf_counter() - begin)

    benchmark.pedantic(run, rounds=3)
    spent = median(seconds)
    figures.add(f"replay of {len(threads)} conversations", f"{spent:.2f} s")
    figures.add("the same, model calls a second", f"{made[-1] / spent:,.0f}", "20,000", "5,000")


def test_status_of_a_long_thread(benchmark: BenchmarkFixture, figures: Figures) -> None:
    """The status of 10,000 events in turns of 20, to reading the last turn alone."""
    turn = [Input(payload="x"), *[ModelOutput(text="y") for _ in range(18)], Ended()]

    async def filled() -> InMemoryTraceStore:
        store = InMemoryTraceStore()
        rows = [encode(event) for event in turn]
        for number in range(500):
            await store.append("t", rows, after=await store.head("t"), batch=str(number))
        return store

    async def last_turn(store: InMemoryTraceStore, head: Head) -> int:
        return len([e async for e, _ in zip_async(store, head)])

    async def zip_async(store: InMemoryTraceStore, head: Head):  # type: ignore[no-untyped-def]  # local
        count = 0
        async for entry in store.read_back("t", before=head):
            yield CORE_EVENT_TYPES.decode(entry.event), count
            count += 1
            if count == len(turn):
                return

    async def measured() -> tuple[float, float]:
        store = await filled()
        thread = Thread("t", None, store, Runs())
        statuses, reads = [], []
        for _ in range(200):
            begin = perf_counter()
            status = await thread.status()
            statuses.append(perf_counter() - begin)
            assert status.state == "finished"
            begin = perf_counter()
            await last_turn(store, await store.head("t"))
            reads.append(perf_counter() - begin)
        return median(statuses), median(reads)

    status, read = benchmark.pedantic(lambda: asyncio.run(measured()), rounds=1)
    figures.add("status of a 10,000-event thread", f"{status * 1e3:.2f} ms", "", "10 ms")
    figures.ratio("the same, to reading its last turn of 20 events", status / read, 1, 2)


def test_resume_of_a_long_thread(
    benchmark: BenchmarkFixture, figures: Figures, tmp_path: Path
) -> None:
    """A thread of 1,000 steps, from opening the file to the next step."""
    path = tmp_path / "long.db"
    seconds: list[float] = []

    async def fill() -> None:
        async with SqliteTraceStore(path) as store:
            await run_thread(store, "t", bare_graph(1_000, Pace()))
            await store.append(
                "t", [encode(Input(payload="and now?"))], after=await store.head("t"), batch="b"
            )

    async def resume(number: int) -> None:
        begin = perf_counter()
        async with SqliteTraceStore(path) as store:
            await store.copy("t", f"t-{number}", through=(await store.head("t")).position)
            pace, runs = Pace(), Runs()
            graph: Graph = bare_graph(1_006, pace)
            await Thread(f"t-{number}", graph, store, runs).resume()
            await runs.close(timeout=5)
        seconds.append(pace.moments[0] - begin)

    asyncio.run(fill())
    numbers = iter(range(100))
    benchmark.pedantic(lambda: asyncio.run(resume(next(numbers))), rounds=10)
    figures.add(
        "resume of 1,000 steps in SQLite, to the next step",
        f"{median(seconds) * 1e3:.0f} ms",
        "50 ms",
        "200 ms",
    )
