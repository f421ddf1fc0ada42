"""What the machines of a thread and of effects share: processes, callers, faults and checks.

A machine plays one example in the deterministic world. A rule begins something, lets processes go
on for as many answers from outside as it says, and stops there: a crash, a freeze or another call
can then come in between. After each rule everything that can be known is held to the rules.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

from pytest_soev.world import (
    Fault,
    FaultKind,
    Limits,
    Process,
    Ready,
    Setting,
    Simulation,
    boundary,
    passed,
)
from pytest_soev.world._simulation import _listening
from soev.domain import (
    Clock,
    Event,
    Input,
    LeaseHeldError,
    LeaseLostError,
    LogEntry,
    OutcomeUnknownError,
    Request,
    StoreUnavailableError,
    Trace,
    TraceStore,
    fault_plan,
)
from soev.runtime import (
    CORE_EVENT_TYPES,
    Graph,
    InputDeniedError,
    NothingToCancelError,
    PositionOutOfRangeError,
    Runs,
    Status,
    Thread,
    ThreadActiveError,
    ThreadExistsError,
    UnknownThreadError,
)
from tests.reliability import places, reference
from tests.reliability.ghost import Ghost, Instant, Life, is_cut
from tests.reliability.places import Place
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import problems

TTL = 9.0
FOREVER = 1_000_000
MOST_ROUNDS = 60


class Hand:
    """A strategy that lets processes go on for some answers from outside, then hands back.

    Args:
        left: For how many.
        who: Only this process, None for each.
        turn: Which of the lanes that are ready goes on.
    """

    def __init__(self) -> None:
        self.left, self.turn = 0, 0
        self.who: str | None = None

    def choose(self, lanes: Sequence[Ready]) -> int:
        """Return a lane of the process that may go on, else the machine's own."""
        mine = [
            place
            for place, lane in enumerate(lanes)
            if lane.process != "outside" and self.who in {None, lane.process}
        ]
        outside = [place for place, lane in enumerate(lanes) if lane.process == "outside"]
        if not mine or (outside and self.left <= 0):
            return outside[0] if outside else 0
        self.left -= 1
        return mine[self.turn % len(mine)]


class Stepped(Simulation):
    """A simulation that is played step by step.

    Args:
        store: Makes the store from its clock.
    """

    def __init__(self, store: Callable[[Clock], TraceStore]) -> None:
        self.hand = Hand()
        limits = Limits(FOREVER, FOREVER)
        setting = Setting(lease_ttl=TTL, store=store, limits=limits)
        super().__init__(strategy=self.hand, setting=setting)

    def play(self, work: Callable[[], Awaitable[None]]) -> None:
        """Play one step."""

        async def played() -> None:
            fault_plan.set(self._reached)
            await work()

        self.loop.run_until_complete(played())


@dataclass(eq=False)
class Call:
    """One call of a caller, and what is needed to judge its answer.

    Args:
        name: The method.
        process: Where it was made.
        owner: Whose leases its process takes.
        thread: The thread.
        since: The instant at which it began.
        life: The life that the thread lived then.
        task: Its task.
        began: When it was made, in the world's seconds.
        mark: What its input says, and nobody else's.
        request: The request that it answers.
        at: The position that it names.
    """

    name: str
    process: Process
    owner: str
    thread: str
    since: int
    life: Life | None
    task: asyncio.Task[Any]
    began: float
    mark: str | None = None
    request: Request | None = None
    at: int | None = None
    alone: bool = True


@dataclass
class Counts:
    """How much a machine is run.

    Args:
        examples: How many examples.
        steps: How many rules each.
        longer: How many times as many examples a long run has.
    """

    examples: int
    steps: int = 50
    longer: int = 10


