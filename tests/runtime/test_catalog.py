"""Agents by name: opening threads, getting them, and finding what is unfinished."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from pydantic import RootModel

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    EffectIntent,
    Element,
    Event,
    Failure,
    Head,
    Input,
    Opened,
    Request,
    StoredEvent,
    ThreadExistsError,
    TransientError,
    UnknownThreadError,
)
from soev.runtime._agent import Agent
from soev.runtime._catalog import AgentCatalog
from soev.runtime._codec import encode
from soev.runtime._errors import (
    AgentMismatchError,
    InputDeniedError,
    UnknownAgentError,
)
from soev.runtime._graph import Graph, Step
from soev.runtime._runs import Runs
from tests.runtime.world import HELLO, CountedIds, Gate, asks, line, names, raises, says, thread_of

pytestmark = pytest.mark.anyio


class Helper:
    """An agent of one step, or of the steps that it is given, that refuses rude inputs."""

    input: type[RootModel[str]] = RootModel[str]
    element_types: Sequence[type[Element]] = ()
    event_types: Sequence[type[Event]] = ()

    def __init__(self, **steps: Step) -> None:
        self._steps = steps
        self.built: list[tuple[Any, str, str | None]] = []

    def build(self, resources: Any, turn: RootModel[str], model: str | None) -> Graph:
        self.built.append((resources, turn.root, model))
        if turn.root == "rude":
            raise InputDeniedError("it is rude", "Be kind.")
        return line(**self._steps or {"a": says(turn.root)})


def catalog_of(agent: Helper, store: InMemoryTraceStore | None = None, **more: Any) -> AgentCatalog:
    """Make a catalog of one agent."""
    return AgentCatalog(store or InMemoryTraceStore(), {"helper": agent}, version="1.4", **more)


async def test_open_records_and_resume_runs() -> None:
    """A thread that was opened has the graph of its first turn."""
    agent = Helper()
    thread, entries = await catalog_of(agent).open("helper", Input(payload="hi", model="m"))
    assert [(type(e.event), e.event.version) for e in entries] == [(Opened, "1.4"), (Input, "1.4")]
    assert names(await thread.resume()) == ["Opened", "Input", "hi", "Ended"]
    assert agent.built == [(None, "hi", "m")]


async def test_open_refuses_before_anything_is_recorded() -> None:
    """An unknown agent, a payload that does not fit and a refusal of `build` record nothing."""
    store = InMemoryTraceStore()
    catalog = catalog_of(Helper(), store)
    with pytest.raises(UnknownAgentError, match=r"no agent 'other' \(it has 'helper'\)"):
        await catalog.open("other", HELLO)
    with pytest.raises(InputDeniedError, match="the payload is no RootModel"):
        await catalog.open("helper", Input(payload=3))
    with pytest.raises(InputDeniedError, match=r"it is rude\. Be kind\."):
        await catalog.open("helper", Input(payload="rude"))
    with pytest.raises(ValueError, match="No thread can have the id ''"):
        await catalog.open("helper", HELLO, thread_id="")
    assert await store.threads() == []


async def test_open_refuses_an_id_that_is_taken() -> None:
    """An id that the caller names must be free; a fresh one is drawn again."""
    store = InMemoryTraceStore()
    await catalog_of(Helper(), store).open("helper", HELLO, thread_id="id-2")
    with pytest.raises(ThreadExistsError, match="'id-2' exists already"):
        await catalog_of(Helper(), store).open("helper", HELLO, thread_id="id-2")
    catalog = catalog_of(Helper(), store, ids=CountedIds(), runs=Runs())
    await store.delete("id-1")
    thread, _ = await catalog.open("helper", HELLO)
    other, _ = await catalog.open("helper", HELLO)
    assert {thread.id, other.id}.isdisjoint({"id-2"})


async def test_thread_names_what_is_wrong() -> None:
    """An unknown thread, an unnamed or unknown agent, another agent and two graphs are refused."""
    store = InMemoryTraceStore()
    catalog = catalog_of(Helper(), store)
    await catalog.open("helper", HELLO, thread_id="t-1")
    await thread_of(None, store, thread_id="bare").submit(HELLO)
    await store.append("foreign", [encode(Opened(agent="x"))], after=Head(), batch="b")
    with pytest.raises(UnknownThreadError, match="no thread 'nobody'"):
        await catalog.thread("nobody")
    with pytest.raises(UnknownAgentError, match="does not begin with `Opened`"):
        await catalog.thread("bare")
    with pytest.raises(UnknownAgentError, match="no agent 'x'"):
        await catalog.thread("foreign")
    with pytest.raises(AgentMismatchError, match="opened for agent 'helper', not 'clerk'"):
        await catalog.thread("t-1", agent="clerk")
    with pytest.raises(ValueError, match="give `input` for the next one, or `resuming=True`"):
        await catalog.thread("t-1", input=HELLO, resuming=True)


async def test_resources_are_asked_only_to_build() -> None:
    """Reading a thread builds nothing and asks for no resources."""
    asked: list[Agent[Any, Any]] = []

    async def resources(agent: Agent[Any, Any]) -> str:
        asked.append(agent)
        return "tools"

    agent = Helper()
    catalog = catalog_of(agent, resources=resources)
    opened, _ = await catalog.open("helper", HELLO)
    await catalog.thread(opened.id, agent="helper")
    assert asked == [agent]
    await catalog.thread(opened.id, resuming=True)
    assert agent.built == [("tools", "Hello", None)] * 2


async def test_a_handle_serves_the_input_that_it_was_built_for() -> None:
    """Another input is denied, and so is any without a graph."""
    catalog = catalog_of(Helper())
    opened, _ = await catalog.open("helper", HELLO)
    await opened.resume()
    reader = await catalog.thread(opened.id)
    with pytest.raises(InputDeniedError, match="this handle has no graph for a fresh input"):
        await reader.submit(Input(payload="next"))
    next_turn = await catalog.thread(opened.id, input=Input(payload="next"))
    with pytest.raises(InputDeniedError, match="built for another input"):
        await next_turn.submit(Input(payload="other"))
    assert names(await next_turn.send(Input(payload="next")))[-3:] == ["Input", "next", "Ended"]
    with pytest.raises(InputDeniedError, match="built for another input"):
        await opened.submit(Input(payload="third"))


async def test_a_handle_of_another_turn_does_not_resume() -> None:
    """A graph runs only the turn that it was built for."""
    catalog = catalog_of(Helper(a=asks()))
    opened, _ = await catalog.open("helper", HELLO)
    await opened.resume()
    await opened.cancel()
    await (await catalog.thread(opened.id, input=HELLO)).submit(HELLO)
    with pytest.raises(ValueError, match=r"turn that position 5 opened.*`resuming=True`"):
        await opened.resume()
    again = await catalog.thread(opened.id, resuming=True)
    assert names(await again.resume())[-1] == "Request"


async def test_a_response_needs_no_graph() -> None:
    """A handle without a graph answers, and one that resumes goes on."""
    catalog = catalog_of(Helper(a=asks(), b=says("on")))
    opened, _ = await catalog.open("helper", HELLO)
    request = (await opened.resume()).latest(Request)
    await (await catalog.thread(opened.id)).submit(Input(payload=True), answering=request)
    resumed = await (await catalog.thread(opened.id, resuming=True)).resume()
    assert names(resumed)[-2:] == ["on", "Ended"]


async def test_a_deleted_thread_is_not_made_anew() -> None:
    """A catalog's handle on a deleted thread takes no input."""
    catalog = catalog_of(Helper())
    opened, _ = await catalog.open("helper", HELLO)
    await opened.resume()
    handle = await catalog.thread(opened.id, input=HELLO)
    await opened.delete()
    with pytest.raises(UnknownThreadError):
        await handle.submit(HELLO)


