"""One conversation with an agent, and how it looks in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

from examples.support_desk.agent import NAME
from examples.support_desk.knowledge import Article, Passage
from soev.domain import (
    ROOT_STREAM,
    BudgetExceeded,
    Cancelled,
    Element,
    Event,
    Failure,
    Input,
    JsonValue,
    ModelOutput,
    Request,
    ToolCall,
    ToolOutput,
    UnknownThreadError,
    elements_in,
)
from soev.runtime import AgentCatalog, Status, Thread


class Conversation:
    """One thread, driven by what people say.

    It keeps nothing but the thread's id: where the conversation stands is in the store, so that
    another process can go on with it.

    Args:
        catalog: Where the agent and the store are.
        thread_id: The thread. It is opened by the first thing that is said.
        agent: Whose thread it becomes then.
        quiet: Whether to print nothing.
        echo: Whether to print what people say, too.
    """

    def __init__(
        self,
        catalog: AgentCatalog,
        thread_id: str,
        agent: str = NAME,
        *,
        quiet: bool = False,
        echo: bool = True,
    ) -> None:
        self._catalog, self._id, self._agent = catalog, thread_id, agent
        self._quiet, self._echo = quiet, echo
        self._seen: dict[str, Element] = {}

    async def say(self, text: str) -> Status:
        """Begin a turn with what the customer says, and run it until it ends or waits."""
        said = Input(payload=text)
        self._print_said(said)
        try:
            thread = await self._catalog.thread(self._id, input=said)
        except UnknownThreadError:
            await self._catalog.open(self._agent, said, thread_id=self._id)
            return await self.resume()
        await thread.submit(said)
        return await self._run(thread)

    async def answer(self, payload: dict[str, JsonValue]) -> Status:
        """Answer the request that the turn waits for."""
        thread = await self._catalog.thread(self._id, resuming=True)
        request = (await thread.status()).pending[0].event
        answer = Input(payload=payload)
        self._print_said(answer)
        await thread.submit(answer, answering=request)
        return await self._run(thread)

    async def resume(self) -> Status:
        """Go on where the turn stopped, whatever stopped it."""
        return await self._run(await self._catalog.thread(self._id, resuming=True))

    async def cancel(self) -> Status:
        """End the turn as it is."""
        thread = await self._catalog.thread(self._id)
        status = await thread.cancel()
        self._print((await thread.trace())[-1])
        return status

    async def history(self) -> Status | None:
        """Print what was said before, and return where the thread stands, None for a new one."""
        try:
            thread = await self._catalog.thread(self._id)
        except UnknownThreadError:
            return None
        for event in await thread.trace():
            self._print(event)
        return await thread.status()

    async def _run(self, thread: Thread) -> Status:
        async for entry in thread.stream():
            self._print(entry.event)
        return await thread.status()

    def _print_said(self, said: Input) -> None:
        if self._echo:
            self._print(said)

    def _print(self, event: Event) -> None:
        for element in elements_in(event):
            self._seen.setdefault(element.id, element)
        if not self._quiet:
            for line in lines(event, self._seen):
                print(line)


def lines(event: Event, seen: dict[str, Element]) -> Iterator[str]:
    """Yield the lines that show an event in a terminal.

    Args:
        event: The event.
        seen: All elements so far, by id.
    """
    if isinstance(event, Input):
        yield _input(event)
    elif isinstance(event, ModelOutput):
        yield from _output(event, seen)
    elif isinstance(event, ToolOutput):
        shown = event.error or event.text or f"{len(event.elements)} elements"
        yield f"   result {shown.splitlines()[0]}"
    elif isinstance(event, Request):
        yield f"{'   Check' if event.kind == 'effect' else 'Approval'}  {event.prompt}"
    elif isinstance(event, Failure):
        yield f"  failure {event.error_type}: {event.message}"
    elif isinstance(event, BudgetExceeded):
        yield f"   budget more than {event.cap} outputs called tools"
    elif isinstance(event, Cancelled):
        yield "Cancelled"


def _input(event: Input) -> str:
    if not isinstance(event.payload, dict):
        asked = "\nCustomer" if event.stream == ROOT_STREAM else "    Task"
        return f"{asked}  {event.payload}"
    comment = event.payload.get("comment", "")
    agreed = event.payload.get("approved") or event.payload.get("happened")
    return f"  Person  {'yes' if agreed else 'no'} {comment}".rstrip()


def _output(event: ModelOutput, seen: dict[str, Element]) -> Iterator[str]:
    if event.text:
        yield f"    Desk  {event.text}"
    cited = dict.fromkeys(real for citation in event.citations for real in citation.ids)
    for real in cited:
        yield f"          source: {_source(seen[real], seen)}"
    for call in event.calls:
        yield f"     call {_call(call)}"


def _source(element: Element, seen: dict[str, Element]) -> str:
    whole = seen.get(element.ref) if element.ref else None
    if isinstance(element, Passage) and isinstance(whole, Article):
        return f"{whole.title}, {element.heading}"
    return element.title if isinstance(element, Article) else element.id


def _call(call: ToolCall) -> str:
    arguments = (f"{name}={json.dumps(value)}" for name, value in call.arguments.items())
    return f"{call.name}({', '.join(arguments)})"
