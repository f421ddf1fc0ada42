"""Faults that a store can have: a sound call with one thing wrong, and the clauses it breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from soev.adapters import InMemoryTraceStore
from soev.adapters._memory import _Log
from soev.adapters._rows import LeaseRow, ThreadRow, moved, new_incarnation
from soev.domain import (
    Head,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    LogEntry,
    PositionConflictError,
    PositionOutOfRangeError,
    StoredEvent,
    ThreadExistsError,
    ThreadInfo,
    UnencodableError,
    UnknownThreadError,
)

Entries = Sequence[LogEntry[StoredEvent]]
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass
class Call:
    """One call of a store's method, with what the faulty store remembers from call to call."""

    store: InMemoryTraceStore
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    memory: dict[Any, Any] = field(default_factory=dict)

    def sound(self, *args: Any, **kwargs: Any) -> Any:
        """Do what a sound store does, with some arguments changed."""
        use = args or self.args
        return getattr(self.store, self.method)(*use, **{**self.kwargs, **kwargs})

    @property
    def thread_id(self) -> str:
        """The thread that the call is about."""
        first = self.args[0]
        return first.thread_id if isinstance(first, Lease) else first

    @property
    def log(self) -> _Log | None:
        """The thread's log, if it is there."""
        return self.store._logs.get(self.thread_id)

    @property
    def row(self) -> ThreadRow:
        """The thread's head row."""
        return self.store._logs[self.thread_id].row

    @property
    def now(self) -> datetime:
        """The store's time."""
        return self.store._clock.now()

    def rewrite(self, entries: Entries, **fields: Any) -> list[LogEntry[StoredEvent]]:
        """Change stored events where they lie, and return them."""
        log = self.store._logs[self.thread_id]
        new = [replace(entry, event=replace(entry.event, **fields)) for entry in entries]
        for entry in new:
            log.entries[entry.position - 1] = entry
        return new


Fault = Callable[[Call], Any]
FAULTS: list[tuple[str, str, Fault, frozenset[str]]] = []


def fault(method: str, *clauses: str) -> Callable[[Fault], Fault]:
    """List a fault of a method, with exactly the clauses that it breaks."""

    def enlist(function: Fault) -> Fault:
        FAULTS.append((function.__name__, method, function, frozenset(clauses)))
        return function

    return enlist


class FaultyStore:
    """A sound store of which one method is faulty."""

    def __init__(self, store: InMemoryTraceStore, method: str, fault: Fault) -> None:
        self.store, self.method, self.fault = store, method, fault
        self.memory: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name != self.method:
            return getattr(self.store, name)
        return lambda *args, **kwargs: self.fault(Call(self.store, name, args, kwargs, self.memory))


def never() -> asyncio.Future[Any]:
    """Return a future that nothing ends."""
    return asyncio.get_running_loop().create_future()


# --- append ---------------------------------------------------------------------------------------


@fault("append", "A1", "A2", "C10", "R13")
async def reorders(call: Call) -> Any:
    """Store two events of a new thread in the wrong order."""
    thread_id, events = call.args
    return await call.sound(thread_id, events[::-1] if len(events) == 2 else events)


@fault("append", "A2")
async def drops_the_version(call: Call) -> Any:
    """Forget which code appended an event."""
    thread_id, events = call.args
    return await call.sound(thread_id, [replace(event, version=None) for event in events])


@fault("append", "A2")
async def rewrites_json(call: Call) -> Any:
    """Keep a payload's meaning instead of its text."""
    thread_id, events = call.args
    text = [replace(event, data=event.data.replace("1e2", "100.0")) for event in events]
    return await call.sound(thread_id, text)


@fault("append", "A3", "A24", "A31", "A33", "A34", "C4")
async def accepts_a_stale_position(call: Call) -> Any:
    """Append at the end, whatever the caller has read."""
    try:
        return await call.sound()
    except PositionConflictError as error:
        if call.kwargs["after"].incarnation is None or error.expected > error.head.position:
            raise
        return await call.sound(after=error.head)


