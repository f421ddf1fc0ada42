"""What one model call receives, and how its citations are written and read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from soev.domain import ChatRequest, Trace
from soev.runtime._numbering import Numbering


def note_invalid(mark: str) -> str:
    """Return a mark that named no source, with a note that says so.

    Args:
        mark: The mark as the model wrote it, with the spaces before it.
    """
    return f"{mark} (this mark named no source)"


@dataclass(frozen=True, slots=True)
class CitationStrategy:
    """How a model is told to cite, and how its marks are read.

    Args:
        pattern: Matches one complete mark, and nothing shorter or longer at the same place. Each
            integer in a match is a cited number.
        opens: The characters that a mark can start with. Streamed text is held back from each of
            them until it is clear whether a mark follows.
        write: Writes a mark for numbers.
        write_invalid: Gets a mark that named no source, with the spaces before it, and returns
            what a model is shown in its place. The default adds a note.

    Raises:
        ValueError: `opens` is empty, or the pattern matches an empty text.
    """

    pattern: re.Pattern[str]
    opens: str
    write: Callable[[Sequence[int]], str]
    write_invalid: Callable[[str], str] = note_invalid

    def __post_init__(self) -> None:
        """Refuse a strategy whose marks could not be found."""
        if not self.opens:
            raise ValueError("`opens` is empty: name each character that a mark can start with.")
        if self.pattern.match(""):
            raise ValueError(
                f"The pattern {self.pattern.pattern!r} matches an empty text. Let it match whole "
                "marks alone."
            )


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What one model call receives, and what its answer is read with.

    Args:
        request: The messages and tools that are sent.
        model: The model that is asked: the request's, or the adapter's own.
        citations: How marks in the answer are read, or None to leave the text as it is.
        numbering: The numbers and handles that the model is shown.
    """

    request: ChatRequest
    model: str
    citations: CitationStrategy | None
    numbering: Numbering


ContextBuilder = Callable[[Trace], ModelContext]
