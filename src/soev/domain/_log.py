"""What a store keeps and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from soev.domain._lease import Head, Lease

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as a store keeps it.

    Args:
        type: The tag of its class.
        data: The payload as canonical JSON text, without the envelope. Stores keep it verbatim.
        stream: The stream that it belongs to.
        origin: The node that recorded it, or None.
        version: The version of the code that appended it, or None.
        seq: Its place in its stream, from 1. Set by the store.
        ts: When it was stored, in UTC. Set by the store.
        left: How many events of the same append follow it in its stream. Set by the store.
    """

    type: str
    data: str
    stream: str = "main"
    origin: str | None = None
    version: str | None = None
    seq: int | None = None
    ts: datetime | None = None
    left: int | None = None


@dataclass(frozen=True, slots=True)
class LogEntry(Generic[T_co]):
    """An event with its 1-based place in its thread's log."""

    position: int
    event: T_co


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a log and the thread's head, read in one snapshot."""

    entries: Sequence[LogEntry[StoredEvent]]
    head: Head


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """What a list of threads shows of one.

    Args:
        thread_id: The thread.
        agent: The agent that it was opened for, or None without an `Opened`.
        position: The position of its last event.
        created: When its first event was stored, in UTC.
        updated: When its last event was stored, in UTC.
        last_type: The tag of its last event.
        lease: The lease that is valid now, or None.
    """

    thread_id: str
    agent: str | None
    position: int
    created: datetime
    updated: datetime
    last_type: str
    lease: Lease | None = None
