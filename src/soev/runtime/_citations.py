"""Reads citation marks out of text, whole or as it is written."""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from soev.domain import Citation
from soev.runtime._context import CitationStrategy
from soev.runtime._numbering import Numbering

_INTEGER = re.compile(r"[0-9]+")
_LONGEST = 18
_FLAGS = (
    (re.IGNORECASE, regex.IGNORECASE),
    (re.MULTILINE, regex.MULTILINE),
    (re.DOTALL, regex.DOTALL),
    (re.VERBOSE, regex.VERBOSE),
    (re.ASCII, regex.ASCII),
)


@lru_cache(maxsize=64)
def _prefixes(pattern: re.Pattern[str]) -> regex.Pattern[str]:
    """Return the pattern for a matcher that also tells beginnings of a match."""
    flags = 0
    for ours, theirs in _FLAGS:
        flags |= theirs if pattern.flags & ours else 0
    return regex.compile(pattern.pattern, flags)


class CitationReader:
    """Takes the marks out of one text that comes in pieces.

    What it returns never has to be taken back: spaces, and what may become a mark, are held until
    it is clear. However the text is cut, the pieces join to the same clean text.

    Args:
        strategy: How marks look.
        numbering: The numbers that the model was shown.
    """

    def __init__(self, strategy: CitationStrategy, numbering: Numbering) -> None:
        self._strategy, self._numbering = strategy, numbering
        self._open = re.compile(f"[{re.escape(strategy.opens)}]")
        self._held = ""
        self._passed = 0
        self._length = 0
        self._citations: list[Citation] = []

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The marks so far, by their places in the clean text."""
        return tuple(self._citations)

    def feed(self, piece: str) -> str:
        """Take the next piece and return the clean text that is certain now."""
        self._held += piece
        return self._advance(last=False)

    def close(self) -> str:
        """Return the clean text that is still held, since no more follows."""
        return self._advance(last=True)

    def _advance(self, *, last: bool) -> str:
        clean: list[str] = []
        while (found := self._open.search(self._held, self._passed)) is not None:
            start = found.start()
            mark = self._strategy.pattern.match(self._held, start)
            if mark is not None and mark.end() > start:
                clean.append(self._cite(start, mark.end()))
            elif not last and self._may_begin(start):
                self._passed = start
                break
            else:
                self._passed = start + 1
        else:
            self._passed = len(self._held)
        stop = len(self._held) if last else len(self._held[: self._passed].rstrip(" "))
        clean.append(self._release(stop, stop))
        return "".join(clean)

    def _may_begin(self, start: int) -> bool:
        prefixes = _prefixes(self._strategy.pattern)
        return prefixes.match(self._held, start, partial=True) is not None

    def _cite(self, start: int, stop: int) -> str:
        """Release the text before a mark, and record the mark."""
        text = len(self._held[:start].rstrip(" "))
        mark, written = self._held[start:stop], self._held[text:stop]
        clean = self._release(text, stop)
        ids = _sources(mark, self._numbering)
        self._citations.append(Citation(at=self._length, ids=ids, invalid=None if ids else written))
        return clean

    def _release(self, stop: int, rest: int) -> str:
        clean, self._held = self._held[:stop], self._held[rest:]
        self._length += len(clean)
        self._passed = max(self._passed - rest, 0)
        return clean


def _sources(mark: str, numbering: Numbering) -> tuple[str, ...]:
    """Return the real ids of the sources that a mark names, each once."""
    numbers = [int(digits) for digits in _INTEGER.findall(mark) if len(digits) <= _LONGEST]
    ids = (numbering.source(number) for number in numbers)
    return tuple(dict.fromkeys(each for each in ids if each is not None))


def read_citations(
    text: str, strategy: CitationStrategy, numbering: Numbering
) -> tuple[str, tuple[Citation, ...]]:
    """Take the marks out of a text.

    Args:
        text: What a model wrote.
        strategy: How marks look.
        numbering: The numbers that the model was shown.

    Returns:
        The clean text, and the citations by their places in it.
    """
    reader = CitationReader(strategy, numbering)
    clean = reader.feed(text) + reader.close()
    return clean, reader.citations
