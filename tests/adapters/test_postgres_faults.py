"""The PostgreSQL store loses and repeats nothing when sessions end, servers restart or say no."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import psycopg
import pytest

from soev.adapters import PostgresTraceStore
from soev.domain import (
    Head,
    LeaseLostError,
    LogEntry,
    OutcomeUnknownError,
    StoredEvent,
    StoreUnavailableError,
    ThreadExistsError,
    TraceStore,
)
from tests import postgres
from tests.reliability.report import LEDGER

pytestmark = pytest.mark.anyio

T = TypeVar("T")
Entry = LogEntry[StoredEvent]
NOTE = StoredEvent("note", "{}")
AT_ONCE = 20
OWN_SERVER = pytest.mark.skipif(
    postgres.DSN is not None, reason="only a server that the tests have started may be restarted"
)


@pytest.fixture(scope="module")
def tables() -> str:
    """Return a schema in which the tables are made."""
    return postgres.made_schema()


@pytest.fixture
def schema() -> str:
    """Return a schema of one test, in which the tables are made."""
    return postgres.made_schema()


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat the identical call until it is answered, as a run does."""
    while True:
        try:
            return await call()
        except (OutcomeUnknownError, StoreUnavailableError):
            await asyncio.sleep(0)


async def add(
    store: TraceStore, thread_id: str, head: Head, batch: str, **more: Any
) -> tuple[list[Entry], Head]:
    """Append two events until that is answered, and return them with the position after them."""
    events = [NOTE, replace(NOTE, stream="b")]
    entries = await insist(lambda: store.append(thread_id, events, after=head, batch=batch, **more))
    return list(entries), replace(head, position=entries[-1].position)


async def script(store: TraceStore, thread_id: str) -> list[object]:
    """Make each kind of call once, and return what they came to."""
    answered, _ = await add(store, thread_id, Head(), "1")
    head = await insist(lambda: store.head(thread_id))
    lease = await insist(lambda: store.acquire(thread_id, "a", 60, request="r"))
    entries, head = await add(store, thread_id, head, "2", lease=lease)
    answered += entries
    await insist(lambda: store.renew(lease, 60))
    entries, head = await add(store, thread_id, head, "3", lease=lease, release=True)
    answered += entries
    copy = f"{thread_id}/copy"
    with suppress(ThreadExistsError):  # a repeat finds the first call's own success
        await insist(lambda: store.copy(thread_id, copy, through=4))
    copied = await insist(lambda: store.read(copy))
    await insist(lambda: store.delete(copy))
    page = await insist(lambda: store.read(thread_id))
    assert list(page.entries) == answered
    assert [entry.position for entry in answered] == [1, 2, 3, 4, 5, 6]
    return [len(copied.entries), page.head.lease, (await insist(lambda: store.head(copy))).position]


@asynccontextmanager
async def struck(
    monkeypatch: pytest.MonkeyPatch, strike: Callable[[int, int], None]
) -> AsyncIterator[Callable[[], int]]:
    """Call a function with the number and the session of each statement, before it is sent."""
    numbers, execute = count(), psycopg.AsyncCursor.execute

    async def counted(self: psycopg.AsyncCursor[Any], *given: Any, **more: Any) -> Any:
        number, session = next(numbers), self.connection.info.backend_pid
        await asyncio.to_thread(strike, number, session)
        return await execute(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.AsyncCursor, "execute", counted)
        yield lambda: next(numbers)


def end_session(session: int) -> None:
    """End a session of the server, and wait until it is gone."""
    postgres.run(postgres.dsn(), f"SELECT pg_terminate_backend({session}, 5000)")


