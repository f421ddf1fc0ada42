"""A thread's log as one run knows it, and what must happen next in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from soev.domain import (
    ROOT_STREAM,
    Cancelled,
    Ended,
    Event,
    Head,
    LogEntry,
    StoredEvent,
    StoreRewoundError,
    Trace,
    TraceStore,
    UnknownThreadError,
)
from soev.runtime._actions import Plan
from soev.runtime._codec import EventTypes, entry_of
from soev.runtime._graph import Graph
from soev.runtime._planner import Planner
from soev.runtime._turn import opens_turn

PAGE = 1_000


async def pages(
    store: TraceStore, thread_id: str, *, after: int = 0
) -> AsyncIterator[tuple[Sequence[LogEntry[StoredEvent]], Head]]:
    """Yield the log after a position, page by page, up to the head of the last page.

    Args:
        store: The store.
        thread_id: The thread.
        after: The position to read after.
    """
    while True:
        page = await store.read(thread_id, after=after, limit=PAGE)
        yield page.entries, page.head
        if not page.entries or page.entries[-1].position >= page.head.position:
            return
        after = page.entries[-1].position
        await asyncio.sleep(0)


class Ledger:
    """The confirmed log of a thread, the events proposed for its next append, and the planner.

    The planner is fed what is proposed before it is stored, since the plan after it decides what
    the append holds. When the store refuses the append, the proposal is taken back.

    Args:
        thread_id: The thread.
        graph: The graph of its current turn.
        types: The classes to read its events into.

    Attributes:
        at_rest: Whether nothing was in the store but what was read, when the lease was given back.
    """

    def __init__(self, thread_id: str, graph: Graph, types: EventTypes) -> None:
        self.thread_id, self._graph, self._types = thread_id, graph, types
        self.planner = Planner(graph)
        self.position = 0
        self.incarnation: str | None = None
        self.turn: int | None = None
        self.closed = 0
        self.at_rest = False
        self._seqs: dict[str, int] = {}
        self._proposed: list[Event] = []

    @property
    def head(self) -> Head:
        """What the next append comes after."""
        return Head(self.position, self.incarnation)

    @property
    def trace(self) -> Trace:
        """The thread's trace."""
        return self.planner.trace

    def plan(self, since: int | None = None) -> Plan:
        """Return what must happen next.

        Args:
            since: The position that separates what was found from what happened after it, when
                it is another than before.

        Raises:
            GraphMismatchError: The graph does not fit the log.
        """
        if since is not None:
            self.planner.since = since
        return self.planner.plan()

    async def catch_up(self, store: TraceStore) -> None:
        """Read what was appended since.

        Raises:
            UnknownThreadError: The thread is gone, or lives another life.
            StoreRewoundError: The store lost events that were read before.
        """
        self.retract()
        self.at_rest = False
        async for entries, head in pages(store, self.thread_id, after=self.position):
            self._check(head)
            for entry in entries:
                self._take(entry_of(self._types, self.thread_id, entry))

    def _check(self, head: Head) -> None:
        if self.position and head.incarnation != self.incarnation:
            raise UnknownThreadError(self.thread_id)
        self.incarnation = head.incarnation
        if head.position < self.position:
            raise StoreRewoundError(self.thread_id, self.position, head.position)

    def _take(self, entry: LogEntry[Event]) -> None:
        event = entry.event
        self.planner.feed(event)
        self._seqs[event.stream] = event.seq or self._seqs.get(event.stream, 0) + 1
        self.position = entry.position
        self._note(event)

    def _note(self, event: Event) -> None:
        """Keep where the turn opened, and where it was closed."""
        if event.stream != ROOT_STREAM:
            return
        if opens_turn(event):
            self.turn = self.position
        elif isinstance(event, (Ended, Cancelled)):
            self.closed = self.position

    def propose(self, events: Sequence[Event]) -> Plan:
        """Plan as if events were in the log already.

        Args:
            events: The run's own copies. They get their seqs here.

        Returns:
            The plan after them.
        """
        self._proposed.extend(events)
        later: dict[str, int] = {}
        for event in reversed(self._proposed):
            left = event.__dict__["left"] = later.get(event.stream, 0)
            later[event.stream] = left + 1
        # The copies are this run's own and nobody was shown them yet, so they can still be filled.
        for event in events:
            seq = event.__dict__["seq"] = self._seqs.get(event.stream, 0) + 1
            self._seqs[event.stream] = seq
            self.planner.feed(event)
        return self.planner.plan()

    def confirm(self, entries: Sequence[LogEntry[StoredEvent]]) -> None:
        """Take the store's answer for what was proposed.

        Args:
            entries: The rows of the append, in the order of the proposal.
        """
        for event, entry in zip(self._proposed, entries, strict=True):
            stored, own = entry.event, event.__dict__
            own["seq"], own["ts"], own["left"] = stored.seq, stored.ts, stored.left
            self.position = entry.position
            self._note(event)
        self._proposed.clear()

    def retract(self) -> None:
        """Take the proposal back."""
        if self._proposed:
            self._proposed.clear()
            self._rebuild()

    def _rebuild(self) -> None:
        """Plan anew from the confirmed log. A planner cannot forget an event, and this is rare."""
        kept = self.planner.trace[: self.position]
        self.planner = Planner(self._graph, since=self.planner.since)
        self._seqs.clear()
        for event in kept:
            self.planner.feed(event)
            self._seqs[event.stream] = event.seq or self._seqs.get(event.stream, 0) + 1
