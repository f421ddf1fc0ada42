"""Strategies: which of the lanes that are ready goes next."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Ready(NamedTuple):
    """A lane that is ready.

    Args:
        lane: Its number, the same for a whole schedule.
        process: The process that it belongs to, with its life.
    """

    lane: int
    process: str


class Strategy(Protocol):
    """Picks what happens next wherever a schedule has a choice."""

    def choose(self, lanes: Sequence[Ready]) -> int:
        """Return the index of the lane that goes on.

        Args:
            lanes: The lanes that are ready, the one that waits longest first, so that 0 is always
                the order of asyncio.
        """
        ...


class Fifo:
    """The order of asyncio's own loop."""

    def choose(self, lanes: Sequence[Ready]) -> int:
        """Return 0."""
        return 0


class Uniform:
    """Each lane that is ready is as likely as the others.

    Args:
        seed: Equal seeds make equal schedules.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, lanes: Sequence[Ready]) -> int:
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

    def choose(self, lanes: Sequence[Ready]) -> int:
        """Return the lane that is ranked first."""
        numbers = [ready.lane for ready in lanes]
        for lane in numbers:
            if lane not in self._ranking:
                self._ranking.insert(self._place(), lane)
        best = min(numbers, key=self._ranking.index)
        if self._choices in self._demotions:
            self._ranking.remove(best)
            self._ranking.append(best)
            best = min(numbers, key=self._ranking.index)
        self._choices += 1
        return numbers.index(best)

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

    def choose(self, lanes: Sequence[Ready]) -> int:
        """Return the recorded answer, or 0 where there is none or it fits no more."""
        at = self._at
        self._at += 1
        if at >= len(self._answers) or self._answers[at] >= len(lanes):
            return 0
        return self._answers[at]


class Steady:
    """One lane goes on for as long as it can, but where an answer lets another one in.

    Few answers then suffice for what takes many in the order of asyncio, in which lanes take
    turns: all of one race in the middle of the other.

    Args:
        answers: The answers in order, 0 for the lane that went last, or else one of its process,
            or else the one that waits longest; the others follow it. Where they end they are 0.
    """

    def __init__(self, answers: Sequence[int] = ()) -> None:
        self._answers, self._at = tuple(answers), 0
        self._last = Ready(-1, "")

    def choose(self, lanes: Sequence[Ready]) -> int:
        """Return the lane that an answer means."""
        answer = self._answers[self._at] if self._at < len(self._answers) else 0
        self._at += 1
        order = sorted(range(len(lanes)), key=lambda place: self._strangeness(lanes[place]))
        chosen = order[answer if answer < len(lanes) else 0]
        self._last = lanes[chosen]
        return chosen

    def _strangeness(self, ready: Ready) -> int:
        return (ready != self._last) + (ready.process != self._last.process)


class Exhaustion:
    """Every list of answers of which at most some are not 0, each of them once.

    Run what `next_answers` gives with `Replay` or `Steady`, and tell `learn` how many lanes each
    choice had.

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
