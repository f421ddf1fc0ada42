"""The PostgreSQL store keeps to the store contract, and to what a server adds to it."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pytest_soev.suites import TraceStoreSuite
from soev.adapters import PostgresTraceStore
from soev.adapters._postgres import _store
from soev.domain import (
    Head,
    StoredEvent,
    StoreUnavailableError,
    TraceStore,
    UnencodableError,
    UnknownThreadError,
    fault_plan,
)
from tests import postgres

pytestmark = pytest.mark.anyio


class TestPostgresTraceStore(TraceStoreSuite):
    """The store contract, where other processes' appends are heard of."""

    listen = True
    schema: str
    clock: postgres.ServerClock

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[TraceStore]:
        self.schema = postgres.fresh_schema()
        async with postgres.open_store(self.schema, listen=self.listen) as store:
            self.clock = postgres.ServerClock(self.schema)
            yield store

    @asynccontextmanager
    async def reopen(self, store: TraceStore) -> AsyncIterator[TraceStore]:
        async with postgres.open_store(self.schema, listen=self.listen) as other:
            yield other

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestPollingPostgresTraceStore(TestPostgresTraceStore):
    """The store contract, where nobody listens."""

    listen = False


NOTE = StoredEvent("note", "{}")
LONG = 60.0


@pytest.fixture(scope="module")
def tables() -> str:
    """Return a schema in which the tables are made."""
    return postgres.made_schema()


@pytest.fixture
def thread(request: pytest.FixtureRequest) -> str:
    """Return the id of a thread that no other test uses."""
    return str(request.node.name)


async def until(true: Callable[[], bool]) -> None:
    """Let other tasks run until something holds."""
    while not true():  # noqa: ASYNC110 -- what is waited for has no event
        await asyncio.sleep(0)


async def begin(store: TraceStore, thread_id: str) -> Head:
    """Make a thread of one event."""
    await store.append(thread_id, [NOTE], after=Head(), batch="begin")
    return await store.head(thread_id)


@pytest.mark.parametrize("dsn", ["host=db passwrd=hunter2", "postgresql://hunter2:x@[", "hunter2"])
def test_dsn_that_cannot_be_read_is_not_shown(dsn: str) -> None:
    """A broken DSN is refused without a word of it, in the cause neither."""
    with pytest.raises(ValueError, match="cannot read its DSN") as caught:
        PostgresTraceStore(dsn)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("schema", ["", "a b", "a;drop", "A", "1a", "a" * 49])
def test_schema_that_is_no_plain_name_is_refused(schema: str) -> None:
    """The name of a schema stands in SQL text, so only plain ones are taken."""
    with pytest.raises(ValueError, match="refuses the schema"):
        PostgresTraceStore("host=localhost", schema=schema)


def test_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the error says how to install it."""
    for name in ("_link", "_hints"):
        monkeypatch.delitem(sys.modules, f"soev.adapters._postgres.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install 'soev\[postgres\]'"):
        PostgresTraceStore("host=localhost")


def test_client_is_imported_only_where_it_is_used() -> None:
    """Importing the adapters imports no client of a database server."""
    code = "import sys, soev.adapters; assert 'psycopg' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_unreachable_server_is_unavailable_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a server nothing is stored, and neither error nor log says where it was sought."""
    caplog.set_level(logging.DEBUG)
    dsn = "postgresql://maria:hunter2@127.0.0.1:1/ledger"
    async with PostgresTraceStore(dsn, patience=0.2, listen=False) as store:
        with pytest.raises(StoreUnavailableError, match="no connection") as caught:
            await begin(store, "t")
        text = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(store)
    assert [word for word in ("maria", "hunter2", "127.0.0.1", "ledger") if word in text] == []


async def test_closed_store_refuses_calls(tables: str, thread: str) -> None:
    """A closed store is unavailable, and closing it again is allowed."""
    async with postgres.open_store(tables) as store:
        await begin(store, thread)
    await store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.head(thread)


async def test_calls_under_way_are_answered_by_close(tables: str, thread: str) -> None:
    """A call that is under way when the store closes has its answer."""
    async with postgres.open_store(tables) as store:
        appending = asyncio.create_task(begin(store, thread))
        await asyncio.sleep(0)
        appending_only = asyncio.create_task(
            store.append(thread + "/2", [NOTE], after=Head(), batch="b")
        )
        await asyncio.sleep(0)
        await store.close()
        assert len(await appending_only) == 1
        with pytest.raises(StoreUnavailableError, match="closed"):
            await appending


async def test_given_up_append_is_still_carried_out(tables: str, thread: str) -> None:
    """An append whose caller is cancelled is stored all the same."""
    async with postgres.open_store(tables) as store:
        task = asyncio.create_task(begin(store, thread))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        head = await store.wait(thread, after=Head(), timeout=LONG)
        assert head.position == 1


