"""Streams that are left before their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class closing(Generic[T]):  # named as contextlib names its own
    """Close a stream when it is left, where it can be closed, as a generator can.

    Left alone it would hold what it reads from until the event loop finds it. `aclosing` of the
    standard library asks for an `aclose`, which an iterator need not have.

    Args:
        stream: The stream.
    """

    def __init__(self, stream: AsyncIterator[T]) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._stream

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()