class Machine(RuleBasedStateMachine):
    """The processes, the callers and the checks. What it does is a subclass's to say."""

    place: ClassVar[Callable[[], Place]] = places.memory
    slow_stops: ClassVar[bool] = False
    counted: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(_listening([]))
        self.home = type(self).place()
        self.sim = Stepped(self._store)
        self.stack.callback(self.sim.loop.close)
        self.graph = self.make_graph()
        self.watcher = Runs(clock=self.sim.clock)
        self.calls: list[Call] = []
        self.judged: dict[str, Instant] = {}
        self.broken: list[str] = []
        self.seen: set[str] = set()
        self.armed = self.frozen = False
        self.numbers = 0

    def _store(self, clock: Clock) -> TraceStore:
        self.ghost = Ghost(self.home.begin(clock), clock)
        return self.ghost

    def make_graph(self) -> Graph:
        """Make the graph of every turn."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Bring everything to rest, unless something is wrong already, and clean up."""
        try:
            if not self.broken:
                self.sim.play(self.comes_to_rest)
        finally:
            self.stack.close()
            self.home.end([*self.ghost.past])
            if self.counted:
                LEDGER.counted("T4", type(self).__name__, type(self.home).__name__, 1)

    # --- steps ---

    def act(
        self,
        work: Callable[[], object] = lambda: None,
        *,
        picks: int = 0,
        who: str | None = None,
        turn: int = 0,
        seconds: float = 0,
    ) -> None:
        """Do something, let processes go on, and hold everything to the rules.

        Args:
            work: What is done first. It does not wait.
            picks: How many answers from outside come then.
            who: Whom they come to, None for anybody.
            turn: Which of those that could come.
            seconds: How much time passes then. Whoever may goes on meanwhile.
        """

        async def step() -> None:
            hand = self.sim.hand
            work()
            hand.left, hand.who, hand.turn = picks, who, turn
            await boundary()
            if seconds:
                await passed(seconds)
            await self.holds()

        self.sim.play(step)

    def process(self, name: str) -> Process:
        """Return a process that lives, a new life of it when it does not."""
        offset, rate = (86_400.0, 1.05) if name == "b" else (0.0, 1.0)
        process = self.sim.process(name, offset=offset, rate=rate)
        if not process.alive or process.runs.closed:
            process.restart()
        return process

    def thread(self, process: Process, thread_id: str) -> Thread:
        """Return a thread in a process."""
        return process.thread(thread_id, self.graph)

    def fresh(self, **says: Any) -> Input:
        """Return an input that is unlike each other one."""
        self.numbers += 1
        return Input(payload={**says, "n": self.numbers})

    def begin(
        self,
        name: str,
        process: str,
        thread_id: str,
        make: Callable[[Thread, Process], Coroutine[Any, Any, Any]],
        **facts: Any,
    ) -> None:
        """Let a caller make a call. Its answer is judged when it comes."""
        where = self.process(process)
        since = self.ghost.mark(thread_id)
        task = where.start(make(self.thread(where, thread_id), where))
        owner, life = where.runs.owner, self.ghost.lives.get(thread_id)
        now = self.sim.loop.now
        alone = not any(each.thread == thread_id and each.process is where for each in self.calls)
        call = Call(name, where, owner, thread_id, since, life, task, now, **facts, alone=alone)
        for each in self.calls:
            if each.thread == thread_id and each.process is where:
                each.alone = False
        self.calls.append(call)

    def threads(self) -> list[str]:
        """Return the threads that are there, `t-1` always among them."""
        return ["t-1", *(each for each in self.ghost.lives if each != "t-1")]

    def fault(self, kind: FaultKind, ahead: int, seconds: float = 1.3) -> None:
        """Let something go wrong at one of the next points or calls."""
        points, calls = self.sim.points, self.sim.calls
        if kind in {"crash", "freeze"}:
            points.faults = [
                *points.faults, Fault(kind, len(points.passed) + ahead, seconds=seconds)
            ]  # fmt: skip
        else:
            # Reads that fail are dull: most that fail are appends.
            name, count = "any", len(calls.passed)
            if ahead % 4:
                name, count = "append", calls.names["append"]
            at = count + 1 + ahead // 4
            calls.faults = [*calls.faults, Fault(kind, at, name, seconds=seconds)]
        self.armed = True

    def requests(self, thread_id: str) -> list[Request]:
        """Return every request of a thread, also those that wait no more."""
        life = self.ghost.lives.get(thread_id)
        events = [entry.event for entry in life.entries] if life is not None else []
        found = [CORE_EVENT_TYPES.decode(each) for each in events if each.type == "request"]
        return [each for each in found if isinstance(each, Request)]

    # --- checks ---

    def must(self, fact: bool, problem: str) -> None:
        """Note what is wrong."""
        if not fact:
            self.broken.append(problem)

    async def holds(self) -> None:
        """Hold all that is known to the rules.

        Raises:
            AssertionError: A rule is broken.
        """
        for call in [each for each in self.calls if each.task.done()]:
            self.calls.remove(call)
            self.judge(call)
        for thread_id in list(self.ghost.past):
            now = self.ghost.now(thread_id)
            if self.judged.get(thread_id) != now:
                self.judged[thread_id] = now
                await self.looked_at(thread_id, now)
        world, witness, loop = self.sim.world, self.sim.witness, self.sim.loop
        self.broken += [*self.ghost.broken, *map(str, witness.broken), *map(str, world.refused)]
        self.broken += [f"nobody handled {complaint}" for complaint in loop.complaints]
        assert not self.broken, self.broken[0]

    async def looked_at(self, thread_id: str, now: Instant) -> None:
        """Hold a thread's log to the rules, and its status to the reference."""
        page = await self.ghost.read(thread_id)
        self.broken += problems(thread_id, page.entries)
        thread = Thread(thread_id, None, self.ghost, self.watcher)
        self.same_status(thread_id, await thread.status(), now)
        self.broken += self.wrong_with(now)

    def wrong_with(self, now: Instant) -> list[str]:
        """Return what is wrong with a log by the graph that made it."""
        return []

    def same_status(self, thread_id: str, status: Status, *instants: Instant) -> None:
        """Hold a status to the reference at one of some instants."""
        told = (status.state, [entry.position for entry in status.pending], status.position)
        true = [_status(each) for each in instants]
        self.must(told in true, f"I12: the status of {thread_id!r} is {told}, not {true[-1]}")

    # --- answers ---

    def judge(self, call: Call) -> None:
        """Hold the answer of a caller to what was true while it waited."""
        error = None if call.task.cancelled() else call.task.exception()
        if call.task.cancelled():
            self.must(False, f"{call.name} was cancelled")
        elif error is None:
            self.seen.add(f"{call.name} done")
            getattr(self, f"_{call.name}_done", self._done)(call, call.task.result())
        else:
            self.seen.add(f"{call.name} got {type(error).__name__}")
            excuse = EXCUSES.get(type(error), _no_excuse)
            fits = excuse(self, call, error)
            told = f"{call.name} of {call.thread!r} in {call.process.name!r} got {error!r}"
            self.must(fits, f"I27: {told}, and nothing was so")
        if call.mark is not None:
            self._recorded(call, error)

    def instants(self, call: Call) -> list[Instant]:
        """Return how a call's thread stood while the call waited."""
        return list(self.ghost.instants(call.thread, call.since))

    def _recorded(self, call: Call, error: BaseException | None) -> None:
        """Hold the log to what the caller of an input was told: it is there once, or not at all."""
        rows = [
            fact
            for life in self.ghost.every.get(call.thread, ())
            for fact in life.facts
            if fact.is_from_outside and _mark(fact.data["payload"]) == call.mark
        ]
        refused = (ThreadActiveError, InputDeniedError, ThreadExistsError, UnknownThreadError)
        if error is None or not isinstance(error, (*refused, *UNSURE)):
            ran_after = call.name == "send" and error is not None
            self.must(len(rows) == 1 or ran_after, f"I2: an input is there {len(rows)} times")
        elif isinstance(error, refused[:3]):
            self.must(not rows, f"I20: an input that got {error!r} is there")
        self.must(len(rows) <= 1, f"I2: an input is there {len(rows)} times")

    def _done(self, call: Call, answer: Any) -> None:
        """Hold an answer of which nothing more is known than that it came."""

    def _resume_done(self, call: Call, trace: Trace) -> None:
        told = [(event.stream, event.seq, event.type) for event in trace]
        lives = self.ghost.every.get(call.thread, [])
        logs = [[fact[:3] for fact in life.facts[: len(told)]] for life in lives]
        self.must(told in [*logs, []], f"I1: a run of {call.thread!r} gave another trace")
        stopped = call.process.runs.closed or not call.alone
        if stopped or self.armed:
            return
        states = {reference.status(each.log, held=False) for each in self.instants(call)}
        self.must(states != {"interrupted"}, f"I26: a run of {call.thread!r} left it interrupted")

    _send_done = _resume_done

    def _cancel_done(self, call: Call, status: Status) -> None:
        self.must(status.state == "cancelled", f"a cancelled turn is {status.state}")
        found = [each for each in self.instants(call) if _has_cancelled(each)]
        self.must(bool(found), "I16: a cancel was answered and is not there")

    def _status_done(self, call: Call, status: Status) -> None:
        self.same_status(call.thread, status, *self.instants(call))

    def _fork_done(self, call: Call, thread: Thread) -> None:
        known = self.ghost.every.get(thread.id, [])
        self.must(bool(known), "I19: a fork is not there")

    def _delete_done(self, call: Call, answer: None) -> None:
        gone = any(each.life is not call.life for each in self.instants(call))
        self.must(gone or call.life is None, "I18: a deleted thread is there")

    def _close_done(self, call: Call, answer: None) -> None:
        held = [name for name in self.ghost.lives if self.ghost.now(name).owner == call.owner]
        # A process that was frozen past its deadline asks nothing more of the store.
        excused = self.armed or self.frozen
        self.must(not held or excused, f"C4: the leases of {held} were not given back")

    def _stop_done(self, call: Call, answer: None) -> None:
        late = self.sim.loop.now > call.began
        self.must(not late or self.slow_stops or self.armed or self.frozen, "C4: a stop took time")

    def _follow_done(self, call: Call, entries: list[LogEntry[Event]]) -> None:
        self._watch_done(call, entries)
        instants = self.instants(call)
        free = next((at for at, each in enumerate(instants) if not each.held), len(instants))
        ends = {each.position for each in instants[free:]}
        gone = any(each.life is not call.life for each in instants)
        told = f"I21: a follower of {call.thread!r} ended after {len(entries)}, not one of {ends}"
        self.must(gone or len(entries) in ends, told)

    def _watch_done(self, call: Call, entries: list[LogEntry[Event]]) -> None:
        told = [(entry.position, entry.event.stream, entry.event.seq) for entry in entries]
        lives = self.ghost.every.get(call.thread, [])
        logs = [
            [(at, fact.stream, fact.seq) for at, fact in enumerate(life.facts[: len(told)], 1)]
            for life in lives
        ]
        self.must(told in [*logs, []], f"I21: a follower of {call.thread!r} got {told}")

    # --- the end ---

    async def comes_to_rest(self) -> None:
        """End all faults, and let one process alone bring every thread to its rest."""
        self.sim.hand.left, self.sim.hand.who = FOREVER, None
        self.sim.points.faults = self.sim.calls.faults = ()
        self.settle_moods()
        await boundary()
        for name in ("a", "b"):
            self.sim.process(name).kill()
        await self.holds()
        self.calls.clear()
        # What is on its way to the store lands, and what the dead held runs out.
        await passed(3 * TTL)
        process = self.process("z")
        for thread_id in list(self.ghost.lives):
            await process.call(self._rested(process, thread_id))
        await self.holds()

    def settle_moods(self) -> None:
        """Let whatever acts be honest from now on."""

    async def _rested(self, process: Process, thread_id: str) -> None:
        thread = self.thread(process, thread_id)
        for _ in range(MOST_ROUNDS):
            status = await thread.status()
            now = self.ghost.now(thread_id)
            opened = reference.intents(now.log[reference.turn_at(now.log) :])
            if status.pending:
                request = status.pending[0].event
                await thread.submit(self.fresh(ok=True), answering=request)
            elif status.state in {"finished", "cancelled", "failed"} and not opened:
                if not await self._goes_on(thread, now):
                    return
            elif not await self._goes_on(thread, now):
                break
        self.must(False, f"I26: {thread_id!r} does not come to rest: {await thread.status()}")

    async def _goes_on(self, thread: Thread, before: Instant) -> bool:
        """Resume a thread, and tell whether anything came of it."""
        await thread.resume()
        return self.ghost.now(thread.id).position > before.position


