"""Agents that are the tools of another agent."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from soev.adapters import ScriptedChatModel, ScriptStep, call, calls, say
from soev.domain import (
    BudgetExceeded,
    EffectIntent,
    Element,
    Event,
    Failure,
    Input,
    ModelOutput,
    Request,
    ToolOutput,
    Trace,
    TransientError,
)
from soev.runtime import Budget, Graph, InputDeniedError, replay, retrace, tool
from soev.toolkit import ReActAgent, ReActConfig, StructuredOutput, SubAgents, check_with
from tests.toolkit.deeds import Bank, Row, Shop, kinds, refund, results

pytestmark = pytest.mark.anyio


class Topic(BaseModel):
    """What to look into."""

    topic: str
    depth: int = 1


@tool(name="look", description="Look.")
async def look(at: str) -> ToolOutput:
    """Look at something."""
    return ToolOutput(text=f"saw {at}")


def helper(*steps: ScriptStep, **config: Any) -> ReActAgent:
    """Make an agent that can be a sub-agent."""
    model = config.pop("model", None) or ScriptedChatModel(*steps)
    made = {"input": Topic, **config}
    return ReActAgent(ReActConfig(model=model, prompt="Help.", **made))


def own(trace: Trace, stream: str) -> list[str]:
    """Return the events of one stream."""
    return kinds([event for event in trace if event.stream == stream])


TASK = "main/agent.study#3.1"


async def test_a_call_starts_an_agent_and_its_last_text_is_the_result() -> None:
    """The task's input is the arguments, and the parent sees the result alone."""
    agent = helper(call("look", at="tea"), say("Tea is a plant."), tools=(look,))
    shop = Shop(call("study", topic="tea"), say("Done."), subagents={"study": agent})
    trace = await shop.say()
    assert own(trace, TASK) == ["Input", "ModelOutput", "ToolOutput", "Tea is a plant."]
    head = trace.of(Input)[1]
    assert (head.payload, head.origin) == ({"topic": "tea"}, "agent.study")
    assert own(trace, "main")[3:] == ["ToolOutput", "Done.", "Ended"]
    assert [each.text for each in shop.model.requests[1].messages[-2:]] == ["", "Tea is a plant."]
    assert shop.model.requests[0].tools[0].description == "What to look into."


async def test_an_agent_is_described_to_the_model_that_gives_it_tasks() -> None:
    """What its config says of it comes before the docstring of its input."""
    shop = Shop(say("Done."), subagents={"study": helper(description="Ask it about drinks.")})
    await shop.say()
    assert shop.model.requests[0].tools[0].description == "Ask it about drinks."


class Finding(BaseModel):
    """What was found out."""

    fact: str
    sure: bool = False


@pytest.mark.parametrize(
    ("steps", "handed_back"),
    [
        ((call("answer", fact="It is a plant."),), '{"fact":"It is a plant.","sure":false}'),
        (
            (call("answer", sure="?"), call("answer", fact="A", sure=True)),
            '{"fact":"A","sure":true}',
        ),
        ((say('{"fact":"B"}'),), '{"fact":"B","sure":false}'),
        ((say("It is a plant."),), "error: The agent ended without an answer."),
    ],
)
async def test_an_answer_in_a_form_is_handed_back_as_json(
    steps: tuple[ScriptStep, ...], handed_back: str
) -> None:
    """The parent reads the fields of the answer that fits, or that there is none."""
    agent = helper(*steps, output=StructuredOutput(Finding))
    shop = Shop(call("study", topic="tea"), say("Done."), subagents={"study": agent})
    assert results(await shop.say())[-1] == handed_back


async def test_an_agent_of_ones_own_says_what_its_answer_is() -> None:
    """An agent with a method `answer` is asked for it with the task's view."""

    class Shouting(ReActAgent):
        """An agent that hands back in capitals."""

        def answer(self, view: Trace) -> str | None:
            return f"{view.stream}: {(super().answer(view) or '').upper()}"

    agent = Shouting(helper(say("tea.")).config)
    shop = Shop(call("study", topic="tea"), say("Done."), subagents={"study": agent})
    assert results(await shop.say()) == [f"{TASK}: TEA."]


