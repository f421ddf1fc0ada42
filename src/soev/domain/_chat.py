"""What a model is sent and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from soev.domain._element import Element
from soev.domain._json import canonical_json, check_json, write_checked
from soev.domain._messages import Message, Messages, ToolCall

Finish = Literal["stop", "tools", "length", "refusal", "other"]
JsonSchema = dict[str, JsonValue]


class Usage(BaseModel):
    """The tokens of a model call, each a count or None where the provider did not say."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ArgumentMark:
    """Which argument of a tool holds ids that the model writes as numbers or handles.

    Args:
        field: The argument. Its value is one text, a list of texts, or None.
        kind: `element` for an element's number, `result` for a result's handle.
        accepts: The classes of elements that the argument accepts, subclasses included.
    """

    field: str
    kind: Literal["element", "result"]
    accepts: tuple[type[Element], ...] = ()


@dataclass(frozen=True)
class ToolDef:
    """A tool as a model is shown it.

    Args:
        name: The name that the model calls it by.
        description: When and how to use it.
        parameters: The JSON Schema of the arguments.
        marks: Which arguments hold element ids or result handles. No part of a request's hash.
    """

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    marks: tuple[ArgumentMark, ...] = ()

    @cached_property
    def json(self) -> str:
        """The canonical JSON of what the model is shown."""
        shown = {"description": self.description, "name": self.name, "parameters": self.parameters}
        return canonical_json(shown, f"tool {self.name}")

    def __hash__(self) -> int:
        """Hash by what the model is shown."""
        return hash(self.json)


@dataclass(frozen=True)
class ChatRequest:
    """One model call: everything that today's code sends, before any provider's form of it.

    Args:
        messages: The conversation. Any sequence; kept as `Messages`.
        model: The model asked for, or None for the adapter's own.
        options: Temperature and the like, in the provider's names.
        response_schema: The JSON Schema that the answer must satisfy, or None.
        tool_choice: `auto`, `none`, `required`, or the name of a tool.
        tools: The tools that the model can call.

    Raises:
        UnencodableError: A value in it is no JSON.
    """

    messages: Sequence[Message]
    model: str | None = None
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    response_schema: JsonSchema | None = None
    tool_choice: str = "auto"
    tools: tuple[ToolDef, ...] = ()

    def __post_init__(self) -> None:
        """Keep the messages as a shared list, and the options from being changed."""
        if not isinstance(self.messages, Messages):
            object.__setattr__(self, "messages", Messages(self.messages))
        if not isinstance(self.options, MappingProxyType):
            object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def with_messages(self, messages: Sequence[Message]) -> ChatRequest:
        """Return the same request about other messages. What follows them is written once.

        Args:
            messages: The conversation, in place of this one's.
        """
        made = ChatRequest(
            messages,
            self.model,
            self.options,
            self.response_schema,
            self.tool_choice,
            self.tools,
        )
        made.__dict__["_tail"] = self._tail
        return made

    @cached_property
    def _tail(self) -> str:
        rest: dict[str, JsonValue] = {
            "model": self.model,
            "options": dict(self.options),
            "response_schema": self.response_schema,
        }
        # Only these two can hold keys that are no texts; a look at each value is not free.
        for name in ("options", "response_schema"):
            if rest[name]:
                check_json(rest[name], "ChatRequest", f"$.{name}")
        head = write_checked({**rest, "tool_choice": self.tool_choice}, "ChatRequest")
        tools = ",".join(tool.json for tool in self.tools)
        return f'],{head[1:-1]},"tools":[{tools}]}}'

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the request's canonical JSON, in hexadecimal.

        The key `messages` sorts first, so the hash of a growing conversation is carried on. A
        later field must sort after it.
        """
        sha = self._messages.sha()
        sha.update(self._tail.encode())
        digest: str = sha.hexdigest()
        return digest

    @property
    def sent_chars(self) -> int:
        """The length of the request's canonical JSON in characters."""
        return len('{"messages":[') + self._messages.chars + len(self._tail)

    @property
    def _messages(self) -> Messages:
        assert isinstance(self.messages, Messages)
        return self.messages

    def __hash__(self) -> int:
        """Hash by the canonical JSON."""
        return hash(self.hash)

    def __getstate__(self) -> dict[str, object]:
        """Pickle the fields alone, the options as a plain dict."""
        names = ("messages", "model", "response_schema", "tool_choice", "tools")
        return {**{name: getattr(self, name) for name in names}, "options": dict(self.options)}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take the pickled fields back."""
        self.__dict__.update(state)
        self.__post_init__()


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """What an adapter would send over the wire, without any secret.

    Args:
        method: The HTTP method.
        url: The path of the address, without host and query secrets.
        headers: The headers without keys.
        body: The JSON body.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: JsonValue


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """A piece of a model's answer as it is written: of its text, or of its reasoning."""

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The end of a model's stream: the whole answer.

    Args:
        text: The text, citation marks included.
        calls: The tools that it called, under the provider's ids.
        model: The model that replied, or None when the provider did not say.
        usage: The tokens, or None.
        finish: Why the model stopped.
        reasoning: What the provider wants handed back unchanged, or None.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    model: str | None = None
    usage: Usage | None = None
    finish: Finish = "stop"
    reasoning: JsonValue = None
