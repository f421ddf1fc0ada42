"""The clauses A: append."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from pytest_soev.suites._clauses import (
    SECOND_HANDLE,
    SET_BACK,
    StoreClauses,
    add,
    begin,
    clause,
    clause_with,
    fresh,
    log,
    note,
    positions,
    seqs,
)
from soev.domain import (
    Head,
    LeaseLostError,
    PositionConflictError,
    StoredEvent,
    TraceStore,
    UnencodableError,
    UnknownThreadError,
)

ODD_TEXT = '{"b":1e2,"a":-0.0,"a":"\\u0000 é 漢 \U0001f600 \\\\ \'; DROP TABLE x"}'


class AppendClauses(StoreClauses):
    """Appending is atomic, conditional, and safe to repeat."""

    @clause
    async def test_a01_positions_count_from_one(self, store: TraceStore) -> None:
        """A1: Positions count from 1 without a gap, in the order of the events."""
        first = await store.append("t", [note(0), note(1)], after=Head(), batch=fresh())
        second = await add(store, note(2))
        assert positions([*first, *second]) == [1, 2, 3]
        assert [entry.event.data for entry in [*first, *second]] == [note(n).data for n in range(3)]

    @clause
    async def test_a02_events_are_kept_verbatim(self, store: TraceStore) -> None:
        """A2: Type, data, stream, origin and version are kept as they came, to the character."""
        sent = [StoredEvent("é", ODD_TEXT, "main#1/a", "nö", "1.4"), StoredEvent("x", "{}")]
        answer = await store.append("t", sent, after=Head(), batch=fresh())
        for entries in (answer, await log(store)):
            bare = [replace(entry.event, seq=None, ts=None, left=None) for entry in entries]
            assert bare == sent

    @clause
    async def test_a03_one_of_two_appends_is_refused(self, store: TraceStore) -> None:
        """A3: Of two appends after the same position, the second is refused and stores nothing."""
        head = await begin(store)
        await store.append("t", [note(1)], after=head, batch=fresh())
        with pytest.raises(PositionConflictError) as caught:
            await store.append("t", [note(2), note(3)], after=head, batch=fresh())
        assert (caught.value.expected, caught.value.head.position) == (1, 2)
        assert caught.value.head.incarnation == head.incarnation
        assert len(await log(store)) == 2

    @clause
    async def test_a04_a_position_ahead_is_refused(self, store: TraceStore) -> None:
        """A4: An append after a position that the log has not reached is refused."""
        head = await begin(store)
        with pytest.raises(PositionConflictError) as caught:
            await store.append("t", [note(1)], after=replace(head, position=2), batch=fresh())
        assert caught.value.head.position == 1
        assert len(await log(store)) == 1

    @clause
    async def test_a05_seq_counts_per_stream(self, store: TraceStore) -> None:
        """A5: Seq counts from 1 in each stream of a thread, over all appends."""
        events = [note(0), note(1, "main#0/1"), note(2), note(3, "main#0/1"), note(4, "main#0/2")]
        first = await store.append("t", events, after=Head(), batch=fresh())
        second = await add(store, note(5, "main#0/2"), note(6), note(7, "main#0/1"))
        assert seqs([*first, *second]) == [1, 1, 2, 2, 1, 2, 3, 3]

    @clause
    async def test_a06_left_counts_what_follows_in_the_stream(self, store: TraceStore) -> None:
        """A6: `left` counts the later events of the same append in the same stream."""
        events = [note(0), note(1, "b"), note(2), note(3), note(4, "b")]
        answer = await store.append("t", events, after=Head(), batch=fresh())
        assert [entry.event.left for entry in answer] == [2, 1, 1, 0, 0]
        assert [entry.event.left for entry in await add(store, note(5))] == [0]

    @clause
    async def test_a07_ts_is_the_clock_of_the_store(self, store: TraceStore) -> None:
        """A7: Every event of an append has the store's time, in UTC; later ones have a later."""
        await store.append("t", [note(0), note(1)], after=Head(), batch=fresh())
        await self.advance(10)
        await add(store, note(2))
        times = [entry.event.ts for entry in await log(store)]
        assert times[0] is not None and times[2] is not None
        assert times[0] == times[1]
        assert times[0].utcoffset() == timedelta(0)
        assert times[2] - times[0] >= timedelta(seconds=10)

    @clause_with(SET_BACK)
    async def test_a08_ts_never_falls(self, store: TraceStore) -> None:
        """A8: The times of a thread never fall, also when the clock is set back."""
        (first,) = await store.append("t", [note(0)], after=Head(), batch=fresh())
        await self.advance(-3600)
        (second,) = await add(store, note(1))
        assert second.event.ts == first.event.ts

    @clause
    async def test_a09_a_new_thread_has_a_life_of_its_own(self, store: TraceStore) -> None:
        """A9: `Head()` makes a thread, whose incarnation is random: at least 128 bits."""
        one, two = await begin(store, "t"), await begin(store, "u")
        assert one.incarnation is not None and two.incarnation is not None
        assert one.incarnation != two.incarnation
        assert len(one.incarnation) >= 22

    @clause
    async def test_a10_a_taken_id_is_a_conflict(self, store: TraceStore) -> None:
        """A10: `Head()` for an id that has events is a conflict that carries the head."""
        head = await begin(store, count=2)
        with pytest.raises(PositionConflictError) as caught:
            await store.append("t", [note(9)], after=Head(), batch=fresh())
        assert caught.value.head.position == 2
        assert caught.value.head.incarnation == head.incarnation
        assert len(await log(store)) == 2

    @clause
    async def test_a11_a_repeat_stores_nothing_more(self, store: TraceStore) -> None:
        """A11: A repeat with the same batch id has the answer of the first time, and no effect."""
        head, batch = await begin(store), fresh()
        first = await store.append("t", [note(1), note(2)], after=head, batch=batch)
        again = await store.append("t", [note(1), note(2)], after=head, batch=batch)
        assert list(again) == list(first)
        assert len(await log(store)) == 3

    @clause
    async def test_a12_a_repeat_may_come_late(self, store: TraceStore) -> None:
        """A12: A repeat is recognised after later appends too, and answers its own events only."""
        head, batch = await begin(store), fresh()
        first = await store.append("t", [note(1), note(2)], after=head, batch=batch)
        await add(store, note(3))
        await add(store, note(4), note(5))
        again = await store.append("t", [note(1), note(2)], after=head, batch=batch)
        assert list(again) == list(first)
        assert len(await log(store)) == 6

    @clause
    async def test_a13_a_repeat_may_have_made_the_thread(self, store: TraceStore) -> None:
        """A13: A repeat of the append that made the thread is recognised."""
        batch = fresh()
        first = await store.append("t", [note(0), note(1)], after=Head(), batch=batch)
        again = await store.append("t", [note(0), note(1)], after=Head(), batch=batch)
        assert list(again) == list(first)
        assert len(await log(store)) == 2

    @clause
    async def test_a14_a_repeat_is_found_before_a_lost_lease(self, store: TraceStore) -> None:
        """A14: A repeat is recognised although its lease was lost in between."""
        head, batch = await begin(store), fresh()
        lease = await store.acquire("t", "a", 30, request=fresh())
        first = await store.append("t", [note(1)], after=head, batch=batch, lease=lease)
        await store.release(lease)
        again = await store.append("t", [note(1)], after=head, batch=batch, lease=lease)
        assert list(again) == list(first)

    @clause
    async def test_a15_a_repeat_releases_nothing(self, store: TraceStore) -> None:
        """A15: The repeat of an append with `release` leaves a lease of later alone."""
        head, batch = await begin(store), fresh()
        lease = await store.acquire("t", "a", 30, request=fresh())
        await store.append("t", [note(1)], after=head, batch=batch, lease=lease, release=True)
        later = await store.acquire("t", "b", 30, request=fresh())
        await store.append("t", [note(1)], after=head, batch=batch, lease=lease, release=True)
        assert (await store.head("t")).lease == later

    @clause
    async def test_a16_an_unknown_thread_is_told(self, store: TraceStore) -> None:
        """A16: A head of a thread that is not there, or lives another life, is refused."""
        head = await begin(store, "u")
        with pytest.raises(UnknownThreadError):
            await store.append("t", [note(1)], after=head, batch=fresh())
        other = replace(head, incarnation=fresh())
        with pytest.raises(UnknownThreadError):
            await store.append("u", [note(1)], after=other, batch=fresh())
        assert (len(await log(store, "t")), len(await log(store, "u"))) == (0, 1)

    @clause
    async def test_a17_a_life_is_checked_before_a_lease(self, store: TraceStore) -> None:
        """A17: Of a deleted thread, an append under a lease is told that the thread is gone."""
        head = await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await store.delete("t")
        await begin(store)
        with pytest.raises(UnknownThreadError):
            await store.append("t", [note(1)], after=head, batch=fresh(), lease=lease)

    @clause
    async def test_a18_a_lost_lease_stores_nothing(self, store: TraceStore) -> None:
        """A18: An append under a lease that is released or of another owner is refused."""
        head = await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        for wrong in (replace(lease, owner="b"), replace(lease, incarnation=fresh())):
            with pytest.raises(LeaseLostError):
                await store.append("t", [note(1)], after=head, batch=fresh(), lease=wrong)
        await store.release(lease)
        with pytest.raises(LeaseLostError):
            await store.append("t", [note(1)], after=head, batch=fresh(), lease=lease)
        assert len(await log(store)) == 1

    @clause
    async def test_a19_an_earlier_epoch_stores_nothing(self, store: TraceStore) -> None:
        """A19: A lease that its own owner took again refuses appends of the earlier epoch."""
        head = await begin(store)
        earlier = await store.acquire("t", "a", 30, request=fresh())
        await store.release(earlier)
        await store.acquire("t", "a", 30, request=fresh())
        with pytest.raises(LeaseLostError) as caught:
            await store.append("t", [note(1)], after=head, batch=fresh(), lease=earlier)
        assert caught.value.lease == earlier
        assert len(await log(store)) == 1

    @clause
    async def test_a20_a_lease_is_checked_before_the_position(self, store: TraceStore) -> None:
        """A20: An append under a lost lease is told so, whatever its position."""
        head = await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await store.release(lease)
        await add(store, note(1))
        with pytest.raises(LeaseLostError):
            await store.append("t", [note(2)], after=head, batch=fresh(), lease=lease)

    @clause
    async def test_a21_time_does_not_refuse_an_append(self, store: TraceStore) -> None:
        """A21: A lease that expired and that nobody took may still append."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await self.advance(31)
        assert positions(await add(store, note(1), lease=lease)) == [2]

    @clause
    async def test_a22_no_lease_is_needed(self, store: TraceStore) -> None:
        """A22: An append without a lease is decided by its position alone, whoever holds one."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        assert positions(await add(store, note(1))) == [2]
        assert (await store.head("t")).lease == lease

    @clause
    async def test_a23_release_ends_the_lease(self, store: TraceStore) -> None:
        """A23: With `release` the lease ends with the append, and the next may take it."""
        head = await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await store.append("t", [note(1)], after=head, batch=fresh(), lease=lease, release=True)
        assert (await store.head("t")).lease is None
        assert (await store.acquire("t", "b", 30, request=fresh())).epoch == lease.epoch + 1

    @clause
    async def test_a24_a_refused_release_keeps_the_lease(self, store: TraceStore) -> None:
        """A24: An append that is refused ends no lease."""
        head = await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await add(store, note(1))
        for events in ([note(2)], []):
            with pytest.raises(PositionConflictError):
                await store.append(
                    "t", events, after=head, batch=fresh(), lease=lease, release=True
                )
        assert (await store.head("t")).lease == lease

    @clause
    async def test_a25_a_release_may_come_alone(self, store: TraceStore) -> None:
        """A25: Without events, `release` ends the lease if the log still ends where it was read."""
        head = await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        answer = await store.append("t", [], after=head, batch=fresh(), lease=lease, release=True)
        now = await store.head("t")
        assert (list(answer), now.position, now.lease) == ([], 1, None)

    @clause
    async def test_a26_nothing_to_do_is_a_mistake(self, store: TraceStore) -> None:
        """A26: No events without `release`, and `release` without a lease, are a ValueError."""
        head = await begin(store)
        with pytest.raises(ValueError, match="events"):
            await store.append("t", [], after=head, batch=fresh())
        with pytest.raises(ValueError, match="lease"):
            await store.append("t", [note(1)], after=head, batch=fresh(), release=True)
        assert len(await log(store)) == 1

    @clause
    async def test_a27_a_large_event_fits(self, store: TraceStore) -> None:
        """A27: Payloads of 1 MiB are kept, and up to 8 MiB of them in one append."""
        data = '"' + "x" * ((1 << 20) - 2) + '"'
        sent = [StoredEvent("blob", data) for _ in range(8)]
        await store.append("t", sent, after=Head(), batch=fresh())
        assert [entry.event.data == data for entry in await log(store)] == [True] * 8

    @clause
    async def test_a28_what_cannot_be_kept_is_refused(self, store: TraceStore) -> None:
        """A28: An event over 1 MiB in UTF-8 or with a lone surrogate is refused, the rest too."""
        await begin(store)
        large = StoredEvent("blob", '"' + "é" * (1 << 19) + '"')
        broken = StoredEvent("text", '"\ud800"')
        for event in (large, broken):
            with pytest.raises(UnencodableError) as caught:
                await add(store, note(1), event)
            assert caught.value.holder == event.type
        assert len(await log(store)) == 1

    @clause
    async def test_a29_a_large_append_is_refused(self, store: TraceStore) -> None:
        """A29: An append of more than 8 MiB is refused whole."""
        data = '"' + "x" * ((1 << 20) - 2) + '"'
        sent = [*(StoredEvent("blob", data) for _ in range(8)), note(1)]
        with pytest.raises(UnencodableError):
            await store.append("t", sent, after=Head(), batch=fresh())
        assert (await store.head("t")).incarnation is None

    @clause
    async def test_a30_threads_do_not_meet(self, store: TraceStore) -> None:
        """A30: Position, seq, batches and lease of one thread say nothing about another."""
        batch = fresh()
        await store.append("t", [note(0), note(1)], after=Head(), batch=batch)
        lease = await store.acquire("t", "a", 30, request=fresh())
        (entry,) = await store.append("u", [note(2)], after=Head(), batch=batch)
        assert (entry.position, entry.event.seq, entry.event.data) == (1, 1, note(2).data)
        head = await store.head("u")
        assert head.lease is None
        with pytest.raises(LeaseLostError):
            await store.append("u", [note(3)], after=head, batch=fresh(), lease=lease)

    @clause
    async def test_a31_one_of_many_wins(self, store: TraceStore) -> None:
        """A31: Of appends at the same time after one position exactly one is stored, whole."""
        head = await begin(store)
        calls = [store.append("t", [note(n), note(n)], after=head, batch=fresh()) for n in range(8)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, PositionConflictError)]
        (stored,) = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(refused) == 7
        assert (await log(store))[1:] == list(stored)

    @clause
    async def test_a32_many_threads_at_once(self, store: TraceStore) -> None:
        """A32: Appends to many threads at the same time all succeed, each with its own answer."""
        names = [f"t{n}" for n in range(20)]
        calls = [
            store.append(name, [note(n), note(n)], after=Head(), batch=fresh())
            for n, name in enumerate(names)
        ]
        answers = await asyncio.gather(*calls)
        for n, (name, answer) in enumerate(zip(names, answers, strict=True)):
            assert [entry.event.data for entry in answer] == [note(n).data] * 2
            assert await log(store, name) == list(answer)

    @clause
    async def test_a33_a_refusal_among_others(self, store: TraceStore) -> None:
        """A33: A refused append does not disturb those that are under way at the same time."""
        head = await begin(store)
        await add(store, note(1))
        calls = [
            store.append("u", [note(2)], after=Head(), batch=fresh()),
            store.append("t", [note(3)], after=head, batch=fresh()),
            store.append("v", [note(4)], after=Head(), batch=fresh()),
        ]
        one, refused, two = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(refused, PositionConflictError)
        assert not isinstance(one, BaseException) and not isinstance(two, BaseException)
        assert await log(store, "u") == list(one)
        assert await log(store, "v") == list(two)

    @clause_with(SECOND_HANDLE)
    async def test_a34_an_answered_append_is_there_for_all(self, store: TraceStore) -> None:
        """A34: What was answered is seen by another process, and refuses its stale append."""
        head = await begin(store)
        async with self.reopen(store) as other:
            stored = await add(store, note(1))
            assert (await log(other))[1:] == stored
            with pytest.raises(PositionConflictError):
                await other.append("t", [note(2)], after=head, batch=fresh())
            assert positions(await add(other, note(3))) == [3]
        assert seqs(await log(store)) == [1, 2, 3]
