"""A small agent, its models and its logs, that golden traces of these tests are made of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from soev.domain import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    Ended,
    Event,
    Input,
    ModelOutput,
    Opened,
    PreparedRequest,
    Source,
    StoredEvent,
    ToolCall,
    ToolOutput,
    canonical_json,
    stamped,
)
from soev.golden import GoldenTrace, golden_trace
from soev.runtime import Agent, accepted, encode, event_types_of, replay, tool
from soev.toolkit import ReActAgent, ReActConfig

PROMPT = "You are a support assistant.\nAnswer briefly.\nCite each source."
MONDAY = datetime(2024, 5, 6, 9, 30, 0, 250_000, tzinfo=UTC)


class Document(Source):
    """A page that can be cited."""

    tag: ClassVar[str] = "document"

    title: str


@tool(name="search", description="Search the documents. Use short keyword queries.")
async def search(query: str) -> ToolOutput:
    """Find documents."""
    return ToolOutput(text=query)


@dataclass
class SilentModel:
    """A model that prepares and never answers."""

    name: str = "gpt-x"

    def prepare(self, request: ChatRequest) -> PreparedRequest | None:
        return None

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        raise AssertionError("no model is called in a replay")


def react(prompt: Any = PROMPT, **more: Any) -> Agent[Any, Any]:
    """Make the agent with this prompt."""
    config: dict[str, Any] = {"tools": (search,), "element_types": (Document,), **more}
    return ReActAgent(ReActConfig(model=SilentModel(), prompt=prompt, **config))


def agents(prompt: Any = PROMPT, **more: Any) -> dict[str, Agent[Any, Any]]:
    """Make the project's agents."""
    return {"assistant": react(prompt, **more)}


def called(*ids: str, node: str = "model") -> ModelOutput:
    """Make an output that calls `search` under these ids."""
    calls = tuple(ToolCall(id=each, name="search", arguments={"query": "refund"}) for each in ids)
    return ModelOutput(calls=calls, finish="tools", origin=node)


def found(call: str, text: str = "30 days.", **more: Any) -> ToolOutput:
    """Make a result."""
    return ToolOutput(call_id=call, text=text, origin="tools", **more)


def said(text: str) -> list[Event]:
    """Make the append that ends a turn."""
    return [ModelOutput(text=text, origin="model"), Ended()]


def turn(question: str = "Where is my refund?", call: str = "call_x1") -> list[list[Event]]:
    """Make the appends of a turn with one search."""
    return [[Input(payload=question)], [called(call)], [found(call)], said("Thirty days.")]


def log(*appends: Sequence[Event], agent: str = "assistant") -> tuple[StoredEvent, ...]:
    """Store appends as a store would, the first one with `Opened`."""
    first, *rest = appends
    return tuple(_stored([[Opened(agent=agent), *first], *rest]))


def _stored(appends: Sequence[Sequence[Event]]) -> Iterator[StoredEvent]:
    moment = MONDAY
    seqs: dict[str, int] = {}
    for append in appends:
        moment += timedelta(seconds=1.5)
        for place, event in enumerate(append):
            left = sum(each.stream == event.stream for each in append[place + 1 :])
            seqs[event.stream] = seqs.get(event.stream, 0) + 1
            envelope = {"ts": moment, "left": left, "version": "1.4.0", "seq": seqs[event.stream]}
            yield encode(stamped(event, **envelope))


async def pinned(
    events: Sequence[StoredEvent], agent: Agent[Any, Any] | None = None
) -> tuple[StoredEvent, ...]:
    """Return a log whose outputs have the hashes of what this agent sends."""
    agent = agent or react()
    types = event_types_of([agent])

    def graph_for(opening: Input) -> Any:
        return agent.build(None, accepted(agent.input, opening)[1], opening.model)

    calls = await replay([types.decode(event) for event in events], graph_for)
    requests = {(call.stream, call.answer.seq): call.request for call in calls}
    done = []
    for event in events:
        request = requests.get((event.stream, event.seq))
        data = json.loads(event.data)
        if request is not None:
            data.update(request_hash=request.hash, sent_chars=request.sent_chars)
        done.append(replace(event, data=canonical_json(data)))
    return tuple(done)


async def refund(name: str = "refund") -> GoldenTrace:
    """Make the golden trace of a conversation of two turns."""
    events = log(*turn(), *turn("And the other one?", "call_x2"))
    return golden_trace(name, "assistant", await pinned(events))
