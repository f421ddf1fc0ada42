"""The plan of one crash, and the points at which it can happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pytest_soev.harness._errors import NotReachedError, ProcessCrash

EFFECT_POINTS: Final = (
    "effect.intending",
    "effect.intended",
    "effect.performing",
    "world.sending",
    "world.changed",
    "world.answered",
    "effect.performed",
    "effect.recorded",
)
"""The named points that an effect passes, in their order: before its intent is recorded, before,
in and after the act, and after its result was recorded."""


class CrashPlan:
    """At which named point the process dies, once."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._point: str | None = None
        self._time, self._count = 1, 0

    def at(self, point: str, time: int = 1) -> None:
        """Let the process die at a named point.

        Args:
            point: The point, such as `effect.performed`, or another one of `EFFECT_POINTS`.
            time: Which passing of the point from now on it dies at, from 1.

        Raises:
            ValueError: The time is not at least 1.
        """
        if time < 1:
            raise ValueError(f"A point is not passed for time {time}. Count from 1.")
        self._point, self._time, self._count = point, time, 0

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Expect the crash in the block.

        Raises:
            NotReachedError: It did not happen.
        """
        __tracebackhide__ = True
        try:
            yield
        except ProcessCrash:
            return
        point, self._point = self._point, None
        raise NotReachedError(point or "(none: call `crash.at` first)", self._time, self._seen())

    def _seen(self) -> tuple[str, ...]:
        return tuple(self.passed)

    def strikes(self, point: str) -> bool:
        """Note that a point was reached, and tell whether the process dies there.

        Args:
            point: The point.
        """
        self.passed.append(point)
        if point != self._point:
            return False
        self._count += 1
        if self._count < self._time:
            return False
        self._point = None
        return True

    def check(self) -> None:
        """Hold the plan to what happened, at the end of a test.

        Raises:
            NotReachedError: A crash was planned and did not happen.
        """
        if self._point is not None:
            raise NotReachedError(self._point, self._time, self._seen())

    def __repr__(self) -> str:
        where = "no crash" if self._point is None else f"{self._point!r}, time {self._time}"
        return f"CrashPlan({where})"
