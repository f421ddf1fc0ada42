"""The harness catches what users get wrong: each test plants one bug."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from pydantic import RootModel

from pytest_soev.harness import (
    ActOutsideEffectError,
    ChangedEventError,
    CrashPlan,
    Harness,
    HarnessClock,
    HarnessFactory,
    ImpureError,
    LeftTasksError,
    ProcessCrash,
)
from pytest_soev.harness._life import Life, LifeStore
from soev.adapters import InMemoryTraceStore
from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    Head,
    Input,
    Lease,
    ModelOutput,
    StoredEvent,
    Trace,
    reached,
)
from soev.runtime import EffectCancellation, Effector, EffectRecovery, Graph, Step, abandon

from .shop import Shop

pytestmark = pytest.mark.anyio


class OneGraph:
    """An agent with one graph, made from its resources."""

    input = RootModel[Any]
    element_types = ()
    event_types = ()

    def __init__(self, make: Callable[[Any], Graph]) -> None:
        self._make = make

    def build(self, resources: Any, turn: Any, model: str | None) -> Graph:
        return self._make(resources)


def line(*steps: Step) -> Graph:
    """Make a graph of steps named `one`, `two` and so on."""
    graph, names = Graph(), ["one", "two", "three"][: len(steps)]
    for name, step in zip(names, steps, strict=True):
        graph.add_node(name, step)
    for source, target in pairwise(names):
        graph.add_edge(source, target)
    graph.set_entry_point("one")
    return graph


def harness(made: HarnessFactory, make: Callable[[Any], Graph]) -> Harness:
    """Make a harness of one agent, whose resources are the world."""
    return made(lambda: {"desk": OneGraph(make)}, resources=lambda soev: soev.world)


@pytest.fixture(scope="session")
def soev_agents() -> object:
    """No agents: each test brings its own."""
    return {}


async def speak(view: Trace) -> Sequence[Event]:
    """Do nothing wrong."""
    return [ModelOutput(text="Hello")]


async def test_a_step_that_changes_an_event(soev_harness: HarnessFactory) -> None:
    """The step is named, with the stored text and what became of it."""

    async def two(view: Trace) -> Sequence[Event]:
        payload = view.of(Input)[0].payload
        assert isinstance(payload, dict)
        payload["order"] = "o-2"
        return [ModelOutput(text="Hello")]

    soev = harness(soev_harness, lambda world: line(speak, two))
    with pytest.raises(ChangedEventError, match="The step of node 'two' changed the Input") as told:
        await soev.run("desk", {"order": "o-1"})
    assert '"o-1"' in told.value.before
    assert '"o-2"' in told.value.after


async def test_a_router_that_is_not_pure(soev_harness: HarnessFactory) -> None:
    """Both answers are shown."""
    answers = iter(["two", None] * 9)

    def make(world: object) -> Graph:
        graph = Graph()
        graph.add_node("one", speak)
        graph.add_node("two", speak)
        graph.add_conditional_edge("one", lambda view: next(answers))
        graph.set_entry_point("one")
        return graph

    soev = harness(soev_harness, make)
    with pytest.raises(ImpureError, match="the router after 'one' answered 'two' and then None"):
        await soev.run("desk", "Hi")


async def test_an_effect_that_a_step_performs(soev_harness: HarnessFactory) -> None:
    """The world refuses an act that no effect asked for, and names the step."""

    def make(world: Any) -> Graph:
        async def pay(view: Trace) -> Sequence[Event]:
            await world.perform(EffectIntent(kind="refund", id="mine"))
            return [ModelOutput(text="Paid")]

        return line(pay)

    soev = harness(soev_harness, make)
    with pytest.raises(ActOutsideEffectError, match="The step of 'one' performed 'refund' itself"):
        await soev.run("desk", "Hi")
    assert soev.world.count() == 0


async def settle(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
    """Say that it was not done."""
    return [EffectResult(error="not done")]


class Paying:
    """An effect whose `intend` depends on more than its view."""

    def __init__(self, world: Any) -> None:
        self.effector: Effector = world
        self.recovery: EffectRecovery = settle
        self.cancellation: EffectCancellation = abandon
        self.asked = 0

    def intend(self, trace: Trace) -> EffectIntent:
        self.asked += 1
        return EffectIntent(kind="refund", args={"attempt": self.asked})


class Still(Paying):
    """An effect whose intent is always the same."""

    def intend(self, trace: Trace) -> EffectIntent:
        return EffectIntent(kind="refund")


async def test_an_intent_that_is_not_pure(soev_harness: HarnessFactory) -> None:
    """`intend` gets one view twice and must answer the same."""

    def make(world: Any) -> Graph:
        graph = Graph()
        graph.add_node("pay", Paying(world))
        graph.set_entry_point("pay")
        return graph

    soev = harness(soev_harness, make)
    with pytest.raises(ImpureError, match="`intend` of the effect 'pay' answered"):
        await soev.run("desk", "Hi")


async def test_a_task_that_a_step_forgets(soev_harness: HarnessFactory) -> None:
    """A task that goes on after the run is found at the end."""
    never = asyncio.Event()
    tasks: list[asyncio.Task[object]] = []

    async def forget(view: Trace) -> Sequence[Event]:
        tasks.append(asyncio.create_task(never.wait(), name="forgotten"))
        return [ModelOutput(text="Hello")]

    soev = harness(soev_harness, lambda world: line(forget))
    await soev.run("desk", "Hi")
    with pytest.raises(LeftTasksError, match=r"1 asyncio tasks were left.*\n  forgotten"):
        soev.check()
    tasks[0].cancel()


async def test_a_step_that_swallows_its_death_is_dead(soev_harness: HarnessFactory) -> None:
    """What goes on after the crash reaches neither the store nor the model."""
    swallowed = []

    async def stubborn(view: Trace) -> Sequence[Event]:
        try:
            reached("mail.sending")
        except BaseException as error:  # noqa: BLE001  # the bug: it swallows its own death
            swallowed.append(type(error).__name__)
        return [ModelOutput(text="Alive")]

    soev = harness(soev_harness, lambda world: line(speak, stubborn))
    await soev.open("desk", "Hi")
    soev.crash.at("mail.sending")
    with soev.crash.expected():
        await soev.resume()
    assert swallowed == ["ProcessCrash"]
    assert [event.text for event in soev.trace().of(ModelOutput)] == ["Hello"]


async def test_a_crash_leaves_no_complaints(
    soev_harness: HarnessFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Asyncio does not report the tasks that died with the process."""

    def make(world: Any) -> Graph:
        graph = Graph()
        graph.add_node("pay", Still(world))
        graph.set_entry_point("pay")
        return graph

    soev = harness(soev_harness, make)
    soev.crash.at("world.changed")
    with soev.crash.expected():
        await soev.run("desk", "Hi")
    del soev
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


