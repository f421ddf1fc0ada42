"""Threads: the handle on one conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from soev.domain import (
    Cancelled,
    Event,
    Head,
    Ids,
    Input,
    LogEntry,
    Opened,
    PositionConflictError,
    Request,
    ThreadExistsError,
    Trace,
    TraceStore,
    UnknownThreadError,
)
from soev.runtime._codec import CORE_EVENT_TYPES, EventTypes
from soev.runtime._graph import Graph
from soev.runtime._inputs import (
    Accept,
    cancellable,
    fresh_input,
    refuse_active,
    response_input,
)
from soev.runtime._journal import Work
from soev.runtime._live import LiveDelta
from soev.runtime._outside import (
    Status,
    TurnSnapshot,
    Writer,
    copied,
    deleted,
    turn_snapshot,
)
from soev.runtime._reading import Reader, watch, while_heard, while_held, while_running, whole
from soev.runtime._resuming import Check, run_turn, running_turn
from soev.runtime._runs import Runs
from soev.runtime._turn import ThreadState

__all__ = ["EVERY_TURN", "Status", "Thread", "ThreadState"]

EVERY_TURN: Final = -1
MAX_ID_CHARS: Final = 200
MAX_ID_BYTES: Final = 255


class Thread:
    """A handle on one conversation of a store: it takes inputs, runs turns and reads the log.

    A thread of a catalog serves the one turn that its graph was built for. Without a graph it
    reads, answers, forks, cancels and deletes. Made by hand, its graph serves every turn.

    Args:
        thread_id: The thread: 1 to 200 printable characters, at most 255 bytes.
        graph: The graph of the turn, or None for a thread that does not run.
        store: The store of the thread.
        runs: This process's runs.
        agent: The agent's name, or None.
        accept: Turns a fresh input into the one to record, or refuses it with InputDeniedError.
            None records it as it is.
        event_types: The classes that its events are recorded as and read into.
        version: The version of the code, which each event records.
        ids: Makes the ids of appends and forks. None: those of `runs`.
        turn: The position of the input whose turn the graph was built for, None before it is
            recorded. By default the graph serves every turn.

    Raises:
        ValueError: No thread can have the id.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # the reference's own signature
        self,
        thread_id: str,
        graph: Graph | None,
        store: TraceStore,
        runs: Runs,
        agent: str | None = None,
        accept: Accept | None = None,
        event_types: EventTypes = CORE_EVENT_TYPES,
        version: str | None = None,
        *,
        ids: Ids | None = None,
        turn: int | None = EVERY_TURN,
    ) -> None:
        _check_id(thread_id)
        self.id = thread_id
        self._graph, self._store, self._runs = graph, store, runs
        self._agent, self._accept, self._types = agent, accept, event_types
        self._version, self._ids, self._turn = version, ids or runs.ids, turn
        self._fresh: int | None = None
        self._writer = Writer(thread_id, store, event_types, version, self._ids, runs.clock)

    # --- taking inputs ---

    async def open(self, agent: str, input: Input) -> Sequence[LogEntry[Event]]:
        """Record `Opened` and the first input, in one append. Nothing runs.

        Args:
            agent: The agent that the thread is for.
            input: The first input.

        Raises:
            ThreadExistsError: The id has events already.
            InputDeniedError: The input was refused.
            UnreadableEventError: An element of it is of a class that is not listed.
        """
        opening = fresh_input(input, self._accept)
        try:
            entries = await self._writer.append(Opened(agent=agent), opening, after=Head())
        except PositionConflictError:
            raise ThreadExistsError(self.id) from None
        self._opened(entries[-1].position)
        return entries

    async def submit(self, input: Input, *, answering: Request | None = None) -> LogEntry[Event]:
        """Record one input. Nothing runs.

        Args:
            input: A fresh input, which opens a turn, or a response.
            answering: The request that it answers, None for a fresh input.

        Raises:
            ThreadActiveError: A fresh input, and the turn is not over or an intent is open.
            InputDeniedError: The input was refused: its payload, its model, its schema, a request
                that does not wait, or another input than the graph was built for.
            UnreadableEventError: An element of it is of a class that is not listed.
            UnknownThreadError: The thread was deleted, or was never opened by the catalog.
        """
        fresh = fresh_input(input, self._accept) if answering is None else input
        life: str | None = None
        while True:
            turn = await self._turn_now()
            self._check_life(turn.head, life)
            if answering is None:
                refuse_active(self.id, turn)
            recorded = fresh if answering is None else response_input(input, answering, turn)
            try:
                (entry,) = await self._writer.append(recorded, after=turn.head)
            except PositionConflictError:
                life = turn.head.incarnation
                continue
            if answering is None:
                self._opened(entry.position)
            return entry

    def _check_life(self, head: Head, life: str | None) -> None:
        """Refuse to make a thread anew that was there, or that its catalog opened."""
        missing = head.incarnation is None and self._turn != EVERY_TURN
        if missing or (life is not None and head.incarnation != life):
            raise UnknownThreadError(self.id)

    def _opened(self, position: int) -> None:
        self._fresh = position
        self._turn = EVERY_TURN if self._turn == EVERY_TURN else position

    async def _turn_now(self) -> TurnSnapshot:
        return await turn_snapshot(self._store, self.id, self._types)

    # --- running ---

    async def send(self, input: Input, *, answering: Request | None = None) -> Trace:
        """Record one input and run the turn: `submit`, then `resume`.

        Args:
            input: As in `submit`.
            answering: As in `submit`.

        Returns:
            The thread's trace.

        Raises:
            ValueError: The thread has no graph. The input is recorded.
        """
        await self.submit(input, answering=answering)
        return await self.resume()

    async def resume(self) -> Trace:
        """Run the turn until nothing is due. A recorded Failure does not raise.

        A run of the same turn in this process is joined. Cancelling the caller does not stop it.

        Returns:
            The thread's trace.

        Raises:
            ValueError: The thread has no graph, or one for another turn.
            LeaseHeldError: Another process runs the thread.
            LeaseLostError: The lease went to another process meanwhile.
            GraphMismatchError: The graph does not fit the log.
        """
        return await run_turn(*self._due())

    def _due(self) -> tuple[Work, Runs, Check, int | None]:
        """Return what a run of the turn needs. An input of this handle is fresh only once."""
        if self._graph is None:
            raise ValueError(
                f"Thread {self.id!r} has no graph, so it cannot run. Get it from the catalog with "
                "`resuming=True`, or with the `input` that comes next."
            )
        work = Work(self.id, self._graph, self._store, self._types, self._version, self._agent)
        fresh, self._fresh = self._fresh, None
        return work, self._runs, self._check_turn, fresh

    def _check_turn(self, turn: int | None) -> None:
        if self._turn not in {EVERY_TURN, turn}:
            raise ValueError(
                f"Thread {self.id!r} is in the turn that position {turn} opened, and the graph of "
                "this handle was built for another. Get the thread again with `resuming=True`."
            )

    async def stream(self) -> AsyncGenerator[LogEntry[Event], None]:
        """Run the turn as `resume` does, and yield each entry as it is recorded.

        It yields what comes after the position at which it was called, also when it joins a run.
        A reader that stops does not stop the run.

        Raises:
            ValueError: As in `resume`.
            LeaseHeldError: As in `resume`.
        """
        due = self._due()
        reader = self._reader((await self._store.head(self.id)).position)
        async with running_turn(*due) as run:
            async for entry in while_running(reader, run):
                yield entry

    async def live(self) -> AsyncGenerator[LogEntry[Event] | LiveDelta, None]:
        """Run the turn as `stream` does, and yield what models write in between.

        Each piece of text comes before the entry that holds the whole answer. A reader that is
        more than 1,000 pieces behind misses pieces, never entries, and never slows the run down.

        Raises:
            ValueError: As in `resume`.
            LeaseHeldError: As in `resume`.
        """
        due = self._due()
        with self._runs.live.listening(self.id) as listener:
            reader = self._reader((await self._store.head(self.id)).position)
            async with running_turn(*due) as run:
                async for each in while_heard(reader, run, listener):
                    yield each

    # --- reading ---

    async def watch(
        self, *, after: int = 0, follow: bool = True
    ) -> AsyncGenerator[LogEntry[Event], None]:
        """Yield the entries after a position. Nothing runs.

        Args:
            after: The position to read after, 0 from the start.
            follow: Whether to wait for more, until the thread is deleted.
        """
        async for entry in watch(self._reader(after), follow=follow):
            yield entry

    async def follow(self, *, after: int = 0) -> AsyncGenerator[LogEntry[Event], None]:
        """Yield entries while some process runs the thread, then what is left. Nothing runs.

        Args:
            after: The position to read after, 0 from the start.
        """
        async for entry in while_held(self._reader(after)):
            yield entry

    def _reader(self, after: int) -> Reader:
        return Reader(self._store, self.id, self._types, after)

    async def status(self) -> Status:
        """Return where the current turn stands, from one snapshot of its events and the lease."""
        return (await self._turn_now()).status()

    async def running(self) -> bool:
        """Return whether anybody holds the thread's lease. Only the lease is read."""
        return (await self._store.head(self.id)).lease is not None

    async def held_elsewhere(self) -> bool:
        """Return whether another process holds the thread's lease. Only the lease is read."""
        lease = (await self._store.head(self.id)).lease
        return lease is not None and lease.owner != self._runs.owner

    async def trace(self) -> Trace:
        """Return the thread's trace: all streams, in log order."""
        return await whole(lambda: self._reader(0))

    # --- ending ---

    async def cancel(self, *, input: int | None = None) -> Status:
        """Cancel the current turn: record `Cancelled`, and ask this process's run to stop.

        Args:
            input: The position of the input that opened the turn, None for the current one.

        Returns:
            The status of the cancelled turn.

        Raises:
            NothingToCancelError: The turn is over, or is another one than was meant or read.
        """
        meant = input
        while True:
            turn = await self._turn_now()
            opened = cancellable(self.id, turn, meant)
            try:
                entries = await self._writer.append(Cancelled(input=opened), after=turn.head)
            except PositionConflictError:
                meant = opened
                continue
            if self._runs.turn(self.id) == opened:
                await self._runs.stop(self.id, wait=False)
            head = Head(entries[0].position, turn.head.incarnation)
            return TurnSnapshot(head, (*turn.entries, *entries)).status()

    async def fork(self, *, at: int) -> Thread:
        """Copy the log up to a position into a new thread, and return that.

        Args:
            at: The position of the last event to copy, the end of an append.

        Returns:
            The new thread, under a fresh id, with the same agent and graph.

        Raises:
            PositionOutOfRangeError: The position is not in the log, or inside an append.
            UnknownThreadError: There is no such thread.
        """
        new_id = await copied(self._store, self.id, at, clock=self._runs.clock, ids=self._ids)
        return Thread(
            new_id,
            self._graph,
            self._store,
            self._runs,
            self._agent,
            self._accept,
            self._types,
            self._version,
            ids=self._ids,
            turn=self._turn,
        )

    async def delete(self) -> None:
        """Stop this process's run, then remove the thread. An unknown thread is left alone."""
        await self._runs.stop(self.id)
        await deleted(self._store, self.id, clock=self._runs.clock)


def _check_id(thread_id: str) -> None:
    try:
        size = len(thread_id.encode())
    except UnicodeEncodeError:
        size = MAX_ID_BYTES + 1
    if (
        not 1 <= len(thread_id) <= MAX_ID_CHARS
        or size > MAX_ID_BYTES
        or not thread_id.isprintable()
    ):
        raise ValueError(
            f"No thread can have the id {thread_id!r}. Use 1 to {MAX_ID_CHARS} printable "
            f"characters, at most {MAX_ID_BYTES} bytes."
        )
