"""What a ReActAgent does with a model, tools and people."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel

from soev.adapters import InMemoryTraceStore, ScriptedChatModel, ScriptStep, call, calls, say
from soev.domain import (
    BudgetExceeded,
    Element,
    Input,
    JsonValue,
    ModelOutput,
    Request,
    ToolCall,
    ToolOutput,
    Trace,
)
from soev.runtime import (
    Agent,
    AgentCatalog,
    Budget,
    ElementId,
    InputDeniedError,
    Recorded,
    Status,
    refusing,
    tool,
)
from soev.toolkit import BRACKETS, ReActAgent, ReActConfig

pytestmark = pytest.mark.anyio


class Card(Element):
    """An element that a tool can act on."""

    tag: ClassVar[str] = "card"


@tool(name="deal", description="Deal a card.")
async def deal(name: str) -> ToolOutput:
    """Show a card."""
    return ToolOutput(elements=(Card(id=name),))


@tool(name="burn", description="Burn a card.", repeats=True)
async def burn(
    card: Annotated[str, ElementId(Card)], hot: int = 1, *, seen: Recorded[Card]
) -> ToolOutput:
    """Burn a card that was dealt."""
    return ToolOutput(text=f"burned {card} of {len(seen)}")


@tool(name="play", description="Play a card.")
async def play(card: Annotated[Card, ElementId()]) -> ToolOutput:
    """Play a card that was dealt."""
    return ToolOutput(text=f"played {card.id}")


def ask_burn(arguments: Any) -> str | None:
    """Ask about hot fires only."""
    return f"Burn {arguments.card}?" if arguments.hot > 1 else None


def ask_play(arguments: Any) -> str | None:
    """Ask about every play."""
    return f"Play {arguments.card.id}?"


class Table:
    """One thread of an agent, played by a script."""

    def __init__(self, *steps: ScriptStep, **config: Any) -> None:
        self.model = ScriptedChatModel(*steps)
        self.config = {"tools": (deal, burn, play), "element_types": (Card,), **config}
        made: ReActAgent = ReActAgent(
            ReActConfig(model=self.model, prompt=self.config.pop("prompt", "Play."), **self.config)
        )
        self.agents: dict[str, Agent[Any, Any]] = {"player": made}
        self.store = InMemoryTraceStore()

    async def say(self, payload: JsonValue, model: str | None = None) -> Trace:
        """Open the thread and run its first turn."""
        catalog = AgentCatalog(self.store, self.agents, version="1")
        thread, _ = await catalog.open("player", Input(payload=payload, model=model), thread_id="t")
        return await thread.resume()

    async def answer(self, *, approved: bool, comment: str | None = None) -> Trace:
        """Answer the pending request, in a catalog of its own as after a restart."""
        catalog = AgentCatalog(self.store, self.agents, version="2")
        thread = await catalog.thread("t", resuming=True)
        payload: dict[str, JsonValue] = {"approved": approved}
        if comment is not None:
            payload["comment"] = comment
        pending = (await thread.status()).pending[0].event
        return await thread.send(Input(payload=payload), answering=pending)

    async def status(self) -> Status:
        """Return where the thread stands."""
        catalog = AgentCatalog(self.store, self.agents, version="1")
        return await (await catalog.thread("t")).status()


def results(trace: Trace) -> list[str]:
    """Return the results' texts, errors marked, in the order they were recorded."""
    return [f"error: {each.error}" if each.error else each.text for each in trace.of(ToolOutput)]


def prompts(trace: Trace) -> list[str | None]:
    """Return what people were asked."""
    return [request.prompt for request in trace.of(Request)]


DEALT = calls(call("deal", name="ace"), call("deal", name="king"))


async def test_it_calls_tools_until_it_answers() -> None:
    """The turn ends with an output that calls nothing; nodes are the origins of the events."""
    table = Table(call("deal", name="ace"), call("burn", card="1"), say("Done."))
    trace = await table.say("Go")
    assert results(trace) == ["", "burned ace of 1"]
    assert [event.origin for event in trace] == [
        None, None, "model", "tools", "model", "tools", "model", None,
    ]  # fmt: skip
    assert (await table.status()).state == "finished"


