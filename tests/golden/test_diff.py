"""The differ and the clusters, on requests made by hand."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from soev.domain import (
    AssistantMessage,
    ChatRequest,
    Message,
    SystemMessage,
    ToolCall,
    ToolDef,
    ToolMessage,
    UserMessage,
)
from soev.golden import (
    CallsFile,
    Change,
    ShownCall,
    TraceReport,
    cluster,
    diff_calls,
    diff_requests,
    parse_calls,
    render_calls,
    shown,
)

from .strategies import requests

SYSTEM = SystemMessage("You are a support assistant.\nAnswer briefly.\nCite each source.")
BRIEFER = SystemMessage("You are a support assistant.\nAnswer in one sentence.\nCite each source.")
ASKED, ALSO = UserMessage("Where is my refund?"), UserMessage("And my order?")
CALLED = AssistantMessage(calls=(ToolCall(id="r1", name="search", arguments={"query": "refund"}),))
FOUND = ToolMessage("r1", "[1] Refund policy: 30 days.")
BASE: tuple[Message, ...] = (SYSTEM, ASKED, CALLED, FOUND)


def tool(name: str = "search", description: str = "Search.", **properties: Any) -> ToolDef:
    """Make a tool with these properties."""
    more = {"properties": properties} if properties else {}
    return ToolDef(name, description, {"additionalProperties": False, "type": "object", **more})


def diff(
    old: Iterable[Message], new: Iterable[Message], was: Any = None, now: Any = None
) -> list[Change]:
    """Compare two requests with these messages and other fields."""
    one, other = ChatRequest(tuple(old), **(was or {})), ChatRequest(tuple(new), **(now or {}))
    return list(diff_requests(shown(one), shown(other)))


def titles(changes: Iterable[Change]) -> list[str]:
    """Return what each change is called."""
    return [change.title for change in changes]


@given(requests, requests)
def test_requests_differ_exactly_when_their_hashes_do(one: ChatRequest, other: ChatRequest) -> None:
    """There is a change to show for every two requests that are not the same."""
    changes = diff_requests(shown(one), shown(other))
    assert bool(changes) == (one.hash != other.hash)


def test_an_edited_line_is_one_change_with_its_context() -> None:
    """A changed sentence is a hunk of the system message, found by its line."""
    (change,) = diff(BASE, (BRIEFER, *BASE[1:]))
    assert change == Change(
        "message",
        "system",
        removed=("Answer briefly.",),
        added=("Answer in one sentence.",),
        before=("You are a support assistant.",),
        after=("Cite each source.",),
        part="message 0",
        offset=0,
    )
    assert change.title == "system message"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ((SYSTEM, ASKED, ALSO, CALLED, FOUND), ["user message inserted"]),
        ((SYSTEM, CALLED, FOUND), ["user message removed"]),
        ((ASKED, CALLED, FOUND), ["system message removed"]),
        ((ASKED, SYSTEM, CALLED, FOUND), ["user message moved"]),
        ((BRIEFER, ASKED, ALSO, CALLED, FOUND), ["system message", "user message inserted"]),
        ((SYSTEM, ASKED, CALLED, ToolMessage("r1", "None.")), ["tool message"]),
        ((SYSTEM, ASKED, AssistantMessage("Well.", CALLED.calls), FOUND), ["assistant message"]),
        (
            (SYSTEM, ASKED, CALLED, ToolMessage("r1", "[2] Refund policy: 30 days.")),
            ["numbering of sources"],
        ),
        (
            (
                SYSTEM,
                ASKED,
                AssistantMessage(calls=(CALLED.calls[0].model_copy(update={"id": "r2"}),)),
                ToolMessage("r2", FOUND.content),
            ),
            ["numbering of calls", "numbering of calls"],
        ),
    ],
)
def test_messages_are_aligned_by_what_they_are(
    new: tuple[Message, ...], expected: list[str]
) -> None:
    """An insertion, a removal, a move, an edit and a renumbering are each named as such."""
    assert sorted(titles(diff(BASE, new))) == sorted(expected)


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ({"model": "gpt-x"}, {"model": "gpt-y"}, [("model", "gpt-x", "gpt-y")]),
        ({}, {"options": {"seed": 1}}, [("option seed", "", "1")]),
        ({"options": {"seed": 1}}, {"options": {"seed": True}}, [("option seed", "1", "true")]),
        ({}, {"tool_choice": "none"}, [("tool choice", "auto", "none")]),
        ({}, {"response_schema": {}}, [("response schema", "", "{}")]),
        ({"tools": (tool(),)}, {}, [("tool search: withdrawn", "Search.", "")]),
        ({}, {"tools": (tool(),)}, [("tool search: added", "", "Search.")]),
        (
            {"tools": (tool(),)},
            {"tools": (tool(description="Find."),)},
            [("tool search: description", "Search.", "Find.")],
        ),
        (
            {"tools": (tool(),)},
            {"tools": (tool(query={"type": "string"}),)},
            [("tool search: parameters", "", "query: string")],
        ),
        (
            {"tools": (tool("a"), tool("b"))},
            {"tools": (tool("b"), tool("a"))},
            [("order of the tools", "a, b", "b, a")],
        ),
    ],
)
def test_settings_and_tools_have_changes_of_their_own(
    was: dict[str, Any], now: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    """Each field of a request that differs is named, with both values."""
    changes = diff(BASE, BASE, was, now)
    found = [(each.title, "\n".join(each.removed), "\n".join(each.added)) for each in changes]
    assert found == expected


def test_two_texts_are_aligned_only_as_far_as_the_work_is_bounded() -> None:
    """Long texts that repeat their lines are one hunk, short ones are aligned by line."""
    old, new = "\n".join(["a", "x"] * 1_000), "\n".join(["x", "b"] * 1_000)
    (change,) = diff([ToolMessage("r1", old)], [ToolMessage("r1", new)])
    assert (len(change.removed), len(change.added)) == (2_000, 2_000)
    small = diff([ToolMessage("r1", old[:40])], [ToolMessage("r1", new[:40])])
    assert len(small) > 1


def file_of(*made: ChatRequest) -> CallsFile:
    """Make a calls file of these requests."""
    calls = [ShownCall(n, 1, "model", n, shown(each)) for n, each in enumerate(made, 1)]
    return CallsFile("refund", "assistant", 1, tuple(calls))


def conversation(*first: Message) -> list[ChatRequest]:
    """Make the requests of a conversation that begins with these messages."""
    return [ChatRequest([*first, ASKED]), ChatRequest([*first, ASKED, CALLED, FOUND])]


def report(name: str, accepted: CallsFile, today: CallsFile) -> TraceReport:
    """Make the report of a trace of this name."""
    parsed = parse_calls(render_calls(accepted))
    return TraceReport(
        name, "assistant", f"{name}.calls.md", "changed", diff_calls(parsed, today), accepted=True
    )


def test_one_edit_is_one_cluster_in_all_calls_of_all_traces() -> None:
    """A changed sentence of the prompt is a single change, found first at its line."""
    pair = file_of(*conversation(SYSTEM)), file_of(*conversation(BRIEFER))
    reports = [report(name, *pair) for name in ("refund", "gift-card", "order")]
    (found,) = cluster(reports)
    assert (found.letter, found.change.title) == ("A", "system message")
    assert len(found.places) == 6
    assert found.traces == ("refund.calls.md", "gift-card.calls.md", "order.calls.md")
    text = render_calls(pair[0]).split("\n")
    assert text[found.line - 1] == "    You are a support assistant."
    assert found.file == "refund.calls.md"


def test_the_same_edit_with_other_values_is_one_cluster() -> None:
    """Numbers and ids are blanked before changes are told apart, words are not."""
    days = [conversation(SystemMessage(f"Order o-{n}0: {n} days.")) for n in range(1, 4)]
    later = [conversation(SystemMessage(f"Order o-{n}0: after {n} days.")) for n in range(1, 4)]
    pairs = zip(days, later, strict=True)
    reports = [report(str(n), file_of(*a), file_of(*b)) for n, (a, b) in enumerate(pairs)]
    (found,) = cluster(reports)
    assert (found.variants, len(found.places)) == (3, 6)
    other = file_of(*conversation(SystemMessage("Order o-10: within 1 days.")))
    assert len(cluster([*reports, report("4", file_of(*days[0]), other)])) == 2


def test_a_prefix_that_the_next_call_no_longer_shares_is_a_change() -> None:
    """A clock in the prompt moves the provider's cache, which a text alone does not show."""
    clocked = [
        ChatRequest([SystemMessage(f"It is {n}."), *made.messages[1:]])
        for n, made in enumerate(conversation(SYSTEM))
    ]
    first, second = diff_calls(file_of(*conversation(SYSTEM)), file_of(*clocked))
    assert titles(first.changes) == ["system message"]
    assert titles(second.changes) == ["system message", "prompt prefix"]
    assert second.changes[1].added == ("new from message 0",)


def test_calls_that_came_or_went_are_changes() -> None:
    """A call without an accepted one, and an accepted one without a call, are both reported."""
    both = conversation(SYSTEM)
    longer = diff_calls(file_of(both[0]), file_of(*both))
    shorter = diff_calls(file_of(*both), file_of(both[0]))
    assert [titles(call.changes) for call in longer] == [[], ["call of node model added"]]
    assert [titles(call.changes) for call in shorter] == [[], ["call of node model removed"]]


def test_letters_go_on_after_z() -> None:
    """The 27th change is called AA."""
    names = [f"tool_{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(28)]
    today = replace(file_of(ChatRequest([SYSTEM], tools=tuple(map(tool, names)))))
    found = cluster([report("many", file_of(ChatRequest([SYSTEM])), today)])
    assert [each.letter for each in found][-3:] == ["Z", "AA", "AB"]