async def test_leaving_a_catalog_closes_the_runs_that_it_made() -> None:
    """`async with` stops what runs; a Runs that was given is its owner's to close."""
    gate, mine = Gate(), Runs()
    async with catalog_of(Helper(a=says("x"))) as catalog:
        thread, _ = await catalog.open("helper", HELLO)
    assert names(await thread.resume()) == ["Opened", "Input"]
    async with catalog_of(Helper(a=gate), runs=mine) as catalog:
        thread, _ = await catalog.open("helper", HELLO)
        running = asyncio.create_task(thread.resume())
        await gate.entered.wait()
    gate.opened.set()
    assert names(await running)[-2:] == ["gate", "Ended"]
    assert not mine.closed


async def test_a_fork_keeps_agent_and_graph() -> None:
    """A fork of a catalog's thread runs the same turn."""
    catalog = catalog_of(Helper(a=says("one"), b=says("two")))
    opened, _ = await catalog.open("helper", HELLO)
    await opened.resume()
    fork = await opened.fork(at=3)
    assert names(await fork.resume()) == ["Opened", "Input", "one", "two", "Ended"]
    assert names(await (await catalog.thread(fork.id, agent="helper")).trace())[0] == "Opened"


async def left_behind(store: InMemoryTraceStore, thread_id: str, *events: Event) -> None:
    """Write a thread as a process that died left it."""
    stored = [encode(event) for event in (Opened(agent="helper"), HELLO, *events)]
    await store.append(thread_id, stored, after=Head(), batch="b")


