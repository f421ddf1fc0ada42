"""The step that asks a model, and the one that waits."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from soev.domain import (
    CallSite,
    ChatDelta,
    ChatReply,
    ChatRequest,
    Citation,
    Event,
    Input,
    JsonValue,
    ModelOutput,
    PreparedRequest,
    Request,
    ToolCall,
    ToolOutput,
    Trace,
    TransientError,
    Usage,
    UserMessage,
    call_site,
)
from soev.runtime._context import CitationStrategy, ModelContext
from soev.runtime._numbering import numbering
from soev.runtime._steps import LlmStep, RequestStep
from soev.runtime._tools import tool, tool_def
from soev.toolkit._citing import BRACKETS
from tests.runtime.elements import Document, Order, read

pytestmark = pytest.mark.anyio

Script = Sequence[ChatDelta | ChatReply | Exception]


@dataclass
class FakeModel:
    """A ChatModel that plays a script."""

    script: Script
    name: str = "fake"
    closed: list[str] = field(default_factory=list)

    def prepare(self, request: ChatRequest) -> PreparedRequest | None:
        """Say nothing about the wire."""
        return None

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        """Play the script."""
        try:
            for item in self.script:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed.append(request.hash)


@dataclass(frozen=True)
class Builder:
    """A ContextBuilder of one message and the tools of these tests."""

    citations: CitationStrategy | None = BRACKETS
    model: str = "fake"

    def __call__(self, trace: Trace) -> ModelContext:
        """Build the context."""
        request = ChatRequest((UserMessage("Hi"),), tools=(tool_def(read),))
        return ModelContext(request, self.model, self.citations, numbering(trace))


EVENTS: list[Event] = [
    Input(elements=(Document(id="doc-id"), Order(id="order-id"))),
    ModelOutput(calls=(ToolCall(id="known", name="read"), ToolCall(id="open", name="read"))),
    ToolOutput(call_id="known"),
]
VIEW = Trace(EVENTS)
HASH = ChatRequest((UserMessage("Hi"),), tools=(tool_def(read),)).hash


def calling(*calls: ToolCall) -> list[ChatReply]:
    """Return the script of a reply that calls tools."""
    return [ChatReply(calls=calls, finish="tools")]


async def output_of(script: Script, *, builder: Builder = Builder()) -> ModelOutput:
    """Run a step on the view and return its one event."""
    (output,) = await LlmStep(builder, FakeModel(script))(VIEW)
    return output


@contextmanager
def listening() -> Iterator[list[ChatDelta]]:
    """Stand at a call site, as under an engine, and gather the deltas."""
    heard: list[ChatDelta] = []
    token = call_site.set(CallSite("t", None, "main", "model", heard.append))
    try:
        yield heard
    finally:
        call_site.reset(token)


async def test_the_output_records_the_reply() -> None:
    """What the provider said is copied, with the hash and the size of the request."""
    reply = ChatReply(
        text="Hello.",
        model="fake-2",
        usage=Usage(input_tokens=3),
        finish="length",
        reasoning={"sig": "x"},
    )
    output = await output_of([reply])
    assert output == ModelOutput(
        text="Hello.",
        model="fake-2",
        usage=Usage(input_tokens=3),
        finish="length",
        reasoning={"sig": "x"},
        request_hash=HASH,
        sent_chars=Builder()(VIEW).request.sent_chars,
    )


async def test_the_asked_model_stands_in_for_a_silent_reply() -> None:
    """When the reply names no model, the output names the one that was asked."""
    assert (await output_of([ChatReply()], builder=Builder(model="asked"))).model == "asked"


async def test_answer_takes_a_context_that_is_built() -> None:
    """A step of a team's own may change the context and ask with it."""
    step = LlmStep(Builder(), FakeModel([ChatReply(text="So [1].")]))
    output = await step.answer(Builder(citations=None)(VIEW))
    assert (output.text, output.citations) == ("So [1].", ())


async def test_citations_are_read() -> None:
    """Marks become citations of sources, and what names none is kept as invalid."""
    output = await output_of([ChatReply(text="So [1]. And [2].")])
    assert output.text == "So. And."
    assert output.citations == (
        Citation(at=2, ids=("doc-id",)),
        Citation(at=7, invalid=" [2]"),
    )


async def test_listeners_hear_text_without_marks() -> None:
    """The deltas join to the recorded text, reasoning goes through, and no mark is heard."""
    pieces = ["So ", "[", "1", "]", " it", " is [", "x"]
    script: list[ChatDelta | ChatReply] = [ChatDelta(each) for each in pieces]
    script.insert(1, ChatDelta(reasoning="hm"))
    with listening() as heard:
        output = await output_of([*script, ChatReply(text="".join(pieces))])
    assert "".join(each.text for each in heard) == output.text == "So it is [x"
    assert [each.reasoning for each in heard if each.reasoning] == ["hm"]
    assert all(each.text or each.reasoning for each in heard)
    assert not any("1" in each.text for each in heard)