async def test_session_that_ends_at_any_statement_loses_nothing(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its session ends, a script of repeated calls comes to what it came to in calm."""
    async with postgres.open_store(tables, listen=False) as store:
        calm = await script(store, "calm")
        for at in count():

            def strike(number: int, session: int, at: int = at) -> None:
                if number == at:
                    end_session(session)

            async with struck(monkeypatch, strike) as made:
                assert await script(store, f"ended at {at}") == calm
            if made() <= at:
                break
        assert at > 30


async def test_idle_session_that_has_ended_is_not_used(tables: str) -> None:
    """Sessions that the server ended between two calls are noticed before anything is sent."""
    dsn = postgres.named_dsn("idle")
    async with PostgresTraceStore(dsn, schema=tables, listen=False) as store:
        await asyncio.gather(*(store.head("t") for _ in range(4)))
        postgres.run(
            postgres.dsn(),
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'idle'",
        )
        await store.append("idle", [NOTE], after=Head(), batch="b")


async def append_until(
    store: TraceStore, thread_id: str, stop: asyncio.Event
) -> tuple[list[Entry], int]:
    """Append to a thread until told to stop; return what was answered, and how often it was not."""
    answered: list[Entry] = []
    unknown = 0
    entries, _ = await add(store, thread_id, Head(), "0")
    answered += entries
    head = await insist(lambda: store.head(thread_id))
    while not stop.is_set():
        call = [NOTE], f"{head.position}"
        try:
            entries = list(await store.append(thread_id, call[0], after=head, batch=call[1]))
        except (OutcomeUnknownError, StoreUnavailableError) as error:
            unknown += isinstance(error, OutcomeUnknownError)
            await asyncio.sleep(0)
            continue
        answered += entries
        head = replace(head, position=entries[-1].position)
    return answered, unknown


async def shake(schema: str, times: int, disturb: Callable[[], None]) -> int:
    """Append to eight threads while something disturbs the server, and compare the logs.

    Returns:
        How many outcomes were unknown.
    """
    stop, total = asyncio.Event(), 0
    async with postgres.open_store(schema, listen=False) as store:
        names = [f"t{number}" for number in range(8)]
        running = [asyncio.create_task(append_until(store, name, stop)) for name in names]
        for _ in range(times):
            await asyncio.to_thread(disturb)
            await insist(partial(moved_on, store, "t0"))
        stop.set()
        for name, task in zip(names, running, strict=True):
            answered, unknown = await task
            total += unknown
            page = await store.read(name)
            assert list(page.entries) == answered
            assert [each.position for each in answered] == list(range(1, len(answered) + 1))
    return total


async def moved_on(store: TraceStore, thread_id: str) -> None:
    """Return when a thread has grown."""
    head = await store.head(thread_id)
    assert (await store.wait(thread_id, after=head, timeout=30)).position > head.position


def end_all_sessions() -> None:
    """End every other session of the database."""
    postgres.run(
        postgres.dsn(),
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database() AND backend_type = "
        "'client backend'",
    )


@OWN_SERVER
async def test_restarts_lose_nothing(schema: str) -> None:
    """What was answered before a crash of the server is there after it, once and in order."""
    await shake(schema, 10, postgres.own_server().restart)
    LEDGER.counted("T7", "appends to eight threads", "immediate restart, PostgreSQL", 10)


async def test_mass_terminations_lose_nothing(schema: str) -> None:
    """Each append is stored once although all sessions are ended again and again."""
    await shake(schema, 5, end_all_sessions)
    LEDGER.counted("T7", "appends to eight threads", "all sessions ended, PostgreSQL", 5)


@OWN_SERVER
@pytest.mark.soak
async def test_many_restarts_lose_nothing(schema: str) -> None:
    """The same for many crashes of the server."""
    assert await shake(schema, 100, postgres.own_server().restart) > 0
    LEDGER.counted("T7", "appends to eight threads", "immediate restart, PostgreSQL", 100)


@pytest.mark.soak
async def test_many_mass_terminations_lose_nothing(schema: str) -> None:
    """The same for many rounds of ended sessions."""
    assert await shake(schema, 200, end_all_sessions) > 0
    LEDGER.counted("T7", "appends to eight threads", "all sessions ended, PostgreSQL", 200)


def hold_commits(schema: str) -> None:
    """Make each commit of events wait, until `let_go`."""
    postgres.run(
        postgres.dsn(),
        f"CREATE TABLE IF NOT EXISTS {schema}.held()",
        f"INSERT INTO {schema}.held DEFAULT VALUES",
        f"CREATE OR REPLACE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"WHILE EXISTS (SELECT FROM {schema}.held) LOOP PERFORM pg_sleep(0.1); END LOOP; "
        "RETURN NULL; END $$",
        f"DROP TRIGGER IF EXISTS slow ON {schema}.events",
        f"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {schema}.events DEFERRABLE INITIALLY "
        f"DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.slow()",
    )


def let_go(schema: str) -> None:
    """Let the commits go on."""
    postgres.run(postgres.dsn(), f"DELETE FROM {schema}.held")


def in_commit(schema: str, number: int) -> None:
    """Return when so many sessions are in the middle of a commit."""
    sleeping = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' "
        f"AND query LIKE '%{schema}.append%'"
    )
    while postgres.run(postgres.dsn(), sleeping) != [(number,)]:
        pass


async def cut(schema: str, name: str) -> OutcomeUnknownError:
    """Append, and lose the connection during the commit. Return what that is answered with."""
    async with postgres.open_store(schema, patience=0.5, listen=False) as store:
        while True:
            try:
                await store.append(name, [NOTE], after=Head(), batch="b")
            except StoreUnavailableError:
                continue  # a machine with much to do may need longer than that to connect
            except OutcomeUnknownError as error:
                return error


async def cut_during_commit(schema: str) -> None:
    """Lose connections during commits that succeed later, and repeat the appends."""
    names = [f"cut {number}" for number in range(AT_ONCE)]
    async with postgres.open_store(schema, connections=AT_ONCE, listen=False) as other:
        await asyncio.to_thread(hold_commits, schema)
        lost = await asyncio.gather(*(cut(schema, name) for name in names))
        assert {(each.operation, each.reason) for each in lost} == {
            ("append", "no answer within 0.5 s")
        }
        for name in names:
            assert (await other.head(name)).position == 0  # reading back proves nothing
        await asyncio.to_thread(let_go, schema)
        for name in names:
            (entry,) = await other.append(name, [NOTE], after=Head(), batch="b")
            assert list((await other.read(name)).entries) == [entry]
            await other.delete(name)
    LEDGER.counted("T7", "an append", "connection cut during its commit, PostgreSQL", AT_ONCE)


async def test_append_that_commits_after_its_connection_is_found(schema: str) -> None:
    """An append whose connection broke during the commit is unknown; its repeat is answered."""
    await cut_during_commit(schema)


@pytest.mark.soak
async def test_many_appends_that_commit_late_are_found(schema: str) -> None:
    """The same many times."""
    for _ in range(10):
        await cut_during_commit(schema)


async def test_append_whose_session_ends_during_its_commit_is_stored_once(schema: str) -> None:
    """A session that ends during a commit leaves it open whether anything is stored."""
    names = [f"ended {number}" for number in range(AT_ONCE)]
    async with postgres.open_store(schema, connections=AT_ONCE, listen=False) as store:

        async def append(name: str) -> list[Entry]:
            return list(await store.append(name, [NOTE], after=Head(), batch="b"))

        await asyncio.to_thread(hold_commits, schema)
        calls = [asyncio.create_task(append(name)) for name in names]
        await asyncio.to_thread(in_commit, schema, AT_ONCE)
        await asyncio.to_thread(end_all_sessions)
        for call in calls:
            with pytest.raises(OutcomeUnknownError, match="57P01"):
                await call
        await asyncio.to_thread(let_go, schema)
        again = await asyncio.gather(*map(append, names))
        assert [list((await store.read(name)).entries) for name in names] == again
    LEDGER.counted("T7", "an append", "session ended during its commit, PostgreSQL", AT_ONCE)


@contextmanager
def absent_standby() -> Iterator[None]:
    """Let each commit wait for a synchronous standby that is not there."""
    postgres.run(
        postgres.dsn(),
        "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
        "SELECT pg_reload_conf()",
    )
    try:
        yield
    finally:
        postgres.run(
            postgres.dsn(),
            "ALTER SYSTEM RESET synchronous_standby_names",
            "SELECT pg_reload_conf()",
        )


async def append_until_unknown(store: TraceStore, head: Head) -> tuple[Head, str]:
    """Append to a thread until nobody knows of one, and return where and as what that was."""
    for number in count():
        try:
            _, head = await appended(store, head, str(number))
        except OutcomeUnknownError:
            return head, str(number)
    raise AssertionError


async def appended(store: TraceStore, head: Head, batch: str) -> tuple[list[Entry], Head]:
    """Append an event once, and return it with the position after it."""
    entries = list(await store.append("standby", [NOTE], after=head, batch=batch))
    return entries, replace(head, position=entries[-1].position)


@OWN_SERVER
async def test_repeat_is_answered_only_when_the_standby_has_what_it_repeats(schema: str) -> None:
    """Rows whose session ended while it waited for the standby are there, and not yet safe."""
    async with postgres.open_store(schema, patience=0.5, listen=False) as store:
        await store.append("standby", [NOTE], after=Head(), batch="first")
        begun = await store.head("standby")
        with absent_standby():
            head, batch = await append_until_unknown(store, begun)
            await asyncio.to_thread(end_all_sessions)
            await insist(partial(moved_past, store, head))
            with pytest.raises(OutcomeUnknownError):
                await appended(store, head, batch)
        entries, _ = await insist(partial(appended, store, head, batch))
        assert list((await store.read("standby", after=head.position)).entries) == entries


async def moved_past(store: TraceStore, head: Head) -> None:
    """Return when the thread has passed a head."""
    while (await store.head("standby")).position <= head.position:
        pass


def refuse(schema: str, state: str, times: int, what: str = "INSERT ON {}.events") -> None:
    """Let the server refuse so many appends, or other writes."""
    postgres.run(
        postgres.dsn(),
        f"CREATE SEQUENCE {schema}.refusals",
        f"CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF nextval('{schema}.refusals') <= {times} THEN "
        f"RAISE 'it says no' USING ERRCODE = '{state}'; END IF; RETURN NULL; END $$",
        f"CREATE CONSTRAINT TRIGGER refuse AFTER {what.format(schema)} DEFERRABLE INITIALLY "
        f"DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()",
    )


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_transaction_that_the_server_wants_again_is_repeated(schema: str, state: str) -> None:
    """A serialization failure or a deadlock is nothing that the caller hears of."""
    refuse(schema, state, 3)
    async with postgres.open_store(schema) as store:
        (entry,) = await store.append("t", [NOTE], after=Head(), batch="b")
        assert list((await store.read("t")).entries) == [entry]


@pytest.mark.parametrize("state", ["53100", "54000", "57014", "42501"])
async def test_refused_commit_stores_nothing(schema: str, state: str) -> None:
    """What the server refuses by name is certainly not stored, and says the server's name for it.

    A full disk, a program limit, a cancelled statement and a missing right are told alike.
    """
    refuse(schema, state, 1)
    async with postgres.open_store(schema) as store:
        with pytest.raises(StoreUnavailableError, match=rf"it says no \({state}\)"):
            await store.append("t", [NOTE], after=Head(), batch="b")
        assert (await store.head("t")).position == 0
        assert len(await store.append("t", [NOTE], after=Head(), batch="b")) == 1


@pytest.mark.parametrize("state", ["08007", "40003"])
async def test_outcome_that_the_server_does_not_know_is_unknown(schema: str, state: str) -> None:
    """Where the server itself cannot tell whether it committed, the caller must repeat."""
    refuse(schema, state, 1)
    async with postgres.open_store(schema) as store:
        with pytest.raises(OutcomeUnknownError, match=state):
            await store.append("t", [NOTE], after=Head(), batch="b")
        assert len(await store.append("t", [NOTE], after=Head(), batch="b")) == 1


async def test_read_that_cannot_bound_a_lease_is_unavailable(schema: str) -> None:
    """A read may bound a lease after the clock was set back; its outcome is never unknown."""
    async with postgres.open_store(schema, listen=False) as store:
        clock = postgres.ServerClock(schema)
        await store.append("t", [NOTE], after=Head(), batch="b")
        await store.acquire("t", "a", 30, request="r")
        clock.advance(-3600)
        refuse(schema, "40003", 1, "UPDATE ON {}.threads")
        with pytest.raises(StoreUnavailableError, match="40003"):
            await store.head("t")
        assert (await store.head("t")).lease is not None
        clock.advance(31)
        assert (await store.head("t")).lease is None


async def test_read_only_server_is_unavailable_for_writing(tables: str) -> None:
    """After a failover to a server that only reads, writes store nothing and reads go on."""
    dsn = postgres.with_option("default_transaction_read_only=on")
    async with PostgresTraceStore(dsn, schema=tables, listen=False) as store:
        with pytest.raises(StoreUnavailableError, match="25006"):
            await store.append("read-only", [NOTE], after=Head(), batch="b")
        assert (await store.head("read-only")).position == 0


async def test_write_waits_for_a_lock_and_then_is_refused(tables: str) -> None:
    """A row that another transaction holds makes a write wait, and no longer than its patience."""
    async with (
        postgres.open_store(tables, patience=0.4, listen=False) as store,
        await psycopg.AsyncConnection.connect(postgres.dsn()) as other,
    ):
        await store.append("locked", [NOTE], after=Head(), batch="b")
        head = await store.head("locked")
        lock = f"SELECT 1 FROM {tables}.threads WHERE id = 'locked' FOR UPDATE"
        await other.execute(lock.encode())
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            await store.append("locked", [NOTE], after=head, batch="c")
        with pytest.raises(StoreUnavailableError, match="timeout"):
            await store.acquire("locked", "a", 30, request="r")
        await other.rollback()
        assert len(await store.append("locked", [NOTE], after=head, batch="c")) == 1


async def test_repeat_waits_for_the_append_that_it_repeats(tables: str) -> None:
    """Two identical appends at the same time are one, and both have its answer."""
    async with postgres.open_store(tables) as store:
        for number in range(20):
            calls = [
                store.append(f"twice {number}", [NOTE], after=Head(), batch="b") for _ in range(2)
            ]
            first, second = await asyncio.gather(*calls)
            assert first == second


async def test_stolen_lease_refuses_an_append_that_waited(tables: str) -> None:
    """An append that waited for the row while its lease was taken is refused."""
    async with postgres.open_store(tables) as store:
        await store.append("stolen", [NOTE], after=Head(), batch="b")
        head = await store.head("stolen")
        lease = await store.acquire("stolen", "a", 30, request="r")
        async with await psycopg.AsyncConnection.connect(postgres.dsn()) as thief:
            steal = f"UPDATE {tables}.threads SET epoch = epoch + 1 WHERE id = 'stolen'"
            await thief.execute(steal.encode())
            appending = asyncio.create_task(
                store.append("stolen", [NOTE], after=head, batch="c", lease=lease)
            )
            await asyncio.to_thread(wait_for_waiter, tables)
            await thief.commit()
        with pytest.raises(LeaseLostError):
            await appending
        assert (await store.head("stolen")).position == 1


def wait_for_waiter(schema: str) -> None:
    """Return when a session waits for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        f"AND query LIKE '%{schema}.append%'"
    )
    while postgres.run(postgres.dsn(), waiting) == [(0,)]:
        pass
