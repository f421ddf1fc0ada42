"""What a calls file holds: the requests of a golden trace, as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Literal

from soev.golden._conversation import ShownMessage, ShownMessages
from soev.golden._escape import quoted

Comparison = Literal["as recorded", "changed since recorded", "not comparable"]


@dataclass(frozen=True)
class ShownTool:
    """A tool as lines of text: its description, then its arguments.

    Args:
        name: The name that the model calls it by.
        description: The lines of its description.
        arguments: One line an argument, followed by the argument's own description.
    """

    name: str
    description: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything that the model sees of it but the name."""
        return self.description + self.arguments


@dataclass(frozen=True)
class ShownRequest:
    """A ChatRequest as a person reads it. Nothing that its hash covers is left out.

    Args:
        messages: The messages. Any sequence; kept as `ShownMessages`.
        tools: The tools.
        model: The model asked for, or None for the adapter's own.
        options: The options as JSON texts, by name.
        tool_choice: `auto`, `none`, `required`, or a tool's name.
        response_schema: The schema's canonical JSON, or None.
    """

    messages: Sequence[ShownMessage]
    tools: tuple[ShownTool, ...] = ()
    model: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    tool_choice: str = "auto"
    response_schema: str | None = None

    def __post_init__(self) -> None:
        """Keep the messages in a sequence that shares its beginning."""
        object.__setattr__(self, "messages", ShownMessages.of(self.messages))

    @property
    def conversation(self) -> ShownMessages:
        """The messages, in the form that they are kept in."""
        assert isinstance(self.messages, ShownMessages)
        return self.messages

    @cached_property
    def digest(self) -> bytes:
        """A digest of everything in it, equal for equal requests alone."""
        rest = (self.tools, self.model, self.options, self.tool_choice, self.response_schema)
        return sha256(self.conversation.digest + repr(rest).encode()).digest()

    @cached_property
    def size(self) -> int:
        """How many characters of text it shows: messages, tools and schema."""
        tools = sum(len(line) + 1 for tool in self.tools for line in (tool.name, *tool.lines))
        schema = len(self.response_schema or "")
        return self.conversation.size + tools + schema


@dataclass(frozen=True)
class ShownCall:
    """One model call of a golden trace.

    Args:
        index: Its 1-based place in the thread.
        turn: The 1-based turn.
        node: The node that called the model.
        position: The position of the event before it.
        request: What is sent, or None when it cannot be rebuilt.
        stream: The stream that it ran in.
        comparison: How the request compares with what was really sent. It is not compared.
    """

    index: int
    turn: int
    node: str
    position: int
    request: ShownRequest | None
    stream: str = "main"
    comparison: Comparison = field(default="not comparable", compare=False)


@dataclass(frozen=True)
class RouteException:
    """A routing decision of today that may differ from the recorded one.

    Args:
        node: The node after which the ways part.
        planned: Where today's graph goes; `end` for the end.
        recorded: Where the recorded turn went.
    """

    node: str
    planned: str
    recorded: str

    def __str__(self) -> str:
        node, planned, recorded = map(quoted, (self.node, self.planned, self.recorded))
        return f"route: {node} -> {planned} (recorded: {recorded})"


@dataclass(frozen=True)
class CallsFile:
    """The content of a calls file.

    Args:
        name: The golden trace.
        agent: The agent that it is held to.
        turns: How many turns the trace has.
        calls: The model calls, in log order.
        routes: The accepted exceptions of routing.
        places: Where things stand in the text that it was parsed from. It is not compared.
        shared: For a call, the earlier call that it has its first messages from, and how many.
    """

    name: str
    agent: str
    turns: int
    calls: tuple[ShownCall, ...]
    routes: tuple[RouteException, ...] = ()
    places: Mapping[tuple[int, str], int] = field(default_factory=dict, compare=False, repr=False)
    shared: Mapping[int, tuple[int, int]] = field(default_factory=dict, compare=False, repr=False)

    def line(self, call: int, part: str = "") -> int:
        """Return the 1-based line of a call's heading, or of the first line of a part of it.

        A part that the call shares with an earlier call stands there.

        Args:
            call: The call's index.
            part: `message N`, `tool NAME`, or nothing for the heading.
        """
        heading = self.places.get((call, "")) or 1
        kind, _, number = part.partition(" ")
        while kind == "message" and call in self.shared and int(number) < self.shared[call][1]:
            call = self.shared[call][0]
        return self.places.get((call, part)) or heading