@fault("append", "A4")
async def accepts_a_position_ahead(call: Call) -> Any:
    """Append although the caller knows events that are not there."""
    try:
        return await call.sound()
    except PositionConflictError as error:
        if error.expected < error.head.position:
            raise
        return await call.sound(after=error.head)


@fault("append", "A5", "C9", "D4")
async def counts_seq_per_thread(call: Call) -> Any:
    """Count seq over all streams."""
    return [call.rewrite([entry], seq=entry.position)[0] for entry in list(await call.sound())]


@fault("append", "A6", "C5")
async def leaves_out_left(call: Call) -> Any:
    """Let each event look like the last of its append."""
    return call.rewrite(await call.sound(), left=0)


@fault("append", "A7", "R13")
async def takes_no_time(call: Call) -> Any:
    """Give all events the same old time."""
    return call.rewrite(await call.sound(), ts=LONG_AGO)


@fault("append", "A8")
async def lets_time_fall(call: Call) -> Any:
    """Give each event the clock's time, also when it was set back."""
    return call.rewrite(await call.sound(), ts=call.now)


@fault("append", "A9")
async def draws_few_bits(call: Call) -> Any:
    """Draw an incarnation of 32 bits."""
    answer = await call.sound()
    if call.kwargs["after"].incarnation is None:
        call.row.incarnation = call.row.incarnation[:8]
    return answer


@fault("append", "A10")
async def extends_a_taken_id(call: Call) -> Any:
    """Take `Head()` for the end of the log."""
    after = call.kwargs["after"]
    if call.log is not None and after.incarnation is None and 1 not in call.log.batches:
        raise AssertionError("a log begins with a batch")
    try:
        return await call.sound()
    except PositionConflictError as error:
        if after.incarnation is not None:
            raise
        return await call.sound(after=error.head)


@fault("append", "A11", "A12", "A13", "A14", "A15", "C9")
async def knows_no_batches(call: Call) -> Any:
    """Take each repeat for a new append."""
    return await call.sound(batch=new_incarnation())


@fault("append", "A12")
async def knows_the_last_batch_only(call: Call) -> Any:
    """Forget all batches but the latest."""
    answer = await call.sound()
    if call.log and call.log.batches:
        last = max(call.log.batches)
        call.log.batches = {last: call.log.batches[last]}
    return answer


@fault("append", "A12")
async def answers_a_repeat_to_the_end(call: Call) -> Any:
    """Answer a repeat with all that came after it."""
    answer = list(await call.sound())
    if call.log is None or not answer:
        return answer
    return call.log.entries[answer[0].position - 1 :]


@fault("append", "A13")
async def forgets_the_first_batch(call: Call) -> Any:
    """Forget the batch that made the thread."""
    answer = await call.sound()
    if call.log and call.kwargs["after"].incarnation is None:
        call.log.batches.pop(1, None)
    return answer


@fault("append", "A14", "A15")
async def checks_the_lease_before_the_batch(call: Call) -> Any:
    """Refuse a repeat whose lease is lost."""
    lease, after = call.kwargs.get("lease"), call.kwargs["after"]
    same_life = call.log is not None and call.row.incarnation == after.incarnation
    if lease and same_life and not call.row.holds(lease):
        raise LeaseLostError(lease)
    return await call.sound()


@fault("append", "A15")
async def releases_again(call: Call) -> Any:
    """End whatever lease there is when an append with `release` is repeated."""
    answer = await call.sound()
    if call.kwargs.get("release"):
        call.row.release()
    return answer


@fault("append", "A16", "A17", "D3", "D7")
async def takes_any_life_for_the_same(call: Call) -> Any:
    """Append to whatever life the thread has, or give it one."""
    try:
        return await call.sound()
    except UnknownThreadError:
        return await call.sound(after=call.row.head(call.now) if call.log else Head())


@fault("append", "A16", "A17", "D3", "D7")
async def calls_an_unknown_thread_a_conflict(call: Call) -> Any:
    """Report the wrong error for a thread that is gone."""
    try:
        return await call.sound()
    except UnknownThreadError:
        raise PositionConflictError(call.thread_id, 1, Head()) from None


