"""Where a task waits, for reports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Any

from pytest_soev.world._lives import Life


def stack_of(task: asyncio.Task[Any], life: Life) -> str:
    """Return a task's name, its process, and the line of each await that it is in.

    Args:
        task: The task.
        life: Its process.
    """
    places = " > ".join(_places(task.get_coro())) or "not begun"
    return f"{task.get_name()} in {life}: {places}"


def _places(waiting: object) -> Iterator[str]:
    """Yield the places of a chain of awaits, the outermost first."""
    for _ in range(100):
        frame = _first(waiting, "cr_frame", "ag_frame", "gi_frame")
        if not isinstance(frame, FrameType):
            return
        code = frame.f_code
        yield f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
        waiting = _first(waiting, "cr_await", "ag_await", "gi_yieldfrom")


def _first(thing: object, *names: str) -> object:
    for name in names:
        value: object = getattr(thing, name, None)
        if value is not None:
            return value
    return None
