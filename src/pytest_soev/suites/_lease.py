"""The clauses L: lease."""

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
)
from soev.domain import Lease, LeaseHeldError, LeaseLostError, TraceStore, UnknownThreadError


class LeaseClauses(StoreClauses):
    """A lease is held by one, for a time, and each acquire is told apart from all others."""

    @clause
    async def test_l01_a_free_lease_is_taken(self, store: TraceStore) -> None:
        """L1: A lease names thread, incarnation, owner and epoch, and expires after the ttl."""
        head = await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        assert head.now is not None
        assert (lease.thread_id, lease.incarnation) == ("t", head.incarnation)
        assert (lease.owner, lease.epoch) == ("a", 1)
        assert timedelta(0) <= lease.expires - head.now - timedelta(seconds=30) < timedelta(1)

    @clause
    async def test_l02_a_valid_lease_is_held(self, store: TraceStore) -> None:
        """L2: While a lease is valid no other is given, not to its own owner either."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        for owner in ("b", "a"):
            with pytest.raises(LeaseHeldError) as caught:
                await store.acquire("t", owner, 30, request=fresh())
            assert (caught.value.thread_id, caught.value.lease) == ("t", lease)
        assert (await store.head("t")).lease == lease

    @clause
    async def test_l03_a_repeated_request_is_recognised(self, store: TraceStore) -> None:
        """L3: The same request of the same owner has the same epoch, and a new expiry."""
        await begin(store)
        first = await store.acquire("t", "a", 30, request="r")
        await self.advance(10)
        again = await store.acquire("t", "a", 30, request="r")
        assert replace(again, expires=first.expires) == first
        assert again.expires - first.expires >= timedelta(seconds=10)
        assert (await store.head("t")).lease == again

    @clause
    async def test_l04_a_request_belongs_to_its_owner(self, store: TraceStore) -> None:
        """L4: The request of one owner means nothing from another."""
        await begin(store)
        await store.acquire("t", "a", 30, request="r")
        with pytest.raises(LeaseHeldError):
            await store.acquire("t", "b", 30, request="r")

    @clause
    async def test_l05_an_expired_lease_may_be_taken(self, store: TraceStore) -> None:
        """L5: After its ttl, and not before, a lease may be taken; the epoch rises."""
        await begin(store)
        first = await store.acquire("t", "a", 30, request=fresh())
        await self.advance(20)
        with pytest.raises(LeaseHeldError):
            await store.acquire("t", "b", 30, request=fresh())
        await self.advance(10)
        second = await store.acquire("t", "b", 30, request=fresh())
        assert (second.owner, second.epoch) == ("b", first.epoch + 1)

    @clause
    async def test_l06_every_acquire_has_its_epoch(self, store: TraceStore) -> None:
        """L6: The epoch rises with each acquire, by the same owner and with the same request."""
        await begin(store)
        epochs = []
        for _ in range(3):
            lease = await store.acquire("t", "a", 30, request="r")
            epochs.append(lease.epoch)
            await store.release(lease)
        assert epochs == [1, 2, 3]

    @clause
    async def test_l07_a_renewed_lease_lasts(self, store: TraceStore) -> None:
        """L7: Renewing keeps the epoch, lasts its ttl from now on, and answers the head."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await add(store, note(1))
        await self.advance(20)
        renewed, head = await store.renew(lease, 30)
        assert replace(renewed, expires=lease.expires) == lease
        assert (head.position, head.lease) == (2, renewed)
        await self.advance(20)
        assert (await store.head("t")).lease == renewed

    @clause
    async def test_l08_an_expired_lease_may_be_revived(self, store: TraceStore) -> None:
        """L8: A lease that expired and that nobody took can be renewed."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await self.advance(31)
        renewed, _ = await store.renew(lease, 30)
        assert (await store.head("t")).lease == renewed
        assert renewed.epoch == lease.epoch

    @clause
    async def test_l09_a_lost_lease_is_not_renewed(self, store: TraceStore) -> None:
        """L9: A lease that was taken by another, or released, is lost, and stays as it is."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await self.advance(31)
        taken = await store.acquire("t", "b", 30, request=fresh())
        with pytest.raises(LeaseLostError) as caught:
            await store.renew(lease, 30)
        assert caught.value.lease == lease
        assert (await store.head("t")).lease == taken
        await store.release(taken)
        with pytest.raises(LeaseLostError):
            await store.renew(taken, 30)
        assert (await store.head("t")).lease is None

    @clause
    async def test_l10_an_earlier_epoch_is_lost(self, store: TraceStore) -> None:
        """L10: A lease of an earlier epoch of the same owner is neither renewed nor released."""
        await begin(store)
        earlier = await store.acquire("t", "a", 30, request=fresh())
        await store.release(earlier)
        lease = await store.acquire("t", "a", 30, request=fresh())
        with pytest.raises(LeaseLostError):
            await store.renew(earlier, 30)
        await store.release(earlier)
        assert (await store.head("t")).lease == lease

    @clause
    async def test_l11_a_released_lease_is_free(self, store: TraceStore) -> None:
        """L11: A lease that was given back is free at once, and giving it back again is allowed."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await store.release(lease)
        await store.release(lease)
        assert (await store.head("t")).lease is None
        assert (await store.acquire("t", "b", 30, request=fresh())).owner == "b"

    @clause
    async def test_l12_nobody_releases_for_another(self, store: TraceStore) -> None:
        """L12: Giving back a lease that another holds, or of an unknown thread, does nothing."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        await store.release(replace(lease, owner="b"))
        await store.release(replace(lease, incarnation=fresh()))
        await store.release(replace(lease, thread_id="u"))
        assert (await store.head("t")).lease == lease

    @clause
    async def test_l13_an_unknown_thread_has_no_lease(self, store: TraceStore) -> None:
        """L13: No lease is given for an unknown thread, and no renewal makes one."""
        with pytest.raises(UnknownThreadError):
            await store.acquire("t", "a", 30, request=fresh())
        head = await begin(store, "u")
        assert head.incarnation is not None and head.now is not None
        with pytest.raises(LeaseLostError):
            await store.renew(Lease("t", head.incarnation, "a", 1, head.now), 30)
        assert (await store.head("t")).incarnation is None

    @clause
    async def test_l14_a_lease_ends_with_its_life(self, store: TraceStore) -> None:
        """L14: A lease of before a deletion is lost, although owner and epoch are the same."""
        await begin(store)
        old = await store.acquire("t", "a", 30, request="r")
        await store.delete("t")
        head = await begin(store)
        new = await store.acquire("t", "a", 30, request="s")
        with pytest.raises(LeaseLostError):
            await store.append("t", [note(1)], after=head, batch=fresh(), lease=old)
        with pytest.raises(LeaseLostError):
            await store.renew(old, 30)
        await store.release(old)
        assert (await store.head("t")).lease == new
        assert len(await log(store)) == 1

    @clause
    async def test_l15_one_of_many_gets_it(self, store: TraceStore) -> None:
        """L15: Of acquires at the same time exactly one succeeds."""
        await begin(store)
        calls = [store.acquire("t", f"o{n}", 30, request=fresh()) for n in range(8)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        (lease,) = [answer for answer in answers if isinstance(answer, Lease)]
        assert sum(isinstance(answer, LeaseHeldError) for answer in answers) == 7
        assert (await store.head("t")).lease == lease

    @clause
    async def test_l16_a_lease_is_no_event(self, store: TraceStore) -> None:
        """L16: Taking, renewing and releasing a lease changes nothing in the log."""
        before = await begin(store, count=2)
        entries = await log(store)
        lease, _ = await store.renew(await store.acquire("t", "a", 30, request=fresh()), 30)
        await store.release(lease)
        after = await store.head("t")
        assert (after.position, after.incarnation) == (before.position, before.incarnation)
        assert await log(store) == entries

    @clause_with(SET_BACK)
    async def test_l17_a_lease_does_not_outlast_its_ttl(self, store: TraceStore) -> None:
        """L17: After the clock was set back a lease lasts at most its ttl from the next look."""
        await begin(store)
        await store.acquire("t", "a", 30, request=fresh())
        await self.advance(-3600)
        with pytest.raises(LeaseHeldError):
            await store.acquire("t", "b", 30, request=fresh())
        await self.advance(31)
        assert (await store.acquire("t", "b", 30, request=fresh())).epoch == 2

    @clause_with(SET_BACK)
    async def test_l18_a_look_bounds_a_lease(self, store: TraceStore) -> None:
        """L18: Any read is such a look: a lease that nobody asks for expires too."""
        for look in (store.head, store.read, lambda _: store.threads()):
            await begin(store)
            await store.acquire("t", "a", 30, request=fresh())
            await self.advance(-3600)
            await look("t")
            await self.advance(31)
            assert (await store.head("t")).lease is None
            await store.delete("t")

    @clause_with(SECOND_HANDLE)
    async def test_l19_a_lease_holds_for_all(self, store: TraceStore) -> None:
        """L19: A lease that one process holds is refused to another, which sees it."""
        await begin(store)
        lease = await store.acquire("t", "a", 30, request=fresh())
        async with self.reopen(store) as other:
            assert (await other.head("t")).lease == lease
            with pytest.raises(LeaseHeldError):
                await other.acquire("t", "b", 30, request=fresh())
            await store.release(lease)
            assert (await other.acquire("t", "b", 30, request=fresh())).epoch == 2
