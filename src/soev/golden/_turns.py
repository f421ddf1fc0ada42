"""What a golden trace is with today's classes: its events, and the graph of each turn."""

from __future__ import annotations

import traceback
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from soev.domain import (
    ROOT_STREAM,
    Event,
    Input,
    StoredEvent,
    UnknownElementTypeError,
    without_secrets,
)
from soev.golden._changes import Problem
from soev.golden._files import GoldenTrace
from soev.runtime import (
    Agent,
    EventTypes,
    Graph,
    InputDeniedError,
    UnknownEventTypeError,
    UnreadableEventError,
    accepted,
    event_types_of,
    refusing,
    turn_starts,
)


def decoded(golden: GoldenTrace, agent: Agent[Any, Any]) -> tuple[list[Event], list[Problem]]:
    """Read the events of a trace with an agent's classes.

    Args:
        golden: The trace.
        agent: The agent that it is held to.

    Returns:
        The events, and one problem for each kind of event that cannot be read.
    """
    types = event_types_of([agent])
    events: list[Event] = []
    problems: dict[str, Problem] = {}
    for position, stored in enumerate(golden.events, 1):
        event, problem = _decoded(golden, types, position, stored)
        if event is not None:
            events.append(event)
        if problem is not None:
            problems.setdefault(f"{problem.kind} {stored.type}", problem)
    return events, list(problems.values())


def _decoded(
    golden: GoldenTrace, types: EventTypes, position: int, stored: StoredEvent
) -> tuple[Event | None, Problem | None]:
    where = f"event {position}"
    agent = f"agent {golden.header.agent!r}"
    try:
        return types.decode(stored), None
    except UnknownEventTypeError as error:
        kind, text = (
            "undecodable",
            (
                f"{where}: type {error.type!r} is not among the types of {agent}; "
                "add the class to its `event_types`"
            ),
        )
    except UnknownElementTypeError as error:
        kind, text = (
            "undecodable",
            (
                f"{where} ({stored.type}): element tag {error.tag!r} is not among those of "
                f"{agent}; add the class to its `element_types`"
            ),
        )
    except UnreadableEventError as error:
        field = "" if error.field is None else f"field {error.field!r}: "
        kind, text = "unreadable", f"{where} ({stored.type}): {field}{error.problem}"
    return None, Problem(kind, without_secrets(text), golden.file, position + 1)  # type: ignore[arg-type]  # one of two


class TurnGraphs:
    """Builds the graph of each turn, with resources that refuse, and notes what cannot be built.

    Args:
        golden: The trace.
        agent: The agent that it is held to.
        events: Its events.
    """

    def __init__(
        self, golden: GoldenTrace, agent: Agent[Any, Any], events: Sequence[Event]
    ) -> None:
        self._golden, self._agent = golden, agent
        self.starts = [n for n in turn_starts(events) if events[n].stream == ROOT_STREAM]
        self._turns = {id(events[place]): n for n, place in enumerate(self.starts, 1)}
        self.problems: dict[int, Problem] = {}
        self.errors: set[int] = set()

    def __call__(self, opening: Input) -> Graph:
        """Build the graph of the turn that an input opened."""
        try:
            _, turn = accepted(self._agent.input, opening)
            return self._agent.build(refusing("resources"), turn, opening.model)
        except Exception as error:
            number = self._turns.get(id(opening), 0)
            self.errors.add(id(error))
            self.problems.setdefault(number, self._problem(number, error))
            raise

    def turn_of(self, position: int) -> int:
        """Return the 1-based turn that a position is in."""
        return bisect_left(self.starts, position)

    def _problem(self, number: int, error: Exception) -> Problem:
        line = self.starts[number - 1] + 2 if number else 1
        if isinstance(error, InputDeniedError):
            path = f" (at {error.path})" if error.path else ""
            text = f"{error.problem}{path}. Threads with this input cannot resume"
        else:
            text = f"`build` raised\n{project_traceback(error)}"
        return Problem(
            "unbuildable", without_secrets(f"turn {number}: {text}"), self._golden.file, line
        )


def project_traceback(error: BaseException) -> str:
    """Return an error's traceback, from the first frame that is not of this package."""
    frames = error.__traceback__
    first = frames
    while first is not None and _is_ours(first.tb_frame.f_globals):
        first = first.tb_next
    lines = traceback.format_exception(type(error), error, first)
    return without_secrets("".join(lines).rstrip("\n"))


def _is_ours(names: Mapping[str, Any]) -> bool:
    name = str(names.get("__name__", ""))
    return name == "soev" or name.startswith("soev.")


def around(events: Sequence[Event], position: int, reach: int = 2) -> str:
    """List the events around a position, one a line, for a reader who looks for a cause."""
    first = max(position - reach, 1)
    lines = []
    for place, event in enumerate(events[first - 1 : position + reach], first):
        node = "" if event.origin is None else f", node {event.origin}"
        lines.append(f"  event {place}: {_tag(event)} in {event.stream}{node}")
    return "\n".join(lines)


def _tag(event: Event) -> str:
    return type(event).type
