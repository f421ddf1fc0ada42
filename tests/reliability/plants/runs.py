"""Bugs of runs, of readers and of the codec."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import soev.domain._event as events
from pytest_soev.world._surface import NumberedTask
from soev.domain import Ended, StoredEvent
from soev.runtime import _codec as codec
from soev.runtime import _cursor as cursor
from soev.runtime import _engine as engine
from soev.runtime import _journal as journal
from soev.runtime import _outside as outside
from soev.runtime import _planner as planner
from soev.runtime import _thread as thread
from tests.reliability.plants import Patch, breaks


@breaks("C2")
def stop_is_swallowed(patch: Patch) -> None:
    """A run that is asked to stop goes on."""

    async def ended(self: Any, tasks: set[asyncio.Task[None]]) -> bool:
        while tasks:
            with suppress(asyncio.CancelledError):
                done, _ = await asyncio.wait(tasks)
                tasks -= done
        return False

    patch.setattr(engine.Run, "_ended", ended)


@breaks("C2")
def uncancel_is_missing(patch: Patch) -> None:
    """A run that swallows the cancel of a step does not take it back from the worker."""

    def uncancel(self: Any) -> int:
        if sys._getframe(1).f_globals is vars(engine):
            return int(self.cancelling())
        return int(whole(self))

    whole: Any = NumberedTask.uncancel
    patch.setattr(NumberedTask, "uncancel", uncancel, raising=False)


@breaks("B6")
def run_of_any_turn(patch: Patch) -> None:
    """A run goes on with whatever turn it finds."""

    async def read_on(self: Any) -> bool:
        await self._read()
        return not self.over

    patch.setattr(journal.Journal, "_read_on", read_on)


@breaks("I29")
def ended_turn_is_planned(patch: Patch) -> None:
    """A turn that ended is judged by the graph all the same."""

    def feed(self: Any, event: Any) -> object:
        whole_result = whole(self, event)
        self.ended = False
        return whole_result

    whole = cursor.Log.feed
    patch.setattr(cursor.Log, "feed", feed)


@breaks("SEQ")
def seq_counts_failures(patch: Patch) -> None:
    """A Failure moves the place that branches and tasks hang on."""

    def take(self: Any, event: Any, position: int) -> object:
        left = whole(self, event, position)
        self.at = self.seq
        return left

    whole = cursor.Cursor.take
    patch.setattr(cursor.Cursor, "take", take)


@breaks("I14")
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


@breaks("S7")
def status_from_two_reads(patch: Patch) -> None:
    """The events are read first, and the lease afterwards."""

    async def snapshot(store: Any, thread_id: str, types: Any) -> object:
        first = await whole(store, thread_id, types)
        head = await store.head(thread_id)
        return outside.TurnSnapshot(head, first.entries)

    whole = outside.turn_snapshot
    patch.setattr(thread, "turn_snapshot", snapshot)


@breaks("S8")
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


@breaks("D3")
def nan_as_null(patch: Patch) -> None:
    """A value that JSON cannot hold is written as null, and nobody proves the text."""

    def readable(self: Any, event: Any) -> StoredEvent:
        text = event.model_dump_json(serialize_as_any=True, exclude=events.ENVELOPE)
        return StoredEvent(
            codec.type_of(type(event)), text, event.stream, event.origin, event.version
        )

    patch.setattr(codec.EventTypes, "encode_readable", readable)


@breaks("D2")
def subclass_is_cut(patch: Patch) -> None:
    """Nobody proves that what is written reads back equal."""
    patch.setattr(codec.EventTypes, "_prove", lambda self, event, stored: None)


@breaks("I24")
def secret_in_failure(patch: Patch) -> None:
    """The text of an error is recorded as it is."""
    patch.setattr(events, "without_secrets", lambda text: text)


@breaks("I29")
def ended_twice(patch: Patch) -> None:
    """The end of a turn is recorded twice."""

    def closed(self: Any, drafts: Any, *, closes: bool) -> object:
        batch, plan, release = whole(self, drafts, closes=closes)
        if release and batch and isinstance(batch[-1].event, Ended):
            again = self.desk("main", None).draft(Ended())
            return [*batch, again], self.ledger.propose([again.event]), True
        return batch, plan, release

    whole = journal.Journal._closed
    patch.setattr(journal.Journal, "_closed", closed)
