"""A clock for tests: it stands still until it is moved."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Tells a time that only `advance` moves."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """Return the time."""
        return self.time

    def monotonic(self) -> float:
        """Return the seconds since 2000."""
        return (self.time - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds()

    def advance(self, seconds: float) -> None:
        """Move the time."""
        self.time += timedelta(seconds=seconds)