async def test_calls_of_one_tool_run_side_by_side() -> None:
    """Both tasks are open before one of them ends; results come in call order."""
    both = calls(call("study", topic="tea"), call("study", topic="ale"))
    agent = helper(say("one"), say("two"))
    shop = Shop(both, say("Done."), subagents={"study": agent})
    trace = await shop.say()
    heads = [place for place, event in enumerate(trace) if isinstance(event, Input)][1:]
    assert heads[1] == heads[0] + 1
    assert sorted(results(trace)) == ["one", "two"]
    answered = trace.results()
    assert [each.arguments["topic"] for each in answered] == ["tea", "ale"]


async def test_agents_come_after_effects_and_before_tools() -> None:
    """The order after an output is approvals, effects, sub-agents, tools."""
    bank = Bank()
    mixed = calls(
        call("look", at="x"), call("study", topic="a"), call("plain", input="b"),
        call("refund", order="1"),
    )  # fmt: skip
    plain = helper(say("from plain"), input=ReActConfig(model=ScriptedChatModel(), prompt="").input)
    shop = Shop(
        mixed, say("Done."), tools=(look,), effects=(refund(bank),),
        subagents={"study": helper(say("from study")), "plain": plain},
        approvals={"study": lambda arguments: f"Study {arguments.topic}?"},
    )  # fmt: skip
    assert kinds(await shop.say())[-1] == "Request"
    trace = await shop.answer({"approved": True})
    assert results(trace) == ['{"paid":true}', "from study", "from plain", "saw x"]
    assert [head.payload for head in trace.of(Input) if head.stream != "main"] == [
        {"topic": "a"}, "b",
    ]  # fmt: skip


async def test_a_request_inside_a_task_is_answered_there() -> None:
    """The turn waits for the person, and goes on in the task, in another process."""
    bank = Bank()
    agent = helper(
        call("refund", order="1"), say("It is paid."), effects=(refund(bank),),
        approvals={"refund": lambda arguments: "Refund?"},
    )  # fmt: skip
    shop = Shop(call("study", topic="a"), say("Done."), subagents={"study": agent})
    waiting = await shop.say()
    assert [request.stream for request in waiting.of(Request)] == [TASK]
    assert (await shop.status()).state == "waiting"
    trace = await shop.answer({"approved": True})
    assert results(trace) == ['{"paid":true}', "It is paid."]
    assert [intent.stream for intent in trace.of(EffectIntent)] == [TASK]
    assert list(bank.acts.values()) == [1]


async def test_an_effect_in_a_task_knows_of_the_cancel() -> None:
    """The cancel stands in the root stream, and the recovery in the task asks a person."""
    bank = Bank()
    bank.hold = asyncio.Event()
    effect = refund(bank, recovery=check_with(bank.find))
    agent = helper(call("refund", order="1"), effects=(effect,))
    shop = Shop(call("study", topic="a"), subagents={"study": agent})
    thread = await shop.open()
    running = asyncio.create_task(thread.resume())
    await bank.entered.wait()
    await thread.cancel()
    await running
    bank.hold = None
    trace = await shop.resume()
    assert [(each.kind, each.stream) for each in trace.of(Request)] == [("effect", TASK)]
    settled = await shop.answer({"happened": False})
    assert own(settled, TASK)[-2:] == ["Input", "EffectResult"]
    assert bank.acts.total() == 0


@pytest.mark.parametrize(
    "point", ["effect.intended", "effect.performing", "bank.paid", "effect.recorded"]
)
async def test_a_crash_inside_a_task_pays_once(point: str) -> None:
    """The task goes on where it stopped, and its effect is one act."""
    bank = Bank()
    agent = helper(
        call("refund", order="1"), say("Paid."),
        effects=(refund(bank, recovery=check_with(bank.find)),),
    )  # fmt: skip
    shop = Shop(call("study", topic="a"), say("Done."), subagents={"study": agent})
    await shop.open()
    assert await shop.dies(point)
    trace = await shop.resume()
    assert results(trace)[-1] == "Paid."
    assert list(bank.acts.values()) == [1]
    assert (await shop.status()).state == "finished"


async def test_each_task_has_the_budget_of_its_agent() -> None:
    """A task that passes its own cap ends, and the parent's budget is untouched."""
    looks = [call("look", at=str(number)) for number in range(3)]
    small = Budget(cap=1, resume_at="model", tolerance=0)
    agent = helper(*looks, tools=(look,), budget=small)
    shop = Shop(call("study", topic="a"), say("Done."), subagents={"study": agent})
    trace = await shop.say()
    assert [trip.stream for trip in trace.of(BudgetExceeded)] == [TASK]
    assert results(trace)[-1] == "error: The agent ended without an answer."
    assert own(trace, "main")[-2:] == ["Done.", "Ended"]


