"""`soev` runs agents in a test, and the tests of a first user work as they are written."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pytest_soev import EFFECT_POINTS, Harness, call, hold, say, settled
from pytest_soev.harness import (
    DeadProcessError,
    HarnessClock,
    HarnessFactory,
    NoThreadError,
    NotReachedError,
    NotSettledError,
    ProcessCrash,
)
from soev.adapters import UnusedStepsError
from soev.domain import (
    ChatModel,
    EffectIntent,
    EffectResult,
    Event,
    ModelOutput,
    ToolOutput,
)
from soev.runtime import Agent, tool
from soev.toolkit import EffectTool, ReActAgent, ReActConfig, check_with, perform_again

pytestmark = pytest.mark.anyio


class Refund(BaseModel):
    """What the model says of a refund."""

    order: str


class RealPayments:
    """Would move real money, so no test may get here unless it says so."""

    paid: list[str]

    def __init__(self) -> None:
        self.paid = []

    async def perform(self, intent: EffectIntent) -> EffectResult:
        self.paid.append(intent.kind)
        return EffectResult(output="paid")


PAYMENTS = RealPayments()


@tool(name="search", description="Search the documents.")
async def search(query: str) -> ToolOutput:
    """Find documents."""
    return ToolOutput(text=f"Refund policy: thirty days ({query}).")


def agents(model: ChatModel | None = None) -> dict[str, Agent[object, BaseModel]]:
    """Return agents that differ in how they recover."""
    assert model is not None
    plain = EffectTool("refund", "Refund an order.", Refund, PAYMENTS)
    again = EffectTool("refund", "Refund an order.", Refund, PAYMENTS, recovery=perform_again)

    def asking(world: object, turn: object) -> list[EffectTool]:
        query = world.query  # type: ignore[attr-defined]  # what `soev_resources` gives
        return [EffectTool("refund", "Refund.", Refund, PAYMENTS, recovery=check_with(query))]

    def agent(effects: Any) -> ReActAgent:
        return ReActAgent(
            ReActConfig(model=model, prompt="Help.", tools=(search,), effects=effects)
        )

    return {"assistant": agent([plain]), "again": agent([again]), "asking": agent(asking)}


@pytest.fixture(scope="session")
def soev_agents() -> object:
    """The agents of this file."""
    return agents


@pytest.fixture(scope="session")
def soev_resources() -> object:
    """What `build` gets: the world that answers whether an act was done."""
    return lambda soev: soev.world


async def test_searches_before_it_answers(soev: Harness) -> None:
    """A scripted model, a tool, and what the model was sent."""
    soev.model.script(call("search", query="refund policy"), say("Thirty days."))
    trace = await soev.run("assistant", "How long do refunds take?")
    output = trace.latest(ModelOutput)
    assert output is not None
    assert output.text == "Thirty days."
    first, second = soev.requests
    assert [each.name for each in first.tools] == ["search", "refund"]
    assert "Refund policy" in second.messages[-1].text
    assert trace == soev.trace()


async def test_second_identical_call_is_an_error(soev: Harness) -> None:
    """The rules of the runtime hold in a harness."""
    soev.model.script(call("search", query="x"), call("search", query="x"), say("Sorry."))
    await soev.run("assistant", "x")
    assert "identical to an earlier one" in soev.requests[2].messages[-1].text


@pytest.mark.parametrize("point", EFFECT_POINTS, ids=str)
async def test_the_refund_is_paid_once(soev: Harness, point: str) -> None:
    """A crash at each point of an effect: a person says what happened, and it is done once."""
    soev.model.script(call("refund", order="o-1"), say("Done."))
    soev.crash.at(point)
    with soev.crash.expected():
        await soev.run("assistant", "refund o-1")
    await soev.restart()
    await settled(soev, answer={"happened": soev.world.happened("refund")})
    assert soev.world.count("refund") == 1
    assert await soev.status() == "finished"
    assert PAYMENTS.paid == []


@pytest.mark.parametrize("point", EFFECT_POINTS, ids=str)
async def test_a_recovery_that_asks_the_world_needs_nobody(soev: Harness, point: str) -> None:
    """`check_with(soev.world.query)` settles each crash by itself."""
    soev.model.script(call("refund", order="o-1"), say("Done."))
    soev.crash.at(point)
    with soev.crash.expected():
        await soev.run("asking", "refund o-1")
    await soev.restart()
    await settled(soev)
    assert soev.world.count() == 1


@pytest.mark.parametrize(("drops", "count"), [(True, 1), (False, 2)])
async def test_a_blind_resend_is_seen(soev: Harness, drops: bool, count: int) -> None:
    """A recovery that performs again pays twice, unless the world drops repeats."""
    soev.world.drops_repeats = drops
    soev.model.script(call("refund", order="o-1"), say("Done."))
    soev.crash.at("world.changed")
    with soev.crash.expected():
        await soev.run("again", "refund o-1")
    await soev.restart()
    await settled(soev)
    assert soev.world.count("refund") == count


async def test_nothing_of_a_dead_process_reaches_the_log(soev: Harness) -> None:
    """After a crash the log stays as it was, and the process does nothing more."""
    soev.model.script(call("refund", order="o-1"), say("Done."))
    soev.crash.at("effect.performed")
    with soev.crash.expected():
        await soev.run("assistant", "refund o-1")
    assert soev.trace().latest(EffectResult) is None
    assert await soev.status() == "running", "the lease is not given back"
    with pytest.raises(DeadProcessError, match=r"soev\.restart\(\)"):
        await soev.resume()
    await soev.restart()
    assert await soev.status() == "interrupted"
    await settled(soev, answer={"happened": True, "output": "paid"})


async def test_a_crash_that_nobody_expects_is_raised(soev: Harness) -> None:
    """A crash passes whatever catches `Exception`."""
    soev.model.script(say("Hello."))
    soev.crash.at("model.reply.read")
    with pytest.raises(ProcessCrash, match=r"crashed at 'model\.reply\.read'"):
        await soev.run("assistant", "Hi")


async def test_a_crash_that_does_not_happen_is_an_error(soev: Harness) -> None:
    """The message names the points that were passed."""
    soev.model.script(say("Hello."))
    soev.crash.at("effect.performed")
    with (
        pytest.raises(NotReachedError, match=r"'effect\.performed' was reached 0 times.*step\."),
        soev.crash.expected(),
    ):
        await soev.run("assistant", "Hi")


async def test_a_turn_that_waits_does_not_settle(soev: Harness) -> None:
    """The message shows what is asked."""
    soev.model.script(call("refund", order="o-1"), say("Done."))
    soev.crash.at("effect.performed")
    with soev.crash.expected():
        await soev.run("assistant", "refund o-1")
    await soev.restart()
    with pytest.raises(NotSettledError, match=r"'waiting' and does not settle.*\n.*refund"):
        await settled(soev)
    (request,) = await soev.pending()
    await soev.answer(request, {"happened": True})


async def test_what_the_world_says_is_set(soev: Harness) -> None:
    """An output is what the model reads, and a refusal is no act."""
    soev.world.answers("refund", error="The card expired.")
    soev.model.script(call("refund", order="o-1"), call("refund", order="o-2"), say("Done."))
    await soev.run("assistant", "refund o-1")
    assert soev.requests[1].messages[-1].text.endswith("The card expired.")
    assert soev.world.count() == 0


async def test_an_effector_of_ones_own_performs_when_it_may(soev: Harness) -> None:
    """`lets_through` performs by the agent's own effector, and counts as well."""
    soev.world.lets_through("refund")
    soev.model.script(call("refund", order="o-1"), say("Done."))
    await soev.run("assistant", "refund o-1")
    assert PAYMENTS.paid == ["refund"]
    PAYMENTS.paid.clear()
    assert soev.world.count("refund") == 1
    result = soev.trace().latest(EffectResult)
    assert result is not None
    assert result.output == "paid"


