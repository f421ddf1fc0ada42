"""How stores in a database write times and batch ids."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

from soev.adapters._rows import EPOCH

MICROSECOND = timedelta(microseconds=1)


def micros(when: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return (when - EPOCH) // MICROSECOND


def moment(count: int) -> datetime:
    """Return the moment that is so many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=count)


def digest(batch: str) -> bytes:
    """Return what is kept of a batch id: 16 bytes, however long it is."""
    return blake2b(batch.encode("utf-8", "surrogatepass"), digest_size=16).digest()
