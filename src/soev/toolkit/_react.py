"""ReActAgent: a model that calls tools until it has an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, RootModel

from soev.domain import (
    ChatModel,
    Element,
    Event,
    JsonValue,
    ModelOutput,
    NodeName,
    Trace,
    canonical_json,
)
from soev.runtime import Agent, Budget, CitationStrategy, Graph, LlmStep, Tool, ToolStep
from soev.toolkit._approvals import Approval, ApprovalStep
from soev.toolkit._compaction import Compacting, CompactStep
from soev.toolkit._effect_tools import (
    EffectCallStep,
    EffectReportStep,
    EffectTool,
    Elsewhere,
    due_calls,
)
from soev.toolkit._messages import MessageBuilder
from soev.toolkit._structured import StructuredOutput
from soev.toolkit._subagents import SubAgents

MODEL: Final = "model"
TOOLS: Final = "tools"
APPROVAL: Final = "approval"
COMPACT: Final = "compact"
REPORT: Final = "report"
BUDGET: Final = Budget(cap=25, resume_at=MODEL, tolerance=1)

Tools = Sequence[Tool[Any]] | Callable[[Any, Any], Sequence[Tool[Any]]]
Effects = Sequence[EffectTool] | Callable[[Any, Any], Sequence[EffectTool]]


@dataclass(frozen=True, slots=True)
class Offer:
    """What the model of one turn can call.

    Args:
        tools: All tools by name, as a model is shown them and as approvals read them.
        effects: Those whose call is an effect.
        subagents: Those whose call starts an agent.
    """

    tools: Mapping[str, Tool[Any]]
    effects: Mapping[str, EffectTool]
    subagents: Mapping[str, SubAgents]


@dataclass(frozen=True)
class ReActConfig:
    """What a ReActAgent is made of. It is kept for the life of the agent, and never changes.

    Args:
        model: The model that is asked.
        prompt: What the model is told to be: a text, or a function from the parsed turn to one.
        tools: What the model can call: tools, or a function from the resources and the parsed
            turn to tools. The function hands resources on, with `bind`, and asks them nothing.
        effects: Tools whose call is an effect, or a function as for `tools`.
        subagents: Agents that the model can give tasks to, by the name of their tool. Each gets
            the resources of this one.
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
        description: What another agent's model reads about it, where it is a sub-agent.

    Raises:
        ValueError: Two tools have one name, or an approval names a tool that is not among them.
    """

    model: ChatModel
    prompt: str | Callable[[Any], str]
    _: KW_ONLY
    tools: Tools = ()
    effects: Effects = ()
    subagents: Mapping[str, Agent[Any, Any]] = field(default_factory=dict)
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    budget: Budget = BUDGET
    citations: CitationStrategy | None = None
    compaction: Compacting | None = None
    output: StructuredOutput[Any] | None = None
    input: type[BaseModel] = RootModel[str]
    element_types: Sequence[type[Element]] = ()
    event_types: Sequence[type[Event]] = ()
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    description: str | None = None

    def __post_init__(self) -> None:
        """Keep what was given from being changed, and check the tools that are known."""
        object.__setattr__(self, "approvals", MappingProxyType(dict(self.approvals)))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        object.__setattr__(self, "subagents", MappingProxyType(dict(self.subagents)))
        for name in ("tools", "effects"):
            given = getattr(self, name)
            if not callable(given):
                object.__setattr__(self, name, tuple(given))
        if not (callable(self.tools) or callable(self.effects)):
            self.offer(None, None)

    def offer(self, resources: object, turn: object) -> Offer:
        """Return what the model of a turn can call.

        Args:
            resources: What the catalog gives the agent.
            turn: The parsed payload.

        Raises:
            ValueError: Two tools have one name, no node can be named after an effect or an agent,
                or an approval names a tool that is not there.
        """
        listed = self.tools(resources, turn) if callable(self.tools) else self.tools
        effects = self.effects(resources, turn) if callable(self.effects) else self.effects
        agents = [SubAgents(name, each, resources) for name, each in self.subagents.items()]
        performed = [Elsewhere(each.name, each.description, each.arguments) for each in effects]
        answer = () if self.output is None else (self.output,)
        tools: dict[str, Tool[Any]] = {}
        for tool in (*listed, *performed, *(each.tool for each in agents), *answer):
            if tool.name in tools:
                raise ValueError(
                    f"`ReActConfig` has two tools named {tool.name!r}. Give one of them another "
                    "name."
                )
            tools[tool.name] = tool
        unknown = sorted(self.approvals.keys() - tools.keys())
        if unknown:
            known = ", ".join(repr(name) for name in tools) or "none"
            raise ValueError(
                f"`approvals` names the tool {unknown[0]!r}, and the tools are {known}. "
                "Correct the name, or add the tool."
            )
        return Offer(
            tools, {each.name: each for each in effects}, {each.name: each for each in agents}
        )


class ReActAgent:
    """An agent that asks a model, runs the tools that it calls, and asks again, to an answer.

    Its graph has the nodes `model`, `tools` and `approval`, `compact` with a compaction, for each
    effect `effect.NAME`, then `report`, and for each sub-agent `agent.NAME`. After an output come
    the approvals of its calls, in their order, then the effects, one by one and in their order,
    the sub-agents, each tool's calls side by side, and the other tools side by side; a call that a
    person denied has an error as its result. A turn ends with an output that calls no tool. A
    summary that is due is made before the next model call, or at the end of the turn.

    Args:
        config: What it is made of.
    """

    def __init__(self, config: ReActConfig) -> None:
        self.config = config
        self.input: type[BaseModel] = config.input
        self.description = config.description
        agents = config.subagents.values()
        elements = [*config.element_types, *(cls for each in agents for cls in each.element_types)]
        events = [*config.event_types, *(cls for each in agents for cls in each.event_types)]
        self.element_types: Sequence[type[Element]] = tuple(dict.fromkeys(elements))
        self.event_types: Sequence[type[Event]] = tuple(dict.fromkeys(events))

    def build(self, resources: Any, turn: Any, model: str | None) -> Graph:
        """Make the graph of one turn.

        Args:
            resources: What the config's `tools` and `effects` get, and the sub-agents, untouched.
            turn: The parsed payload.
            model: The model to ask for, or None for the adapter's own.
        """
        config = self.config
        offer = config.offer(resources, turn)
        builder = MessageBuilder(
            prompt=config.prompt(turn) if callable(config.prompt) else config.prompt,
            model=config.model.name,
            asked=model,
            tools=tuple(offer.tools.values()),
            citations=config.citations,
            budget=config.budget,
            options=config.options,
            tool_choice="auto" if config.output is None else "required",
            hidden=(APPROVAL, *map(_effect_node, offer.effects)),
        )
        approval = ApprovalStep(APPROVAL, offer.tools, config.approvals)
        compact = None
        if config.compaction is not None:
            compact = CompactStep(builder, config.model, config.compaction)
        routes = _Routes(offer, approval, compact, config.output)
        graph = Graph()
        graph.add_node(MODEL, LlmStep(builder, config.model))
        graph.add_node(APPROVAL, approval)
        graph.add_node(TOOLS, ToolStep(offer.tools))
        graph.set_entry_point(MODEL)
        graph.add_conditional_edge(MODEL, routes.after_output)
        graph.add_conditional_edge(APPROVAL, routes.after_output)
        graph.add_conditional_edge(TOOLS, routes.after_tools)
        _add_calls(graph, offer, routes)
        if compact is not None:
            graph.add_node(COMPACT, compact)
            graph.add_conditional_edge(COMPACT, routes.after_summary)
        graph.set_budget(config.budget)
        return graph

    def answer(self, view: Trace) -> str | None:
        """Return the answer of the current turn, None when it has none.

        Args:
            view: The thread's trace, or the view of the task that the agent works on.

        Returns:
            With `output` the canonical JSON of the answer that fits, else the last output's text.
        """
        form = self.config.output
        if form is not None:
            given = form.read(view)
            return None if given is None else canonical_json(given.model_dump(mode="json"))
        output = view.latest(ModelOutput)
        return None if output is None else output.text

    def __repr__(self) -> str:
        return f"ReActAgent(model={self.config.model.name!r})"


def _effect_node(tool: str) -> NodeName:
    return f"effect.{tool}"


def _agent_node(tool: str) -> NodeName:
    return f"agent.{tool}"


def _add_calls(graph: Graph, offer: Offer, routes: _Routes) -> None:
    """Add the nodes of effects and sub-agents."""
    if offer.effects:
        graph.add_node(REPORT, EffectReportStep(_some(offer.tools, offer.effects)))
        graph.add_conditional_edge(REPORT, routes.after_output)
    for name, effect in offer.effects.items():
        graph.add_node(_effect_node(name), EffectCallStep(effect))
        graph.add_edge(_effect_node(name), REPORT)
    for name, agent in offer.subagents.items():
        graph.add_node(_agent_node(name), agent)
        graph.add_conditional_edge(_agent_node(name), routes.after_output)


def _some(tools: Mapping[str, Tool[Any]], names: Iterable[str]) -> Mapping[str, Tool[Any]]:
    return {name: tools[name] for name in names}


@dataclass(frozen=True, slots=True)
class _Routes:
    """The routers of one turn.

    Args:
        offer: What the model can call.
        approval: Says whether a person is to be asked.
        compact: Says whether a summary is due, None without summaries.
        output: Says whether the answer is given, None for a text.
    """

    offer: Offer
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
        for names, node in (
            (self.offer.effects, _effect_node),
            (self.offer.subagents, _agent_node),
        ):
            due = due_calls(view, _some(self.offer.tools, names)) if names else ()
            if due:
                return node(due[0].call.name)
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
