"""The nine races: two callers, of whom each order has one winner and a loser with a named error."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_soev.world import (
    Process,
    Scenario,
    Setting,
    Simulation,
    Talk,
    carry_on,
    passed,
    raced,
)
from soev.domain import (
    Event,
    Input,
    LeaseHeldError,
    LeaseLostError,
    LogEntry,
    Request,
    Trace,
    UnknownThreadError,
)
from soev.runtime import (
    Graph,
    InputDeniedError,
    NothingToCancelError,
    Status,
    Thread,
    ThreadActiveError,
)
from tests.reliability.graphs import Stage, asks, line, mailing, says, told
from tests.reliability.rules import Story, log, open_intents

TTL = 9.0
NAMES: dict[type, str] = {
    LeaseHeldError: "lease held elsewhere",
    LeaseLostError: "lease lost",
    NothingToCancelError: "nothing left to cancel",
    InputDeniedError: "response denied",
    ThreadActiveError: "thread was active",
    UnknownThreadError: "thread deleted under a run",
}

Work = Coroutine[Any, Any, Any]


@dataclass
class Race:
    """Two processes, a thread of each, and what was found wrong."""

    sim: Simulation
    stage: Stage
    graph: Graph
    story: Story

    @property
    def a(self) -> Process:
        """The first process."""
        return self.sim.process("a")

    @property
    def b(self) -> Process:
        """The second process."""
        return self.sim.process("b")

    def thread(self, process: Process, thread_id: str = "t-1") -> Thread:
        """Return the thread in a process."""
        return process.thread(thread_id, self.graph)

    async def opened(self) -> None:
        """Record the first input."""
        await self.a.call(self.thread(self.a).submit(Input(payload="Hello")))

    async def run(self, first: Work, second: Work) -> list[Any]:
        """Let both begin at once, and return what each came to."""
        return await raced(self.a.start(first), self.b.start(second))

    def lost(self, error: BaseException) -> None:
        """Note what a caller was told."""
        if type(error) in NAMES:
            self.story.seen.append(NAMES[type(error)])

    def only(self, came: object, *allowed: type) -> bool:
        """Tell whether a caller lost, and note an error that no loser of this race may get."""
        if not isinstance(came, BaseException):
            return False
        self.lost(came)
        if not isinstance(came, allowed):
            self.story.broken.append(f"a loser got {came!r}")
        return True

    def must(self, fact: bool, problem: str) -> None:
        """Note what is wrong."""
        if not fact:
            self.story.broken.append(problem)

    async def types(self, thread_id: str = "t-1") -> list[str]:
        """Return the types of the events of a thread."""
        return [entry.event.type for entry in await log(self.sim.store, thread_id)]

    async def rest(self) -> None:
        """Let the thread come to its end, and look at it."""
        status: Status = await self.a.call(self.thread(self.a).status())
        if await open_intents(self.sim.store, "t-1") and status.state == "cancelled":
            self.story.seen.append("intent open after Cancelled")
            await self.a.call(resumed(self.thread(self.a)))
        self.must(not await open_intents(self.sim.store, "t-1"), "an intent is open for ever")
        self.must(max(self.sim.world.acts.values(), default=0) <= 1, "an act happened twice")


async def resumed(thread: Thread) -> Trace:
    """Resume a thread as soon as nobody else runs it."""
    while True:
        try:
            return await thread.resume()
        except LeaseHeldError:
            await passed(TTL / 3)


def race(
    name: str, run: Callable[[Race], Work], make: Callable[[Stage], Graph] = mailing
) -> Scenario[Story]:
    """Make the scenario of a race."""

    async def play(sim: Simulation) -> Story:
        stage, story = Stage(sim), Story()
        await run(Race(sim, stage, make(stage), story))
        return await told(sim, stage, story)

    return Scenario(name, play, Setting(lease_ttl=TTL))


async def resume_resume(race: Race) -> None:
    """Resume in two processes: one runs the turn, the other is refused or finds it ended."""
    await race.opened()
    a, b = race.thread(race.a), race.thread(race.b)
    came = await race.run(a.resume(), b.resume())
    lost = [race.only(each, LeaseHeldError) for each in came]
    race.must(not all(lost), "nobody ran the turn")
    race.must((await race.types())[-1] == "ended", "the turn did not end")
    race.must(sum(race.sim.world.acts.values()) == 1, "the act did not happen once")


async def resume_cancel(race: Race) -> None:
    """Cancel a turn that runs elsewhere: it is cancelled, or it ended before."""
    await race.opened()
    run, cancel = await race.run(
        resumed(race.thread(race.a)),
        race.thread(race.b).cancel(),
    )
    race.only(run)
    types = await race.types()
    if race.only(cancel, NothingToCancelError):
        race.must("cancelled" not in types, "a refused cancel was recorded")
        race.must(types[-1] == "ended", "the turn is neither over nor cancelled")
    else:
        race.must(types.count("cancelled") == 1, "Cancelled is not there once")
        if "effect_result" in types[types.index("cancelled") :]:
            race.story.seen.append("result after Cancelled")
        race.story.seen.append("cancelled in the log")
    await race.rest()


async def resume_delete(race: Race) -> None:
    """Delete a thread that runs elsewhere: nothing of it is there, nor comes later."""
    await race.opened()
    run, delete = await race.run(race.thread(race.a).resume(), race.thread(race.b).delete())
    race.only(run, UnknownThreadError, LeaseLostError)
    race.must(delete is None, f"delete came to {delete!r}")
    await passed(3 * TTL)
    race.must(await race.types() == [], "something was left of a deleted thread")
    race.must((await race.sim.store.head("t-1")).incarnation is None, "its head is left")


async def asked(race: Race) -> Request:
    """Run a turn until it asks."""
    await race.opened()
    trace: Trace = await race.a.call(race.thread(race.a).resume())
    request = trace.latest(Request)
    assert request is not None
    return request


async def respond_cancel(race: Race) -> None:
    """Answer a request while its turn is cancelled: the response is first, or refused."""
    request = await asked(race)
    answer, cancel = await race.run(
        race.thread(race.a).submit(Input(payload=True), answering=request),
        race.thread(race.b).cancel(),
    )
    types = await race.types()
    denied = race.only(answer, InputDeniedError)
    race.must(not race.only(cancel), "the cancel lost")
    wanted = ["input", "request", *([] if denied else ["input"]), "cancelled"]
    race.must(types == wanted, f"the log is {types}")


async def respond_respond(race: Race) -> None:
    """Answer one request twice: one response is recorded, and the other is refused."""
    request = await asked(race)
    came = await race.run(
        race.thread(race.a).submit(Input(payload=1), answering=request),
        race.thread(race.b).submit(Input(payload=2), answering=request),
    )
    race.must(sum(race.only(each, InputDeniedError) for each in came) == 1, "not one loser")
    race.must(await race.types() == ["input", "request", "input"], "not one response")


async def fork_run(race: Race) -> None:
    """Fork a thread that runs: the copy is a prefix, and the source goes on as if alone."""
    await race.opened()
    _, fork = await race.run(race.thread(race.a).resume(), forks(race.thread(race.b)))
    if race.only(fork):
        return
    source = [each.event for each in await log(race.sim.store, "t-1")]
    copy = [each.event for each in await log(race.sim.store, fork.id)]
    race.must(copy == source[: len(copy)], "the fork is no prefix")
    race.must((await race.types())[-1] == "ended", "the source did not end")
    acts = race.sim.world.count()
    recovers = bool(await open_intents(race.sim.store, fork.id))
    await race.b.call(carry_on(race.b, lambda: race.graph, Talk(thread_id=fork.id)))
    new = race.sim.world.count() - acts
    race.must(not (recovers and new), "a fork performed a copied intent")
    race.must((await race.types(fork.id))[-1] == "ended", "the fork did not end")


async def forks(thread: Thread) -> Thread:
    """Fork a thread at its end."""
    return await thread.fork(at=(await thread.status()).position)


async def renew_steal(race: Race) -> None:
    """Renew a lease around its end while another process takes it: one of them has it."""
    await race.opened()
    lease = await race.a.call(race.a.store.acquire("t-1", "a", 3, request="r-1"))

    async def renew() -> object:
        await passed(3)
        return await race.a.store.renew(lease, 3)

    async def steal() -> object:
        await passed(3)
        return await race.b.store.acquire("t-1", "b", 3, request="r-2")

    renewed, stolen = await race.run(renew(), steal())
    lost = [race.only(renewed, LeaseLostError), race.only(stolen, LeaseHeldError)]
    race.must(sum(lost) == 1, f"{renewed!r} and {stolen!r}")
    now = (await race.sim.store.head("t-1")).lease
    race.must(now is not None and now.owner == ("b" if lost[0] else "a"), f"{now!r} holds it")


async def close_submit(race: Race) -> None:
    """Close a process while the next input comes: it is taken when the turn is over."""
    await race.opened()
    running = race.a.start(race.thread(race.a).resume())

    async def submit() -> LogEntry[Event]:
        return await race.thread(race.b).submit(Input(payload="Next"))

    closed, submitted = await race.run(race.a.runs.close(0), submit())
    race.only(closed)
    (ran,) = await raced(running)
    race.only(ran)
    after = await race.types()
    if race.only(submitted, ThreadActiveError):
        race.story.seen.append("turn interrupted")
        race.must(after.count("input") == 1, "a refused input was recorded")
    else:
        race.must(after.count("input") == 2, "the input is not there")
        race.must(after[-2] == "ended", "the input came into a turn that was not over")
    race.must((await race.sim.store.head("t-1")).lease is None, "the lease was not given back")
    await passed(3 * TTL)
    race.must(await race.types() == after, "something was recorded after `close`")
    await race.b.call(resumed(race.thread(race.b)))
    await race.rest()


async def follow_finish(race: Race) -> None:
    """Follow a turn to its end: every event comes once, in order, the last one too."""
    await race.opened()
    collected: Sequence[LogEntry[Event]]
    _, collected = await race.run(race.thread(race.a).resume(), followed(race.thread(race.b)))
    if race.only(collected):
        return
    places = [entry.position for entry in collected]
    whole = list(range(1, len(await race.types()) + 1))
    # One that came before the lease was taken ends at once, with what was there.
    race.must(places in (whole, [1]), f"follow gave {places} of {whole}")


async def followed(thread: Thread) -> Sequence[LogEntry[Event]]:
    """Return what a follower is given."""
    return [entry async for entry in thread.follow()]


def speaking(stage: Stage) -> Graph:
    """Make a graph of two steps."""
    return line(one=says("one"), two=says("two"))


RACES = (
    race("resume and resume", resume_resume),
    race("resume and cancel", resume_cancel),
    race("resume and delete", resume_delete),
    race("respond and cancel", respond_cancel, lambda stage: line(ask=asks, end=says("end"))),
    race("respond and respond", respond_respond, lambda stage: line(ask=asks, end=says("end"))),
    race("fork and run", fork_run),
    race("renew and steal", renew_steal, speaking),
    race("close and submit", close_submit),
    race("follow and finish", follow_finish, speaking),
)
