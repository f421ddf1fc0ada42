"""Explains how two traces, or two requests, differ, where an assertion compared them."""

from __future__ import annotations

from itertools import zip_longest

from soev.domain import ChatRequest, Event, Trace
from soev.golden import diff_requests, shown


def explained(left: object, right: object) -> list[str] | None:
    """Return the lines that explain a failed `==`, or None for values of other kinds.

    Args:
        left: The left side.
        right: The right side.
    """
    if isinstance(left, ChatRequest) and isinstance(right, ChatRequest):
        return ["the requests differ", *_requests(left, right)]
    if isinstance(left, Trace) and isinstance(right, Trace):
        return [f"the traces differ ({len(left)} and {len(right)} events)", *_traces(left, right)]
    return None


def _requests(left: ChatRequest, right: ChatRequest) -> list[str]:
    lines = []
    for change in diff_requests(shown(left), shown(right)):
        if change.kind == "prompt prefix":
            continue
        lines.append(f"{change.title} ({change.part})" if change.part else change.title)
        lines += [f"  - {line}" for line in change.removed]
        lines += [f"  + {line}" for line in change.added]
    return lines


def _traces(left: Trace, right: Trace) -> list[str]:
    """Show the first position at which the traces differ."""
    for position, (one, other) in enumerate(zip_longest(left, right), 1):
        if one != other:
            return [f"first at position {position}:", f"  - {_told(one)}", f"  + {_told(other)}"]
    return ["they hold equal events, seen in different streams"]


def _told(event: Event | None) -> str:
    return "nothing" if event is None else repr(event)
