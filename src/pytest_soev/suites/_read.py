"""The clauses R: read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from pytest_soev.suites._clauses import (
    StoreClauses,
    add,
    begin,
    clause,
    fresh,
    log,
    note,
    opening,
    positions,
)
from soev.domain import Head, StoredEvent, ThreadInfo, TraceStore, UnknownThreadError


class ReadClauses(StoreClauses):
    """Reading answers a prefix without gaps, and a head of the same moment."""

    @clause
    async def test_r01_a_read_gives_what_was_appended(self, store: TraceStore) -> None:
        """R1: A read gives the entries that the appends answered, and the head."""
        first = await store.append("t", [note(0), note(1)], after=Head(), batch=fresh())
        second = await add(store, note(2))
        page = await store.read("t")
        assert list(page.entries) == [*first, *second]
        assert page.head.position == 3
        assert page.head.incarnation == (await store.head("t")).incarnation

    @clause
    async def test_r02_an_unknown_thread_is_empty(self, store: TraceStore) -> None:
        """R2: An unknown thread has position 0, no incarnation, no lease and no entries."""
        page = await store.read("t")
        assert list(page.entries) == []
        for head in (page.head, await store.head("t")):
            assert (head.position, head.incarnation, head.lease) == (0, None, None)

    @clause
    async def test_r03_after_and_limit_choose_a_part(self, store: TraceStore) -> None:
        """R3: `after` leaves out what comes first, `limit` what comes last; the head stays."""
        await begin(store, count=5)
        page = await store.read("t", after=1, limit=3)
        assert (positions(list(page.entries)), page.head.position) == ([2, 3, 4], 5)
        assert positions(list((await store.read("t", after=3)).entries)) == [4, 5]
        assert list((await store.read("t", limit=0)).entries) == []

    @clause
    async def test_r04_nothing_follows_the_end(self, store: TraceStore) -> None:
        """R4: A read after the last position, however far, is empty."""
        await begin(store, "t", 2)
        await begin(store, "u", 2)
        for after in (2, 3, 1 << 40, 1 << 70):
            page = await store.read("t", after=after)
            assert (list(page.entries), page.head.position) == ([], 2)

    @clause
    async def test_r05_the_head_tells_the_time(self, store: TraceStore) -> None:
        """R5: `now` is the store's clock at the read, in UTC, of an unknown thread too."""
        await begin(store)
        before = await store.head("t")
        await self.advance(10)
        for head in (await store.head("t"), (await store.read("t")).head, await store.head("u")):
            assert head.now is not None and before.now is not None
            assert head.now.utcoffset() == timedelta(0)
            assert head.now - before.now >= timedelta(seconds=10)

    @clause
    async def test_r06_the_head_shows_a_valid_lease(self, store: TraceStore) -> None:
        """R6: A head shows the lease that is valid now, and none that has expired."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        assert (await store.head("t")).lease == lease
        assert (await store.read("t")).head.lease == lease
        await self.advance(31)
        assert (await store.head("t")).lease is None
        assert (await store.read("t")).head.lease is None

    @clause
    async def test_r07_back_from_a_head(self, store: TraceStore) -> None:
        """R7: `read_back` gives the events up to the head, newest first, and no later ones."""
        head = await begin(store, count=3)
        await add(store, note(3))
        entries = [entry async for entry in store.read_back("t", before=head)]
        assert entries == (await log(store))[2::-1]

    @clause
    async def test_r08_back_over_many_pages(self, store: TraceStore) -> None:
        """R8: `read_back` gives a long log without a gap or a repeat."""
        head = await begin(store, count=1500)
        entries = [entry async for entry in store.read_back("t", before=head)]
        assert positions(entries) == list(range(1500, 0, -1))

    @clause
    async def test_r09_back_needs_the_same_life(self, store: TraceStore) -> None:
        """R9: `read_back` refuses an unknown thread, and one that lives another life."""
        head = await begin(store)
        await begin(store, "u")
        for thread_id, before in (("u", head), ("v", head), ("v", Head())):
            with pytest.raises(UnknownThreadError):
                async for _ in store.read_back(thread_id, before=before):
                    pass

    @clause
    async def test_r10_back_ends_with_the_thread(self, store: TraceStore) -> None:
        """R10: `read_back` stops with an error when the thread is deleted on the way."""
        head = await begin(store, count=1500)
        entries = store.read_back("t", before=head)
        assert (await anext(entries)).position == 1500
        await store.delete("t")
        with pytest.raises(UnknownThreadError):
            async for _ in entries:
                pass

    @clause
    async def test_r11_a_page_is_one_snapshot(self, store: TraceStore) -> None:
        """R11: A page has all entries up to its own head, while others append."""
        await begin(store)

        async def write() -> None:
            for number in range(40):
                await add(store, note(number))

        writing = asyncio.create_task(write())
        while not writing.done():
            page = await store.read("t")
            assert positions(list(page.entries)) == list(range(1, page.head.position + 1))
            await asyncio.sleep(0)
        await writing
        assert (await store.head("t")).position == 41

    @clause
    async def test_r12_an_answered_append_is_read(self, store: TraceStore) -> None:
        """R12: Each read after an append was answered has its events, and all earlier ones."""
        await begin(store)
        seen = await log(store)
        for number in range(5):
            stored = await add(store, note(number))
            entries = await log(store)
            assert entries == [*seen, *stored]
            seen = entries

    @clause
    async def test_r13_threads_tell_what_they_are(self, store: TraceStore) -> None:
        """R13: A list of threads shows agent, position, times, last type and lease of each."""
        await store.append("t", [opening("helper"), note(1)], after=Head(), batch=fresh())
        await self.advance(10)
        await add(store, StoredEvent("ended", "{}"))
        lease = await store.acquire("t", "a", 30, request=fresh())
        (info,) = await store.threads()
        first, *_, last = await log(store)
        assert first.event.ts is not None and last.event.ts is not None
        assert info == ThreadInfo("t", "helper", 3, first.event.ts, last.event.ts, "ended", lease)

    @clause
    async def test_r14_the_newest_comes_first(self, store: TraceStore) -> None:
        """R14: Threads are listed by their last event, the newest first; a lease is no event."""
        for name in ("t", "u", "v"):
            await begin(store, name)
            await self.advance(1)
        await add(store, note(1))
        await self.advance(1)
        await store.acquire("u", "a", 30, request=fresh())
        assert [info.thread_id for info in await store.threads()] == ["t", "v", "u"]

    @clause
    async def test_r15_equal_times_go_by_id(self, store: TraceStore) -> None:
        """R15: Threads of equal times are listed by id, compared by bytes, the highest first."""
        names = ["b", "é", "a", "Z", "\U0001f600", "\uffff", "b1"]
        for name in names:
            await begin(store, name)
        listed = await store.threads()
        order = [(info.updated, info.thread_id.encode()) for info in listed]
        assert order == sorted(order, reverse=True)
        assert len(listed) == len(names)

    @clause
    async def test_r16_pages_of_threads_join(self, store: TraceStore) -> None:
        """R16: `before` goes on where a page of threads ended, without a gap or a repeat."""
        for number in range(7):
            await begin(store, f"t{number}")
            await self.advance(number % 2)
        listed: list[ThreadInfo] = []
        while page := await store.threads(limit=3, before=listed[-1] if listed else None):
            assert len(page) <= 3
            listed += page
        assert listed == list(await store.threads())
        assert len(listed) == 7

    @clause
    async def test_r17_threads_of_one_agent(self, store: TraceStore) -> None:
        """R17: `agent` lists the threads whose first event is an `opened` that names it."""
        for name, first in {
            "a": opening("one"),
            "b": opening("two"),
            "c": note(1),
            "d": StoredEvent("note", '{"agent":"one"}'),
        }.items():
            await store.append(name, [first], after=Head(), batch=fresh())
        assert [info.thread_id for info in await store.threads(agent="one")] == ["a"]
        agents = {info.thread_id: info.agent for info in await store.threads()}
        assert agents == {"a": "one", "b": "two", "c": None, "d": None}

    @clause
    async def test_r18_a_list_shows_no_expired_lease(self, store: TraceStore) -> None:
        """R18: A list of threads shows no lease that has expired."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        (info,) = await store.threads()
        await self.advance(31)
        (later,) = await store.threads()
        assert (info.lease, later) == (lease, replace(info, lease=None))

    @clause
    async def test_r19_odd_ids_are_ids(self, store: TraceStore) -> None:
        """R19: Thread ids differ when their bytes differ, and no character means anything."""
        names = ["t", "T", "t ", "%", "_", "a'b", 'a"b', "é", "e\u0301", "ß", "SS", "x" * 200]
        for number, name in enumerate(names):
            await store.append(name, [note(number)], after=Head(), batch=fresh())
        for number, name in enumerate(names):
            (entry,) = await log(store, name)
            assert entry.event.data == note(number).data
        assert {info.thread_id for info in await store.threads()} == set(names)
