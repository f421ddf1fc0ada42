"""The clocks of the deterministic world, and its ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

from pytest_soev.world._lives import Life
from pytest_soev.world._loop import WorldLoop

BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)


class ProcessClock:
    """What a process takes for the time: the world's, ahead by an offset, at a rate of its own.

    Args:
        loop: The loop, whose time is the world's.
        life: The process.
    """

    def __init__(self, loop: WorldLoop, life: Life) -> None:
        self._loop, self._life = loop, life

    def now(self) -> datetime:
        """Return the process's wall clock."""
        return BEGINNING + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Return the process's seconds. They go on while it is frozen."""
        return self._life.local(self._loop.now)


class StoreClock:
    """The store's clock. It moves with the world's, and can be set forward or back.

    Args:
        loop: The loop, whose time is the world's.
    """

    def __init__(self, loop: WorldLoop) -> None:
        self._loop, self._ahead = loop, 0.0

    def now(self) -> datetime:
        """Return the store's wall clock."""
        return BEGINNING + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Return the store's seconds."""
        return self._loop.now + self._ahead

    def advance(self, seconds: float) -> None:
        """Set the clock forward, or back with a negative number.

        Args:
            seconds: How far.
        """
        self._ahead += seconds


class CountedIds:
    """Ids that are the same in each run of a schedule: who made it, and a number.

    Args:
        maker: Who makes them. No two makers of a schedule have one name.
    """

    def __init__(self, maker: str) -> None:
        self._maker, self._numbers = maker, count(1)

    def new(self) -> str:
        """Return a fresh id."""
        return f"id~{self._maker}~{next(self._numbers)}"
