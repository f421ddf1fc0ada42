"""The head of a thread and the right to run it, as a store answers them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run one thread, held by one owner until it expires.

    The pair of incarnation and epoch never comes back: an epoch rises with each acquire, and a
    thread that is created again has another incarnation.

    Args:
        thread_id: The thread that the holder may run.
        incarnation: The life of the thread that the lease was taken in.
        owner: The name of the holder.
        epoch: The count of acquires in this incarnation, from 1.
        expires: When somebody else may take the lease, by the store's clock, in UTC.
    """

    thread_id: str
    incarnation: str
    owner: str
    epoch: int
    expires: datetime


@dataclass(frozen=True, slots=True)
class Head:
    """Where a thread stood at one moment: its last position, its incarnation and its lease.

    `Head()` is the head of a thread that does not exist.

    Args:
        position: The position of the last event, 0 for an unknown thread.
        incarnation: The thread's present life, None for an unknown thread.
        lease: The lease that was valid at the read, or None.
        now: The store's clock at the read, in UTC, or None where no store was asked.
    """

    position: int = 0
    incarnation: str | None = None
    lease: Lease | None = None
    now: datetime | None = None
