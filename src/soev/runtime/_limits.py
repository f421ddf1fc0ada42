"""Limits: what ends the use of a tool in a turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from soev.domain import Element, Event, Trace, elements_in
from soev.runtime._calls import DoneOfTurn, opens_turn
from soev.runtime._growing import Growing

Limit = Callable[[Trace], str | None]


@dataclass(frozen=True, slots=True)
class _ElementsOfTurn:
    """A fold over a view: the distinct elements of a class that its turn shows, by id."""

    cls: type[Element]

    def start(self) -> Growing[str, Element]:
        return Growing()

    def step(self, state: Growing[str, Element], event: Event) -> Growing[str, Element]:
        if opens_turn(event):
            state = Growing()
        for element in elements_in(event):
            if isinstance(element, self.cls):
                state = state.add(element.id, element)
        return state

    def fork(self, state: Growing[str, Element]) -> Growing[str, Element]:
        return Growing(state)


_DONE = DoneOfTurn()


@dataclass(frozen=True, slots=True)
class AtMost:
    """A limit for each turn: so many calls of a tool, or so many elements of a class.

    Args:
        n: The count at which the tool is spent.
        error: What the model reads instead of a result. Say what to do now.
        calls: The tool whose calls with a result without an error count, or None.
        elements: The class whose distinct elements count, or None.

    Raises:
        ValueError: `n` is below 1, or not exactly one of `calls` and `elements` is given.
    """

    n: int
    error: str
    calls: str | None = None
    elements: type[Element] | None = None

    def __post_init__(self) -> None:
        """Refuse a limit that nothing, or two things, could reach."""
        if self.n < 1:
            raise ValueError(f"A limit of {self.n} would never let a tool run. Use 1 or more.")
        if (self.calls is None) == (self.elements is None):
            raise ValueError(
                "A limit counts either `calls` or `elements`. Give exactly one of them."
            )

    def __call__(self, view: Trace) -> str | None:
        """Return the error once the view's turn has reached `n`, else None.

        Args:
            view: What a call would see.
        """
        if self.elements is not None:
            count = len(view.fold(_ElementsOfTurn(self.elements)))
        else:
            count = view.fold(_DONE).counts.get(self.calls or "", 0)
        return self.error if count >= self.n else None


def at_most(
    n: int, *, calls: str | None = None, elements: type[Element] | None = None, error: str
) -> AtMost:
    """Make a limit that answers with an error once a turn has reached a count.

    Args:
        n: The count at which the tool is spent.
        calls: The tool whose calls with a result without an error count, usually the tool itself.
        elements: The class whose distinct elements count.
        error: What the model reads instead of a result. Say what to do now.

    Raises:
        ValueError: `n` is below 1, or not exactly one of `calls` and `elements` is given.
    """
    return AtMost(n, error, calls, elements)
