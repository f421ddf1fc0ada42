"""Which lines differ between two texts, at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

MAX_WORK = 400_000


@dataclass(frozen=True, slots=True)
class Hunk:
    """A run of lines that is replaced by another.

    Args:
        start: Its first line in the old text, 0-based.
        removed: The lines of the old text.
        added: The lines of the new text.
        before: The line before it, if any.
        after: The line after it, if any.
    """

    start: int
    removed: tuple[str, ...]
    added: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


@lru_cache(maxsize=256)
def hunks(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[Hunk, ...]:
    """Return what turns one text into the other, as few hunks as a reader can judge apart."""
    found = []
    for start, stop, begin, end in _joined(old, spans(old, new)):
        before, after = old[max(start - 1, 0) : start], old[stop : stop + 1]
        found.append(Hunk(start, old[start:stop], new[begin:end], before, after))
    return tuple(found)


Span = tuple[int, int, int, int]


def spans(old: Sequence[Any], new: Sequence[Any]) -> Iterator[Span]:
    """Yield the runs of items that differ, as `old[a:b]` against `new[c:d]`.

    What both begin and end with is set aside first. When the rest is too large to align, it is
    one run.

    Args:
        old: Hashable items.
        new: Hashable items.
    """
    first, last = _same_edges(old, new)
    stop, end = len(old) - last, len(new) - last
    if first == stop and first == end:
        return
    if (stop - first) * (end - first) > MAX_WORK:
        yield first, stop, first, end
        return
    matcher = SequenceMatcher(None, old[first:stop], new[first:end], autojunk=False)
    for tag, *span in matcher.get_opcodes():
        if tag != "equal":
            a, b, c, d = (first + place for place in span)
            yield a, b, c, d


def _same_edges(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    most = min(len(old), len(new))
    first = 0
    while first < most and old[first] == new[first]:
        first += 1
    last = 0
    while last < most - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


def _joined(old: tuple[str, ...], found: Iterator[Span]) -> list[Span]:
    """Join runs that only blank lines keep apart: a reader sees one edit there."""
    joined: list[Span] = []
    for span in found:
        if joined and not any(old[joined[-1][1] : span[0]]):
            joined[-1] = (joined[-1][0], span[1], joined[-1][2], span[3])
        else:
            joined.append(span)
    return joined
