"""What asyncio asks of an event loop and no schedule depends on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, TypeVar

from pytest_soev.world._refusals import Refusals

T = TypeVar("T")


class NumberedTask(asyncio.Task[T]):
    """A task whose hash is its number: asyncio cancels and waits for sets of tasks in hash order.

    Args:
        coro: The coroutine.
        loop: The loop, which numbers its tasks.
        options: As for any task.
    """

    def __init__(self, coro: Any, *, loop: Surface, **options: Any) -> None:
        self._number = next(loop.task_numbers)
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[T]):
    """A future whose hash is its number, for the same reason.

    Args:
        loop: The loop, which numbers its futures.
    """

    def __init__(self, *, loop: Surface) -> None:
        self._number = next(loop.future_numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class Surface(Refusals):
    """The settings of an event loop, and what nobody handles."""

    def __init__(self) -> None:
        self.complaints: list[dict[str, Any]] = []
        self.closed = False
        self.task_numbers: Iterator[int] = itertools.count(1)
        self.future_numbers: Iterator[int] = itertools.count(1)
        self._factory: Any = None
        self._handler: Any = None

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return NumberedFuture(loop=self)

    def set_task_factory(self, factory: Any) -> None:
        """Use a factory for tasks, such as asyncio's eager one."""
        self._factory = factory

    def get_task_factory(self) -> Any:
        """Return the factory for tasks."""
        return self._factory

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note what nobody handles, for the end of the schedule."""
        if self.closed:
            return
        if self._handler is not None:
            self._handler(self, context)
        else:
            self.complaints.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Note what nobody handles, for the end of the schedule."""
        self.complaints.append(context)

    def set_exception_handler(self, handler: Any) -> None:
        """Give what nobody handles to a handler."""
        self._handler = handler

    def get_exception_handler(self) -> Any:
        """Return the handler of what nobody handles."""
        return self._handler

    def get_debug(self) -> bool:
        """Return False: the debug mode measures real time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators that are left over go with the schedule."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there are no threads."""
