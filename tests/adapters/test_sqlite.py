"""The SQLite store keeps to the store contract, and to what a file adds to it."""

import asyncio
import gc
import multiprocessing.pool
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from pytest_soev.suites import TraceStoreSuite
from soev.adapters import SqliteTraceStore
from soev.adapters._database import Database, File
from soev.adapters._tables import MIGRATIONS
from soev.domain import (
    Head,
    OutcomeUnknownError,
    PositionConflictError,
    StoredEvent,
    StoreUnavailableError,
    TraceStore,
    fault_plan,
)
from tests.clocks import FakeClock

pytestmark = pytest.mark.anyio
NOTE = StoredEvent("note", "{}")


class TestSqliteTraceStore(TraceStoreSuite):
    """The store contract."""

    clock: FakeClock
    path: Path

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[TraceStore]:
        self.clock = FakeClock()
        with tempfile.TemporaryDirectory() as directory:
            self.path = Path(directory, "soev.db")
            async with SqliteTraceStore(self.path, clock=self.clock) as store:
                yield store

    @asynccontextmanager
    async def reopen(self, store: TraceStore) -> AsyncIterator[TraceStore]:
        async with SqliteTraceStore(self.path, clock=self.clock) as other:
            yield other

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file that is not there yet."""
    return tmp_path / "soev.db"


def files(path: Path) -> list[str]:
    """Return the names of the files beside a store's."""
    return [each.name for each in path.parent.iterdir()]


async def begin(store: TraceStore, thread_id: str = "t") -> Head:
    """Make a thread of one event."""
    await store.append(thread_id, [NOTE], after=Head(), batch="begin")
    return await store.head(thread_id)


async def on_writer(store: SqliteTraceStore, pragma: str) -> None:
    """Run a pragma on the connection that writes."""

    def work(database: Database) -> None:
        database.execute(f"PRAGMA {pragma}")

    await store._writer.submit("test", "", work).future


@pytest.mark.parametrize("name", ["", ":memory:", "file::memory:?cache=shared"])
def test_path_that_is_no_file_is_refused(name: str) -> None:
    """A name that SQLite keeps in memory is refused, with the store to use instead."""
    with pytest.raises(ValueError, match="InMemoryTraceStore"):
        SqliteTraceStore(name)


async def test_making_a_store_opens_nothing(path: Path) -> None:
    """The file is made by the first call, not by the constructor."""
    async with SqliteTraceStore(path) as store:
        assert files(path) == []
        await store.head("t")
        assert path.name in files(path)


