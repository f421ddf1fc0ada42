"""Runs a turn in this process, or joins the run that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from soev.domain import Trace, UnknownThreadError
from soev.runtime._engine import Run
from soev.runtime._journal import Work
from soev.runtime._ledger import Ledger
from soev.runtime._runs import Runs

Check = Callable[[int | None], None]


async def run_turn(work: Work, runs: Runs, check: Check, fresh: int | None = None) -> Trace:
    """Run the current turn until nothing is due that was in the log when this was called.

    Args:
        work: The thread.
        runs: This process's runs. A run of the same turn is joined, one of another awaited.
        check: Refuses a turn that the graph was not built for, by its opening position.
        fresh: The position of an input that the caller has just recorded, for a turn that nobody
            runs yet, as far as it knows.

    Returns:
        The thread's trace.

    Raises:
        LeaseHeldError: Another process runs the thread.
        GraphMismatchError: The graph does not fit the log.
    """
    ledger = Ledger(work.thread_id, work.graph, work.types)
    if fresh is not None and await _run_fresh(work, runs, ledger, fresh):
        return ledger.trace
    await ledger.catch_up(work.store)
    turn, called_at = ledger.turn, ledger.position
    settled = turn is None
    if not settled:
        check(turn)
    while not settled:
        settled = await _run_or_join(work, runs, ledger, called_at)
        if not ledger.at_rest:
            await ledger.catch_up(work.store)
        settled = settled or ledger.turn != turn
    return ledger.trace


@asynccontextmanager
async def running_turn(
    work: Work, runs: Runs, check: Check, fresh: int | None = None
) -> AsyncGenerator[asyncio.Task[Trace], None]:
    """Run or join a turn beside a reader. The run goes on when its reader leaves.

    Args:
        work: The thread.
        runs: This process's runs.
        check: As in `run_turn`.
        fresh: As in `run_turn`.

    Raises:
        Exception: What ended the run, at the end.
    """
    caller = asyncio.create_task(run_turn(work, runs, check, fresh))
    try:
        yield caller
        await caller
    finally:
        caller.cancel()
        await asyncio.wait((caller,))
        # A reader that has gone is told of no error, and asyncio need not report it as lost.
        _ = caller.cancelled() or caller.exception()


async def _run_fresh(work: Work, runs: Runs, ledger: Ledger, turn: int) -> bool:
    """Run a turn that was just opened, and tell whether nothing more is to be done for the caller.

    Something is due in it, so the lease is taken first, and all is read once, under it.
    """
    if runs.task(work.thread_id) is not None:
        return False
    run = Run(work, runs, ledger, turn)
    task = runs.start(work.thread_id, run.execute, turn)
    if task is None:
        return False
    try:
        stopped = await _stopped(task)
    except UnknownThreadError:
        # Deleted before anything of it was read: that is answered as ever.
        if ledger.position:
            raise
        return False
    if not ledger.at_rest:
        await ledger.catch_up(work.store)
    return stopped or run.begun


async def _run_or_join(work: Work, runs: Runs, ledger: Ledger, called_at: int) -> bool:
    """Run or join once, and tell whether nothing more is to be done for the caller."""
    running = runs.task(work.thread_id)
    if running is None:
        if runs.closed or not ledger.plan(called_at).actions:
            return True
        task = runs.start(work.thread_id, Run(work, runs, ledger, ledger.turn).execute, ledger.turn)
        if task is not None:
            await _stopped(task)
        return True
    if runs.turn(work.thread_id) != ledger.turn:
        await asyncio.wait((running,))
        return False
    return await _stopped(running)


async def _stopped(task: asyncio.Task[object]) -> bool:
    """Wait for a run without owning it, and tell whether it was stopped. Raises what it raised."""
    await asyncio.wait((task,))
    if task.cancelled():
        return True
    task.result()
    return False
