"""Hostile values on their whole way: refused with a named error, or read back as they were.

The codec's own table is in `test_codec.py`, canonical JSON's in `tests/domain/test_json.py`, and
that of schemas in `test_schemas.py`. Here each value goes through a thread, at each place where a
caller, a model, a tool, an effector or a person can put one.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from soev.adapters import InMemoryTraceStore, SqliteTraceStore
from soev.domain import (
    EffectIntent,
    EffectResult,
    Element,
    Event,
    Failure,
    Head,
    Input,
    LogEntry,
    ModelOutput,
    Request,
    StoredEvent,
    ToolCall,
    ToolOutput,
    Trace,
    TraceStore,
    UnencodableError,
    UnknownElementTypeError,
)
from soev.runtime import (
    CORE_EVENT_TYPES,
    Graph,
    InputDeniedError,
    Runs,
    Thread,
    UnknownEventTypeError,
    UnreadableEventError,
)
from soev.runtime._sameness import difference
from tests import postgres
from tests.reliability.report import SOAK
from tests.runtime.deeds import Mail, Mailer, World

MEGA = 1 << 20
VALUES, ROWS_TRIED = (1_500, 1_000) if SOAK == 1 else (120_000, 80_000)


class Thing(Element):
    """An element with any value in it."""

    tag: ClassVar[str] = "thing"

    value: JsonValue = None


TYPES = CORE_EVENT_TYPES.including(Thing)


def nested(depth: int, *, objects: bool = False) -> Any:
    """Nest lists or objects."""
    value: Any = 0
    for _ in range(depth):
        value = {"a": value} if objects else [value]
    return value


class Horror(NamedTuple):
    """A value, and what is said when it is refused: None for what is taken everywhere.

    Args:
        value: The value.
        said: What every refusal of it says.
        caller: What a caller's payload is refused with, where that is something else.
    """

    value: Any
    said: str | None = None
    caller: str | None = None


SURROGATE = "a lone surrogate is no character"
DEEP = "the nesting passes 128 levels"
LONG = "the integer has over 1000 digits"
WIDE = "the integer does not fit 64 bits"
HORRORS: dict[str, Horror] = {
    "NaN": Horror(math.nan, "nan is no JSON number"),
    "infinity": Horror({"a": [math.inf]}, "inf is no JSON number"),
    "minus infinity": Horror(-math.inf, "-inf is no JSON number"),
    "minus zero": Horror(-0.0),
    "zero": Horror(0),
    "true": Horror(True),
    "one": Horror(1),
    "one as a float": Horror(1.0),
    "the least float": Horror(5e-324),
    "the greatest float": Horror(1.7976931348623157e308),
    "a float of many digits": Horror(0.1 + 0.2),
    "high surrogate": Horror("\ud800", SURROGATE),
    "low surrogate": Horror(["a\udfffb"], SURROGATE),
    "surrogates in the wrong order": Horror("\udc00\ud800", SURROGATE),
    "surrogate in a key": Horror({"\ud800": 1}, SURROGATE),
    "NUL": Horror("a\0b"),
    "NUL in a key": Horror({"\0": "\0"}),
    "control characters": Horror("".join(map(chr, range(32))) + "\x7f\x85"),
    "line separators": Horror("\u2028\u2029"),
    "direction marks": Horror("\u202e\u2066txt.exe\u2069\u200f"),
    "combining and wide": Horror("e\u0301 \U0001f9d1\u200d\U0001f680 \ufdfa"),
    "byte order mark": Horror("\ufeff{}"),
    "noncharacters": Horror("\uffff\U0010ffff"),
    "quotes": Horror("'; DROP TABLE events; -- \" \\ \\u0000 ${x} {{x}} </script>"),
    "key of an object's class": Horror({"__class__": "x", "__proto__": {"a": 1}, "": ""}),
    "keys that are one in other case": Horror({"a": 1, "A": 2, "\u00e1": 3, "a\u0301": 4}),
    "a key of 10 kB": Horror({"k" * 10_000: 1}),
    "an element's tag": Horror({"tag": "nothing", "id": "x"}),
    "a reference": Horror({"$ref": "https://example.com/x"}),
    "nesting 120": Horror(nested(120)),
    "nesting 129": Horror(nested(129), DEEP),
    "nesting 129 of objects": Horror(nested(129, objects=True), DEEP),
    "nesting 200": Horror(nested(200), DEEP),
    "nesting 5000": Horror(nested(5_000), DEEP),
    "64 bits": Horror([2**64 - 1, -(2**63)]),
    "65 bits": Horror(2**64, None, WIDE),
    "1000 digits": Horror(10**1000 - 1, None, WIDE),
    "1001 digits": Horror(10**1000, LONG),
    "5000 digits": Horror(-(10**5000), LONG),
    "key that is no text": Horror(
        {1: 2}, "the key is read back as another", "the key 1 is no text"
    ),
    "key of 5000 digits": Horror({10**5000: 1}, "", "the key of class int is no text"),
    "bytes": Horror(b"x", "a bytes is read back as a str", "a value of class bytes is no JSON"),
    "an object": Horror(object, "a value of class type is no JSON"),
    "many keys": Horror({str(n): n for n in range(5_000)}),
    "a long text": Horror("x" * 500_000),
}


def made(cls: type[Event], **fields: Any) -> Any:
    """Make an event that pydantic did not look at: the runtime must."""
    return cls.model_construct(**fields)


def outputs(value: Any) -> Sequence[Event]:
    """A model's reasoning."""
    return [made(ModelOutput, reasoning=value)]


