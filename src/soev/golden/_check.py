"""Holds a golden trace to today's code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from soev.domain import Event
from soev.golden._agents import Agents
from soev.golden._calls import CallsFile, Comparison, RouteException, ShownCall
from soev.golden._changes import ACCEPTABLE, CallReport, Problem, TraceReport, Verdict
from soev.golden._diff import diff_calls, diff_requests
from soev.golden._errors import GoldenFileError
from soev.golden._files import CALLS_SUFFIX, TRACE_SUFFIX, GoldenTrace, trace_name
from soev.golden._parse import parse_calls
from soev.golden._render import render_calls
from soev.golden._routes import routing
from soev.golden._shown import Shower, shown
from soev.golden._turns import TurnGraphs, around, decoded, project_traceback
from soev.runtime import ModelCall, replay

_COMPARISONS: dict[bool | None, Comparison] = {
    True: "as recorded",
    False: "changed since recorded",
    None: "not comparable",
}


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What a project asks of a check.

    Args:
        unreplayable: Whether a call that cannot be rebuilt fails the trace or is a warning.
        max_growth: How much larger than the accepted one a request may be, as a fraction. None
            for any size.
        routes: Check the routing decisions of the trace instead of its requests.
    """

    unreplayable: Literal["fail", "warn"] = "fail"
    max_growth: float | None = 0.1
    routes: bool = False


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """What today's code makes of a trace."""

    calls: CallsFile
    problems: tuple[Problem, ...]
    lost: tuple[Problem, ...]


async def check(
    golden: GoldenTrace,
    accepted: str | None,
    agents: Agents,
    options: CheckOptions | None = None,
) -> TraceReport:
    """Replay a golden trace twice and compare what today's code sends with what was accepted.

    Nothing is executed: the resources refuse to be used, and models only prepare.

    Args:
        golden: The trace.
        accepted: The text of its calls file, or None when there is none.
        agents: The project's agents by name.
        options: What the project asks of the check.

    Returns:
        A report that says all that is wrong. A bad trace and a broken agent raise nothing.
    """
    options = options or CheckOptions()
    calls_file = golden.file.removesuffix(TRACE_SUFFIX) + CALLS_SUFFIX
    report = TraceReport(
        name=golden.header.name,
        agent=agent_of(golden),
        file=calls_file,
        verdict="broken",
        accepted=accepted is not None,
    )
    if report.agent not in agents:
        known = ", ".join(sorted(agents)) or "none"
        text = f"agent {report.agent!r} is not in the catalog ({known})"
        return replace(report, problems=(Problem("obsolete", text, golden.file, 2),))
    try:
        before = None if accepted is None else parse_calls(accepted, calls_file)
    except GoldenFileError as error:
        return replace(report, problems=(_damage(error),))
    agent = agents[report.agent]
    events, problems = decoded(golden, agent)
    if problems:
        return replace(report, problems=tuple(problems))
    if options.routes:
        graphs = TurnGraphs(golden, agent, events)
        return routing(report, before, golden.file, events, graphs)
    rebuilt = await _rebuilt(golden, agents, events, before)
    return _compared(report, before, rebuilt, options)


def agent_of(golden: GoldenTrace) -> str:
    """Return the agent that the first event of a trace names, else the one of its header.

    Args:
        golden: The trace.
    """
    first = golden.events[0] if golden.events else None
    if first is not None and first.type == "opened":
        named = json.loads(first.data).get("agent")
        if isinstance(named, str):
            return named
    return golden.header.agent


def damaged(path: Path, error: GoldenFileError) -> TraceReport:
    """Return the report of a trace that cannot be read.

    Args:
        path: Its events file.
        error: What is wrong with it.
    """
    file = error.file.removesuffix(TRACE_SUFFIX) + CALLS_SUFFIX
    return TraceReport(trace_name(path), "", file, "broken", problems=(_damage(error),))


def _damage(error: GoldenFileError) -> Problem:
    return Problem("damaged", str(error), error.file, error.line)


async def _rebuilt(
    golden: GoldenTrace, agents: Agents, events: Sequence[Event], before: CallsFile | None
) -> _Rebuilt:
    agent = agents[agent_of(golden)]
    graphs = TurnGraphs(golden, agent, events)
    calls = await replay(events, graphs)
    again, _ = decoded(golden, agent)
    second = await replay(again, TurnGraphs(golden, agent, again))
    lost = tuple(_lost(golden, events, calls, graphs))
    return _Rebuilt(
        calls_file(golden, calls, graphs, () if before is None else before.routes),
        (*graphs.problems.values(), *_impure(golden, calls, second)),
        lost,
    )


