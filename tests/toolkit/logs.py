"""Hand-made logs, stamped as a store would stamp them."""

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from soev.domain import (
    AssistantMessage,
    ChatRequest,
    Element,
    Event,
    Input,
    Message,
    ModelOutput,
    Source,
    ToolCall,
    ToolMessage,
    ToolOutput,
    TraceBuilder,
    role_of,
    stamped,
)
from soev.runtime import CitationStrategy


class Page(Source):
    """A source for tests."""

    tag: ClassVar[str] = "page"

    title: str = "Page"

    def show(self) -> str:
        return self.title


class Box(Element):
    """An element that is no source."""

    tag: ClassVar[str] = "box"

    size: int = 1


def _marked(numbers: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, numbers)) + "]"


SQUARE = CitationStrategy(pattern=re.compile(r"\[\d+(?:, ?\d+)*\]"), opens="[", write=_marked)


def grown(events: Iterable[Event]) -> TraceBuilder:
    """Feed events, each with the next seq of its stream."""
    log, seqs = TraceBuilder(), dict[str, int]()
    for event in events:
        seqs[event.stream] = seqs.get(event.stream, 0) + 1
        log.feed(stamped(event, seq=seqs[event.stream]))
    return log


def said(text: str, stream: str = "main") -> Input:
    """Make a fresh input."""
    return Input(payload=text, stream=stream)


def calls(*ids: str, text: str = "", stream: str = "main", tool: str = "look") -> ModelOutput:
    """Make an output that calls a tool once for each id."""
    made = tuple(ToolCall(id=each, name=tool, arguments={"of": each}) for each in ids)
    return ModelOutput(text=text, calls=made, stream=stream, origin="model")


def result(call: str, text: str = "", stream: str = "main", *elements: Element) -> ToolOutput:
    """Make the result of a call."""
    return ToolOutput(call_id=call, text=text or f"result {call}", stream=stream, elements=elements)


def brief(messages: ChatRequest | Iterable[Message]) -> list[str]:
    """Write messages as short lines: the role's first letter, handles, and the text."""
    listed = messages.messages if isinstance(messages, ChatRequest) else messages
    return [_line(message) for message in listed]


def _line(message: Message) -> str:
    words = [role_of(message)[0]]
    if isinstance(message, ToolMessage):
        words.append(message.call)
    if message.text:
        words.append(message.text)
    if isinstance(message, AssistantMessage):
        words.extend(f"{call.name}:{call.id}" for call in message.calls)
    return " ".join(words)