@fault("append", "A17")
async def checks_the_lease_before_the_life(call: Call) -> Any:
    """Report a lost lease of a thread that is gone."""
    try:
        return await call.sound()
    except UnknownThreadError:
        if lease := call.kwargs.get("lease"):
            raise LeaseLostError(lease) from None
        raise


@fault("append", "A18", "A19", "A20", "A30", "C3", "L14")
async def forgets_the_lease(call: Call) -> Any:
    """Take any lease for the right one."""
    try:
        return await call.sound()
    except LeaseLostError:
        return await call.sound(lease=None, release=False)


@fault("append", "A19")
async def forgets_the_epoch(call: Call) -> Any:
    """Know a lease by its owner alone."""
    lease = call.kwargs.get("lease")
    if lease and call.log:
        call.kwargs["lease"] = replace(lease, epoch=call.row.lease.epoch)
    return await call.sound()


@fault("append", "A20")
async def checks_the_position_before_the_lease(call: Call) -> Any:
    """Report a conflict to who has lost the lease."""
    try:
        return await call.sound()
    except LeaseLostError:
        await call.sound(lease=None, release=False) if _stale(call) else None
        raise


def _stale(call: Call) -> bool:
    return call.log is not None and call.kwargs["after"].position < call.row.position


@fault("append", "A21")
async def checks_the_time(call: Call) -> Any:
    """Refuse an append under a lease that has expired."""
    lease = call.kwargs.get("lease")
    if lease and lease.expires <= call.now:
        raise LeaseLostError(lease)
    return await call.sound()


@fault("append", "A22", "A24", "C2", "L7")
async def asks_for_the_lease(call: Call) -> Any:
    """Refuse an append without a lease while somebody holds it."""
    held = call.row.lease_at(call.now) if call.log else None
    if held and not call.kwargs.get("lease"):
        raise LeaseLostError(held)
    return await call.sound()


@fault("append", "A23", "A15", "A26")
async def keeps_the_lease(call: Call) -> Any:
    """Store the events of an append with `release`, and nothing else."""
    _, events = call.args
    return await call.sound(release=call.kwargs.get("release", False) and not events)


@fault("append", "A24")
async def releases_although_refused(call: Call) -> Any:
    """End the lease of an append that is refused."""
    try:
        return await call.sound()
    except PositionConflictError:
        if call.kwargs.get("release"):
            call.row.release()
        raise


@fault("append", "A25")
async def releases_nothing_alone(call: Call) -> Any:
    """Ignore an append without events."""
    _, events = call.args
    if not events and call.kwargs.get("release") and not _stale(call):
        return []
    return await call.sound()


@fault("append", "A26")
async def allows_nothing_to_do(call: Call) -> Any:
    """Answer an append that says nothing."""
    try:
        return await call.sound()
    except UnencodableError:
        raise
    except ValueError:
        return []


@fault("append", "A27")
async def has_a_small_limit(call: Call) -> Any:
    """Refuse payloads of half a megabyte."""
    _, events = call.args
    if sum(len(event.data) for event in events) > 1 << 22:
        raise UnencodableError("batch", "$", "it is too large")
    return await call.sound()


@fault("append", "A28")
async def has_no_limit_for_events(call: Call) -> Any:
    """Leave out what is too large, and say nothing."""
    try:
        return await call.sound()
    except UnencodableError as error:
        if error.holder == "batch":
            raise
        return []


@fault("append", "A29")
async def has_no_limit_for_appends(call: Call) -> Any:
    """Store the first events of an append that is too large."""
    try:
        return await call.sound()
    except UnencodableError as error:
        if error.holder != "batch":
            raise
        thread_id, events = call.args
        return await call.sound(thread_id, events[:1])


@fault("append", "A30")
async def shares_batches_between_threads(call: Call) -> Any:
    """Know a batch of another thread again."""
    key = call.kwargs["batch"]
    thread_id, known = call.memory.get(key, (call.thread_id, None))
    if thread_id != call.thread_id and call.log is None:
        return known
    answer = await call.sound()
    call.memory.setdefault(key, (call.thread_id, answer))
    return answer


