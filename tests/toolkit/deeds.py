"""What tests of effect tools share: a shop whose world counts, and threads that die and go on."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from soev.adapters import InMemoryTraceStore, ScriptedChatModel, ScriptStep
from soev.domain import (
    EffectIntent,
    EffectResult,
    Element,
    Event,
    Input,
    JsonValue,
    ModelOutput,
    Request,
    ToolOutput,
    Trace,
    fault_plan,
    reached,
)
from soev.runtime import Agent, AgentCatalog, Runs, Status, Thread
from soev.toolkit import EffectTool, ReActAgent, ReActConfig


class Crash(BaseException):
    """A process that dies."""


class Row(Element):
    """An element that an effect can act on."""

    tag: ClassVar[str] = "row"


class Refund(BaseModel):
    """What a refund is given on."""

    order: str
    cents: int = 100


class Bank:
    """An effector that counts the acts of each intent, and drops repeats where it is told to."""

    def __init__(self, timeout: float | None = None) -> None:
        self.acts: Counter[str] = Counter()
        self.args: list[JsonValue] = []
        self.timeout = timeout
        self.drops = False
        self.refuses: str | None = None
        self.fails: list[Exception] = []
        self.hold: asyncio.Event | None = None
        self.entered = asyncio.Event()

    async def perform(self, intent: EffectIntent) -> EffectResult:
        """Act, unless it was done or is refused."""
        self.entered.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.refuses is not None:
            return EffectResult(error=self.refuses)
        reached("bank.paying")
        key = str(intent.id)
        if not (self.drops and self.acts[key]):
            self.acts[key] += 1
            self.args.append(intent.args)
        reached("bank.paid")
        if self.fails:
            raise self.fails.pop(0)
        return EffectResult(output={"paid": True})

    async def find(self, intent: EffectIntent) -> Any:
        """Answer what was done, honestly."""
        done = self.acts[str(intent.id)] > 0
        return EffectResult(output={"found": True}) if done else "not done"


def refund(bank: Bank, name: str = "refund", **policies: Any) -> EffectTool:
    """Make a tool that refunds."""
    return EffectTool(name, "Refund an order.", Refund, bank, **policies)


class Shop:
    """One thread of an agent, played by a script, in as many processes as a test makes."""

    def __init__(self, *steps: ScriptStep, **config: Any) -> None:
        self.model = ScriptedChatModel(*steps)
        self.config = {"element_types": (Row,), **config}
        self.store = InMemoryTraceStore()
        self.build(**self.config)

    def build(self, **config: Any) -> None:
        """Make the agent anew, as another version of the code."""
        made = ReActAgent(ReActConfig(model=self.model, prompt="Sell.", **config))
        self.agents: dict[str, Agent[Any, Any]] = {"seller": made}

    def catalog(self) -> AgentCatalog:
        """Begin a process."""
        return AgentCatalog(self.store, self.agents, Runs(), version="1")

    async def open(self) -> Thread:
        """Open the thread."""
        thread, _ = await self.catalog().open("seller", Input(payload="Go"), thread_id="t")
        return thread

    async def say(self) -> Trace:
        """Open the thread and run its first turn."""
        return await (await self.open()).resume()

    async def thread(self) -> Thread:
        """Return the thread in a new process."""
        return await self.catalog().thread("t", resuming=True)

    async def resume(self) -> Trace:
        """Go on in a new process."""
        lease = (await self.store.head("t")).lease
        if lease is not None:
            await self.store.release(lease)
        return await (await self.thread()).resume()

    async def answer(self, payload: JsonValue) -> Trace:
        """Answer the pending request and go on, in a new process."""
        thread = await self.thread()
        pending = (await thread.status()).pending[0].event
        return await thread.send(Input(payload=payload), answering=pending)

    async def status(self) -> Status:
        """Return where the thread stands."""
        return await (await self.thread()).status()

    async def dies(self, point: str, count: int = 1) -> bool:
        """Run in a process that dies when it passes a point, and tell whether it came that far."""
        passed: Counter[str] = Counter()

        def die(name: str) -> None:
            passed[name] += 1
            if name == point and passed[name] == count:
                raise Crash(name)

        thread = await self.thread()
        token = fault_plan.set(die)
        try:
            await thread.resume()
        except Crash:
            return True
        finally:
            fault_plan.reset(token)
        return False


def results(trace: Trace) -> list[str]:
    """Return the results' texts, errors marked, in the order they were recorded."""
    return [f"error: {each.error}" if each.error else each.text for each in trace.of(ToolOutput)]


def kinds(trace: Sequence[Event]) -> list[str]:
    """Return the classes of events, an output with its text."""
    return [
        event.text if isinstance(event, ModelOutput) and event.text else type(event).__name__
        for event in trace
    ]


def requests(trace: Trace) -> list[str]:
    """Return the kinds of the requests."""
    return [request.kind for request in trace.of(Request)]