async def test_unfinished_finds_what_somebody_should_resume() -> None:
    """Interrupted threads, passing failures and open effects are named, and no others."""
    store = InMemoryTraceStore()
    asked = Request(kind="effect", actor="person")
    transient, final = (
        Failure(error_type="E", message="m", transient=passing) for passing in (True, False)
    )
    intent = EffectIntent(kind="refund", id="i")
    await left_behind(store, "interrupted")
    await left_behind(store, "for-now", transient)
    await left_behind(store, "for-good", final)
    await left_behind(store, "waiting", asked)
    await left_behind(store, "open-effect", intent, final)
    await left_behind(store, "asked-effect", intent, asked)
    await left_behind(store, "running")
    await store.acquire("running", "somebody", 30, request="r")
    await thread_of(None, store, thread_id="by-hand").submit(HELLO)
    unknown = [encode(Opened(agent="helper")), StoredEvent("gone", "{}")]
    await store.append("unreadable", unknown, after=Head(), batch="b")
    catalog = catalog_of(Helper(), store)
    thread, _ = await catalog.open("helper", HELLO, thread_id="finished")
    await thread.resume()
    assert set(await catalog.unfinished()) == {"interrupted", "for-now", "open-effect"}
    assert len(await catalog.unfinished(limit=2)) == 2


async def test_unfinished_looks_through_all_pages() -> None:
    """A thread that was left long ago is found behind many newer ones."""
    store = InMemoryTraceStore()
    await left_behind(store, "old")
    catalog = catalog_of(Helper(), store)
    for _ in range(60):
        thread, _entries = await catalog.open("helper", HELLO)
        await thread.resume()
    assert await catalog.unfinished() == ["old"]


async def test_the_loop_that_resumes_unfinished_threads() -> None:
    """A process that starts goes on with what another one left."""
    store = InMemoryTraceStore()
    agent = Helper(a=raises(TransientError("busy")), b=says("done"))
    async with catalog_of(agent, store) as first:
        thread, _ = await first.open("helper", HELLO)
        await thread.resume()
    async with catalog_of(agent, store) as second:
        for thread_id in await second.unfinished():
            await (await second.thread(thread_id, resuming=True)).resume()
        assert await second.unfinished() == []
    assert (await thread.status()).state == "finished"


def test_two_classes_with_one_tag_are_refused() -> None:
    """An agent whose classes share a tag is refused when the catalog is made."""

    class Note(Event):
        type: ClassVar[str] = "input"

    agent = Helper()
    agent.event_types = (Note,)
    with pytest.raises(ValueError, match="share the type 'input'"):
        catalog_of(agent)
