"""Scenarios that planted bugs fall into: each is a situation that a rule was made for."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from pytest_soev.world import RecordingEffector, Scenario, Simulation, boundary, passed
from soev.domain import (
    EffectIntent,
    EffectResult,
    Element,
    Event,
    Head,
    Input,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    ModelOutput,
    StoredEvent,
    ToolCall,
    Trace,
    TraceStore,
    TransientError,
    UnknownThreadError,
)
from soev.runtime import CORE_EVENT_TYPES, Effector, Graph, GraphMismatchError
from tests.reliability.graphs import Mail, Stage, Team, gathers, line, mailing, says
from tests.reliability.races import TTL, Race, Work, race, resumed
from tests.reliability.rules import Story, log, open_intents

CANARY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def reacquired(late: Callable[[Any, Lease], Work]) -> Callable[[Race], Work]:
    """Make a scenario that takes a lease, loses it, takes it again, and tries the first one.

    Args:
        late: What is tried under the first lease. It is refused.
    """

    async def run(race: Race) -> None:
        old = await two_leases_later(race)
        with suppress(LeaseLostError):
            await late(race.sim.store, old)
            race.must(False, "I3: a call under an old lease was taken")

    return run


async def two_leases_later(race: Race) -> Lease:
    """Take a lease, let another process take it, take it again, and return the first."""
    await race.opened()
    store = race.sim.store
    first = await store.acquire("t-1", "a", 3, request="r-1")
    await store.release(first)
    second = await store.acquire("t-1", "b", 3, request="r-2")
    await store.release(first)
    held = (await store.head("t-1")).lease
    race.must(held is not None and held.owner == "b", "L8: an old release ended a lease")
    await store.release(second)
    await store.acquire("t-1", "a", 3, request="r-3")
    return first


async def late_renewal(store: TraceStore, lease: Lease) -> None:
    """Renew a lease."""
    await store.renew(lease, 3)


async def late_append(store: TraceStore, lease: Lease) -> None:
    """Append under a lease, after the head as it is now."""
    head = await store.head("t-1")
    event = StoredEvent("model_output", "{}")
    await store.append("t-1", [event], after=head, batch="late", lease=lease)


async def reopened(race: Race) -> None:
    """Open a thread again after a delete: the lease and the head of its first life are over."""
    # Beneath the witness, which knows the lives of a thread by the same names as the store.
    store: TraceStore = race.sim.witness.store
    event = StoredEvent("opened", '{"agent":"a"}')
    await store.append("t-1", [event], after=Head(), batch="b-1")
    lease = await store.acquire("t-1", "a", 3, request="r-1")
    head = await store.head("t-1")
    await store.delete("t-1")
    await store.append("t-1", [event], after=Head(), batch="b-2")
    await store.acquire("t-1", "a", 3, request="r-2")
    with suppress(UnknownThreadError, LeaseLostError):
        await store.append("t-1", [event], after=head, batch="b-3", lease=lease)
        race.must(False, "L1: an append of a deleted life was taken")
    with suppress(UnknownThreadError, LeaseLostError):
        await store.renew(lease, 3)
        race.must(False, "L1: the lease of a deleted life was renewed")


async def deleted(race: Race) -> None:
    """Delete a thread: no row of it is left."""
    await race.opened()
    await race.b.call(race.thread(race.b).delete())
    left = await race.sim.witness.store.head("t-1")
    if left.incarnation is not None:
        raise AssertionError("I18: the row of a deleted thread is left")


async def taken_over(race: Race) -> None:
    """Freeze a process past its lease, run the turn elsewhere, and let the first go on."""
    await race.opened()
    running = race.a.start(race.thread(race.a).resume())
    while not (race.a.frozen or running.done()):
        await boundary()
    await passed(TTL + 1)
    await race.b.call(resumed(race.thread(race.b)))
    before = await race.types()
    race.a.thaw()
    try:
        await running
    except LeaseLostError as error:
        race.lost(error)
    race.must(await race.types() == before, "I3: a process that lost its lease appended")
    race.must(before.count("effect_result") == 1, "I7: the effect has not one result")
    race.must(max(race.sim.world.attempts.values()) == 1, "L4: the act was begun twice")


async def overtaken(race: Race) -> None:
    """Freeze a process before it appends, and thaw it when another has taken the lease."""
    await race.opened()
    running = race.a.start(race.thread(race.a).resume())
    while not (race.a.frozen or running.done()):
        await boundary()
    await passed(TTL + 1)
    await race.b.call(race.b.store.acquire("t-1", "b", TTL, request="r-1"))
    before = await race.types()
    race.a.thaw()
    with suppress(LeaseLostError):
        await running
    race.must(await race.types() == before, "I3: a process that lost its lease appended")


async def long_step(race: Race) -> None:
    """Run a step that is longer than a lease, and try to take it over meanwhile."""
    await race.opened()

    async def steal() -> object:
        await passed(2.5 * TTL)
        return await race.thread(race.b).resume()

    ran, stolen = await race.run(race.thread(race.a).resume(), steal())
    race.must(not race.only(ran), "L3: the lease was not renewed")
    race.must(isinstance(stolen, LeaseHeldError), f"L12: a second run came to {stolen!r}")


def slow(stage: Stage) -> Graph:
    """Make a graph of a step that takes four times the time of a lease."""

    async def step(view: Trace) -> Sequence[Event]:
        await passed(4 * TTL)
        return [ModelOutput(text="At last.")]

    return line(step=step)


class Thing(Element):
    """A thing."""

    tag: ClassVar[str] = "thing"


class Slot(Event):
    """An event with a field for any thing."""

    type: ClassVar[str] = "slot"
    thing: Thing


class Bigger(Thing):
    """A thing with a field more, which its field's class does not know."""

    tag: ClassVar[str] = "bigger"
    more: str = "more"


