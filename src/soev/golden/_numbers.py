"""Numbers as reports write them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as a list with ranges: `1, 2, 5-9`."""
    runs: list[str] = []
    for _, group in groupby(enumerate(sorted(set(numbers))), key=_distance):
        run = [number for _, number in group]
        pair = len(run) == 2  # noqa: PLR2004  # two numbers read better as a list
        runs += [str(number) for number in run] if pair else [_run(run)]
    return ", ".join(runs)


def _distance(numbered: tuple[int, int]) -> int:
    place, number = numbered
    return number - place


def _run(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: `1 call`, `12 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
