"""The steps of a scripted model: what it answers, and when."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from pydantic import JsonValue

from soev.domain import ChatDelta, ChatReply, ChatRequest, Finish, ToolCall, Usage

Piece = ChatDelta | ChatReply


@dataclass(frozen=True, slots=True)
class Telling:
    """One answer that is being given: to what, by which model, and where call ids come from."""

    request: ChatRequest
    model: str
    next_id: Callable[[], str]


class ScriptStep:
    """One step of a script: the answer to one call. Made by `say`, `call` and the others."""

    def play(self, telling: Telling) -> AsyncIterator[Piece]:
        """Yield the pieces of the answer."""
        raise NotImplementedError

    def holds(self) -> Iterator[Hold]:
        """Yield the gates in the step."""
        return iter(())

    @property
    def endless(self) -> bool:
        """Whether it answers every later call too."""
        return False

    @property
    def needed(self) -> bool:
        """Whether the script is off when no call uses it."""
        return True


@dataclass(frozen=True)
class _Answer(ScriptStep):
    """Text in pieces and calls. An error among the pieces breaks the stream off there."""

    code: str
    pieces: tuple[str | BaseException, ...] = ()
    calls: tuple[_Called, ...] = ()
    finish: Finish | None = None
    usage: Usage | None = None

    async def play(self, telling: Telling) -> AsyncIterator[Piece]:
        texts: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            texts.append(piece)
            yield ChatDelta(text=piece)
        yield ChatReply(
            text="".join(texts),
            calls=tuple(called.tool_call(telling.next_id) for called in self.calls),
            model=telling.model,
            usage=self.usage,
            finish=self.finish or ("tools" if self.calls else "stop"),
        )

    def __repr__(self) -> str:
        return self.code


@dataclass(frozen=True)
class _Called(ScriptStep):
    """One call of a tool, alone or as a part of `calls`."""

    tool: str | ToolCall
    arguments: dict[str, JsonValue]

    async def play(self, telling: Telling) -> AsyncIterator[Piece]:
        called = self.tool_call(telling.next_id)
        yield ChatReply(calls=(called,), model=telling.model, finish="tools")

    def tool_call(self, next_id: Callable[[], str]) -> ToolCall:
        if isinstance(self.tool, ToolCall):
            return self.tool
        return ToolCall(id=next_id(), name=self.tool, arguments=self.arguments)

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" for name, value in self.arguments.items()]
        return f"call({', '.join([repr(self.tool), *named])})"


@dataclass(frozen=True)
class _Replied(ScriptStep):
    answer: Callable[[ChatRequest], ScriptStep | ChatReply | str]

    async def play(self, telling: Telling) -> AsyncIterator[Piece]:
        answer = self.answer(telling.request)
        if isinstance(answer, ChatReply):
            if answer.text:
                yield ChatDelta(text=answer.text)
            yield answer
            return
        async for piece in (say(answer) if isinstance(answer, str) else answer).play(telling):
            yield piece

    def __repr__(self) -> str:
        return f"reply({getattr(self.answer, '__qualname__', repr(self.answer))})"


@dataclass(frozen=True)
class _Wrapped(ScriptStep):
    """A step inside another."""

    step: ScriptStep

    def play(self, telling: Telling) -> AsyncIterator[Piece]:
        return self.step.play(telling)

    def holds(self) -> Iterator[Hold]:
        return self.step.holds()

    @property
    def endless(self) -> bool:
        return self.step.endless

    @property
    def needed(self) -> bool:
        return self.step.needed


@dataclass(frozen=True)
class _Optional(_Wrapped):
    needed = False

    def __repr__(self) -> str:
        return f"optional({self.step!r})"


@dataclass(frozen=True)
class _Endless(_Wrapped):
    endless = True

    def __repr__(self) -> str:
        return f"forever({self.step!r})"


@dataclass(frozen=True)
class _Thought(_Wrapped):
    thoughts: tuple[str, ...] = ()

    async def play(self, telling: Telling) -> AsyncIterator[Piece]:
        for thought in self.thoughts:
            yield ChatDelta(reasoning=thought)
        async for piece in self.step.play(telling):
            if not isinstance(piece, ChatReply):
                yield piece
                continue
            yield ChatReply(
                text=piece.text,
                calls=piece.calls,
                model=piece.model,
                usage=piece.usage,
                finish=piece.finish,
                reasoning="".join(self.thoughts),
            )

    def __repr__(self) -> str:
        return f"think({', '.join(map(repr, self.thoughts))}, then={self.step!r})"


@dataclass(frozen=True, eq=False)
class Hold(_Wrapped):
    """A gate before a step. The call waits there until the test opens it.

    Args:
        step: What to answer then.
    """

    _reached: asyncio.Event = field(default_factory=asyncio.Event)
    _opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, telling: Telling) -> AsyncIterator[Piece]:
        """Wait for the gate, then answer."""
        self._reached.set()
        await self._opened.wait()
        async for piece in self.step.play(telling):
            yield piece

    async def reached(self) -> None:
        """Wait until a call stands at the gate."""
        await self._reached.wait()

    def open(self) -> None:
        """Let the call go on, and every later one."""
        self._opened.set()

    @property
    def is_open(self) -> bool:
        """Whether calls pass."""
        return self._opened.is_set()

    def holds(self) -> Iterator[Hold]:
        """Yield this gate, and those behind it."""
        yield self
        yield from self.step.holds()

    def __repr__(self) -> str:
        return f"hold({self.step!r})"


def say(text: str, *, finish: Finish = "stop", usage: Usage | None = None) -> ScriptStep:
    """Answer with a text, streamed word by word.

    Args:
        text: What the model says.
        finish: Why it stops.
        usage: The tokens to report.
    """
    told = [repr(text), *([f"finish={finish!r}"] if finish != "stop" else [])]
    pieces = tuple(re.findall(r"\s*\S+|\s+$", text))
    return _Answer(f"say({', '.join(told)})", pieces, finish=finish, usage=usage)


def stream(*pieces: str | BaseException) -> ScriptStep:
    """Answer with a text in exactly these pieces.

    Args:
        pieces: The pieces. An error among them is raised there, after the pieces before it.
    """
    return _Answer(f"stream({', '.join(map(repr, pieces))})", pieces)


def call(tool: str | ToolCall, /, **arguments: JsonValue) -> ScriptStep:
    """Answer with a call of a tool.

    Args:
        tool: The tool's name. A `ToolCall` brings an id of its own, and arguments in any form.
        arguments: The arguments, with numbers and handles as the model would write them.
    """
    return _Called(tool, arguments)


def calls(*each: ScriptStep | ToolCall, text: str = "") -> ScriptStep:
    """Answer with several calls at once.

    Args:
        each: What `call` made, or calls with ids of their own.
        text: What the model says before it calls.

    Raises:
        ValueError: One of them is no call.
    """
    called = tuple(_Called(one, {}) if isinstance(one, ToolCall) else one for one in each)
    wrong = [one for one in called if not isinstance(one, _Called)]
    if wrong:
        raise ValueError(f"`calls` takes what `call` makes, not {wrong[0]!r}. Give that a turn.")
    code = [*map(repr, called), *([f"text={text!r}"] if text else [])]
    only = tuple(one for one in called if isinstance(one, _Called))
    return _Answer(f"calls({', '.join(code)})", (text,) if text else (), only)


def fail(error: BaseException) -> ScriptStep:
    """Raise an error before anything is said.

    Args:
        error: What to raise, such as `TransientError()`.
    """
    return _Answer(f"fail({error!r})", (error,))


def think(*thoughts: str, then: ScriptStep) -> ScriptStep:
    """Reason, then answer.

    Args:
        thoughts: The pieces of the reasoning, which the reply hands back as a whole.
        then: The answer.
    """
    return _Thought(then, thoughts)


def reply(answer: Callable[[ChatRequest], ScriptStep | ChatReply | str]) -> ScriptStep:
    """Answer with what a function makes of the request.

    Args:
        answer: Returns a step, a whole reply, or a text to say.
    """
    return _Replied(answer)


def hold(step: ScriptStep) -> Hold:
    """Wait at a gate that the test opens, then answer.

    Args:
        step: The answer.

    Returns:
        The gate, which is a step as well.
    """
    return Hold(step)


def optional(step: ScriptStep) -> ScriptStep:
    """Let a step stay unused.

    Args:
        step: The answer, if there is a call for it.
    """
    return _Optional(step)


def forever(step: ScriptStep) -> ScriptStep:
    """Answer every further call in the same way, at least one.

    Args:
        step: The answer.
    """
    return _Endless(step)