def test_store_outlives_event_loops(tables: str, thread: str) -> None:
    """A store works in one event loop after another, and in two at once."""
    store = PostgresTraceStore(postgres.dsn(), schema=tables)
    assert asyncio.run(begin(store, thread)).position == 1
    with ThreadPoolExecutor() as pool:
        heads = list(pool.map(asyncio.run, [store.head(thread), store.head(thread)]))
    assert [head.position for head in heads] == [1, 1]
    asyncio.run(store.close())


def test_forgotten_store_lets_go_of_its_connections(tables: str, thread: str) -> None:
    """A store that nobody closed ends its sessions when it is collected, without a warning."""
    store = PostgresTraceStore(postgres.named_dsn("forgotten"), schema=tables)
    asyncio.run(begin(store, thread))
    del store
    gc.collect()
    postgres.until_ended("forgotten")


async def test_sessions_keep_nothing(tables: str, thread: str) -> None:
    """After all kinds of calls a session has no statement, setting, lock or channel left."""
    async with postgres.open_store(tables, connections=1, listen=False) as store:
        head = await begin(store, thread)
        lease = await store.acquire(thread, "a", 30, request="r")
        for n in range(8):
            await store.append(thread, [NOTE] * 2, after=head, batch=f"{n}", lease=lease)
            head = await store.head(thread)
        await store.renew(lease, 30)
        await store.copy(thread, thread + "/copy", through=head.position)
        await store.delete(thread)
        names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
        settings = ", ".join(f"current_setting('{name}')" for name in names)
        left = (
            "SELECT (SELECT count(*) FROM pg_prepared_statements), "
            "(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() "
            "AND locktype = 'advisory'), "
            f"(SELECT count(*) FROM pg_listening_channels()), {settings}"
        )
        rows = await store._link.submit("read", thread, lambda session: session.rows(left))
    assert rows == [(0, 0, 0, "0", "0", "0")]


async def test_commits_wait_for_the_disk_whatever_the_role_says(tables: str, thread: str) -> None:
    """Where a role's default is not to wait, every write of the store waits all the same."""
    schema = await asyncio.to_thread(postgres.made_schema)
    postgres.run(
        postgres.dsn(),
        f"CREATE TABLE {schema}.seen(setting text)",
        f"CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO "
        f"{schema}.seen SELECT current_setting('synchronous_commit'); RETURN NULL; END $$",
        f"CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {schema}.threads "
        f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.note()",
    )
    lax = postgres.with_option("synchronous_commit=off")
    async with PostgresTraceStore(lax, schema=schema, listen=False) as store:
        head = await begin(store, thread)
        await store.append(thread, [NOTE], after=head, batch="b")
        await store.release(await store.acquire(thread, "a", 30, request="r"))
        await store.copy(thread, thread + "/copy", through=2)
        await store.delete(thread)
    assert postgres.run(postgres.dsn(), f"SELECT DISTINCT setting FROM {schema}.seen") == [("on",)]


async def test_many_processes_may_make_the_tables() -> None:
    """Stores that open an empty database at the same time make its tables once."""
    schema = postgres.fresh_schema()
    stores = [PostgresTraceStore(postgres.dsn(), schema=schema, listen=False) for _ in range(6)]
    heads = await asyncio.gather(*(store.head("t") for store in stores))
    assert [head.position for head in heads] == [0] * 6
    await asyncio.gather(*(store.close() for store in stores))


async def test_newer_schema_is_refused() -> None:
    """Tables that a later version has changed are left alone."""
    schema = await asyncio.to_thread(postgres.made_schema)
    postgres.run(postgres.dsn(), f"INSERT INTO {schema}.versions VALUES (99)")
    async with PostgresTraceStore(postgres.dsn(), schema=schema) as store:
        with pytest.raises(ValueError, match="has version 99"):
            await store.head("t")


async def test_bodies_are_kept_as_text(tables: str) -> None:
    """The column of the bodies would not reorder, round or refuse what JSON may say."""
    (kind,) = postgres.run(
        postgres.dsn(),
        "SELECT data_type FROM information_schema.columns WHERE column_name = 'data' "
        f"AND table_schema = '{tables}'",
    )
    assert kind == ("text",)


@pytest.mark.parametrize("thread_id", ["a\x00b", "\ud800"])
async def test_id_that_is_no_text_is_refused(tables: str, thread_id: str) -> None:
    """An id that PostgreSQL cannot keep is refused before anything is sent."""
    async with postgres.open_store(tables) as store:
        with pytest.raises(UnencodableError, match=r"no NUL|lone surrogate"):
            await begin(store, thread_id)


