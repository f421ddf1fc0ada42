"""Tools whose call is an effect, in a ReActAgent."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from soev.adapters import ScriptedChatModel, ScriptStep, call, calls, say
from soev.domain import (
    BudgetExceeded,
    EffectIntent,
    EffectResult,
    Input,
    ToolCall,
    ToolOutput,
    Trace,
    TransientError,
)
from soev.runtime import Budget, ElementId, Recorded, replay, retrace, tool
from soev.toolkit import EffectTool, ReActAgent, ReActConfig
from soev.toolkit._effect_tools import EffectCallStep, EffectReportStep, Elsewhere
from tests.toolkit.deeds import Bank, Refund, Row, Shop, kinds, refund, results

pytestmark = pytest.mark.anyio

PAID = '{"paid":true}'


@tool(name="show", description="Show a row.")
async def show(name: str) -> ToolOutput:
    """Show a row."""
    return ToolOutput(text=name, elements=(Row(id=name),))


def ask_refund(arguments: Any) -> str | None:
    """Ask about large refunds only."""
    return f"Refund {arguments.order}?" if arguments.cents > 100 else None


async def test_a_call_is_an_intent_an_act_and_a_result() -> None:
    """The intent has the tool's name and the arguments; the call's result is the output as JSON."""
    bank = Bank()
    shop = Shop(call("refund", order="o-1"), say("Done."), effects=(refund(bank),))
    trace = await shop.say()
    assert kinds(trace)[2:] == [
        "ModelOutput", "EffectIntent", "EffectResult", "ToolOutput", "Done.", "Ended",
    ]  # fmt: skip
    intent = trace.of(EffectIntent)[0]
    assert (intent.kind, intent.args) == ("refund", {"order": "o-1", "cents": 100})
    assert [event.origin for event in trace[3:6]] == ["effect.refund", "effect.refund", "report"]
    assert results(trace) == [PAID]
    assert shop.model.requests[1].messages[-1].text == PAID
    assert [each.name for each in shop.model.requests[0].tools] == ["refund"]
    assert dict(bank.acts) == {intent.id: 1}


async def test_effects_run_one_by_one_in_call_order_and_then_the_tools() -> None:
    """Whatever tool they are of, effects come in the order of the calls, other tools last."""
    left, right = Bank(), Bank()
    mixed = calls(
        call("show", name="a"), call("right", order="1"), call("left", order="2"),
        call("right", order="3"),
    )  # fmt: skip
    shop = Shop(
        mixed, say("Done."), tools=(show,), effects=(refund(left, "left"), refund(right, "right"))
    )
    trace = await shop.say()
    made = [(each.kind, dict(each.args)["order"]) for each in trace.of(EffectIntent)]  # type: ignore[arg-type]  # args are an object
    assert made == [("right", "1"), ("left", "2"), ("right", "3")]
    assert kinds(trace)[3:12] == ["EffectIntent", "EffectResult", "ToolOutput"] * 3
    assert results(trace) == [PAID] * 3 + ["a"]
    assert [message.text for message in shop.model.requests[1].messages[-4:]][1:] == [PAID] * 3


async def test_two_equal_calls_are_two_acts() -> None:
    """Each call has an intent of its own, and its own result."""
    bank = Bank()
    shop = Shop(
        calls(call("refund", order="1"), call("refund", order="1")), say("Done."),
        effects=(refund(bank),),
    )  # fmt: skip
    trace = await shop.say()
    ids = [each.id for each in trace.of(EffectIntent)]
    assert [bank.acts[str(each)] for each in ids] == [1, 1]
    output = trace.results()
    assert len(output) == 2
    assert [result.call_id for result in output.values()] == [each.id for each in output]


async def test_a_refusal_of_the_world_is_the_error_of_the_call() -> None:
    """The model reads why, and the turn goes on."""
    bank = Bank()
    bank.refuses = "The order is paid back already."
    shop = Shop(call("refund", order="1"), say("Sorry."), effects=(refund(bank),))
    trace = await shop.say()
    assert results(trace) == ["error: The order is paid back already."]
    assert kinds(trace)[-2:] == ["Sorry.", "Ended"]


async def test_approvals_come_before_all_effects() -> None:
    """A denied call is no intent, an approved one is; nothing acts before the last answer."""
    bank = Bank()
    both = calls(
        call("refund", order="1"), call("refund", order="2", cents=500),
        call("refund", order="3", cents=900),
    )  # fmt: skip
    shop = Shop(both, say("Done."), effects=(refund(bank),), approvals={"refund": ask_refund})
    await shop.say()
    await shop.answer({"approved": False, "comment": "Too much."})
    assert bank.acts.total() == 0
    trace = await shop.answer({"approved": True})
    assert [row["order"] for row in bank.args if isinstance(row, dict)] == ["1", "3"]
    assert [text.partition(".")[0] for text in results(trace)] == [
        "error: A person did not approve this call, so it did not run", PAID, PAID,
    ]  # fmt: skip
    named = {each.arguments["order"]: result.error for each, result in trace.results().items()}
    assert [named[order] is None for order in "123"] == [True, False, True]


@pytest.mark.parametrize(
    "wrong",
    [
        call("refund"),
        call("refund", order="1", cents="many"),
        call(ToolCall(id="c", name="refund", raw="x")),
    ],
    ids=["missing", "misfit", "raw"],
)
async def test_a_call_that_does_not_fit_never_becomes_an_intent(wrong: ScriptStep) -> None:
    """The model reads what is wrong, as for every tool; a call that fits beside it is performed."""
    bank = Bank()
    shop = Shop(calls(wrong, call("refund", order="2")), say("Done."), effects=(refund(bank),))
    trace = await shop.say()
    assert len(trace.of(EffectIntent)) == 1
    assert results(trace)[0] == PAID
    assert results(trace)[1].startswith("error: The arguments of `refund`")
    fine = [call for call, result in trace.results().items() if result.error is None]
    assert [each.arguments for each in fine] == [{"order": "2"}]


async def test_an_unknown_outcome_leaves_the_call_open_until_it_is_settled() -> None:
    """The answer about the effect is no word of the user, so the model is not shown it."""
    bank = Bank()
    bank.fails = [TransientError("lost")]
    shop = Shop(call("refund", order="1"), say("Done."), effects=(refund(bank),))
    assert kinds(await shop.say())[-1] == "Failure"
    await shop.resume()
    trace = await shop.answer({"happened": True, "output": "by hand"})
    assert results(trace) == ['"by hand"']
    assert [type(each).__name__ for each in shop.model.requests[1].messages] == [
        "SystemMessage", "UserMessage", "AssistantMessage", "ToolMessage",
    ]  # fmt: skip


async def test_an_output_over_the_budget_performs_nothing() -> None:
    """The cap holds for effects as for tools."""
    bank = Bank()
    steps = [call("refund", order=str(number)) for number in range(3)]
    budget = Budget(cap=2, resume_at="model", tolerance=1)
    trace = await Shop(*steps, say("Enough."), effects=(refund(bank),), budget=budget).say()
    assert bank.acts.total() == 2
    assert len(trace.of(BudgetExceeded)) == 1


class Mark(BaseModel):
    """Arguments with all that can be in them."""

    row: Annotated[Row, ElementId()]
    other: Annotated[str, ElementId(Row)]
    deep: int = 2
    seen: Recorded[Row] = ()


async def test_the_intent_holds_real_ids_and_no_recorded_elements() -> None:
    """What the world gets names elements as the log does."""
    bank = Bank()
    marking = EffectTool("mark", "Mark.", Mark, bank)
    shown = calls(call("show", name="a"), call("show", name="b"))
    shop = Shop(
        shown, call("mark", row="2", other="1"), say("Done."), tools=(show,), effects=(marking,)
    )
    trace = await shop.say()
    assert trace.of(EffectIntent)[0].args == {"row": "b", "other": "a", "deep": 2}
    assert results(trace)[2:] == [PAID]


async def test_an_intent_of_older_code_still_answers_its_call() -> None:
    """The arguments got another default while the process was down."""
    bank = Bank()
    shop = Shop(call("refund", order="1"), say("Done."), effects=(refund(bank),))
    await shop.open()
    assert await shop.dies("effect.recorded")

    class Newer(Refund):
        cents: int = 700

    shop.build(effects=(EffectTool("refund", "Refund.", Newer, bank),), element_types=(Row,))
    assert results(await shop.resume()) == [PAID]
    assert list(bank.acts.values()) == [1]


async def test_a_result_is_that_of_its_call_when_newer_code_reads_more() -> None:
    """A call that did not fit before stands first now; the act was that of the other."""
    bank = Bank()
    both = calls(call("refund", order="1", cents="many"), call("refund", order="2"))
    shop = Shop(both, say("Done."), effects=(refund(bank),))
    await shop.open()
    assert await shop.dies("effect.recorded")

    class Wider(BaseModel):
        order: str
        cents: int | str = 100

    shop.build(effects=(EffectTool("refund", "Refund.", Wider, bank),), element_types=(Row,))
    trace = await shop.resume()
    assert [each.arguments["order"] for each in trace.results()] == ["2", "1"]
    assert [row["order"] for row in bank.args if isinstance(row, dict)] == ["2", "1"]


async def test_effects_may_be_a_function_of_the_resources() -> None:
    """As for tools, the effector can be what the program made."""
    bank = Bank()
    shop = Shop(
        call("refund", order="1"), say("Done."), effects=lambda resources, turn: (refund(bank),)
    )
    assert results(await shop.say()) == [PAID]


async def test_a_turn_with_an_effect_replays() -> None:
    """Each request is rebuilt as it was sent, and each route is the one that was taken."""
    bank = Bank()
    bank.fails = [TransientError("lost")]
    agree = {"refund": lambda arguments: "Refund?"}
    shop = Shop(call("refund", order="1"), say("Done."), effects=(refund(bank),), approvals=agree)
    await shop.say()
    await shop.answer({"approved": True})
    await shop.resume()
    trace = await shop.answer({"happened": True})

    def graph_for(input: Input) -> Any:
        return shop.agents["seller"].build(None, None, None)

    assert [each.same_request for each in await replay(list(trace), graph_for)] == [True, True]
    assert retrace(list(trace), graph_for) == []


@pytest.mark.parametrize("name", ["", "a/b", "a#b", "x" * 58])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    """The node of an effect is named after its tool."""
    with pytest.raises(ValueError, match="No node can be named after the tool"):
        refund(Bank(), name)


def test_a_name_that_is_taken_is_refused() -> None:
    """Tools and effects share their names."""
    with pytest.raises(ValueError, match="two tools named 'show'"):
        ReActConfig(
            model=ScriptedChatModel(), prompt="", tools=(show,), effects=(refund(Bank(), "show"),)
        )


def test_an_agent_without_effects_has_no_node_for_them() -> None:
    """The graph has what can be reached."""
    graph = ReActAgent(ReActConfig(model=ScriptedChatModel(), prompt="")).build(None, None, None)
    assert [node.name for node in graph.nodes] == ["model", "approval", "tools"]


async def test_steps_that_are_routed_to_wrongly_say_so() -> None:
    """No call, no intent; no effect, no report; and a ToolStep runs no effect."""
    view = Trace([Input(payload="Go"), EffectResult(intent="i")])
    with pytest.raises(ValueError, match="No call of 'refund' can be performed"):
        EffectCallStep(refund(Bank())).intend(view)
    with pytest.raises(ValueError, match="latest effect is not that of a call"):
        await EffectReportStep({})(view)
    with pytest.raises(RuntimeError, match="a node of its own"):
        await Elsewhere("refund", "", Refund).run(Refund(order="1"))
