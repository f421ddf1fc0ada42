"""Live text: what models write, in between the entries of the log."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    ChatDelta,
    Event,
    LeaseHeldError,
    LogEntry,
    ModelOutput,
    Trace,
    call_site,
)
from soev.runtime._graph import Step
from soev.runtime._live import MOST_BEHIND, LiveDelta, LiveText
from soev.runtime._runs import Runs
from tests.runtime.turns import graph_of
from tests.runtime.world import HELLO, Gate, line, says, thread_of

pytestmark = pytest.mark.anyio

Live = LogEntry[Event] | LiveDelta


def writes(*pieces: str) -> Step:
    """Make a step that writes pieces of text and returns the whole."""

    async def step(view: Trace) -> Sequence[Event]:
        site = call_site.get()
        assert site is not None
        for piece in pieces:
            site.on_delta(ChatDelta(piece))
            await asyncio.sleep(0)
        return [ModelOutput(text="".join(pieces))]

    return step


def told(items: Sequence[Live]) -> list[str]:
    """Return pieces as their text, entries as the class and text of their event."""
    return [
        item.text
        if isinstance(item, LiveDelta)
        else f"<{item.event.text if isinstance(item.event, ModelOutput) else item.event.type}>"
        for item in items
    ]


async def collected(items: AsyncIterator[Live]) -> list[Live]:
    """Read to the end."""
    return [item async for item in items]


async def test_pieces_come_before_the_entry_of_their_output() -> None:
    """Text stands between the entries before and after it, with its stream and node."""
    thread = thread_of(line(a=writes("He", "llo"), b=writes("Bye")))
    await thread.submit(HELLO)
    items = await collected(thread.live())
    assert told(items) == ["He", "llo", "<Hello>", "Bye", "<Bye>", "<ended>"]
    pieces = [item for item in items if isinstance(item, LiveDelta)]
    assert [(piece.stream, piece.node) for piece in pieces] == [
        ("main", "a"),
        ("main", "a"),
        ("main", "b"),
    ]
    assert all(isinstance(piece, ChatDelta) for piece in pieces)


async def test_pieces_of_branches_name_their_streams() -> None:
    """Each branch's text comes before that branch's entry."""
    graph = graph_of(
        {"a": says("a"), "x": writes("x1", "x2"), "y": writes("y1", "y2")}, {"a": "x y"}
    )
    thread = thread_of(graph)
    await thread.submit(HELLO)
    items = await collected(thread.live())
    for name in "xy":
        own = [each for each in told(items) if name in each]
        assert own == [f"{name}1", f"{name}2", f"<{name}1{name}2>"]
    streams = {item.stream for item in items if isinstance(item, LiveDelta)}
    assert streams == {"main/x#2.1", "main/y#2.2"}


async def test_live_joins_a_run() -> None:
    """A reader that joins hears what comes after its call, and the step runs once."""
    gate, store, runs = Gate(), InMemoryTraceStore(), Runs()
    thread = thread_of(line(a=gate, b=writes("later")), store, runs)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    reading = asyncio.create_task(collected(thread.live()))
    for _ in range(10):
        await asyncio.sleep(0)
    gate.opened.set()
    assert told(await reading) == ["<gate>", "later", "<later>", "<ended>"]
    await running


async def test_a_piece_comes_at_once() -> None:
    """A reader is given a piece while its step still writes."""
    gate = asyncio.Event()

    async def step(view: Trace) -> Sequence[Event]:
        site = call_site.get()
        assert site is not None
        site.on_delta(ChatDelta("now"))
        await gate.wait()
        return [ModelOutput(text="done")]

    thread = thread_of(line(a=step))
    await thread.submit(HELLO)
    reader = thread.live()
    first = await anext(reader)
    assert isinstance(first, LiveDelta)
    assert first.text == "now"
    gate.set()
    assert told([item async for item in reader]) == ["<done>", "<ended>"]


async def test_a_slow_reader_loses_text_and_no_entry() -> None:
    """A reader that is more than 1,000 behind misses pieces, and every entry comes."""
    wrote = asyncio.Event()

    async def step(view: Trace) -> Sequence[Event]:
        site = call_site.get()
        assert site is not None
        for number in range(MOST_BEHIND + 500):
            site.on_delta(ChatDelta(str(number)))
        wrote.set()
        return [ModelOutput(text="all")]

    thread = thread_of(line(a=writes("first"), b=step, c=writes("last")))
    await thread.submit(HELLO)
    reader = thread.live()
    items = [await anext(reader)]
    await wrote.wait()
    items += [item async for item in reader]
    assert [each for each in told(items) if "<" in each] == [
        "<first>",
        "<all>",
        "<last>",
        "<ended>",
    ]
    pieces = [item for item in items if isinstance(item, LiveDelta)]
    assert len(pieces) <= MOST_BEHIND + 2
    assert told(pieces)[:3] == ["first", "0", "1"]


async def test_a_reader_that_leaves_is_forgotten() -> None:
    """The run goes on, and nothing is kept for a reader that is gone."""
    gate, runs = Gate(), Runs()
    thread = thread_of(line(a=writes("x"), b=gate), runs=runs)
    await thread.submit(HELLO)
    reader = thread.live()
    await anext(reader)
    await reader.aclose()
    await gate.entered.wait()
    assert runs.live._listeners == {}
    gate.opened.set()
    assert (await thread.resume())[-1].type == "ended"


async def test_live_raises_as_stream_does() -> None:
    """A thread that runs elsewhere is refused, and one without a graph too."""
    gate, store = Gate(), InMemoryTraceStore()
    running = asyncio.create_task(thread_of(line(a=gate), store).send(HELLO))
    await gate.entered.wait()
    with pytest.raises(LeaseHeldError):
        await collected(thread_of(line(a=gate), store, Runs()).live())
    with pytest.raises(ValueError, match="has no graph"):
        await collected(thread_of(None, store).live())
    gate.opened.set()
    await running


async def test_live_of_a_finished_turn_ends_at_once() -> None:
    """Nothing runs, and nothing comes."""
    thread = thread_of(line(a=says("x")))
    await thread.send(HELLO)
    assert await collected(thread.live()) == []


def test_text_for_nobody_is_dropped() -> None:
    """Without a listener nothing is kept."""
    live = LiveText()
    live.tell("t-1", "main", "a", 1, ChatDelta("x"))
    with live.listening("t-1") as listener:
        live.tell("t-2", "main", "a", 1, ChatDelta("x"))
        assert list(listener.up_to(9)) == []
        live.tell("t-1", "main", "a", 2, ChatDelta("y", "why"))
        assert listener.waits_for(1)
        assert list(listener.up_to(1)) == []
        assert list(listener.up_to(2)) == [LiveDelta("y", "why", "main", "a")]
        assert not listener.waits_for(1)
