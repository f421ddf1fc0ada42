"""Messages, and the list of them that grows without being copied or hashed again."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from pydantic import BaseModel, ConfigDict, JsonValue

from soev.domain._json import write_checked
from soev.domain._parts import Content, ImagePart, MessagePart


class ToolCall(BaseModel):
    """A model's call of a tool.

    Args:
        id: In an event the provider's call id; in a message that a model is shown, the handle.
        name: The tool.
        arguments: A JSON object. In an event ids are real; in a message they are numbers.
        raw: What the model wrote, when that is no JSON object; `arguments` is then empty.
        unresolved: JSON pointers of numbers and handles that named nothing acceptable. There
            `arguments` keeps what the model wrote.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="constants", defer_build=True
    )

    id: str
    name: str
    arguments: dict[str, JsonValue] = {}
    raw: str | None = None
    unresolved: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Hash by id and name, since arguments are plain JSON."""
        return hash((self.id, self.name))


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """What the model is told to be. `content` is a text, or message parts."""

    content: Content

    @property
    def text(self) -> str:
        """The text of the content, without images."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person said. `content` is a text, or message parts."""

    content: Content

    @property
    def text(self) -> str:
        """The text of the content, without images."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model said before.

    Args:
        content: The text that it wrote, or message parts.
        calls: The tools that it called. A call's id is its handle, and its arguments hold what
            the model is shown: numbers and handles.
        reasoning: What the provider wants handed back unchanged, or None.
    """

    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: JsonValue = None

    @property
    def text(self) -> str:
        """The text of the content, without images."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of a call.

    Args:
        call: The handle of the call.
        content: What the model is shown of the result.
    """

    call: str
    content: Content

    @property
    def text(self) -> str:
        """The text of the content, without images."""
        return text_of(self.content)


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage

_ROLES: dict[type[Any], str] = {
    SystemMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}


def role_of(message: Message) -> str:
    """Return `system`, `user`, `assistant` or `tool`."""
    return _ROLES[type(message)]


