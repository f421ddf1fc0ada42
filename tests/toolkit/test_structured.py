"""Final answers that fit a pydantic class."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from soev.adapters import InMemoryTraceStore, ScriptedChatModel, ScriptStep, call, calls, say
from soev.domain import Input, ModelOutput, ToolCall, ToolOutput, Trace
from soev.runtime import Agent, AgentCatalog, Budget, tool
from soev.toolkit import ReActAgent, ReActConfig, StructuredOutput

from .logs import grown, said

pytestmark = pytest.mark.anyio


class Weather(BaseModel):
    """An answer."""

    place: str
    degrees: int = Field(ge=-90, le=60)


WEATHER = StructuredOutput(Weather)
SUNNY = Weather(place="Lübeck", degrees=21)


@tool(name="look", description="Look out of the window.")
async def look() -> ToolOutput:
    """See the sun."""
    return ToolOutput(text="sun")


async def asked(model: ScriptedChatModel, **config: Any) -> Trace:
    """Run one turn of an agent that answers in this form."""
    made = ReActAgent(
        ReActConfig(model=model, prompt="Say it.", tools=(look,), output=WEATHER, **config)
    )
    agents: dict[str, Agent[Any, Any]] = {"a": made}
    catalog = AgentCatalog(InMemoryTraceStore(), agents, version="1")
    thread, _ = await catalog.open("a", Input(payload="How warm is it?"), thread_id="t")
    trace = await thread.resume()
    assert (await thread.status()).state == "finished"
    return trace


def answer(degrees: int) -> ScriptStep:
    """Answer through the tool."""
    return call("answer", place="Lübeck", degrees=degrees)


async def test_the_turn_ends_with_an_answer_that_fits() -> None:
    """The model must call tools, and nothing is asked after the answer."""
    model = ScriptedChatModel(call("look"), answer(21))
    assert WEATHER.read(await asked(model)) == SUNNY
    assert [request.tool_choice for request in model.requests] == ["required", "required"]
    assert [each.name for each in model.requests[0].tools] == ["look", "answer"]
    model.check()


async def test_what_does_not_fit_is_shown_and_tried_again() -> None:
    """The model reads which field does not fit, in its own words."""
    model = ScriptedChatModel(answer(210), calls(call("look"), answer(21)))
    assert WEATHER.read(await asked(model)) == SUNNY
    told = model.requests[1].messages[-1].text
    assert told.startswith("Error: The arguments of `answer` do not fit:\n- `degrees`:")
    assert "(you wrote 210)" in told


async def test_the_budget_bounds_the_tries() -> None:
    """After the budget the last word is a text; it counts when it is the JSON of an answer."""
    for last, found in ((SUNNY.model_dump_json(), SUNNY), ("It is warm.", None)):
        model = ScriptedChatModel(answer(210), answer(211), say(last))
        budget = Budget(cap=1, resume_at="model", tolerance=1)
        assert WEATHER.read(await asked(model, budget=budget)) == found
        assert model.requests[2].tools == ()


async def test_a_denied_answer_is_none() -> None:
    """An answer that a person did not approve is not taken."""
    made = ToolCall(id="c1", name="answer", arguments={"place": "Lübeck", "degrees": 21})
    denied = ToolOutput(call_id="c1", error="No.")
    assert WEATHER.read(grown([said("Hi"), ModelOutput(calls=(made,)), denied]).trace()) is None


async def test_another_turn_has_no_answer_yet() -> None:
    """Only the current turn is read, and only a call that has its result."""
    made = ToolCall(id="c1", name="answer", arguments={"place": "Lübeck", "degrees": 21})
    output, taken = ModelOutput(calls=(made,)), ToolOutput(call_id="c1", text="taken")
    assert WEATHER.read(grown([said("Hi"), output]).trace()) is None
    assert WEATHER.read(grown([said("Hi"), output, taken]).trace()) == SUNNY
    assert WEATHER.read(grown([said("Hi"), output, taken, said("And now?")]).trace()) is None