def arguments(value: Any) -> Sequence[Event]:
    """The arguments of a model's call."""
    call = ToolCall.model_construct(id="c-1", name="look", arguments={"x": value})
    return [made(ModelOutput, calls=(call,))]


def results(value: Any) -> Sequence[Event]:
    """An element of a tool's result."""
    return [made(ToolOutput, elements=(Thing.model_construct(id="e-1", value=value),))]


STEPS = (outputs, arguments, results)


def graph_of(step: object) -> Graph:
    """Make a graph of one node."""
    graph = Graph()
    graph.add_node("step", step)  # type: ignore[arg-type]  # a step or an effect
    graph.set_entry_point("step")
    return graph


def stepping(make: Callable[[Any], Sequence[Event]], value: Any) -> Graph:
    """Make a graph whose step returns what holds a value."""

    async def step(view: Trace) -> Sequence[Event]:
        return make(value)

    return graph_of(step)


async def ran(graph: Graph, store: TraceStore | None = None) -> list[LogEntry[Event]]:
    """Run a turn of a graph to its end, and return the log."""
    runs = Runs()
    thread = Thread("t-1", graph, store or InMemoryTraceStore(), runs, event_types=TYPES)
    await thread.submit(Input(payload="Hello"))
    await thread.resume()
    return [entry async for entry in thread.watch(follow=False)]


def kept(log: Sequence[LogEntry[Event]], value: Any, horror: Horror) -> None:
    """Hold a log to what a horror is: a Failure that says why, or an equal value."""
    last = log[1].event
    if horror.said is not None:
        assert len(log) == 2
        assert isinstance(last, Failure)
        assert last.error_type in {"UnencodableError", "ValueError", "UnreadableEventError"}
        assert horror.said in last.message
        assert not last.transient
        return
    assert not isinstance(last, Failure), last
    expected: Event = value
    fields = type(last).__pydantic_fields__.keys() - {"stream", "origin", "version", "seq", "ts"}
    for name in fields - {"left", "id", "intent"}:
        assert difference_of(getattr(expected, name), getattr(last, name)) is None, name


def difference_of(one: Any, other: Any) -> Any:
    """Return where two values differ, also in their types."""
    return difference(made(EffectResult, output=one), made(EffectResult, output=other))