def hostile(what: str) -> Callable[[Stage], Graph]:
    """Make a graph of a step that returns, or raises, what must not be recorded."""

    async def step(view: Trace) -> Sequence[Event]:
        await boundary()
        if what == "secret":
            raise RuntimeError(f"The key {CANARY} was refused.")
        if what == "slot":
            return [Slot(thing=Bigger(id="b-1"))]
        return [ModelOutput(calls=(ToolCall(id="c", name="look", arguments={"x": float("nan")}),))]

    return lambda stage: line(step=step)


async def refused(race: Race) -> None:
    """Run a step whose outcome cannot be recorded: a Failure says so."""
    await race.a.call(
        race.a.thread("t-1", race.graph, CORE_EVENT_TYPES.including(Slot, Thing)).send(
            Input(payload="Hello")
        )
    )
    race.must(await race.types() == ["input", "failure"], f"D3: the log is {await race.types()}")
    text = "".join(entry.event.data for entry in await log(race.sim.store, "t-1"))
    race.must(CANARY not in text, "I24: a secret is in the log")


async def forked(race: Race) -> None:
    """Fork a thread whose process died in the act: the fork recovers, and performs nothing."""
    await race.opened()
    running = race.a.start(race.thread(race.a).resume())
    while not (race.sim.world.count() or running.done()):
        await boundary()
    race.a.kill()
    opened = await open_intents(race.sim.store, "t-1")
    if not opened:
        return
    fork = await race.b.call(race.thread(race.b).fork(at=2))
    copied = await open_intents(race.sim.store, fork.id)
    source = [each.event for each in await log(race.sim.store, "t-1")]
    copy = [each.event for each in await log(race.sim.store, fork.id)]
    race.must(len(copy) == 2 and source[0] == copy[0], "I19: the fork is no prefix")
    race.must(copied == opened, "F1: the id of a copied intent changed")
    await race.b.call(resumed(fork))
    race.must(race.sim.world.count() == 1, "I19: the fork acted")


async def status_and_finish(race: Race) -> None:
    """Ask for the status of a turn that comes to its end: it is never interrupted."""
    await race.opened()
    seen: list[str] = []

    async def look() -> None:
        while (await race.sim.store.head("t-1")).lease is None:
            if (await race.types())[-1] == "ended":
                return
            await boundary()
        seen.extend([(await race.thread(race.b).status()).state for _ in range(4)])

    await race.run(race.thread(race.a).resume(), look())
    race.must(not set(seen) - {"running", "finished"}, f"S7: the states were {seen}")


