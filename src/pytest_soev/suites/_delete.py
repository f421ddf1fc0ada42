"""The clauses D: delete."""

from __future__ import annotations

import pytest

from pytest_soev.suites._clauses import (
    SECOND_HANDLE,
    StoreClauses,
    begin,
    clause,
    clause_with,
    fresh,
    log,
    note,
    positions,
    seqs,
)
from soev.domain import Head, TraceStore, UnknownThreadError


class DeleteClauses(StoreClauses):
    """A deleted thread is gone, and its id is free for another life."""

    @clause
    async def test_d01_a_deleted_thread_is_gone(self, store: TraceStore) -> None:
        """D1: A deleted thread has no head, no events, and is in no list."""
        await begin(store, count=3)
        await store.acquire("t", "a", 30, request=fresh())
        await store.delete("t")
        page = await store.read("t")
        assert list(page.entries) == []
        assert (page.head.position, page.head.incarnation, page.head.lease) == (0, None, None)
        assert list(await store.threads()) == []

    @clause
    async def test_d02_a_deletion_may_be_repeated(self, store: TraceStore) -> None:
        """D2: Deleting a thread that is not there does nothing."""
        await store.delete("t")
        await begin(store)
        await store.delete("t")
        await store.delete("t")
        assert (await store.head("t")).incarnation is None

    @clause
    async def test_d03_nothing_is_appended_to_it(self, store: TraceStore) -> None:
        """D3: An append after a head of before the deletion is refused."""
        head, batch = await begin(store), fresh()
        await store.append("t", [note(1)], after=head, batch=batch)
        await store.delete("t")
        for each in (batch, fresh()):
            with pytest.raises(UnknownThreadError):
                await store.append("t", [note(1)], after=head, batch=each)
        assert await log(store) == []

    @clause
    async def test_d04_the_next_life_begins_anew(self, store: TraceStore) -> None:
        """D4: A thread made again counts positions, seqs and epochs from 1, in another life."""
        before = await begin(store, count=2)
        await store.acquire("t", "a", 30, request="r")
        await store.delete("t")
        entries = await store.append("t", [note(5), note(6, "b")], after=Head(), batch=fresh())
        assert (positions(list(entries)), seqs(list(entries))) == ([1, 2], [1, 1])
        assert (await store.head("t")).incarnation != before.incarnation
        assert (await store.head("t")).lease is None
        assert (await store.acquire("t", "a", 30, request="r")).epoch == 1

    @clause
    async def test_d05_no_batch_is_remembered(self, store: TraceStore) -> None:
        """D5: A batch id of before the deletion makes the thread anew."""
        batch = fresh()
        await store.append("t", [note(0), note(1)], after=Head(), batch=batch)
        await store.delete("t")
        (entry,) = await store.append("t", [note(2)], after=Head(), batch=batch)
        assert entry.event.data == note(2).data
        assert await log(store) == [entry]

    @clause
    async def test_d06_other_threads_stay(self, store: TraceStore) -> None:
        """D6: Deleting one thread leaves others alone, its copies and their leases too."""
        await begin(store, "s")
        await begin(store, count=2)
        await store.copy("t", "u", through=2)
        lease = await store.acquire("u", "a", 30, request=fresh())
        expected = await log(store, "s"), await log(store, "u")
        await store.delete("t")
        assert (await log(store, "s"), await log(store, "u")) == expected
        assert (await store.head("u")).lease == lease
        assert {info.thread_id for info in await store.threads()} == {"s", "u"}

    @clause_with(SECOND_HANDLE)
    async def test_d07_it_is_gone_for_all(self, store: TraceStore) -> None:
        """D7: A deletion holds for other processes, and refuses their appends."""
        head = await begin(store)
        async with self.reopen(store) as other:
            assert (await other.head("t")).incarnation == head.incarnation
            await store.delete("t")
            assert (await other.head("t")).incarnation is None
            with pytest.raises(UnknownThreadError):
                await other.append("t", [note(1)], after=head, batch=fresh())

    @clause
    async def test_d08_a_life_that_is_named_is_meant_alone(self, store: TraceStore) -> None:
        """D8: A deletion that names a life removes that one, and leaves a later one alone."""
        before = await begin(store, count=2)
        await store.delete("t", incarnation=before.incarnation)
        assert (await store.head("t")).incarnation is None
        head = await begin(store)
        await store.delete("t", incarnation=before.incarnation)
        assert (await store.head("t")).incarnation == head.incarnation
        assert positions(await log(store)) == [1]
