"""Which simulated process code runs in."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final


@dataclass(eq=False, slots=True)
class Life:
    """One life of a process, from its start to its end. A restart begins another one.

    Args:
        name: The process.
        number: Which life it is, from 1.
        offset: How far its clock is ahead of the world's, in seconds.
        rate: How fast its clock goes, 1 for right.
        mortal: Whether named points in it are counted and may strike.
        held: The thread of the step that was stopped in its middle, if one was.
    """

    name: str
    number: int = 1
    offset: float = 0.0
    rate: float = 1.0
    mortal: bool = True
    dead: bool = False
    frozen: bool = False
    held: Any = None

    @property
    def running(self) -> bool:
        """Whether its code may go on."""
        return not (self.dead or self.frozen)

    def local(self, seconds: float) -> float:
        """Return what its own clock shows at a moment of the world's."""
        return self.offset + self.rate * seconds

    def shared(self, seconds: float) -> float:
        """Return the moment of the world's clock at which its own shows this."""
        return (seconds - self.offset) / self.rate

    def __str__(self) -> str:
        return self.name if self.number == 1 else f"{self.name}#{self.number}"


OUTSIDE: Final = Life("outside", mortal=False)
STORE: Final = Life("store", mortal=False)

current_life: ContextVar[Life] = ContextVar("current_life", default=OUTSIDE)
"""The process that code runs in. Tasks inherit it from the task that made them."""
