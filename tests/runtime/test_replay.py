"""Replay rebuilds recorded model calls, and retrace holds decisions against today's graph."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest

from soev.domain import (
    ROOT_STREAM,
    BudgetExceeded,
    ChatDelta,
    ChatReply,
    ChatRequest,
    Ended,
    Event,
    Failure,
    Input,
    Message,
    ModelOutput,
    PreparedRequest,
    ResourceUnavailableError,
    SystemMessage,
    ToolCall,
    ToolOutput,
    Trace,
    UserMessage,
    stamped,
)
from soev.runtime import (
    Budget,
    Graph,
    LlmStep,
    ModelContext,
    Numbering,
    refusing,
    replay,
    retrace,
)

pytestmark = pytest.mark.anyio


class PreparingModel:
    """A ChatModel that prepares and must never be asked to answer."""

    name = "preparing"

    def prepare(self, request: ChatRequest) -> PreparedRequest | None:
        return PreparedRequest("POST", "/chat", {}, {"messages": len(request.messages)})

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        pytest.fail("a replay called the model")


@dataclass(frozen=True)
class Builder:
    """Shows a prompt and how many events there are."""

    prompt: str = "Be kind."

    def __call__(self, view: Trace) -> ModelContext:
        shown: list[Message] = [
            SystemMessage(self.prompt),
            UserMessage(f"{len(view)} events in {view.stream}"),
        ]
        return ModelContext(ChatRequest(shown), "preparing", None, Numbering({}, {}))


async def note(trace: Trace) -> Sequence[Event]:
    """Stand for any step that calls no model."""
    return [ToolOutput(text="noted")]


def loop(builder: Callable[[Trace], ModelContext] | None = None, *, cap: int = 9) -> Graph:
    """A model that goes to its tools while it calls them."""
    graph = Graph()
    graph.add_node("model", LlmStep(builder=builder or Builder(), model=PreparingModel()))
    graph.add_node("tools", note)
    graph.add_node("review", note)
    graph.set_entry_point("model")
    graph.add_conditional_edge("model", to_tools)
    graph.add_edge("tools", "model")
    graph.set_budget(Budget(cap, "model", 1))
    return graph


def to_tools(view: Trace) -> str | None:
    """Go on to the tools while the model calls them."""
    output = view.latest(ModelOutput)
    return "tools" if output is not None and output.calls_tools else None


def log(*events: Event) -> list[Event]:
    """Give events of the root stream what a store would: seq, and `left` 0 unless it is set."""
    return [
        stamped(event, seq=seq, left=event.left or 0, stream=ROOT_STREAM)
        for seq, event in enumerate(events, 1)
    ]


def output(prompt: str, seen: int, **fields: object) -> ModelOutput:
    """An output as the builder's request of that moment was answered."""
    shown: list[Message] = [SystemMessage(prompt), UserMessage(f"{seen} events in main")]
    sent = ChatRequest(shown).hash
    made = ModelOutput(request_hash=sent, **fields)  # type: ignore[arg-type]  # any field
    return stamped(made, origin="model")


CALL = (ToolCall(id="c1", name="search"),)


def conversation() -> list[Event]:
    """Two turns, the first with a tool."""
    return log(
        Input(payload="a"),
        output("Be kind.", 1, calls=CALL),
        ToolOutput(call_id="c1", origin="tools"),
        stamped(output("Be kind.", 3, text="done"), left=1),
        Ended(),
        Input(payload="b"),
        stamped(output("Be kind.", 6, text="again"), left=1),
        Ended(),
    )


async def test_unchanged_code_sends_what_was_sent() -> None:
    """Each call of a trace has the recorded hash when the code is the same."""
    calls = await replay(conversation(), lambda _: loop())
    assert [call.same_request for call in calls] == [True, True, True]
    assert [(call.index, call.position, call.node) for call in calls] == [
        (1, 1, "model"),
        (2, 3, "model"),
        (3, 6, "model"),
    ]
    assert calls[0].prepared == PreparedRequest("POST", "/chat", {}, {"messages": 2})


async def test_a_changed_prompt_shows_in_each_call() -> None:
    """A builder that shows something else gives other requests."""
    calls = await replay(conversation(), lambda _: loop(Builder("Be brief.")))
    assert [call.same_request for call in calls] == [False, False, False]


async def test_the_graph_is_built_once_for_each_turn() -> None:
    """`graph_for` gets the input that opened each turn."""
    asked: list[object] = []

    def graph_for(input: Input) -> Graph:
        asked.append(input.payload)
        return loop()

    await replay(conversation(), graph_for)
    assert asked == ["a", "b"]


async def test_a_failed_call_is_rebuilt() -> None:
    """A Failure with a request's hash is a call, one without is none."""
    sent = output("Be kind.", 1).request_hash
    events = log(
        Input(payload="a"),
        Failure(error_type="X", message="m", transient=True, request_hash=sent, origin="model"),
        Failure(error_type="Y", message="m", transient=True, origin="tools"),
    )
    (call,) = await replay(events, lambda _: loop())
    assert call.same_request is True
    assert isinstance(call.answer, Failure)


async def test_what_cannot_be_rebuilt_says_why() -> None:
    """A node that is gone, a step without a builder and a builder that raises are named."""

    def broken(view: Trace) -> ModelContext:
        raise KeyError("locale")

    gone = [replace_origin(event) for event in conversation()]
    (first, *_) = await replay(gone, lambda _: loop())
    assert first.unreplayable == "the graph has no node 'writer' any more"
    raising = await replay(conversation(), lambda _: loop(broken))
    assert raising[0].unreplayable is not None
    assert "raised KeyError: 'locale'" in raising[0].unreplayable
    assert isinstance(raising[0].error, KeyError)
    unbuildable = await replay(conversation(), refuse)
    assert unbuildable[0].unreplayable is not None
    assert "could not be built: ResourceUnavailableError" in unbuildable[0].unreplayable
    assert unbuildable[0].same_request is None


