"""Sub-agents: tools whose call starts an agent, as a task with a stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, JsonValue, RootModel, create_model

from soev.domain import Element, Event, Input, ModelOutput, ToolOutput, Trace, parse_stream
from soev.runtime import (
    Agent,
    Graph,
    InputDeniedError,
    Tool,
    accepted,
    numbering,
    tool_def,
)
from soev.toolkit._effect_tools import DueCall, Elsewhere, arguments_json, check_name, due_calls

FIELD: Final = "input"
NO_ANSWER: Final = "The agent ended without an answer."


@dataclass(frozen=True)
class SubAgents:
    """A Delegation whose tasks are the calls of one tool, each answered by an agent of its own.

    The agent's `input` is the tool's arguments; one that is no object, as a plain text, is the
    tool's one argument `input`. The call's result is what the agent's `answer(view)` makes of the
    task's view, if it has that method, else the text of its last output. Calls of one output run
    side by side. A call that the agent refuses has an error as its result.

    What a model reads about the tool is the agent's `description`, if it has one, else the
    docstring of its input class.

    Args:
        name: The name that a model calls the tool by, of at most 57 characters.
        agent: The agent.
        resources: What the agent's `build` gets.

    Raises:
        ValueError: No node can be named after the tool.
        ToolDefinitionError: The agent's input cannot be shown to a model.
    """

    name: str
    agent: Agent[Any, Any]
    resources: Any = None
    tool: Tool[Any] = field(init=False, repr=False, compare=False)
    _calls: dict[str, list[str]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Refuse what could not run, before anything does."""
        check_name(self.name)
        described, form = _description(self.name, self.agent), self.agent.input
        tool = Elsewhere(self.name, described, _arguments(form))
        tool_def(tool)
        object.__setattr__(self, "tool", tool)

    def hand_offs(self, parent: Trace, /) -> list[Event]:
        """Return the input of a task for each call of the tool, in call order.

        Args:
            parent: The view of the stream that delegates.
        """
        due = due_calls(parent, {self.name: self.tool})
        events = [self._handed(each, parent) for each in due]
        # A task does not know its call, and the runtime asks this before each `hand_back`.
        tasks = zip(due, events, strict=True)
        self._calls[parent.stream] = [
            each.call.id for each, event in tasks if isinstance(event, Input)
        ]
        return events

    def graph_for(self, task: Input, /) -> Graph:
        """Return the graph that the agent builds for its input.

        Args:
            task: The input that heads the task.
        """
        turn = accepted(self.agent.input, task)[1]
        return self.agent.build(self.resources, turn, task.model)

    def hand_back(self, child: Trace, /) -> list[Event]:
        """Return the agent's answer as the result of the call.

        Args:
            child: The task's view.

        Raises:
            ValueError: The view is not that of a task which `hand_offs` handed off.
        """
        place = parse_stream(child.stream)
        calls = self._calls.get(place.parent, []) if place is not None else []
        if place is None or place.index > len(calls):
            raise ValueError(
                f"The stream {child.stream!r} is no task of the tool {self.name!r}. Ask for "
                "`hand_offs` of its parent first."
            )
        call, text = calls[place.index - 1], _answer(self.agent, child)
        if not text:
            return [ToolOutput(call_id=call, error=NO_ANSWER)]
        return [ToolOutput(call_id=call, text=text)]

    def _handed(self, due: DueCall, parent: Trace) -> Event:
        """Return the head of a call's task, or the error that answers the call."""
        payload: JsonValue = arguments_json(self.tool, due.arguments, unset=False)
        if isinstance(payload, dict) and self.tool.arguments is not self.agent.input:
            payload = payload[FIELD]
        head = Input(payload=payload, elements=tuple(_elements(self.tool, due, parent)))
        try:
            head, turn = accepted(self.agent.input, head)
            self.agent.build(self.resources, turn, None)
        except InputDeniedError as denied:
            return ToolOutput(call_id=due.call.id, error=str(denied))
        return head


def _answer(agent: Agent[Any, Any], view: Trace) -> str | None:
    read: Callable[[Trace], str | None] | None = getattr(agent, "answer", None)
    if read is not None:
        return read(view)
    output = view.latest(ModelOutput)
    return None if output is None else output.text


def _description(name: str, agent: Agent[Any, Any]) -> str:
    own: object = getattr(agent, "description", None) or agent.input.__dict__.get("__doc__")
    return own if isinstance(own, str) else f"Give a task to the agent {name!r}."


def _arguments(input: type[BaseModel]) -> type[BaseModel]:
    """Return the arguments of a tool that starts an agent with such an input."""
    return _wrapped(input) if issubclass(input, RootModel) else input


@lru_cache(maxsize=512)
def _wrapped(input: type[RootModel[Any]]) -> type[BaseModel]:
    config = ConfigDict(extra="forbid", frozen=True)
    fields: dict[str, Any] = {FIELD: (input, ...)}
    return create_model(f"{input.__name__}_arguments", __config__=config, **fields)


def _elements(tool: Tool[Any], due: DueCall, parent: Trace) -> Iterator[Element]:
    """Yield the elements that a call names by their ids, so that its task can name them too."""
    written: Mapping[str, JsonValue] = due.call.arguments
    numbers = numbering(parent)
    for mark in tool_def(tool).marks:
        value = written.get(mark.field)
        for real in value if isinstance(value, list) else [value]:
            found = numbers.by_id(real) if isinstance(real, str) else None
            if found is not None and mark.kind == "element":
                yield found
