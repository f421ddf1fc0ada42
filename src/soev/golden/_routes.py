"""Holds the routing decisions of a golden trace to today's graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from soev.domain import Event
from soev.golden._calls import CallsFile, RouteException
from soev.golden._changes import Problem, TraceReport, Verdict
from soev.golden._render import render_calls
from soev.golden._turns import TurnGraphs
from soev.runtime import Divergence, retrace

END = "end"
ENTRY = "entry"


def routing(
    report: TraceReport,
    before: CallsFile | None,
    file: str,
    events: Sequence[Event],
    graphs: TurnGraphs,
) -> TraceReport:
    """Ask today's graphs for each recorded decision. Nothing is executed.

    After a decision that differs, the rest of its turn is not compared. What the calls file
    accepts is no difference.

    Args:
        report: The report to fill in.
        before: The accepted calls, with the accepted exceptions.
        file: The events file, as reports name it.
        events: The events of the trace.
        graphs: The graphs of its turns.
    """
    found = retrace(events, graphs)
    wanted = {_exception(events, each): None for each in found}
    known = () if before is None else before.routes
    if graphs.problems:
        return replace(report, problems=tuple(graphs.problems.values()))
    open_ = [each for each in found if _exception(events, each) not in known]
    problems = tuple(_problems(file, events, open_, graphs.turn_of, accepted=before is not None))
    rendering = "" if before is None else render_calls(replace(before, routes=tuple(wanted)))
    verdict: Verdict = "changed" if problems else "same"
    return replace(report, verdict=verdict, problems=problems, rendering=rendering)


def _before(events: Sequence[Event], found: Divergence) -> int:
    """Return the position of the event that the decision was taken after, 0 for none."""
    for position in range(found.position - 1, 0, -1):
        if events[position - 1].stream == found.stream:
            return position
    return 0


def _exception(events: Sequence[Event], found: Divergence) -> RouteException:
    after = _before(events, found)
    node = events[after - 1].origin if after else None
    return RouteException(node or ENTRY, found.planned or END, found.recorded or END)


def _problems(
    file: str,
    events: Sequence[Event],
    found: Sequence[Divergence],
    turn_of: Callable[[int], int],
    *,
    accepted: bool,
) -> Iterator[Problem]:
    """Yield the first difference of each turn."""
    seen: set[int] = set()
    advice = "To accept" if accepted else "Accept the requests of the trace first, then"
    for each in found:
        turn = turn_of(each.position)
        if turn in seen:
            continue
        seen.add(turn)
        after = _before(events, each)
        route = _exception(events, each)
        text = (
            f"after event {after} (node {route.node}) today's router goes to {route.planned!r}; "
            f"the recorded turn went to {route.recorded!r}\n"
            f"  {each.reason}\n"
            f"  The rest of turn {turn} is not comparable. {advice}: {route}"
        )
        yield Problem("route", text, file, each.position + 1)