@fault("append", "A31")
async def checks_then_acts(call: Call) -> Any:
    """Let others in between the check of the position and the write."""
    after, log = call.kwargs["after"], call.log
    fits = log is not None and log.row.position == after.position and call.args[1]
    await asyncio.sleep(0)
    if not fits or log is None or call.log is not log or log.row.position == after.position:
        return await call.sound()
    if log.batches.get(after.position + 1, ("", 0))[0] != call.kwargs["batch"]:
        return await call.sound(after=log.row.head(call.now))
    return await call.sound()


@fault("append", "A32", "A33")
async def mixes_up_answers(call: Call) -> Any:
    """Give each of several calls the answer of the last."""
    call.memory["last"] = await call.sound()
    await asyncio.sleep(0)
    return call.memory["last"]


@fault("append", "A33")
async def undoes_others(call: Call) -> Any:
    """Roll back what others stored when one append is refused."""
    try:
        answer = await call.sound()
    except PositionConflictError:
        if (fresh := call.memory.get("fresh")) is not None and fresh != call.thread_id:
            call.store._logs.pop(fresh, None)
        raise
    call.memory["fresh"] = call.thread_id
    asyncio.get_running_loop().call_soon(call.memory.clear)
    return answer


# --- read -----------------------------------------------------------------------------------------


@fault("read", "R1", "A7", "A11", "A31", "A34", "R3", "R12", "R13")
async def loses_an_event(call: Call) -> Any:
    """Leave out the last event of a page of three."""
    page = await call.sound()
    short = len(page.entries) == 3 and call.thread_id == "t"
    return replace(page, entries=page.entries[:-1]) if short else page


@fault("head", "R2", "A29", "C5", "C6", "C8", "D2", "D7", "D8", "L13")
async def heads_an_unknown_thread(call: Call) -> Any:
    """Give an unknown thread a life."""
    head = await call.sound()
    return head if call.log else replace(head, incarnation="")


@fault("read", "R3")
async def reads_without_limit(call: Call) -> Any:
    """Read to the end."""
    return await call.sound(limit=None)


@fault("read", "R4")
async def wraps_large_positions(call: Call) -> Any:
    """Take the position from the low bits of `after`."""
    return await call.sound(after=call.kwargs.get("after", 0) % (1 << 32))


@fault("head", "R5", "L1")
async def forgets_the_time(call: Call) -> Any:
    """Answer a head without its time."""
    return replace(await call.sound(), now=LONG_AGO)


@fault("read", "R6")
async def shows_an_expired_lease(call: Call) -> Any:
    """Show the last lease that somebody took."""
    page = await call.sound()
    row = call.row.lease if call.log else LeaseRow()
    if row.owner is None:
        return page
    return replace(page, head=replace(page.head, lease=call.row._lease(row)))


@fault("read_back", "R7")
async def reads_back_from_the_end(call: Call) -> AsyncIterator[Any]:
    """Begin at the end of the log instead of the head."""
    before = call.kwargs["before"]
    last = call.row.position if call.log else before.position
    async for entry in call.sound(before=replace(before, position=last)):
        yield entry


@fault("read_back", "R8")
async def loses_an_event_between_pages(call: Call) -> AsyncIterator[Any]:
    """Skip an event after the first hundred."""
    count = 0
    async for entry in call.sound():
        count += 1
        if count != 100:
            yield entry


@fault("read_back", "R9")
async def reads_back_another_life(call: Call) -> AsyncIterator[Any]:
    """Read back whatever the thread holds now."""
    if call.log is None and not call.memory.get("seen"):
        return
    before = call.kwargs["before"]
    life = call.row.incarnation if call.log else before.incarnation
    call.memory["seen"] = True
    async for entry in call.sound(before=replace(before, incarnation=life)):
        yield entry


@fault("read_back", "R10")
async def reads_back_from_memory(call: Call) -> AsyncIterator[Any]:
    """Read all at once, and go on with a thread that is gone."""
    for entry in [entry async for entry in call.sound()]:
        yield entry


@fault("read", "R11")
async def reads_the_head_apart(call: Call) -> Any:
    """Read the log first and the head later."""
    page = await call.sound()
    await asyncio.sleep(0)
    return replace(page, head=await call.store.head(call.thread_id))