def _status(now: Instant) -> tuple[str, list[int], int]:
    log = now.log
    waiting = {(fact.stream, fact.seq) for fact in reference.pending(log)}
    places = [at for at, fact in enumerate(log, 1) if (fact.stream, fact.seq) in waiting]
    return reference.status(log, now.held), places, now.position


def _has_cancelled(now: Instant) -> bool:
    return any(fact.type == "cancelled" for fact in now.log)


def _mark(payload: Any) -> str | None:
    return str(payload["n"]) if isinstance(payload, dict) and "n" in payload else None


# --- what an error may say ---


UNSURE = (StoreUnavailableError, OutcomeUnknownError, LeaseLostError, LeaseHeldError)
Excuse = Callable[[Machine, Call, Any], bool]


def _no_excuse(machine: Machine, call: Call, error: BaseException) -> bool:
    return False


def _active(machine: Machine, call: Call, error: ThreadActiveError) -> bool:
    return any(not reference.takes_input(each.log, each.held) for each in machine.instants(call))


def _denied(machine: Machine, call: Call, error: InputDeniedError) -> bool:
    asked = call.request and (call.request.stream, call.request.seq)
    return any(
        asked not in {(fact.stream, fact.seq) for fact in reference.pending(each.log)}
        for each in machine.instants(call)
    )


