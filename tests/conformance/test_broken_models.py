"""Models with one fault each: exactly the clauses that are named for it fail."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import signature
from itertools import count
from typing import Any

import pytest

from pytest_soev.suites import ChatModelSuite, Exchange
from soev.adapters import ScriptedChatModel, fail, forever, reply, stream
from soev.domain import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    JsonValue,
    PreparedRequest,
    TransientError,
    call_site,
)

Pieces = AsyncIterator[ChatDelta | ChatReply]


class Sound(ScriptedChatModel):
    """A model without a fault, whose parts the broken ones replace."""

    def __init__(self, *steps: Any, key: str = "") -> None:
        super().__init__(*steps)
        self.key = key
        self.counter = count()
        self.wire: list[JsonValue] = []

    async def stream(self, request: ChatRequest) -> Pieces:
        self.wire.append(self.prepare(request).body)
        async for piece in super().stream(request):
            yield piece


class CountsPreparations(Sound):
    def prepare(self, request: ChatRequest) -> PreparedRequest:
        made = super().prepare(request)
        return replace(made, headers={"x-count": str(next(self.counter))})


class SendsWhenPreparing(Sound):
    def prepare(self, request: ChatRequest) -> PreparedRequest:
        made = super().prepare(request)
        self.wire.append(made.body)
        return made


class PreparesSomethingElse(Sound):
    async def stream(self, request: ChatRequest) -> Pieces:
        async for piece in super().stream(replace(request, options={"seed": 7})):
            yield piece


class ForgetsTools(Sound):
    def prepare(self, request: ChatRequest) -> PreparedRequest:
        return super().prepare(replace(request, tools=()))


class ShowsItsKey(Sound):
    def __repr__(self) -> str:
        return f"Model({self.key})"


class LosesText(Sound):
    async def stream(self, request: ChatRequest) -> Pieces:
        async for piece in super().stream(request):
            yield ChatDelta(piece.text[:-1]) if isinstance(piece, ChatDelta) else piece


class Replying(Sound):
    """A model that changes each reply."""

    def change(self, told: ChatReply) -> ChatReply:
        raise NotImplementedError

    async def stream(self, request: ChatRequest) -> Pieces:
        async for piece in super().stream(request):
            yield self.change(piece) if isinstance(piece, ChatReply) else piece


class TurnsCallsAround(Replying):
    def change(self, told: ChatReply) -> ChatReply:
        return replace(told, calls=told.calls[::-1])


class HidesLength(Replying):
    def change(self, told: ChatReply) -> ChatReply:
        return replace(told, finish="stop" if told.finish == "length" else told.finish)


class CountsNoTokens(Replying):
    def change(self, told: ChatReply) -> ChatReply:
        return replace(told, usage=None)


class KnowsItsPlace(Replying):
    def change(self, told: ChatReply) -> ChatReply:
        return replace(told, model="inside" if call_site.get() else "outside")


class WorksOnce(Sound):
    async def stream(self, request: ChatRequest) -> Pieces:
        if next(self.counter):
            raise TransientError("used up")
        async for piece in super().stream(request):
            yield piece


class RaisesItsOwn(Sound):
    async def stream(self, request: ChatRequest) -> Pieces:
        try:
            async for piece in super().stream(request):
                yield piece
        except TransientError as error:
            raise OSError("busy") from error


class EndsBrokenStreams(Sound):
    async def stream(self, request: ChatRequest) -> Pieces:
        said = ""
        try:
            async for piece in super().stream(request):
                said += piece.text
                yield piece
        except TransientError:
            if not said:
                raise
            yield ChatReply(said)


FAULTS: dict[type[Sound], set[str]] = {
    Sound: set(),
    CountsPreparations: {"m1"},
    SendsWhenPreparing: {"m2"},
    PreparesSomethingElse: {"m3"},
    ForgetsTools: {"m4"},
    ShowsItsKey: {"m5"},
    LosesText: {"m6"},
    TurnsCallsAround: {"m7"},
    HidesLength: {"m8"},
    CountsNoTokens: {"m9"},
    KnowsItsPlace: {"m12"},
    WorksOnce: {"m3", "m10", "m11", "m12"},
    RaisesItsOwn: {"m13", "m14"},
    EndsBrokenStreams: {"m14"},
}


def suite_of(made: type[Sound]) -> ChatModelSuite:
    """Return the contract, to be held against a kind of model."""

    class Suite(ChatModelSuite):
        secret = "sk-tea-0123456789abcdefghij"

        def exchange(self, step: Any) -> Exchange:
            model = made(forever(step), key=self.secret)

            def sent() -> Sequence[JsonValue]:
                return model.wire

            return Exchange(model, sent)

        @asynccontextmanager
        async def answering(self, reply_: ChatReply) -> AsyncIterator[Exchange]:
            yield self.exchange(reply(lambda _: reply_))

        @asynccontextmanager
        async def failing(self) -> AsyncIterator[Exchange]:
            yield self.exchange(fail(TransientError("busy")))

        @asynccontextmanager
        async def breaking(self, text: str) -> AsyncIterator[Exchange]:
            yield self.exchange(stream(text[:3], TransientError("cut")))

    return Suite()


def clauses() -> list[str]:
    """Return the names of the clauses."""
    return [name for name in dir(ChatModelSuite) if name.startswith("test_m")]


def holds(clause: Callable[..., None]) -> bool:
    """Tell whether a clause holds, for each of its cases."""
    cases = ["stop", "length"] if "finish" in signature(clause).parameters else [None]
    try:
        for case in cases:
            clause(*([] if case is None else [case]))
    except (AssertionError, TransientError, OSError):
        return False
    return True


@pytest.mark.parametrize("made", FAULTS, ids=lambda made: made.__name__)
def test_a_fault_fails_its_clauses_alone(made: type[Sound]) -> None:
    """A model with one fault fails exactly the clauses that the fault breaks."""
    suite = suite_of(made)
    failed = {name for name in clauses() if not holds(getattr(suite, name))}
    assert {name.split("_")[1] for name in failed} == FAULTS[made]


def test_every_clause_has_a_fault() -> None:
    """Each clause fails for at least one of the broken models."""
    named = {name.split("_")[1] for name in clauses()}
    assert set().union(*FAULTS.values()) == named


def test_a_clause_cannot_be_dropped_in_silence() -> None:
    """A subclass that replaces a clause fails, unless it says why by `xfail`."""

    class Dropped(ChatModelSuite):
        test_m9_usage_is_counted = None  # type: ignore[assignment] # the fault

    class Explained(ChatModelSuite):
        @pytest.mark.xfail(reason="the server counts nothing")
        def test_m9_usage_is_counted(self) -> None:
            raise NotImplementedError

    with pytest.raises(AssertionError, match="test_m9_usage_is_counted"):
        Dropped().test_no_clause_is_overridden()
    Explained().test_no_clause_is_overridden()


def test_what_is_lacking_is_skipped_by_name() -> None:
    """A capability that a subclass declares to lack skips its clauses."""

    class Lacking(ChatModelSuite):
        lacks = ("prepared requests", "broken streams")

    for name in ("test_m1_prepare_is_pure", "test_m14_a_broken_stream_is_no_answer"):
        with pytest.raises(pytest.skip.Exception, match="Lacking declares that it lacks"):
            getattr(Lacking(), name)()


def test_a_hook_that_is_missing_says_which() -> None:
    """A subclass without its hooks is told what to write."""
    with pytest.raises(NotImplementedError, match="must say how its provider answers"):
        ChatModelSuite().answering(ChatReply())
    with pytest.raises(NotImplementedError, match="must say how its provider fails"):
        ChatModelSuite().failing()
    with pytest.raises(NotImplementedError, match="`BREAKING`"):
        ChatModelSuite().breaking("x")
