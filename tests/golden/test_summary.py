"""What all traces together print: the end of a run, Markdown, annotations, JSON."""

import json
from dataclasses import replace

import pytest

from soev.golden import (
    CallReport,
    Change,
    Problem,
    Style,
    TraceReport,
    Verdict,
    github_annotations,
    markdown,
    report_json,
    summary_lines,
    trace_text,
)

PROMPT = Change("message", "system", ("Answer briefly.",), ("Answer in one sentence.",))
TOOL = Change("tool description", "search", ("Use short queries.",), ("Use three words.",))
PREFIX = Change(
    "prompt prefix", "", ("messages 0..1 shared with the call before",), ("new from message 0",)
)
ORPHAN = Problem("orphan", "gift.calls.md has no trace", "tests/golden/gift.calls.md")


def call(index: int, *changes: Change, size: int = 110, same: bool | None = True) -> CallReport:
    """Make the report of a call that had 100 characters."""
    lines = tuple(range(12, 12 + len(changes)))
    return CallReport(index, 1, "model", changes, lines, 10, 100, size, same)


def trace(name: str, *calls: CallReport, verdict: Verdict = "changed") -> TraceReport:
    """Make the report of a trace."""
    report = TraceReport(name, "assistant", f"{name}.calls.md", "same", calls, accepted=True)
    return replace(report, verdict=verdict, rendering="text", drifted=verdict != "same")


REPORTS = [
    trace("refund", call(1, PROMPT), call(2, PROMPT, TOOL), call(3, PROMPT, TOOL, size=134)),
    trace("order", call(1, PROMPT), call(2)),
    trace("calm", call(1, size=100), verdict="same"),
]


def test_the_end_of_a_run_lists_changes_and_how_to_accept_them() -> None:
    """Each change has its letter, its extent and its first place; then come the gauges."""
    assert summary_lines(REPORTS) == [
        "3 traces, 6 calls: 1 trace as accepted, 2 changed (4 calls)",
        "  A  system message of assistant   4 calls in 2 traces   first: refund.calls.md:12",
        "  B  tool search: description      2 calls in 1 trace    first: refund.calls.md:13",
        "drifted from what was really sent: 2 of 3 traces",
        "largest growth: refund call 3, +34 characters (+34.0%)",
        "2 accepted files would change. Accept all: pytest --soev-replay --soev-update",
    ]


def test_missing_broken_and_obsolete_traces_are_listed() -> None:
    """Each says what it is, and only what can be accepted is counted as such."""
    missing = replace(trace("new", verdict="missing"), accepted=False)
    problem = Problem("unreplayable", "call 1: gone\n  event 1", "old.soev.jsonl", 3)
    broken = replace(trace("old", verdict="broken"), problems=(problem, problem), drifted=False)
    assert summary_lines([missing, broken], [ORPHAN]) == [
        "2 traces, 0 calls: 0 traces as accepted, 1 without accepted requests, 1 broken",
        "  old.calls.md: call 1: gone (and 1 more)",
        "  tests/golden/gift.calls.md: gift.calls.md has no trace",
        "drifted from what was really sent: 1 of 2 traces",
        "1 accepted file would be new. Accept: pytest --soev-replay --soev-update=new",
    ]


def test_a_run_in_which_all_is_as_accepted_is_one_line() -> None:
    """Nothing to do, nothing to read."""
    assert summary_lines([REPORTS[2]]) == ["1 trace, 1 call: 1 trace as accepted"]


def test_markdown_has_the_changes_and_a_table_of_traces() -> None:
    """A job summary folds each change with its lines, in a fence that they cannot close."""
    fenced = replace(PROMPT, added=("```", "<b>"))
    text = markdown([trace("refund", call(1, fenced)), REPORTS[2]], [ORPHAN])
    assert "<summary>A: system message of assistant, 1 call in 1 trace</summary>" in text
    assert "````diff\n- Answer briefly.\n+ ```\n+ <b>\n````" in text
    assert "| `refund` | changed | 1 | 1 | +10.0% |" in text
    assert "| `calm` | same | 1 |  |  |" in text
    assert "**orphan** `tests/golden/gift.calls.md`" in text


def test_there_are_at_most_ten_annotations_one_for_each_change() -> None:
    """GitHub shows ten, so changes come before problems and obsolete files."""
    found = github_annotations(REPORTS, [ORPHAN])
    assert [(file, line, title) for file, line, title, _ in found] == [
        ("refund.calls.md", 12, "A system message of assistant"),
        ("refund.calls.md", 13, "B tool search: description"),
        ("tests/golden/gift.calls.md", 1, "orphan"),
    ]
    assert found[0][3] == ("4 calls in 2 traces\n- Answer briefly.\n+ Answer in one sentence.")
    assert len(github_annotations([], [ORPHAN] * 20)) == 10


def test_the_report_for_programs_is_plain_json() -> None:
    """It has the traces without their renderings, the changes and what is obsolete."""
    data = json.loads(json.dumps(report_json(REPORTS, [ORPHAN])))
    assert data["soev"] == "report/1"
    assert [each["name"] for each in data["traces"]] == ["refund", "order", "calm"]
    assert data["traces"][0]["rendering"] is None
    assert data["changes"][0]["places"][0] == {"file": "refund.calls.md", "call": 1}
    assert data["obsolete"][0]["kind"] == "orphan"


def test_calls_with_the_same_changes_stand_together() -> None:
    """A trace's report lists its calls by the letters of their changes, with moved prefixes."""
    report = trace("refund", call(1, PROMPT), *(call(n, PROMPT, TOOL, PREFIX) for n in (2, 3, 4)))
    assert trace_text(report).split("\n\n")[-1].split("\n") == [
        "  call 1: A",
        "  calls 2-4: A B       prompt prefix: now new from message 0 "
        "(messages 0..1 shared with the call before)",
        "  size: 400 -> 440 characters (+10.0%)",
    ]


def test_words_that_differ_are_set_off() -> None:
    """With a style, the words of a line that changed are marked, and no others."""
    style = Style(removed_word=lambda word: f"<{word}>", added_word=lambda word: f"[{word}]")
    text = trace_text(trace("refund", call(1, PROMPT)), style)
    assert "- Answer <briefly>." in text
    assert "+ Answer [in one sentence]." in text


def test_a_change_of_spaces_shows_them() -> None:
    """Where only whitespace differs, it can be seen."""
    spaces = Change("message", "system", ("a  b",), ("a b",))
    text = trace_text(trace("refund", call(1, spaces)))
    assert "- a··b\n     + a·b" in text


@pytest.mark.parametrize(("verbosity", "shown"), [(0, 12), (1, 60)])
def test_long_changes_are_cut_unless_asked_for(verbosity: int, shown: int) -> None:
    """A change of many lines shows its beginning and its end, and says how to see the rest."""
    long = Change("message", "tool", tuple(f"old {n}" for n in range(60)))
    text = trace_text(trace("refund", call(1, long)), verbosity=verbosity)
    assert text.count("- old ") == shown
    assert ("48 more lines, -v shows all" in text) == (verbosity == 0)


def test_details_list_the_calls_of_each_change() -> None:
    """On request every change says in which calls it is."""
    assert "     calls 2, 3" in trace_text(REPORTS[0], details=True)