async def test_an_output_over_the_budget_starts_no_agent() -> None:
    """The parent's cap comes before its tasks."""
    shop = Shop(
        call("study", topic="a"), say("Done."), subagents={"study": helper()},
        budget=Budget(cap=0, resume_at="model", tolerance=1),
    )  # fmt: skip
    trace = await shop.say()
    assert len(trace.of(Input)) == 1


async def test_agents_can_be_nested() -> None:
    """A sub-agent has sub-agents of its own."""
    inner = helper(say("deep"))
    outer = helper(call("ask", topic="b"), say("It is deep."), subagents={"ask": inner})
    shop = Shop(call("study", topic="a"), say("Done."), subagents={"study": outer})
    trace = await shop.say()
    assert results(trace) == ["deep", "It is deep."]
    assert f"{TASK}/agent.ask#2.1" in trace.streams


async def test_a_call_that_does_not_fit_starts_nothing() -> None:
    """The model reads what is wrong with it."""
    shop = Shop(call("study", depth=3), say("Sorry."), subagents={"study": helper()})
    trace = await shop.say()
    assert results(trace)[0].startswith("error: The arguments of `study` do not fit")
    assert len(trace.of(Input)) == 1


class Picky:
    """An agent of a team's own that refuses some topics."""

    description = "Knows tea alone."
    input = Topic
    element_types: Sequence[type[Element]] = (Row,)
    event_types: Sequence[type[Event]] = ()

    def build(self, resources: Any, turn: Topic, model: str | None) -> Graph:
        """Make a graph of one step, or refuse."""
        if turn.topic != "tea":
            raise InputDeniedError("it is not about tea", "Ask about tea.")

        async def step(view: Trace) -> Sequence[Event]:
            return [ModelOutput(text=f"{resources} {turn.depth}")]

        graph = Graph()
        graph.add_node("step", step)
        graph.set_entry_point("step")
        return graph


async def test_what_an_agent_refuses_is_the_error_of_the_call() -> None:
    """Other calls start their tasks, and every result is that of its call."""
    both = calls(call("study", topic="ale"), call("study", topic="tea", depth=4))
    shop = Shop(both, say("Done."), subagents={"study": Picky()})
    trace = await shop.say()
    told = {each.arguments["topic"]: result for each, result in trace.results().items()}
    assert "not about tea" in str(told["ale"].error)
    assert results(trace)[1] == "None 4"
    assert shop.model.requests[0].tools[0].description == "Knows tea alone."


async def test_a_failure_inside_a_task_is_tried_again() -> None:
    """A transient failure of the sub-agent fails the turn for now."""
    model = ScriptedChatModel(say("fine"))
    broken = [TransientError("busy")]

    def prompt(turn: Topic) -> str:
        if broken:
            raise broken.pop()
        return "Help."

    agent = ReActAgent(ReActConfig(model=model, prompt=prompt, input=Topic))
    shop = Shop(call("study", topic="a"), say("Done."), subagents={"study": agent})
    trace = await shop.say()
    assert [failure.transient for failure in trace.of(Failure)] == [True]
    assert results(await shop.resume()) == ["fine"]


async def test_a_turn_with_a_task_replays() -> None:
    """Requests inside and outside of the task are rebuilt as they were sent."""
    agent = helper(call("look", at="a"), say("Seen."), tools=(look,))
    shop = Shop(call("study", topic="a"), say("Done."), subagents={"study": agent})
    trace = await shop.say()

    def graph_for(input: Input) -> Graph:
        return shop.agents["seller"].build(None, None, None)

    assert [each.same_request for each in await replay(list(trace), graph_for)] == [True] * 4
    assert retrace(list(trace), graph_for) == []


def test_the_classes_of_sub_agents_can_be_recorded() -> None:
    """The parent's thread records what its tasks record."""
    parent = ReActConfig(model=ScriptedChatModel(), prompt="", subagents={"study": Picky()})
    assert ReActAgent(parent).element_types == (Row,)


def test_a_view_that_is_no_task_is_refused() -> None:
    """Nothing is handed back for a stream that was not handed off."""
    agents = SubAgents("study", Picky())
    for stream in ("main", "main/agent.study#3.1"):
        with pytest.raises(ValueError, match="is no task of the tool 'study'"):
            agents.hand_back(Trace([], stream))