TESTS = """
import pytest
from pytest_soev import call, fail, optional, say

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_too_few(soev):
    soev.model.script(say("Hello."), say("Never said."))
    await soev.run("assistant", "Hi")


async def test_too_many(soev):
    soev.model.script(call("search", query="x"))
    await soev.run("assistant", "Hi")


async def test_a_failure_of_its_own(soev):
    soev.model.script(say("Never said."))
    assert 1 == 2


async def test_no_crash(soev):
    soev.model.script(say("Hello."))
    soev.crash.at("effect.performed")
    await soev.run("assistant", "Hi")


async def test_good(soev):
    soev.model.script(say("Hello."), optional(say("More.")))
    await soev.run("assistant", "Hi")
"""


def test_the_end_of_a_test_says_what_is_left(empty_shop: Shop) -> None:
    """Unused steps, calls off the script and a crash that did not happen fail the test."""
    empty_shop.pytester.makepyfile(test_desk=TESTS)
    result = empty_shop.run("-p", "anyio.pytest_plugin", "test_desk.py")
    result.assert_outcomes(passed=4, failed=1, errors=3)
    result.stdout.fnmatch_lines_random(
        [
            "*UnusedStepsError: *1 step of its script is unused*",
            "*OffScriptError: The script for every call has no step for call 2*",
            "*NotReachedError: *'effect.performed' was reached 0 times*",
        ]
    )


def test_every_fixture_says_what_it_gives(empty_shop: Shop) -> None:
    """`pytest --fixtures` shows one line for each."""
    result = empty_shop.run("--fixtures", "-q")
    names = ("harness", "model", "world", "clock", "crash", "resources", "store_factory")
    result.stdout.fnmatch_lines_random([f"soev_{name}*" for name in names])


async def test_the_store_refuses_every_call_of_the_dead() -> None:
    """A store without named points is closed to them as well."""
    life = Life(CrashPlan())
    store = LifeStore(InMemoryTraceStore(), life)
    event = StoredEvent(type="opened", data="{}")
    lease = Lease("t", "life", "me", 1, HarnessClock().now())
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.append("t", [event], after=Head(), batch="b"),
        lambda: store.read("t"),
        lambda: anext(store.read_back("t", before=Head())),
        lambda: store.head("t"),
        lambda: store.wait("t", after=Head(), timeout=0),
        store.threads,
        lambda: store.copy("t", "u", through=1),
        lambda: store.delete("t"),
        lambda: store.acquire("t", "me", 30, request="r"),
        lambda: store.renew(lease, 30),
        lambda: store.release(lease),
    ]
    life.end("here")
    for each in calls:
        with pytest.raises(ProcessCrash, match="crashed at 'here'"):
            await each()
