"""What a delegation hands to its tasks, and what they hand back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from soev.domain import Event, Input, Request, canonical_json, stream_name
from soev.runtime._actions import hand_off_view, name_problem
from soev.runtime._checks import Desk, Draft
from soev.runtime._graph import Delegation
from soev.runtime._planner import Planner

Handing = Callable[[Desk, Delegation, Planner], list[Draft]]


def opened(desk: Desk, delegation: Delegation, planner: Planner) -> list[Draft]:
    """Return the heads of the tasks to open, or the results when no task is wanted.

    Args:
        desk: The envelope of what the delegation records in its own stream.
        delegation: The delegation.
        planner: Knows the view, and the tasks that are there already.

    Raises:
        Exception: `hand_offs` raised it, or returned what cannot be recorded.
    """
    given = _hand_offs(desk, delegation, planner)
    heads = [event for event in given if isinstance(event, Input)]
    if not heads:
        return _reports(desk, given, "`hand_offs`")
    seq, there = planner.seq(desk.stream), set(planner.tasks(desk.stream))
    drafts = []
    for index, head in enumerate(heads, 1):
        name = stream_name(desk.stream, desk.origin or "", seq, index)
        problem = name_problem(name)
        if problem is not None:
            raise ValueError(problem)
        if head.answers is not None:
            raise ValueError(
                f"`hand_offs` returned an Input with `answers={head.answers}`. The head of a task "
                "answers nothing: leave it out."
            )
        if name not in there:
            drafts.append(desk._replace(stream=name).draft(head))
    return drafts


def handed_back(desk: Desk, delegation: Delegation, planner: Planner) -> list[Draft]:
    """Return the results of ended tasks, in the order of `hand_offs`.

    Args:
        desk: The envelope of what the delegation records.
        delegation: The delegation.
        planner: Knows the views.

    Raises:
        ValueError: `hand_offs` no longer hands off what was recorded.
        Exception: `hand_offs` or `hand_back` raised it, or returned what cannot be recorded.
    """
    given = _hand_offs(desk, delegation, planner)
    tasks = planner.tasks(desk.stream)
    views = [planner.view(task) for task in tasks]
    wanted = [canonical_json(event.payload) for event in given if isinstance(event, Input)]
    if wanted != [canonical_json(_payload(view[0])) for view in views]:
        raise ValueError(
            f"`hand_offs` returned {len(wanted)} tasks, and not the {len(views)} with the payloads "
            "that were recorded. It must be a pure function of the view it is given."
        )
    left = iter(views)
    drafts: list[Draft] = []
    for event in given:
        if isinstance(event, Input):
            drafts += _reports(desk, delegation.hand_back(next(left)), "`hand_back`")
        else:
            drafts += _reports(desk, [event], "`hand_offs`")
    return drafts


def _hand_offs(desk: Desk, delegation: Delegation, planner: Planner) -> Sequence[Event]:
    """Ask what is handed off on the view that the first try was shown."""
    given: object = delegation.hand_offs(hand_off_view(planner.view(desk.stream)))
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(
            f"`hand_offs` returned a {type(given).__name__}. Return a list or tuple of events."
        )
    if not given:
        raise ValueError("`hand_offs` returned no event. Return at least one.")
    return given


def _reports(desk: Desk, events: Sequence[Event], who: str) -> list[Draft]:
    """Return events that a parent's stream may record of its tasks."""
    drafts = desk.drafts(events, who)
    if isinstance(drafts[-1].event, Request):
        raise ValueError(f"{who} returned a Request, which only a step in a task may return.")
    return drafts


def _payload(event: Event) -> object:
    return event.payload if isinstance(event, Input) else None