async def test_approvals_are_asked_in_call_order() -> None:
    """Each call that needs one waits for its own answer; all tools run after the last."""
    fires = calls(
        call("burn", card="2", hot=2), call("deal", name="ten"), call("burn", card="1"),
        call("play", card="1"),
    )  # fmt: skip
    table = Table(DEALT, fires, say("Done."), approvals={"burn": ask_burn, "play": ask_play})
    assert prompts(await table.say("Go")) == ["Burn king?"]
    assert (await table.status()).state == "waiting"
    assert prompts(await table.answer(approved=True)) == ["Burn king?", "Play ace?"]
    trace = await table.answer(approved=True)
    assert results(trace)[2:] == ["burned king of 2", "", "burned ace of 2", "played ace"]
    assert [request.origin for request in trace.of(Request)] == ["approval", "approval"]
    assert [message.text for message in table.model.requests[2].messages[-4:]] == [
        "burned king of 2", '[3] {}', "burned ace of 2", "played ace",
    ]  # fmt: skip


async def test_a_denied_call_has_the_comment_as_its_error() -> None:
    """The denied call never runs, the others do, and the model reads what the person said."""
    fires = calls(
        call("burn", card="1", hot=9), call("burn", card="2", hot=8), call("burn", card="2")
    )
    table = Table(DEALT, fires, say("Done."), approvals={"burn": ask_burn})
    await table.say("Go")
    await table.answer(approved=False, comment="Too hot.")
    trace = await table.answer(approved=True)
    denied = "A person did not approve this call, so it did not run. They said: Too hot."
    assert results(trace)[2:] == [f"error: {denied}", "burned king of 2", "burned king of 2"]
    assert table.model.requests[2].messages[-3].text == f"Error: {denied}"


async def test_the_tools_are_left_out_when_all_is_denied() -> None:
    """With nothing left to run the model is asked next."""
    table = Table(DEALT, call("play", card="1"), say("Done."), approvals={"play": ask_play})
    await table.say("Go")
    trace = await table.answer(approved=False)
    assert results(trace)[2:] == ["error: A person did not approve this call, so it did not run."]
    assert [event.origin for event in trace][-4:] == [None, "approval", "model", None]


async def test_equal_calls_are_asked_one_by_one() -> None:
    """An answer counts for one call, even when the next one asks the very same."""
    twice = calls(call("burn", card="1", hot=2), call("burn", card="1", hot=2))
    table = Table(DEALT, twice, say("Done."), approvals={"burn": ask_burn})
    assert prompts(await table.say("Go")) == ["Burn ace?"]
    assert prompts(await table.answer(approved=False)) == ["Burn ace?", "Burn ace?"]
    trace = await table.answer(approved=True)
    assert [result.partition(" ")[0] for result in results(trace)[2:]] == ["error:", "burned"]


@pytest.mark.parametrize("approved", [True, False])
async def test_an_answer_counts_for_the_call_that_was_asked_about(approved: bool) -> None:
    """The code may ask otherwise since, or about more calls: the answer keeps its call."""
    twice = calls(call("burn", card="1"), call("burn", card="2", hot=2))
    table = Table(DEALT, twice, say("Done."), approvals={"burn": ask_burn})
    await table.say("Go")
    changed = {**table.config, "approvals": {"burn": lambda each: f"Really burn {each.card}?"}}
    table.agents["player"] = ReActAgent(ReActConfig(model=table.model, prompt="Play.", **changed))
    assert prompts(await table.answer(approved=approved)) == ["Burn king?", "Really burn ace?"]
    told = [each.partition(" ")[0] for each in results(await table.answer(approved=True))[2:]]
    assert sorted(told) == (["burned", "burned"] if approved else ["burned", "error:"])


@pytest.mark.parametrize(
    "wrong",
    [
        call("burn", card="7", hot=9),
        call("burn", card="1", hot="very"),
        call(ToolCall(id="c9", name="burn", raw="no json")),
        call("vanish", card="1"),
    ],
    ids=["unresolved", "misfit", "raw", "unknown"],
)
async def test_nobody_is_asked_about_a_call_that_cannot_run(wrong: ScriptStep) -> None:
    """A call that ToolStep answers with an error needs no approval."""
    table = Table(DEALT, wrong, say("Sorry."), approvals={"burn": ask_burn})
    trace = await table.say("Go")
    assert prompts(trace) == []
    assert results(trace)[2].startswith("error: ")


