"""The support desk: what it finds, what it gives, and that all its conversations replay."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import RootModel

from examples.support_desk import agents
from examples.support_desk.__main__ import catalog_of, chat, play
from examples.support_desk.agent import NAME, Desk, effects
from examples.support_desk.conversation import Conversation
from examples.support_desk.knowledge import PAGES
from examples.support_desk.orders import euros
from examples.support_desk.scenarios import (
    APPROVED,
    DENIED,
    LETTER,
    LONG,
    SCENARIOS,
    SMALL_CREDIT,
    TOUR,
    Scenario,
)
from soev.adapters import InMemoryTraceStore, ScriptedChatModel, call, fail, say
from soev.domain import (
    ROOT_STREAM,
    BudgetExceeded,
    EffectIntent,
    Failure,
    Input,
    InvalidQueryError,
    JsonValue,
    ModelOutput,
    Request,
    ToolOutput,
    Trace,
    TransientError,
    fault_plan,
)
from soev.runtime import Graph, accepted, refusing, replay, retrace

pytestmark = pytest.mark.anyio


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Make what the tools use, and close it."""
    with Desk() as made:
        yield made


async def played(scenario: Scenario, desk: Desk) -> Trace:
    """Play a conversation to its end and return its trace."""
    model = ScriptedChatModel(*scenario.steps)
    async with catalog_of(model, InMemoryTraceStore(), desk) as catalog:
        conversation = Conversation(catalog, scenario.name, scenario.agent, quiet=True)
        states = [(await move(conversation)).state for move in scenario.moves]
        model.check()
        assert states[-1] == "finished"
        return await (await catalog.thread(scenario.name)).trace()


def graphs_of(name: str) -> Callable[[Input], Graph]:
    """Return what builds the graph of a turn as replay does: with today's code, no resources."""
    agent = agents()[name]
    return lambda input: agent.build(
        refusing("resources"), accepted(agent.input, input)[1], input.model
    )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_each_conversation_replays(scenario: Scenario, desk: Desk) -> None:
    """Every model call is rebuilt as it was sent, and every route is the one that was taken."""
    trace = await played(scenario, desk)
    graph_for = graphs_of(scenario.agent)
    calls = await replay(list(trace), graph_for)
    assert [call.unreplayable for call in calls if call.unreplayable] == []
    assert all(call.same_request for call in calls)
    assert retrace(list(trace), graph_for) == []


async def test_the_long_conversation_is_long(desk: Desk) -> None:
    """It has more than two hundred events."""
    assert len(await played(LONG, desk)) > 200


async def test_an_answer_cites_the_passage(desk: Desk) -> None:
    """What the desk says about the pages names the passage that it is from."""
    trace = await played(TOUR, desk)
    first = next(event for event in trace.of(ModelOutput) if event.citations)
    assert [citation.ids for citation in first.citations] == [("returns#1",)]
    assert first.text.endswith("clean, dry and complete.")


async def test_an_approved_credit_is_given_once(desk: Desk) -> None:
    """A credit above the desk's amount waits for a person, and is then in the ledger."""
    trace = await played(APPROVED, desk)
    assert [request.actor for request in trace.of(Request)] == ["person"]
    assert desk.ledger.credited("HO-10457") == 6000


async def test_a_denied_credit_is_not_given(desk: Desk) -> None:
    """A denied call never runs, and the model reads why."""
    trace = await played(DENIED, desk)
    assert desk.ledger.credited("HO-10462") == 0
    errors = [event.error for event in trace.of(ToolOutput) if event.error]
    assert [error.endswith("Offer the return.") for error in errors] == [True]


async def test_a_credit_in_a_letter_is_given_in_a_task_of_the_desk(desk: Desk) -> None:
    """The desk works on each matter in a stream of its own, and a person approves there."""
    trace = await played(LETTER, desk)
    tasks = [event.stream for event in trace.of(Input) if event.stream != ROOT_STREAM][::2]
    assert [event.stream for event in trace.of(Request)] == tasks[:1]
    assert len(set(tasks)) == 2
    assert desk.ledger.credited("HO-10418") == 7560


@pytest.mark.parametrize(
    ("name", "event"), [("budget-trip", BudgetExceeded), ("model-failure", Failure)]
)
async def test_troubles_are_in_the_log(name: str, event: type[Any], desk: Desk) -> None:
    """The conversations that are about trouble hold it."""
    scenario = next(each for each in SCENARIOS if each.name == name)
    assert len((await played(scenario, desk)).of(event)) == 1


def test_every_page_is_found_by_its_title(desk: Desk) -> None:
    """The index knows each page."""
    for path in PAGES.glob("*.md"):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        assert path.stem in {each.id for each in desk.knowledge.search(title, limit=20)}


