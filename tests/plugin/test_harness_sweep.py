"""`crash_everywhere` plays a scenario once for each crash, and names the first that matters."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, RootModel

from pytest_soev import Harness, call, fail, say
from pytest_soev.harness import HarnessFactory, SweepFailedError
from soev.domain import (
    ChatModel,
    EffectIntent,
    EffectResult,
    Event,
    ModelOutput,
    Trace,
    TransientError,
)
from soev.runtime import Agent, Graph
from soev.toolkit import EffectTool, ReActAgent, ReActConfig, ask_person, check_with, perform_again

from .shop import Shop

pytestmark = pytest.mark.anyio


class Refund(BaseModel):
    """What the model says of a refund."""

    order: str


class Payments:
    """Must not be reached."""

    async def perform(self, intent: EffectIntent) -> EffectResult:
        raise AssertionError("no test moves money")


@pytest.fixture(scope="session")
def soev_agents() -> object:
    """Agents that differ in how they recover."""

    def agents(model: ChatModel | None = None) -> dict[str, Agent[Any, Any]]:
        assert model is not None

        def agent(recovery: Any) -> ReActAgent:
            def effects(world: Any, turn: object) -> list[EffectTool]:
                how = check_with(world.query) if recovery is None else recovery
                return [EffectTool("refund", "Refund.", Refund, Payments(), recovery=how)]

            return ReActAgent(ReActConfig(model=model, prompt="Help.", effects=effects))

        return {
            "asking": agent(None),
            "person": agent(ask_person),
            "blind": agent(perform_again),
        }

    return agents


@pytest.fixture(scope="session")
def soev_resources() -> object:
    """What `build` gets."""
    return lambda soev: soev.world


def refunding(name: str) -> Any:
    """Return a scenario with one refund."""

    async def scenario(soev: Harness) -> None:
        soev.model.script(call("refund", order="o-1"), say("Done."))
        await soev.run(name, "refund o-1")

    return scenario


@pytest.mark.parametrize("name", ["asking", "person"])
async def test_no_crash_changes_the_outcome(soev_harness: HarnessFactory, name: str) -> None:
    """Every point is struck once, and every answer of an append is lost once."""
    report = await soev_harness.crash_everywhere(refunding(name))
    report.check()
    assert report.runs > report.points > 30


async def test_a_recovery_that_sends_again_blindly(soev_harness: HarnessFactory) -> None:
    """The first crash that matters is told in words."""
    report = await soev_harness.crash_everywhere(refunding("blind"), faults=("crash",))
    words = (
        r"\d+ of \d+ schedules failed\. crash at \d+ of \d+: effect refund performed, result not "
        r"recorded; then: effect refund performed twice"
    )
    with pytest.raises(SweepFailedError, match=words):
        report.check()


async def test_a_world_that_drops_repeats_forgives_it(soev_harness: HarnessFactory) -> None:
    """The scenario says what the world is like."""

    async def scenario(soev: Harness) -> None:
        soev.world.drops_repeats = True
        await refunding("blind")(soev)

    (await soev_harness.crash_everywhere(scenario)).check()


async def test_a_long_talk_goes_on_after_each_crash(soev_harness: HarnessFactory) -> None:
    """Turns, a failure that is resumed, forks and cancels are carried on, each once."""

    async def scenario(soev: Harness) -> None:
        soev.model.script(say("Hello."), fail(TransientError("busy")), say("Bye."))
        await soev.run("asking", "Hi")
        await soev.send("Thanks")
        await soev.resume()
        await soev.restart()
        await soev.open("asking", "Hi")
        await soev.cancel()

    (await soev_harness.crash_everywhere(scenario)).check()


async def test_a_scenario_that_fails_calmly_raises_its_error(soev_harness: HarnessFactory) -> None:
    """What is wrong without any crash is no finding of a sweep."""

    async def scenario(soev: Harness) -> None:
        assert await soev.status() == "finished"

    with pytest.raises(Exception, match="No thread is open"):
        await soev_harness.crash_everywhere(scenario)


async def test_a_fault_that_is_not_there(soev_harness: HarnessFactory) -> None:
    """The message says what there is."""
    with pytest.raises(ValueError, match="no fault 'freeze'"):
        await soev_harness.crash_everywhere(refunding("asking"), faults=("freeze",))


async def test_state_in_memory_is_found(soev_harness: HarnessFactory) -> None:
    """A step that counts in memory says something else in the next process."""

    class Counting:
        input = RootModel[str]
        element_types = ()
        event_types = ()

        def __init__(self) -> None:
            self.asked = 0

        def build(self, resources: object, turn: object, model: str | None) -> Graph:
            async def count(view: Trace) -> Sequence[Event]:
                self.asked += 1
                return [ModelOutput(text=f"Asked {self.asked} times")]

            graph = Graph()
            graph.add_node("count", count)
            graph.set_entry_point("count")
            return graph

    agent = Counting()

    async def scenario(soev: Harness) -> None:
        agent.asked = 0
        await soev.run("desk", "Hi")

    report = await soev_harness.crash_everywhere(scenario, agents={"desk": agent})
    with pytest.raises(SweepFailedError, match=r"the answers are .*Asked 2 times") as told:
        report.check()
    assert told.value.token.startswith("strict:+crash@any.")


SWEEP = """
import pytest
from pytest_soev import say

pytestmark = pytest.mark.anyio
said = []


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_sweep(soev_harness):
    async def scenario(soev):
        said.append("Hello.")
        soev.model.script(say(f"Hello {len(said) > 9}"))
        await soev.run("assistant", "Hi")

    report = await soev_harness.crash_everywhere(scenario)
    print("runs:", report.runs)
    report.check()
"""


def test_a_token_runs_one_schedule(empty_shop: Shop) -> None:
    """A failure prints a token, and `--soev-schedule` runs that schedule alone."""
    empty_shop.pytester.makepyfile(test_desk=SWEEP)
    result = empty_shop.run("-p", "anyio.pytest_plugin", "test_desk.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Run this one alone: --soev-schedule=strict:+crash@any.*"])
    token = "--soev-schedule=strict:+crash@any.3~45"
    result = empty_shop.run("-p", "anyio.pytest_plugin", "-s", "test_desk.py", token)
    result.stdout.fnmatch_lines(["*runs: 1"])
    result = empty_shop.run("test_desk.py", "--soev-schedule=7")
    result.stderr.fnmatch_lines(["*'7' is no token of a schedule. Copy the whole line*"])
