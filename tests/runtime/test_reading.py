"""Readers: stream, watch and follow deliver each event once, in order, and end in time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    Event,
    Head,
    Input,
    LeaseHeldError,
    LogEntry,
    Page,
    Request,
    StoreRewoundError,
)
from soev.runtime._runs import Runs
from tests.runtime.world import (
    HELLO,
    FaultyTraceStore,
    Gate,
    asks,
    line,
    names,
    raises,
    react,
    says,
    thread_of,
)

pytestmark = pytest.mark.anyio


async def collected(entries: AsyncIterator[LogEntry[Event]]) -> list[LogEntry[Event]]:
    """Read to the end."""
    return [entry async for entry in entries]


async def test_stream_yields_what_its_run_records() -> None:
    """`stream` yields each entry after the position at its call, and ends with the run."""
    thread = thread_of(react(2))
    await thread.submit(HELLO)
    entries = await collected(thread.stream())
    assert [entry.position for entry in entries] == list(range(2, 8))
    assert names([HELLO, *(entry.event for entry in entries)]) == names(await thread.trace())


async def test_stream_joins_a_run() -> None:
    """A second stream yields what comes after its own call, and the step runs once."""
    runs, store, first, second = Runs(), InMemoryTraceStore(), Gate(), Gate()
    graph = line(a=first, b=second)
    thread = thread_of(graph, store, runs)
    await thread.submit(HELLO)
    one = asyncio.create_task(collected(thread.stream()))
    await first.entered.wait()
    first.opened.set()
    await second.entered.wait()
    two = asyncio.create_task(collected(thread_of(graph, store, runs).stream()))
    for _ in range(5):
        await asyncio.sleep(0)
    second.opened.set()
    assert [entry.position for entry in await one] == [2, 3, 4]
    assert [entry.position for entry in await two] == [3, 4]


async def test_a_reader_that_stops_does_not_stop_the_run() -> None:
    """Closing a stream leaves the run to itself."""
    gate, runs = Gate(), Runs()
    thread = thread_of(line(a=says("one"), b=gate), runs=runs)
    await thread.submit(HELLO)
    stream = thread.stream()
    assert (await anext(stream)).position == 2
    await stream.aclose()
    assert runs.task("t-1") is not None
    gate.opened.set()
    assert names(await thread.resume())[-2:] == ["gate", "Ended"]


async def test_stream_raises_what_resume_raises() -> None:
    """A stream is refused while another process holds the lease, and without a graph."""
    store = InMemoryTraceStore()
    await thread_of(line(a=asks()), store).submit(HELLO)
    await store.acquire("t-1", "other", 30, request="r")
    with pytest.raises(LeaseHeldError, match="is run by 'other'"):
        await collected(thread_of(line(a=asks()), store).stream())
    with pytest.raises(ValueError, match="has no graph"):
        await collected(thread_of(None, store).stream())


async def test_stream_of_a_failed_step_ends_without_an_error() -> None:
    """A recorded Failure is an entry, not an exception."""
    thread = thread_of(line(a=raises(ValueError("no"))))
    await thread.submit(HELLO)
    assert names([entry.event for entry in await collected(thread.stream())]) == ["Failure"]


async def test_watch_without_follow_ends_at_the_head() -> None:
    """`watch` reads what is stored after a position."""
    thread = thread_of(react(1))
    await thread.send(HELLO)
    entries = await collected(thread.watch(after=2, follow=False))
    assert [entry.position for entry in entries] == [3, 4, 5]
    assert entries[0].event == (await thread.trace())[2]


async def test_watch_of_an_unknown_thread_ends_at_once() -> None:
    """There is nothing to wait for under an unknown id."""
    assert await collected(thread_of(None).watch()) == []
    assert await collected(thread_of(None).follow()) == []


async def test_watch_follows_until_the_thread_is_deleted() -> None:
    """A watcher sees each event once, over several turns, and ends with the thread."""
    store = InMemoryTraceStore()
    thread = thread_of(react(1), store)
    await thread.submit(HELLO)
    watching = asyncio.create_task(collected(thread_of(None, store).watch()))
    await asyncio.sleep(0)
    await thread.resume()
    await thread.send(HELLO)
    for _ in range(5):
        await asyncio.sleep(0)
    await thread.delete()
    await thread_of(react(1), store).submit(HELLO)
    assert [entry.position for entry in await watching] == list(range(1, 11))


async def test_follow_ends_when_the_run_rests() -> None:
    """A follower of another process sees each event of the run, and ends with it."""
    store, gate = InMemoryTraceStore(), Gate()
    running = asyncio.create_task(thread_of(line(a=gate, b=asks()), store).send(HELLO))
    await gate.entered.wait()
    following = asyncio.create_task(collected(thread_of(None, store).follow()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not following.done()
    gate.opened.set()
    assert [type(e.event) for e in await following][-1] is Request
    assert [entry.position for entry in following.result()] == [1, 2, 3]
    await running


async def test_follow_of_a_free_thread_reads_what_is_there() -> None:
    """Without a lease `follow` reads to the head and ends."""
    thread = thread_of(line(a=asks()))
    await thread.send(HELLO)
    assert [entry.position for entry in await collected(thread.follow(after=1))] == [2]


async def test_follow_ends_when_the_thread_is_deleted() -> None:
    """A follower of a thread that goes away ends without an error, also when it comes again."""
    store, gate, runs = InMemoryTraceStore(), Gate(), Runs()
    thread = thread_of(line(a=gate), store, runs)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    following = asyncio.create_task(collected(thread_of(None, store).follow()))
    for _ in range(3):
        await asyncio.sleep(0)
    await thread.delete()
    await thread_of(None, store).submit(HELLO)
    assert [entry.position for entry in await following] == [1]
    await asyncio.wait((running,))
    running.exception()


async def test_a_reader_notices_a_head_that_fell() -> None:
    """A store that lost events makes a watcher raise, never go on quietly."""
    store = InMemoryTraceStore()
    thread = thread_of(react(1), store)
    await thread.send(HELLO)
    watching = thread.watch()
    for _ in range(5):
        await anext(watching)
    log = store._logs["t-1"]
    log.row.position = 3
    del log.entries[3:]
    with pytest.raises(StoreRewoundError, match=r"ends at position 3, but position 5"):
        await anext(watching)


async def test_many_events_are_read_in_pages() -> None:
    """A log longer than a page is read whole, in order, by every reader."""
    thread = thread_of(react(1200))
    trace = await thread.send(HELLO)
    assert len(trace) == 2403
    assert await thread.trace() == trace
    positions = [entry.position for entry in await collected(thread.watch(follow=False))]
    assert positions == list(range(1, 2404))
    assert [entry.position for entry in await collected(thread.follow())] == positions
    again = await thread.send(Input(payload="more"))
    assert len(again) == 2403 * 2


async def test_a_reader_that_left_is_told_of_no_error() -> None:
    """A stream that is closed before its run fails leaves no error behind."""
    store = FaultyTraceStore(InMemoryTraceStore())
    thread = thread_of(line(a=says("one"), b=says("two")), store)
    await thread.submit(HELLO)
    store.faults["append", 3] = ValueError("a bug")
    stream = thread.stream()
    assert (await anext(stream)).position == 2
    await stream.aclose()


class LateAnswers(FaultyTraceStore):
    """A store whose empty pages arrive after the run that was awaited has ended."""

    gate: Gate
    runs: Runs

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        page = await super().read(thread_id, after=after, limit=limit)
        task = self.runs.task(thread_id)
        if self.gate.entered.is_set() and not page.entries and task is not None:
            self.gate.opened.set()
            await asyncio.wait((task,))
        return page

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        await self.gate.entered.wait()
        return await self.head(thread_id)


async def test_stream_reads_once_more_after_the_run_ended() -> None:
    """What a run recorded while a read was on its way is still yielded."""
    store = LateAnswers(InMemoryTraceStore())
    store.gate, store.runs = Gate(), Runs()
    thread = thread_of(line(a=store.gate), store, store.runs)
    await thread.submit(HELLO)
    assert [entry.position for entry in await collected(thread.stream())] == [2, 3]
