"""Bugs of a store."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pytest_soev.world import boundary
from soev.adapters import InMemoryTraceStore
from soev.adapters import _memory as memory
from soev.adapters import _rows as rows
from tests.reliability.plants import Patch, breaks


@breaks("I3")
def no_epoch_check(patch: Patch) -> None:
    """A store takes appends under any lease of the same owner."""
    patch.setattr(rows.ThreadRow, "holds", lambda self, lease: self.lease.owner == lease.owner)


@breaks("I1")
def no_position_check(patch: Patch) -> None:
    """A store appends wherever its log ends."""

    def append(self: Any, call: rows.Appending) -> object:
        log = self._logs.get(call.thread_id)
        if log is not None and call.after.incarnation is not None:
            call = replace(call, after=replace(call.after, position=log.row.position))
        return whole(self, call)

    whole = InMemoryTraceStore._append
    patch.setattr(InMemoryTraceStore, "_append", append)


@breaks("I1")
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


@breaks("I3")
def no_fence(patch: Patch) -> None:
    """A store does not look at leases when it appends."""

    def refuse(row: Any, call: rows.Appending, now: datetime) -> None:
        whole(row, replace(call, lease=None), now)

    whole = rows.refuse_append
    patch.setattr(rows, "refuse_append", refuse)


@breaks("I4")
def renew_without_epoch(patch: Patch) -> None:
    """A store renews any lease of the same owner."""

    def renew(self: Any, lease: Any, ttl: float, now: datetime) -> object:
        if self.lease.owner == lease.owner:
            lease = replace(lease, epoch=self.lease.epoch)
        return whole(self, lease, ttl, now)

    whole = rows.ThreadRow.renew
    patch.setattr(rows.ThreadRow, "renew", renew)


@breaks("I4")
def renew_makes_a_row(patch: Patch) -> None:
    """A store renews a lease that is gone by taking it again."""

    def renew(self: Any, lease: Any, ttl: float, now: datetime) -> object:
        if not self.holds(lease):
            span = timedelta(seconds=ttl)
            self.lease = rows.LeaseRow(lease.epoch, lease.owner, "r", now + span, span)
        return whole(self, lease, ttl, now)

    whole = rows.ThreadRow.renew
    patch.setattr(rows.ThreadRow, "renew", renew)


@breaks("L8")
def release_without_epoch(patch: Patch) -> None:
    """A store lets anybody end a lease."""
    patch.setattr(rows.ThreadRow, "let_go", lambda self, lease: self.release())


@breaks("L6")
def steal_by_another_clock(patch: Patch) -> None:
    """A lease counts as over by the clock of who wants it, which is a day ahead."""

    def acquire(self: Any, owner: str, ttl: float, request: str, now: datetime) -> object:
        ahead = now + timedelta(days=1)
        if not self.lease.valid(ahead):
            self.release()
        return whole(self, owner, ttl, request, now)

    whole = rows.ThreadRow.acquire
    patch.setattr(rows.ThreadRow, "acquire", acquire)


@breaks("I4")
def epoch_stands_still(patch: Patch) -> None:
    """A store gives each holder the same epoch."""

    def acquire(self: Any, owner: str, ttl: float, request: str, now: datetime) -> object:
        whole(self, owner, ttl, request, now)
        self.lease = replace(self.lease, epoch=1)
        return self.lease_at(now)

    whole = rows.ThreadRow.acquire
    patch.setattr(rows.ThreadRow, "acquire", acquire)


@breaks("L1")
def one_incarnation(patch: Patch) -> None:
    """Every life of a thread has the same name, so its epochs and heads come back."""
    patch.setattr(rows, "new_incarnation", lambda: "1")


@breaks("L1")
def lives_are_not_compared(patch: Patch) -> None:
    """Epochs begin anew after a delete, and a store takes what was meant for an earlier life."""

    def holds(self: Any, lease: Any) -> bool:
        return (self.lease.owner, self.lease.epoch) == (lease.owner, lease.epoch)

    def refuse(row: Any, call: rows.Appending, now: datetime) -> None:
        if row is not None and call.after.incarnation is not None:
            call = replace(call, after=replace(call.after, incarnation=row.incarnation))
        whole(row, call, now)

    whole = rows.refuse_append
    patch.setattr(rows.ThreadRow, "holds", holds)
    patch.setattr(rows, "refuse_append", refuse)


@breaks("I18")
def delete_leaves_the_head(patch: Patch) -> None:
    """Deleting a thread removes its events and leaves its row."""

    async def delete(self: Any, thread_id: str, *, incarnation: str | None = None) -> None:
        log = self._logs.get(thread_id)
        await whole(self, thread_id, incarnation=incarnation)
        if log is not None:
            self._logs[thread_id] = memory._Log(log.row)

    whole = InMemoryTraceStore.delete
    patch.setattr(InMemoryTraceStore, "delete", delete)


@breaks("F1")
def fork_mints_ids(patch: Patch) -> None:
    """A copied intent gets another id."""
    _copies(patch, lambda text: text.replace("id~", "id~fork~"))


@breaks("I19")
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
