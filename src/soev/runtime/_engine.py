"""Runs one turn of a thread: plan, do, append, again. It has no rules about order of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from soev.domain import (
    ROOT_STREAM,
    CallSite,
    ChatDelta,
    Ended,
    LeaseLostError,
    NodeName,
    call_site,
    reached,
)
from soev.runtime._actions import (
    Action,
    End,
    Fault,
    HandBack,
    Intend,
    OpenTasks,
    Plan,
    Recover,
    RunStep,
    Trip,
)
from soev.runtime._checks import Desk, Draft, failure_of, log_failure
from soev.runtime._effecting import Effecting
from soev.runtime._handing import Handing, handed_back, opened
from soev.runtime._journal import Journal, Work
from soev.runtime._ledger import Ledger
from soev.runtime._runs import Runs

LONGEST_HOLD: Final = 0.005


class Place(NamedTuple):
    """What a step of one node in one stream needs.

    Args:
        desk: What its events get their envelope from.
        site: Where it is called.
        step: What the node runs.
    """

    desk: Desk
    site: CallSite
    step: Any


class Run:
    """One process executing one turn of one thread, under the thread's lease.

    The run's own asyncio task only waits, so cancelling it never cuts an append: it stops the
    workers at their steps. A worker is one asyncio task per stream.

    Args:
        work: The thread.
        runs: Gives the lease's owner and time, the clock and the ids.
        ledger: The log as far as it was read. It belongs to the run until the run ended.
        turn: The position of the input that opened the turn.
    """

    def __init__(self, work: Work, runs: Runs, ledger: Ledger, turn: int | None) -> None:
        self._work, self._live = work, runs.live
        self._journal = Journal(work, runs, ledger, turn, self)
        self._effects = Effecting(work, self._journal, self, runs.ids)
        self._workers: set[asyncio.Task[None]] = set()
        self._streams: set[str] = set()
        self._acting: set[asyncio.Task[Any]] = set()
        self._places: dict[str, dict[NodeName, Place]] = {}
        self._error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._yielded = self._loop.time()

    @property
    def begun(self) -> bool:
        """Whether the turn was still the current one when the lease was taken."""
        return self._journal.begun

    async def execute(self) -> None:
        """Run the turn until nothing is due, or until the run is stopped.

        Raises:
            LeaseHeldError: Another owner runs the thread.
            LeaseLostError: The lease went to another owner meanwhile.
            CancelledError: The run was stopped. What it had begun to append is stored.
        """
        self._launch(ROOT_STREAM, None)
        stopped = await self._ended(self._workers)
        hold = self._journal.hold
        if not hold.settled:
            closing = {asyncio.create_task(hold.close(give_back=self._trusts_lease()))}
            stopped = await self._ended(closing) or stopped
        if self._error is not None:
            raise self._error
        if stopped:
            raise asyncio.CancelledError

    async def _ended(self, tasks: set[asyncio.Task[None]]) -> bool:
        """Wait for tasks to end, and tell whether the run was asked to stop meanwhile."""
        stopped = False
        while tasks:
            try:
                done, _ = await asyncio.wait(tasks)
            except asyncio.CancelledError:
                # The request is answered by an exception of our own once everything has ended.
                stopped = True
                self.halt()
            else:
                tasks -= done
                for task in done:
                    if not task.cancelled() and (error := task.exception()) is not None:
                        self.fail(error)
        return stopped

    def _trusts_lease(self) -> bool:
        """Whether the lease is this run's to give back, as far as it can know."""
        kept = self._error is None or isinstance(self._error, Exception)
        return kept and not isinstance(self._error, LeaseLostError) and not self._journal.hold.past

    def halt(self) -> None:
        """Let nothing begin any more, and cancel the steps that are in progress."""
        if self._journal.over:
            return
        self._journal.stop()
        for task in self._acting:
            task.cancel()

    def fail(self, error: BaseException) -> None:
        """End the run with an error. The first one counts, and nothing is recorded after it."""
        self._error = self._error or error
        self._journal.seal()
        self.halt()

    # --- one worker per stream ---

    def _launch(self, stream: str, action: Action | None) -> None:
        self._streams.add(stream)
        self._workers.add(asyncio.create_task(self._drive(stream, action)))

    async def _drive(self, stream: str, action: Action | None) -> None:
        """Do what is due in one stream, as long as something is."""
        try:
            if action is None:
                action = await self._begin()
            while not self._journal.over:
                if action is None:
                    action = await self._leave(stream)
                if action is None:
                    break
                action = await self._perform(stream, action)
                # A stream with nothing to do is left at once: what comes next may be due in it.
                if action is not None and self._loop.time() - self._yielded > LONGEST_HOLD:
                    await self._breathe()
        except asyncio.CancelledError:
            # The runtime cancels a worker in its step alone: whoever else did is closing the loop.
            self.halt()
            raise
        except BaseException as error:
            # What breaks one stream, even a dying process, must not let the others write on.
            self.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._streams.discard(stream)
            self._places.pop(stream, None)

    async def _breathe(self) -> None:
        """Let the renewal run: a model that answers at once never gives way by itself."""
        await asyncio.sleep(0)
        self._yielded = self._loop.time()

    async def _leave(self, stream: str) -> Action | None:
        """Let a stream go. The last one that goes brings the run to rest."""
        self._streams.discard(stream)
        if self._streams or self._journal.hold.lease is None:
            return None
        self._streams.add(stream)
        plan = await self._journal.rest()
        return None if plan is None else self._dispatch(plan, stream)

    def alone(self) -> bool:
        """Whether no other stream is being worked in."""
        return len(self._streams) == 1

    def go_on(self, plan: Plan) -> None:
        """Start what a plan finds due where nobody works."""
        self._dispatch(plan)

    def _dispatch(self, plan: Plan, stream: str | None = None) -> Action | None:
        """Start what is due where nobody works, and return what is due in one stream."""
        mine = None
        if self._journal.over:
            return None
        for action in plan.actions:
            due = _stream_of(action)
            if due == stream:
                mine = action
            elif due not in self._streams:
                self._launch(due, action)
        return mine

    async def _perform(self, stream: str, action: Action) -> Action | None:
        plan = await _PERFORMERS[type(action)](self, action)
        return None if plan is None else self._dispatch(plan, stream)

    # --- what a plan asks for ---

    async def _begin(self) -> Action | None:
        plan = await self._journal.begin()
        return None if plan is None else self._dispatch(plan, ROOT_STREAM)

    async def _step(self, action: RunStep) -> Plan | None:
        if self._journal.hold.past:
            raise self._journal.hold.lapse
        place = self._place(action)
        drafts = await self._called(action, place)
        return None if self._journal.over else await self._journal.record(place.desk, drafts)

    async def _called(self, action: RunStep, place: Place) -> list[Draft]:
        """Call a step and return what to record: its events, or a Failure."""
        desk, site, step = place
        view = self._journal.ledger.planner.view(action.stream)
        task = asyncio.current_task()
        assert task is not None
        reached("step.calling")
        token = call_site.set(site)
        self._acting.add(task)
        try:
            return desk.drafts(await step(view))
        except asyncio.CancelledError as error:
            if task.cancelling() and not self._journal.over:
                raise
            return self._failed(action.node, desk, error)
        except Exception as error:  # noqa: BLE001  # a team's own code may raise anything
            return self._failed(action.node, desk, error)
        finally:
            self._acting.discard(task)
            call_site.reset(token)
            if self._journal.over:
                task.uncancel()

    def _failed(self, node: NodeName, desk: Desk, error: BaseException) -> list[Draft]:
        if self._journal.over:
            return []
        log_failure(self._work.thread_id, node, error)
        return [desk.draft(failure_of(error))]

    async def _trip(self, action: Trip) -> Plan | None:
        desk = self._journal.desk(action.stream, action.node)
        return await self._journal.record(desk, [desk.draft(action.event)])

    async def _fault(self, action: Fault) -> Plan | None:
        node = action.failure.origin
        if action.error is not None:
            log_failure(self._work.thread_id, node or "", action.error)
        desk = self._journal.desk(action.stream, node)
        return await self._journal.record(desk, [desk.draft(action.failure)])

    async def _end(self, action: End) -> Plan | None:
        desk = self._journal.desk(ROOT_STREAM, None)
        return await self._journal.record(desk, [desk.draft(Ended())])

    async def _intend(self, action: Intend) -> Plan | None:
        return await self._effects.intend(action)

    async def _recover(self, action: Recover) -> Plan | None:
        return await self._effects.recover(action)

    async def _open(self, action: OpenTasks) -> Plan | None:
        return await self._delegate(action, opened)

    async def _hand_back(self, action: HandBack) -> Plan | None:
        return await self._delegate(action, handed_back)

    async def _delegate(self, action: OpenTasks | HandBack, handing: Handing) -> Plan | None:
        """Record what a delegation makes of its view, or of its tasks."""
        if self._journal.hold.past:
            raise self._journal.hold.lapse
        planner = self._journal.ledger.planner
        desk = self._journal.desk(action.stream, action.node)
        reached("tasks.opening" if handing is opened else "tasks.reporting")
        try:
            delegation: Any = planner.graph(action.stream).node(action.node).step
            drafts = handing(desk, delegation, planner)
        except Exception as error:  # noqa: BLE001  # a team's own code may raise anything
            drafts = self._failed(action.node, desk, error)
        return await self._journal.record(desk, drafts)

    def _place(self, action: RunStep) -> Place:
        """Return what the steps of a node in a stream need, made once."""
        stream, node = action.stream, action.node
        places = self._places.get(stream)
        if places is None:
            places = self._places[stream] = {}
        place = places.get(node)
        if place is None:
            step = self._journal.ledger.planner.graph(stream).node(node).step
            heard = partial(self._heard, stream, node)
            site = CallSite(self._work.thread_id, self._work.agent, stream, node, heard)
            place = places[node] = Place(self._journal.desk(stream, node), site, step)
        return place

    def _heard(self, stream: str, node: NodeName, delta: ChatDelta) -> None:
        """Pass a piece of an answer on to those who listen."""
        position = self._journal.ledger.position
        self._live.tell(self._work.thread_id, stream, node, position, delta)


def _stream_of(action: Action) -> str:
    return ROOT_STREAM if isinstance(action, End) else action.stream


_PERFORMERS: Final[dict[type, Callable[[Run, Any], Awaitable[Plan | None]]]] = {
    RunStep: Run._step,
    Intend: Run._intend,
    Recover: Run._recover,
    OpenTasks: Run._open,
    HandBack: Run._hand_back,
    Trip: Run._trip,
    Fault: Run._fault,
    End: Run._end,
}
