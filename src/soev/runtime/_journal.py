"""What one run writes to and reads from its thread's log, one thing at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from soev.domain import (
    ROOT_STREAM,
    EffectIntent,
    Ended,
    Failure,
    Head,
    LeaseLostError,
    LogEntry,
    OutcomeUnknownError,
    PositionConflictError,
    StoredEvent,
    StoreUnavailableError,
    TraceStore,
    UnencodableError,
    reached,
)
from soev.runtime._actions import End, Plan
from soev.runtime._checks import Desk, Draft, failure_of
from soev.runtime._codec import EventTypes
from soev.runtime._graph import Graph
from soev.runtime._holding import Holding, pause
from soev.runtime._ledger import Ledger
from soev.runtime._runs import Runs


@dataclass(frozen=True, slots=True)
class Work:
    """What a run needs to know of its thread.

    Args:
        thread_id: The thread.
        graph: The graph of the turn.
        store: The store.
        types: The classes that the thread may record.
        version: The version of the code.
        agent: The agent's name, or None.
    """

    thread_id: str
    graph: Graph
    store: TraceStore
    types: EventTypes
    version: str | None
    agent: str | None


class Crew(Protocol):
    """The workers of a run, as its journal sees them."""

    def halt(self) -> None:
        """Let nothing begin any more."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the run with an error."""
        ...

    def alone(self) -> bool:
        """Whether no other stream is being worked in."""
        ...

    def go_on(self, plan: Plan) -> None:
        """Start what a plan finds due where nobody works."""
        ...