async def test_a_conversation_goes_on_forks_and_replays(soev: Harness) -> None:
    """`send` says the next thing, `fork` goes on from an earlier place, `replay` compares."""
    soev.model.script(say("Hello."), say("Bye."), say("Oh?"))
    first = await soev.run("assistant", "Hi")
    await soev.send("Thanks")
    assert all(each.same_request for each in await soev.replay())
    await soev.fork(at=len(first))
    trace = await soev.send("No thanks")
    assert [each.text for each in trace.of(ModelOutput)] == ["Hello.", "Oh?"]
    assert [each.same_request for each in await soev.replay()] == [True, True]


async def test_a_turn_is_cancelled(soev: Harness) -> None:
    """A turn that was opened and did not run yet can be cancelled."""
    await soev.open("assistant", "Hi")
    await soev.cancel()
    assert await soev.status() == "cancelled"


async def test_the_clock_gives_the_timestamps(soev: Harness, soev_clock: HarnessClock) -> None:
    """Time stands still until the test moves it."""
    soev.model.script(say("Hello."), say("Bye."))
    await soev.run("assistant", "Hi")
    soev_clock.advance(60)
    trace = await soev.send("Thanks")
    stamps = [event.ts for event in trace if event.ts is not None]
    assert (stamps[-1] - stamps[0]).total_seconds() == 60
    with pytest.raises(ValueError, match="does not go back by 1 seconds"):
        soev_clock.advance(-1)


async def test_nothing_is_open_at_first(soev: Harness) -> None:
    """A step that needs a thread says how to open one."""
    with pytest.raises(NoThreadError, match=r"soev\.run\(agent, payload\)"):
        await soev.send("Hi")
    assert repr(soev) == "Harness(no thread, 0 events, 0 model calls, HarnessWorld(nothing))"


def test_parts_have_fixtures_of_their_own(
    soev: Harness, soev_model: object, soev_world: object, soev_crash: object
) -> None:
    """Each part of `soev` is a fixture as well."""
    assert (soev.model, soev.world, soev.crash) == (soev_model, soev_world, soev_crash)


@given(text=st.text(max_size=20).filter(str.isprintable))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_harness_is_made_for_each_example(soev_harness: HarnessFactory, text: str) -> None:
    """Under `@given` each example has a fresh harness, and needs no async plugin."""
    with soev_harness() as soev:
        soev.model.script(say("Yes."))
        trace: tuple[Event, ...] = tuple(soev.run_sync(lambda soev: soev.run("assistant", text)))
    assert len(trace) == 4


def test_a_script_that_is_not_used_up_fails(soev_harness: HarnessFactory) -> None:
    """The end of the block says which steps are left."""
    with pytest.raises(UnusedStepsError, match="say\\('Unused'\\)"), soev_harness() as soev:
        soev.model.script(hold(say("Unused")))
