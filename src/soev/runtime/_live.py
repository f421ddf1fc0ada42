"""Text as models write it, on its way to those who read a run of this process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from soev.domain import ROOT_STREAM, ChatDelta, NodeName

MOST_BEHIND: Final = 1_000


@dataclass(frozen=True, slots=True)
class LiveDelta(ChatDelta):
    """A piece of a model's answer as it is written, citation marks resolved, and where.

    Args:
        text: The piece of text.
        reasoning: The piece of reasoning.
        stream: The stream of the step that asks the model.
        node: The node of that step.
    """

    stream: str = ROOT_STREAM
    node: NodeName = ""


class Listener:
    """What one reader has not taken yet of a run's text, each piece with the position before it.

    A reader that is too far behind misses pieces, so that it never holds the run up.
    """

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, LiveDelta]] = deque()
        self._bell: asyncio.Future[None] | None = None

    def hear(self, position: int, piece: LiveDelta) -> None:
        """Keep a piece for the reader, unless the reader is too far behind.

        Args:
            position: The thread's last position when the piece came.
            piece: The piece.
        """
        if len(self._pieces) < MOST_BEHIND:
            self._pieces.append((position, piece))
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def up_to(self, position: int) -> Iterator[LiveDelta]:
        """Yield, and forget, the pieces that came no later than the entry at a position.

        Args:
            position: The position of that entry.
        """
        while self._pieces and self._pieces[0][0] <= position:
            yield self._pieces.popleft()[1]

    def waits_for(self, position: int) -> bool:
        """Whether the next piece came after entries that are not read yet.

        Args:
            position: The position of the last entry that was read.
        """
        return bool(self._pieces) and self._pieces[0][0] > position

    def bell(self) -> asyncio.Future[None]:
        """Return what is done once there is a piece."""
        self._bell = asyncio.get_running_loop().create_future()
        if self._pieces:
            self._bell.set_result(None)
        return self._bell


class LiveText:
    """The listeners of a process's runs, by thread."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}

    @contextmanager
    def listening(self, thread_id: str) -> Iterator[Listener]:
        """Listen to a thread's runs, the one that runs already too.

        Args:
            thread_id: The thread.
        """
        listener = Listener()
        listeners = self._listeners.setdefault(thread_id, [])
        listeners.append(listener)
        try:
            yield listener
        finally:
            listeners.remove(listener)
            if not listeners and self._listeners.get(thread_id) is listeners:
                del self._listeners[thread_id]

    def tell(
        self, thread_id: str, stream: str, node: NodeName, position: int, delta: ChatDelta
    ) -> None:
        """Hand a piece of an answer to everybody who listens to a thread.

        Args:
            thread_id: The thread.
            stream: The stream of the step.
            node: The node of the step.
            position: The thread's last position.
            delta: The piece.
        """
        listeners = self._listeners.get(thread_id)
        if listeners:
            piece = LiveDelta(delta.text, delta.reasoning, stream, node)
            for listener in listeners:
                listener.hear(position, piece)
