"""The rules that both machines of a thread have: callers, time, and what goes wrong."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import rule

from pytest_soev.world import Process
from soev.domain import (
    Event,
    Input,
    Lease,
    LeaseLostError,
    LogEntry,
    StoredEvent,
    UnknownThreadError,
)
from soev.runtime import Thread
from tests.reliability import reference
from tests.reliability.machines import FOREVER, TTL, Machine

ALL = 99
Making = Callable[[Thread, Process], Coroutine[Any, Any, Any]]


HAUNTING = ("append", "append", "renew", "release")
STEERING = ("cancel", "cancel", "cancel", "fork", "fork", "stop", "delete", "close")
BLOWS = ("crash", "crash", "freeze", "lost", "late", "disconnect", "refuse", "slow")


class Where(NamedTuple):
    """Where something happens, and how far everybody goes on then.

    Args:
        picks: How many answers from outside come afterwards.
        process: The process.
        thread: The thread's number.
    """

    picks: int
    process: str
    thread: int

    @property
    def other(self) -> str:
        """The other process."""
        return "b" if self.process == "a" else "a"


# One draw for all three: most of what a step costs is drawing.
SOMEWHERE = st.sampled_from(
    [
        Where(picks, process, thread)
        for picks in (ALL, ALL, ALL, 0, 1, 2, 3, 5, 8)
        for thread in (0, 0, 1, 2)
        for process in ("a", "b")
    ]
)
DEEDS = st.integers(0, 20)
"""Which deed of the machine a turn is about, 0 for none."""


class Callers(Machine):
    """Callers, time and blows, around threads of any graph.

    Hypothesis leaves some rules out of each example. So every rule lets a turn begin where none is
    open: an example without the one that talks would otherwise be empty.
    """

    deeds: ClassVar[tuple[str, ...]] = ()

    def named(self, where: Where) -> str:
        """Return the id of a thread."""
        threads = self.threads()
        return threads[where.thread % len(threads)]

    def called(self, name: str, where: Where, call: Making, **facts: Any) -> None:
        """Let a caller make a call, and let anybody go on."""
        thread_id = self.named(where)

        def begun() -> None:
            if where.picks == ALL:
                self.process(where.process).thaw()
            self.begin(name, where.process, thread_id, call, **facts)

        self.act(begun, picks=where.picks)

    def livened(self, do: int, where: Where) -> None:
        """Let a turn begin where none is open, and let it go on a little."""
        now = self.ghost.now(self.named(where))
        if do and reference.takes_input(now.log, now.held):
            self.told(do, where._replace(picks=do % 8), run=True)

    def told(self, do: int, where: Where, *, run: bool) -> None:
        """Send a fresh input, or only record it."""
        said = self.fresh(do=self.deeds[do % len(self.deeds)])

        async def call(thread: Thread, process: Process) -> object:
            return await (thread.send(said) if run else thread.submit(said))

        self.called("send" if run else "submit", where, call, mark=mark_of(said))

    # --- who talks ---

    @rule(do=DEEDS, where=SOMEWHERE, run=st.booleans())
    def is_told(self, do: int, where: Where, run: bool) -> None:
        """Send a fresh input, at times while a turn is open."""
        self.told(do, where, run=run)

    @rule(do=DEEDS, where=SOMEWHERE, run=st.booleans(), which=st.sampled_from([0, 0, 0, 1, 2]))
    def is_answered(self, do: int, where: Where, run: bool, which: int) -> None:
        """Answer a request: often the last one, at times one that was answered long ago."""
        self.livened(do, where)
        requests = self.requests(self.named(where))
        if not requests:
            return
        request, said = requests[-1 - which % len(requests)], self.fresh(ok=True)

        async def call(thread: Thread, process: Process) -> object:
            if run:
                return await thread.send(said, answering=request)
            return await thread.submit(said, answering=request)

        name = "send" if run else "submit"
        self.called(name, where, call, mark=mark_of(said), request=request)

    @rule(do=DEEDS, where=SOMEWHERE)
    def is_resumed(self, do: int, where: Where) -> None:
        """Resume a turn."""
        self.livened(do, where)
        self.called("resume", where, resumed)

    @rule(do=DEEDS, where=SOMEWHERE, at=st.integers(0, 7), what=st.sampled_from(STEERING))
    def is_steered(self, do: int, where: Where, at: int, what: str) -> None:
        """Cancel, stop, fork or delete a thread, or close a process."""
        self.livened(do, where._replace(process="a"))
        thread_id = self.named(where)
        at = max(self.ghost.now(thread_id).position + 1 - at, 1)
        if what == "fork" and len(self.threads()) > 2:
            what = "delete"
        self.called(what, where, steering(what, thread_id, at), at=at)

    @rule(do=DEEDS, where=SOMEWHERE, what=st.sampled_from(["status", "follow", "watch"]))
    def is_read(self, do: int, where: Where, what: str) -> None:
        """Ask where a thread stands, follow it while it runs, or read it once."""
        self.livened(do, where._replace(process="a"))
        self.called(what, where, READING[what])

    # --- time, and what goes wrong ---

    @rule(do=DEEDS, where=SOMEWHERE, turn=st.integers(0, 3))
    def goes_on(self, do: int, where: Where, turn: int) -> None:
        """Let one process go on a little."""
        self.livened(do, where._replace(process=where.other))
        self.act(picks=where.picks, who=where.process, turn=turn)

    @rule(do=DEEDS, where=SOMEWHERE, seconds=st.sampled_from([0.5, 3.0, TTL, 3 * TTL]))
    def is_late(self, do: int, where: Where, seconds: float) -> None:
        """Let time pass for all."""
        self.livened(do, where)
        self.act(picks=FOREVER, seconds=seconds)

    @rule(do=DEEDS, where=SOMEWHERE, what=st.sampled_from(["crash", "pause", "wake", "steal"]))
    def is_hit(self, do: int, where: Where, what: str) -> None:
        """Kill or freeze a process where it stands, wake it, or take over what it runs."""
        self.livened(do, where)
        self.frozen |= what in {"pause", "steal"}
        struck = self.process(where.process)
        if what == "crash":
            self.act(struck.kill)
        elif what == "wake":
            self.act(struck.thaw, picks=where.picks)
        else:
            self.act(struck.freeze)
        if what == "steal":
            self.act(picks=FOREVER, seconds=TTL)
            self.called("resume", where._replace(process=where.other), resumed)
            self.act(struck.thaw, picks=do, who=where.process)

    @rule(do=DEEDS, where=SOMEWHERE, which=st.integers(0, 9), what=st.sampled_from(HAUNTING))
    def is_haunted(self, do: int, where: Where, which: int, what: str) -> None:
        """Let a call under a lease arrive that is no more: it does nothing."""
        self.livened(do, where)
        old = self.ghost.old_leases()
        if old:
            lease = old[which % len(old)]
            self.act(lambda: self.begin(what, "c", lease.thread_id, haunting(what, lease)))

    @rule(do=DEEDS, where=SOMEWHERE, kind=st.sampled_from(BLOWS), ahead=st.integers(1, 25),
          seconds=st.sampled_from([1.3, 4.0, 1.5 * TTL]))  # fmt: skip
    def will_be_hit(self, do: int, where: Where, kind: Any, ahead: int, seconds: float) -> None:
        """Let a process die or freeze in the middle of something, or a store call fail, soon."""
        self.frozen |= kind == "freeze"
        self.fault(kind, ahead, seconds)
        self.livened(do, where)


# --- what callers call ---


def haunting(what: str, lease: Lease) -> Making:
    """Return a call of a holder that was overtaken, and is refused."""

    async def call(thread: Thread, process: Process) -> None:
        store = process.store
        with suppress(LeaseLostError, UnknownThreadError):
            if what == "renew":
                await store.renew(lease, TTL)
            elif what == "release":
                await store.release(lease)
            else:
                head = await store.head(lease.thread_id)
                event = StoredEvent("model_output", "{}")
                await store.append(
                    lease.thread_id, [event], after=head, batch="old", lease=lease, release=True
                )

    return call


async def resumed(thread: Thread, process: Process) -> object:
    """Resume a turn."""
    return await thread.resume()


def steering(what: str, thread_id: str, at: int) -> Making:
    """Return a call that steers a thread."""

    async def call(thread: Thread, process: Process) -> object:
        if what == "close":
            await process.runs.close(at % 3)
            return None
        if what == "stop":
            await process.runs.stop(thread_id)
            return None
        if what == "fork":
            return await thread.fork(at=at)
        return await (thread.cancel() if what == "cancel" else thread.delete())

    return call


async def _status(thread: Thread, process: Process) -> object:
    return await thread.status()


async def _followed(thread: Thread, process: Process) -> list[LogEntry[Event]]:
    return [entry async for entry in thread.follow()]


async def _watched(thread: Thread, process: Process) -> list[LogEntry[Event]]:
    return [entry async for entry in thread.watch(follow=False)]


READING: dict[str, Making] = {"status": _status, "follow": _followed, "watch": _watched}


def mark_of(said: Input) -> str:
    """Return what an input alone says."""
    payload: Any = said.payload
    return str(payload["n"])
