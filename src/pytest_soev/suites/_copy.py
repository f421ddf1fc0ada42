"""The clauses C: copy."""

from __future__ import annotations

from dataclasses import replace

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
    seqs,
)
from soev.domain import (
    Head,
    LeaseLostError,
    PositionConflictError,
    PositionOutOfRangeError,
    ThreadExistsError,
    TraceStore,
    UnknownThreadError,
)


class CopyClauses(StoreClauses):
    """A copy is a new thread that begins with another's events."""

    @clause
    async def test_c01_a_copy_has_the_same_events(self, store: TraceStore) -> None:
        """C1: A copy has the events up to `through`, their positions and whole envelopes too."""
        events = [opening(), note(1, "b"), note(2, "b"), note(3)]
        await store.append("t", events, after=Head(), batch=fresh())
        await self.advance(5)
        await add(store, note(4, "b"))
        await add(store, note(5))
        await store.copy("t", "u", through=5)
        assert await log(store, "u") == (await log(store))[:5]
        assert (await store.head("u")).position == 5

    @clause
    async def test_c02_the_source_stays(self, store: TraceStore) -> None:
        """C2: Copying changes nothing in the source, and later neither changes the other."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        before = await store.read("t")
        await store.copy("t", "u", through=1)
        after = await store.read("t")
        assert (list(after.entries), after.head.lease) == (list(before.entries), lease)
        await store.append("u", [note(9)], after=await store.head("u"), batch=fresh())
        await add(store, note(1))
        assert [entry.event.data for entry in await log(store)] == [note(0).data, note(1).data]
        assert (await log(store, "u"))[1].event.data == note(9).data

    @clause
    async def test_c03_a_copy_lives_its_own_life(self, store: TraceStore) -> None:
        """C3: A copy has an incarnation of its own and no lease; epochs count anew."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request="r")
        await store.copy("t", "u", through=1)
        source, copied = await store.head("t"), await store.head("u")
        assert copied.incarnation not in {None, source.incarnation}
        assert copied.lease is None
        with pytest.raises(LeaseLostError):
            await store.append("u", [note(1)], after=copied, batch=fresh(), lease=lease)
        assert (await store.acquire("u", "a", 30, request="r")).epoch == 1

    @clause
    async def test_c04_a_copy_has_no_batches(self, store: TraceStore) -> None:
        """C4: The batch ids of the source are not recognised in the copy."""
        batches = fresh(), fresh()
        await store.append("t", [note(0)], after=Head(), batch=batches[0])
        await store.append("t", [note(1)], after=await store.head("t"), batch=batches[1])
        await store.copy("t", "u", through=2)
        head = await store.head("u")
        for position, batch in enumerate(batches):
            after = replace(head, position=position)
            with pytest.raises(PositionConflictError):
                await store.append("u", [note(position)], after=after, batch=batch)
        assert len(await log(store, "u")) == 2

    @clause
    async def test_c05_no_cut_inside_an_append(self, store: TraceStore) -> None:
        """C5: A copy through an event with `left` is refused, and names the ends around it."""
        await begin(store, count=2)
        await add(store, note(2), note(3), note(4))
        with pytest.raises(PositionOutOfRangeError) as caught:
            await store.copy("t", "u", through=4)
        assert (caught.value.position, caught.value.nearest) == (4, (2, 5))
        with pytest.raises(PositionOutOfRangeError) as first:
            await store.copy("t", "u", through=1)
        assert first.value.nearest == (2,)
        assert (await store.head("u")).incarnation is None

    @clause
    async def test_c06_only_what_is_there(self, store: TraceStore) -> None:
        """C6: A copy through a position that the log does not have is refused."""
        await begin(store, count=2)
        for through in (-1, 0, 3, 1 << 70):
            with pytest.raises(PositionOutOfRangeError) as caught:
                await store.copy("t", "u", through=through)
            assert (caught.value.position, caught.value.last) == (through, 2)
        assert (await store.head("u")).incarnation is None

    @clause
    async def test_c07_a_taken_id_is_refused(self, store: TraceStore) -> None:
        """C7: A copy onto an id that has events is refused, the own id too, also of no source."""
        await begin(store)
        await begin(store, "u", 2)
        for source, target in (("t", "u"), ("t", "t"), ("v", "u")):
            with pytest.raises(ThreadExistsError) as caught:
                await store.copy(source, target, through=1)
            assert caught.value.thread_id == target
        assert (len(await log(store)), len(await log(store, "u"))) == (1, 2)

    @clause
    async def test_c08_an_unknown_source_is_told(self, store: TraceStore) -> None:
        """C8: A copy of an unknown thread is refused, and makes none."""
        with pytest.raises(UnknownThreadError) as caught:
            await store.copy("t", "u", through=1)
        assert caught.value.thread_id == "t"
        assert (await store.head("u")).incarnation is None

    @clause
    async def test_c09_a_copy_goes_on(self, store: TraceStore) -> None:
        """C9: Appends to a copy count on in position and in the seq of each stream."""
        events = [note(0), note(1, "b"), note(2)]
        await store.append("t", events, after=Head(), batch=fresh())
        await add(store, note(3, "b"), note(4))
        await store.copy("t", "u", through=3)
        after, batch = await store.head("u"), fresh()
        events = [note(5, "b"), note(6), note(7, "c")]
        for _ in range(2):
            added = list(await store.append("u", events, after=after, batch=batch))
            assert (positions(added), seqs(added)) == ([4, 5, 6], [2, 3, 1])

    @clause
    async def test_c10_a_copy_is_listed(self, store: TraceStore) -> None:
        """C10: A list of threads shows a copy with the agent and the times of its events."""
        await store.append("t", [opening("helper"), note(1)], after=Head(), batch=fresh())
        await self.advance(5)
        await add(store, note(2))
        (source,) = await store.threads()
        await store.copy("t", "u", through=2)
        (info,) = [each for each in await store.threads() if each.thread_id == "u"]
        assert (info.agent, info.position, info.last_type) == ("helper", 2, "note")
        assert info.created == info.updated == source.created

    @clause
    async def test_c11_a_copy_can_be_copied(self, store: TraceStore) -> None:
        """C11: A copy can be copied, also where its own appends end."""
        await begin(store, count=2)
        await store.copy("t", "u", through=2)
        await store.append("u", [note(2)], after=await store.head("u"), batch=fresh())
        await store.copy("u", "v", through=3)
        assert await log(store, "v") == await log(store, "u")