@fault("read", "R12", "C2", "R3")
async def reads_what_was(call: Call) -> Any:
    """Answer from a cache that is one read behind, while the thread lives."""
    page = await call.sound()
    old = call.memory.get(call.thread_id)
    call.memory[call.thread_id] = page
    same = old is not None and old.head.incarnation == page.head.incarnation
    return old if same and len(page.entries) == 2 else page


@fault("threads", "R13", "C10")
async def forgets_when_it_began(call: Call) -> Any:
    """Show the last time for the first."""
    return [replace(info, created=info.updated) for info in await call.sound()]


@fault("acquire", "R14")
async def takes_a_lease_for_activity(call: Call) -> Any:
    """Move a thread up in the list when its lease is taken."""
    lease = await call.sound()
    call.row.updated = call.now
    return lease


@fault("threads", "R15", "R16")
async def sorts_ids_upwards(call: Call) -> Any:
    """List threads of one time from the lowest id on."""
    infos = list(await call.sound())
    if call.kwargs:
        return infos
    return sorted(sorted(infos, key=_id), key=lambda info: info.updated, reverse=True)


def _id(info: ThreadInfo) -> str:
    return info.thread_id


@fault("threads", "R16")
async def loses_a_thread_between_pages(call: Call) -> Any:
    """Begin the next page one too late."""
    page = await call.sound()
    return page[1:] if call.kwargs.get("before") else page


@fault("threads", "R17")
async def lists_every_agent(call: Call) -> Any:
    """Ignore which agent's threads are asked for."""
    return await call.sound(agent=None)


@fault("threads", "R18")
async def lists_an_expired_lease(call: Call) -> Any:
    """Show the last lease that somebody took in a list."""
    infos = []
    for info in await call.sound():
        row = call.store._logs[info.thread_id].row
        expired = row.lease.owner is not None
        infos.append(replace(info, lease=row._lease(row.lease)) if expired else info)
    return infos


@fault("append", "R19")
async def folds_ids(call: Call) -> Any:
    """Let upper and lower case name one thread."""
    thread_id, events = call.args
    return await call.sound(thread_id.casefold() if thread_id == "SS" else thread_id, events)


# --- wait -----------------------------------------------------------------------------------------


@fault("wait", "W1", "W2", "W10")
async def waits_from_now_on(call: Call) -> Any:
    """Wait for the next change, not for one since the caller's head."""
    return await call.sound(after=await call.store.head(call.thread_id))


@fault("wait", "W2")
async def waits_for_positions_only(call: Call) -> Any:
    """Take no notice of another life."""
    life = (await call.store.head(call.thread_id)).incarnation
    if call.kwargs["after"].incarnation is None:
        return await call.sound()
    return await call.sound(after=replace(call.kwargs["after"], incarnation=life))


@fault("wait", "W3")
async def waits_for_ever(call: Call) -> Any:
    """Forget the timeout."""
    return await call.sound(timeout=60)


@fault("wait", "W4", "W5", "W6", "W7", "W8", "W9", "W11", "W12")
async def sleeps_through_appends(call: Call) -> Any:
    """Look at the beginning and at the end."""
    head = await call.store.head(call.thread_id)
    if not moved(head, call.kwargs["after"]):
        await asyncio.wait([never()], timeout=call.kwargs["timeout"])
    return await call.store.head(call.thread_id)


@fault("delete", "W5")
async def deletes_in_silence(call: Call) -> Any:
    """Delete without waking anybody."""
    if call.log is not None and call.kwargs.get("incarnation") in {None, call.log.row.incarnation}:
        del call.store._logs[call.thread_id]


@fault("append", "W6")
async def makes_threads_in_silence(call: Call) -> Any:
    """Make a thread without waking who waits for it."""
    bells = dict(call.store._waiters._bells)
    if call.log is None:
        call.store._waiters._bells.clear()
    answer = await call.sound()
    call.store._waiters._bells.update(bells)
    return answer


