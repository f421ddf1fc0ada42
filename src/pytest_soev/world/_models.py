"""A model whose answer depends on the request alone, so that a crash cannot change it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from pytest_soev.world._loop import boundary
from soev.domain import ChatDelta, ChatReply, ChatRequest, JsonValue, ToolCall, reached


class FunctionChatModel:
    """A model that answers by a pure function, however often it is asked.

    A scripted model goes one step on with each call. One that is asked again after a crash must
    answer the same, or the log differs from that of a calm run.

    Args:
        answer: Gives the answer to a request.
        wait: Waits for something outside, on the way there and back: at a `boundary` by default.
        name: The model's name.
    """

    def __init__(
        self,
        answer: Callable[[ChatRequest], ChatReply | str],
        wait: Callable[[], Awaitable[None]] | None = None,
        *,
        name: str = "function",
    ) -> None:
        self.name = name
        self.asked = 0
        self._answer, self._wait = answer, wait or boundary

    def prepare(self, request: ChatRequest) -> None:
        """Return None: nothing goes over a wire."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        """Answer a request."""
        reached("model.request.sending")
        self.asked += 1
        await self._wait()
        reached("model.request.sent")
        answer = self._answer(request)
        reply = ChatReply(text=answer) if isinstance(answer, str) else answer
        if reply.text:
            yield ChatDelta(text=reply.text)
        await self._wait()
        reached("model.reply.read")
        yield reply


def calling(request: ChatRequest, *tools: tuple[str, dict[str, JsonValue]]) -> ChatReply:
    """Return a reply that calls tools, with ids that follow from the request.

    Args:
        request: The request.
        tools: For each call the tool's name and its arguments.
    """
    place = len(request.messages)
    made = (
        ToolCall(id=f"call-{place}-{n}", name=name, arguments=arguments)
        for n, (name, arguments) in enumerate(tools, 1)
    )
    return ChatReply(calls=tuple(made), finish="tools")
