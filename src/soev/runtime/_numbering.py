"""Numbers and handles: what a model sees in place of real ids and call ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from soev.domain import Element, Event, Source, ToolOutputBase, Trace, elements_in
from soev.runtime._growing import Growing

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Numbering:
    """The number of each real id, and the handle of each result, in one view.

    Args:
        numbers: The number of each real id.
        elements: The element that first showed each number. An id that was only named by a `ref`
            has a number and no element.
        calls: The call id that each handle stands for.
        handles: The handle of each call id.
    """

    numbers: Mapping[str, int]
    elements: Mapping[int, Element]
    calls: Mapping[str, str] = field(default_factory=dict)
    handles: Mapping[str, str] = field(default_factory=dict)

    def number(self, real_id: str) -> int | None:
        """Return the number of a real id, or None for one that was never shown or named."""
        return self.numbers.get(real_id)

    def element(self, number: int) -> Element | None:
        """Return the element under a number, or None when no element was shown under it."""
        return self.elements.get(number)

    def by_id(self, real_id: str) -> Element | None:
        """Return the element of a real id, or None when it was never shown itself."""
        number = self.numbers.get(real_id)
        return None if number is None else self.elements.get(number)

    def source(self, number: int) -> str | None:
        """Return the real id under a number when its element can be cited, else None."""
        element = self.elements.get(number)
        return element.id if isinstance(element, Source) else None

    def call(self, result: str) -> str | None:
        """Return the call id that a handle stands for, or None for an unknown handle."""
        return self.calls.get(result)

    def handle(self, call_id: str) -> str | None:
        """Return the handle of a call's result, or None while it has none."""
        return self.handles.get(call_id)


@dataclass(frozen=True, slots=True)
class _NumberingFold:
    """The numbering of a view; a branch goes on from its parent's."""

    def start(self) -> Numbering:
        return Numbering(Growing(), Growing(), Growing(), Growing())

    def step(self, state: Numbering, event: Event) -> Numbering:
        shown = tuple(elements_in(event))
        call_id = event.call_id if isinstance(event, ToolOutputBase) else None
        if not shown and call_id is None:
            return state
        numbers, elements = _grown(state.numbers), _grown(state.elements)
        for element in shown:
            if element.ref is not None:
                numbers = numbers.add(element.ref, len(numbers) + 1)
            numbers = numbers.add(element.id, len(numbers) + 1)
            elements = elements.add(numbers[element.id], element)
        calls, handles = _grown(state.calls), _grown(state.handles)
        if call_id is not None:
            handle = f"r{len(calls) + 1}"
            calls = calls.add(handle, call_id)
            handles = handles.add(call_id, handle)
        same = numbers is state.numbers and elements is state.elements and calls is state.calls
        return state if same else Numbering(numbers, elements, calls, handles)

    def fork(self, state: Numbering) -> Numbering:
        return Numbering(
            Growing(_grown(state.numbers)),
            Growing(_grown(state.elements)),
            Growing(_grown(state.calls)),
            Growing(_grown(state.handles)),
        )


def _grown(mapping: Mapping[_K, _V]) -> Growing[_K, _V]:
    assert isinstance(mapping, Growing)
    return mapping


_NUMBERING = _NumberingFold()


def numbering(trace: Trace) -> Numbering:
    """Number the elements that a trace shows, by first appearance, and its results.

    A `ref` is numbered before the element that names it. The k-th result with a call id has the
    handle `rk`; a call id that has several results is known by the handle of its first. Numbers
    and handles stay as they are while the trace grows.

    Args:
        trace: The view that a model is shown.

    Returns:
        The numbering. Its cost is that of the events since the last one of this thread's view.
    """
    return trace.fold(_NUMBERING)