async def cancel_and_go_on(race: Race) -> None:
    """Cancel a turn and open the next at once: a run of its own runs it."""
    await race.opened()
    thread = race.thread(race.a)
    running = race.a.start(thread.resume())
    await passed(1)
    await race.b.call(race.thread(race.b).cancel())
    await race.b.call(race.thread(race.b).submit(Input(payload="Next")))
    await asyncio.wait((running,))
    after = await race.types()
    race.must(after == ["input", "cancelled", "input"], f"B6: the dying run left {after}")
    await race.a.call(resumed(thread))
    race.must((await race.types())[-1] == "ended", "B6: the next turn did not end")


async def graph_changed(race: Race) -> None:
    """Resume a thread whose turn ended, with a graph that no longer knows its nodes."""
    await race.opened()
    try:
        await race.a.call(race.thread(race.a).resume())
        before = await race.types()
        await race.b.call(race.b.thread("t-1", line(other=says("other"))).resume())
    except GraphMismatchError as error:
        race.must(False, f"I29: an ended turn was judged by its graph: {error}")
        return
    race.must(await race.types() == before, "I29: an ended turn went on")


async def stopped_in_act(race: Race) -> None:
    """Stop a run in an act that its policy waits for: the result is recorded."""
    await race.opened()
    running = race.a.start(race.thread(race.a).resume())
    while not (race.sim.world.count() or running.done()):
        await boundary()
    await race.a.call(race.a.runs.stop("t-1"))
    await asyncio.wait((running,))
    after = await race.types()
    race.must("effect_result" in after, "C4: what the act came to was thrown away")
    await at_rest(race)


async def at_rest(race: Race) -> None:
    """See that a stopped run holds no lease and records nothing more."""
    after = await race.types()
    race.must((await race.sim.store.head("t-1")).lease is None, "C4: the lease was kept")
    await passed(1)
    race.must(await race.types() == after, "C4: something was recorded after `stop`")


async def stopped_after_act(race: Race) -> None:
    """Stop a run at the moment at which its act returns: the result is recorded."""
    await race.opened()
    effector = LastMoment(race)
    mail = race.stage.effect()
    mail.effector = effector
    thread = race.a.thread("t-1", line(mail=mail, end=says("end")))
    await asyncio.wait((race.a.start(thread.resume()),))
    assert effector.stopping is not None
    await effector.stopping
    race.must("effect_result" in await race.types(), "F7: what was known was thrown away")
    await at_rest(race)


async def stopped_in_append(race: Race) -> None:
    """Stop a run whose append waits for an answer: what its act came to is in the log."""
    await race.opened()
    running = race.a.start(race.thread(race.a).resume())
    # An append that failed is repeated after a hundredth of a second.
    await passed(0.005)
    await race.a.call(race.a.runs.stop("t-1"))
    await asyncio.wait((running,))
    acted = race.sim.world.count() > 0
    race.must(not acted or "effect_result" in await race.types(), "C1: an append was cut")
    await at_rest(race)


async def swallowed(race: Race) -> None:
    """Stop a step that swallows its cancel: the run ends, and its worker is asked for no more."""
    workers: list[asyncio.Task[Any]] = []

    async def step(view: Trace) -> Sequence[Event]:
        worker = asyncio.current_task()
        assert worker is not None
        workers.append(worker)
        with suppress(asyncio.CancelledError):
            await passed(4 * TTL)
        return [ModelOutput(text="Never mind.")]

    await race.opened()
    running = race.a.start(race.a.thread("t-1", line(step=step)).resume())
    await passed(1)
    await race.a.call(race.a.runs.stop("t-1"))
    await asyncio.wait((running,))
    race.must(await race.types() == ["input"], "C2: a stopped step was recorded")
    race.must(not workers[0].cancelling(), "C2: a swallowed cancel was not taken back")


async def closed_in_step(race: Race) -> None:
    """Close a process in a long step: it ends now."""
    await race.opened()
    running = race.a.start(race.thread(race.a).resume())
    await passed(1)
    before = race.sim.loop.now
    await race.a.call(race.a.runs.close(0))
    race.must(race.sim.loop.now - before < TTL, "C2: the run went on")
    await asyncio.wait((running,))


