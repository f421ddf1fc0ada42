"""The rendering of requests, and its parser, against each other."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings

from soev.domain import (
    AssistantMessage,
    ChatRequest,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolDef,
    ToolMessage,
    UserMessage,
)
from soev.golden import (
    BadLineError,
    CallsFile,
    Comparison,
    ConflictMarkersError,
    GoldenFileError,
    ShownCall,
    TruncatedFileError,
    UnknownFormatError,
    parse_calls,
    render_calls,
    shown,
)

from .strategies import calls_files, requests

EXAMPLE = """\
<!-- soev calls/1: accepted requests. Change with `pytest --soev-replay --soev-update`, \
not by hand. -->
# refund-denied
agent assistant, 2 turns, 2 calls, as recorded

## tools T1
### search
    Search the documents. Use short keyword queries.
    query: string, required

## call 1: turn 1, node model, gpt-x, tools T1, after event 2
### 0 system
    You are a support assistant.
    Answer briefly.
### 1 user
    Where is my refund?

## call 2: turn 1, node model, gpt-x, tools T1, after event 4
= 0..1 of call 1
### 2 assistant
    call search(query="refund policy") as r1
### 3 tool r1
    [1] Refund policy: 30 days.
"""
SEARCH = ToolDef(
    "search",
    "Search the documents. Use short keyword queries.",
    {
        "additionalProperties": False,
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    },
)
FIRST: tuple[Message, ...] = (
    SystemMessage("You are a support assistant.\nAnswer briefly."),
    UserMessage("Where is my refund?"),
)
SECOND: tuple[Message, ...] = (
    *FIRST,
    AssistantMessage(
        calls=(ToolCall(id="r1", name="search", arguments={"query": "refund policy"}),)
    ),
    ToolMessage("r1", "[1] Refund policy: 30 days."),
)


def request(messages: Iterable[Message] = (), **more: Any) -> ChatRequest:
    """Make a request with the example's model and tool."""
    return ChatRequest(tuple(messages), **{"model": "gpt-x", "tools": (SEARCH,), **more})


def calls(*given: ChatRequest) -> CallsFile:
    """Make a file of these requests, all of turn 1."""
    made = [
        ShownCall(n, 1, "model", 2 * n, shown(each), comparison="as recorded")
        for n, each in enumerate(given, 1)
    ]
    return CallsFile("refund-denied", "assistant", 2, tuple(made))


def test_a_call_shows_only_what_no_earlier_call_has() -> None:
    """The second call names the messages that it shares and prints the others."""
    assert render_calls(calls(request(FIRST), request(SECOND))) == EXAMPLE


@settings(max_examples=300)
@given(calls_files())
def test_parsing_gives_back_what_was_rendered(file: CallsFile) -> None:
    """What is rendered reads back equal, and as the same text."""
    text = render_calls(file)
    parsed = parse_calls(text)
    assert parsed == file
    assert render_calls(parsed) == text


@given(calls_files())
def test_a_formatter_changes_nothing(file: CallsFile) -> None:
    """CRLF, blank lines around sections and stripped line ends read back as the same calls."""
    lines = render_calls(file).split("\n")
    spaced = [f"\n{line}\n" if line.startswith(("#", "=")) else line.rstrip() for line in lines]
    assert parse_calls("\r\n".join(spaced).rstrip().replace("\r\n\n", "\n\n")) == file


@given(calls_files())
def test_nothing_invisible_is_written(file: CallsFile) -> None:
    """No line ends in a space, and no control character but the line end is in the text."""
    text = render_calls(file)
    assert not [line for line in text.split("\n") if line != line.rstrip(" ")]
    assert not set(text) & set("\r\t\x00\x7f\u00a0\u2028\ufeff")


@settings(max_examples=300)
@given(requests, requests)
def test_equal_renderings_have_equal_hashes(one: ChatRequest, other: ChatRequest) -> None:
    """Two requests are shown alike exactly when their hashes are equal."""
    assert (shown(one) == shown(other)) == (one.hash == other.hash)


PIECES = ("", "\n", " ", "text:", "image: a", "no parts", "call a() as b", "reasoning: 1", "\\&")
TEXTS = sorted({"".join(pieces) for pieces in product(PIECES, repeat=3)})


def contents() -> Iterable[Any]:
    """Yield texts and message parts that are made of our own marks."""
    yield from TEXTS
    yield ()
    some = TEXTS[::7]
    yield from ((TextPart(text),) for text in TEXTS)
    yield from ((TextPart(one), TextPart(other)) for one, other in product(some, some))
    yield from ((ImagePart("a", url=text), TextPart(text)) for text in TEXTS)
    yield from ((ImagePart("a", data=text.encode()),) for text in TEXTS)


def spoken() -> Iterable[Message]:
    """Yield assistant messages, with calls and reasoning that texts could be taken for."""
    for text, raw in product(TEXTS, (None, "", "\n")):
        yield AssistantMessage(text)
        yield AssistantMessage(text, reasoning=1)
        yield AssistantMessage(text, (ToolCall(id="b", name="a", raw=raw),))
        yield AssistantMessage(text, (ToolCall(id="b", name="a", arguments={"a": text}),), 1)