class Journal:
    """The log of one run's thread, written under the run's lease.

    Args:
        work: The thread.
        runs: Gives the lease's owner and time, the clock and the ids.
        ledger: The log as far as it was read.
        turn: The position of the input that opened the run's turn.
        crew: The run's workers.
    """

    def __init__(
        self, work: Work, runs: Runs, ledger: Ledger, turn: int | None, crew: Crew
    ) -> None:
        self._work, self._ids, self.ledger, self._crew = work, runs.ids, ledger, crew
        self._lock = asyncio.Lock()
        self.hold = Holding(work.store, work.thread_id, runs, crew.fail, self._catch_up, self._lock)
        self._turn = turn
        self.over = self.sealed = self.begun = False
        loop = asyncio.get_running_loop()
        self.stopping: asyncio.Future[None] = loop.create_future()
        self.sealing: asyncio.Future[None] = loop.create_future()

    def stop(self) -> None:
        """Let nothing begin any more. What effects in progress come to is still recorded."""
        self.over = True
        if not self.stopping.done():
            self.stopping.set_result(None)

    def seal(self) -> None:
        """Let nothing be recorded any more."""
        self.sealed = True
        if not self.sealing.done():
            self.sealing.set_result(None)

    def desk(self, stream: str, origin: str | None) -> Desk:
        """Return what gives events of a stream and node their envelope."""
        return Desk(self._work.types, self._work.version, stream, origin)

    async def begin(self) -> Plan | None:
        """Take the lease and read what came before it: only then is it known what is due.

        Returns:
            The plan, or None when the turn is another one by now.
        """
        await self.hold.take()
        await self._read()
        self.begun = self.ledger.turn == self._turn
        if not self.begun:
            self._crew.halt()
        return None if self.over else self.ledger.plan(self.ledger.position)

    async def record(
        self,
        desk: Desk,
        drafts: list[Draft],
        *,
        settles: EffectIntent | None = None,
        late: bool = False,
    ) -> Plan | None:
        """Append what a stream did.

        Args:
            desk: What the events got their envelope from.
            drafts: The events. What is too large for the store is recorded as a Failure.
            settles: The intent that they are about. They are recorded while it is open.
            late: Whether they are recorded also while the run is being stopped.

        Returns:
            The plan after them, or None when the run ended before they were stored.
        """
        closes = True
        async with self._lock:
            while (late or not self.over) and (settles is None or self._is_open(settles)):
                batch, plan, release = self._closed(drafts, closes=closes)
                try:
                    entries = await self._append([draft.stored for draft in batch], release=release)
                except PositionConflictError:
                    await self._read_on()
                except UnencodableError as error:
                    self.ledger.retract()
                    if len(batch) > len(drafts):
                        # What fits by itself is not refused for the end of the turn beside it.
                        closes = False
                        continue
                    if isinstance(drafts[0].event, Failure):
                        raise
                    drafts, settles, late = [desk.draft(failure_of(error))], None, False
                else:
                    self.ledger.confirm(entries)
                    self.hold.position = self.ledger.position
                    if release:
                        self._given_back()
                    return plan
            return None if self.over else self.ledger.plan()

    def _is_open(self, intent: EffectIntent) -> bool:
        """Whether the run may record what became of an intent: a second result is refused."""
        found = None if self.sealed else self.ledger.planner.intent(intent.stream)
        return found is not None and found.id == intent.id

    def _closed(self, drafts: list[Draft], *, closes: bool) -> tuple[list[Draft], Plan, bool]:
        """Plan with what is to be appended. What ends the run gives the lease back with it."""
        plan = self.ledger.propose([draft.event for draft in drafts])
        if self.over or not closes or not self._crew.alone():
            return drafts, plan, False
        if plan.actions and isinstance(plan.actions[0], End):
            ended = self.desk(ROOT_STREAM, None).draft(Ended())
            return [*drafts, ended], self.ledger.propose([ended.event]), True
        return drafts, plan, not plan.actions

    async def rest(self) -> Plan | None:
        """Give the lease back, unless something came in between that this run must act on.

        Returns:
            The plan, when something is due after all.
        """
        async with self._lock:
            while not self.over:
                plan = self.ledger.plan()
                if plan.actions:
                    return plan
                try:
                    await self._append([], release=True)
                except PositionConflictError:
                    await self._read_on()
                else:
                    self._given_back()
                    break
        return None

    def _given_back(self) -> None:
        self.hold.given_back()
        self.ledger.at_rest = True

    async def _append(
        self, events: Sequence[StoredEvent], *, release: bool
    ) -> Sequence[LogEntry[StoredEvent]]:
        """Append, and repeat the identical call until the store answers or the deadline is over."""
        work, after, batch, lease = self._work, self.ledger.head, self._ids.new(), self.hold.lease
        attempt = 0
        while not self.hold.past:
            reached("run.append.sending")
            try:
                entries = await work.store.append(
                    work.thread_id, events, after=after, batch=batch, lease=lease, release=release
                )
            except (OutcomeUnknownError, StoreUnavailableError) as error:
                self.hold.doubt = error
                await pause(attempt)
                attempt += 1
            except LeaseLostError:
                # An empty append leaves no row to know it by: the first attempt gave it back.
                if attempt and not events:
                    return ()
                raise
            else:
                self.hold.doubt = None
                return entries
        raise self.hold.lapse

    async def _read(self) -> None:
        """Read what others wrote, as soon as the store can be reached."""
        attempt = 0
        while True:
            try:
                await self.ledger.catch_up(self._work.store)
                break
            except StoreUnavailableError:
                if self.hold.past:
                    raise
                await pause(attempt)
                attempt += 1
        self.hold.position = self.ledger.position

    async def _read_on(self) -> bool:
        """Read what others wrote, and tell whether the run goes on after it."""
        await self._read()
        ledger = self.ledger
        if ledger.turn != self._turn:
            self.seal()
        if self.sealed or ledger.closed > ledger.planner.since:
            self._crew.halt()
        return not self.over

    async def _catch_up(self, head: Head) -> None:
        """Act on what a renewal saw: a response, or the end of the turn."""
        async with self._lock:
            if self.over or self.hold.lease is None or head.position <= self.ledger.position:
                return
            try:
                if await self._read_on():
                    self._crew.go_on(self.ledger.plan())
            except Exception as error:  # noqa: BLE001  # the run ends with whatever it is
                self._crew.fail(error)