def calls_file(
    golden: GoldenTrace,
    calls: Sequence[ModelCall],
    graphs: TurnGraphs,
    routes: tuple[RouteException, ...] = (),
) -> CallsFile:
    """Return what today's code sends in a trace, as a calls file.

    Args:
        golden: The trace.
        calls: What `replay` made of it.
        graphs: The turns of the trace.
        routes: The exceptions of routing that were accepted.
    """
    shower = Shower()
    made = [
        ShownCall(
            index=call.index,
            turn=graphs.turn_of(call.position),
            node=call.node or "",
            position=call.position,
            request=None if call.request is None else shower.request(call.request),
            stream=call.stream,
            comparison=_COMPARISONS[call.same_request],
        )
        for call in calls
    ]
    return CallsFile(
        golden.header.name, golden.header.agent, len(graphs.starts), tuple(made), routes
    )


def _lost(
    golden: GoldenTrace, events: Sequence[Event], calls: Sequence[ModelCall], graphs: TurnGraphs
) -> Iterator[Problem]:
    for call in calls:
        if call.unreplayable is None or id(call.error) in graphs.errors:
            continue
        head = f"call {call.index} (turn {graphs.turn_of(call.position)}, node {call.node}): "
        line = call.position + 1
        if call.builder is not None and call.error is not None:
            text = f"{head}the context builder raised\n{project_traceback(call.error)}"
            yield Problem("builder raised", text, golden.file, line, call.index)
        else:
            text = f"{head}{call.unreplayable}\n{around(events, call.position)}"
            yield Problem("unreplayable", text, golden.file, line, call.index)


def _impure(
    golden: GoldenTrace, calls: Sequence[ModelCall], second: Sequence[ModelCall]
) -> Iterator[Problem]:
    """Name the first call that two replays of the same trace build differently."""
    for one, other in zip(calls, second, strict=True):
        if (one.request is None) != (other.request is None):
            yield _impurity(golden, one, "one of them cannot be rebuilt")
            return
        if one.request is None or other.request is None or one.request.hash == other.request.hash:
            continue
        change = diff_requests(shown(one.request), shown(other.request))[0]
        sides = [f"- {line}" for line in change.removed] + [f"+ {line}" for line in change.added]
        yield _impurity(golden, one, "\n  ".join([change.title, *sides]))
        return


def _impurity(golden: GoldenTrace, call: ModelCall, what: str) -> Problem:
    text = (
        f"two builds of call {call.index} from the same trace differ: a builder must depend on "
        f"its view alone\n  {what}"
    )
    return Problem("impure", text, golden.file, call.position + 1, call.index)


def _compared(
    report: TraceReport, before: CallsFile | None, rebuilt: _Rebuilt, options: CheckOptions
) -> TraceReport:
    calls = diff_calls(before, rebuilt.calls)
    fail = options.unreplayable == "fail"
    problems = (
        *rebuilt.problems,
        *(rebuilt.lost if fail else ()),
        *_growth(report, calls, options),
    )
    return replace(
        report,
        calls=calls,
        problems=problems,
        warnings=() if fail else rebuilt.lost,
        rendering=render_calls(rebuilt.calls),
        verdict=_verdict(before, calls, problems),
        drifted=any(call.same_as_recorded is False for call in calls),
    )


def _verdict(
    before: CallsFile | None, calls: Sequence[CallReport], problems: Sequence[Problem]
) -> Verdict:
    if any(problem.kind not in ACCEPTABLE for problem in problems):
        return "broken"
    if before is None:
        return "missing"
    changed = [call for call in calls if call.changes]
    if changed:
        return "reverted" if all(call.same_as_recorded for call in changed) else "changed"
    return "drifted" if any(call.same_as_recorded is False for call in calls) else "same"


def _growth(
    report: TraceReport, calls: Sequence[CallReport], options: CheckOptions
) -> Iterator[Problem]:
    """Name the call that grew most, when it grew more than the project allows."""
    grown = [call for call in calls if call.growth is not None]
    most = max(grown, key=_growth_of, default=None)
    if most is None or options.max_growth is None or _growth_of(most) <= options.max_growth:
        return
    characters = (most.size or 0) - (most.accepted_size or 0)
    text = (
        f"call {most.index} grew by {characters:,} characters ({_growth_of(most):+.1%}) against "
        f"the accepted request; `soev_max_growth` allows {options.max_growth:.0%}"
    )
    yield Problem("growth", text, report.file, most.line, most.index)


def _growth_of(call: CallReport) -> float:
    return call.growth or 0.0
