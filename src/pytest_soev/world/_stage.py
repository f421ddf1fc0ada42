"""Stops code in the middle of a step: killed for ever, or frozen and gone on with later.

A step of asyncio cannot be left where it stands, so the loop is driven by a thread. To stop it
there, that thread waits, and another one drives the loop from then on. One thread at a time does
anything, so nothing here is concurrent.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

from pytest_soev.world._errors import WorldError


class Unwound(BaseException):  # no error: it takes a stopped step down at the end
    """Raised where a step was stopped, once the schedule is over."""


class Actor:
    """One thread that drives, or drove, the loop.

    Args:
        act: What the thread does.
    """

    def __init__(self, act: Callable[[Actor], None]) -> None:
        self.driving = True
        self.error: BaseException | None = None
        self.caller: Actor | None = None
        self._gate = threading.Semaphore(0)
        self._thread = threading.Thread(target=act, args=(self,), daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def sleep(self) -> None:
        """Let this thread wait until it is woken."""
        self._gate.acquire()

    def wake(self) -> None:
        """Let the thread go on."""
        self._gate.release()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def is_here(self) -> bool:
        """Whether this thread is the one that asks."""
        return self._thread is threading.current_thread()


class Stage:
    """Drives a loop in threads of its own, one after the other.

    Args:
        loop: The loop.
        drive: Runs the loop's turns until the schedule is over, or the actor drives no more.
        finalize: Closes an asynchronous generator that nobody refers to any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        drive: Callable[[Actor], None],
        finalize: Callable[[Any], None],
    ) -> None:
        self._loop, self._drive, self._finalize = loop, drive, finalize
        self._ended = threading.Semaphore(0)
        self._error: BaseException | None = None
        self.actor: Actor | None = None
        self._held: list[Actor] = []
        self.over = False

    def play(self) -> None:
        """Drive the loop until the schedule is over, and raise what ended it."""
        self._error = None
        self._take_over()
        self._ended.acquire()
        if self._error is not None:
            raise self._error

    def is_driver(self) -> bool:
        """Whether the calling thread is the one that drives the loop now."""
        return self.actor is None or self.actor.is_here()

    def _take_over(self) -> None:
        self.actor = Actor(self._act)
        self.actor.begin()

    def _act(self, actor: Actor) -> None:
        asyncio._set_running_loop(self._loop)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalize)
        error: BaseException | None = None
        try:
            self._drive(actor)
        except BaseException as raised:  # noqa: BLE001  # whoever called `play` gets it
            error = raised
        if actor.driving:
            self._error, self.actor = error, None
            self._ended.release()
        elif actor.caller is not None:
            actor.caller.error = error
            self._hand_back(actor)

    def _hand_back(self, actor: Actor) -> None:
        caller, actor.caller = actor.caller, None
        self.actor = caller
        if caller is not None:
            caller.wake()

    def hold(self) -> None:
        """Stop the calling step here. It returns when the step is gone on with.

        Raises:
            Unwound: The schedule is over.
        """
        actor = self.actor
        if actor is None or not actor.is_here():
            raise WorldError("Only code that the deterministic loop runs can be stopped.")
        task = _swapped(self._loop, None)
        asyncio._set_running_loop(None)
        self._held.append(actor)
        actor.driving = False
        if actor.caller is not None:
            self._hand_back(actor)
        else:
            self._take_over()
        actor.sleep()
        asyncio._set_running_loop(self._loop)
        _swapped(self._loop, task)
        if self.over:
            raise Unwound

    def go_on(self, actor: Actor) -> None:
        """Let a stopped step go on, and return when it has ended or was stopped again."""
        mine = self.actor
        assert mine is not None
        self._held.remove(actor)
        actor.caller, self.actor = mine, actor
        actor.wake()
        mine.sleep()
        if mine.error is not None:
            raise mine.error

    def clear(self) -> None:
        """Take down every step that is still stopped."""
        self.over = True
        while self._held:
            actor = self._held.pop()
            actor.wake()
            actor.join()


def _swapped(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None
) -> asyncio.Task[Any] | None:
    """Make a task the current one of a loop, and return the one before."""
    before = asyncio.current_task(loop)
    if before is not None:
        asyncio.tasks._leave_task(loop, before)
    if task is not None:
        asyncio.tasks._enter_task(loop, task)
    return before
