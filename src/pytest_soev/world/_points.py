"""Counts the named points and store calls of a schedule, and says which fault strikes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_soev.world._plans import Fault


@dataclass(slots=True)
class Counting:
    """How often each name came, and the faults that wait for one.

    Args:
        faults: The faults.
    """

    faults: Sequence[Fault]
    names: Counter[str] = field(default_factory=Counter)
    passed: list[str] = field(default_factory=list)

    def next(self, name: str, who: str) -> Fault | None:
        """Count a point or a call, and return the fault that strikes it.

        Args:
            name: The point, or the store operation.
            who: The process.
        """
        self.names[name] += 1
        self.passed.append(f"{who}:{name}")
        count, total = self.names[name], len(self.passed)
        return next((each for each in self.faults if each.strikes(name, count, total)), None)

    def peek(self, name: str) -> Fault | None:
        """Return the fault that would strike the next call of a name, and count nothing.

        Args:
            name: The store operation.
        """
        count, total = self.names[name] + 1, len(self.passed) + 1
        return next((each for each in self.faults if each.strikes(name, count, total)), None)