def text_of(content: Content) -> str:
    """Join the texts of a content, without its images."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if not isinstance(part, ImagePart))


def message_json(message: Message) -> str:
    """Return a message's canonical JSON, the piece of a request that stands for it.

    Raises:
        UnencodableError: The message holds what JSON cannot hold, such as a lone surrogate.
    """
    data: dict[str, JsonValue] = {"content": _content(message.content), "role": role_of(message)}
    if isinstance(message, AssistantMessage):
        data["calls"] = [_call(call) for call in message.calls]
        data["reasoning"] = message.reasoning
    elif isinstance(message, ToolMessage):
        data["call"] = message.call
    return write_checked(data, type(message).__name__)


def _content(content: Content) -> JsonValue:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: MessagePart) -> JsonValue:
    if not isinstance(part, ImagePart):
        return {"text": part.text, "type": "text"}
    data = None if part.data is None else base64.b64encode(part.data).decode("ascii")
    return {"data": data, "media_type": part.media_type, "type": "image", "url": part.url}


def _call(call: ToolCall) -> JsonValue:
    return {"arguments": call.arguments, "id": call.id, "name": call.name, "raw": call.raw}


_OPENING = b'{"messages":['


class _Grown:
    """Messages that only grow, their JSON pieces, and the hash of the ones hashed so far."""

    __slots__ = ("base", "chars", "hashed", "items", "offset", "pieces", "sha")

    def __init__(self, base: Messages | None = None) -> None:
        self.base = base
        self.offset = 0 if base is None else len(base)
        self.items: list[Message] = []
        self.pieces: list[bytes] = []
        self.chars: list[int] = [0 if base is None else base.chars]
        self.sha = hashlib.sha256(_OPENING) if base is None else base.sha()
        self.hashed = 0

    def add(self, message: Message) -> None:
        piece = message_json(message)
        self.items.append(message)
        self.pieces.append(piece.encode())
        first = self.offset + len(self.items) == 1
        self.chars.append(self.chars[-1] + len(piece) + (0 if first else 1))

    def sha_of(self, count: int) -> Any:
        """Return the hash of the opening and the first `count` pieces, for an update by a copy."""
        if count < self.hashed:
            sha = hashlib.sha256(_OPENING) if self.base is None else self.base.sha()
            self._update(sha, 0, count)
            return sha
        self._update(self.sha, self.hashed, count)
        self.hashed = count
        return self.sha.copy()

    def _update(self, sha: Any, start: int, stop: int) -> None:
        for place in range(start, stop):
            if self.offset + place:
                sha.update(b",")
            sha.update(self.pieces[place])


class Messages(Sequence[Message]):
    """An immutable sequence of messages that shares its beginning with those it came from.

    Adding to the newest one costs the new message alone; adding to an older one starts a list
    that points back at it. The hash is kept, so a longer conversation hashes only what is new.

    Args:
        messages: The messages.

    Raises:
        UnencodableError: A message holds what JSON cannot hold.
    """

    __slots__ = ("_count", "_grown")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._grown = _Grown()
        for message in messages:
            self._grown.add(message)
        self._count = len(self._grown.items)

    def add(self, *messages: Message) -> Messages:
        """Return the sequence with more messages at its end. This one does not change."""
        if not messages:
            return self
        grown = self._grown if self._count == len(self._grown.items) else _Grown(self)
        for message in messages:
            grown.add(message)
        return _window(grown, len(grown.items))

    def shared(self, other: Messages) -> int:
        """Count the messages at the beginning that both have, as far as their storage tells.

        Lists that grew from each other are known to; equal messages that were added apart are not.
        """
        one, two = self, other
        while one._grown is not two._grown:
            base, other_base = one._grown.base, two._grown.base
            if base is not None and (other_base is None or len(base) >= len(other_base)):
                one = base
            elif other_base is not None:
                two = other_base
            else:
                return 0
        return min(len(one), len(two))

    def after(self, count: int) -> Iterator[Message]:
        """Yield the messages after the first `count`, without a walk through those."""
        grown = self._grown
        if count < grown.offset and grown.base is not None:
            yield from grown.base.after(count)
        for place in range(max(count - grown.offset, 0), self._count):
            yield grown.items[place]

    def fork(self) -> Messages:
        """Return the same sequence over a list of its own, so that both can grow in place."""
        return _window(_Grown(self), 0)

    @property
    def chars(self) -> int:
        """The length of the messages' canonical JSON with the commas between them."""
        return self._grown.chars[self._count]

    def sha(self) -> Any:
        """Return the SHA-256 object over the request's JSON up to the last message."""
        return self._grown.sha_of(self._count)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        """Return one message, or a tuple of them."""
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"There is no message {index} among {len(self)}.")
        grown = self._grown
        while place < grown.offset and grown.base is not None:
            grown = grown.base._grown
        return grown.items[place - grown.offset]

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages from the first on."""
        if self._grown.base is not None:
            yield from self._grown.base
        for place in range(self._count):
            yield self._grown.items[place]

    def __len__(self) -> int:
        """Count the messages."""
        return self._grown.offset + self._count

    def __eq__(self, other: object) -> bool:
        """Compare message by message."""
        if not isinstance(other, Messages):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        """Hash by the canonical JSON."""
        return hash(self.sha().digest())

    def __repr__(self) -> str:
        """Show the messages as a list."""
        return f"Messages({list(self)!r})"

    def __reduce__(self) -> tuple[type[Messages], tuple[tuple[Message, ...]]]:
        """Pickle the messages alone: a hash object cannot be pickled."""
        return (Messages, (tuple(self),))


def _window(grown: _Grown, count: int) -> Messages:
    messages = Messages.__new__(Messages)
    messages._grown, messages._count = grown, count
    return messages
