"""A store with ghost state: it knows what the true owner, epoch and head are at every instant.

A call comes here when it arrives at the store, after everything that a schedule put in front of it.
The ghost first says by itself what the answer must be, then lets the real store answer, and
compares. So it sees at once what the log alone would not tell: an append of a holder that was
overtaken, a loser that wrote, a copy that is none.
"""

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from soev.domain import (
    Clock,
    Head,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    LogEntry,
    Page,
    PositionConflictError,
    PositionOutOfRangeError,
    SoevError,
    StoredEvent,
    ThreadExistsError,
    ThreadInfo,
    TraceStore,
    UnknownThreadError,
    fault_plan,
)
from tests.reliability import reference
from tests.reliability.reference import Fact

T = TypeVar("T")
Entry = LogEntry[StoredEvent]


@dataclass(eq=False)
class Life:
    """One incarnation of a thread, and its lease.

    Args:
        name: The incarnation.
        entries: The log.
        facts: The same, parsed.
        batches: Which batch stands at a position, and how long it is.
    """

    name: str | None
    entries: list[Entry] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    batches: dict[int, tuple[str, int]] = field(default_factory=dict)
    epoch: int = 0
    owner: str | None = None
    request: str | None = None
    expires: datetime | None = None

    @property
    def position(self) -> int:
        """The last position."""
        return len(self.entries)

    def holder(self, now: datetime) -> str | None:
        """Return who holds the lease at a moment, by the store's clock."""
        return self.owner if self.expires is not None and now < self.expires else None

    def is_of(self, lease: Lease) -> bool:
        """Tell whether a lease is the last one that was given, whatever the time is."""
        token = (lease.incarnation, lease.owner, lease.epoch)
        return (self.name, self.owner, self.epoch) == token

    def free(self) -> None:
        """End the lease."""
        self.owner = self.request = self.expires = None

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add rows."""
        self.entries.extend(entries)
        self.facts.extend(Fact.of(entry.event) for entry in entries)


class Instant(NamedTuple):
    """How a thread stood at one instant.

    Args:
        life: Its life, None for a thread that is not there.
        position: Its last position.
        owner: Who held the lease then, by the store's clock.
    """

    life: Life | None
    position: int
    owner: str | None

    @property
    def log(self) -> Sequence[Fact]:
        """The log at that instant."""
        return self.life.facts[: self.position] if self.life is not None else ()

    @property
    def held(self) -> bool:
        """Whether anybody held the lease."""
        return self.owner is not None


class Ghost:
    """A store in front of another one, with what must be true of it.

    Args:
        store: The store.
        clock: Its clock.
    """

    def __init__(self, store: TraceStore, clock: Clock) -> None:
        self.store, self._clock = store, clock
        self.lives: dict[str, Life] = {}
        self.every: dict[str, list[Life]] = {}
        self.leases: list[Lease] = []
        self.losers: set[str] = set()
        self.past: dict[str, list[Instant]] = {}
        self.broken: list[str] = []
        self.answers: list[str] = []

    # --- what is known ---

    def now(self, thread_id: str) -> Instant:
        """Return how a thread stands now."""
        life = self.lives.get(thread_id)
        if life is None:
            return Instant(None, 0, None)
        return Instant(life, life.position, life.holder(self._clock.now()))

    def instants(self, thread_id: str, since: int) -> Iterator[Instant]:
        """Yield how a thread stood from one instant on, up to now."""
        yield from self.past.get(thread_id, [])[since:]
        yield self.now(thread_id)

    def mark(self, thread_id: str) -> int:
        """Note how a thread stands now, and return the number of this instant."""
        past, now = self.past.setdefault(thread_id, []), self.now(thread_id)
        if not past or past[-1] != now:
            past.append(now)
        return len(past) - 1

    def old_leases(self) -> list[Lease]:
        """Return the leases that were given and are no more, the latest first."""
        lives = self.lives
        return [
            lease
            for lease in reversed(self.leases)
            if lease.thread_id not in lives or not lives[lease.thread_id].is_of(lease)
        ]

    def must(self, fact: bool, problem: str) -> None:
        """Note what is wrong."""
        if not fact:
            self.broken.append(problem)

    # --- writes ---

    async def _answered(
        self, name: str, thread_id: str, wanted: type[SoevError] | None, call: Awaitable[T]
    ) -> T:
        """Let the store answer, and hold it to the kind of answer that is due."""
        self.mark(thread_id)
        with _out_of_reach():
            try:
                answer = await call
            except SoevError as error:
                told = f"{name} of {thread_id!r} got {error!r}, not {wanted}"
                self.must(wanted is not None and type(error) is wanted, f"I23: {told}")
                self.answers.append(type(error).__name__)
                if isinstance(error, LeaseLostError):
                    self.losers.add(error.lease.owner)
                raise
        self.must(wanted is None, f"I20: {name} of {thread_id!r} went through, not {wanted}")
        return answer

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
        life = self.lives.get(thread_id)
        call = self.store.append(
            thread_id, events, after=after, batch=batch, lease=lease, release=release
        )
        count = _repeated(life, after, batch)
        if life is not None and count:
            entries = await self._answered("append", thread_id, None, call)
            known = life.entries[after.position : after.position + count]
            self.must(list(entries) == known, "I2: a repeated append got other rows")
            self.answers.append("own batch found")
            return entries
        wanted = _refusal(life, after, lease)
        if wanted is None:
            self._judge(thread_id, life, events, lease is not None)
        entries = await self._answered("append", thread_id, wanted, call)
        if life is None:
            life = await self._born(thread_id)
        self._added(life, events, entries)
        if entries:
            life.batches[entries[0].position] = batch, len(entries)
        if release:
            life.free()
        self.mark(thread_id)
        return entries

    async def _born(self, thread_id: str) -> Life:
        with _out_of_reach():
            life = Life((await self.store.head(thread_id)).incarnation)
        self.lives[thread_id] = life
        self.every.setdefault(thread_id, []).append(life)
        return life

    def _judge(
        self, thread_id: str, life: Life | None, events: Sequence[StoredEvent], leased: bool
    ) -> None:
        """Hold an append that is about to be made to the rules of its turn."""
        log = life.facts if life is not None else []
        batch = [Fact.of(event) for event in events]
        told = list(reference.problems(log, batch, leased))
        self.broken += [f"{problem}, in {thread_id!r} after {len(log)}" for problem in told]

    def _added(self, life: Life, events: Sequence[StoredEvent], entries: Sequence[Entry]) -> None:
        places = list(range(life.position + 1, life.position + len(events) + 1))
        self.must([entry.position for entry in entries] == places, "I1: positions have a gap")
        sent = [(each.type, each.data, each.stream, each.origin, each.version) for each in events]
        kept = [
            (each.type, each.data, each.stream, each.origin, each.version)
            for each in (entry.event for entry in entries)
        ]
        self.must(sent == kept, "I2: a batch was not stored as it is")
        life.extend(entries)

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        source = self.lives.get(thread_id)
        wanted: type[SoevError] | None = None
        if new_id in self.lives:
            wanted = ThreadExistsError
        elif source is None:
            wanted = UnknownThreadError
        elif not is_cut(source, through):
            wanted = PositionOutOfRangeError
        call = self.store.copy(thread_id, new_id, through=through)
        self.mark(thread_id)
        await self._answered("copy", new_id, wanted, call)
        assert source is not None
        (await self._born(new_id)).extend(source.entries[:through])
        self.mark(new_id)

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        call = self.store.delete(thread_id, incarnation=incarnation)
        await self._answered("delete", thread_id, None, call)
        life = self.lives.get(thread_id)
        if life is not None and incarnation in {None, life.name}:
            del self.lives[thread_id]
        self.mark(thread_id)

    # --- leases ---

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        life, now = self.lives.get(thread_id), self._clock.now()
        again = life is not None and (life.owner, life.request) == (owner, request)
        wanted: type[SoevError] | None = None
        if life is None:
            wanted = UnknownThreadError
        elif not again and life.holder(now) is not None:
            wanted = LeaseHeldError
        call = self.store.acquire(thread_id, owner, ttl, request=request)
        lease = await self._answered("acquire", thread_id, wanted, call)
        self.leases.append(lease)
        if life is not None:
            life.epoch += not again
            life.owner, life.request, life.expires = owner, request, now + timedelta(seconds=ttl)
            self.must(lease == self._lease(thread_id, life), f"I4: {lease!r} was given out")
        self.mark(thread_id)
        return lease

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        thread_id = lease.thread_id
        life, now = self.lives.get(thread_id), self._clock.now()
        lost = life is None or not life.is_of(lease)
        call = self.store.renew(lease, ttl)
        renewed, head = await self._answered(
            "renew", thread_id, LeaseLostError if lost else None, call
        )
        if life is not None and not lost:
            life.expires = now + timedelta(seconds=ttl)
            self.must(renewed == self._lease(thread_id, life), f"I4: {renewed!r} was renewed")
        self.mark(thread_id)
        return renewed, self._saw(thread_id, head)

    async def release(self, lease: Lease) -> None:
        life = self.lives.get(lease.thread_id)
        await self._answered("release", lease.thread_id, None, self.store.release(lease))
        if life is not None and life.is_of(lease):
            life.free()
        self.mark(lease.thread_id)

    def _lease(self, thread_id: str, life: Life) -> Lease | None:
        if life.owner is None or life.expires is None or life.name is None:
            return None
        return Lease(thread_id, life.name, life.owner, life.epoch, life.expires)

    # --- reads ---

    def _saw(self, thread_id: str, head: Head) -> Head:
        """Hold a head that was read to the true one."""
        life, now = self.lives.get(thread_id), self._clock.now()
        true = Head(now=now)
        if life is not None:
            held = life.holder(now) is not None
            lease = self._lease(thread_id, life) if held else None
            true = Head(life.position, life.name, lease, now)
        self.must(head == true, f"I1: the head of {thread_id!r} is {head!r}, not {true!r}")
        return head

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        self.mark(thread_id)
        with _out_of_reach():
            page = await self.store.read(thread_id, after=after, limit=limit)
        self._saw(thread_id, page.head)
        life = self.lives.get(thread_id)
        stop = None if limit is None else after + limit
        known = life.entries[after:stop] if life is not None else []
        self.must(list(page.entries) == known, f"I1: the rows of {thread_id!r} are others")
        return page

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        self.mark(thread_id)
        life, place = self.lives.get(thread_id), before.position
        # Between two entries the caller's own code runs, so the plan stays out of reach throughout.
        with _out_of_reach():
            entries = [entry async for entry in self.store.read_back(thread_id, before=before)]
        for entry in entries:
            known = life is not None and life.entries[place - 1 : place]
            self.must(known == [entry], f"I1: position {place} of {thread_id!r} is another")
            place -= 1
            yield entry

    async def head(self, thread_id: str) -> Head:
        self.mark(thread_id)
        with _out_of_reach():
            return self._saw(thread_id, await self.store.head(thread_id))

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        return await self.store.wait(thread_id, after=after, timeout=timeout)

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        return await self.store.threads(agent=agent, before=before, limit=limit)


def is_cut(life: Life, at: int) -> bool:
    """Tell whether a log can be cut at a position: it is there, and the end of an append."""
    return 1 <= at <= life.position and life.entries[at - 1].event.left == 0


def _repeated(life: Life | None, after: Head, batch: str) -> int:
    """Return how many rows an append has in the log already, 0 when it is a new one."""
    if life is None or after.incarnation not in {None, life.name}:
        return 0
    stored, count = life.batches.get(after.position + 1, ("", 0))
    return count if stored == batch else 0


def _refusal(life: Life | None, after: Head, lease: Lease | None) -> type[SoevError] | None:
    """Return why an append that is not in the log must be refused, None when it must not."""
    if after.incarnation is not None and (life is None or life.name != after.incarnation):
        return UnknownThreadError
    if lease is not None and (life is None or not life.is_of(lease)):
        return LeaseLostError
    if life is None:
        return PositionConflictError if after.position else None
    return PositionConflictError if (life.position, life.name) != _place(after) else None


def _place(after: Head) -> tuple[Any, ...]:
    return after.position, after.incarnation


@contextmanager
def _out_of_reach() -> Iterator[None]:
    """Let no fault strike inside of the store: what it does, it does in one piece."""
    token = fault_plan.set(None)
    try:
        yield
    finally:
        fault_plan.reset(token)