@pytest.mark.parametrize("name", HORRORS)
@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_what_a_step_returns_is_kept_or_a_failure(
    make: Callable[[Any], Sequence[Event]], name: str
) -> None:
    """What a model or a tool brings in is recorded as it is, or a Failure names it."""
    horror = HORRORS[name]
    log = asyncio.run(ran(stepping(make, horror.value)))
    kept(log, make(horror.value)[0], horror)


class Intending(Mail):
    """An effect that intends any value, and whose effector answers with any.

    Args:
        args: What is intended.
        output: What the effector answers.
    """

    def __init__(self, args: Any, output: Any) -> None:
        mailer = Mailer(World())
        mailer.returns = made(EffectResult, output=output)
        super().__init__(mailer)
        self.args = args

    def intend(self, trace: Trace) -> EffectIntent:
        intent: EffectIntent = made(EffectIntent, kind="mail", args=self.args)
        return intent


@pytest.mark.parametrize("name", HORRORS)
def test_what_an_effect_intends_is_kept_or_a_failure(name: str) -> None:
    """Arguments that cannot be recorded are a Failure, and nothing is performed."""
    horror = HORRORS[name]
    effect = Intending(horror.value, "sent")
    log = asyncio.run(ran(graph_of(effect)))
    kept(log, made(EffectIntent, kind="mail", args=horror.value), horror)
    assert isinstance(effect.effector, Mailer)
    assert sum(effect.effector.performed.values()) == (horror.said is None)


@pytest.mark.parametrize("name", HORRORS)
def test_what_an_effector_answers_is_kept_or_a_failure(name: str) -> None:
    """An answer that cannot be recorded is a Failure, and the intent stays open."""
    horror = HORRORS[name]
    log = asyncio.run(ran(graph_of(Intending(None, horror.value))))
    assert isinstance(log[1].event, EffectIntent)
    kept(log[1:], made(EffectResult, output=horror.value), horror)


@pytest.mark.parametrize("answering", [False, True], ids=["fresh", "response"])
@pytest.mark.parametrize("name", HORRORS)
def test_what_a_caller_sends_is_kept_or_refused(name: str, answering: bool) -> None:
    """A payload is recorded as it is, or an InputDeniedError names it and nothing is recorded."""
    horror = HORRORS[name]
    said = horror.caller if horror.caller is not None else horror.said

    async def step(view: Trace) -> Sequence[Event]:
        return [Request(kind="form", actor="person")]

    async def send() -> None:
        thread = Thread("t-1", graph_of(step), InMemoryTraceStore(), Runs(), event_types=TYPES)
        request = None
        if answering:
            request = (await thread.send(Input(payload="Hello"))).latest(Request)
        before = (await thread.status()).position
        payload = made(Input, payload=horror.value)
        if said is None:
            entry = await thread.submit(payload, answering=request)
            assert isinstance(entry.event, Input)
            assert difference_of(horror.value, entry.event.payload) is None
            return
        with pytest.raises(InputDeniedError) as caught:
            await thread.submit(payload, answering=request)
        assert said in caught.value.problem
        assert caught.value.path is not None
        assert caught.value.path.startswith("$")
        assert len(str(caught.value)) < 2_000
        assert (await thread.status()).position == before

    asyncio.run(send())


@pytest.mark.parametrize("name", HORRORS)
def test_what_a_request_expects_is_kept_or_a_failure(name: str) -> None:
    """A schema with any constant in it is recorded as it is, or a Failure says what is wrong."""
    horror = HORRORS[name]
    request: Request = made(Request, kind="f", actor="a", expects={"const": horror.value})
    log = asyncio.run(ran(stepping(lambda value: [request], None)))
    last = log[1].event
    if isinstance(last, Request):
        assert horror.said is None
        assert difference_of(request.expects, last.expects) is None
    else:
        assert isinstance(last, Failure)
        assert horror.said is not None or name in {"a reference", *BEYOND_THE_LIBRARY}


