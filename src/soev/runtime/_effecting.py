"""Effects being run: the intent, the act and its result, and what settles an open intent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Final, TypeVar

from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Ids,
    Input,
    Request,
    StoreUnavailableError,
    reached,
    stamped,
)
from soev.runtime._actions import Intend, Plan, Recover
from soev.runtime._checks import Desk, Draft, failure_of, log_failure
from soev.runtime._effects import EffectStep
from soev.runtime._graph import is_effect
from soev.runtime._holding import pause
from soev.runtime._journal import Crew, Journal, Work

T = TypeVar("T")

MANY_FAILURES: Final = 20

_log = logging.getLogger("soev")


class Act:
    """One act, at most once: it never begins when its run was stopped before it.

    Args:
        effect: The effect.
        intent: Its intent, as it was recorded.
        journal: Tells whether the run was stopped, and until when it may act.
    """

    def __init__(self, effect: EffectStep, intent: EffectIntent, journal: Journal) -> None:
        self.effect, self.intent, self._journal = effect, intent, journal
        self.begun = False
        self.task: asyncio.Task[EffectResult] = asyncio.create_task(self._perform())

    async def _perform(self) -> EffectResult:
        # The last look before the call: what freezes a process after it only the world can catch.
        if self._journal.over or self._journal.hold.past:
            raise asyncio.CancelledError
        self.begun = True
        limit = timeout_of(self.effect)
        reached("effect.performing")
        bound = asyncio.timeout(limit)
        try:
            async with bound:
                return await self.effect.effector.perform(self.intent)
        except TimeoutError:
            if not bound.expired():
                raise
            raise TimeoutError(
                f"`perform` took longer than its effector's `timeout` of {limit:g} seconds, so the "
                "outcome is unknown."
            ) from None

    async def stop(self) -> None:
        """Cancel the act, and wait until it has ended."""
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})


class Effecting:
    """Performs, recovers and cancels the effects of one run.

    Args:
        work: The thread.
        journal: The log of the thread.
        crew: The run's workers.
        ids: Makes the ids of intents.
    """

    def __init__(self, work: Work, journal: Journal, crew: Crew, ids: Ids) -> None:
        self._work, self._journal, self._crew, self._ids = work, journal, crew, ids

    async def intend(self, action: Intend) -> Plan | None:
        """Record an intent, perform it, and record its result.

        Returns:
            The plan after it, or None when nothing more was recorded.
        """
        journal, desk = self._begin(action)
        try:
            effect = self._effect(desk)
            timeout_of(effect)
            reached("effect.intending")
            draft = self._intended(desk, effect)
        except Exception as error:  # noqa: BLE001  # a team's own code may raise anything
            return await self._fail(desk, error)
        plan = await journal.record(desk, [draft])
        intent = journal.ledger.planner.intent(desk.stream)
        if plan is None or intent is None or intent is not draft.event:
            return plan
        reached("effect.intended")
        self._crew.go_on(plan)
        return await self._perform(desk, Act(effect, intent, journal))

    def _intended(self, desk: Desk, effect: EffectStep) -> Draft:
        """Ask what to do, and give it the id by which the world can know it."""
        intent = effect.intend(self._journal.ledger.planner.view(desk.stream))
        if not isinstance(intent, EffectIntent):
            raise TypeError(
                f"`intend` returned a {type(intent).__name__}. Return one `EffectIntent`."
            )
        if intent.id is not None:
            raise ValueError(
                f"`intend` returned an EffectIntent with the id {intent.id!r}, which the runtime "
                "alone sets. Leave it out."
            )
        return desk.draft(stamped(intent, id=self._ids.new()))

    async def _perform(self, desk: Desk, act: Act) -> Plan | None:
        """Wait for the act, or for what its cancellation decides about it."""
        journal = self._journal
        await first(act.task, journal.stopping)
        decided: Draft | None = None
        if journal.over and not (act.begun and act.task.done()):
            decided = await self._decision(desk, act)
        elif not act.begun:
            raise journal.hold.lapse
        reached("effect.performed")
        try:
            draft = _own_result(desk, act.intent, act.task.result(), "`perform`")
        except asyncio.CancelledError as error:
            if not journal.over:
                return await self._fail(desk, error)
        except Exception as error:  # noqa: BLE001  # a team's own code may raise anything
            if decided is None:
                return await self._fail(desk, error)
        else:
            decided = draft
        return None if decided is None else await self._settle(desk, act.intent, decided)

    async def _decision(self, desk: Desk, act: Act) -> Draft | None:
        """Ask the effect's cancellation what to record of an act that a stop found unfinished."""
        if not act.begun:
            await act.stop()
        draft = None if self._journal.sealed else await self._asked(desk, act)
        await act.stop()
        return draft

    async def _asked(self, desk: Desk, act: Act) -> Draft | None:
        effect, view = act.effect, self._journal.ledger.planner.view(desk.stream)

        async def ask() -> Sequence[Event]:
            reached("effect.cancelling")
            return await effect.cancellation(view, act.intent, effect.effector, act.task)

        asking = await self._until(self._journal.sealing, ask())
        if self._journal.sealed or asking.cancelled():
            return None
        try:
            returned = asking.result()
            return _one(desk, act.intent, returned, "`cancellation`") if returned else None
        except Exception as error:  # noqa: BLE001  # a team's own code may raise anything
            log_failure(self._work.thread_id, desk.origin or "", error)
            return None

    async def _settle(self, desk: Desk, intent: EffectIntent, draft: Draft) -> Plan | None:
        """Record what became of an intent, also when the run is being stopped."""
        try:
            plan = await self._journal.record(desk, [draft], settles=intent, late=True)
        finally:
            # Only the store sets a time, so an event without one is not in the log.
            if draft.event.ts is None and isinstance(draft.event, EffectResult):
                _log.warning(
                    "The result of the %r effect of thread %r (intent %s) could not be recorded.",
                    intent.kind,
                    self._work.thread_id,
                    intent.id,
                )
        reached("effect.recorded")
        return plan

    async def recover(self, action: Recover) -> Plan | None:
        """Let an effect's recovery settle an open intent.

        Returns:
            The plan after it, or None when nothing was recorded.
        """
        intent, (journal, desk) = action.intent, self._begin(action)
        try:
            effect = self._effect(desk)
            limit = timeout_of(effect)
        except Exception as error:  # noqa: BLE001  # a team's own code may raise anything
            return await self._fail(desk, error, intent)
        if limit is not None:
            waiting = await self._until(journal.stopping, self._quiet(intent, limit))
            if journal.over:
                return None
            waiting.result()
        view = journal.ledger.planner.view(desk.stream)

        async def ask() -> Sequence[Event]:
            reached("effect.recovering")
            return await effect.recovery(view, intent, effect.effector)

        asking = await self._until(journal.stopping, ask())
        reached("effect.recovered")
        try:
            draft = _one(desk, intent, asking.result(), "`recovery`")
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # the team's own code
            return await self._fail(desk, error, intent)
        plan = await journal.record(desk, [draft], settles=intent)
        reached("effect.recorded")
        return plan

    async def _quiet(self, intent: EffectIntent, limit: float) -> None:
        """Wait, by the store's clock, until no request of the act can be on its way."""
        reached("effect.waiting")
        assert intent.ts is not None
        quiet = intent.ts + timedelta(seconds=limit)
        left = (quiet - await self._now()).total_seconds()
        while left > 0:
            # Only the store's clock counts, and this process's may go at another rate.
            await asyncio.sleep(left)
            left = (quiet - await self._now()).total_seconds()

    async def _now(self) -> datetime:
        """Read the store's clock, as soon as the store can be reached."""
        attempt = 0
        while True:
            try:
                now = (await self._work.store.head(self._work.thread_id)).now
            except StoreUnavailableError:
                if self._journal.hold.past:
                    raise
                await pause(attempt)
                attempt += 1
            else:
                assert now is not None
                return now

    async def _until(
        self, end: asyncio.Future[None], work: Coroutine[Any, Any, T]
    ) -> asyncio.Task[T]:
        """Do work as a task of its own that is cancelled when something else comes first."""
        task = asyncio.create_task(work)
        await first(task, end)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if end.done() and not task.cancelled():
            # What nobody asks for any more need not be reported as lost.
            task.exception()
        return task

    def _begin(self, action: Intend | Recover) -> tuple[Journal, Desk]:
        """Begin an action, unless the run's deadline is over."""
        if self._journal.hold.past:
            raise self._journal.hold.lapse
        return self._journal, self._journal.desk(action.stream, action.node)

    def _effect(self, desk: Desk) -> EffectStep:
        step = self._journal.ledger.planner.graph(desk.stream).node(desk.origin or "").step
        assert is_effect(step)
        return step

    async def _fail(
        self, desk: Desk, error: BaseException, recovering: EffectIntent | None = None
    ) -> Plan | None:
        """Record a Failure. The intent, when there is one, stays open."""
        if self._journal.over:
            return None
        log_failure(self._work.thread_id, desk.origin or "", error)
        failure = failure_of(error)
        if recovering is not None:
            count = 1 + _failures(self._journal.ledger.planner.view(desk.stream))
            if count >= MANY_FAILURES:
                failure = failure.model_copy(
                    update={"message": _call_for_help(recovering, count, failure)}
                )
        return await self._journal.record(desk, [desk.draft(failure)])