async def test_other_processes_are_heard(
    tables: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append of another process wakes who listens, although nobody looks."""
    async with postgres.open_store(tables) as store, postgres.open_store(tables) as other:
        head = await begin(store, thread)
        assert store._hints is not None
        hints = store._hints
        hints.listen()
        await until(lambda: hints.live)
        monkeypatch.setattr(_store, "POLL", LONG)
        monkeypatch.setattr(_store, "POLL_BESIDE_HINTS", LONG)
        waiting = asyncio.create_task(store.wait(thread, after=head, timeout=LONG))
        await until(lambda: bool(store._waiters._bells))
        await other.append(thread, [NOTE], after=head, batch="b")
        async with asyncio.timeout(10):
            assert (await waiting).position == 2


async def test_waiting_goes_on_when_the_listener_is_cut_off(tables: str, thread: str) -> None:
    """Who waits sees an append also after the session that listened has ended."""
    async with postgres.open_store(tables) as store, postgres.open_store(tables) as other:
        head = await begin(store, thread)
        waiting = asyncio.create_task(store.wait(thread, after=head, timeout=LONG))
        assert store._hints is not None
        hints = store._hints
        await until(lambda: hints.live)
        listening = "query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        end = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {listening}"
        postgres.run(postgres.dsn(), end)
        await other.append(thread, [NOTE], after=head, batch="b")
        async with asyncio.timeout(10):
            assert (await waiting).position == 2


async def test_fault_points_frame_a_call(tables: str, thread: str) -> None:
    """A write passes three points in the caller's task, a read one."""
    points: list[str] = []
    async with postgres.open_store(tables) as store:
        token = fault_plan.set(points.append)
        await store.append(thread, [NOTE], after=Head(), batch="b")
        await store.head(thread)
        fault_plan.reset(token)
    stages = [f"store.append.{stage}" for stage in ("sending", "sent", "answered")]
    assert points == [*stages, "store.head.sending"]


async def test_delete_among_appends_leaves_no_row(tables: str, thread: str) -> None:
    """Appends that race with a deletion come before it or are refused, and leave nothing."""
    async with postgres.open_store(tables) as store:
        head = await begin(store, thread)

        async def run() -> None:
            position = head.position
            while True:
                after = Head(position, head.incarnation)
                entries = await store.append(thread, [NOTE], after=after, batch=f"{position}")
                position = entries[-1].position

        running = asyncio.create_task(run())
        await store.wait(thread, after=Head(5, head.incarnation), timeout=LONG)
        await store.delete(thread)
        with pytest.raises(UnknownThreadError):
            await running
    orphans = (
        f"SELECT count(*) FROM {tables}.events WHERE thread NOT IN "
        f"(SELECT key FROM {tables}.threads)"
    )
    assert postgres.run(postgres.dsn(), orphans) == [(0,)]


async def test_role_that_may_make_no_tables_is_enough(thread: str) -> None:
    """Once the tables are there, a role with the rights that the documentation names can work."""
    schema = await asyncio.to_thread(postgres.made_schema)
    page = Path(__file__).parents[2] / "docs" / "postgres.md"
    grants = page.read_text("utf-8").partition("```sql\n")[2].partition("```")[0]
    role = f"{schema}_app"
    rights = grants.replace("soev", schema).replace("TO app", f"TO {role}").split(";")
    postgres.run(postgres.dsn(), f"CREATE ROLE {role} NOLOGIN", *filter(str.strip, rights))
    try:
        dsn = postgres.with_option(f"role={role}")
        async with PostgresTraceStore(dsn, schema=schema, listen=False) as store:
            await begin(store, thread)
            lease = await store.acquire(thread, "a", 30, request="r")
            await store.renew(lease, 30)
            await store.copy(thread, thread + "/copy", through=1)
            await store.delete(thread)
            assert [each.thread_id for each in await store.threads()] == [thread + "/copy"]
    finally:
        postgres.run(postgres.dsn(), f"DROP OWNED BY {role}", f"DROP ROLE {role}")


FORKING = """
import asyncio, os, sys
from soev.adapters import PostgresTraceStore
from soev.domain import Head, StoredEvent

store = PostgresTraceStore(os.environ["FORKING_DSN"], schema=sys.argv[1], listen=False)
NOTE = StoredEvent("note", "{}")

async def append(name):
    await store.append(name, [NOTE], after=Head(), batch="b")
    return (await store.head(name)).position

with asyncio.Runner() as runner:
    assert runner.run(append("parent")) == 1
    child = os.fork()
    if child == 0:
        assert asyncio.run(append("child")) == 1
        asyncio.run(store.close())
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert runner.run(append("parent again")) == 1
    runner.run(store.close())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_has_connections_of_its_own() -> None:
    """A child of a fork connects anew, and leaves the sessions of its parent alone."""
    schema = postgres.made_schema()
    dsn = postgres.named_dsn("forking")
    outcome = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING, schema],
        env=os.environ | {"FORKING_DSN": dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
