"""The in-memory store keeps to the store contract, and to what only it promises."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import soev.adapters
from pytest_soev.suites import SECOND_HANDLE, TraceStoreSuite
from soev.adapters import InMemoryTraceStore
from soev.domain import Head, StoredEvent, TraceStore, UnencodableError, fault_plan
from tests.clocks import FakeClock

NOTE = StoredEvent("note", "{}")


class TestInMemoryTraceStore(TraceStoreSuite):
    """The store contract."""

    lacks = (SECOND_HANDLE,)
    clock: FakeClock

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[TraceStore]:
        self.clock = FakeClock()
        yield InMemoryTraceStore(clock=self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


def test_store_outlives_event_loops() -> None:
    """A store that a wait was given up in one event loop works in the next one."""
    store = InMemoryTraceStore()

    async def give_up() -> None:
        waiting = asyncio.create_task(store.wait("t", after=Head(), timeout=60))
        await asyncio.sleep(0)
        assert not waiting.done()

    async def append() -> Head:
        waiting = asyncio.create_task(store.wait("t", after=Head(), timeout=60))
        await asyncio.sleep(0)
        await store.append("t", [NOTE], after=Head(), batch="b")
        return await waiting

    asyncio.run(give_up())
    assert asyncio.run(append()).position == 1


def test_abandoned_wait_of_a_closed_loop_is_passed_over() -> None:
    """An append does not fail because a closed event loop has left a waiter behind."""
    store, loop = InMemoryTraceStore(), asyncio.new_event_loop()
    waiting = store.wait("t", after=Head(), timeout=60)
    task = loop.create_task(waiting)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    asyncio.run(_append_one(store))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is left pending on purpose
    waiting.close()


async def _append_one(store: TraceStore) -> None:
    await store.append("t", [NOTE], after=Head(), batch="b")


def test_limits_can_be_set() -> None:
    """A store made with smaller limits refuses what passes them, and names both sizes."""
    store = InMemoryTraceStore(max_event=4, max_batch=5)
    with pytest.raises(UnencodableError, match="5 bytes pass the limit of 4"):
        asyncio.run(_append(store, '"abc"'))
    with pytest.raises(UnencodableError, match="8 bytes pass the limit of 5 for one append"):
        asyncio.run(_append(store, '"ab"', '"cd"'))


async def _append(store: TraceStore, *payloads: str) -> None:
    events = [StoredEvent("note", data) for data in payloads]
    await store.append("t", events, after=Head(), batch="b")


def test_fault_points_frame_each_write() -> None:
    """A write passes its points in order, and what a fault at `sent` leaves is stored."""
    store, seen = InMemoryTraceStore(), list[str]()

    def strike(point: str) -> None:
        seen.append(point)
        if point == "store.append.sent":
            raise ConnectionError(point)

    async def run() -> int:
        fault_plan.set(strike)
        with pytest.raises(ConnectionError, match=r"store\.append\.sent"):
            await store.append("t", [NOTE], after=Head(), batch="b")
        return (await store.head("t")).position

    assert asyncio.run(run()) == 1
    assert seen == ["store.append.sending", "store.append.sent", "store.head.sending"]


def test_model_of_all_stores_is_short() -> None:
    """The port asks so little that the in-memory store stays under 200 lines."""
    source = Path(soev.adapters.__file__).with_name("_memory.py").read_text("utf-8")
    assert len(source.splitlines()) < 200
