"""The tables of a SQLite trace store, and the statements on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from soev.adapters._database import Database
from soev.adapters._rows import LeaseRow, ThreadRow
from soev.adapters._stored import MICROSECOND, digest, micros, moment
from soev.domain import ROOT_STREAM, LogEntry, StoredEvent, ThreadInfo

Entry = LogEntry[StoredEvent]
BITS = 32
LAST_POSITION = (1 << BITS) - 1

# An event's id is its thread's key and its position in one number, so that a thread's events lie
# side by side without an index. What repeats from row to row is kept once, in `kinds` and
# `streams`; `batch` stands in the first row of an append only. The stream `main` has the key 0 in
# each thread, and its last seq stands in the thread's row, so that most appends touch few pages.
MIGRATIONS = (
    """
    CREATE TABLE threads(
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        incarnation BLOB NOT NULL,
        agent TEXT,
        position INTEGER NOT NULL,
        main INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        request TEXT,
        expires INTEGER NOT NULL,
        ttl INTEGER NOT NULL
    );
    CREATE TABLE streams(
        key INTEGER PRIMARY KEY,
        thread INTEGER NOT NULL,
        name TEXT NOT NULL,
        seq INTEGER NOT NULL,
        UNIQUE(thread, name)
    );
    CREATE TABLE kinds(
        key INTEGER PRIMARY KEY,
        type TEXT NOT NULL,
        origin TEXT,
        version TEXT
    );
    CREATE TABLE events(
        id INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        stream INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        rest INTEGER NOT NULL,
        ts INTEGER NOT NULL,
        batch BLOB,
        data TEXT NOT NULL
    );
    CREATE INDEX threads_by_activity ON threads(updated, id);
    INSERT INTO streams VALUES (0, 0, 'main', 0)
    """,
)

THREAD = (
    "SELECT key, main, id, incarnation, agent, position, updated, epoch, owner, request, expires, "
    "ttl FROM threads"
)
EVENT = (
    "SELECT e.id, k.type, e.data, s.name, k.origin, k.version, e.seq, e.ts, e.rest FROM events e "
    "CROSS JOIN kinds k ON k.key = e.kind CROSS JOIN streams s ON s.key = e.stream "
    "WHERE e.id BETWEEN ? AND ? ORDER BY e.id"
)


@dataclass(slots=True)
class Row(ThreadRow):
    """A head row with its key in the file, and the last seq of the stream `main`."""

    key: int = 0
    main: int = 0


def place(row: Row, position: int) -> int:
    """Return the id of the event at a position of a thread."""
    return row.key << BITS | max(0, min(position, LAST_POSITION))


def find(database: Database, thread_id: str) -> Row | None:
    """Return a thread's head row, or None."""
    found = database.execute(f"{THREAD} WHERE id = ?", (thread_id,)).fetchone()
    return _row(found) if found else None


def _row(found: Sequence[Any]) -> Row:
    key, main, thread_id, incarnation, agent, position, updated, epoch, owner, request, *times = (
        found
    )
    lease = LeaseRow(epoch)
    if owner is not None:
        expires, ttl = times
        lease = LeaseRow(epoch, owner, request, moment(expires), timedelta(microseconds=ttl))
    return Row(thread_id, incarnation.hex(), agent, position, moment(updated), lease, key, main)


def create(database: Database, row: Row) -> None:
    """Insert a thread's head row, and give the row its key."""
    made = database.execute(
        "INSERT INTO threads(id, incarnation, agent, position, main, updated, epoch, expires, ttl) "
        "VALUES (?, ?, ?, ?, ?, ?, 0, 0, 0)",
        (
            row.thread_id,
            bytes.fromhex(row.incarnation),
            row.agent,
            row.position,
            row.main,
            micros(row.updated),
        ),
    )
    row.key = made.lastrowid or 0


def save_position(database: Database, row: Row) -> None:
    """Write where a thread's log ends."""
    database.execute(
        "UPDATE threads SET position = ?, main = ?, updated = ? WHERE key = ?",
        (row.position, row.main, micros(row.updated), row.key),
    )


def save_lease(database: Database, row: Row) -> None:
    """Write a thread's lease."""
    lease = row.lease
    database.execute(
        "UPDATE threads SET epoch = ?, owner = ?, request = ?, expires = ?, ttl = ? WHERE key = ?",
        (
            lease.epoch,
            lease.owner,
            lease.request,
            micros(lease.expires),
            lease.ttl // MICROSECOND,
            row.key,
        ),
    )


def settle_leases(database: Database, now: datetime) -> None:
    """Bound every lease by its ttl from now on."""
    database.execute(
        "UPDATE threads SET expires = ?1 + ttl WHERE owner IS NOT NULL AND expires > ?1 + ttl",
        (micros(now),),
    )


@dataclass(slots=True)
class Streams:
    """The streams that one append writes to: the last seq and the key of each."""

    seqs: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, database: Database, row: Row, events: Iterable[StoredEvent]) -> Streams:
        """Read the streams of some events."""
        streams = cls()
        for name in {event.stream for event in events}:
            if name == ROOT_STREAM:
                streams.keys[name], streams.seqs[name] = 0, row.main
                continue
            found = database.execute(
                "SELECT key, seq FROM streams WHERE thread = ? AND name = ?", (row.key, name)
            ).fetchone()
            if found:
                streams.keys[name], streams.seqs[name] = found
        return streams

    def save(self, database: Database, row: Row) -> None:
        """Write the last seq of each, and give new ones a key."""
        for name, seq in self.seqs.items():
            if name == ROOT_STREAM:
                row.main = seq
            elif name in self.keys:
                database.execute("UPDATE streams SET seq = ? WHERE key = ?", (seq, self.keys[name]))
            else:
                made = database.execute(
                    "INSERT INTO streams(thread, name, seq) VALUES (?, ?, ?)", (row.key, name, seq)
                )
                self.keys[name] = made.lastrowid or 0