async def test_connections_keep_what_they_commit(path: Path) -> None:
    """Both connections use the write-ahead log, wait for the disk, and zero what is deleted."""
    async with SqliteTraceStore(path) as store:

        def settings(database: Database) -> list[object]:
            names = ("journal_mode", "synchronous", "secure_delete", "query_only")
            return [database.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

        assert await store._writer.submit("test", "", settings).future == ["wal", 2, 1, 0]
        assert await store._reader.submit("test", "", settings).future == ["wal", 2, 1, 1]


async def test_closed_store_leaves_one_whole_file(path: Path) -> None:
    """Closing brings everything into the one file, and the next store reads it there."""
    async with SqliteTraceStore(path) as store:
        await begin(store)
    assert files(path) == [path.name]
    async with SqliteTraceStore(path) as store:
        assert (await store.head("t")).position == 1


async def test_closed_store_refuses_calls(path: Path) -> None:
    """A closed store is unavailable, and closing it again is allowed."""
    store = SqliteTraceStore(path)
    await begin(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.head("t")


async def test_calls_under_way_are_answered_by_close(path: Path) -> None:
    """A call that is under way when the store closes has its answer."""
    store = SqliteTraceStore(path)
    appending = asyncio.create_task(begin_only(store))
    await asyncio.sleep(0)
    await store.close()
    assert await appending == 1


async def begin_only(store: TraceStore) -> int:
    """Make a thread of one event and return its position."""
    (entry,) = await store.append("t", [NOTE], after=Head(), batch="begin")
    return entry.position


async def test_forgotten_store_lets_go_of_its_file(path: Path) -> None:
    """A store that nobody closed ends its threads when it is collected, without a warning."""
    store = SqliteTraceStore(path)
    await begin(store)
    threads = [worker._thread for worker in (store._writer, store._reader)]
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
    for thread in threads:
        assert thread is not None
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


def test_forgotten_store_does_not_hold_up_exit(path: Path) -> None:
    """A program that forgets to close its store ends, and leaves one whole file."""
    run_python(
        path,
        """
        store = SqliteTraceStore(path)
        asyncio.run(store.append("t", [NOTE], after=Head(), batch="b"))
        """,
    )
    assert files(path) == [path.name]


def run_python(path: Path, code: str) -> None:
    """Run a program on a store's file, with every warning an error."""
    start = (
        "import asyncio, os, signal, sys\n"
        "from soev.adapters import SqliteTraceStore\n"
        "from soev.domain import Head, PositionConflictError, StoredEvent, fault_plan\n"
        "path, NOTE = sys.argv[1], StoredEvent('note', '{}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", start + textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode in {0, -signal.SIGKILL}, done.stderr) == (True, "")


async def test_newer_schema_is_refused(path: Path) -> None:
    """A file of a newer version is left alone, and the error says which schema it has."""
    async with SqliteTraceStore(path) as store:
        await begin(store)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version=99")
    async with SqliteTraceStore(path) as store:
        with pytest.raises(ValueError, match="has schema 99"):
            await store.head("t")


async def test_file_of_another_program_is_refused(path: Path) -> None:
    """A SQLite file with other tables is left alone."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE songs(name)")
    async with SqliteTraceStore(path) as store:
        with pytest.raises(ValueError, match="another program"):
            await begin(store)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]


async def test_file_that_is_no_database_is_unavailable(path: Path) -> None:
    """A file that SQLite cannot read is unavailable, with SQLite's reason."""
    await asyncio.to_thread(path.write_text, "no database " * 100, "utf-8")
    async with SqliteTraceStore(path) as store:
        with pytest.raises(StoreUnavailableError, match="NOTADB"):
            await begin(store)


async def test_missing_directory_is_unavailable(path: Path) -> None:
    """A path whose directory is not there is unavailable, and works once it is made."""
    async with SqliteTraceStore(path / "soev.db") as store:
        with pytest.raises(StoreUnavailableError, match="CANTOPEN"):
            await begin(store)
        await asyncio.to_thread(path.mkdir)
        assert (await begin(store)).position == 1


async def test_migration_that_fails_leaves_nothing(path: Path) -> None:
    """A migration is made whole or not at all."""
    broken = File(path, [*MIGRATIONS, "CREATE TABLE more(x); CREATE TABLE more(x)"], 1)
    async with SqliteTraceStore(path) as store:
        store._writer._file = broken
        with pytest.raises(StoreUnavailableError, match="already exists"):
            await begin(store)
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


async def test_full_disk_stores_nothing(path: Path) -> None:
    """An append that the disk has no room for is unavailable, and the same call succeeds later."""
    async with SqliteTraceStore(path) as store:
        head = await begin(store)
        await on_writer(store, "max_page_count=1")
        large = [StoredEvent("note", '"' + "x" * 500_000 + '"')]
        with pytest.raises(StoreUnavailableError, match="FULL") as caught:
            await store.append("t", large, after=head, batch="large")
        assert caught.value.operation == "append"
        assert (await store.head("t")).position == 1
        (entry,) = await store.append("t", large, after=head, batch="large")
        assert entry.position == 2


async def test_full_disk_refuses_only_what_does_not_fit(path: Path) -> None:
    """Calls that shared the transaction of one that failed are carried out without it."""
    async with SqliteTraceStore(path) as store:
        await begin(store)
        await on_writer(store, "max_page_count=1")
        large = StoredEvent("note", '"' + "x" * 500_000 + '"')
        calls = [
            store.append(name, [event], after=Head(), batch=name)
            for name, event in {"a": NOTE, "b": large, "c": NOTE}.items()
        ]
        answers = await asyncio.gather(*calls)
        assert [len(answer) for answer in answers] == [1, 1, 1]
        assert {info.thread_id for info in await store.threads()} == {"a", "b", "c", "t"}


class FailingCommit:
    """Runs statements, and fails a COMMIT before or after it was carried out: the first, or later.

    Args:
        database: Whose statements.
        after: Whether the COMMIT is carried out.
        spared: How many go well before it.
    """

    def __init__(self, database: Database, *, after: bool, spared: int = 0) -> None:
        self.execute_all, self.after, self.database = database.execute, after, database
        self.spared = spared
        database.execute = self

    def __call__(self, statement: str, values: object = ()) -> sqlite3.Cursor:
        """Execute a statement."""
        if statement == "COMMIT" and self.spared:
            self.spared -= 1
        elif statement == "COMMIT":
            self.database.execute = self.execute_all
            if self.after:
                self.execute_all(statement)
            raise sqlite3.OperationalError("disk I/O error")
        return self.execute_all(statement, values)  # type: ignore[arg-type]  # passed on


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_failing_commit_is_unknown_and_can_be_repeated(path: Path, after: bool) -> None:
    """An error of COMMIT leaves the outcome open, and the identical append settles it."""
    async with SqliteTraceStore(path) as store:
        head = await begin(store)

        def arm(database: Database) -> None:
            FailingCommit(database, after=after)

        arming = store._writer.submit("test", "", arm)
        with pytest.raises(OutcomeUnknownError, match="disk I/O error") as caught:
            await store.append("t", [NOTE, NOTE], after=head, batch="b")
        assert (caught.value.thread_id, caught.value.operation) == ("t", "append")
        await asyncio.wait([arming.future])
        arming.future.exception()
        assert (await store.head("t")).position == (3 if after else 1)
        stored = await store.append("t", [NOTE, NOTE], after=head, batch="b")
        assert [entry.position for entry in stored] == [2, 3]
        assert (await store.head("t")).position == 3


async def test_read_that_cannot_bound_a_lease_is_unavailable(path: Path) -> None:
    """A read may bound a lease after the clock was set back; its outcome is never unknown."""
    clock = FakeClock()
    async with SqliteTraceStore(path, clock=clock) as store:
        await begin(store)
        await store.acquire("t", "a", 30, request="r")
        clock.advance(-3600)

        def arm(database: Database) -> None:
            FailingCommit(database, after=False, spared=1)  # this one's own

        await store._writer.submit("test", "", arm).future
        with pytest.raises(StoreUnavailableError, match="disk I/O error"):
            await store.head("t")
        assert (await store.head("t")).lease is not None
        clock.advance(31)
        assert (await store.head("t")).lease is None


@pytest.fixture
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield another program's connection to the file."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as other:
        yield other


async def test_locked_file_is_unavailable_for_writing(
    path: Path, locked: sqlite3.Connection
) -> None:
    """While another program writes, reads go on, and a write gives up after `patience`."""
    async with SqliteTraceStore(path, patience=0.05) as store:
        head = await begin(store)
        locked.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="BUSY"):
            await store.append("t", [NOTE], after=head, batch="b")
        assert (await store.head("t")).position == 1
        locked.execute("ROLLBACK")
        assert len(await store.append("t", [NOTE], after=head, batch="b")) == 1


async def test_write_waits_for_a_lock(path: Path, locked: sqlite3.Connection) -> None:
    """A write waits while another program holds the lock, if that ends in time."""
    async with SqliteTraceStore(path, patience=30) as store:
        head = await begin(store)
        locked.execute("BEGIN IMMEDIATE")
        appending = asyncio.create_task(store.append("t", [NOTE], after=head, batch="b"))
        assert (await store.head("t")).position == 1
        assert not appending.done()
        locked.execute("ROLLBACK")
        assert len(await appending) == 1


async def test_read_only_file_is_unavailable_for_writing(path: Path) -> None:
    """A store whose connection may not write says so, and goes on reading."""
    async with SqliteTraceStore(path) as store:
        head = await begin(store)
        await on_writer(store, "query_only=ON")
        with pytest.raises(StoreUnavailableError, match="READONLY"):
            await store.append("t", [NOTE], after=head, batch="b")
        assert (await store.head("t")).position == 1


CANARY = "canary-5d1c"


async def test_deleted_text_is_in_no_file(path: Path) -> None:
    """After a deletion no byte of the thread is left, while the store is still open."""
    async with SqliteTraceStore(path) as store:
        for name in ("t", CANARY):
            after = await begin(store, name)
            text = [StoredEvent("note", f'"{CANARY} {"x" * n * 100}"', CANARY) for n in range(50)]
            await store.append(name, text, after=after, batch="b")
            await store.acquire(name, CANARY, 30, request=CANARY)
        assert found_in_files(path)
        await store.delete("t")
        await store.delete(CANARY)
        assert found_in_files(path) == []


def found_in_files(path: Path) -> list[str]:
    """Return the names of the store's files that hold the canary."""
    files = path.parent.glob(f"{path.name}*")
    return [file.name for file in files if CANARY.encode() in file.read_bytes()]


async def test_deleted_text_goes_when_a_reader_is_done(
    path: Path, locked: sqlite3.Connection
) -> None:
    """A reader that keeps deleted pages in the log delays their end, until a later commit."""
    async with SqliteTraceStore(path, patience=0.05) as store:
        await begin(store)
        await store.append("u", [StoredEvent("note", f'"{CANARY}"')], after=Head(), batch="b")
        locked.execute("BEGIN")
        locked.execute("SELECT * FROM threads").fetchall()
        await store.delete("u")
        assert found_in_files(path)
        locked.execute("ROLLBACK")
        await begin(store, "v")
        assert found_in_files(path) == []


async def test_waiting_appends_share_a_transaction(path: Path) -> None:
    """Appends that wait at the same time are committed together."""
    async with SqliteTraceStore(path) as store:
        await begin(store)
        commits: list[str] = []

        def trace(database: Database) -> None:
            database.connection.set_trace_callback(commits.append)

        await store._writer.submit("test", "", trace).future
        names = [f"t{number}" for number in range(30)]
        await asyncio.gather(
            *(store.append(name, [NOTE], after=Head(), batch=name) for name in names)
        )
        assert 1 <= commits.count("COMMIT") <= 10
        assert {info.thread_id for info in await store.threads()} >= set(names)


async def test_given_up_append_is_still_carried_out(path: Path) -> None:
    """An append whose caller was cancelled is stored, and the store goes on."""
    async with SqliteTraceStore(path) as store:
        appending = asyncio.create_task(begin_only(store))
        await asyncio.sleep(0)
        appending.cancel()
        await asyncio.wait([appending])
        assert appending.cancelled()
        await begin(store, "u")
        assert (await store.head("t")).position == 1


async def test_fault_points_frame_a_call(path: Path) -> None:
    """A write passes `sending`, `sent` and `answered`, a read `sending`, each in its task."""
    seen: list[str] = []
    fault_plan.set(seen.append)
    async with SqliteTraceStore(path) as store:
        await store.append("t", [NOTE], after=Head(), batch="b")
        await store.head("t")
    fault_plan.set(None)
    steps = ["sending", "sent", "answered"]
    assert seen == [*(f"store.append.{step}" for step in steps), "store.head.sending"]


@pytest.mark.parametrize("step", ["sending", "sent", "answered"])
def test_killed_process_leaves_all_or_nothing(path: Path, step: str) -> None:
    """After a kill at any point of an append its events are all there or none, none after."""
    run_python(
        path,
        f"""
        async def main():
            store = SqliteTraceStore(path)
            await store.append("t", [NOTE], after=Head(), batch="a")
            head = await store.head("t")
            kill = lambda point: os.kill(os.getpid(), signal.SIGKILL)
            fault_plan.set(lambda point: point == "store.append.{step}" and kill(point))
            await store.append("t", [NOTE] * 20, after=head, batch="b")
        asyncio.run(main())
        """,
    )

    async def position() -> int:
        async with SqliteTraceStore(path) as store:
            page = await store.read("t")
            assert len(page.entries) == page.head.position
            await store.append("t", [NOTE], after=page.head, batch="c")
            return page.head.position

    allowed = {"sending": {1}, "sent": {1, 21}, "answered": {21}}
    assert asyncio.run(position()) in allowed[step]


def test_two_processes_append_in_turn(path: Path) -> None:
    """Two processes that append to one thread lose nothing and leave no gap."""
    code = """
        async def main():
            async with SqliteTraceStore(path, patience=30) as store:
                for number in range(40):
                    event = StoredEvent("note", str(number), str(os.getpid()))
                    while True:
                        try:
                            await store.append(
                                "t", [event], after=await store.head("t"), batch=os.urandom(8).hex()
                            )
                            break
                        except PositionConflictError:
                            pass
        asyncio.run(main())
    """
    with multiprocessing.pool.ThreadPool(2) as pool:
        pool.starmap(run_python, [(path, code)] * 2)

    async def check() -> None:
        async with SqliteTraceStore(path) as store:
            entries = list((await store.read("t")).entries)
        assert [entry.position for entry in entries] == list(range(1, 81))
        streams = {entry.event.stream for entry in entries}
        for stream in streams:
            data = [entry.event.data for entry in entries if entry.event.stream == stream]
            assert data == [str(number) for number in range(40)]
        assert len(streams) == 2

    asyncio.run(check())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_child_has_connections_of_its_own(path: Path) -> None:
    """Parent and child both go on with a store that was open when the process forked."""
    run_python(
        path,
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point

        async def add(store, batch):
            while True:
                try:
                    head = await store.head("t")
                    await store.append("t", [NOTE], after=head, batch=batch)
                    return
                except PositionConflictError:
                    pass

        store = SqliteTraceStore(path)
        asyncio.run(add(store, "a"))
        child = os.fork()
        for number in range(20):
            asyncio.run(add(store, f"{child}-{number}"))
        asyncio.run(store.close())
        if child:
            _, status = os.waitpid(child, 0)
            sys.exit(status)
        """,
    )

    async def count() -> int:
        async with SqliteTraceStore(path) as store:
            return len((await store.read("t")).entries)

    assert asyncio.run(count()) == 41


async def test_conflict_while_forking_is_a_conflict(path: Path) -> None:
    """Connections that were closed for a fork are opened again at the next call."""
    async with SqliteTraceStore(path) as store:
        await begin(store)
        await asyncio.to_thread(store._writer.pause)
        await asyncio.to_thread(store._writer.go_on)
        with pytest.raises(PositionConflictError):
            await store.append("t", [NOTE], after=Head(), batch="other")