@fault("copy", "W7")
async def copies_in_silence(call: Call) -> Any:
    """Copy without waking who waits for the copy."""
    bells = dict(call.store._waiters._bells)
    call.store._waiters._bells.clear()
    await call.sound()
    call.store._waiters._bells.update(bells)


@fault("wait", "W8")
async def wakes_one_only(call: Call) -> Any:
    """Wake the first of those who wait for a thread."""
    waiting = call.memory.setdefault(call.thread_id, [])
    waiting.append(None)
    try:
        return await (never() if len(waiting) > 2 else call.sound())
    finally:
        waiting.pop()


@fault("wait", "W9")
async def answers_when_given_up(call: Call) -> Any:
    """Swallow a cancellation."""
    try:
        return await call.sound()
    except asyncio.CancelledError:
        return await call.store.head(call.thread_id)


@fault("wait", "W10")
async def misses_what_comes_between(call: Call) -> Any:
    """Wait for one more event, when two have come since the caller looked."""
    head = await call.store.head(call.thread_id)
    if head.position - call.kwargs["after"].position > 1:
        return await call.sound(after=head)
    return await call.sound()


@fault("release", "W11", "L12")
async def wakes_for_a_lease(call: Call) -> Any:
    """End a wait when a lease is released."""
    await call.sound()
    row = call.row
    row.position += 1
    call.store._waiters.wake(call.thread_id)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    row.position -= 1


# --- lease ----------------------------------------------------------------------------------------


@fault(
    "acquire",
    "L1",
    "A15",
    "A22",
    "A24",
    "C2",
    "D6",
    "L2",
    "L3",
    "L9",
    "L10",
    "L12",
    "L14",
    "L15",
    "L19",
    "R6",
    "R13",
    "R18",
)
async def gives_no_end(call: Call) -> Any:
    """Answer a lease that ends never."""
    lease = await call.sound()
    return replace(lease, expires=lease.expires + timedelta(days=9))


@fault("acquire", "L2")
async def lets_an_owner_in_again(call: Call) -> Any:
    """Give a lease anew to who holds it."""
    held = call.row.lease if call.log else LeaseRow()
    if held.owner == call.args[1] and held.request != call.kwargs["request"]:
        call.row.release()
    return await call.sound()


@fault("acquire", "L3")
async def knows_no_requests(call: Call) -> Any:
    """Take each repeat for another acquire."""
    return await call.sound(request=new_incarnation())


@fault("acquire", "L4")
async def lends_requests(call: Call) -> Any:
    """Know a request again that another owner made."""
    try:
        return await call.sound()
    except LeaseHeldError:
        if call.row.lease.request != call.kwargs["request"]:
            raise
        return await call.sound(call.thread_id, call.row.lease.owner, 30)


@fault(
    "acquire",
    "L5",
    "A15",
    "A22",
    "A24",
    "C2",
    "D6",
    "L2",
    "L3",
    "L9",
    "L10",
    "L12",
    "L14",
    "L15",
    "L19",
    "R6",
    "R13",
    "R18",
)
async def gives_half_the_time(call: Call) -> Any:
    """Let a lease end early, and say nothing."""
    lease = await call.sound()
    call.row.lease = replace(call.row.lease, expires=lease.expires - timedelta(seconds=15))
    return lease


@fault("acquire", "L6")
async def keeps_the_epoch(call: Call) -> Any:
    """Count no new epoch for the same request."""
    known = call.memory.get("last") == (call.thread_id, call.args[1], call.kwargs["request"])
    if known and call.log and call.row.lease.owner is None and call.row.lease.epoch:
        call.row.lease = LeaseRow(call.row.lease.epoch - 1)
    call.memory["last"] = (call.thread_id, call.args[1], call.kwargs["request"])
    return await call.sound()


@fault("renew", "L7")
async def renews_without_the_lease(call: Call) -> Any:
    """Answer a head of before the renewal."""
    before = call.row.head(call.now) if call.log else Head()
    lease, _ = await call.sound()
    return lease, before


@fault("renew", "L8")
async def revives_nothing(call: Call) -> Any:
    """Refuse to renew what has expired."""
    lease = call.args[0]
    if lease.expires <= call.now:
        raise LeaseLostError(lease)
    return await call.sound()


