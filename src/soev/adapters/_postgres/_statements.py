"""The statements of a PostgreSQL trace store, and what their rows mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_json

from soev.adapters._postgres import _sql as sql
from soev.adapters._postgres._session import Rows, Session, Statement
from soev.adapters._rows import (
    EPOCH,
    Appending,
    LeaseRow,
    ThreadRow,
    agent_of,
    new_incarnation,
    seal,
)
from soev.adapters._stored import MICROSECOND, digest, micros, moment
from soev.domain import (
    ROOT_STREAM,
    Lease,
    LogEntry,
    PositionOutOfRangeError,
    StoredEvent,
    ThreadInfo,
)

Entry = LogEntry[StoredEvent]
LAST_POSITION = (1 << 31) - 1
HEAD_WIDTH = 1 + sql.HEAD.count(",") + 1


@dataclass(slots=True)
class Row(ThreadRow):
    """A head row with its key, the time of its first event and the type of its last."""

    key: int = 0
    created: datetime = EPOCH
    last_type: str = ""

    def info(self, now: datetime) -> ThreadInfo:
        """Return what a list of threads shows of this one."""
        return ThreadInfo(
            self.thread_id,
            self.agent,
            self.position,
            self.created,
            self.updated,
            self.last_type,
            self.lease_at(now),
        )


def _row(found: Sequence[Any]) -> Row:
    key, created, last_type, thread_id, incarnation, agent, position, updated, *rest = found
    epoch, owner, request, expires, ttl = rest
    lease = LeaseRow(epoch)
    if owner is not None:
        span = timedelta(microseconds=ttl)
        lease = LeaseRow(epoch, owner, request, moment(expires), span)
    return Row(
        thread_id,
        incarnation,
        agent,
        position,
        moment(updated),
        lease,
        key,
        moment(created),
        last_type,
    )


def place(position: int) -> int:
    """Return a position that the server's integers can hold, however far the caller's is."""
    return max(-1, min(position, LAST_POSITION))


def entries(rows: Rows) -> list[Entry]:
    """Return the entries that rows of `EVENT` stand for."""
    return [
        LogEntry(
            position,
            StoredEvent(type_, data, stream, origin, version, seq, moment(ts), rest),
        )
        for position, type_, data, stream, origin, version, seq, ts, rest in rows
    ]


class Statements:
    """The statements on the tables of one schema.

    Args:
        schema: The schema's name, checked to be a plain one.
    """

    def __init__(self, schema: str) -> None:
        self._sql = {text: text.replace("$.", f"{schema}.") for text in sql.ALL}

    async def find(self, session: Session, thread_id: str) -> tuple[datetime, Row | None]:
        """Return the server's time and a thread's head row, or None."""
        return _found(await session.rows(self._sql[sql.FIND], (thread_id,)))

    async def lock(
        self, session: Session, thread_id: str, *, shared: bool = False
    ) -> tuple[datetime, Row | None]:
        """Begin a transaction that holds a head row, and return time and row as they are then.

        Args:
            session: The connection.
            thread_id: The thread.
            shared: Whether others may read the row for as long, though not change it.
        """
        hold = sql.SHARE if shared else sql.LOCK
        values = (thread_id,)
        held, found = (self._sql[hold], values), (self._sql[sql.FIND], values)
        return _found(await session.begin(held, found))

    async def append(self, session: Session, call: Appending) -> list[Entry] | None:
        """Append where life, lease and position are the caller's; None where they are not."""
        after, lease, events = call.after, call.lease, call.events
        seqs: dict[str, int] = {}
        sealed = seal(events, after.position, seqs, EPOCH)
        main = seqs.pop(ROOT_STREAM, 0)
        names = list(seqs)
        found = await session.commit_alone(
            self._sql[sql.APPEND],
            (
                call.thread_id,
                after.incarnation,
                after.position,
                lease.owner if lease else None,
                lease.epoch if lease else None,
                call.release,
                digest(call.batch).hex(),
                session.patience,
                new_incarnation() if after.incarnation is None else None,
                agent_of(events[0]) if after.incarnation is None else None,
                len(events),
                main,
                _as_json(sealed, names),
                names,
                list(seqs.values()),
            ),
        )
        if not found:
            return None
        ((at, first, others),) = found
        bases = dict(zip(names, others or (), strict=True))
        bases[ROOT_STREAM] = first
        return seal(events, after.position, bases, moment(at))

    async def batch_at(
        self, session: Session, row: Row, position: int, batch: str
    ) -> list[Entry] | None:
        """Return the events of an append, or None when another's begin at its position."""
        first, mark = place(position), digest(batch).hex()
        values = row.key, first, row.key, first, row.position + 1, mark, row.key, first
        return entries(await session.rows(self._sql[sql.BATCH], values)) or None

    async def acquire(
        self, session: Session, thread_id: str, owner: str, ttl: float, request: str
    ) -> Lease | None:
        """Take a lease that is free, or this request's own; None where it is neither."""
        span = timedelta(seconds=ttl) // MICROSECOND
        values = thread_id, owner, request, span, session.patience
        found = await session.commit_alone(self._sql[sql.ACQUIRE], values)
        if not found:
            return None
        ((life, epoch, expires),) = found
        return Lease(thread_id, life, owner, epoch, moment(expires))

    def save_lease(self, row: Row) -> Statement:
        """Return the statement that writes a row's lease."""
        lease = row.lease
        return self._sql[sql.SAVE_LEASE], (
            lease.epoch,
            lease.owner,
            lease.request,
            micros(lease.expires),
            lease.ttl // MICROSECOND,
            row.thread_id,
        )

    async def settle_leases(self, session: Session) -> None:
        """Bound every lease by its ttl from now on."""
        await session.begin((self._sql[sql.SETTLE], ()))
        await session.commit()

    async def page(
        self, session: Session, thread_id: str, after: int, limit: int | None
    ) -> tuple[datetime, Row | None, list[Entry]]:
        """Return the server's time, a thread's head row and a part of its log, of one moment."""
        most = None if limit is None else max(limit, 0)
        values = thread_id, place(after), most
        rows = await session.rows(self._sql[sql.PAGE], values)
        now, row = _found([rows[0][:HEAD_WIDTH]])
        parts = [each[HEAD_WIDTH:] for each in rows]
        return now, row, entries([part for part in parts if part[0] is not None])

    async def page_back(
        self, session: Session, thread_id: str, life: str | None, first: int, last: int
    ) -> list[Entry] | None:
        """Return a part of a log, the newest event first, or None without such a life."""
        values = place(first), place(last), thread_id, life
        rows = await session.rows(self._sql[sql.PAGE_BACK], values)
        return entries([row for row in rows if row[0] is not None]) if rows else None

    async def threads(
        self, session: Session, agent: str | None, before: ThreadInfo | None, limit: int
    ) -> tuple[datetime, list[Row]]:
        """Return the server's time and head rows, those with the newest activity first."""
        text, values = self._sql[sql.THREADS], list[object]()
        if agent is not None:
            text += sql.OF_AGENT
            values.append(agent)
        if before is not None:
            text += sql.BEFORE
            values += micros(before.updated), before.thread_id
        rows = await session.rows(text + sql.NEWEST, (*values, max(limit, 0)))
        now = moment(rows[0][0]) if rows else EPOCH
        return now, [_row(row) for _, *row in rows]

    async def copy(self, session: Session, source: Row, new_id: str, through: int) -> bool:
        """Copy a thread's first events, and tell whether the new id was free.

        Raises:
            PositionOutOfRangeError: There is no such event, or it is inside of an append.
        """
        cut = await session.rows(self._sql[sql.CUT], (source.key, place(through)))
        if not cut:
            raise PositionOutOfRangeError(source.thread_id, through, source.position)
        ((updated, last_type, rest, *ends),) = cut
        if rest:
            around = tuple(end for end in ends if end is not None)
            raise PositionOutOfRangeError(source.thread_id, through, source.position, around)
        times = micros(source.created), updated
        names = new_id, new_incarnation(), source.agent, last_type
        values = (*times, through, *names, source.key, through)
        made = await session.rows(self._sql[sql.CREATE], values)
        if made:
            span = made[0][0], source.key, through
            await session.commit(*((self._sql[text], span) for text in sql.COPY))
        return bool(made)

    def delete(self, row: Row) -> Iterable[Statement]:
        """Return the statements that remove a thread whose row is held."""
        keys = row.key, row.key, row.thread_id
        return [(self._sql[text], (key,)) for text, key in zip(sql.DELETE, keys, strict=True)]


def _found(rows: Rows) -> tuple[datetime, Row | None]:
    ((now, *row),) = rows
    return moment(now), _row(row) if row[0] is not None else None


def _as_json(sealed: Sequence[Entry], names: Sequence[str]) -> str:
    """Write the events of one append for the server: the only parameter of any size."""
    places = {name: number for number, name in enumerate(names, 1)}
    rows = [
        {
            "nth": number,
            "place": places.get(event.stream),
            "seq": event.seq,
            "rest": event.left,
            "type": event.type,
            "stream": event.stream,
            "origin": event.origin,
            "version": event.version,
            "data": event.data,
        }
        for number, event in enumerate((entry.event for entry in sealed), 1)
    ]
    return to_json(rows).decode()
