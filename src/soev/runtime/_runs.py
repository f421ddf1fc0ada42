"""The running asyncio tasks of this process, one per thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import isfinite
from typing import Any

from soev.domain import Clock, Ids, LeaseHeldError, without_secrets
from soev.runtime._live import LiveText
from soev.runtime._system import SYSTEM_CLOCK, SYSTEM_IDS, SystemClock

MIN_TTL = 1.0

_log = logging.getLogger("soev")


@dataclass(slots=True)
class _Running:
    """One thread's asyncio task, the turn that it runs, and whether it was asked to stop."""

    task: asyncio.Task[object]
    turn: int | None
    asked: bool = False


class Runs:
    """This process's runs: at most one asyncio task per thread, and the name that leases carry.

    Make one for each process and each store, and close it when the process stops.

    Args:
        lease_ttl: The seconds that a lease stays valid without renewal. A process that dies
            blocks its threads for at most this long.
        clock: Measures the lease's time.
        ids: Makes the owner's name, and the ids of leases and appends.

    Raises:
        ValueError: The time is no positive number, or under a second with the machine's clock.
    """

    def __init__(
        self, *, lease_ttl: float = 30.0, clock: Clock = SYSTEM_CLOCK, ids: Ids = SYSTEM_IDS
    ) -> None:
        real = isinstance(clock, SystemClock)
        if not (isfinite(lease_ttl) and lease_ttl > 0) or (real and lease_ttl < MIN_TTL):
            raise ValueError(
                f"A lease of {lease_ttl!r} seconds cannot be renewed in time. "
                f"Use `lease_ttl={MIN_TTL:g}` or more."
            )
        self.lease_ttl, self.clock, self.ids = lease_ttl, clock, ids
        self.owner = ids.new()
        self.live = LiveText()
        self._running: dict[str, _Running] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` has begun, so that nothing starts any more."""
        return self._closed

    def start(
        self,
        thread_id: str,
        run: Callable[[], Coroutine[Any, Any, object]],
        turn: int | None = None,
    ) -> asyncio.Task[object] | None:
        """Return the thread's running asyncio task, or start one when none runs.

        Args:
            thread_id: The thread.
            run: Makes the coroutine of the run. It is called only when a task starts.
            turn: The position of the input that opened the turn which the run belongs to.

        Returns:
            The running task, or None when none runs and `close` has begun.
        """
        running = self.task(thread_id)
        if running is not None or self._closed:
            return running
        task: asyncio.Task[object] = asyncio.create_task(run(), name=f"soev run of {thread_id}")
        if not task.done():
            self._running[thread_id] = _Running(task, turn)
        task.add_done_callback(lambda ended: self._ended(thread_id, ended))
        return task

    def task(self, thread_id: str) -> asyncio.Task[object] | None:
        """Return the thread's running asyncio task, or None."""
        running = self._running.get(thread_id)
        return None if running is None or running.task.done() else running.task

    def turn(self, thread_id: str) -> int | None:
        """Return the position of the opening input of the turn that runs, or None."""
        running = self._running.get(thread_id)
        return None if running is None or running.task.done() else running.turn

    async def stop(self, thread_id: str, *, wait: bool = True) -> None:
        """Stop the thread's run. The lease is given back, and the thread is interrupted.

        Nothing happens when none runs.

        Args:
            thread_id: The thread.
            wait: Whether to wait until the run has stopped. False only asks.
        """
        running = self._running.get(thread_id)
        if running is None:
            return
        self._ask(running)
        if wait:
            await asyncio.wait((running.task,))

    async def close(self, timeout: float) -> None:
        """Wait for the runs, then stop the rest. Nothing starts once this was called.

        Args:
            timeout: The most seconds to wait before the rest is stopped.
        """
        self._closed = True
        tasks = [running.task for running in self._running.values()]
        if not tasks:
            return
        _, rest = await asyncio.wait(tasks, timeout=timeout)
        for running in list(self._running.values()):
            self._ask(running)
        if rest:
            await asyncio.wait(rest)

    def _ask(self, running: _Running) -> None:
        """Cancel a run once: asking again must not disturb the cleaning up."""
        if not running.asked:
            running.asked = True
            running.task.cancel()

    def _ended(self, thread_id: str, task: asyncio.Task[object]) -> None:
        running = self._running.get(thread_id)
        if running is not None and running.task is task:
            del self._running[thread_id]
        error = None if task.cancelled() else task.exception()
        # A held lease is the answer to a question; what else ends a run may have no reader left.
        if error is not None and not isinstance(error, LeaseHeldError):
            text = without_secrets(f"{type(error).__name__}: {error}")
            _log.warning("The run of thread %r ended: %s", thread_id, text)
