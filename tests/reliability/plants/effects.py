"""Bugs of appends, of effects and of the lease that they happen under."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pytest_soev.world import ProcessStore, passed
from soev.domain import (
    Head,
    LeaseLostError,
    OutcomeUnknownError,
    PositionConflictError,
    StoredEvent,
)
from soev.runtime import _effecting as effecting
from soev.runtime import _engine as engine
from soev.runtime import _holding as holding
from soev.runtime import _journal as journal
from soev.runtime import _outside as outside
from soev.runtime import _thread as thread
from tests.reliability.plants import Patch, breaks

# --- appends ---


@breaks("S4")
def new_batch_per_retry(patch: Patch) -> None:
    """Each attempt of an append has a batch id of its own."""

    async def append(self: Any, *args: Any, batch: str, **given: Any) -> object:
        tries.append(batch)
        return await whole(self, *args, batch=f"{batch}-{len(tries)}", **given)

    tries: list[str] = []
    whole = ProcessStore.append
    patch.setattr(ProcessStore, "append", append)


@breaks("S4")
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


@breaks("C1")
def appends_are_cut(patch: Patch) -> None:
    """Stopping a run cancels its workers wherever they are, also in an append."""

    def halt(self: Any) -> None:
        whole(self)
        for task in self._workers:
            task.cancel()

    whole = engine.Run.halt
    patch.setattr(engine.Run, "halt", halt)


@breaks("B6")
def cancel_is_not_tried_again(patch: Patch) -> None:
    """A cancel that loses against an append gives up with the store's error."""
    patch.setattr(thread, "PositionConflictError", LeaseLostError)


@breaks("B6")
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


@breaks("I6")
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


@breaks("I5")
def perform_in_recovery(patch: Patch) -> None:
    """An open intent that is found is performed again."""

    async def recover(self: Any, action: Any) -> object:
        _, desk = self._begin(action)
        act = effecting.Act(self._effect(desk), action.intent, self._journal)
        return await self._perform(desk, act)

    patch.setattr(effecting.Effecting, "recover", recover)


@breaks("I19")
def fork_performs(patch: Patch) -> None:
    """A fork begins the act of a copied intent, and its recovery is asked nothing."""

    async def recover(self: Any, action: Any) -> object:
        if self._work.thread_id == "t-1":
            return await whole(self, action)
        _, desk = self._begin(action)
        act = effecting.Act(self._effect(desk), action.intent, self._journal)
        return await self._perform(desk, act)

    whole: Any = effecting.Effecting.recover
    patch.setattr(effecting.Effecting, "recover", recover)


@breaks("F7")
def result_dropped_after_the_act(patch: Patch) -> None:
    """A stop leaves it to the policy whether the result of an act that is over is recorded."""

    async def perform(self: Any, desk: Any, act: Any) -> object:
        await effecting.first(act.task, self._journal.stopping)
        if not self._journal.over:
            return await whole(self, desk, act)
        decided = await self._decision(desk, act)
        return None if decided is None else await self._settle(desk, act.intent, decided)

    whole: Any = effecting.Effecting._perform
    patch.setattr(effecting.Effecting, "_perform", perform)


@breaks("C4")
def result_dropped_on_stop(patch: Patch) -> None:
    """What an act came to is thrown away once its run is being stopped."""

    async def settle(self: Any, desk: Any, intent: Any, draft: Any) -> object:
        if self._journal.over:
            return None
        return await whole(self, desk, intent, draft)

    whole = effecting.Effecting._settle
    patch.setattr(effecting.Effecting, "_settle", settle)


@breaks("F4")
def recovery_does_not_wait(patch: Patch) -> None:
    """Recovery asks the world before the declared timeout is over."""

    async def quiet(self: Any, intent: Any, limit: float) -> None:
        return None

    patch.setattr(effecting.Effecting, "_quiet", quiet)


@breaks("L4")
def no_deadline(patch: Patch) -> None:
    """A run trusts its lease for ever."""
    patch.setattr(holding.Holding, "past", property(lambda self: False))
    patch.setattr(holding.Holding, "_ring", lambda self: None)


@breaks("L3")
def no_renewal(patch: Patch) -> None:
    """A run never renews its lease."""
    patch.setattr(holding.Holding, "_begin_renewal", lambda self: None)


@breaks("I7")
def result_opens_again(patch: Patch) -> None:
    """The result of an effect is recorded twice."""

    async def settle(self: Any, desk: Any, intent: Any, draft: Any) -> object:
        await self._journal.record(desk, [draft], late=True)
        again = desk.draft(draft.event)
        return await self._journal.record(desk, [again], late=True)

    patch.setattr(effecting.Effecting, "_settle", settle)
