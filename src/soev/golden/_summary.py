"""What all golden traces together come to, for people, for GitHub and for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from soev.golden._changes import CallReport, Cluster, Problem, TraceReport
from soev.golden._cluster import cluster
from soev.golden._numbers import counted
from soev.golden._text import MISSING, Style, change_lines

MAX_ANNOTATIONS = 10
REPLAY = "pytest --soev-replay"
_TICKS = re.compile(r"`+")


def summary_lines(
    reports: Sequence[TraceReport],
    obsolete: Sequence[Problem] = (),
    *,
    command: str = REPLAY,
) -> list[str]:
    """Return the lines of the section at the end of a run: changes, not snapshots.

    Args:
        reports: The reports of all traces.
        obsolete: What `find_obsolete` found.
        command: How to run the same traces again.
    """
    lines = [_counts(reports)]
    lines += _cluster_lines(cluster(reports))
    lines += [f"  {report.file}: {_fault(report)}" for report in reports if report.problems]
    lines += [
        f"  {report.file}: warning: {_first(report.warnings)}"
        for report in reports
        if report.warnings
    ]
    lines += [f"  {problem.file}: {problem.text}" for problem in obsolete]
    lines += _gauges(reports, command)
    return lines


def _first(problems: Sequence[Problem]) -> str:
    return problems[0].text.split("\n")[0]


def _fault(report: TraceReport) -> str:
    more = len(report.problems) - 1
    return _first(report.problems) + (f" (and {more} more)" if more else "")


def _counts(reports: Sequence[TraceReport]) -> str:
    calls = sum(len(report.calls) for report in reports)
    changed = [report for report in reports if report.verdict in ("changed", "reverted")]
    changed_calls = sum(len(report.changed) for report in changed)
    parts = [f"{counted(sum(report.passed for report in reports), 'trace')} as accepted"]
    if changed:
        parts.append(f"{len(changed)} changed ({counted(changed_calls, 'call')})")
    for verdict, words in (("missing", "without accepted requests"), ("broken", "broken")):
        count = sum(report.verdict == verdict for report in reports)
        if count:
            parts.append(f"{count} {words}")
    return f"{counted(len(reports), 'trace')}, {counted(calls, 'call')}: {', '.join(parts)}"


def cluster_title(each: Cluster) -> str:
    """Return a change with what it belongs to: `system message of assistant`."""
    if each.change.kind.startswith("tool "):
        return each.change.title
    return f"{each.change.title} of {', '.join(each.agents)}"


def _extent(each: Cluster) -> str:
    return f"{counted(len(each.places), 'call')} in {counted(len(each.traces), 'trace')}"


def _cluster_lines(clusters: Sequence[Cluster]) -> list[str]:
    titles = [cluster_title(each) for each in clusters]
    extents = [_extent(each) for each in clusters]
    wide, wider = (max(map(len, texts), default=0) for texts in (titles, extents))
    return [
        f"  {each.letter:<2} {title:<{wide}}   {extent:<{wider}}   first: {each.file}:{each.line}"
        for each, title, extent in zip(clusters, titles, extents, strict=True)
    ]


def _gauges(reports: Sequence[TraceReport], command: str = REPLAY) -> Iterator[str]:
    drifted = sum(report.drifted for report in reports)
    if drifted:
        yield f"drifted from what was really sent: {drifted} of {counted(len(reports), 'trace')}"
    grown = [(call, report) for report in reports for call in report.calls if _grew(call)]
    if grown:
        call, report = max(grown, key=_characters)
        yield (
            f"largest growth: {report.name} call {call.index}, "
            f"+{_characters((call, report)):,} characters ({call.growth or 0:+.1%})"
        )
    would = [report for report in reports if not report.passed and report.acceptable]
    changing = [report for report in would if report.accepted]
    if changing:
        files = counted(len(changing), "accepted file")
        yield f"{files} would change. Accept all: {command} --soev-update"
    if len(would) > len(changing):
        missing = counted(len(would) - len(changing), "accepted file")
        yield f"{missing} would be new. Accept: {command} --soev-update=new"


def _grew(call: CallReport) -> bool:
    return bool(call.accepted_size) and (call.size or 0) > (call.accepted_size or 0)


def _characters(grown: tuple[CallReport, TraceReport]) -> int:
    return (grown[0].size or 0) - (grown[0].accepted_size or 0)


def github_annotations(
    reports: Sequence[TraceReport], obsolete: Sequence[Problem] = ()
) -> list[tuple[str, int, str, str]]:
    """Return at most ten (file, line, title, text): one for each change, then for each problem."""
    found = [
        (
            each.file,
            each.line,
            f"{each.letter} {cluster_title(each)}",
            f"{_extent(each)}\n" + "\n".join(change_lines(each.change, Style())),
        )
        for each in cluster(reports)
    ]
    for report in reports:
        found += [(p.file, p.line, f"{p.kind}: {report.name}", p.text) for p in report.problems]
        if report.verdict == "missing":
            text = MISSING.format(calls=report.file)
            found.append((report.file, 1, f"missing: {report.name}", text))
    found += [(each.file, each.line, each.kind, each.text) for each in obsolete]
    return found[:MAX_ANNOTATIONS]


def markdown(reports: Sequence[TraceReport], obsolete: Sequence[Problem] = ()) -> str:
    """Return the report as Markdown: each change with its lines, then the traces."""
    lines = ["# soev replay", "", _counts(reports), ""]
    for each in cluster(reports):
        lines += [
            "<details>",
            f"<summary>{each.letter}: {_html(cluster_title(each))}, {_extent(each)}</summary>",
            "",
            f"First: `{each.file}:{each.line}`",
            "",
            *_fenced(change_lines(each.change, Style(), None), "diff"),
            "</details>",
            "",
        ]
    for report in reports:
        for problem in (*report.problems, *report.warnings):
            lines += [f"**{problem.kind}** `{problem.file}:{problem.line}`", ""]
            lines += [*_fenced(problem.text.split("\n")), ""]
    lines += [f"- **{each.kind}** `{each.file}`: {_html(each.text)}" for each in obsolete]
    lines += ["", *_table(reports), "", *_gauges(reports)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fenced(lines: Sequence[str], language: str = "") -> list[str]:
    """Put lines in a fence that is longer than any in them."""
    longest = max((len(found) for line in lines for found in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *lines, fence]


def _table(reports: Sequence[TraceReport]) -> Iterator[str]:
    yield "| trace | verdict | calls | changed | growth |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for report in reports:
        growth = max((call.growth or 0.0 for call in report.calls), default=0.0)
        shown = f"{growth:+.1%}" if growth else ""
        changed = len(report.changed) or ""
        yield f"| `{report.name}` | {report.verdict} | {len(report.calls)} | {changed} | {shown} |"


def report_json(reports: Sequence[TraceReport], obsolete: Sequence[Problem] = ()) -> dict[str, Any]:
    """Return the report as plain JSON values, for programs. Renderings are left out."""
    traces = [{**report.to_json(), "rendering": None} for report in reports]
    changes = [
        {
            "letter": each.letter,
            "title": cluster_title(each),
            "kind": each.change.kind,
            "scope": each.change.scope,
            "removed": list(each.change.removed),
            "added": list(each.change.added),
            "agents": list(each.agents),
            "places": [{"file": file, "call": call} for file, call in each.places],
            "file": each.file,
            "line": each.line,
            "variants": each.variants,
        }
        for each in cluster(reports)
    ]
    stale = [
        {"kind": each.kind, "file": each.file, "line": each.line, "text": each.text}
        for each in obsolete
    ]
    return {"soev": "report/1", "traces": traces, "changes": changes, "obsolete": stale}
