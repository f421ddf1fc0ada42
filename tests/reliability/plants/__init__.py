"""Bugs that are planted on purpose. Each names the rule that it breaks."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Plant:
    """One planted bug.

    Args:
        rule: The rule that it breaks, such as `I3`.
        name: Its short name.
        bug: What is wrong with it there, in a sentence.
        plant: Plants it.
    """

    rule: str
    name: str
    bug: str
    plant: Callable[[Patch], None]


def breaks(rule: str) -> Callable[[Callable[[Patch], None]], Plant]:
    """Make a planted bug of a function that patches the code.

    Args:
        rule: The rule that it breaks.
    """

    def made(plant: Callable[[Patch], None]) -> Plant:
        bug = " ".join((plant.__doc__ or "").split()).rstrip(".")
        return Plant(rule, plant.__name__, bug, plant)

    return made