@fault("renew", "L9")
async def renews_what_was_released(call: Call) -> Any:
    """Make a lease row anew."""
    lease = call.args[0]
    if call.log and call.row.lease.owner is None and call.row.lease.epoch == lease.epoch:
        call.row.lease = LeaseRow(lease.epoch, lease.owner, "", lease.expires)
    return await call.sound()


@fault("release", "L10")
async def releases_any_epoch(call: Call) -> Any:
    """Know a lease that is given back by its owner alone."""
    lease = call.args[0]
    epoch = call.row.lease.epoch if call.log else 0
    await call.sound(replace(lease, epoch=epoch))


@fault("release", "L11")
async def complains_of_a_second_release(call: Call) -> Any:
    """Refuse to take back what was taken back."""
    lease = call.args[0]
    if call.log and call.row.lease.owner is None:
        raise LeaseLostError(lease)
    await call.sound()


@fault("release", "L12")
async def releases_for_another(call: Call) -> Any:
    """Know a lease that is given back by its epoch alone."""
    lease = call.args[0]
    owner = call.row.lease.owner if call.log else ""
    await call.sound(replace(lease, owner=owner or ""))


@fault("acquire", "L13")
async def makes_a_thread_for_a_lease(call: Call) -> Any:
    """Give a lease for a thread that is not there."""
    if call.log is None:
        return Lease(call.thread_id, "", call.args[1], 1, call.now)
    return await call.sound()


@fault("renew", "L14")
async def renews_in_any_life(call: Call) -> Any:
    """Know a lease by owner and epoch alone."""
    lease = call.args[0]
    life = call.row.incarnation if call.log else lease.incarnation
    return await call.sound(replace(lease, incarnation=life), call.args[1])


@fault("acquire", "L15")
async def looks_then_takes(call: Call) -> Any:
    """Let others in between the look at the lease and the taking."""
    free = call.log is not None and not call.row.lease.valid(call.now)
    await asyncio.sleep(0)
    if free and call.log and call.row.lease.owner not in {None, call.args[1]}:
        call.row.release()
    return await call.sound()


@fault("renew", "L16")
async def records_a_renewal(call: Call) -> Any:
    """Count a renewal as an event."""
    answer = await call.sound()
    call.row.position += 1
    return answer


@fault("acquire", "L17", "L18")
async def trusts_the_clock(call: Call) -> Any:
    """Let a lease last until its end, however far a clock set back has put it off."""
    lease = await call.sound()
    call.row.lease = replace(call.row.lease, ttl=timedelta(days=9))
    return lease


@fault("head", "L18")
async def looks_without_a_bound(call: Call) -> Any:
    """Show a head and leave the lease as it is."""
    return call.row.head(call.now) if call.log else await call.sound()


# --- copy -----------------------------------------------------------------------------------------


@fault("copy", "C1", "C11")
async def copies_without_origin(call: Call) -> Any:
    """Leave out who recorded an event."""
    await call.sound()
    log = call.store._logs[call.args[1]]
    log.entries = [
        replace(entry, event=replace(entry.event, origin="copy")) for entry in log.entries
    ]


@fault("copy", "C2")
async def shares_events(call: Call) -> Any:
    """Let source and copy have one list."""
    await call.sound()
    source, log = (call.store._logs[name] for name in call.args)
    if len(source.entries) == len(log.entries) == 1:
        log.entries = source.entries


@fault("copy", "C3")
async def copies_the_lease(call: Call) -> Any:
    """Give the copy the lease of its source."""
    await call.sound()
    source, log = (call.store._logs[name] for name in call.args)
    log.row.lease = source.row.lease


@fault("copy", "C4")
async def copies_batches(call: Call) -> Any:
    """Let the copy know the batches of its source."""
    await call.sound()
    source, log = (call.store._logs[name] for name in call.args)
    log.batches = dict(source.batches)


@fault("copy", "C5")
async def cuts_anywhere(call: Call) -> Any:
    """Cut a log inside an append."""
    try:
        await call.sound()
    except PositionOutOfRangeError as error:
        if not error.nearest:
            raise
        await call.sound(through=error.nearest[-1])


