"""Agents and threads to measure: a model of zero latency that calls a tool again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from statistics import median
from time import perf_counter

from soev.domain import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    EffectIntent,
    EffectResult,
    Event,
    Input,
    JsonValue,
    ModelOutput,
    PreparedRequest,
    ToolCall,
    ToolOutput,
    Trace,
    TraceStore,
)
from soev.runtime import (
    Budget,
    EffectCancellation,
    Effector,
    EffectRecovery,
    Graph,
    Runs,
    Thread,
    abandon,
    tool,
)
from soev.toolkit import ReActAgent, ReActConfig, perform_again

TEXT = "The parcel left the warehouse on Monday and arrives on Thursday, says the carrier."
PROMPT = "You are a support assistant. Answer briefly, and search before you answer."


class Pace:
    """Notes when each step began."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def tick(self) -> None:
        """Note a moment."""
        self.moments.append(perf_counter())

    def last_steps(self, count: int = 200) -> float:
        """Return the median seconds of the last steps, a model step and a tool step each half."""
        moments = self.moments[-2 * (count // 2) - 1 :]
        pairs = zip(moments[:-2:2], moments[2::2], strict=False)
        return median((after - before) / 2 for before, after in pairs)


def bare_graph(events: int, pace: Pace) -> Graph:
    """Return `model` and `tools` in turn, one event a step, until the thread has so many events."""

    async def model(view: Trace) -> Sequence[Event]:
        pace.tick()
        number = len(view)
        arguments: dict[str, JsonValue] = {"query": "carrier delay", "page": number}
        calls = (ToolCall(id=f"call-{number}", name="search", arguments=arguments),)
        return [ModelOutput(text=TEXT, calls=calls, model="zero", sent_chars=4_096)]

    async def tools(view: Trace) -> Sequence[Event]:
        pace.tick()
        output = view.latest(ModelOutput)
        assert output is not None
        return [ToolOutput(call_id=output.calls[0].id, text=TEXT * 2)]

    graph = Graph()
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.set_entry_point("model")
    graph.add_conditional_edge("model", lambda view: "tools" if len(view) < events else None)
    graph.add_conditional_edge("tools", lambda view: "model" if len(view) < events else None)
    graph.set_budget(Budget(cap=events, resume_at="model", tolerance=1))
    return graph


class ZeroModel:
    """A ChatModel that answers at once: a call of the tool until it has made enough of them."""

    name = "zero"

    def __init__(self, events: int, pace: Pace) -> None:
        self.events, self.pace, self.sent = events, pace, 0

    def prepare(self, request: ChatRequest) -> PreparedRequest | None:
        """Say nothing of the wire."""
        return None

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        """Answer with a call, and at last with a text."""
        self.pace.tick()
        self.sent += 1
        if 2 * self.sent >= self.events - 1:
            yield ChatReply(TEXT, model=self.name)
            return
        arguments: dict[str, JsonValue] = {"query": f"carrier delay {self.sent}"}
        call = ToolCall(id=f"call-{self.sent}", name="search", arguments=arguments)
        yield ChatReply("", (call,), model=self.name, finish="tools")


def react_graph(events: int, pace: Pace) -> Graph:
    """Return the graph of a ReActAgent whose messages are rendered and hashed at each call."""

    @tool(name="search", description="Search the documents. Use short keyword queries.")
    async def search(query: str) -> ToolOutput:
        pace.tick()
        return ToolOutput(text=TEXT * 2)

    budget = Budget(cap=events, resume_at="model", tolerance=1)
    model = ZeroModel(events, pace)
    agent = ReActAgent(ReActConfig(model=model, prompt=PROMPT, tools=[search], budget=budget))
    return agent.build(None, agent.input.model_validate("Where is my parcel?"), None)


class Payments:
    """A world in which everything happens at once."""

    async def perform(self, intent: EffectIntent) -> EffectResult:
        """Do nothing, and say so."""
        return EffectResult(output="paid")


class Refund:
    """An effect on that world."""

    recovery: EffectRecovery = staticmethod(perform_again)
    cancellation: EffectCancellation = staticmethod(abandon)
    effector: Effector = Payments()

    def intend(self, trace: Trace) -> EffectIntent:
        """Say what is to happen."""
        return EffectIntent(kind="refund", args={"order": "o-1"})


def effect_graph(act: bool) -> Graph:
    """Return one model step, and an effect after it or not."""

    async def model(view: Trace) -> Sequence[Event]:
        return [ModelOutput(text=TEXT, model="zero", sent_chars=4_096)]

    graph = Graph()
    graph.add_node("model", model)
    graph.set_entry_point("model")
    if act:
        graph.add_node("refund", Refund())
        graph.add_edge("model", "refund")
    return graph


async def run_thread(store: TraceStore, thread_id: str, graph: Graph) -> Trace:
    """Open a thread and run its one turn."""
    runs = Runs()
    thread = Thread(thread_id, graph, store, runs)
    await thread.open("bench", Input(payload="Where is my parcel?"))
    trace = await thread.resume()
    await runs.close(timeout=5)
    return trace
