"""SQLite files: how they are opened and checked, and what their errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

APPLICATION_ID = 0x736F6576  # "soev"
PAGE_BYTES = 4096
FULL = 2  # SQLite's number for synchronous=FULL


class Broken(Exception):
    """SQLite failed. It never leaves the adapter.

    Args:
        reason: What SQLite said.
        sent: Whether the transaction may have been committed.
        busy: Whether another connection was in the way.
    """

    def __init__(self, reason: str, *, sent: bool = False, busy: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.sent, self.busy = reason, sent, busy


@contextmanager
def driver_errors(*, sent: bool = False) -> Iterator[None]:
    """Turn what the driver raises into `Broken`: the one place that knows its errors.

    Args:
        sent: Whether a failure leaves it open that the transaction is stored.
    """
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
        )
        raise Broken(f"{error} ({name})", sent=sent, busy=busy) from error
    except MemoryError as error:
        raise Broken("out of memory", sent=sent) from error


class Database:
    """An open connection, and what its thread remembers of the file.

    Attributes:
        connection: The connection, used by one thread at a time.
        kinds: The keys of interned kinds; forgotten when a transaction does not end well.
        touched: The ids of threads whose log this transaction changed.
        scrub: Whether deleted pages must leave the write-ahead log after this transaction.
        overdue: Whether another connection's read kept them there.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.kinds: dict[tuple[str, str | None, str | None], int] = {}
        self.touched: set[str] = set()
        self.scrub = self.overdue = False

    def forget(self) -> None:
        """Forget what a transaction did that is undone now."""
        roll_back(self.connection)
        self.kinds.clear()
        self.touched.clear()
        self.scrub = False

    def clean(self, patience: float) -> None:
        """Empty the write-ahead log, so that no file holds what was deleted.

        Only the commit that deleted waits for other connections; later ones just try again.
        """
        wait = patience if self.scrub else 0
        self.scrub, self.overdue = False, True
        with suppress(sqlite3.Error):
            self.execute(f"PRAGMA busy_timeout={int(wait * 1000)}")
            self.overdue = pragma(self.connection, "wal_checkpoint(TRUNCATE)") != 0
        self.execute(f"PRAGMA busy_timeout={int(patience * 1000)}")


@dataclass(frozen=True, slots=True)
class File:
    """How a SQLite file is opened.

    Args:
        path: The file.
        migrations: The scripts that lead from an empty file to today's schema, in order.
        patience: The most seconds to wait for other connections.
    """

    path: Path
    migrations: Sequence[str]
    patience: float

    def open(self, mode: Literal["read", "write"]) -> Database:
        """Open a connection, checked to keep what it commits, on a file of today's schema.

        Raises:
            Broken: The file cannot be opened.
            ValueError: The file is another program's, or a newer version's.
        """
        with driver_errors():
            connection = sqlite3.connect(
                self.path, timeout=self.patience, isolation_level=None, check_same_thread=False
            )
        try:
            with driver_errors():
                self._set_up(connection, mode)
        except BaseException:
            connection.close()
            raise
        return Database(connection)

    def _set_up(self, connection: sqlite3.Connection, mode: Literal["read", "write"]) -> None:
        self._refuse_foreign(connection)
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        if pragma(connection, "journal_mode=WAL") != "wal":
            raise Broken("the file system has no write-ahead log for SQLite")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA fullfsync=ON")
        connection.execute("PRAGMA secure_delete=ON")
        if pragma(connection, "synchronous") != FULL:
            raise Broken("SQLite refuses synchronous=FULL")
        self._migrate(connection)
        if mode == "read":
            connection.execute("PRAGMA query_only=ON")

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        version = pragma(connection, "user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and pragma(connection, "application_id") != APPLICATION_ID:
            raise ValueError(
                f"{str(self.path)!r} is a SQLite file of another program. "
                "Give the store a path of its own."
            )
        if version > len(self.migrations):
            raise ValueError(
                f"{str(self.path)!r} has schema {version}, and this version of soev knows schemas "
                f"up to {len(self.migrations)}. Install the version that wrote the file."
            )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if pragma(connection, "user_version") == len(self.migrations):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for script in self.migrations[pragma(connection, "user_version") :]:
                for statement in script.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={len(self.migrations)}")
            connection.execute("COMMIT")
        finally:
            roll_back(connection)


def pragma(connection: sqlite3.Connection, text: str) -> Any:
    """Run a pragma and return its one value."""
    return connection.execute(f"PRAGMA {text}").fetchone()[0]


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction if there is one; SQLite itself has ended it after some errors."""
    with suppress(sqlite3.Error):
        connection.execute("ROLLBACK")
