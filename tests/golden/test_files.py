"""Events files: what is written reads back, and damage is named."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soev.domain import (
    Cancelled,
    Compaction,
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Input,
    ModelOutput,
    StoredEvent,
    ToolOutput,
    canonical_json,
)
from soev.golden import (
    BadLineError,
    ConflictMarkersError,
    GoldenFileError,
    GoldenTrace,
    TruncatedFileError,
    UnknownFormatError,
    calls_path,
    canonical_order,
    golden_text,
    golden_trace,
    read_golden,
    read_header,
    trace_name,
    write_golden,
)

from .shop import called, found, log, said, turn
from .strategies import json_values, texts

EXPECTED = """\
{"soev":"golden/1","name":"hello","agent":"assistant","events":4,"calls":1,"types":["opened",\
"input","model_output","ended"],"version":"1.4.0","source":"test:tests/test_a.py::test_b",\
"scrubbed":["ids","times"],"kept":["times"]}
{"position":1,"type":"opened","stream":"main","origin":null,"left":1,"version":"1.4.0",\
"ts":"2024-05-06T09:30:01.750000Z","data":{"agent":"assistant"}}
{"position":2,"type":"input","stream":"main","origin":null,"left":0,"version":"1.4.0",\
"ts":"2024-05-06T09:30:01.750000Z","data":{"answers":null,"elements":[],"model":null,\
"payload":"Grüße\\n"}}
"""


def hello() -> GoldenTrace:
    """Make the smallest trace of a whole turn."""
    events = log([Input(payload="Grüße\n")], said("Hi."))
    facts: dict[str, Any] = {"scrubbed": ("ids", "times"), "kept": ("times",)}
    return golden_trace(
        "hello", "assistant", events, source="test:tests/test_a.py::test_b", **facts
    )


def test_the_text_of_a_trace_is_fixed() -> None:
    """Header and events have their keys in a fixed order, one event a line."""
    text = golden_text(hello())
    assert text.startswith(EXPECTED)
    assert text.count("\n") == 5


def test_a_trace_reads_back_equal(tmp_path: Path) -> None:
    """What was written is read with the same header and events, and gives the same bytes."""
    path = tmp_path / "deep" / "hello.soev.jsonl"
    write_golden(path, hello())
    golden = read_golden(path)
    assert (golden.header, golden.events) == (hello().header, hello().events)
    assert golden_text(golden).encode() == path.read_bytes()
    assert read_header(path) == golden.header
    assert (trace_name(path), calls_path(path).name) == ("hello", "hello.calls.md")
    assert [each.name for each in path.parent.iterdir()] == ["hello.soev.jsonl"]


def test_crlf_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """A checkout with CRLF is the same trace."""
    path = tmp_path / "hello.soev.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + golden_text(hello()).replace("\n", "\r\n").encode())
    assert read_golden(path).events == hello().events
    assert read_header(path) == hello().header


payloads = st.dictionaries(texts, json_values, max_size=3)


@given(st.lists(payloads, max_size=3))
def test_any_payload_reads_back_as_the_same_text(found_: list[dict[str, object]]) -> None:
    """The payload's canonical text comes back character by character."""
    events = [StoredEvent("note", canonical_json(each)) for each in found_]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "x.soev.jsonl"
        write_golden(path, golden_trace("x", "assistant", events))
        assert [each.data for each in read_golden(path).events] == [each.data for each in events]


BAD: dict[str, tuple[str, str, type[GoldenFileError], str]] = {
    "cut": ('"position":4', "", TruncatedFileError, ":5: the last line is cut off"),
    "short": (
        '"events":4',
        '"events":5',
        TruncatedFileError,
        "says 5 events, the file has 4",
    ),
    "conflict": (
        '{"position":3',
        '<<<<<<< HEAD\n{"position":3',
        ConflictMarkersError,
        ":4: git conflict markers at line 4",
    ),
    "version": ("golden/1", "golden/9", UnknownFormatError, "the format 'golden/9', this version"),
    "other": ('"soev"', '"sove"', UnknownFormatError, ":1: the first line is no 'golden/1' header"),
    "no JSON": ('{"position":3', '{position":3', BadLineError, ":4: the line is no JSON object"),
    "order": ('"position":3', '"position":7', BadLineError, ":4: the event has position 7, not 3"),
    "field": (
        '"stream":"main"',
        '"stream":5',
        BadLineError,
        "the field 'stream' is no text: 5",
    ),
    "header": (
        '"calls":1',
        '"calls":"1"',
        BadLineError,
        "the field 'calls' is no integer: '1'",
    ),
    "time": ("2024-05-06T", "yesterday", BadLineError, ":2: Invalid isoformat"),
}


