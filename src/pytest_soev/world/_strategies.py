"""Strategies: which of the lanes that are ready goes next."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Strategy(Protocol):
    """Picks what happens next wherever a schedule has a choice."""

    def choose(self, lanes: Sequence[int]) -> int:
        """Return the index of the lane that goes on.

        Args:
            lanes: The numbers of the lanes that are ready, the one that waits longest first, so
                that 0 is always the order of asyncio. A lane keeps its number for a whole schedule.
        """
        ...


class Fifo:
    """The order of asyncio's own loop."""

    def choose(self, lanes: Sequence[int]) -> int:
        """Return 0."""
        return 0


class Uniform:
    """Each lane that is ready is as likely as the others.

    Args:
        seed: Equal seeds make equal schedules.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, lanes: Sequence[int]) -> int:
        """Return a random index."""
        return self._random.randrange(len(lanes))


class Priorities:
    """The lane with the highest priority goes on; at some choices the one that would is put last.

    This is the plan of a PCT schedule. A property test draws it in place of a seed, because it
    shrinks to one swap of two priorities.

    Args:
        order: For each lane in the order of its first choice, where it is put among the lanes
            before it: 0 in front of all. Lanes beyond it are put last.
        demotions: The choices, counted from 0, at which the lane in front is put last.
    """

    def __init__(self, order: Sequence[int] = (), demotions: Sequence[int] = ()) -> None:
        self._order, self._demotions = tuple(order), frozenset(demotions)
        self._ranking: list[int] = []
        self._seen = self._choices = 0

    def choose(self, lanes: Sequence[int]) -> int:
        """Return the lane that is ranked first."""
        for lane in lanes:
            if lane not in self._ranking:
                self._ranking.insert(self._place(), lane)
        best = min(lanes, key=self._ranking.index)
        if self._choices in self._demotions and len(lanes) > 1:
            self._ranking.remove(best)
            self._ranking.append(best)
            best = min(lanes, key=self._ranking.index)
        self._choices += 1
        return lanes.index(best)

    def _place(self) -> int:
        drawn = self._order[self._seen] if self._seen < len(self._order) else len(self._ranking)
        self._seen += 1
        return min(drawn, len(self._ranking))


class Pct(Priorities):
    """Random priorities with few random demotions: finds a bug of a small depth with known odds.

    Args:
        seed: Equal seeds make equal schedules.
        depth: How many orderings the bug needs; there are `depth - 1` demotions.
        choices: About how many choices a schedule has.
        lanes: The most lanes that get a random priority.
    """

    def __init__(self, seed: int, *, depth: int = 3, choices: int = 60, lanes: int = 32) -> None:
        draw = random.Random(seed)
        order = [draw.randint(0, place) for place in range(lanes)]
        super().__init__(order, [draw.randrange(max(choices, 1)) for _ in range(depth - 1)])


class Replay:
    """The answers of an earlier schedule, then the order of asyncio.

    Args:
        answers: The answers, in order.
    """

    def __init__(self, answers: Sequence[int]) -> None:
        self._answers, self._at = tuple(answers), 0

    def choose(self, lanes: Sequence[int]) -> int:
        """Return the recorded answer, or 0 where there is none or it fits no more."""
        at = self._at
        self._at += 1
        if at >= len(self._answers) or self._answers[at] >= len(lanes):
            return 0
        return self._answers[at]


class Exhaustion:
    """Every schedule that leaves the order of asyncio at most some times, each of them once.

    Run what `next_answers` gives with `Replay`, and tell `learn` how many lanes each choice had.

    Args:
        deviations: The most answers that are not 0.
    """

    def __init__(self, deviations: int) -> None:
        self._deviations = deviations
        self._prefixes: list[tuple[int, ...]] = [()]
        self._running: tuple[int, ...] = ()

    @property
    def exhausted(self) -> bool:
        """Whether no schedule is left."""
        return not self._prefixes

    def next_answers(self) -> tuple[int, ...]:
        """Return the answers of the next schedule. There must be one left."""
        self._running = self._prefixes.pop()
        return self._running

    def learn(self, widths: Sequence[int]) -> None:
        """Note what the schedule that just ran could have done otherwise.

        Args:
            widths: How many lanes were ready at each choice, the first one first.
        """
        prefix = self._running
        if sum(answer != 0 for answer in prefix) >= self._deviations:
            return
        for at in range(len(widths) - 1, len(prefix) - 1, -1):
            zeros = (0,) * (at - len(prefix))
            self._prefixes += [(*prefix, *zeros, other) for other in range(widths[at] - 1, 0, -1)]