async def first(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of some futures is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def timeout_of(effect: EffectStep) -> float | None:
    """Return the seconds that an effector declares for its act, or None.

    Args:
        effect: The effect.

    Raises:
        TypeError: It declares something else than a number.
        ValueError: The number is not positive.
    """
    limit: object = getattr(effect.effector, "timeout", None)
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise TypeError(f"The `timeout` of an effector is {limit!r}. Declare seconds, or None.")
    if not (isfinite(limit) and limit > 0):
        raise ValueError(f"The `timeout` of an effector is {limit!r}. Declare more than 0 seconds.")
    return limit


def _one(desk: Desk, intent: EffectIntent, returned: object, who: str) -> Draft:
    """Return the one event that may settle an intent, or that asks about it."""
    if not isinstance(returned, Sequence) or isinstance(returned, str) or len(returned) != 1:
        raise TypeError(
            f"{who} returned {_told(returned)}. Return a list of one event: the EffectResult of "
            "the intent, or a Request."
        )
    if isinstance(returned[0], Request):
        return desk.drafts(returned, who)[0]
    return _own_result(desk, intent, returned[0], who)


def _own_result(desk: Desk, intent: EffectIntent, returned: object, who: str) -> Draft:
    """Return the result of an intent, with the intent's id in it."""
    if not isinstance(returned, EffectResult):
        raise TypeError(f"{who} returned a {type(returned).__name__}. Return an `EffectResult`.")
    if returned.intent not in {None, intent.id}:
        raise ValueError(
            f"{who} returned the result of the intent {returned.intent!r}, and {intent.id!r} is "
            "the one in progress. Leave `intent` out."
        )
    return desk.draft(stamped(returned, intent=intent.id))


def _told(returned: object) -> str:
    if isinstance(returned, Sequence) and not isinstance(returned, str):
        return f"{len(returned)} events"
    return f"a {type(returned).__name__}"


def _failures(view: Sequence[Event]) -> int:
    """Count the failures since the intent, or since the last response about it."""
    count = 0
    for event in reversed(view):
        if isinstance(event, EffectIntent | Input):
            break
        count += isinstance(event, Failure)
    return count


def _call_for_help(intent: EffectIntent, count: int, failure: Failure) -> str:
    return (
        f"A person must look at this: the intent {intent.id!r} ({intent.kind}) has failed "
        f"{count} times. Ways out are a recovery that returns a Request, a fork before the "
        f"intent, and deleting the thread. The last error: {failure.message}"
    )