def replace_origin(event: Event) -> Event:
    """Let another node have answered."""
    return stamped(event, origin="writer") if isinstance(event, ModelOutput) else event


def refuse(input: Input) -> Graph:
    """Use a resource where a graph is built."""
    refusing("resources").index.search("x")
    return loop()


async def test_a_step_that_wraps_another_is_followed() -> None:
    """The builder and model of a wrapped step are found through `__wrapped__`."""

    class Timed:
        def __init__(self, step: LlmStep) -> None:
            self.__wrapped__ = step

        async def __call__(self, trace: Trace) -> Sequence[Event]:
            return await self.__wrapped__(trace)

    def graph_for(_: Input) -> Graph:
        graph = loop()
        wrapped = Graph()
        wrapped.add_node("model", Timed(graph.node("model").step))  # type: ignore[arg-type]  # a step
        wrapped.set_entry_point("model")
        return wrapped

    calls = await replay(conversation(), graph_for)
    assert all(call.same_request for call in calls)


async def test_events_of_one_append_are_seen_from_before_it() -> None:
    """A call that records something before its output was made from the view before both."""
    events = log(
        Input(payload="a"),
        stamped(ToolOutput(text="first", origin="model"), left=1),
        output("Be kind.", 1, text="x"),
    )
    (call,) = await replay(events, lambda _: loop())
    assert call.same_request is True
    assert call.position == 1


def test_unchanged_routing_has_no_divergence() -> None:
    """Today's graph takes each recorded decision when nothing changed."""
    assert retrace(conversation(), lambda _: loop()) == []


def test_a_changed_router_is_named_with_both_ways() -> None:
    """A router that goes elsewhere is a divergence at the event that it led to."""

    def graph_for(_: Input) -> Graph:
        graph = Graph()
        for node in loop().nodes:
            graph.add_node(node.name, node.step)
        graph.set_entry_point("model")
        graph.add_conditional_edge("model", lambda view: "review" if to_tools(view) else None)
        graph.add_edge("tools", "model")
        return graph

    (found,) = retrace(conversation(), graph_for)
    assert (found.position, found.recorded, found.planned) == (3, "tools", "review")
    assert found.reason == "the recorded turn went to 'tools'; today's graph goes to 'review'"


def test_a_turn_that_would_go_on_is_a_divergence_of_its_end() -> None:
    """An `Ended` needs a plan that ends the turn."""

    def graph_for(_: Input) -> Graph:
        graph = loop()
        graph.add_edge("review", "review")
        plain = Graph()
        plain.add_node("model", graph.node("model").step)
        plain.add_node("tools", note)
        plain.set_entry_point("model")
        plain.add_edge("model", "tools")
        plain.add_edge("tools", "model")
        return plain

    found = retrace(conversation(), graph_for)
    assert [(each.position, each.recorded, each.planned) for each in found] == [
        (5, None, "tools"),
        (8, None, "tools"),
    ]


def test_a_budget_that_trips_today_is_a_divergence() -> None:
    """A lower cap wants a trip where the tools ran, and the other way round."""
    (found,) = retrace(conversation(), lambda _: loop(cap=0))
    assert (found.position, found.recorded, found.planned) == (3, "tools", "model")
    tripped = conversation()
    tripped[2] = stamped(BudgetExceeded(cap=0, trip=1), origin="model", seq=3, left=0)
    assert retrace(tripped, lambda _: loop(cap=0)) == []
    (other,) = retrace(tripped, lambda _: loop())
    assert (other.position, other.planned) == (3, "tools")


def test_a_graph_that_cannot_be_built_or_lost_a_node_is_a_divergence() -> None:
    """Each turn that no graph can be made for is told once, and a lost node by its error."""
    found = retrace(conversation(), refuse)
    assert [each.position for each in found] == [1, 6]
    lost = [
        stamped(event, origin="gone") if isinstance(event, ToolOutput) else event
        for event in conversation()
    ]
    after_lost = retrace(lost, lambda _: loop())
    assert any("'gone'" in each.reason for each in after_lost)


async def test_a_refusing_resource_refuses_every_use() -> None:
    """Calls, awaits, loops and indexing name the resource; comparing and showing it work."""
    index = refusing("resources").index
    uses: list[Callable[[], object]] = [
        index,
        index.__enter__,
        partial(iter, index),
        partial(setattr, index, "x", 1),
        lambda: index[0],
        lambda: "x" in index,
    ]
    for use in uses:
        with pytest.raises(ResourceUnavailableError, match=r"`resources\.index`"):
            use()
    with pytest.raises(ResourceUnavailableError, match=r"resources\.index"):
        await index
    with pytest.raises(ResourceUnavailableError, match=r"resources\.index\.search"):
        index.search("x")
    assert index == refusing("resources").index
    assert index != refusing("other")
    assert bool(index)
    assert hash(index) == hash(refusing("resources").index)
    assert repr(index) == "<refusing resources.index>"


async def test_replay_reads_the_thread_once() -> None:
    """A view of a long thread shares its events: the builder is shown growing views in order."""
    seen: list[int] = []

    def builder(view: Trace) -> ModelContext:
        seen.append(len(view))
        return replace(Builder()(view))

    turns = [e for n in range(50) for e in (Input(payload=n), output("p", 0), Ended())]
    await replay(log(*turns), lambda _: loop(builder))
    assert seen == [3 * n + 1 for n in range(50)]