BEYOND_THE_LIBRARY = {"1000 digits", "65 bits", "nesting 120", "64 bits"}
"""What the JSON Schema library cannot read, the last one in its oldest version alone."""


@pytest.mark.parametrize("name", [name for name in HORRORS if isinstance(HORRORS[name].value, str)])
def test_what_an_error_says_is_always_a_failure(name: str) -> None:
    """Whatever the text of an error is, its Failure is recorded, and read back."""

    async def step(view: Trace) -> Sequence[Event]:
        raise RuntimeError(HORRORS[name].value)

    log = asyncio.run(ran(graph_of(step)))
    assert [entry.event.type for entry in log] == ["input", "failure"]
    failure = log[1].event
    assert isinstance(failure, Failure)
    assert failure.error_type == "RuntimeError"
    assert 0 < len(failure.message) <= 2_000
    failure.message.encode()


# --- the same bytes in every store ---


def taken() -> list[StoredEvent]:
    """Return each horror that is taken, as a store is given it."""
    return [
        TYPES.encode_readable(made(EffectResult, output=horror.value))
        for horror in HORRORS.values()
        if horror.said is None
    ]


NASTY_NAMES = ("main", "main#1/a", "a" * 500, "../../etc", "\u202e", "'; --", "é", "\U0001f9d1")


async def written(store: TraceStore) -> list[tuple[str, str, str | None]]:
    """Write what is taken, in streams and from nodes of odd names, and read it back."""
    events = taken()
    head = Head()
    for number, event in enumerate(events):
        name = NASTY_NAMES[number % len(NASTY_NAMES)]
        odd = StoredEvent(event.type, event.data, name, name, name)
        await store.append("t-\u202eé", [odd], after=head, batch=f"b-{number}")
        head = await store.head("t-\u202eé")
    page = await store.read("t-\u202eé")
    for event, entry in zip(events, page.entries, strict=True):
        assert entry.event.data.encode() == event.data.encode()
        one, other = TYPES.decode(event), TYPES.decode(entry.event)
        assert isinstance(one, EffectResult)
        assert isinstance(other, EffectResult)
        assert difference_of(one.output, other.output) is None
    return [(each.event.data, each.event.stream, each.event.origin) for each in page.entries]


def test_all_stores_keep_the_same_bytes(tmp_path: Path) -> None:
    """What one store takes each takes, and gives back byte by byte."""

    async def compared() -> None:
        memory = await written(InMemoryTraceStore())
        async with SqliteTraceStore(tmp_path / "soev.db") as sqlite:
            assert await written(sqlite) == memory
        async with postgres.open_store(postgres.fresh_schema()) as server:
            assert await written(server) == memory

    asyncio.run(compared())


# --- sizes and ids ---


