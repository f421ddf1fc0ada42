"""What a failed golden trace prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from soev.golden._calls import ShownCall, ShownRequest
from soev.golden._changes import CallReport, Change, Cluster, TraceReport
from soev.golden._cluster import cluster
from soev.golden._files import CALLS_SUFFIX
from soev.golden._numbers import counted, ranges
from soev.golden._parse import parse_calls

MAX_LINES = 12
WHOLE_REQUESTS = 2
MAX_WORDS = 200
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
MISSING = (
    'no accepted requests yet: run "pytest --soev-replay --soev-update=new" and commit {calls}'
)
REVERTED = "Today's code again sends what was really sent: the accepted change was taken back."


def _same(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Style:
    """How parts of a report are set off, for example by colour. The default is plain text.

    Args:
        removed: A line that is gone.
        added: A line that is new.
        removed_word: A word of a line that is gone.
        added_word: A word of a line that is new.
        title: The title of a change.
    """

    removed: Callable[[str], str] = _same
    added: Callable[[str], str] = _same
    removed_word: Callable[[str], str] = _same
    added_word: Callable[[str], str] = _same
    title: Callable[[str], str] = _same


def trace_text(
    report: TraceReport,
    style: Style | None = None,
    *,
    verbosity: int = 0,
    details: bool = False,
    accepted: str | None = None,
) -> str:
    """Say what is wrong with one golden trace.

    Args:
        report: What the check found.
        style: How to set parts off.
        verbosity: 1 shows all lines of each change, 2 whole requests before and after.
        details: List the calls of each change.
        accepted: The text of the accepted file, for whole requests.
    """
    lines: list[str] = []
    for problem in (*report.problems, *report.warnings):
        lines += [*problem.text.split("\n"), ""]
    if report.verdict == "missing":
        lines += [MISSING.format(calls=report.name + CALLS_SUFFIX), ""]
    if report.verdict == "reverted":
        lines += [REVERTED, ""]
    if report.changed:
        lines += _changes(report, style or Style(), verbosity, details=details)
    if verbosity >= WHOLE_REQUESTS:
        lines += _requests(report, accepted)
    return "\n".join(lines).rstrip("\n")


def _changes(report: TraceReport, style: Style, verbosity: int, *, details: bool) -> Iterator[str]:
    changed = report.changed
    first = changed[0]
    yield (
        f"{len(changed)} of {counted(len(report.calls), 'call')} changed. "
        f"First: call {first.index}, turn {first.turn}, node {first.node} "
        f"({report.file}:{first.lines[0]})"
    )
    yield ""
    clusters = [each for each in cluster([report]) if each.change.kind != "prompt prefix"]
    for each in clusters:
        yield style.title(f"  {each.letter}  {each.change.title}")
        for line in change_lines(each.change, style, None if verbosity else MAX_LINES):
            yield f"     {line}"
        if each.variants > 1:
            yield f"     and {each.variants - 1} more with other values"
        if details:
            yield f"     calls {ranges(index for _, index in each.places)}"
    yield ""
    yield from _by_letters(changed, clusters)
    yield from _sizes(changed)


def _by_letters(changed: Sequence[CallReport], clusters: Sequence[Cluster]) -> Iterator[str]:
    """List calls that have the same changes, and what becomes of their cached prefix."""
    groups: dict[tuple[str, str], list[int]] = {}
    for call in changed:
        letters = [
            each.letter for each in clusters if any(index == call.index for _, index in each.places)
        ]
        moved = next(map(_moved, (c for c in call.changes if c.kind == "prompt prefix")), "")
        groups.setdefault((" ".join(letters), moved), []).append(call.index)
    for (together, prefix), indices in groups.items():
        noun = "call" if len(indices) == 1 else "calls"
        yield f"  {noun} {ranges(indices)}: {together:<9} {prefix}".rstrip()


def _moved(prefix: Change) -> str:
    return f"prompt prefix: now {prefix.added[0]} ({prefix.removed[0]})"


def _sizes(changed: Sequence[CallReport]) -> Iterator[str]:
    sized = [(c.accepted_size, c.size) for c in changed if c.accepted_size and c.size is not None]
    if sized:
        before, now = sum(old for old, _ in sized), sum(new for _, new in sized)
        yield f"  size: {before:,} -> {now:,} characters ({now / before - 1:+.1%})"


def change_lines(change: Change, style: Style, most: int | None = MAX_LINES) -> list[str]:
    """Return a change as the lines of a hunk: `  ` context, `- ` gone, `+ ` new.

    A change of whitespace alone shows its spaces.

    Args:
        change: The change.
        style: How to set the lines off.
        most: The most lines to show; None for all.
    """
    removed, added = _marked(change, style)
    lines = [
        *(f"  {line}" for line in change.before),
        *(style.removed(f"- {line}") for line in removed),
        *(style.added(f"+ {line}") for line in added),
        *(f"  {line}" for line in change.after),
    ]
    if most is None or len(lines) <= most + 1:
        return lines
    half = most // 2
    return [*lines[:half], f"  ... {len(lines) - most:,} more lines, -v shows all", *lines[-half:]]


def _marked(change: Change, style: Style) -> tuple[list[str], list[str]]:
    removed, added = list(change.removed), list(change.added)
    if _bare(removed) == _bare(added):
        removed, added = ([line.replace(" ", "·") for line in side] for side in (removed, added))
    if len(removed) != len(added) or len(removed) > MAX_LINES:
        return removed, added
    pairs = [_words(old, new, style) for old, new in zip(removed, added, strict=True)]
    return [old for old, _ in pairs], [new for _, new in pairs]


def _bare(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())


def _words(old: str, new: str, style: Style) -> tuple[str, str]:
    """Set off the words in which two lines differ."""
    one, other = _WORDS.findall(old), _WORDS.findall(new)
    if len(one) > MAX_WORDS or len(other) > MAX_WORDS:
        return old, new
    left, right = "", ""
    for tag, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        before, after = "".join(one[a:b]), "".join(other[c:d])
        equal = tag == "equal"
        left += before if equal or not before else style.removed_word(before)
        right += after if equal or not after else style.added_word(after)
    return left, right


def _requests(report: TraceReport, accepted: str | None) -> Iterator[str]:
    """Show the changed requests whole, before and after."""
    before = {} if accepted is None else {c.index: c for c in parse_calls(accepted).calls}
    today = {call.index: call for call in parse_calls(report.rendering).calls}
    for call in report.changed:
        for when, calls in (("accepted", before), ("today", today)):
            yield ""
            yield f"call {call.index}, {when}:"
            yield from _request(calls.get(call.index))


def _request(call: ShownCall | None) -> Iterator[str]:
    request = None if call is None else call.request
    if request is None:
        yield "  none"
        return
    yield from (f"  {line}" for line in request_lines(request))


def request_lines(request: ShownRequest) -> Iterator[str]:
    """Yield all of a request, one line of text each."""
    yield f"model {request.model or 'as the agent sets it'}, tool_choice {request.tool_choice}"
    yield from (f"option {name}: {value}" for name, value in request.options)
    if request.response_schema is not None:
        yield f"response_schema: {request.response_schema}"
    for tool in request.tools:
        yield f"tool {tool.name}"
        yield from (f"    {line}".rstrip() for line in tool.lines)
    for place, message in enumerate(request.messages):
        yield f"{place} {message.role} {message.call or ''}".rstrip()
        yield from (f"    {line}".rstrip() for line in message.lines)
