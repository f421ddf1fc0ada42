"""The clauses W: wait."""

from __future__ import annotations

import asyncio

from pytest_soev.suites._clauses import (
    SECOND_HANDLE,
    StoreClauses,
    add,
    begin,
    clause,
    clause_with,
    note,
)
from soev.domain import Head, TraceStore

LONG = 60.0


class WaitClauses(StoreClauses):
    """Waiting misses nothing and ends in time."""

    async def waiting(self, store: TraceStore, after: Head) -> asyncio.Task[Head]:
        """Begin to wait for the thread `t`, and return when the task is on its way."""
        task = asyncio.create_task(store.wait("t", after=after, timeout=LONG))
        for _ in range(5):
            await asyncio.sleep(0)
        return task

    async def woken(self, task: asyncio.Task[Head]) -> Head:
        """Return what a task waited for, if it is woken in time."""
        async with asyncio.timeout(self.patience):
            return await task

    @clause
    async def test_w01_a_higher_position_is_no_wait(self, store: TraceStore) -> None:
        """W1: A wait for a position that the log has passed returns at once."""
        head = await begin(store)
        await add(store, note(1))
        async with asyncio.timeout(self.patience):
            assert (await store.wait("t", after=head, timeout=LONG)).position == 2

    @clause
    async def test_w02_another_life_is_no_wait(self, store: TraceStore) -> None:
        """W2: A wait for a thread that lives another life, or is gone, returns at once."""
        head = await begin(store, count=2)
        await store.delete("t")
        async with asyncio.timeout(self.patience):
            gone = await store.wait("t", after=head, timeout=LONG)
            assert (gone.position, gone.incarnation) == (0, None)
            again = await begin(store)
            found = await store.wait("t", after=head, timeout=LONG)
        assert (found.position, found.incarnation) == (1, again.incarnation)

    @clause
    async def test_w03_a_wait_ends_in_time(self, store: TraceStore) -> None:
        """W3: Without a change a wait returns the head when its time is over, not before."""
        head, loop = await begin(store), asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.timeout(self.patience):
            for timeout in (0.05, 0, -1):
                same = await store.wait("t", after=head, timeout=timeout)
                assert (same.position, same.incarnation) == (1, head.incarnation)
        assert loop.time() - start >= 0.04

    @clause
    async def test_w04_an_append_wakes(self, store: TraceStore) -> None:
        """W4: An append wakes who waits for its thread."""
        task = await self.waiting(store, await begin(store))
        await add(store, note(1))
        assert (await self.woken(task)).position == 2

    @clause
    async def test_w05_a_deletion_wakes(self, store: TraceStore) -> None:
        """W5: A deletion wakes who waits for the thread."""
        task = await self.waiting(store, await begin(store))
        await store.delete("t")
        head = await self.woken(task)
        assert (head.position, head.incarnation) == (0, None)

    @clause
    async def test_w06_a_new_thread_wakes(self, store: TraceStore) -> None:
        """W6: Who waits for a thread that is not there is woken when it is made."""
        task = await self.waiting(store, Head())
        made = await begin(store)
        head = await self.woken(task)
        assert (head.position, head.incarnation) == (1, made.incarnation)

    @clause
    async def test_w07_a_copy_wakes(self, store: TraceStore) -> None:
        """W7: Who waits for a thread that is not there is woken when it is a copy."""
        await begin(store, "source")
        task = await self.waiting(store, Head())
        await store.copy("source", "t", through=1)
        assert (await self.woken(task)).position == 1

    @clause
    async def test_w08_all_are_woken(self, store: TraceStore) -> None:
        """W8: One append wakes all who wait for its thread, and not those of another."""
        head, other = await begin(store), await begin(store, "u")
        tasks = [await self.waiting(store, head) for _ in range(5)]
        apart = asyncio.create_task(store.wait("u", after=other, timeout=LONG))
        await add(store, note(1))
        assert [(await self.woken(task)).position for task in tasks] == [2] * 5
        assert not apart.done()
        apart.cancel()

    @clause
    async def test_w09_a_wait_may_be_given_up(self, store: TraceStore) -> None:
        """W9: A wait that is cancelled ends, and disturbs neither others nor the store."""
        head = await begin(store)
        given_up, task = await self.waiting(store, head), await self.waiting(store, head)
        given_up.cancel()
        await asyncio.wait([given_up], timeout=self.patience)
        assert given_up.cancelled()
        await add(store, note(1))
        assert (await self.woken(task)).position == 2

    @clause
    async def test_w10_nothing_is_missed(self, store: TraceStore) -> None:
        """W10: Who waits again from each head sees the last append, however fast they come."""
        head = await begin(store)

        async def follow(seen: Head) -> Head:
            while seen.position < 21:
                seen = await store.wait("t", after=seen, timeout=LONG)
            return seen

        task = asyncio.create_task(follow(head))
        for number in range(20):
            await add(store, note(number))
        assert (await self.woken(task)).position == 21

    @clause
    async def test_w11_a_lease_is_no_change(self, store: TraceStore) -> None:
        """W11: Taking and releasing a lease ends no wait."""
        head = await begin(store)
        task = await self.waiting(store, head)
        await store.release(await store.acquire("t", "a", 30, request="r"))
        await store.head("t")
        assert not task.done()
        await add(store, note(1))
        assert (await self.woken(task)).position == 2

    @clause_with(SECOND_HANDLE)
    async def test_w12_another_process_wakes(self, store: TraceStore) -> None:
        """W12: An append of another process wakes who waits."""
        head = await begin(store)
        async with self.reopen(store) as other:
            task = await self.waiting(store, head)
            await add(other, note(1))
            assert (await self.woken(task)).position == 2
