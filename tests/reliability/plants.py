"""Bugs that are planted on purpose: each breaks one rule of the runtime or of a store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

import soev.domain._event as events
from pytest_soev.world import ProcessStore, boundary, passed
from soev.adapters import InMemoryTraceStore
from soev.adapters import _memory as memory
from soev.adapters import _rows as rows
from soev.domain import (
    Ended,
    Head,
    LeaseLostError,
    OutcomeUnknownError,
    PositionConflictError,
    StoredEvent,
)
from soev.runtime import _codec as codec
from soev.runtime import _cursor as cursor
from soev.runtime import _effecting as effecting
from soev.runtime import _engine as engine
from soev.runtime import _holding as holding
from soev.runtime import _journal as journal
from soev.runtime import _outside as outside
from soev.runtime import _planner as planner
from soev.runtime import _thread as thread

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]

# --- stores ---


def no_epoch_check(patch: Patch) -> None:
    """A store takes appends under any lease of the same owner."""
    patch.setattr(rows.ThreadRow, "holds", lambda self, lease: self.lease.owner == lease.owner)


def no_position_check(patch: Patch) -> None:
    """A store appends wherever its log ends."""

    def append(self: Any, call: rows.Appending) -> object:
        log = self._logs.get(call.thread_id)
        if log is not None and call.after.incarnation is not None:
            call = replace(call, after=replace(call.after, position=log.row.position))
        return whole(self, call)

    whole = InMemoryTraceStore._append
    patch.setattr(InMemoryTraceStore, "_append", append)


def check_then_act(patch: Patch) -> None:
    """A store checks where a log ends, and inserts later."""

    async def append(self: Any, thread_id: str, events: Any, **given: Any) -> object:
        log = self._logs.get(thread_id)
        call = rows.Appending(
            thread_id,
            events,
            given["after"],
            given["batch"],
            given.get("lease"),
            given.get("release", False),
        )
        rows.refuse_append(log.row if log else None, call, self._clock.now())
        await boundary()
        if log is not None:
            here = replace(given["after"], position=log.row.position)
            given["after"] = here
        return await whole(self, thread_id, events, **given)

    whole: Any = InMemoryTraceStore.append
    patch.setattr(InMemoryTraceStore, "append", append)


def no_fence(patch: Patch) -> None:
    """A store does not look at leases when it appends."""

    def refuse(row: Any, call: rows.Appending, now: datetime) -> None:
        whole(row, replace(call, lease=None), now)

    whole = rows.refuse_append
    patch.setattr(rows, "refuse_append", refuse)


def renew_without_epoch(patch: Patch) -> None:
    """A store renews any lease of the same owner."""

    def renew(self: Any, lease: Any, ttl: float, now: datetime) -> object:
        if self.lease.owner == lease.owner:
            lease = replace(lease, epoch=self.lease.epoch)
        return whole(self, lease, ttl, now)

    whole = rows.ThreadRow.renew
    patch.setattr(rows.ThreadRow, "renew", renew)


def renew_makes_a_row(patch: Patch) -> None:
    """A store renews a lease that is gone by taking it again."""

    def renew(self: Any, lease: Any, ttl: float, now: datetime) -> object:
        if not self.holds(lease):
            span = timedelta(seconds=ttl)
            self.lease = rows.LeaseRow(lease.epoch, lease.owner, "r", now + span, span)
        return whole(self, lease, ttl, now)

    whole = rows.ThreadRow.renew
    patch.setattr(rows.ThreadRow, "renew", renew)


def release_without_epoch(patch: Patch) -> None:
    """A store lets anybody end a lease."""
    patch.setattr(rows.ThreadRow, "let_go", lambda self, lease: self.release())


def steal_by_another_clock(patch: Patch) -> None:
    """A lease counts as over by the clock of who wants it, which is a day ahead."""

    def acquire(self: Any, owner: str, ttl: float, request: str, now: datetime) -> object:
        ahead = now + timedelta(days=1)
        if not self.lease.valid(ahead):
            self.release()
        return whole(self, owner, ttl, request, now)

    whole = rows.ThreadRow.acquire
    patch.setattr(rows.ThreadRow, "acquire", acquire)


def epoch_stands_still(patch: Patch) -> None:
    """A store gives each holder the same epoch."""

    def acquire(self: Any, owner: str, ttl: float, request: str, now: datetime) -> object:
        whole(self, owner, ttl, request, now)
        self.lease = replace(self.lease, epoch=1)
        return self.lease_at(now)

    whole = rows.ThreadRow.acquire
    patch.setattr(rows.ThreadRow, "acquire", acquire)


def one_incarnation(patch: Patch) -> None:
    """Every life of a thread has the same name, so its epochs and heads come back."""
    patch.setattr(rows, "new_incarnation", lambda: "1")


def delete_leaves_the_head(patch: Patch) -> None:
    """Deleting a thread removes its events and leaves its row."""

    async def delete(self: Any, thread_id: str) -> None:
        log = self._logs.get(thread_id)
        await whole(self, thread_id)
        if log is not None:
            self._logs[thread_id] = memory._Log(log.row)

    whole = InMemoryTraceStore.delete
    patch.setattr(InMemoryTraceStore, "delete", delete)


def fork_mints_ids(patch: Patch) -> None:
    """A copied intent gets another id."""
    _copies(patch, lambda text: text.replace("id~", "id~fork~"))


def fork_drops_intents(patch: Patch) -> None:
    """A copied intent is taken for none, so the fork performs it."""

    def copy(self: Any, thread_id: str, new_id: str, through: int) -> None:
        last = self._logs[thread_id].entries[through - 1].event.type
        whole(self, thread_id, new_id, through - (last == "effect_intent"))

    whole = InMemoryTraceStore._copy
    patch.setattr(InMemoryTraceStore, "_copy", copy)


def _copies(patch: Patch, rewrite: Callable[[str], str]) -> None:
    def copy(self: Any, thread_id: str, new_id: str, through: int) -> None:
        whole(self, thread_id, new_id, through)
        log = self._logs[new_id]
        log.entries = [
            replace(entry, event=replace(entry.event, data=rewrite(entry.event.data)))
            for entry in log.entries
        ]

    whole = InMemoryTraceStore._copy
    patch.setattr(InMemoryTraceStore, "_copy", copy)


# --- appends ---


def new_batch_per_retry(patch: Patch) -> None:
    """Each attempt of an append has a batch id of its own."""

    async def append(self: Any, *args: Any, batch: str, **given: Any) -> object:
        tries.append(batch)
        return await whole(self, *args, batch=f"{batch}-{len(tries)}", **given)

    tries: list[str] = []
    whole = ProcessStore.append
    patch.setattr(ProcessStore, "append", append)


def read_back_in_place_of_retry(patch: Patch) -> None:
    """An unknown append is looked for in the log, and made anew when it is not there."""

    async def append(self: Any, events: Sequence[StoredEvent], *, release: bool) -> object:
        work, after, lease = self._work, self.ledger.head, self.hold.lease
        for _ in range(9):
            with suppress(OutcomeUnknownError):
                return await work.store.append(
                    work.thread_id,
                    events,
                    after=after,
                    batch=self._ids.new(),
                    lease=lease,
                    release=release,
                )
            page = await work.store.read(work.thread_id, after=after.position)
            if page.entries:
                return page.entries[: len(events)]
            await passed(2)
        raise AssertionError

    patch.setattr(journal.Journal, "_append", append)


def appends_are_cut(patch: Patch) -> None:
    """Stopping a run cancels its workers wherever they are, also in an append."""

    def halt(self: Any) -> None:
        whole(self)
        for task in self._workers:
            task.cancel()

    whole = engine.Run.halt
    patch.setattr(engine.Run, "halt", halt)


def cancel_is_not_tried_again(patch: Patch) -> None:
    """A cancel that loses against an append gives up with the store's error."""
    patch.setattr(thread, "PositionConflictError", LeaseLostError)


