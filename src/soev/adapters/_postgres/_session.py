"""A loan of one connection: statements, transactions in few round trips, and what was sent."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import AsyncCursor

Values = Sequence[Any]
Statement = tuple[str, Values]
Rows = list[tuple[Any, ...]]

# A role whose default is `off` would lose commits that were answered; `remote_apply` promises more.
SETTLED = (
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
)
BOUNDS = (
    f"SELECT {SETTLED}, set_config('lock_timeout', %s, true), "
    "set_config('statement_timeout', %s, true), "
    "set_config('idle_in_transaction_session_timeout', %s, true)"
)


class Session:
    """One call's use of a connection. It leaves no state in the server's session.

    Args:
        cursor: A cursor of a connection in autocommit mode and without a transaction.
        patience: The most milliseconds that a statement or a lock may take.

    Attributes:
        sent: Whether a commit has been sent, so that what was written may be stored.
        patience: The same milliseconds, as the server reads them.
    """

    def __init__(self, cursor: AsyncCursor[tuple[Any, ...]], patience: int) -> None:
        self._cursor, self.connection = cursor, cursor.connection
        self.patience = f"{patience}ms"
        self.sent = self.is_cut = False

    async def rows(self, sql: str, values: Values = ()) -> Rows:
        """Run a statement, in one round trip."""
        return await _rows(await self._cursor.execute(sql, values))

    async def commit_alone(self, sql: str, values: Values) -> Rows:
        """Run a statement that is a transaction of its own, in one round trip."""
        self.sent = True
        return await self.rows(sql, values)

    async def begin(self, *statements: Statement) -> Rows:
        """Begin a transaction and return the rows of its last statement, in one round trip."""
        bounds = BOUNDS, (self.patience,) * 3
        return (await self._together(("BEGIN", ()), bounds, *statements))[-1]

    async def commit(self, *statements: Statement) -> None:
        """Run the last statements of a transaction and commit it, in one round trip."""
        async with self.connection.pipeline():
            for sql, values in statements:
                await self.connection.execute(sql, values)
            self.sent = True
            await self.connection.execute("COMMIT")

    async def _together(self, *statements: Statement) -> list[Rows]:
        async with self.connection.pipeline():
            cursors = [await self.connection.execute(sql, values) for sql, values in statements]
        return [await _rows(each) for each in cursors]

    async def tidy(self) -> None:
        """Roll back what was not committed. A connection that cannot is closed."""
        try:
            await self.connection.rollback()
        except Exception:  # noqa: BLE001 -- whatever it is, nobody may borrow this connection again
            await self.connection.close()

    def cut(self) -> None:
        """Break the connection, so that whoever waits for its answer learns that none comes."""
        self.is_cut = True
        with suppress(OSError):
            stream = socket.socket(fileno=self.connection.pgconn.socket)
            try:
                stream.shutdown(socket.SHUT_RDWR)
            finally:
                stream.detach()


async def _rows(cursor: AsyncCursor[tuple[Any, ...]]) -> Rows:
    # `description` would tell too, after making an object for each column.
    result = cursor.pgresult
    return await cursor.fetchall() if result is not None and result.nfields else []