@pytest.mark.parametrize("query", ["", "what is it", '" OR ('])
def test_a_query_without_words_is_refused(query: str, desk: Desk) -> None:
    """The model is told what is missing; the operators of the index do nothing."""
    with pytest.raises(InvalidQueryError, match="no word to search for"):
        desk.knowledge.search(query)


def test_the_same_credit_twice_is_one(desk: Desk) -> None:
    """A repeat of a key changes nothing, an equal credit counts, too much is refused."""
    ledger, order = desk.ledger, desk.orders.find("ho-10433")
    for key in ("a", "a", "b", "c"):
        ledger.credit(key, order, 1000, "late")
    assert ledger.credited("HO-10433") == 3000
    with pytest.raises(InvalidQueryError, match=r"18\.00 EUR is too much.*30\.00 EUR are credited"):
        ledger.credit("d", order, 1800, "late")


async def test_a_credit_that_was_given_before_a_crash_is_one() -> None:
    """The process dies between the act and its record; the ledger drops the repeat."""

    class Died(BaseException):
        pass

    def die(point: str) -> None:
        if point == "effect.performed":
            raise Died

    with Desk() as desk:
        store, model = InMemoryTraceStore(), ScriptedChatModel(*SMALL_CREDIT.steps)
        token = fault_plan.set(die)
        with pytest.raises(Died):
            async with catalog_of(model, store, desk) as catalog:
                await SMALL_CREDIT.moves[0](Conversation(catalog, "one", quiet=True))
        fault_plan.reset(token)
        assert desk.ledger.credited("HO-10433") == 400
        lease = (await store.head("one")).lease
        if lease is not None:
            await store.release(lease)
        async with catalog_of(model, store, desk) as catalog:
            status = await Conversation(catalog, "one", quiet=True).resume()
        assert status.state == "finished"
        assert desk.ledger.credited("HO-10433") == 400


async def test_a_credit_that_is_too_much_is_an_error_of_the_call(desk: Desk) -> None:
    """The ledger's refusal is definite, and the model reads it."""
    effect = effects(desk, RootModel[str]("Hi"))[0]
    args: JsonValue = {"order": "order:HO-10433", "cents": 99_000, "reason": "Late"}
    result = await effect.effector.perform(EffectIntent(kind="give_credit", args=args, id="i"))
    assert str(result.error).startswith("A credit of 990.00 EUR is too much")


def test_amounts_are_written_in_euros() -> None:
    """Cents keep both digits."""
    assert [euros(cents) for cents in (5, 50, 12345)] == ["0.05 EUR", "0.50 EUR", "123.45 EUR"]


def test_the_tour_reads_like_a_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    """The program prints what was said, the sources, and the approval with its answer."""
    asyncio.run(play(TOUR))
    printed = capsys.readouterr().out
    assert "source: Returns and refunds, How long you can return something" in printed
    assert "Approval  Credit 75.60 EUR on order HO-10418 of 189.00 EUR?" in printed
    assert '  Person  yes\n   result {"credited":"75.60 EUR","order":"HO-10418"}' in printed


class Keyboard:
    """What somebody types, line by line, until they leave."""

    def __init__(self, *lines: str) -> None:
        self._lines: Iterator[str] = iter(lines)

    def __call__(self, prompt: str = "") -> str:
        """Return the next line."""
        line = next(self._lines, None)
        if line is None:
            raise EOFError
        return line


async def test_a_chat_goes_on_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A chat that was left while it waits for a person is gone on with from its file."""
    path = tmp_path / "desk.db"
    before = ScriptedChatModel(
        call("find_order", number="HO-10457"),
        call("give_credit", order="1", cents=6000, reason="A bad seam"),
    )
    monkeypatch.setattr("builtins.input", Keyboard("", "Sixty euros for HO-10457?"))
    await chat(before, path, "one")
    assert f"Kept as thread 'one' in {path}." in capsys.readouterr().out

    after = ScriptedChatModel(say("A colleague said no."))
    monkeypatch.setattr("builtins.input", Keyboard("Too much."))
    await chat(after, path, "one")
    printed = capsys.readouterr().out
    assert "Customer  Sixty euros for HO-10457?" in printed
    assert "Desk  A colleague said no." in printed
    after.check()


async def test_a_failed_turn_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A chat says how to try again what failed for a moment."""
    model = ScriptedChatModel(fail(TransientError("The server is busy.")), say("Hello!"))
    monkeypatch.setattr("builtins.input", Keyboard("Hi", "/again"))
    await chat(model, tmp_path / "desk.db", "one")
    printed = capsys.readouterr().out
    assert printed.index("The server is busy.") < printed.index("type /again to try again")
    assert "Desk  Hello!" in printed
    model.check()


def test_the_agents_need_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is built without a key, a server or any resource."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    nodes = [node.name for node in graphs_of(NAME)(Input(payload="Hi", stream=ROOT_STREAM)).nodes]
    assert nodes == ["model", "approval", "tools", "report", "effect.give_credit"]
