"""The contract of chat models as one test class."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import pytest

from pytest_soev.suites._laws import overridden
from soev.domain import (
    AssistantMessage,
    CallSite,
    ChatDelta,
    ChatModel,
    ChatReply,
    ChatRequest,
    ImagePart,
    JsonValue,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolDef,
    ToolMessage,
    TransientError,
    Usage,
    UserMessage,
    call_site,
    canonical_json,
)

PREPARED = "prepared requests"
"""The capability to say what would be sent: `prepare` returns more than None."""
BREAKING = "broken streams"
"""The capability to break an answer off in the middle, in the model or in its tests."""

TEXT = "Grüße: two\nlines, and a 漢 🍵."
CALLS = (
    ToolCall(id="call_1", name="search", arguments={"query": 'refund "now"', "limit": 3}),
    ToolCall(id="call_2", name="order", arguments={}),
)
ASK = ChatRequest((UserMessage("Hello"),))
LONG = ChatRequest(
    messages=(
        SystemMessage("Be brief."),
        UserMessage((TextPart("See:"), ImagePart("image/png", data=b"\x89PNG"))),
        AssistantMessage("Looking.", (ToolCall(id="r1", name="search", arguments={"q": 1}),)),
        ToolMessage("r1", "[1] Nothing."),
        AssistantMessage(calls=(ToolCall(id="x1", name="search", raw="{oops"),)),
        ToolMessage("x1", "The arguments are no JSON object."),
    ),
    model="another-model",
    options={"temperature": 0.5, "seed": 1},
    response_schema={"type": "object", "properties": {}, "additionalProperties": False},
    tool_choice="required",
    tools=(
        ToolDef("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}}),
        ToolDef("order", "Look up an order.", {"type": "object", "properties": {}}),
    ),
)


@dataclass(frozen=True)
class Exchange:
    """A model over a provider that a test plays.

    Args:
        model: The model.
        sent: Returns the bodies that the provider was sent so far, oldest first.
    """

    model: ChatModel
    sent: Callable[[], Sequence[JsonValue]]


class ChatModelSuite:
    """Holds a chat model to its contract, one test per clause.

    Subclass it under a name that begins with `Test`, and fill `answering` and `failing`; fill
    `breaking` too, or declare in `lacks` what there is not. A clause may be overridden only by a
    test that is marked `xfail` with a reason.

    Attributes:
        lacks: The capabilities that the model or its tests do not have: `PREPARED`, `BREAKING`.
            Their clauses are reported as skipped.
        secret: The key that the tests send with, to be looked for where it must not be.
    """

    lacks: ClassVar[Collection[str]] = ()
    secret: ClassVar[str | None] = None

    def answering(self, reply: ChatReply) -> AbstractAsyncContextManager[Exchange]:
        """Open a model whose provider answers every request with this reply."""
        raise NotImplementedError(f"{type(self).__name__} must say how its provider answers.")

    def failing(self) -> AbstractAsyncContextManager[Exchange]:
        """Open a model whose provider is busy at every request, without waits between tries."""
        raise NotImplementedError(f"{type(self).__name__} must say how its provider fails.")

    def breaking(self, text: str) -> AbstractAsyncContextManager[Exchange]:
        """Open a model whose provider says this text, and breaks off before the end."""
        raise NotImplementedError(
            f"{type(self).__name__} must say how its provider breaks off, or list `BREAKING` in "
            "`lacks`."
        )

    # --- prepare ----------------------------------------------------------------------------------

    def test_m1_prepare_is_pure(self) -> None:
        """M1: Preparing twice gives equal requests, and changes nothing of what was asked."""
        self._need(PREPARED)

        async def clause(exchange: Exchange) -> None:
            for request in (ASK, LONG):
                before = request.hash
                first = exchange.model.prepare(request)
                assert first == exchange.model.prepare(request)
                assert first == exchange.model.prepare(replace(request))
                assert replace(request).hash == before

        self._play(self.answering(ChatReply(TEXT)), clause)

    def test_m2_prepare_sends_nothing(self) -> None:
        """M2: Preparing does no I/O."""

        async def clause(exchange: Exchange) -> None:
            exchange.model.prepare(LONG)
            assert list(exchange.sent()) == []

        self._play(self.answering(ChatReply(TEXT)), clause)

    def test_m3_prepare_equals_what_is_sent(self) -> None:
        """M3: The prepared body is the one that the provider gets."""
        self._need(PREPARED)

        async def clause(exchange: Exchange) -> None:
            for request in (ASK, LONG):
                prepared = exchange.model.prepare(request)
                assert prepared is not None
                await _reply(exchange.model, request)
                assert canonical_json(exchange.sent()[-1]) == canonical_json(prepared.body)

        self._play(self.answering(ChatReply(TEXT)), clause)

    def test_m4_prepare_tells_requests_apart(self) -> None:
        """M4: Requests that differ in what a model is shown are prepared differently."""
        self._need(PREPARED)
        variants = (
            LONG,
            replace(LONG, messages=LONG.messages[:4]),
            replace(LONG, model="a-third-model"),
            replace(LONG, options={"temperature": 0.6, "seed": 1}),
            replace(LONG, response_schema=None),
            replace(LONG, tool_choice="none"),
            replace(LONG, tools=LONG.tools[:1]),
        )

        async def clause(exchange: Exchange) -> None:
            bodies = [exchange.model.prepare(request) for request in variants]
            written = {canonical_json(each.body) for each in bodies if each is not None}
            assert len(written) == len(variants)

        self._play(self.answering(ChatReply(TEXT)), clause)

    def test_m5_a_key_is_nowhere(self) -> None:
        """M5: The key is in no prepared request and in no repr."""

        async def clause(exchange: Exchange) -> None:
            shown = [repr(exchange.model), str(exchange.model), repr(exchange.model.prepare(LONG))]
            await _reply(exchange.model, ASK)
            shown.append(repr(exchange.model))
            assert self.secret is None or not any(self.secret in text for text in shown)

        self._play(self.answering(ChatReply(TEXT)), clause)

    # --- stream -----------------------------------------------------------------------------------

    def test_m6_streamed_text_joins_to_the_reply(self) -> None:
        """M6: The deltas join to the reply's text, and the reply comes last and once."""

        async def clause(exchange: Exchange) -> None:
            *deltas, reply = [piece async for piece in exchange.model.stream(ASK)]
            assert isinstance(reply, ChatReply)
            assert reply.text == TEXT
            assert all(isinstance(delta, ChatDelta) for delta in deltas)
            assert "".join(delta.text for delta in deltas) == TEXT

        self._play(self.answering(ChatReply(TEXT)), clause)

    def test_m7_calls_come_whole(self) -> None:
        """M7: Parallel calls keep their order, ids, names and arguments."""

        async def clause(exchange: Exchange) -> None:
            reply = await _reply(exchange.model, LONG)
            assert (reply.calls, reply.finish) == (CALLS, "tools")

        self._play(self.answering(ChatReply(calls=CALLS, finish="tools")), clause)

    @pytest.mark.parametrize("finish", ["stop", "length"])
    def test_m8_the_reason_to_stop_is_kept(self, finish: str) -> None:
        """M8: An answer that was cut by its length is an answer that says so."""
        told = ChatReply(TEXT, finish="length" if finish == "length" else "stop")

        async def clause(exchange: Exchange) -> None:
            assert (await _reply(exchange.model, ASK)).finish == finish

        self._play(self.answering(told), clause)

    def test_m9_usage_is_counted(self) -> None:
        """M9: The tokens that a provider counts are in the reply."""
        usage = Usage(input_tokens=11, output_tokens=5, cached_tokens=3, reasoning_tokens=2)

        async def clause(exchange: Exchange) -> None:
            assert (await _reply(exchange.model, ASK)).usage == usage

        self._play(self.answering(ChatReply(TEXT, usage=usage)), clause)

    def test_m10_calls_at_once_do_not_mix(self) -> None:
        """M10: Streams that are read in turns are each whole."""

        async def clause(exchange: Exchange) -> None:
            replies = await asyncio.gather(*(_reply(exchange.model, ASK) for _ in range(5)))
            assert [reply.text for reply in replies] == [TEXT] * len(replies)

        self._play(self.answering(ChatReply(TEXT)), clause)

    def test_m11_a_stream_can_be_left(self) -> None:
        """M11: A stream that is closed after its first piece leaves the model usable."""

        async def clause(exchange: Exchange) -> None:
            # Every model's stream is a generator in practice; the port asks for less.
            stream = cast("Any", exchange.model.stream(ASK))
            async with aclosing(stream):
                assert isinstance(await anext(stream), ChatDelta)
            assert (await _reply(exchange.model, ASK)).text == TEXT

        self._play(self.answering(ChatReply(TEXT)), clause)

    def test_m12_the_call_site_is_not_needed(self) -> None:
        """M12: A model answers alike inside a step and outside of one."""

        async def clause(exchange: Exchange) -> None:
            outside = await _reply(exchange.model, ASK)
            call_site.set(CallSite("thread", "agent", "main", "model", lambda _: None))
            assert await _reply(exchange.model, ASK) == outside

        self._play(self.answering(ChatReply(TEXT)), clause)

    # --- errors -----------------------------------------------------------------------------------

    def test_m13_a_busy_provider_is_a_transient_error(self) -> None:
        """M13: What may succeed later is a TransientError, before anything was said."""

        async def clause(exchange: Exchange) -> None:
            pieces, error = await _until_error(exchange.model)
            assert isinstance(error, TransientError)
            assert pieces == []
            assert str(error)
            assert self.secret is None or self.secret not in f"{error} {error!r}"

        self._play(self.failing(), clause)

    def test_m14_a_broken_stream_is_no_answer(self) -> None:
        """M14: A stream that breaks off raises a TransientError in place of its reply."""
        self._need(BREAKING)

        async def clause(exchange: Exchange) -> None:
            pieces, error = await _until_error(exchange.model)
            assert isinstance(error, TransientError)
            assert not any(isinstance(piece, ChatReply) for piece in pieces)
            assert TEXT.startswith("".join(piece.text for piece in pieces))

        self._play(self.breaking(TEXT), clause)

    def test_no_clause_is_overridden(self) -> None:
        """Each clause is the suite's own, or marked `xfail` with a reason."""
        changed = overridden(type(self), ChatModelSuite)
        assert changed == [], "mark each of them with `pytest.mark.xfail(reason=...)`"

    def _need(self, capability: str) -> None:
        if capability in self.lacks:
            pytest.skip(f"{type(self).__name__} declares that it lacks {capability!r}")

    def _play(
        self,
        opened: AbstractAsyncContextManager[Exchange],
        clause: Callable[[Exchange], Coroutine[Any, Any, None]],
    ) -> None:
        """Run a clause in an event loop of its own."""

        async def main() -> None:
            async with opened as exchange:
                await clause(exchange)

        asyncio.run(main())


async def _reply(model: ChatModel, request: ChatRequest) -> ChatReply:
    pieces = [piece async for piece in model.stream(request)]
    assert isinstance(pieces[-1], ChatReply)
    return pieces[-1]


async def _until_error(
    model: ChatModel,
) -> tuple[list[ChatDelta | ChatReply], TransientError | None]:
    pieces: list[ChatDelta | ChatReply] = []
    try:
        async for piece in model.stream(ASK):
            pieces.append(piece)  # noqa: PERF401 (what came before an error counts too)
    except TransientError as error:
        return pieces, error
    return pieces, None