def _kind(database: Database, event: StoredEvent) -> int:
    """Return the key of an event's type, origin and version."""
    kind = event.type, event.origin, event.version
    if kind not in database.kinds:
        found = database.execute(
            "SELECT key FROM kinds WHERE type = ? AND origin IS ? AND version IS ?", kind
        ).fetchone()
        database.kinds[kind] = found[0] if found else _new_kind(database, kind)
    return database.kinds[kind]


def _new_kind(database: Database, kind: tuple[str, str | None, str | None]) -> int:
    made = database.execute("INSERT INTO kinds(type, origin, version) VALUES (?, ?, ?)", kind)
    return made.lastrowid or 0


def insert(
    database: Database, row: Row, entries: Sequence[Entry], streams: Streams, batch: str
) -> None:
    """Insert the events of one append."""
    ts = micros(row.updated)
    mark: bytes | None = digest(batch)
    for entry in entries:
        event = entry.event
        database.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                place(row, entry.position),
                _kind(database, event),
                streams.keys[event.stream],
                event.seq,
                event.left,
                ts,
                mark,
                event.data,
            ),
        )
        mark = None


def batch_at(database: Database, row: Row, position: int, batch: str) -> list[Entry] | None:
    """Return the events of an append that begins at a position, or None when it is another's."""
    if position > row.position:
        return None
    first = place(row, position)
    found = database.execute("SELECT batch FROM events WHERE id = ?", (first,)).fetchone()
    if found is None or found[0] != digest(batch):
        return None
    following = database.execute(
        "SELECT min(id) FROM events WHERE id > ? AND id <= ? AND batch IS NOT NULL",
        (first, place(row, row.position)),
    ).fetchone()[0]
    stop = row.position if following is None else (following & LAST_POSITION) - 1
    return list(entries(database, row, position, stop))


def entries(
    database: Database, row: Row, first: int, last: int, *, newest_first: bool = False
) -> Iterator[Entry]:
    """Yield the events from one position to another, both included."""
    order = " DESC" if newest_first else ""
    found = database.execute(EVENT + order, (place(row, first), place(row, last)))
    for id_, type_, data, stream, origin, version, seq, ts, rest in found:
        event = StoredEvent(type_, data, stream, origin, version, seq, moment(ts), rest)
        yield LogEntry(id_ & LAST_POSITION, event)


def rows(database: Database, agent: str | None, before: ThreadInfo | None, limit: int) -> list[Row]:
    """Return head rows, those with the newest activity first."""
    where, values = ["1"], list[object]()
    if agent is not None:
        where.append("agent = ?")
        values.append(agent)
    if before is not None:
        where.append("(updated, id) < (?, ?)")
        values += micros(before.updated), before.thread_id
    found = database.execute(
        f"{THREAD} WHERE {' AND '.join(where)} ORDER BY updated DESC, id DESC LIMIT ?",
        (*values, max(limit, 0)),
    )
    return [_row(each) for each in found]


def ends(database: Database, row: Row) -> tuple[StoredEvent, StoredEvent]:
    """Return the first and the last event of a thread."""
    (first,), (last,) = (entries(database, row, at, at) for at in (1, row.position))
    return first.event, last.event


def cut(database: Database, row: Row, through: int) -> Entry | tuple[int, ...]:
    """Return the event that a log may be cut after, or the nearest such positions."""
    (entry,) = entries(database, row, through, through)
    if not entry.event.left:
        return entry
    found = database.execute(
        "SELECT (SELECT max(id) FROM events WHERE id BETWEEN ?1 AND ?2 AND rest = 0), "
        "(SELECT min(id) FROM events WHERE id BETWEEN ?2 AND ?3 AND rest = 0)",
        (place(row, 1), place(row, through), place(row, row.position)),
    ).fetchone()
    return tuple(id_ & LAST_POSITION for id_ in found if id_ is not None)


def copy(database: Database, source: Row, row: Row) -> None:
    """Copy a thread's first events, as many as the new row's position says."""
    first, last = place(source, 1), place(source, row.position)
    database.execute(
        "INSERT INTO streams(thread, name, seq) SELECT ?, s.name, max(e.seq) FROM events e "
        "CROSS JOIN streams s ON s.key = e.stream WHERE e.id BETWEEN ? AND ? AND s.key > 0 "
        "GROUP BY s.key",
        (row.key, first, last),
    )
    database.execute(
        "INSERT INTO events SELECT e.id - ?1 + ?2, e.kind, n.key, e.seq, e.rest, e.ts, NULL, "
        "e.data FROM events e CROSS JOIN streams s ON s.key = e.stream CROSS JOIN streams n "
        "ON n.thread = CASE s.key WHEN 0 THEN 0 ELSE ?3 END AND n.name = s.name "
        "WHERE e.id BETWEEN ?4 AND ?5",
        (place(source, 0), place(row, 0), row.key, first, last),
    )
    database.execute(
        "UPDATE threads SET main = coalesce((SELECT max(seq) FROM events "
        "WHERE id BETWEEN ? AND ? AND stream = 0), 0) WHERE key = ?",
        (first, last, row.key),
    )


def remove(database: Database, row: Row) -> None:
    """Delete a thread's events, streams and head row."""
    span = place(row, 0), place(row, LAST_POSITION)
    database.execute("DELETE FROM events WHERE id BETWEEN ? AND ?", span)
    database.execute("DELETE FROM streams WHERE thread = ?", (row.key,))
    database.execute("DELETE FROM threads WHERE key = ?", (row.key,))
