"""ReActAgent: a model that calls tools until it has an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, RootModel

from soev.domain import ChatModel, Element, Event, JsonValue, ModelOutput, NodeName, Trace
from soev.runtime import Budget, CitationStrategy, Graph, LlmStep, Tool, ToolStep
from soev.toolkit._approvals import Approval, ApprovalStep
from soev.toolkit._compaction import Compacting, CompactStep
from soev.toolkit._messages import MessageBuilder
from soev.toolkit._structured import StructuredOutput

MODEL: Final = "model"
TOOLS: Final = "tools"
APPROVAL: Final = "approval"
COMPACT: Final = "compact"
BUDGET: Final = Budget(cap=25, resume_at=MODEL, tolerance=1)

Tools = Sequence[Tool[Any]] | Callable[[Any, Any], Sequence[Tool[Any]]]


@dataclass(frozen=True)
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
        compaction: When the conversation is summed up, or None to show all of it always.
        output: The form of the final answer, or None for a text. The model then must call tools,
            and the turn ends at an answer that fits, or when the budget is used up.
        input: The pydantic class of a fresh input's payload.
        element_types: The classes of elements that tools and inputs bring.
        event_types: The classes of results that tools return, beyond `ToolOutput`.
        options: Temperature and the like, in the provider's names.

    Raises:
        ValueError: Two tools have one name, or an approval names a tool that is not among them.
    """

    model: ChatModel
    prompt: str | Callable[[Any], str]
    _: KW_ONLY
    tools: Tools = ()
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    budget: Budget = BUDGET
    citations: CitationStrategy | None = None
    compaction: Compacting | None = None
    output: StructuredOutput[Any] | None = None
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
        answer = () if self.output is None else (self.output,)
        tools: dict[str, Tool[Any]] = {}
        for tool in (*listed, *answer):
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

    Its graph has the nodes `model`, `tools` and `approval`, and `compact` with a compaction. After
    an output come the approvals of its calls, in their order, then the tools side by side; a call
    that a person denied has an error as its result. A turn ends with an output that calls no tool.
    A summary that is due is made before the next model call, or at the end of the turn.

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
            tool_choice="auto" if config.output is None else "required",
            hidden=(APPROVAL,),
        )
        approval = ApprovalStep(APPROVAL, tools, config.approvals)
        compact = None
        if config.compaction is not None:
            compact = CompactStep(builder, config.model, config.compaction)
        routes = _Routes(approval, compact, config.output)
        graph = Graph()
        graph.add_node(MODEL, LlmStep(builder, config.model))
        graph.add_node(APPROVAL, approval)
        graph.add_node(TOOLS, ToolStep(tools))
        graph.set_entry_point(MODEL)
        graph.add_conditional_edge(MODEL, routes.after_output)
        graph.add_conditional_edge(APPROVAL, routes.after_output)
        graph.add_conditional_edge(TOOLS, routes.after_tools)
        if compact is not None:
            graph.add_node(COMPACT, compact)
            graph.add_conditional_edge(COMPACT, routes.after_summary)
        graph.set_budget(config.budget)
        return graph

    def __repr__(self) -> str:
        return f"ReActAgent(model={self.config.model.name!r})"


@dataclass(frozen=True, slots=True)
class _Routes:
    """The routers of one turn.

    Args:
        approval: Says whether a person is to be asked.
        compact: Says whether a summary is due, None without summaries.
        output: Says whether the answer is given, None for a text.
    """

    approval: ApprovalStep
    compact: CompactStep | None
    output: StructuredOutput[Any] | None

    def after_output(self, view: Trace) -> NodeName | None:
        """Pick what follows an output, and each answer about its calls."""
        output = view.latest(ModelOutput)
        if output is None or not output.calls_tools:
            return self.after_tools(view)
        if self.approval.due(view):
            return APPROVAL
        results = view.results()
        if any(call not in results for call in output.calls):
            return TOOLS
        return self.after_tools(view)

    def after_tools(self, view: Trace) -> NodeName | None:
        """Pick the summary that is due, or what comes after it."""
        if self.compact is not None and self.compact.due(view):
            return COMPACT
        return self.after_summary(view)

    def after_summary(self, view: Trace) -> NodeName | None:
        """Ask the model again, until it has answered."""
        output = view.latest(ModelOutput)
        if output is None or not output.calls_tools:
            return None
        return None if self.output is not None and self.output.given(view) else MODEL