async def test_an_answer_that_does_not_fit_is_refused() -> None:
    """The request expects an object with `approved`."""
    table = Table(DEALT, call("play", card="1"), approvals={"play": ask_play})
    trace = await table.say("Go")
    thread = await AgentCatalog(table.store, table.agents, version="1").thread("t")
    wrong: list[JsonValue] = [
        "yes",
        {"approved": "yes"},
        {"comment": "no"},
        {"approved": True, "by": "me"},
    ]
    for payload in wrong:
        with pytest.raises(InputDeniedError):
            await thread.submit(Input(payload=payload), answering=trace.of(Request)[0])


async def test_the_budget_ends_the_calling() -> None:
    """After the cap the model gets no tools and must answer; its last calls have errors."""
    table = Table(
        DEALT, call("burn", card="1"), call("burn", card="2"), say("Enough."),
        budget=Budget(cap=2, resume_at="model", tolerance=1),
    )  # fmt: skip
    trace = await table.say("Go")
    assert [trip.trip for trip in trace.of(BudgetExceeded)] == [1]
    assert [bool(request.tools) for request in table.model.requests] == [True, True, True, False]
    assert table.model.requests[3].messages[-1].text.startswith("Error: this call has no result.")


async def test_the_default_budget_bounds_a_turn() -> None:
    """A model that never stops calling is stopped after 25 outputs and one more try."""
    steps = [call("deal", name=f"card {number}") for number in range(27)]
    trace = await Table(*steps).say("Go")
    assert len(trace.of(ModelOutput)) == 27
    assert [trip.trip for trip in trace.of(BudgetExceeded)] == [1, 2]


class Order(BaseModel):
    """A structured input."""

    game: str
    stake: int


async def test_the_input_shapes_prompt_and_tools() -> None:
    """Prompt and tools may be functions of the parsed turn; the input's model is asked for."""

    def tools(resources: object, turn: Order) -> Sequence[Any]:
        return (deal,) if turn.stake < 5 else (deal, burn)

    table = Table(
        say("Done."), input=Order, tools=tools, prompt=lambda turn: f"Play {turn.game}.",
        options={"temperature": 0}, citations=BRACKETS,
    )  # fmt: skip
    await table.say({"game": "skat", "stake": 3}, model="big")
    request = table.model.requests[0]
    assert request.messages[0].text.startswith("Play skat.\n\nCite")
    assert request.messages[1].text == '{"game":"skat","stake":3}'
    assert [each.name for each in request.tools] == ["deal"]
    assert (request.model, dict(request.options)) == ("big", {"temperature": 0})


async def test_an_input_of_another_shape_is_refused() -> None:
    """By default the input is a text."""
    with pytest.raises(InputDeniedError, match="the payload is no RootModel"):
        await Table().say({"text": "hi"})


def test_resources_are_handed_on_untouched() -> None:
    """The graph is built with a resource that refuses every use."""

    @tool(name="open", description="Open the box.")
    async def open_box(*, box: Any) -> ToolOutput:
        return ToolOutput(text=await box.open())

    config = ReActConfig(
        model=ScriptedChatModel(),
        prompt="",
        tools=lambda resources, turn: (open_box.bind(box=resources.box),),
    )
    graph = ReActAgent(config).build(refusing("resources"), None, None)
    assert [node.name for node in graph.nodes] == ["model", "approval", "tools"]


def test_an_approval_without_its_tool_is_refused() -> None:
    """A wrong name would leave a tool without approval, so it is an error at once."""
    with pytest.raises(ValueError, match=r"names the tool 'bern', and the tools are 'burn'"):
        ReActConfig(
            model=ScriptedChatModel(), prompt="", tools=(burn,), approvals={"bern": ask_burn}
        )


def test_two_tools_of_one_name_are_refused() -> None:
    """The model could not tell them apart."""
    with pytest.raises(ValueError, match=r"two tools named 'burn'"):
        ReActConfig(model=ScriptedChatModel(), prompt="", tools=(burn, burn))