def _nothing(machine: Machine, call: Call, error: NothingToCancelError) -> bool:
    instants = machine.instants(call)
    turns = {(each.life, reference.turn_at(each.log)) for each in instants}
    idle = any(not reference.can_cancel(each.log, each.held) for each in instants)
    return idle or len(turns) > 1


def _held(machine: Machine, call: Call, error: LeaseHeldError) -> bool:
    return any(each.held for each in machine.instants(call))


def _lost(machine: Machine, call: Call, error: LeaseLostError) -> bool:
    return call.owner in machine.ghost.losers or machine.frozen or machine.armed


def _unknown(machine: Machine, call: Call, error: UnknownThreadError) -> bool:
    return any(each.life is None or each.life is not call.life for each in machine.instants(call))


def _taken(machine: Machine, call: Call, error: ThreadExistsError) -> bool:
    return any(each.life is not None for each in machine.instants(call))


def _no_cut(machine: Machine, call: Call, error: PositionOutOfRangeError) -> bool:
    at = call.at or 0
    return any(
        each.life is not None and (at > each.position or not is_cut(each.life, at))
        for each in machine.instants(call)
    )


def _fails(machine: Machine, call: Call, error: Exception) -> bool:
    return machine.armed


EXCUSES: dict[type[BaseException], Excuse] = {
    ThreadActiveError: _active,
    InputDeniedError: _denied,
    NothingToCancelError: _nothing,
    LeaseHeldError: _held,
    LeaseLostError: _lost,
    UnknownThreadError: _unknown,
    ThreadExistsError: _taken,
    PositionOutOfRangeError: _no_cut,
    StoreUnavailableError: _fails,
    OutcomeUnknownError: _fails,
}


# --- how machines are run ---


def case(machine: type[Machine], counts: Counts, place: Callable[[], Place]) -> Any:
    """Return a test of a machine on a store.

    Args:
        machine: The machine.
        counts: How much is run: more examples, twice as long, in a long run.
        place: The store.
    """
    on: Any = type(machine.__name__, (machine,), {"place": staticmethod(place), "counted": True})
    test: Any = on.TestCase
    test.settings = how(counts)
    return test


def how(counts: Counts) -> settings:
    """Return how a machine is run: always alike in the usual run, at random in a long one."""
    long = SOAK > 1
    return settings(
        max_examples=counts.examples * (counts.longer if long else 1),
        stateful_step_count=counts.steps * (2 if long else 1),
        derandomize=not long,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def hunt(counts: Counts) -> settings:
    """Return how a machine is run that is to find a bug, which need not be made small."""
    return settings(how(counts), phases=[Phase.generate], report_multiple_bugs=False)
