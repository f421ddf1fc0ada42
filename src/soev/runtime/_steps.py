"""The steps that the runtime brings: a model call, its tools, and a wait for a response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from soev.domain import (
    Actor,
    ChatDelta,
    ChatModel,
    ChatReply,
    ChatRequest,
    Citation,
    Event,
    JsonSchema,
    ModelOutput,
    Request,
    ToolCall,
    Trace,
    call_site,
)
from soev.runtime._calls import KnownCalls
from soev.runtime._citations import CitationReader, read_citations
from soev.runtime._closing import closing
from soev.runtime._context import ContextBuilder, ModelContext
from soev.runtime._growing import Growing
from soev.runtime._numbering import Numbering
from soev.runtime._tool_step import ToolStep
from soev.runtime._translate import resolved

__all__ = ["LlmStep", "RequestStep", "ToolStep"]

_KNOWN = KnownCalls()


@dataclass(frozen=True, slots=True)
class LlmStep:
    """A step that asks a model once and records what it answered.

    The output holds the text without citation marks, calls with real ids, the hash and size of
    the request, and the model that replied. Pieces of text go to `call_site`'s `on_delta` as they
    come, without marks.

    Args:
        builder: Builds the context of the call from the view.
        model: The model that is asked.
    """

    builder: ContextBuilder
    model: ChatModel

    async def __call__(self, trace: Trace) -> Sequence[ModelOutput]:
        """Build the context, ask the model, and return its output as the one event.

        Args:
            trace: The stream's view.

        Raises:
            ValueError: The model's stream ended without a reply.
        """
        known: Growing[str, ToolCall] = trace.fold(_KNOWN)
        return [await self._ask(self.builder(trace), known)]

    async def answer(self, context: ModelContext) -> ModelOutput:
        """Ask the model with a context that is already built.

        Use it in a step of your own that changes the context first.

        Args:
            context: What the model receives.

        Returns:
            The output, ready to record.

        Raises:
            ValueError: The model's stream ended without a reply.
        """
        return await self._ask(context, {})

    async def _ask(self, context: ModelContext, known: Mapping[str, ToolCall]) -> ModelOutput:
        request = context.request
        try:
            reply = await self._reply(context)
        except Exception as error:
            # The Failure takes the hash from here, so that replay can rebuild the failed call.
            with suppress(AttributeError):
                error.request_hash = request.hash  # type: ignore[attr-defined]  # added to any error
            raise
        text, citations = reply.text, tuple[Citation, ...]()
        if context.citations is not None:
            text, citations = read_citations(reply.text, context.citations, context.numbering)
        return ModelOutput(
            text=text,
            citations=citations,
            calls=_recorded(reply.calls, request, context.numbering, known),
            finish=reply.finish,
            model=reply.model or context.model,
            sent_chars=request.sent_chars,
            request_hash=request.hash,
            usage=reply.usage,
            reasoning=reply.reasoning,
        )

    async def _reply(self, context: ModelContext) -> ChatReply:
        """Stream the answer, hand on its pieces, and return the whole of it."""
        site = call_site.get()
        reader = None
        if context.citations is not None:
            reader = CitationReader(context.citations, context.numbering)
        reply: ChatReply | None = None
        async with closing(self.model.stream(context.request)) as stream:
            async for item in stream:
                if isinstance(item, ChatReply):
                    reply = item
                elif site is not None:
                    text = item.text if reader is None else reader.feed(item.text)
                    if text or item.reasoning:
                        site.on_delta(ChatDelta(text, item.reasoning))
        if reply is None:
            raise ValueError(
                f"The stream of model {context.model!r} ended without a `ChatReply`. "
                "Yield the whole answer as its last item."
            )
        rest = "" if reader is None or site is None else reader.close()
        if rest and site is not None:
            site.on_delta(ChatDelta(rest))
        return reply


def _recorded(
    calls: Sequence[ToolCall],
    request: ChatRequest,
    numbering: Numbering,
    known: Mapping[str, ToolCall],
) -> tuple[ToolCall, ...]:
    """Give each call an id that is new in the view, and real ids in its arguments."""
    marks = {tool.name: tool.marks for tool in request.tools}
    taken: set[str] = set()
    recorded = []
    for call in calls:
        call_id, count = call.id, 1
        while not call_id or call_id in taken or call_id in known or numbering.handle(call_id):
            count += 1
            call_id = f"{call.id}-{count}"
        taken.add(call_id)
        named = call if call_id == call.id else call.model_copy(update={"id": call_id})
        recorded.append(resolved(named, marks.get(call.name, ()), numbering))
    return tuple(recorded)


@dataclass(frozen=True, slots=True)
class RequestStep:
    """A step that makes the turn wait for a response from outside, such as an approval.

    The response goes on at this node's edge.

    Args:
        kind: What kind of request it is, in the team's own words.
        actor: Who is responsible: `person`, `system`, or a name.
        expects: The JSON Schema that the response must satisfy, or None for any JSON.
        prompt: What a person is asked, or None.
    """

    kind: str
    actor: Actor
    expects: JsonSchema | None = None
    prompt: str | None = None

    async def __call__(self, trace: Trace) -> Sequence[Event]:
        """Return the one request.

        Args:
            trace: The stream's view.
        """
        return [Request(kind=self.kind, actor=self.actor, expects=self.expects, prompt=self.prompt)]
