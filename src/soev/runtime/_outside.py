"""The current turn as a caller reads it, and what callers write from outside a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from soev.domain import (
    ROOT_STREAM,
    Clock,
    Event,
    Head,
    Ids,
    Input,
    LogEntry,
    OutcomeUnknownError,
    Request,
    ThreadExistsError,
    TraceStore,
    UnencodableError,
    UnknownThreadError,
    stamped,
)
from soev.runtime._closing import closing
from soev.runtime._codec import EventTypes, entry_of
from soev.runtime._errors import InputDeniedError
from soev.runtime._holding import pause
from soev.runtime._turn import ThreadState, TurnReading, opens_turn, read_turn

R = TypeVar("R")

PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Status:
    """Where a thread's current turn stands.

    Args:
        state: The state, from the turn's events and the lease.
        pending: The requests that wait for a response, with their positions.
        position: The position of the thread's last event. `Thread.watch` reads on from here.
    """

    state: ThreadState
    pending: tuple[LogEntry[Request], ...]
    position: int


@dataclass(frozen=True, slots=True)
class TurnSnapshot:
    """The current turn's events and the lease, read at one moment.

    Args:
        head: The head that bounds the events.
        entries: The turn's events, from the input that opened it on. None without a turn.
    """

    head: Head
    entries: tuple[LogEntry[Event], ...]

    @property
    def opening(self) -> Input | None:
        """The input that opened the turn."""
        first = self.entries[0].event if self.entries else None
        return first if isinstance(first, Input) else None

    @property
    def opened_at(self) -> int | None:
        """The position of the input that opened the turn."""
        return self.entries[0].position if self.entries else None

    @property
    def reading(self) -> TurnReading:
        """What the events say."""
        return read_turn([entry.event for entry in self.entries])

    def status(self) -> Status:
        """Return the status that the events and the lease make."""
        reading = self.reading
        waiting = tuple(
            LogEntry(self.entries[place].position, request)
            for place, request in reading.pending().items()
        )
        held = self.head.lease is not None
        return Status(reading.state(held=held), waiting, self.head.position)


async def turn_snapshot(store: TraceStore, thread_id: str, types: EventTypes) -> TurnSnapshot:
    """Read the current turn backwards from one head.

    Args:
        store: The store.
        thread_id: The thread.
        types: The classes to read its events into.
    """
    while True:
        head = await store.head(thread_id)
        if not head.position:
            return TurnSnapshot(head, ())
        entries: list[LogEntry[Event]] = []
        try:
            async with closing(store.read_back(thread_id, before=head)) as stream:
                async for stored in stream:
                    entries.append(entry_of(types, thread_id, stored))
                    event = entries[-1].event
                    if event.stream == ROOT_STREAM and opens_turn(event):
                        return TurnSnapshot(head, tuple(reversed(entries)))
        except UnknownThreadError:
            # Deleted between the two reads: the head tells what is there now.
            continue
        return TurnSnapshot(head, ())


async def persist(clock: Clock, write: Callable[[], Awaitable[R]]) -> R:
    """Make a write, and repeat the identical one while its outcome is unknown, for 30 seconds.

    Args:
        clock: Measures the time.
        write: Makes the identical call each time.

    Raises:
        OutcomeUnknownError: No answer came in that time.
    """
    begun, attempt = clock.monotonic(), 0
    while True:
        try:
            return await write()
        except OutcomeUnknownError:
            if clock.monotonic() - begun >= PATIENCE:
                raise
        await pause(attempt)
        attempt += 1


@dataclass(frozen=True, slots=True)
class Writer:
    """Appends what comes from outside to one thread, without a lease.

    Args:
        thread_id: The thread.
        store: The store.
        types: The classes that the thread may record.
        version: The version of the code.
        ids: Makes the ids of appends.
        clock: Measures how long an unknown outcome is repeated.
    """

    thread_id: str
    store: TraceStore
    types: EventTypes
    version: str | None
    ids: Ids
    clock: Clock

    async def append(self, *events: Event, after: Head) -> list[LogEntry[Event]]:
        """Append events in one append.

        Args:
            events: The events. Their stream is kept.
            after: The head that the caller has read.

        Raises:
            PositionConflictError: Another append came first.
            UnknownThreadError: The thread is gone.
            OutcomeUnknownError: No answer came in 30 seconds.
            InputDeniedError: An event is too large for the store.
            UnreadableEventError: An event holds a class that is not listed.
        """
        envelope = {"origin": None, "version": self.version, "seq": None, "ts": None, "left": None}
        stored = [self.types.encode_readable(stamped(event, **envelope)) for event in events]
        batch = self.ids.new()
        try:
            entries = await persist(
                self.clock,
                lambda: self.store.append(self.thread_id, stored, after=after, batch=batch),
            )
        except UnencodableError as error:
            raise InputDeniedError(
                error.problem,
                "Send less, and keep large things in a store of your own.",
                error.path,
            ) from error
        return [entry_of(self.types, self.thread_id, entry) for entry in entries]


async def copied(store: TraceStore, thread_id: str, at: int, *, clock: Clock, ids: Ids) -> str:
    """Copy a thread up to a position under a fresh id, and return that.

    Raises:
        PositionOutOfRangeError: The position is not in the log, or inside an append.
        UnknownThreadError: There is no such thread.
        OutcomeUnknownError: No answer came in 30 seconds.
    """
    while True:
        new_id, asked = ids.new(), 0

        async def copy(new_id: str = new_id) -> None:
            nonlocal asked
            asked += 1
            await store.copy(thread_id, new_id, through=at)

        try:
            await persist(clock, copy)
        except ThreadExistsError:
            if asked == 1:
                continue
            # The call before this one was stored after all: nobody else knows the fresh id.
        return new_id


async def deleted(store: TraceStore, thread_id: str, *, clock: Clock) -> None:
    """Remove a thread: the life that is there now, and none that comes after it.

    Raises:
        OutcomeUnknownError: No answer came in 30 seconds.
    """
    life = (await store.head(thread_id)).incarnation
    if life is not None:
        await persist(clock, lambda: store.delete(thread_id, incarnation=life))