@pytest.mark.parametrize(("over", "denied"), [(-1, False), (0, False), (1, True)])
def test_an_event_of_one_mebibyte_is_the_largest(over: int, denied: bool) -> None:
    """One byte more is refused: a caller is told, and a step leaves a Failure."""
    frame = len(TYPES.encode_readable(EffectResult(output="")).data)
    event = EffectResult(output="x" * (MEGA - frame + over))

    async def step(view: Trace) -> Sequence[Event]:
        return [ModelOutput(reasoning="x" * (MEGA - reasoning + over))]

    reasoning = len(TYPES.encode_readable(ModelOutput(reasoning="")).data)
    assert len(TYPES.encode_readable(event).data) == MEGA + over
    log = asyncio.run(ran(graph_of(step)))
    recorded = log[1].event
    assert isinstance(recorded, Failure) is denied
    if isinstance(recorded, Failure):
        assert f"{MEGA + 1} bytes pass the limit of {MEGA}" in recorded.message

    async def send() -> None:
        empty = len(TYPES.encode_readable(Input(payload="")).data)
        thread = Thread("t-1", None, InMemoryTraceStore(), Runs())
        payload = Input(payload="x" * (MEGA - empty + over))
        if denied:
            with pytest.raises(InputDeniedError, match="bytes pass the limit"):
                await thread.submit(payload)
        else:
            await thread.submit(payload)

    asyncio.run(send())


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("count", [8, 9])
def test_an_append_of_eight_mebibytes_is_the_largest(count: int, last: bool) -> None:
    """A step that returns more leaves a Failure alone; the turn's end does not count against it."""
    empty = len(TYPES.encode_readable(ModelOutput(reasoning="")).data)
    event = ModelOutput(reasoning="x" * (MEGA - empty))

    async def step(view: Trace) -> Sequence[Event]:
        return [event] * count

    async def end(view: Trace) -> Sequence[Event]:
        return [ModelOutput(text="end")]

    graph = graph_of(step)
    if not last:
        graph.add_node("end", end)
        graph.add_edge("step", "end")
    log = asyncio.run(ran(graph))
    types, recorded = [entry.event.type for entry in log], log[1].event
    if count == 8:
        assert types == ["input", *["model_output"] * (8 if last else 9), "ended"]
    else:
        assert types == ["input", "failure"]
        assert isinstance(recorded, Failure)
        assert "for one append" in recorded.message


@pytest.mark.parametrize(
    ("thread_id", "fits"),
    [
        ("", False),
        ("x" * 200, True),
        ("x" * 201, False),
        ("é" * 127, True),
        ("é" * 127 + "x", True),
        ("é" * 128, False),
        ("a\0b", False),
        ("a\nb", False),
        ("\ud800", False),
        ("\u202eid", False),
        ("../../etc/passwd", True),
        ("a/b#c%d?e", True),
        ("'; DROP TABLE events; --", True),
    ],
)
def test_a_thread_has_an_id_that_every_store_takes(thread_id: str, fits: bool) -> None:
    """1 to 200 printable characters in at most 255 bytes, whatever they are."""

    async def talk() -> None:
        thread = Thread(thread_id, None, InMemoryTraceStore(), Runs())
        await thread.submit(Input(payload=1))
        assert (await thread.status()).position == 1

    if fits:
        asyncio.run(talk())
    else:
        with pytest.raises(ValueError, match="1 to 200 printable characters, at most 255 bytes"):
            Thread(thread_id, None, InMemoryTraceStore(), Runs())


@pytest.mark.parametrize(
    "call_id", ["", "/", "#", "..", "main/a#1.2", "x" * 10_000, "\0", "\u202e", "a\nb", "%2F"]
)
def test_the_id_of_a_call_is_no_part_of_a_stream(call_id: str) -> None:
    """Whatever id a model gives a call, its result is found, and the stream is the same."""

    async def model(view: Trace) -> Sequence[Event]:
        return [ModelOutput(calls=(ToolCall(id=call_id, name="look", arguments={}),))]

    async def tools(view: Trace) -> Sequence[Event]:
        output = view.latest(ModelOutput)
        assert output is not None
        return [ToolOutput(call_id=output.calls[0].id, text="seen")]

    graph = Graph()
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge("model", "tools")
    graph.set_entry_point("model")
    log = asyncio.run(ran(graph))
    assert [entry.event.type for entry in log] == ["input", "model_output", "tool_output", "ended"]
    assert {entry.event.stream for entry in log} == {"main"}
    output, result = log[1].event, log[2].event
    assert isinstance(output, ModelOutput)
    assert isinstance(result, ToolOutput)
    assert Trace([entry.event for entry in log]).results()[output.calls[0]] == result


# --- any value, any row ---

