"""A clock that only a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)


class HarnessClock:
    """Gives timestamps and measures leases. It stands still until `advance`."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> datetime:
        """Return the wall clock's time in UTC. It begins in the year 2000."""
        return BEGINNING + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        """Return the seconds since the beginning."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        Args:
            seconds: How far.

        Raises:
            ValueError: The number is negative.
        """
        if seconds < 0:
            raise ValueError(f"A clock does not go back by {-seconds:g} seconds. Move it forward.")
        self._seconds += seconds

    def __repr__(self) -> str:
        return f"HarnessClock({self.now().isoformat()})"