@pytest.mark.parametrize("kind", BAD)
def test_damage_is_named_with_its_line(kind: str, tmp_path: Path) -> None:
    """Each kind of damage has its own message, with file, line and what to do."""
    old, new, error, message = BAD[kind]
    text = golden_text(hello())
    path = tmp_path / "hello.soev.jsonl"
    cut = text[: text.index(old)] if kind == "cut" else text.replace(old, new, 1)
    path.write_text(cut, "utf-8")
    with pytest.raises(error) as caught:
        read_golden(path, "tests/golden/hello.soev.jsonl")
    assert str(caught.value).startswith("tests/golden/hello.soev.jsonl:")
    assert message in str(caught.value)
    assert str(caught.value).endswith(caught.value.advice)


def test_a_file_that_is_no_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    """A byte that is no UTF-8 is found by its line."""
    path = tmp_path / "hello.soev.jsonl"
    path.write_bytes(golden_text(hello()).encode().replace("ü".encode(), b"\xfc"))
    with pytest.raises(BadLineError, match=":3: the line is no UTF-8"):
        read_golden(path)


def branch(node: str, number: int, *events: Event, after: int = 2) -> list[Event]:
    """Put events into the branch of this number that hangs on an event of the root."""
    stream = f"main/{node}#{after}.{number}"
    return [event.model_copy(update={"stream": stream, "origin": node}) for event in events]


def texts_of(events: tuple[StoredEvent, ...]) -> list[str]:
    """Name each event by its stream and seq."""
    return [f"{event.stream} {event.seq}" for event in events]


def test_streams_stand_whole_after_the_event_that_they_hang_on() -> None:
    """Whatever order branches finished in, the file has them whole and by index."""
    steps: list[list[Event]] = [
        [Input(payload="Hi")],
        branch("b", 2, ModelOutput(text="b1")),
        branch("a", 1, ModelOutput(text="a1")),
        branch("b", 2, ModelOutput(text="b2")),
        branch("a", 1, ModelOutput(text="a2")),
        said("Joined."),
    ]
    other = [steps[0], steps[2], steps[4], steps[1], steps[3], steps[5]]
    ordered = canonical_order(log(*steps))
    assert texts_of(ordered) == [
        "main 1",
        "main 2",
        "main/a#2.1 1",
        "main/a#2.1 2",
        "main/b#2.2 1",
        "main/b#2.2 2",
        "main 3",
        "main 4",
    ]
    assert texts_of(canonical_order(log(*other))) == texts_of(ordered)
    assert [event.data for event in canonical_order(log(*other))] == [e.data for e in ordered]


def test_cancelled_and_what_follows_it_come_last_and_its_input_is_counted_anew() -> None:
    """`Cancelled` points at the input where that stands in the file."""
    first = turn()
    late = branch("b", 2, EffectResult(intent="i"), after=7)
    steps: list[list[Event]] = [
        *first,
        [Input(payload="Again")],
        branch("b", 2, EffectIntent(kind="pay", id="i"), after=7),
        [Cancelled(input=7)],
        late,
    ]
    ordered = canonical_order(log(*steps))
    assert [event.type for event in ordered][-3:] == ["effect_intent", "cancelled", "effect_result"]
    assert ordered[-2].data == '{"input":7}'


@given(st.permutations(range(6)))
def test_the_order_does_not_depend_on_the_order_of_streams(order: list[int]) -> None:
    """Any interleaving of the same streams gives the same file, and loses nothing."""
    hi: list[Event] = [Input(payload="Hi")]
    tails = [branch(name, n, ModelOutput(text=name)) for n, name in enumerate("abcdef", 1)]
    mixed = canonical_order(log(hi, *(tails[place] for place in order)))
    plain = canonical_order(log(hi, *tails))
    assert [(e.stream, e.seq, e.data) for e in mixed] == [(e.stream, e.seq, e.data) for e in plain]
    assert Counter(event.stream for event in mixed) == Counter(event.stream for event in plain)


def test_calls_are_counted_in_the_header() -> None:
    """Outputs, summaries and failures of model calls count; other failures do not."""
    events = log(
        [Input(payload="Hi")],
        [Failure(error_type="E", message="m", transient=True, request_hash="h")],
        [Failure(error_type="E", message="m", transient=True)],
        [called("c")],
        [found("c")],
        [Compaction(text="t", through=3)],
    )
    assert golden_trace("x", "assistant", events).header.calls == 3
    assert ToolOutput.type in golden_trace("x", "assistant", events).header.types
