"""Hints that a thread has changed, from process to process. Nothing depends on their arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg

from soev.adapters._postgres._link import Address, Link
from soev.adapters._postgres._session import Session

EVERY = 0.02
RETRY = 1.0
LONGEST = 2000

# The hint has nothing to lose, and a server orders all transactions that notify by one lock: so it
# is told after the append, not within it, and its commit does not wait for the disk.
TELL = (
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, told) "
    "FROM unnest(%s::text[]) AS told"
)


class Hints:
    """Tells other processes which threads changed, and hears it from them.

    Args:
        link: The connections that hints are sent through.
        address: Where to listen, on a connection of its own that no pooler may share.
        channel: The name under which stores of the same tables meet.
        heard: Called with the id of each thread that is said to have changed.
    """

    def __init__(
        self, link: Link, address: Address, channel: str, heard: Callable[[str], None]
    ) -> None:
        self._link, self._address, self._channel, self._heard = link, address, channel, heard
        self._told: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: asyncio.Task[None] | None = None
        self._next = 0.0
        self.live = False

    def tell(self, thread_id: str) -> None:
        """Let others know soon that a thread has changed, together with what changes meanwhile."""
        if len(thread_id) > LONGEST:
            return
        self._told.add(thread_id)
        if len(self._told) == 1:
            loop = asyncio.get_running_loop()
            self._next = max(loop.time(), self._next + EVERY)
            loop.call_at(self._next, self._send)

    def _send(self) -> None:
        told = sorted(self._told)
        self._told.clear()

        async def work(session: Session) -> None:
            await session.rows(TELL, (self._channel, told))

        if told and not self._link.closed:
            self._link.submit("wait", "", work)

    def listen(self) -> None:
        """Begin to listen in the running event loop, where nobody does yet."""
        loop = asyncio.get_running_loop()
        if self._listener is None or self._listener.done() or self._loop is not loop:
            self._loop, self._listener = loop, loop.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            try:
                await self._hear()
            except psycopg.Error:
                await asyncio.sleep(RETRY)
            finally:
                self.live = False

    async def _hear(self) -> None:
        connection = await self._address.connect()
        try:
            await connection.execute(f"LISTEN {self._channel}")
            self.live = True
            async for notice in connection.notifies():
                self._heard(notice.payload)
        finally:
            await connection.close()

    async def close(self) -> None:
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None and self._loop is asyncio.get_running_loop():
            listener.cancel()
            await asyncio.wait([listener])
