"""ReActAgent: a model that calls tools until it has an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, RootModel

from soev.domain import ChatModel, Element, Event, JsonValue, ModelOutput, NodeName, Trace
from soev.runtime import Budget, CitationStrategy, Graph, LlmStep, Router, Tool, ToolStep
from soev.toolkit._approvals import Approval, ApprovalStep
from soev.toolkit._messages import MessageBuilder

MODEL: Final = "model"
TOOLS: Final = "tools"
APPROVAL: Final = "approval"
BUDGET: Final = Budget(cap=25, resume_at=MODEL, tolerance=1)

Tools = Sequence[Tool[Any]] | Callable[[Any, Any], Sequence[Tool[Any]]]


@dataclass(frozen=True, kw_only=True)
class ReActConfig:
    """What a ReActAgent is made of. It is kept for the life of the agent, and never changes.

    Args:
        model: The model that is asked.
        prompt: What the model is told to be: a text, or a function from the parsed turn to one.
        tools: What the model can call: tools, or a function from the resources and the parsed
            turn to tools. The function hands resources on, with `bind`, and asks them nothing.
        approvals: For each tool whose calls a person may have to approve, a pure function from
            the parsed arguments to what the person is asked, or None for no approval.
        budget: The cap on outputs that call tools, so that no turn goes on for ever.
        citations: How the model cites sources, or None when it does not.
        input: The pydantic class of a fresh input's payload.
        element_types: The classes of elements that tools and inputs bring.
        event_types: The classes of results that tools return, beyond `ToolOutput`.
        options: Temperature and the like, in the provider's names.

    Raises:
        ValueError: Two tools have one name, or an approval names a tool that is not among them.
    """

    model: ChatModel
    prompt: str | Callable[[Any], str]
    tools: Tools = ()
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    budget: Budget = BUDGET
    citations: CitationStrategy | None = None
    input: type[BaseModel] = RootModel[str]
    element_types: Sequence[type[Element]] = ()
    event_types: Sequence[type[Event]] = ()
    options: Mapping[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep what was given from being changed, and check the tools that are known."""
        object.__setattr__(self, "approvals", MappingProxyType(dict(self.approvals)))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        if not callable(self.tools):
            object.__setattr__(self, "tools", tuple(self.tools))
            self.tools_of(None, None)

    def tools_of(self, resources: object, turn: object) -> Mapping[str, Tool[Any]]:
        """Return the tools of a turn, by name.

        Args:
            resources: What the catalog gives the agent.
            turn: The parsed payload.

        Raises:
            ValueError: Two tools have one name, or an approval names a tool that is not there.
        """
        listed = self.tools(resources, turn) if callable(self.tools) else self.tools
        tools: dict[str, Tool[Any]] = {}
        for tool in listed:
            if tool.name in tools:
                raise ValueError(
                    f"`tools` has two tools named {tool.name!r}. Give one of them another name."
                )
            tools[tool.name] = tool
        unknown = sorted(self.approvals.keys() - tools.keys())
        if unknown:
            known = ", ".join(repr(name) for name in tools) or "none"
            raise ValueError(
                f"`approvals` names the tool {unknown[0]!r}, and the tools are {known}. "
                "Correct the name, or add the tool."
            )
        return tools


class ReActAgent:
    """An agent that asks a model, runs the tools that it calls, and asks again, to an answer.

    Its graph has the nodes `model`, `tools` and `approval`. After an output come the approvals of
    its calls, in their order, then the tools side by side; a call that a person denied has an
    error as its result. A turn ends with an output that calls no tool.

    Args:
        config: What it is made of.
    """

    def __init__(self, config: ReActConfig) -> None:
        self.config = config
        self.input: type[BaseModel] = config.input
        self.element_types: Sequence[type[Element]] = tuple(config.element_types)
        self.event_types: Sequence[type[Event]] = tuple(config.event_types)

    def build(self, resources: Any, turn: Any, model: str | None) -> Graph:
        """Make the graph of one turn.

        Args:
            resources: What the config's `tools` function gets, untouched.
            turn: The parsed payload.
            model: The model to ask for, or None for the adapter's own.
        """
        config = self.config
        tools = config.tools_of(resources, turn)
        builder = MessageBuilder(
            prompt=config.prompt(turn) if callable(config.prompt) else config.prompt,
            model=config.model.name,
            asked=model,
            tools=tuple(tools.values()),
            citations=config.citations,
            budget=config.budget,
            options=config.options,
            hidden=(APPROVAL,),
        )
        approval = ApprovalStep(APPROVAL, tools, config.approvals)
        graph = Graph()
        graph.add_node(MODEL, LlmStep(builder, config.model))
        graph.add_node(APPROVAL, approval)
        graph.add_node(TOOLS, ToolStep(tools))
        graph.set_entry_point(MODEL)
        graph.add_conditional_edge(MODEL, _route(approval))
        graph.add_conditional_edge(APPROVAL, _route(approval))
        graph.add_edge(TOOLS, MODEL)
        graph.set_budget(config.budget)
        return graph

    def __repr__(self) -> str:
        return f"ReActAgent(model={self.config.model.name!r})"


def _route(approval: ApprovalStep) -> Router:
    """Return the router after an output, and after each answer about its calls."""

    def route(view: Trace) -> NodeName | None:
        output = view.latest(ModelOutput)
        if output is None or not output.calls_tools:
            return None
        if approval.due(view):
            return APPROVAL
        results = view.results()
        return TOOLS if any(call not in results for call in output.calls) else MODEL

    return route
