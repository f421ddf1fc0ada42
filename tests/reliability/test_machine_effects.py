"""Machine (c): effects in a world that is honest, lies or is silent."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from pytest_soev.world import Honesty, Process, boundary, passed
from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Request,
    Trace,
    TransientError,
)
from soev.runtime import EffectCancellation, Effector, Graph, Thread, abandon
from tests.reliability import places, reference
from tests.reliability.callers import ALL, DEEDS, SOMEWHERE, Callers, Where, resumed, steering
from tests.reliability.ghost import Entry, Life
from tests.reliability.graphs import Team, asks, gathers, line, says
from tests.reliability.machines import TTL, Counts, case
from tests.reliability.test_machine_thread import does

QUIET = 2 * TTL
"""A timeout in seconds that outlasts the lease of a process that died in the act."""

MOST_THREADS = 3

whose: ContextVar[str] = ContextVar("whose", default="")
"""The thread of the call that is being made, which the run that it begins takes along."""


class Sender:
    """What the runtime begins an act with. Only the runtime calls `perform`.

    Args:
        machine: The machine, whose world it changes.
        seconds: How long the request and the answer are on their way.
        timeout: The seconds after which no request is still on its way, or None.
        fails: What it raises after the act, or None.
    """

    def __init__(
        self,
        machine: "EffectMachine",
        seconds: float = 0,
        timeout: float | None = None,
        fails: Exception | None = None,
    ) -> None:
        self._machine, self._seconds, self._fails = machine, seconds, fails
        self.timeout = timeout

    async def perform(self, intent: EffectIntent) -> EffectResult:
        self._machine.begins(intent)
        await self._on_its_way()
        self._machine.sim.world.act(intent)
        await self._on_its_way()
        if self._fails is not None:
            raise self._fails
        return EffectResult(output="performed")

    async def _on_its_way(self) -> None:
        await boundary()
        if self._seconds:
            await passed(self._seconds)


class Mail:
    """An effect that the machine looks at.

    Args:
        machine: The machine.
        sender: What acts.
        cancellation: What a cancel does.
        shaky: What its recovery raises once after each intent, or None.
    """

    def __init__(
        self,
        machine: "EffectMachine",
        sender: Sender,
        cancellation: EffectCancellation = abandon,
        shaky: Exception | None = None,
    ) -> None:
        self._machine, self._shaky = machine, shaky
        self.effector: Effector = sender
        self.cancellation = cancellation

    def intend(self, trace: Trace) -> EffectIntent:
        return EffectIntent(kind="mail", args={"to": "ann"})

    async def recovery(
        self, trace: Trace, intent: EffectIntent, effector: Effector
    ) -> Sequence[Event]:
        """Ask a person who was asked before, else the world; act when nothing happened."""
        since = _since(trace, intent)
        self._machine.recovers(since, intent, effector)
        await boundary()
        if self._shaky is not None and not any(isinstance(each, Failure) for each in since):
            raise self._shaky
        asked = [each for each in since if isinstance(each, Request)]
        if asked and trace.response_to(asked[-1]) is not None:
            return [EffectResult(output="said by a person")]
        world = self._machine.sim.world
        done = world.asked(str(intent.id))
        await boundary()
        if done is None:
            return [Request(kind="outcome", actor="person")]
        if not done:
            world.act(intent)
            await boundary()
        return [EffectResult(output="recovered")]


def _since(trace: Trace, intent: EffectIntent) -> list[Event]:
    """Return the events of a view from an intent on."""
    events = list(trace)
    ids = [each.id if isinstance(each, EffectIntent) else None for each in events]
    return events[ids.index(intent.id) :] if intent.id in ids else []


async def waits(
    trace: Trace, intent: EffectIntent, effector: Effector, act: "asyncio.Task[EffectResult]"
) -> Sequence[Event]:
    """Wait for the act."""
    return [await act]


async def asks_a_person(
    trace: Trace, intent: EffectIntent, effector: Effector, act: "asyncio.Task[EffectResult]"
) -> Sequence[Event]:
    """Stop the act, and leave it to a person."""
    act.cancel()
    await boundary()
    return [Request(kind="outcome", actor="person")]


class EffectMachine(Callers):
    """Threads whose turns act on the world."""

    deeds: ClassVar = ("mail", "ask", "slow", "waits", "person", "timed", "twice", "fan", "team",
                       "flaky", "broken", "shaky", "unsure")  # fmt: skip
    slow_stops: ClassVar = True

    def __init__(self) -> None:
        super().__init__()
        self.begun: Counter[str] = Counter()
        self.moods: set[Honesty] = {"honest"}

    def make_graph(self) -> Graph:
        graph = line(route=says("on"))
        nodes: dict[str, Any] = {
            "mail": self.mail(), "ask": asks, "approved": self.mail(seconds=0.5),
            "slow": self.mail(seconds=TTL), "waits": self.mail(waits, seconds=1),
            "person": self.mail(asks_a_person, seconds=1),
            "timed": self.mail(seconds=1, timeout=QUIET), "twice": self.mail(waits),
            "late": self.mail(seconds=2, timeout=3), "fan": says("fan"),
            "x": self.mail(seconds=0.5), "y": self.mail(asks_a_person, seconds=0.5),
            "join": gathers, "team": Team(lambda: line(mail=self.mail(seconds=0.5))),
            "flaky": self.mail(fails=TransientError("Later."), timeout=QUIET),
            "broken": self.mail(fails=ValueError("No.")),
            "shaky": self.mail(shaky=TransientError("Later."), fails=TransientError("Later.")),
            "unsure": self.mail(shaky=ValueError("No."), seconds=1), "end": says("end"),
        }  # fmt: skip
        for name, node in nodes.items():
            graph.add_node(name, node)
        graph.add_join("join")
        graph.add_conditional_edge("route", does)
        edges = {"ask": "approved", "twice": "late", "x": "join", "y": "join", "mail": "end"}
        for source, target in [*edges.items(), ("fan", "x"), ("fan", "y")]:
            graph.add_edge(source, target)
        return graph

    def mail(
        self,
        cancellation: EffectCancellation = abandon,
        shaky: Exception | None = None,
        **sends: Any,
    ) -> Mail:
        """Make an effect."""
        return Mail(self, Sender(self, **sends), cancellation, shaky)

    # --- what the world is like ---

    @rule(do=DEEDS, where=SOMEWHERE, mood=st.sampled_from(["honest", "lying", "silent"]))
    def changes(self, do: int, where: Where, mood: Honesty) -> None:
        """Let the world answer otherwise from now on. Some examples stay honest."""
        if self.numbers % 2:
            self.sim.world.honesty = mood
            self.moods.add(mood)
        self.livened(do, where)

    @rule(do=DEEDS, where=SOMEWHERE)
    def is_copied(self, do: int, where: Where) -> None:
        """Fork a thread right after an intent that is open, and run the fork."""
        self.livened(do, where._replace(picks=3))
        thread_id = self.named(where)
        log = self.ghost.now(thread_id).log
        opened = reference.intents(log[reference.turn_at(log) :])
        if not opened or len(self.threads()) > MOST_THREADS:
            return
        at = max(log.index(intent) for intent in opened.values()) + 1
        known = {*self.threads()}
        self.called("fork", where._replace(picks=ALL), steering("fork", thread_id, at), at=at)
        for copy in {*self.threads()} - known:
            number = self.threads().index(copy)
            self.called("resume", where._replace(thread=number), resumed)

    def settle_moods(self) -> None:
        self.sim.world.honesty = "honest"

    # --- whose run it is ---

    def begin(
        self,
        name: str,
        process: str,
        thread_id: str,
        make: Callable[[Thread, Process], Coroutine[Any, Any, Any]],
        **facts: Any,
    ) -> None:
        token = whose.set(thread_id)
        try:
            super().begin(name, process, thread_id, make, **facts)
        finally:
            whose.reset(token)

    async def _rested(self, process: Process, thread_id: str) -> None:
        whose.set(thread_id)
        await super()._rested(process, thread_id)

    # --- what is checked while something acts ---

    def begins(self, intent: EffectIntent) -> None:
        """Hold an act that begins to its one beginning, in the thread that intended it."""
        key = str(intent.id)
        self.begun[key] += 1
        self.must(self.begun[key] == 1, f"I5: intent {key!r} was performed {self.begun[key]} times")
        found = self._held_by(key)
        self.must(bool(found), f"I6: intent {key!r} was performed and is in no log")
        if found:
            first = found[0][0]
            self.must(first == whose.get(), f"I19: a copy of intent {key!r} was performed")

    def recovers(self, since: Sequence[Event], intent: EffectIntent, effector: Effector) -> None:
        """Hold a recovery to an intent that is open and quiet."""
        key = str(intent.id)
        self.seen.add("recovery called")
        shown = bool(since) and not any(isinstance(each, EffectResult) for each in since)
        self.must(shown, f"I9: intent {key!r} was recovered, and is not open")
        assert isinstance(effector, Sender)
        if effector.timeout is not None and intent.ts is not None:
            quiet = intent.ts + timedelta(seconds=effector.timeout)
            self.must(self.sim.clock.now() >= quiet, f"F4: intent {key!r} was recovered too soon")

    def _held_by(self, key: str) -> list[tuple[str, Life, Entry]]:
        """Return the lives that hold an intent, the one first that recorded it."""
        return [
            (thread_id, life, life.entries[at])
            for thread_id, lives in self.ghost.every.items()
            for life in lives
            for at, fact in enumerate(life.facts)
            if fact.type == "effect_intent" and fact.data["id"] == key
        ]

    # --- what is checked after each rule ---

    async def holds(self) -> None:
        if self.moods == {"honest"} and not self.frozen:
            self.broken += self._twice()
        await super().holds()

    def _twice(self) -> Iterator[str]:
        """Yield what happened otherwise than once, where nothing but the runtime decides that.

        A copied intent is left out: two threads may ask about it at once. So is a frozen process,
        whose request comes when nobody expects it any more.
        """
        for key, count in self.sim.world.repeated().items():
            if len(self._held_by(key)) == 1:
                yield f"I5: intent {key!r} was acted on {count} times in an honest world"


TestInMemory = case(EffectMachine, Counts(100), places.memory)
TestOnSqlite = case(EffectMachine, Counts(10, longer=15), places.sqlite)
TestOnPostgres = case(EffectMachine, Counts(10, longer=15), places.server)


@pytest.fixture(scope="module", autouse=True)
def _stores() -> Iterator[None]:
    """Let go of the stores when all is done."""
    yield
    places.close_all()