async def waits(
    trace: Trace, intent: EffectIntent, effector: Effector, performing: "asyncio.Task[EffectResult]"
) -> Sequence[Event]:
    """Decide by waiting for the act."""
    return [await performing]


class LastMoment(RecordingEffector):
    """An effector that has its run stopped in the step in which it returns.

    Args:
        race: Whose first process runs the act.
    """

    def __init__(self, race: Race) -> None:
        super().__init__(race.sim.world)
        self._process = race.a
        self.stopping: asyncio.Task[None] | None = None

    async def perform(self, intent: EffectIntent) -> EffectResult:
        result = await super().perform(intent)
        self.stopping = self._process.start(self._process.runs.stop("t-1"))
        return result


class Wire(RecordingEffector):
    """An effector whose request lands four seconds after its caller gave up."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim.world, timeout=5)
        self._sim, self._sent = sim, False

    async def perform(self, intent: EffectIntent) -> EffectResult:
        if self._sent:
            return await super().perform(intent)
        self._sent = True
        self._sim.loop.in_store(self._sim.loop.call_later, 4, self.world.act, intent)
        raise TransientError("The connection broke.")


def wired(stage: Stage) -> Graph:
    """Make a graph of an effect whose first request is still on its way."""
    mail: Mail = stage.effect()
    mail.effector = Wire(stage.sim)
    return line(mail=mail, end=says("end"))


async def recovered_early(race: Race) -> None:
    """Resume at once after an act whose request is still on its way."""
    await race.opened()
    for _ in range(2):
        await race.a.call(resumed(race.thread(race.a)))
    await passed(10)
    race.must(race.sim.world.count() == 1, "F4: the world was asked too early")


async def handed_back(race: Race) -> None:
    """Resume a delegation whose `hand_back` failed for a moment: no task is opened again."""
    await race.opened()
    for _ in range(2):
        await race.a.call(resumed(race.thread(race.a)))
    race.must((await race.types()).count("input") == 3, "SEQ: the tasks were opened again")
    race.must((await race.types())[-1] == "ended", "SEQ: the turn did not end")


def unsteady_team(stage: Stage) -> Graph:
    """Make a graph of a delegation whose first `hand_back` fails."""
    return line(team=Team(lambda: line(work=says("worked")), unsteady=["Wait."]), end=gathers)


def trap(
    name: str,
    run: Callable[[Race], Work],
    make: Callable[[Stage], Graph] = mailing,
) -> Scenario[Story]:
    """Make the scenario of a trap."""
    return race(name, run, make)


ABA = trap("re-acquired lease, and an append", reacquired(late_append))
RENEWED = trap("re-acquired lease, and a renewal", reacquired(late_renewal))
REOPENED = trap("re-opened thread", reopened)
DELETED = trap("deleted thread", deleted)
TAKEOVER = trap("frozen past the lease", taken_over)
OVERTAKEN = trap("frozen, and another holds the lease", overtaken)
LONG = trap("step longer than a lease", long_step, slow)
NAN = trap("value that JSON cannot hold", refused, hostile("nan"))
SUBCLASS = trap("field of a subclass", refused, hostile("slot"))
SECRET = trap("secret in an error", refused, hostile("secret"))
FORK = trap("fork of an open intent", forked)
STATUS = trap("status and finish", status_and_finish)
NEXT = trap("cancel, then a new input", cancel_and_go_on, slow)
CHANGED = trap("changed graph", graph_changed)
STOPPED = trap(
    "stop in an act", stopped_in_act, lambda stage: line(mail=stage.effect(cancellation=waits))
)
STOPPED_AFTER = trap("stop as an act returns", stopped_after_act)
STOPPED_APPEND = trap("stop in an append", stopped_in_append)
SWALLOWED = trap("step that swallows its cancel", swallowed)
CLOSED_STEP = trap("close in a step", closed_in_step, slow)
WIRE = trap("request still on its way", recovered_early, wired)
HAND_BACK = trap("transient failure of `hand_back`", handed_back, unsteady_team)
