"""From requests to the lines that a person reads, with nothing lost on the way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

from pydantic import JsonValue

from soev.domain import (
    AssistantMessage,
    ChatRequest,
    Content,
    ImagePart,
    Message,
    Messages,
    ToolCall,
    ToolDef,
    ToolMessage,
    role_of,
)
from soev.golden._calls import ShownRequest, ShownTool
from soev.golden._conversation import ShownMessage, ShownMessages
from soev.golden._escape import BLANK, NAME, escape, json_text, quoted

MAX_CALL_LINE = 100
MAX_ADDRESS = 200
_KIB = 1024
_SIMPLE = ("string", "integer", "number", "boolean", "object", "null")
_SHAPE = r"(?:string|integer|number|boolean|object|null)"
_PART = re.compile(r"text:\Z|image: |no parts\Z")
_SPOKEN = re.compile(rf"text:\Z|image: |no parts\Z|reasoning: |call {NAME}\(")
ARGUMENT = re.compile(
    rf"(?:{NAME}: (?:(?:list of )?{_SHAPE}(?: or null)?(?:, default .*)?(?:, required)?\Z|\{{)"
    r"|\(schema\): |\((?:no|any|more) arguments\)\Z)"
)
# What a schema is beside its properties, in words; the usual form needs none.
_FRAMES = {
    '{"additionalProperties":false,"type":"object"}': "",
    '{"additionalProperties":false,"properties":{},"type":"object"}': "(no arguments)",
    '{"type":"object"}': "(more arguments)",
    '{"properties":{},"type":"object"}': "(any arguments)",
}


class Shower:
    """Shows requests, and keeps what it made of a message or tool for the next request.

    It lives as long as the requests of one trace are looked at.
    """

    def __init__(self) -> None:
        self._root = ShownMessages()
        self._previous: tuple[Messages, ShownMessages] = (Messages(), self._root)
        self._tools: dict[ToolDef, ShownTool] = {}

    def request(self, request: ChatRequest) -> ShownRequest:
        """Show one request."""
        schema = request.response_schema
        return ShownRequest(
            messages=self._conversation(request.messages),
            tools=tuple(map(self._tool, request.tools)),
            model=request.model,
            options=tuple(
                (key, json_text(request.options[key])) for key in sorted(request.options)
            ),
            tool_choice=request.tool_choice,
            response_schema=None if schema is None else json_text(schema),
        )

    def _conversation(self, messages: Sequence[Message]) -> ShownMessages:
        """Show messages, from the last request on when they go on from it."""
        assert isinstance(messages, Messages)
        previous, said = self._previous
        known = messages.shared(previous)
        found = said.first(known).adding(map(shown_message, messages.after(known)))
        self._previous = messages, found
        return found

    def _tool(self, tool: ToolDef) -> ShownTool:
        known = self._tools.get(tool)
        if known is None:
            known = self._tools[tool] = shown_tool(tool)
        return known


def shown(request: ChatRequest) -> ShownRequest:
    """Show one request as lines of text. Equal results mean equal hashes, and the other way round.

    Args:
        request: The request.
    """
    return Shower().request(request)


def shown_message(message: Message) -> ShownMessage:
    """Show one message."""
    spoken = isinstance(message, AssistantMessage)
    lines = list(_content(message.content, _SPOKEN if spoken else _PART))
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            lines += _call(call)
        if message.reasoning is not None:
            lines.append(f"reasoning: {json_text(message.reasoning)}")
    handle = message.call if isinstance(message, ToolMessage) else None
    return ShownMessage(role_of(message), tuple(lines), handle)  # type: ignore[arg-type]  # one of the four roles


def _content(content: Content, marks: re.Pattern[str]) -> Iterator[str]:
    if isinstance(content, str):
        yield from _text(content, marks)
        return
    if not content:
        yield "no parts"
    for part in content:
        if isinstance(part, ImagePart):
            yield f"image: {_image(part)}"
        else:
            yield "text:"
            yield from _text(part.text, marks)


def _text(text: str, marks: re.Pattern[str]) -> Iterator[str]:
    """Yield the lines of a text; one that looks like a mark of ours is told apart."""
    if text:
        for line in text.split("\n"):
            written = escape(line)
            yield BLANK + written if marks.match(written) else written


def _image(part: ImagePart) -> str:
    kind = quoted(part.media_type)
    if part.data is not None:
        return f"{kind} {_digest(part.data)}"
    address = part.url or ""
    if len(address) > MAX_ADDRESS:
        return f"{kind} address of {_digest(address.encode())}"
    return f"{kind} at {json_text(address)}"


def _digest(data: bytes) -> str:
    size = f"{len(data)} B" if len(data) < _KIB else f"{len(data) / _KIB:.0f} KiB"
    return f"{size} sha256:{sha256(data).hexdigest()}"


def _call(call: ToolCall) -> Iterator[str]:
    items = [f"{quoted(key)}={json_text(call.arguments[key])}" for key in sorted(call.arguments)]
    raw = "" if call.raw is None else f" raw {json_text(call.raw)}"
    head, tail = f"call {quoted(call.name)}(", f"){raw} as {quoted(call.id)}"
    line = f"{head}{', '.join(items)}{tail}"
    if len(line) <= MAX_CALL_LINE or not items:
        yield line
        return
    yield head
    for item in items:
        yield f"  {item},"
    yield tail


def shown_tool(tool: ToolDef) -> ShownTool:
    """Show one tool."""
    description = tuple(_text(tool.description, ARGUMENT))
    return ShownTool(tool.name, description, tuple(_arguments(tool.parameters)))


def _arguments(parameters: Mapping[str, JsonValue]) -> Iterator[str]:
    rest = dict(parameters)
    properties = _properties(rest)
    required = _required(rest, properties)
    for name in sorted(properties):
        yield from _argument(name, properties[name], required=name in required)
    # By text, since in Python 0 equals False.
    text = json_text(rest)
    line = _FRAMES.get(text, f"(schema): {text}")
    if line:
        yield line


def _properties(rest: dict[str, JsonValue]) -> dict[str, dict[str, JsonValue]]:
    """Take the properties out of a schema, when lines can say them all."""
    properties = rest.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return {}
    found = {key: dict(value) for key, value in properties.items() if isinstance(value, Mapping)}
    if len(found) < len(properties):
        return {}
    del rest["properties"]
    return found


def _required(rest: dict[str, JsonValue], properties: Iterable[str]) -> frozenset[str]:
    """Take the names that are required out of a schema, when lines can say them all."""
    required = rest.get("required")
    if not isinstance(required, Sequence) or isinstance(required, str) or not required:
        return frozenset()
    names = [name for name in required if isinstance(name, str)]
    sayable = sorted(set(names) & set(properties))
    if names != sayable or len(names) != len(required):
        return frozenset()
    del rest["required"]
    return frozenset(names)


def _argument(name: str, schema: dict[str, JsonValue], *, required: bool) -> Iterator[str]:
    described = schema.get("description")
    lines: list[str] = []
    if isinstance(described, str) and described:
        del schema["description"]
        lines = [escape(line) for line in described.split("\n")]
    default = f", default {json_text(schema.pop('default'))}" if "default" in schema else ""
    yield f"{quoted(name)}: {_shape(schema)}{default}{', required' if required else ''}"
    for line in lines:
        yield f"    {line}" if line else ""


def _shape(schema: JsonValue) -> str:
    choices = schema.get("anyOf") if isinstance(schema, dict) else None
    if isinstance(choices, list) and len(choices) == 2 and choices[1] == {"type": "null"}:  # noqa: PLR2004  # a value or null
        word = _word(choices[0])
        if word is not None and schema == {"anyOf": choices}:
            return f"{word} or null"
    return _word(schema) or json_text(schema)


def _word(schema: JsonValue) -> str | None:
    """Say a schema in words, where words can say all of it."""
    for kind in _SIMPLE:
        if schema == {"type": kind}:
            return kind
        if schema == {"type": "array", "items": {"type": kind}}:
            return f"list of {kind}"
    return None
