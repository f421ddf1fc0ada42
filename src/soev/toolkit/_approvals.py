"""The node that asks a person before some calls run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from soev.domain import (
    Event,
    Input,
    JsonSchema,
    JsonValue,
    ModelOutput,
    NodeName,
    Request,
    ToolCall,
    ToolOutput,
    Trace,
)
from soev.runtime import Tool, call_arguments

Approval = Callable[[Any], str | None]

ANSWER: Final[JsonSchema] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "comment": {"type": "string"}},
    "required": ["approved"],
    "additionalProperties": False,
}
# The note in a request's schema that says which call of the output it is about.
NOTE: Final = "$comment"


@dataclass(frozen=True)
class ApprovalStep:
    """A step that asks for the next approval that is due, and records what was denied.

    Each request notes the place of its call in the output. So an answer counts for that call
    alone, also when today's code would ask otherwise, or about other calls.

    Args:
        node: The name of its node. Only requests of this node are its own.
        tools: The agent's tools, by name.
        asks: For each tool that may need approval: the prompt for a person, or None.
    """

    node: NodeName
    tools: Mapping[str, Tool[Any]]
    asks: Mapping[str, Approval]

    async def __call__(self, view: Trace) -> Sequence[Event]:
        """Return an error for each call that was denied, then the next request.

        Args:
            view: The stream's view.
        """
        return self.due(view)

    def due(self, view: Trace) -> list[Event]:
        """Return what is to be recorded next, nothing when all calls are settled.

        Args:
            view: The stream's view, up to the newest output and what followed it.
        """
        output, asked = _asked(view, self.node)
        results = view.results()
        events: list[Event] = []
        for place, call in enumerate(output.calls if output is not None else (), 1):
            note = f"call {place}"
            request = asked.get(note)
            if request is None:
                prompt = self._prompt(call, view)
                if prompt is not None:
                    return [*events, _request(prompt, note)]
                continue
            answer = view.response_to(request)
            if answer is not None and not _approved(answer) and call not in results:
                events.append(ToolOutput(call_id=call.id, error=_denial(answer)))
        return events

    def _prompt(self, call: ToolCall, view: Trace) -> str | None:
        """Return what a person is asked about a call, None when it needs no approval."""
        ask, tool = self.asks.get(call.name), self.tools.get(call.name)
        if ask is None or tool is None:
            return None
        arguments = call_arguments(tool, call, view)
        # A call that does not parse never runs: its result will be an error.
        return None if arguments is None else ask(arguments)


def _request(prompt: str, note: str) -> Request:
    expects: JsonSchema = {**ANSWER, NOTE: note}
    return Request(kind="approval", actor="person", expects=expects, prompt=prompt)


def _asked(view: Trace, node: NodeName) -> tuple[ModelOutput | None, dict[JsonValue, Request]]:
    """Return the newest output, and the requests of a node since then, by their notes."""
    asked: dict[JsonValue, Request] = {}
    for event in reversed(view):
        if isinstance(event, ModelOutput):
            return event, asked
        if isinstance(event, Request) and event.origin == node and event.stream == view.stream:
            asked[(event.expects or {}).get(NOTE)] = event
    return None, {}


def _approved(answer: Input) -> bool:
    return isinstance(answer.payload, dict) and answer.payload.get("approved") is True


def _denial(answer: Input) -> str:
    comment = answer.payload.get("comment") if isinstance(answer.payload, dict) else None
    said = f" They said: {comment}" if isinstance(comment, str) and comment else ""
    return f"A person did not approve this call, so it did not run.{said}"
