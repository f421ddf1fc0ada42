"""The machine's clock and its source of ids."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The clock of this machine.

    `monotonic` goes on while the machine sleeps, where there is such a clock: a lease that ran out
    meanwhile must not look valid.
    """

    def now(self) -> datetime:
        """Return the wall clock's time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never fall."""
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)


class SystemIds:
    """Ids from the operating system's random source, so that forked processes draw their own."""

    def new(self) -> str:
        """Return a fresh id of 128 random bits, as 32 hexadecimal digits."""
        return secrets.token_hex(16)


SYSTEM_CLOCK = SystemClock()
SYSTEM_IDS = SystemIds()
