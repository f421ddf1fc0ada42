"""Scenarios of today's runtime: what they are made of, and a table of them."""

from collections.abc import Callable, Sequence

from pytest_soev.world import (
    FunctionChatModel,
    Scenario,
    Simulation,
    Talk,
    boundary,
    calling,
    carry_on,
    log_of,
    survive,
)
from soev.domain import (
    ChatReply,
    ChatRequest,
    Event,
    Failure,
    ModelOutput,
    ToolMessage,
    ToolOutput,
    Trace,
    TransientError,
)
from soev.runtime import Graph, tool
from soev.toolkit import ReActAgent, ReActConfig

Log = tuple[str, ...]


def one_step() -> Graph:
    """Make a graph of one step that waits for something outside."""

    async def step(view: Trace) -> Sequence[Event]:
        await boundary()
        return [ModelOutput(text="Hello.")]

    graph = Graph()
    graph.add_node("step", step)
    graph.set_entry_point("step")
    return graph


def unsteady() -> Graph:
    """Make a graph of a step that fails for a moment in each turn, once, as the log tells it."""

    async def step(view: Trace) -> Sequence[Event]:
        await boundary()
        if not view.turn.of(Failure):
            raise TransientError("Come back later.")
        return [ModelOutput(text="Here.")]

    graph = Graph()
    graph.add_node("unsteady", step)
    graph.set_entry_point("unsteady")
    return graph


@tool(name="look", description="Look something up.")
async def look(query: str) -> ToolOutput:
    """Find what was asked for."""
    await boundary()
    return ToolOutput(text=f"{query}: found")


@tool(name="refund", description="Pay an order back.")
async def refund(order: str) -> ToolOutput:
    """Pay an order back."""
    await boundary()
    return ToolOutput(text=f"{order}: paid")


def answer(request: ChatRequest) -> ChatReply | str:
    """Call one tool, then two at once, then one that needs an approval; then say so."""
    seen = sum(isinstance(message, ToolMessage) for message in request.messages)
    if seen == 0:
        return calling(request, ("look", {"query": "order"}))
    if seen == 1:
        return calling(request, ("look", {"query": "price"}), ("look", {"query": "policy"}))
    return calling(request, ("refund", {"order": "o-1"})) if seen < 4 else "It is paid."


AGENT = ReActAgent(
    ReActConfig(
        model=FunctionChatModel(answer),
        prompt="You help.",
        tools=[look, refund],
        approvals={"refund": lambda arguments: "Pay it back?"},
    )
)
REACT = AGENT.build(None, None, None)


def scenario(name: str, make: Callable[[], Graph], *inputs: str) -> Scenario[Log]:
    """Make a scenario in which one process carries a talk on, started again when it dies.

    Args:
        name: Its name.
        make: Makes the graph, once for each schedule.
        inputs: What the person says.
    """

    async def play(sim: Simulation) -> Log:
        graph, talk = make(), Talk(inputs=inputs)
        await survive(sim.process("a"), lambda process: carry_on(process, lambda: graph, talk))
        return await log_of(sim.store)

    return Scenario(name, play)


ONE_STEP = scenario("one step", one_step, "Hello")
REACT_LOOP = scenario("ReAct loop", lambda: REACT, "Pay back o-1")
TRANSIENT = scenario("transient failure", unsteady, "Hello")
TURNS = scenario("multi-turn", one_step, "Hello", "And now?")
SCENARIOS = [ONE_STEP, REACT_LOOP, TRANSIENT, TURNS]
