"""A store that another one stands behind, and that sees whether the rules hold at each moment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

from pytest_soev.world._errors import BrokenRuleError
from soev.domain import Head, Lease, LogEntry, Page, StoredEvent, ThreadInfo, TraceStore

Entry = LogEntry[StoredEvent]
Token = tuple[int, str]


@dataclass(slots=True)
class _Life:
    """What is known of one incarnation of a thread.

    Args:
        log: Each event that was seen, by its position.
        top: The highest position that was seen.
        epoch: The highest epoch that was given out.
        holder: Who holds the lease, as far as the answers tell.
    """

    log: dict[int, Entry] = field(default_factory=dict)
    top: int = 0
    epoch: int = 0
    holder: Token | None = None


class Witness:
    """Sees every call of every process, and keeps what must be true of the answers.

    It holds the log to one history without gaps (I1), every answered append to the log (I2), each
    append under a lease to the lease of that moment (I3), and epochs to rising with one holder
    each (I4). It also knows which intents are recorded.

    Args:
        store: The store.
    """

    def __init__(self, store: TraceStore) -> None:
        self.store = store
        self.broken: list[BrokenRuleError] = []
        self.intents: set[str] = set()
        self.results: dict[str, set[tuple[str, int]]] = {}
        self._lives: dict[tuple[str, str], _Life] = {}
        self._newborn: dict[str, list[Entry]] = {}
        self._requests: dict[tuple[str, str, str], Token] = {}

    def _breaks(self, rule: str, problem: str) -> None:
        self.broken.append(BrokenRuleError(rule, problem))

    # --- what was seen ---

    def _life(self, thread_id: str, incarnation: str) -> _Life:
        life = self._lives.get((thread_id, incarnation))
        if life is None:
            life = self._lives[thread_id, incarnation] = _Life()
            # A life that is known already may be an earlier one: the rows are not that one's.
            self._saw(thread_id, life, self._newborn.pop(thread_id, ()))
        return life

    def _begins(self, key: tuple[str, str], entries: Sequence[Entry]) -> bool:
        """Whether a life begins with these entries, as far as it was seen."""
        log = self._lives[key].log
        return all(log.get(entry.position) == entry for entry in entries)

    def _saw(self, thread_id: str, life: _Life, entries: Iterable[Entry]) -> None:
        for entry in entries:
            known = life.log.setdefault(entry.position, entry)
            if known != entry:
                self._breaks("I1", f"position {entry.position} of {thread_id!r} changed")
            life.top = max(life.top, entry.position)
            self._saw_effect(thread_id, entry)

    def _saw_effect(self, thread_id: str, entry: Entry) -> None:
        event = entry.event
        if event.type not in {"effect_intent", "effect_result"}:
            return
        data = json.loads(event.data)
        if event.type == "effect_intent":
            self.intents.add(data.get("id"))
            return
        places = self.results.setdefault(data.get("intent"), set())
        places.add((thread_id, entry.position))
        if data.get("intent") not in self.intents:
            self._breaks("I7", f"a result at position {entry.position} has no intent before it")
        if sum(thread == thread_id for thread, _ in places) > 1:
            self._breaks("I7", f"intent {data.get('intent')!r} has two results in {thread_id!r}")

    def _tops(self, thread_id: str) -> dict[str, int]:
        """Return how far the log of each life of a thread was seen.

        A process may be frozen inside a call, so its head is held to what was seen before it.
        """
        return {
            life: seen.top for (thread, life), seen in self._lives.items() if thread == thread_id
        }

    def _saw_head(self, thread_id: str, head: Head, before: dict[str, int]) -> None:
        if head.incarnation is None:
            return
        life, top = self._life(thread_id, head.incarnation), before.get(head.incarnation, 0)
        if head.position < top:
            self._breaks("I1", f"the head of {thread_id!r} fell from {top} to {head.position}")
        life.top = max(life.top, head.position)

    def _took(self, lease: Lease, request: str) -> None:
        life = self._life(lease.thread_id, lease.incarnation)
        token = (lease.epoch, lease.owner)
        key = (lease.thread_id, lease.incarnation, request)
        again = self._requests.setdefault(key, token) == token and life.holder == token
        if lease.epoch > life.epoch:
            life.epoch, life.holder = lease.epoch, token
        elif lease.epoch == life.epoch and life.holder != token and not again:
            self._breaks("I4", f"epoch {lease.epoch} of {lease.thread_id!r} was given out twice")

    def _holds(self, lease: Lease) -> bool:
        life = self._life(lease.thread_id, lease.incarnation)
        token = (lease.epoch, lease.owner)
        # An acquire whose answer was never seen leaves the witness with an older holder.
        return life.holder == token or lease.epoch > life.epoch

    def _let_go(self, lease: Lease) -> None:
        life = self._life(lease.thread_id, lease.incarnation)
        if life.holder == (lease.epoch, lease.owner):
            life.holder = None

    async def check(self) -> None:
        """Hold the logs that are there now to everything that was answered.

        Raises:
            BrokenRuleError: A rule was broken, now or earlier.
        """
        for (thread_id, incarnation), life in self._lives.items():
            page = await self.store.read(thread_id)
            if page.head.incarnation != incarnation:
                continue
            self._saw(thread_id, life, page.entries)
            if [entry.position for entry in page.entries] != list(range(1, life.top + 1)):
                self._breaks("I1", f"the log of {thread_id!r} has not positions 1 to {life.top}")
            if lost := life.log.keys() - {entry.position for entry in page.entries}:
                self._breaks("I2", f"positions {sorted(lost)} of {thread_id!r} were answered")
        if self.broken:
            raise self.broken[0]

    # --- the store ---

    async def append(
        self,
        thread_id: str,
        events: Sequence[StoredEvent],
        *,
        after: Head,
        batch: str,
        lease: Lease | None = None,
        release: bool = False,
    ) -> Sequence[Entry]:
        """Append, and see whether the lease was held and the place was free."""
        known = self._lives.get((thread_id, after.incarnation or ""))
        repeated = known is not None and after.position + 1 in known.log
        held = lease is None or self._holds(lease)
        entries = await self.store.append(
            thread_id, events, after=after, batch=batch, lease=lease, release=release
        )
        if not held and not repeated:
            self._breaks("I3", f"{thread_id!r} took an append under {lease!r}, held no more")
        if [entry.position for entry in entries] != [
            after.position + n for n in range(1, len(entries) + 1)
        ]:
            self._breaks("I1", f"an append to {thread_id!r} is not after {after.position}")
        if after.incarnation is None:
            # What a known life begins with is the answer to a repeat, which can come much later.
            if not any(self._begins(key, entries) for key in self._lives if key[0] == thread_id):
                self._newborn.setdefault(thread_id, list(entries))
            for entry in entries:
                self._saw_effect(thread_id, entry)
        else:
            self._saw(thread_id, self._life(thread_id, after.incarnation), entries)
        if release and lease is not None:
            self._let_go(lease)
        return entries

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        """Read, and see whether it is a part of the one history."""
        before = self._tops(thread_id)
        page = await self.store.read(thread_id, after=after, limit=limit)
        self._saw_head(thread_id, page.head, before)
        if page.head.incarnation is not None:
            self._saw(thread_id, self._life(thread_id, page.head.incarnation), page.entries)
        return page

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        """Read backwards, and see whether it is a part of the one history."""
        async for entry in self.store.read_back(thread_id, before=before):
            self._saw(thread_id, self._life(thread_id, before.incarnation or ""), [entry])
            yield entry

    async def head(self, thread_id: str) -> Head:
        """Read the head, and see that it does not fall."""
        before = self._tops(thread_id)
        head = await self.store.head(thread_id)
        self._saw_head(thread_id, head, before)
        return head

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        """Wait for a change."""
        return await self.store.wait(thread_id, after=after, timeout=timeout)

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        """List threads."""
        return await self.store.threads(agent=agent, before=before, limit=limit)

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        """Copy a thread's first events."""
        await self.store.copy(thread_id, new_id, through=through)

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        """Delete a thread. What was seen of its life stays known."""
        await self.store.delete(thread_id, incarnation=incarnation)
        # Of a life that is named nothing is kept here: who names it has seen its head.
        if incarnation is None:
            self._newborn.pop(thread_id, None)

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        """Take a lease, and see that its epoch is new."""
        lease = await self.store.acquire(thread_id, owner, ttl, request=request)
        self._took(lease, request)
        return lease

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        """Renew a lease, and see that it is held."""
        held, before = self._holds(lease), self._tops(lease.thread_id)
        renewed, head = await self.store.renew(lease, ttl)
        if not held:
            self._breaks("I4", f"{lease!r} was renewed, and is held no more")
        self._saw_head(lease.thread_id, head, before)
        return renewed, head

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        await self.store.release(lease)
        self._let_go(lease)
