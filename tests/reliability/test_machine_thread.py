"""Machine (b): one thread, its callers, time, and processes that die, freeze and come back."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import rule

from pytest_soev.world import Process, boundary, passed
from soev.domain import Event, Failure, ModelOutput, Trace, TransientError
from soev.runtime import Graph, Thread
from tests.reliability import places
from tests.reliability.callers import DEEDS, SOMEWHERE, Callers, Where, mark_of
from tests.reliability.ghost import Instant
from tests.reliability.graphs import Team, asks, gathers, line, says
from tests.reliability.machines import TTL, Counts, case


async def flaky(view: Trace) -> Sequence[Event]:
    """Fail for a moment, once in each turn."""
    await boundary()
    if not view.turn.of(Failure):
        raise TransientError("Come back later.")
    return [ModelOutput(text="Here.")]


async def fails(view: Trace) -> Sequence[Event]:
    """Fail for good."""
    await boundary()
    raise ValueError("No.")


async def slow(view: Trace) -> Sequence[Event]:
    """Take longer than a lease."""
    await passed(1.5 * TTL)
    return [ModelOutput(text="At last.")]


def does(view: Trace) -> str:
    """Go where the input of the turn says."""
    opening = view.opening
    assert opening is not None
    payload: Any = opening.payload
    return str(payload["do"])


def again(view: Trace) -> str | None:
    """Go round twice."""
    rounds = sum(event.origin == "loop" for event in view.turn)
    return "loop" if rounds < 3 else None


def everything() -> Graph:
    """Make a graph in which the input says what its turn is like."""
    graph = line(route=says("on"))
    nodes: dict[str, Any] = {
        "say": says("said"), "ask": asks, "told": says("told"), "fail": fails, "flaky": flaky,
        "slow": slow, "loop": says("round"), "fan": says("fan"), "x": asks, "y": says("y"),
        "join": gathers, "team": Team(lambda: line(ask=asks, work=says("worked"))),
        "end": gathers,
    }  # fmt: skip
    for name, node in nodes.items():
        graph.add_node(name, node)
    graph.add_join("join")
    graph.add_conditional_edge("route", does)
    graph.add_conditional_edge("loop", again)
    edges = {"ask": "told", "x": "join", "y": "join", "team": "end"}
    for source, target in [*edges.items(), ("fan", "x"), ("fan", "y")]:
        graph.add_edge(source, target)
    return graph


class ThreadMachine(Callers):
    """One thread, whatever its turns are like."""

    deeds: ClassVar = ("say", "ask", "fan", "team", "loop", "slow", "flaky", "fail")

    def make_graph(self) -> Graph:
        return everything()

    def wrong_with(self, now: Instant) -> list[str]:
        """Return joins that were shown the branch first which ended first."""
        joins = (fact.data.get("text", "") for fact in now.log if fact.type == "model_output")
        return [f"I14: a join saw {text!r}" for text in joins if ", y, x:request" in text]

    @rule(do=DEEDS, where=SOMEWHERE)
    def is_opened(self, do: int, where: Where) -> None:
        """Open the thread, which may be there."""
        said = self.fresh(do=self.deeds[do % len(self.deeds)])

        async def call(thread: Thread, process: Process) -> object:
            return await thread.open("agent", said)

        self.called("open", where._replace(thread=0), call, mark=mark_of(said))


TestInMemory = case(ThreadMachine, Counts(100), places.memory)
TestOnSqlite = case(ThreadMachine, Counts(20, longer=15), places.sqlite)
TestOnPostgres = case(ThreadMachine, Counts(10, longer=30), places.server)


@pytest.fixture(scope="module", autouse=True)
def _stores() -> Iterator[None]:
    """Let go of the stores when all is done."""
    yield
    places.close_all()