async def test_text_that_is_held_comes_with_the_end() -> None:
    """What could still have become a mark is heard once the reply is whole."""
    with listening() as heard:
        output = await output_of([ChatDelta("So [1"), ChatReply(text="So [1")])
    assert [each.text for each in heard] == ["So", " [1"]
    assert output.text == "So [1"


async def test_without_citations_text_is_handed_on_as_it_comes() -> None:
    """Without a strategy nothing is held back or taken out."""
    with listening() as heard:
        output = await output_of(
            [ChatDelta("So [1"), ChatDelta("]"), ChatReply(text="So [1]")],
            builder=Builder(citations=None),
        )
    assert [each.text for each in heard] == ["So [1", "]"]
    assert output.text == "So [1]"


async def test_numbers_become_real_ids() -> None:
    """Marked arguments are recorded with real ids, and pointers of what names nothing."""
    arguments: dict[str, JsonValue] = {"doc": "1", "order": 9, "result": "r1", "note": "1"}
    output = await output_of(calling(ToolCall(id="c", name="read", arguments=arguments)))
    assert output.calls == (
        ToolCall(
            id="c",
            name="read",
            arguments={"doc": "doc-id", "order": 9, "result": "known", "note": "1"},
            unresolved=("/order",),
        ),
    )


async def test_calls_that_no_tool_takes_stay_as_written() -> None:
    """A call of an unknown tool, or without a JSON object, is recorded as it came."""
    calls = (
        ToolCall(id="a", name="nope", arguments={"doc": "1"}),
        ToolCall(id="b", name="read", raw="{oops"),
    )
    assert (await output_of(calling(*calls))).calls == calls


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a-2", "a-3"]),
        (["", ""], ["-2", "-3"]),
        (["known", "open"], ["known-2", "open-2"]),
        (["a", "a", "a-2"], ["a", "a-2", "a-2-2"]),
    ],
    ids=str,
)
async def test_call_ids_are_unique_in_the_view(given: list[str], recorded: list[str]) -> None:
    """An id that is empty, repeated, or taken in the view gets a suffix."""
    output = await output_of(calling(*[ToolCall(id=each, name="x") for each in given]))
    assert [each.id for each in output.calls] == recorded


@pytest.mark.parametrize("error", [TransientError("busy"), LookupError("odd")], ids=repr)
async def test_what_a_model_raises_carries_the_hash(error: Exception) -> None:
    """Any error of a model call tells which request failed, so that replay can rebuild it."""
    with pytest.raises(type(error)) as raised:
        await output_of([ChatDelta("Hal"), error])
    assert raised.value is error
    assert vars(error)["request_hash"] == HASH


async def test_errors_without_room_are_raised_as_they_are() -> None:
    """An error that takes no attribute is not replaced by another."""

    class Tight(Exception):
        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise AttributeError(name)

    with pytest.raises(Tight):
        await output_of([Tight()])


@pytest.mark.parametrize("script", [[], [ChatDelta("Hal")]], ids=["empty", "cut"])
async def test_a_stream_without_a_reply_is_an_error(script: list[ChatDelta]) -> None:
    """A stream that ends without a ChatReply is never taken for an empty answer."""
    with pytest.raises(ValueError, match="'fake' ended without a `ChatReply`") as raised:
        await output_of(script)
    assert vars(raised.value)["request_hash"] == HASH


async def test_a_stream_is_closed_when_a_listener_breaks() -> None:
    """The model's stream is closed at once, not when the garbage collector comes by."""

    def broken(delta: ChatDelta) -> None:
        raise LookupError("listener")

    model = FakeModel([ChatDelta("a"), ChatDelta("b"), ChatReply()])
    token = call_site.set(CallSite("t", None, "main", "model", broken))
    try:
        with pytest.raises(LookupError, match="listener"):
            await LlmStep(Builder(), model)(VIEW)
        assert model.closed == [HASH]
    finally:
        call_site.reset(token)


async def test_a_request_is_made() -> None:
    """A RequestStep returns its one Request, with what a person is asked."""
    step = RequestStep("approval", "person", {"type": "boolean"}, prompt="Send it?")
    assert await step(VIEW) == [
        Request(kind="approval", actor="person", expects={"type": "boolean"}, prompt="Send it?")
    ]
    assert await RequestStep("ask", "system")(VIEW) == [Request(kind="ask", actor="system")]


def test_steps_compare_by_value() -> None:
    """Steps are frozen values, so a graph that is built again is equal."""
    model = FakeModel([])
    assert LlmStep(Builder(), model) == LlmStep(Builder(), model)
    assert RequestStep("a", "person") != RequestStep("b", "person")
    assert tool(name="a", description="b") == tool(name="a", description="b")