letters = st.text(st.characters(), max_size=6) | st.sampled_from(
    ["\ud800", "\udfff", "\0", "\u202e", "\ufeff", "\u2028", "$ref", "tag", "é"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**999, 10**1000, -(10**1000), 2**63, 2**64, 10**4000])
    | st.floats()
    | letters
    | st.sampled_from([b"x", (1,), frozenset({1}), 1j])
)
anything: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(letters | st.integers(), inner, max_size=3)
        | st.tuples(inner)
        | st.integers(100, 140).flatmap(lambda depth: inner.map(lambda x: wrapped(x, depth)))
    ),
    max_leaves=5,
)


def wrapped(value: Any, depth: int) -> Any:
    """Nest a value in lists."""
    for _ in range(depth):
        value = [value]
    return value


def stored_or_refused(event: Event) -> StoredEvent | str:
    """Return an event as it is stored, or why it is refused."""
    try:
        return TYPES.encode_readable(event)
    except (UnencodableError, UnreadableEventError) as error:
        return str(error)


@settings(max_examples=VALUES, deadline=None)
@given(anything)
@example([True, 1, 1.0, -0.0, 0])
def test_any_value_is_refused_or_read_back_as_it_was(value: Any) -> None:
    """There is no third: a value that is taken is the same after a store, types and bytes too."""
    event: EffectResult = made(EffectResult, output=value)
    stored = stored_or_refused(event)
    if isinstance(stored, str):
        assert len(stored) < 1_000
        return
    back = TYPES.decode(stored)
    assert isinstance(back, EffectResult)
    assert difference_of(value, back.output) is None
    assert TYPES.encode_readable(back).data == stored.data
    assert stored.data.encode().decode() == stored.data


ROWS = [
    TYPES.encode_readable(event)
    for event in (
        ModelOutput(text="x", calls=(ToolCall(id="c", name="n", arguments={"a": [1]}),)),
        ToolOutput(call_id="c", elements=(Thing(id="e", value={"b": None}),)),
        Failure(error_type="E", message="m", transient=True),
        Input(payload={"a": 1}),
        Request(kind="k", actor="person", expects={"type": "integer"}),
    )
]
spoilt = st.tuples(
    st.sampled_from(ROWS),
    st.integers(0, 400),
    st.integers(0, 9),
    letters
    | st.sampled_from(['"', "{", "}", "[", "]", ",", "1e999", "NaN", "-", "nul", "9" * 5_000]),
)


@settings(max_examples=ROWS_TRIED, deadline=None)
@given(spoilt)
def test_any_row_is_read_or_refused_by_name(spoilt: tuple[StoredEvent, int, int, str]) -> None:
    """A row that somebody spoilt raises one of three named errors, and never anything else."""
    row, at, dropped, put = spoilt
    at %= len(row.data) + 1
    data = row.data[:at] + put + row.data[at + dropped :]
    entry = LogEntry(3, StoredEvent(row.type, data))
    refused: UnreadableEventError | None = None
    try:
        TYPES.entry(entry)
    except UnreadableEventError as error:
        refused = error
    except (UnknownEventTypeError, UnknownElementTypeError):
        return
    assert refused is None or (refused.position == 3 and len(str(refused)) < 1_000)


@pytest.mark.parametrize(
    "data",
    [
        "[" * 100_000,
        '{"payload":' + "[" * 100_000,
        '{"payload":1' + "0" * 100_000 + "}",
        "\ud800",
        "{}x",
    ],
)
def test_a_row_of_great_depth_or_length_is_refused_by_name(data: str) -> None:
    """No row ends a process, however deep it is."""
    with pytest.raises(UnreadableEventError):
        TYPES.entry(LogEntry(1, StoredEvent("input", data)))


def test_of_two_equal_keys_in_a_row_nothing_else_breaks() -> None:
    """No store writes a key twice; a row that has one all the same is read as its last."""
    event = TYPES.decode(StoredEvent("input", json.dumps({"payload": 1})[:-1] + ', "payload": 2}'))
    assert isinstance(event, Input)
    assert event.payload == 2