def tools() -> Iterable[ToolDef]:
    """Yield tools whose descriptions look like the lines of arguments."""
    lines = (
        "",
        "\n",
        "a: string",
        "a: string, required",
        "(schema): {}",
        "(no arguments)",
        "    b",
    )
    types: tuple[dict[str, Any], ...] = (
        {"type": "string"},
        {"type": "string", "description": "b"},
        {},
        {"description": ""},
    )
    needs: tuple[list[str], ...] = ([], ["a"], ["b"])
    for text, schema, required in product(product(lines, repeat=2), types, needs):
        object_ = {"type": "object", "properties": {"a": schema}, "required": required}
        yield ToolDef("t", "".join(text), object_)
        yield ToolDef("t", "".join(text), {"type": "object", "properties": {"a": schema}})
        yield ToolDef("t", "x", {"properties": {"a": {**schema, "description": "".join(text)}}})
    yield ToolDef("t", "", {})
    rests: list[dict[str, Any]] = [{}, {"properties": {}}]
    for rest, closed in product(rests, (None, False, 0)):
        more = {} if closed is None else {"additionalProperties": closed}
        yield ToolDef("t", "", {"type": "object", **rest, **more})


MADE: dict[str, Callable[[], Iterable[ChatRequest]]] = {
    "contents": lambda: (ChatRequest([UserMessage(each)]) for each in contents()),
    "assistant": lambda: (ChatRequest([each]) for each in spoken()),
    "tools": lambda: (ChatRequest([], tools=(each,)) for each in tools()),
}


@pytest.mark.parametrize("kind", MADE)
def test_no_two_requests_of_our_own_marks_are_shown_alike(kind: str) -> None:
    """Among thousands of requests made of our marks, equal lines mean equal hashes."""
    seen: dict[object, str] = {}
    for each in MADE[kind]():
        assert seen.setdefault(shown(each), each.hash) == each.hash
    assert len(seen) == len(set(seen.values())) > 50


def test_settings_have_lines_where_they_are_not_the_defaults() -> None:
    """Options, tool choice and schema are written when they differ from the call that is shared."""
    plain = request(FIRST, tools=())
    strict = request(
        SECOND, tools=(), options={"temperature": 0.2}, tool_choice="required", response_schema={}
    )
    text = render_calls(calls(plain, strict, request(SECOND, tools=())))
    settings_ = 'options: {"temperature":0.2}\ntool_choice: required\nresponse_schema: {}\n'
    assert f"= 0..1 of call 1\n{settings_}### 2" in text
    assert text.endswith(
        "= 0..3 of call 2\noptions: {}\ntool_choice: auto\nresponse_schema: none\n"
    )


def test_images_are_shown_by_their_digest() -> None:
    """An image's bytes stand in the file as their size and SHA-256."""
    image = ImagePart("image/png", data=b"x" * 12_288)
    (message,) = shown(ChatRequest([UserMessage((TextPart("See"), image))])).messages
    assert message.lines[:2] == ("text:", "See")
    assert (
        message.lines[2]
        == f"image: image/png 12 KiB sha256:{sha256(image.data or b'').hexdigest()}"
    )


def test_parts_are_found_by_line() -> None:
    """A shared message stands where the earlier call prints it; a tool where its set is printed."""
    parsed = parse_calls(EXAMPLE)
    lines = EXAMPLE.split("\n")
    assert lines[parsed.line(2) - 1].startswith("## call 2")
    assert lines[parsed.line(2, "message 0") - 1] == "    You are a support assistant."
    assert lines[parsed.line(2, "message 3") - 1] == "    [1] Refund policy: 30 days."
    assert lines[parsed.line(1, "tool search") - 1].startswith("    Search the documents.")


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("calls/1", "calls/2", UnknownFormatError, "x.md:1: the file has the format 'calls/2'"),
        ("<!-- soev", "<!--", UnknownFormatError, "x.md:1: the first line does not say"),
        ("2 calls", "3 calls", TruncatedFileError, "line 3 says 3 calls, the file has 2"),
        ("### 1", "<<<<<<< HEAD\n### 1", ConflictMarkersError, "x.md:14: git conflict markers"),
        ("### 1 user", "### 7 user", BadLineError, "x.md:14: message 7 stands where 1 belongs"),
        ("0..1 of", "0..9 of", BadLineError, "x.md:18: no earlier call 1 has messages 0..9"),
        ("tools T1,", "tools T9,", BadLineError, "x.md:10: there are no tools T9 in this file"),
        ("# refund", "refund", BadLineError, "x.md:2: a heading `# NAME` belongs here"),
        ("### 3 tool", "junk", BadLineError, "x.md:21: `## call N"),
    ],
)
def test_a_damaged_file_is_refused_by_line(
    old: str, new: str, error: type[GoldenFileError], message: str
) -> None:
    """Each kind of damage is named with file and line, and with what to do."""
    with pytest.raises(error) as caught:
        parse_calls(EXAMPLE.replace(old, new, 1), "x.md")
    assert message in str(caught.value)
    assert caught.value.advice in str(caught.value)


def test_a_call_says_how_it_compares_only_where_it_differs_from_most() -> None:
    """One accepted change turns the head of the file, and not the heading of every call."""
    file = calls(request(FIRST), request(SECOND), request(SECOND))
    states: tuple[Comparison, ...] = ("as recorded", "changed since recorded", "as recorded")
    shown_calls = tuple(
        replace(call, comparison=state) for call, state in zip(file.calls, states, strict=True)
    )
    text = render_calls(replace(file, calls=shown_calls))
    assert ", 3 calls, as recorded\n" in text
    assert text.count("as recorded") == 1
    assert text.count("changed since recorded") == 1
    assert [call.comparison for call in parse_calls(text).calls] == list(states)
