"""The lease of one run: taken, renewed in the background, given back."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from soev.domain import (
    Head,
    Lease,
    LeaseLostError,
    OutcomeUnknownError,
    StoreRewoundError,
    StoreUnavailableError,
    TraceStore,
    reached,
)
from soev.runtime._runs import Runs

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 1.0
LEAST_MARGIN: Final = 0.25


async def pause(attempt: int) -> None:
    """Wait before a store is asked again, longer each time.

    Args:
        attempt: How often it was asked again before.
    """
    await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(attempt, 16), LONGEST_PAUSE))


class Holding:
    """The lease of one run, and the moment until which the run may trust it.

    Args:
        store: The store.
        thread_id: The thread.
        runs: Gives the owner's name, the time, the clock and the ids.
        lost: Called once the run can no longer trust the lease.
        seen: Called with the head that a renewal answered, when it is higher than the run's.
        lock: Held while the run appends.

    Attributes:
        doubt: What the store answered last, when that was no answer.
    """

    def __init__(
        self,
        store: TraceStore,
        thread_id: str,
        runs: Runs,
        lost: Callable[[BaseException], None],
        seen: Callable[[Head], Awaitable[None]],
        lock: asyncio.Lock,
    ) -> None:
        self._store, self._thread_id, self._runs = store, thread_id, runs
        self._lost, self._seen, self._lock = lost, seen, lock
        self.position = 0
        self.lease: Lease | None = None
        self._until = 0.0
        self._renewals = 0
        self.doubt: Exception | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._renewal: asyncio.Task[None] | None = None

    @property
    def past(self) -> bool:
        """Whether the run's own deadline is over."""
        return self._runs.clock.monotonic() >= self._until

    @property
    def lapse(self) -> Exception:
        """Why the run must end at its deadline: the store's last answer, or the lost lease."""
        if self.doubt is not None:
            return self.doubt
        assert self.lease is not None
        return LeaseLostError(self.lease)

    async def take(self) -> None:
        """Acquire the lease. An unknown outcome is repeated for as long as the lease would last.

        Raises:
            LeaseHeldError: Another owner holds it.
            UnknownThreadError: There is no such thread.
            OutcomeUnknownError: No answer came in time.
            StoreUnavailableError: The store cannot be reached.
        """
        clock, request = self._runs.clock, self._runs.ids.new()
        begun, attempt = clock.monotonic(), 0
        while True:
            sent = clock.monotonic()
            try:
                return self._trust(await self._acquire(request), sent)
            except OutcomeUnknownError:
                if clock.monotonic() - begun >= self._runs.lease_ttl:
                    raise
            await pause(attempt)
            attempt += 1

    async def _acquire(self, request: str) -> Lease:
        reached("lease.acquire.sending")
        runs = self._runs
        lease = await self._store.acquire(
            self._thread_id, runs.owner, runs.lease_ttl, request=request
        )
        reached("lease.acquired")
        return lease

    def _trust(self, lease: Lease, sent: float) -> None:
        """Keep a lease, count its time from before it was asked for, and set both timers."""
        ttl = self._runs.lease_ttl
        self.lease, self.doubt = lease, None
        self._until = sent + ttl - max(ttl / 10, LEAST_MARGIN)
        self._renewals += 1
        # The spread keeps processes apart that started together, and depends on nothing random.
        spread = zlib.crc32(f"{lease.owner}{self._renewals}".encode()) / 2**32
        self._set_timer("renew", ttl / 3 * (1 - spread / 10), self._begin_renewal)
        self._set_timer("deadline", self._left(), self._ring)

    def _left(self) -> float:
        return max(self._until - self._runs.clock.monotonic(), 0.0)

    def _set_timer(self, name: str, delay: float, call: Callable[[], None]) -> None:
        timer = self._timers.get(name)
        if timer is not None:
            timer.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(delay, call)

    def _ring(self) -> None:
        """End the run at its deadline; a clock that is slower than the loop's gets more time."""
        if self.lease is None:
            return
        if self.past:
            self._lost(self.lapse)
        else:
            self._set_timer("deadline", self._left(), self._ring)

    def _begin_renewal(self) -> None:
        if self.lease is not None and (self._renewal is None or self._renewal.done()):
            self._renewal = asyncio.create_task(self._renew(self.lease))

    async def _renew(self, lease: Lease) -> None:
        sent, known = self._runs.clock.monotonic(), self.position
        reached("lease.renew.sending")
        try:
            renewed, head = await self._store.renew(lease, self._runs.lease_ttl)
        except LeaseLostError as error:
            # An append that gives the lease back may be on its way: its answer tells which it is.
            async with self._lock:
                if self.lease is not None:
                    self._lost(error)
            return
        except (OutcomeUnknownError, StoreUnavailableError) as error:
            self.doubt = error
            self._set_timer("renew", self._runs.lease_ttl / 30, self._begin_renewal)
            return
        except Exception as error:  # noqa: BLE001  # the run ends with whatever it is
            self._lost(error)
            return
        reached("lease.renewed")
        if self.lease is None:
            return
        self._trust(renewed, sent)
        if head.position < known:
            self._lost(StoreRewoundError(self._thread_id, known, head.position))
        elif head.position > self.position:
            await self._seen(head)

    def given_back(self) -> None:
        """Note that an append ended the lease."""
        self.lease = None
        for timer in self._timers.values():
            timer.cancel()

    @property
    def settled(self) -> bool:
        """Whether the lease is given back and no renewal is on its way."""
        return self.lease is None and (self._renewal is None or self._renewal.done())

    async def close(self, *, give_back: bool) -> None:
        """Stop renewing, and give the lease back when it is held and may be.

        Args:
            give_back: Whether the store is told. Not after the lease was lost.
        """
        lease = self.lease
        self.given_back()
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait((self._renewal,))
        if lease is None or not give_back:
            return
        reached("lease.release.sending")
        await self._give_back(lease)
        reached("lease.released")

    async def _give_back(self, lease: Lease) -> None:
        """Release a lease; an unknown outcome is repeated until the own deadline."""
        attempt = 0
        while True:
            try:
                await self._store.release(lease)
            except (OutcomeUnknownError, StoreUnavailableError):
                if self.past:
                    return
                await pause(attempt)
                attempt += 1
            else:
                return
