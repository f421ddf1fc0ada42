"""An answer, put together from the chunks of a stream. Pure: the same chunks, the same answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from soev.adapters._openai._calls import Calls
from soev.adapters._openai._reasoning import Reasoning
from soev.adapters._openai._text import Text, text_in
from soev.domain import ChatDelta, ChatReply, Finish, Usage

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tools",
    "tool_use": "tools",
    "function_call": "tools",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
}
_FAULTS = ("error", "network_error")

Json = Mapping[str, JsonValue]


class Answer:
    """What a model has said so far.

    Feed it each chunk of a stream, in order. An answer that came in one piece is one chunk.
    """

    def __init__(self) -> None:
        self._reason = ""
        self._model: str | None = None
        self._usage: Usage | None = None
        self._refused = False
        self._text = Text()
        self._calls = Calls()
        self._reasoning = Reasoning()

    @property
    def finished(self) -> bool:
        """Whether the model said why it stopped."""
        return bool(self._reason)

    @property
    def failed(self) -> bool:
        """Whether it stopped by a fault of the provider."""
        return self._reason in _FAULTS

    def feed(self, chunk: Json) -> Iterator[ChatDelta]:
        """Take a chunk, and yield what it adds to the text and to the reasoning."""
        self._model = self._model or text_in(chunk, "model") or None
        self._usage = usage_in(chunk) or self._usage
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            # Only one answer was asked for: others would have other indexes.
            if isinstance(choice, dict) and not choice.get("index"):
                self._reason = text_in(choice, "finish_reason") or self._reason
                delta = choice.get("delta") or choice.get("message")
                yield from self._delta(delta if isinstance(delta, dict) else {})

    def _delta(self, delta: Json) -> Iterator[ChatDelta]:
        thought, said = _parts(delta.get("content"))
        thought = self._reasoning.add(delta) + thought
        if thought:
            yield ChatDelta(reasoning=thought)
        refusal = text_in(delta, "refusal")
        self._refused = self._refused or bool(refusal)
        shown = self._text.add(said + refusal)
        if shown:
            yield ChatDelta(text=shown)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                self._calls.add(call)

    def rest(self) -> Iterator[ChatDelta]:
        """Yield the text that was held back, at the end of the stream."""
        held = self._text.rest()
        if held:
            yield ChatDelta(text=held)

    def reply(self) -> ChatReply:
        """Return the whole answer.

        Raises:
            ValueError: There is no answer in the stream.
        """
        text = str(self._text)
        if not (text or self._calls or self.finished):
            raise ValueError(
                "The model's stream ended without an answer: it has no choice that says anything. "
                "Check that the server at `base_url` speaks Chat Completions."
            )
        return ChatReply(
            text=text,
            calls=self._calls.calls(),
            model=self._model,
            usage=self._usage,
            finish=self._finish(),
            reasoning=self._reasoning.value(),
        )

    def _finish(self) -> Finish:
        """Return why the model stopped: some servers say `stop` where they call tools."""
        if self._refused:
            return "refusal"
        finish = _FINISHES.get(self._reason.lower(), "other") if self._reason else "stop"
        if finish == "stop" and self._calls:
            return "tools"
        return "other" if finish == "tools" and not self._calls else finish


def _parts(content: JsonValue) -> tuple[str, str]:
    """Return the thought and the text of a content, which some servers give in parts."""
    if isinstance(content, str):
        return "", content
    thought, said = "", ""
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict):
            said += text_in(part, "text")
            thought += _parts(part.get("thinking"))[1]
    return thought, said


def usage_in(chunk: Json) -> Usage | None:
    """Return the tokens that a chunk counts, in the places where providers put them."""
    counted = chunk.get("usage")
    if not isinstance(counted, dict):
        return usage_in(own) if isinstance(own := chunk.get("x_groq"), dict) else None
    cached = _count(counted, "prompt_tokens_details", "cached_tokens")
    for field in ("prompt_cache_hit_tokens", "num_cached_tokens"):
        cached = _count(counted, field) if cached is None else cached
    return Usage(
        input_tokens=_count(counted, "prompt_tokens"),
        output_tokens=_count(counted, "completion_tokens"),
        cached_tokens=cached,
        reasoning_tokens=_count(counted, "completion_tokens_details", "reasoning_tokens"),
    )


def _count(holder: JsonValue, *path: str) -> int | None:
    for field in path:
        holder = holder.get(field) if isinstance(holder, dict) else None
    return holder if isinstance(holder, int) and not isinstance(holder, bool) else None