def submit_is_not_checked_again(patch: Patch) -> None:
    """A response that loses against another append is recorded after it, unchecked."""

    async def append(self: Any, *events: Any, after: Head) -> object:
        try:
            return await whole(self, *events, after=after)
        except PositionConflictError:
            return await whole(self, *events, after=await self.store.head(self.thread_id))

    whole = outside.Writer.append
    patch.setattr(outside.Writer, "append", append)


# --- effects ---


def perform_before_the_intent(patch: Patch) -> None:
    """The act begins before its intent is in the log."""

    async def intend(self: Any, action: Any) -> object:
        journal_, desk = self._begin(action)
        effect = self._effect(desk)
        draft = self._intended(desk, effect)
        result = await effect.effector.perform(draft.event)
        await journal_.record(desk, [draft])
        return await journal_.record(desk, [desk.draft(result)])

    patch.setattr(effecting.Effecting, "intend", intend)


def perform_in_recovery(patch: Patch) -> None:
    """An open intent that is found is performed again."""

    async def recover(self: Any, action: Any) -> object:
        _, desk = self._begin(action)
        act = effecting.Act(self._effect(desk), action.intent, self._journal)
        return await self._perform(desk, act)

    patch.setattr(effecting.Effecting, "recover", recover)


def result_dropped_on_stop(patch: Patch) -> None:
    """What an act came to is thrown away once its run is being stopped."""

    async def settle(self: Any, desk: Any, intent: Any, draft: Any) -> object:
        if self._journal.over:
            return None
        return await whole(self, desk, intent, draft)

    whole = effecting.Effecting._settle
    patch.setattr(effecting.Effecting, "_settle", settle)


