"""The threads that own SQLite connections: queues, group commit, forks."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakSet

from soev.adapters._database import Broken, Database, File, driver_errors, roll_back
from soev.domain import OutcomeUnknownError, StoreError, StoreUnavailableError

T = TypeVar("T")
GROUP = 64
PAUSE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Job(Generic[T]):
    """A call of the store on its way to the thread that owns the connection."""

    operation: str
    thread_id: str
    work: Callable[[Database], T]
    future: asyncio.Future[T]

    def refusal(self, broken: Broken) -> StoreError:
        """Return the store's answer to a failure of SQLite."""
        if broken.sent:
            return OutcomeUnknownError(self.thread_id, self.operation, broken.reason)
        return StoreUnavailableError(self.operation, broken.reason)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job came to: an answer or an error."""

    answer: Any = None
    error: Exception | None = None

    def deliver(self, future: asyncio.Future[Any]) -> None:
        """Hand it to who waits, unless nobody does any more."""
        if future.done():
            return
        if self.error is None:
            future.set_result(self.answer)
        else:
            future.set_exception(self.error)


class Worker:
    """A thread that owns one connection and runs the calls that are queued for it.

    Calls that wait at the same time share one transaction, and each gets its own answer. A call
    that the store refuses has written nothing, so it does not disturb the others.

    Args:
        file: The file to connect to, at the first call.
        mode: Whether the connection writes.
        changed: Called with the id of each thread whose log a commit changed.
    """

    def __init__(
        self, file: File, mode: Literal["read", "write"], changed: Callable[[str], None]
    ) -> None:
        self._file, self._mode, self._changed = file, mode, changed
        self._begin = "BEGIN IMMEDIATE" if mode == "write" else "BEGIN"
        self._database: Database | None = None
        self._closed = False
        self.reset()
        _WORKERS.add(self)

    def reset(self) -> None:
        """Begin without a thread, a queue and locks, as in a process that was just forked."""
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._working = threading.Lock()

    def submit(self, operation: str, thread_id: str, work: Callable[[Database], T]) -> Job[T]:
        """Queue a call. Its answer arrives in the running event loop.

        Raises:
            StoreUnavailableError: The store is closed.
        """
        if self._closed:
            raise StoreUnavailableError(operation, "the store is closed")
        job = Job(operation, thread_id, work, asyncio.get_running_loop().create_future())
        self._queue.put(job)
        if self._thread is None:
            self._start()
        return job

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name=f"soev-sqlite-{self._mode}", daemon=True
                )
                self._thread.start()

    async def stopped(self) -> None:
        """Take no more calls, answer those that wait, and close the connection."""
        closed, self._closed = self._closed, True
        if not closed and self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    def abandon(self) -> None:
        """Close the connection of a store that was left open, without an event loop."""
        if not self._closed and self._thread is not None:
            self._closed = True
            self._queue.put(None)
            if _at_rest():
                self._thread.join(self._file.patience)

    def pause(self) -> None:
        """Close the connection between two transactions and start none until `go_on`."""
        self._working.acquire()
        self._discard()

    def go_on(self) -> None:
        """Let transactions start again."""
        self._working.release()

    def _serve(self) -> None:
        while self._serve_waiting():
            pass

    def _serve_waiting(self) -> bool:
        """Serve the calls that wait, and tell whether more may come. Keep nothing of them."""
        jobs, stopped = self._waiting()
        with self._working:
            outcomes = self._run(jobs)
            if stopped:
                self._discard()
        answer(jobs, outcomes)
        return not stopped

    def _waiting(self) -> tuple[list[Job[Any]], bool]:
        jobs: list[Job[Any]] = []
        job = self._queue.get()
        with suppress(Empty):
            while job is not None:
                jobs.append(job)
                if len(jobs) == GROUP:
                    break
                job = self._queue.get_nowait()
            else:
                return jobs, True
        return jobs, False

    def _run(self, jobs: Sequence[Job[Any]]) -> list[Outcome]:
        """Run calls in one transaction, or each in its own when one of them breaks it."""
        if not jobs:
            return []
        try:
            return self._transact(jobs)
        except Broken as broken:
            self._discard()
            if broken.sent or len(jobs) == 1:
                return [Outcome(error=job.refusal(broken)) for job in jobs]
        except Exception as error:  # noqa: BLE001 -- a fault in one call must not end the thread
            if len(jobs) == 1:
                return [Outcome(error=error)]
        return [outcome for job in jobs for outcome in self._run([job])]

    def _transact(self, jobs: Sequence[Job[Any]]) -> list[Outcome]:
        if self._database is None:
            self._database = self._patiently(lambda: self._file.open(self._mode))
        database = self._database
        self._patiently(lambda: database.execute(self._begin))
        try:
            with driver_errors():
                outcomes = [_attempt(job, database) for job in jobs]
            with driver_errors(sent=self._mode == "write"):
                database.execute("COMMIT")
        except BaseException:
            database.forget()
            raise
        self._settle(database)
        return outcomes

    def _patiently(self, work: Callable[[], T]) -> T:
        """Try again while another connection is in the way, also where SQLite does not wait."""
        deadline = time.monotonic() + self._file.patience
        while True:
            try:
                with driver_errors():
                    return work()
            except Broken as broken:
                if not broken.busy or time.monotonic() >= deadline:
                    raise
            threading.Event().wait(PAUSE)

    def _settle(self, database: Database) -> None:
        """Do what follows a commit: clean the log of deleted pages, and wake who waits."""
        if database.scrub or database.overdue:
            database.clean(self._file.patience)
        for thread_id in database.touched:
            self._changed(thread_id)
        database.touched.clear()

    def _discard(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            roll_back(database.connection)
            with suppress(sqlite3.Error):
                database.connection.close()


def _at_rest() -> bool:
    """Tell whether this thread may wait: not a worker's own, and not one that runs a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return threading.current_thread() is threading.main_thread()
    return False


def _attempt(job: Job[Any], database: Database) -> Outcome:
    try:
        return Outcome(job.work(database))
    except StoreError as refused:
        return Outcome(error=refused)


def answer(jobs: Sequence[Job[Any]], outcomes: Sequence[Outcome]) -> None:
    """Hand each outcome to its event loop, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        loops.setdefault(job.future.get_loop(), []).append((job.future, outcome))
    for loop, answers in loops.items():
        with suppress(RuntimeError):  # the loop is closed, so nobody waits in it any more
            loop.call_soon_threadsafe(_deliver, answers)


def _deliver(answers: Sequence[tuple[asyncio.Future[Any], Outcome]]) -> None:
    for future, outcome in answers:
        outcome.deliver(future)


# SQLite's locks belong to a process, and its library remembers them across a fork, so no
# connection may be open while a process forks.
_WORKERS: WeakSet[Worker] = WeakSet()
_paused: list[Worker] = []


def _before_fork() -> None:
    _paused[:] = _WORKERS
    for worker in _paused:
        worker.pause()


def _after_fork_in_parent() -> None:
    for worker in _paused:
        worker.go_on()
    _paused.clear()


def _after_fork_in_child() -> None:
    for worker in _paused:
        worker.reset()
    _paused.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
