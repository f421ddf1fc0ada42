"""Our models under the contract of chat models."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest
import stamina

from pytest_soev.suites import ChatModelSuite, Exchange
from soev.adapters import OpenAIChatModel, ScriptedChatModel, fail, forever, reply, stream
from soev.domain import ChatReply, JsonValue, TransientError

KEY = "sk-tea-0123456789abcdefghij"
FINISHES = {"stop": "stop", "tools": "tool_calls", "length": "length"}


def usage_of(told: ChatReply) -> dict[str, JsonValue] | None:
    """Return the tokens of a reply as Chat Completions counts them."""
    if told.usage is None:
        return None
    return {
        "prompt_tokens": told.usage.input_tokens,
        "completion_tokens": told.usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": told.usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": told.usage.reasoning_tokens},
    }


def deltas_of(told: ChatReply) -> Iterator[dict[str, JsonValue]]:
    """Yield a reply in the pieces that a server would send."""
    yield {"role": "assistant", "content": ""}
    for character in told.text:
        yield {"content": character}
    for index, call in enumerate(told.calls):
        arguments = json.dumps(call.arguments)
        function: dict[str, JsonValue] = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.id, "function": function}]}
        for start in range(0, len(arguments), 5):
            piece: dict[str, JsonValue] = {"arguments": arguments[start : start + 5]}
            yield {"tool_calls": [{"index": index, "function": piece}]}


def body_of(told: ChatReply, *, whole: bool = True) -> str:
    """Return the event stream of a reply, without its end when it is not whole."""
    chunks: list[dict[str, JsonValue]] = [
        {"choices": [{"index": 0, "delta": delta}]} for delta in deltas_of(told)
    ]
    if whole:
        ending: JsonValue = FINISHES[told.finish]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": ending}]})
        chunks.append({"choices": [], "usage": usage_of(told)})
    events = [json.dumps(chunk) for chunk in chunks] + (["[DONE]"] if whole else [])
    return "".join(f"data: {event}\n\n" for event in events)


@pytest.mark.soev_live("a transport in memory answers")
class TestOpenAIChatModel(ChatModelSuite):
    """OpenAIChatModel over a transport that answers from memory."""

    secret = KEY

    @pytest.fixture(autouse=True)
    def _key(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        with stamina.set_testing(True, attempts=2):
            yield

    @asynccontextmanager
    async def _responding(self, status: int, kind: str, body: str) -> AsyncIterator[Exchange]:
        sent: list[JsonValue] = []

        def respond(request: httpx.Request) -> httpx.Response:
            sent.append(json.loads(request.content))
            return httpx.Response(status, headers={"content-type": kind}, text=body)

        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
            yield Exchange(OpenAIChatModel("tea-1", client=client), lambda: sent)

    @asynccontextmanager
    async def answering(self, reply: ChatReply) -> AsyncIterator[Exchange]:
        async with self._responding(200, "text/event-stream", body_of(reply)) as exchange:
            yield exchange

    @asynccontextmanager
    async def failing(self) -> AsyncIterator[Exchange]:
        busy = json.dumps({"error": {"message": f"Busy, {KEY}."}})
        async with self._responding(503, "application/json", busy) as exchange:
            yield exchange

    @asynccontextmanager
    async def breaking(self, text: str) -> AsyncIterator[Exchange]:
        body = body_of(ChatReply(text), whole=False)
        async with self._responding(200, "text/event-stream", body) as exchange:
            yield exchange


class TestScriptedChatModel(ChatModelSuite):
    """ScriptedChatModel with one step for every call."""

    def _exchange(self, model: ScriptedChatModel) -> Exchange:
        def sent() -> Sequence[JsonValue]:
            return [model.prepare(request).body for request in model.requests]

        return Exchange(model, sent)

    @asynccontextmanager
    async def answering(self, reply_: ChatReply) -> AsyncIterator[Exchange]:
        yield self._exchange(ScriptedChatModel(forever(reply(lambda _: reply_))))

    @asynccontextmanager
    async def failing(self) -> AsyncIterator[Exchange]:
        yield self._exchange(ScriptedChatModel(forever(fail(TransientError("busy")))))

    @asynccontextmanager
    async def breaking(self, text: str) -> AsyncIterator[Exchange]:
        broken = stream(text[:3], text[3:], TransientError("cut"))
        yield self._exchange(ScriptedChatModel(forever(broken)))
