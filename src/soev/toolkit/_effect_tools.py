"""Tools whose call is an effect: the intent is recorded, then the act, then its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    JsonValue,
    ModelOutput,
    ToolCall,
    ToolOutput,
    Trace,
    canonical_json,
)
from soev.runtime import (
    EffectCancellation,
    Effector,
    EffectRecovery,
    Tool,
    abandon,
    call_arguments,
    tool_def,
)
from soev.toolkit._policies import ask_person

# A node is named after the tool, with `effect.` or `agent.` before its name.
MAX_NAME: Final = 57


@dataclass(frozen=True)
class EffectTool:
    """A tool whose call changes the world, at most once for each call.

    The intent of a call has the tool's name as its kind, and the parsed arguments as its args:
    JSON by the names that a model writes, with real ids for elements, and without what is
    `Recorded`.

    Args:
        name: The name that a model calls it by, of at most 57 characters.
        description: What a model reads about when and how to use it.
        arguments: The pydantic model of its arguments.
        effector: Performs the act.
        recovery: Settles an intent that was left without a result.
        cancellation: Decides about an act in progress when its turn is cancelled or stopped.

    Raises:
        ValueError: No node can be named after it.
        ToolDefinitionError: The arguments cannot be shown to a model.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    effector: Effector
    recovery: EffectRecovery = ask_person
    cancellation: EffectCancellation = abandon

    def __post_init__(self) -> None:
        """Refuse what could not run, before anything does."""
        check_name(self.name)
        tool_def(self)


@dataclass(frozen=True)
class Elsewhere:
    """A tool as a ToolStep and approvals see it when its calls run at a node of their own.

    The ToolStep answers only those calls that can run nowhere.

    Args:
        name: The name that a model calls it by.
        description: What a model reads about it.
        arguments: The pydantic model of its arguments.
    """

    name: str
    description: str
    arguments: type[BaseModel]

    async def run(self, arguments: BaseModel) -> ToolOutput:
        """Refuse to run.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"A `ToolStep` does not run the tool {self.name!r}, which has a node of its own. "
            "Route its calls there first."
        )


class DueCall(NamedTuple):
    """A call that can run and has no result yet.

    Args:
        call: The call.
        arguments: Its parsed arguments.
    """

    call: ToolCall
    arguments: BaseModel


def check_name(name: str) -> None:
    """Refuse a tool that no node can be named after.

    Raises:
        ValueError: The name is empty, too long, or holds `/` or `#`.
    """
    if not 1 <= len(name) <= MAX_NAME or "/" in name or "#" in name:
        raise ValueError(
            f"No node can be named after the tool {name!r}. "
            f"Use 1 to {MAX_NAME} characters without `/` and `#`."
        )


def due_calls(view: Trace, tools: Mapping[str, Tool[Any]]) -> list[DueCall]:
    """Return the latest output's calls of some tools that can run and have no result.

    Args:
        view: The stream's view.
        tools: The tools by name.
    """
    output, results = view.latest(ModelOutput), view.results()
    due = []
    for call in output.calls if output is not None else ():
        tool = tools.get(call.name)
        if tool is None or call in results:
            continue
        arguments = call_arguments(tool, call, view)
        if arguments is not None:
            due.append(DueCall(call, arguments))
    return due


class EffectCallStep:
    """The EffectStep of one tool. It intends the first of the tool's calls that is due.

    Args:
        tool: The tool.
    """

    def __init__(self, tool: EffectTool) -> None:
        self.effector: Effector = tool.effector
        self.recovery: EffectRecovery = tool.recovery
        self.cancellation: EffectCancellation = tool.cancellation
        self._tools = {tool.name: Elsewhere(tool.name, tool.description, tool.arguments)}

    def intend(self, trace: Trace) -> EffectIntent:
        """Return the intent of the call.

        Args:
            trace: The stream's view.

        Raises:
            ValueError: No call is due.
        """
        due = due_calls(trace, self._tools)
        if not due:
            names = ", ".join(map(repr, self._tools))
            raise ValueError(
                f"No call of {names} can be performed. Route to its effect only after one."
            )
        return EffectIntent(kind=due[0].call.name, args=_args(self._tools, due[0]))


@dataclass(frozen=True)
class EffectReportStep:
    """A step that records the result of an effect as the result of its call.

    Args:
        tools: The effect tools by name, as a ToolStep sees them.
    """

    tools: Mapping[str, Tool[Any]]

    async def __call__(self, view: Trace) -> Sequence[Event]:
        """Return the one result.

        Args:
            view: The stream's view, which ends with the effect's result.

        Raises:
            ValueError: The last effect answers no call.
        """
        intent, result = view.latest(EffectIntent), view.latest(EffectResult)
        call = None if intent is None else self._call_of(intent, view)
        if call is None or result is None:
            raise ValueError(
                "The latest effect is not that of a call without a result. Route to it only after "
                "the effect of a call."
            )
        if result.error is not None:
            return [ToolOutput(call_id=call.id, error=result.error)]
        return [ToolOutput(call_id=call.id, text=canonical_json(result.output))]

    def _call_of(self, intent: EffectIntent, view: Trace) -> ToolCall | None:
        """Return the call that an intent was made of.

        Effects go one by one, so it is the first of equal calls. Today's code may read the
        arguments otherwise; then it is the first call of the tool that can run.
        """
        due = [each for each in due_calls(view, self.tools) if each.call.name == intent.kind]
        same = [each for each in due if _args(self.tools, each) == intent.args]
        return next((each.call for each in (*same, *due)), None)


def _args(tools: Mapping[str, Tool[Any]], due: DueCall) -> dict[str, JsonValue]:
    """Return the args of a call's intent."""
    marked = frozenset(mark.field for mark in tool_def(tools[due.call.name]).marks)
    written = due.call.arguments
    real = {name: value for name, value in written.items() if name in marked}
    return {**arguments_json(tools[due.call.name], due.arguments, without=marked), **real}


def arguments_json(
    tool: Tool[Any],
    arguments: BaseModel,
    *,
    without: frozenset[str] = frozenset(),
    unset: bool = True,
) -> dict[str, JsonValue]:
    """Return parsed arguments as JSON, by the names that a model writes.

    Args:
        tool: The tool.
        arguments: The arguments. What is `Recorded` in them is left out.
        without: Names to leave out, too.
        unset: Whether defaults are written.
    """
    shown = tool_def(tool).parameters.get("properties")
    kept = frozenset(shown if isinstance(shown, dict) else ()) - without
    names = {}
    for name, field in type(arguments).__pydantic_fields__.items():
        alias = field.validation_alias or field.alias
        names[name] = alias if isinstance(alias, str) else name
    hidden = {name for name, written in names.items() if written not in kept}
    dumped = arguments.model_dump(
        mode="json", exclude=hidden, exclude_unset=not unset, serialize_as_any=True
    )
    return {names.get(name, name): value for name, value in dumped.items()}