def recovery_does_not_wait(patch: Patch) -> None:
    """Recovery asks the world before the declared timeout is over."""

    async def quiet(self: Any, intent: Any, limit: float) -> None:
        return None

    patch.setattr(effecting.Effecting, "_quiet", quiet)


def no_deadline(patch: Patch) -> None:
    """A run trusts its lease for ever."""
    patch.setattr(holding.Holding, "past", property(lambda self: False))
    patch.setattr(holding.Holding, "_ring", lambda self: None)


def no_renewal(patch: Patch) -> None:
    """A run never renews its lease."""
    patch.setattr(holding.Holding, "_begin_renewal", lambda self: None)


def result_opens_again(patch: Patch) -> None:
    """The result of an effect is recorded twice."""

    async def settle(self: Any, desk: Any, intent: Any, draft: Any) -> object:
        await self._journal.record(desk, [draft], late=True)
        again = desk.draft(draft.event)
        return await self._journal.record(desk, [again], late=True)

    patch.setattr(effecting.Effecting, "_settle", settle)


# --- runs, readers and the codec ---


def stop_is_swallowed(patch: Patch) -> None:
    """A run that is asked to stop goes on."""

    async def ended(self: Any, tasks: set[asyncio.Task[None]]) -> bool:
        while tasks:
            with suppress(asyncio.CancelledError):
                done, _ = await asyncio.wait(tasks)
                tasks -= done
        return False

    patch.setattr(engine.Run, "_ended", ended)


def run_of_any_turn(patch: Patch) -> None:
    """A run goes on with whatever turn it finds."""

    async def read_on(self: Any) -> bool:
        await self._read()
        return not self.over

    patch.setattr(journal.Journal, "_read_on", read_on)


def ended_turn_is_planned(patch: Patch) -> None:
    """A turn that ended is judged by the graph all the same."""

    def feed(self: Any, event: Any) -> object:
        whole_result = whole(self, event)
        self.ended = False
        return whole_result

    whole = cursor.Log.feed
    patch.setattr(cursor.Log, "feed", feed)


def seq_counts_failures(patch: Patch) -> None:
    """A Failure moves the place that branches and tasks hang on."""

    def take(self: Any, event: Any, position: int) -> object:
        left = whole(self, event, position)
        self.at = self.seq
        return left

    whole = cursor.Cursor.take
    patch.setattr(cursor.Cursor, "take", take)


def join_by_completion(patch: Patch) -> None:
    """A join is shown its branches in the order in which they ended."""

    def view(self: Any, stream: str) -> object:
        seen = whole(self, stream)
        if stream != "main":
            return seen
        kept = {id(event) for event in seen}
        return tuple(event for event in self.trace if id(event) in kept)

    whole = planner.Planner.view
    patch.setattr(planner.Planner, "view", view)


def status_from_two_reads(patch: Patch) -> None:
    """The events are read first, and the lease afterwards."""

    async def snapshot(store: Any, thread_id: str, types: Any) -> object:
        first = await whole(store, thread_id, types)
        head = await store.head(thread_id)
        return outside.TurnSnapshot(head, first.entries)

    whole = outside.turn_snapshot
    patch.setattr(thread, "turn_snapshot", snapshot)


def follow_ends_early(patch: Patch) -> None:
    """A follower ends at the first sight of a free lease, without another read."""

    async def held(reader: Any) -> AsyncIterator[object]:
        while True:
            entries = await reader.read()
            free = (await reader._store.head(reader._thread_id)).lease is None
            for entry in entries:
                yield entry
            if free or reader.gone:
                return
            if not entries:
                await reader.wait(reader.until_free())

    patch.setattr(thread, "while_held", held)


def nan_as_null(patch: Patch) -> None:
    """A value that JSON cannot hold is written as null, and nobody proves the text."""

    def readable(self: Any, event: Any) -> StoredEvent:
        text = event.model_dump_json(serialize_as_any=True, exclude=events.ENVELOPE)
        return StoredEvent(
            codec.type_of(type(event)), text, event.stream, event.origin, event.version
        )

    patch.setattr(codec.EventTypes, "encode_readable", readable)


def subclass_is_cut(patch: Patch) -> None:
    """Nobody proves that what is written reads back equal."""
    patch.setattr(codec.EventTypes, "_prove", lambda self, event, stored: None)


def secret_in_failure(patch: Patch) -> None:
    """The text of an error is recorded as it is."""
    patch.setattr(events, "without_secrets", lambda text: text)


def ended_twice(patch: Patch) -> None:
    """The end of a turn is recorded twice."""

    def closed(self: Any, drafts: Any) -> object:
        batch, plan, release = whole(self, drafts)
        if release and batch and isinstance(batch[-1].event, Ended):
            again = self.desk("main", None).draft(Ended())
            return [*batch, again], self.ledger.propose([again.event]), True
        return batch, plan, release

    whole = journal.Journal._closed
    patch.setattr(journal.Journal, "_closed", closed)
