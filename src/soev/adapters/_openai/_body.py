"""The body of a Chat Completions request. Pure: the same request gives the same body."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator

from pydantic import JsonValue

from soev.adapters._openai._reasoning import handed_back
from soev.domain import (
    AssistantMessage,
    ChatRequest,
    Content,
    ImagePart,
    JsonSchema,
    Message,
    MessagePart,
    ToolCall,
    ToolMessage,
    canonical_json,
    role_of,
    text_of,
)

_FIXED = frozenset({"messages", "model", "stream", "tools"})
_CHOICES = ("auto", "none", "required")


def chat_body(request: ChatRequest, name: str) -> dict[str, JsonValue]:
    """Return the JSON body that asks for a streamed answer.

    Args:
        request: What to ask.
        name: The model to ask when the request names none.

    Raises:
        ValueError: An option would overwrite what the request says, or the tool choice names no
            tool of the request.
    """
    body: dict[str, JsonValue] = {
        "messages": list(_messages(request.messages)),
        "model": request.model or name,
        "stream": True,
    }
    body |= _tools(request)
    if request.response_schema is not None:
        body["response_format"] = _response_format(request.response_schema)
    overwritten = sorted(request.options.keys() & (body.keys() | _FIXED))
    if overwritten:
        raise ValueError(
            f"The options {', '.join(map(repr, overwritten))} would overwrite what the request "
            "says. Leave them out, and set the fields of `ChatRequest`."
        )
    return body | {"stream_options": {"include_usage": True}} | dict(request.options)


def _tools(request: ChatRequest) -> dict[str, JsonValue]:
    choice, names = request.tool_choice, [tool.name for tool in request.tools]
    if choice not in names and (choice not in _CHOICES or (choice == "required" and not names)):
        raise ValueError(
            f"The tool choice {choice!r} needs a tool that the request does not offer (it offers "
            f"{', '.join(map(repr, names)) or 'none'}). Add the tool, or choose 'auto'."
        )
    if not names:
        return {}
    tools: list[JsonValue] = [
        _function(
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            }
        )
        for tool in request.tools
    ]
    if choice == "auto":
        return {"tools": tools}
    named: JsonValue = choice if choice in _CHOICES else _function({"name": choice})
    return {"tools": tools, "tool_choice": named}


def _function(about: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"type": "function", "function": about}


def _response_format(schema: JsonSchema) -> JsonValue:
    title = schema.get("title")
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", title)[:64] if isinstance(title, str) else ""
    return {
        "type": "json_schema",
        "json_schema": {"name": name or "answer", "schema": schema, "strict": is_strict(schema)},
    }


def is_strict(schema: JsonValue) -> bool:
    """Tell whether a schema keeps the rules of strict decoding.

    Every object lists all its properties as required and allows no others. A provider refuses
    `strict` for any other schema.
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties, required = schema.get("properties"), schema.get("required")
        named = sorted(properties) if isinstance(properties, dict) else []
        listed = sorted(map(str, required)) if isinstance(required, list) else []
        if schema.get("additionalProperties") is not False or named != listed:
            return False
    return all(map(is_strict, schema.values()))


def _messages(messages: Iterable[Message]) -> Iterator[JsonValue]:
    """Yield each message's form, the images of results after the last result of their group.

    Servers take text alone as a tool's result, and nothing between the results of one answer.
    """
    images: list[JsonValue] = []
    for message in messages:
        if not isinstance(message, ToolMessage):
            yield from _shown(images)
            images = []
            yield _message(message)
            continue
        shown = [part for part in _parts(message.content) if isinstance(part, ImagePart)]
        text = text_of(message.content) or ("The images follow." if shown else "")
        yield {"role": "tool", "tool_call_id": message.call, "content": text}
        if shown:
            images.append({"type": "text", "text": f"Images of {message.call}:"})
            images += map(_part, shown)
    yield from _shown(images)


def _shown(images: list[JsonValue]) -> Iterator[JsonValue]:
    if images:
        yield {"role": "user", "content": images}


def _message(message: Message) -> JsonValue:
    said: dict[str, JsonValue] = {"role": role_of(message), "content": _content(message.content)}
    if isinstance(message, AssistantMessage):
        if message.calls:
            said["content"] = said["content"] or None
            said["tool_calls"] = [_call(call) for call in message.calls]
        said |= handed_back(message.reasoning)
    return said


def _call(call: ToolCall) -> JsonValue:
    written = canonical_json(call.arguments) if call.raw is None else call.raw
    return {"id": call.id, **_function({"name": call.name, "arguments": written})}


def _content(content: Content) -> JsonValue:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _parts(content: Content) -> tuple[MessagePart, ...]:
    return () if isinstance(content, str) else content


def _part(part: MessagePart) -> JsonValue:
    if not isinstance(part, ImagePart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.url or _data_url(part)}}


def _data_url(part: ImagePart) -> str:
    return f"data:{part.media_type};base64,{base64.b64encode(part.data or b'').decode('ascii')}"