@fault("copy", "C6")
async def copies_what_there_is(call: Call) -> Any:
    """Copy to the end when more is asked for."""
    last = call.row.position if call.log else 1
    await call.sound(through=min(call.kwargs["through"], last))


@fault("copy", "C7")
async def looks_at_the_source_first(call: Call) -> Any:
    """Report an unknown source of a copy that was made before."""
    try:
        await call.sound()
    except ThreadExistsError:
        if call.log is None:
            raise UnknownThreadError(call.thread_id) from None
        raise


@fault("copy", "C8")
async def copies_nothing(call: Call) -> Any:
    """Take the copy of an unknown thread for done."""
    if call.log or call.args[1] in call.store._logs:
        await call.sound()


@fault("copy", "C9")
async def counts_copies_anew(call: Call) -> Any:
    """Begin each seq at 1 after a copy."""
    await call.sound()
    call.store._logs[call.args[1]].seqs = {}


@fault("copy", "C10")
async def copies_as_of_now(call: Call) -> Any:
    """List a copy by the time of its making."""
    await call.sound()
    call.store._logs[call.args[1]].row.updated = call.now


@fault("copy", "C11")
async def copies_originals_only(call: Call) -> Any:
    """Take a copy for a thread that is not there."""
    if call.log and 1 not in call.log.batches and call.args[1] not in call.store._logs:
        raise UnknownThreadError(call.thread_id)
    await call.sound()


# --- delete ---------------------------------------------------------------------------------------


@fault("delete", "D1", "L18")
async def hides_a_thread(call: Call) -> Any:
    """Empty a log and leave its thread in the list."""
    if call.log and call.thread_id == "t" and call.row.lease.owner == "a":
        call.memory["kept"] = call.store.threads
        infos = list(await call.store.threads())
        await call.sound()

        async def listed(**kwargs: Any) -> Any:
            return infos

        call.store.threads = listed  # type: ignore[method-assign]  # the fault itself
    else:
        await call.sound()


@fault("delete", "D2")
async def complains_of_nothing_to_delete(call: Call) -> Any:
    """Refuse to delete what is not there."""
    if call.log is None:
        raise UnknownThreadError(call.thread_id)
    await call.sound()


@fault("append", "D3")
async def answers_from_before_the_deletion(call: Call) -> Any:
    """Know the batches of a thread that is gone."""
    key = call.thread_id, call.kwargs["batch"]
    try:
        answer = await call.sound()
    except UnknownThreadError:
        if key not in call.memory:
            raise
        return call.memory[key]
    call.memory[key] = answer
    return answer


@fault("append", "D4")
async def counts_on_after_a_deletion(call: Call) -> Any:
    """Go on with the seqs of the life before."""
    answer = await call.sound()
    if call.kwargs["after"].incarnation is None:
        earlier = call.memory.get(call.thread_id)
        if earlier and call.log and earlier != call.row.incarnation:
            answer = call.rewrite(answer, seq=7)
        call.memory[call.thread_id] = call.row.incarnation
    return answer


@fault("append", "D5", "D3")
async def remembers_batches_of_the_dead(call: Call) -> Any:
    """Answer the making of a thread with that of the life before."""
    key = call.thread_id, call.kwargs["batch"]
    if call.log is None and key in call.memory:
        return call.memory[key]
    call.memory[key] = answer = await call.sound()
    return answer


@fault("delete", "D6")
async def deletes_copies(call: Call) -> Any:
    """Delete a thread's copies with it."""
    entries = call.log.entries if call.log else []
    await call.sound()
    for name, log in list(call.store._logs.items()):
        if name != call.thread_id and entries and log.entries[0] is entries[0]:
            del call.store._logs[name]


@fault("delete", "D8")
async def deletes_any_life(call: Call) -> Any:
    """Delete whatever life a thread has, also another than was meant."""
    await call.store.delete(call.thread_id)


@fault("delete", "D8")
async def deletes_no_named_life(call: Call) -> Any:
    """Leave a thread alone whose life is named."""
    if call.kwargs.get("incarnation") is None:
        await call.sound()
