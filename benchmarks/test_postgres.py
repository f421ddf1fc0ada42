"""What a step and many threads at once cost on a PostgreSQL server that waits for its disk."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import psycopg
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Figures
from benchmarks.test_steps import many
from benchmarks.worlds import Pace, bare_graph, run_thread
from soev.domain import Head, LogEntry, StoredEvent
from tests import postgres

CONNECTIONS = 16
Connection = psycopg.AsyncConnection[Any]


@pytest.fixture(scope="module", autouse=True)
def _durable() -> Iterator[None]:
    """Let the server wait for its disk, as one that people use does."""
    if postgres.DSN is None:
        reload = "SELECT pg_reload_conf()"
        postgres.run(postgres.dsn(), "ALTER SYSTEM SET fsync = on", reload)
        yield
        postgres.run(postgres.dsn(), "ALTER SYSTEM SET fsync = off", reload)
    else:
        yield


async def connect() -> Connection:
    """Open a plain connection."""
    return await psycopg.AsyncConnection.connect(postgres.dsn(), autocommit=True)


async def make_log(schema: str) -> str:
    """Make a plain table for floors, and return its name."""
    name = f"{schema}.log_{secrets.token_hex(4)}"
    async with await connect() as connection:
        columns = "position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data text"
        await connection.execute(f"CREATE TABLE {name}({columns})".encode())
    return name


async def insert(connection: Connection, log: str, row: StoredEvent) -> float:
    """Return the seconds of a plain insert that is its own transaction, in one round trip."""
    begin = perf_counter()
    await connection.execute(f"INSERT INTO {log}(data) VALUES (%s)".encode(), (row.data,))
    return perf_counter() - begin


async def insert_and_commit(connection: Connection, log: str, row: StoredEvent) -> float:
    """Return the seconds of an insert in a transaction that is begun and committed."""
    begin = perf_counter()
    async with connection.transaction():
        await connection.execute(f"INSERT INTO {log}(data) VALUES (%s)".encode(), (row.data,))
    return perf_counter() - begin


async def recorded(schema: str, length: int) -> tuple[float, list[StoredEvent]]:
    """Run one thread, and return the median seconds of its last steps and its rows."""
    pace = Pace()
    async with postgres.open_store(schema) as store:
        await run_thread(store, secrets.token_hex(4), bare_graph(length, pace))
        (thread,) = await store.threads(limit=1)
        page = await store.read(thread.thread_id)
        return pace.last_steps(length), [entry.event for entry in page.entries]


def test_append_in_postgres(figures: Figures) -> None:
    """An append under a lease beside plain inserts of the same text, in turns."""
    schema = postgres.made_schema()
    event = StoredEvent("model_output", '{"text":"' + 400 * "x" + '"}', "main", "model", "1.0")

    async def run() -> list[list[float]]:
        log = await make_log(schema)
        async with postgres.open_store(schema) as store, await connect() as plain:
            await store.append("t", [event], after=Head(), batch="0")
            head = await store.head("t")
            lease = await store.acquire("t", "bench", 600, request="r")
            rows: list[list[float]] = []
            for number in range(400):
                alone = await insert(plain, log, event)
                whole = await insert_and_commit(plain, log, event)
                begin = perf_counter()
                entries: list[LogEntry[StoredEvent]] = list(
                    await store.append("t", [event], after=head, batch=f"{number}", lease=lease)
                )
                rows.append([alone, whole, perf_counter() - begin])
                head = Head(entries[-1].position, head.incarnation)
            return rows

    alone, whole, append = (median(each) for each in zip(*asyncio.run(run()), strict=True))
    figures.ratio("append in PostgreSQL to begin, insert and commit", append / whole, 1.3, 2)
    figures.ratio("append in PostgreSQL to a bare insert, one round trip", append / alone, 1.3, 2)


def test_step_in_postgres(benchmark: BenchmarkFixture, figures: Figures) -> None:
    """A step beside a plain insert and commit of the same bytes."""
    schema = postgres.made_schema()
    steps, floors, bare = [], [], []

    async def floor(rows: list[StoredEvent]) -> tuple[float, float]:
        log = await make_log(schema)
        async with await connect() as plain:
            whole = [await insert_and_commit(plain, log, row) for row in rows]
            return median(whole), median([await insert(plain, log, row) for row in rows])

    def run() -> None:
        step, rows = asyncio.run(recorded(schema, 400))
        whole, alone = asyncio.run(floor(rows[2:]))
        steps.append(step)
        floors.append(whole)
        bare.append(alone)

    benchmark.pedantic(run, rounds=5)
    ratio = median(step / base for step, base in zip(steps, floors, strict=True))
    figures.ratio("step in PostgreSQL to begin, insert and commit", ratio, 1.3, 2)
    ratio = median(step / base for step, base in zip(steps, bare, strict=True))
    figures.ratio("step in PostgreSQL to a bare insert, one round trip", ratio, 1.3, 2)


def test_stored_bytes_in_postgres(figures: Figures) -> None:
    """The size of the tables and indexes of a 2,000-event thread beside its payloads."""
    schema = postgres.made_schema()
    _, rows = asyncio.run(recorded(schema, 2_000))
    payload = sum(len(row.data.encode()) for row in rows)
    ((size,),) = postgres.run(postgres.dsn(), f"SELECT pg_total_relation_size('{schema}.events')")
    figures.ratio(
        "bytes stored in PostgreSQL, 2,000 events, to the payload", size / payload, 1.3, 2
    )


def test_many_threads_in_postgres(figures: Figures) -> None:
    """Threads a second when 64 run at once, and as many plain inserts on as many connections."""
    schema, threads, appends = postgres.made_schema(), 500, 4

    async def run() -> tuple[float, list[StoredEvent]]:
        async with postgres.open_store(schema, connections=CONNECTIONS) as store:
            spent = await many(store, threads, 64)
            page = await store.read("t-0")
            return spent, [entry.event for entry in page.entries]

    async def plain(rows: list[StoredEvent]) -> float:
        log, queue = await make_log(schema), iter(rows)

        async def work() -> None:
            async with await connect() as connection:
                for row in queue:
                    await insert(connection, log, row)

        begin = perf_counter()
        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
        return (perf_counter() - begin) / len(rows)

    spent, rows = asyncio.run(run())
    each = asyncio.run(plain((rows * threads)[: threads * appends]))
    figures.add("500 threads, 64 at a time, PostgreSQL", f"{threads / spent:,.0f} threads/s")
    figures.ratio(
        f"the same, seconds a thread to {appends} bare inserts on {CONNECTIONS} connections",
        spent / threads / (each * appends),
        1.3,
        2,
    )
