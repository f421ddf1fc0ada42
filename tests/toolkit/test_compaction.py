"""Summaries of long conversations: when, of what, and that they replay."""

from typing import Any

import pytest

from soev.adapters import InMemoryTraceStore, ScriptedChatModel, ScriptStep, call, fail, say
from soev.domain import (
    Compaction,
    Event,
    Failure,
    Input,
    ModelOutput,
    ToolOutput,
    Trace,
    TransientError,
)
from soev.runtime import Agent, AgentCatalog, Graph, accepted, replay, retrace, tool
from soev.toolkit import BRACKETS, Compacting, CompactStep, MessageBuilder, ReActAgent, ReActConfig

from .logs import brief, calls, grown, result, said

SUMMARY = "u Summary of the conversation before this point:\n"


@tool(name="look", description="Look.")
async def look(at: int) -> ToolOutput:
    """Show something long."""
    return ToolOutput(text=f"seen {at} " + "x" * 100)


def agent_of(model: ScriptedChatModel, above: int = 1, keep: int = 1) -> ReActAgent:
    """Make an agent that sums up early."""
    config = ReActConfig(
        model=model, prompt="Look.", tools=(look,), citations=BRACKETS,
        compaction=Compacting(above, keep, "Sum up."),
    )  # fmt: skip
    return ReActAgent(config)


async def talked(agent: Agent[Any, Any], *texts: str) -> Trace:
    """Say texts turn by turn and return the trace."""
    catalog = AgentCatalog(InMemoryTraceStore(), {"a": agent}, version="1")
    thread, _ = await catalog.open("a", Input(payload=texts[0]), thread_id="t")
    trace = await thread.resume()
    for text in texts[1:]:
        said = Input(payload=text)
        trace = await (await catalog.thread("t", input=said)).send(said)
    if trace.latest(Failure):
        trace = await (await catalog.thread("t", resuming=True)).resume()
    return trace


def step(keep: int, above: int = 1) -> CompactStep:
    """Make a step over a plain builder."""
    builder = MessageBuilder("Be brief.", "m", tools=(look,))
    return CompactStep(builder, ScriptedChatModel(say("Short.")), Compacting(above, keep))


SCRIPT: list[ScriptStep] = [
    call("look", at=1), say("One."), call("look", at=2), fail(TransientError("Busy.")),
    say("Two [3]."), say("Done."), say("Three."),
]  # fmt: skip


@pytest.mark.anyio
async def test_a_summary_takes_the_place_of_the_beginning() -> None:
    """It is made between two model calls and at the end of a turn, and made again if it failed."""
    model = ScriptedChatModel(*SCRIPT)
    trace = await talked(agent_of(model), "Go")
    assert [event.origin for event in trace][2:] == [
        "model", "tools", "compact", "model", "tools", "compact", "compact", "model", "compact",
        None,
    ]  # fmt: skip
    assert [each.through for each in trace.of(Compaction)] == [2, 5, 9]
    last = brief(model.requests[5])
    assert last[1:] == [f"{SUMMARY}Two [3].", "a look:r2", "t r2 seen 2 " + "x" * 100]
    model.check()


@pytest.mark.anyio
async def test_a_summary_is_asked_for_without_tools_and_citations() -> None:
    """The model sees what is to be covered and the instruction; what it writes is kept as it is."""
    model = ScriptedChatModel(*SCRIPT)
    trace = await talked(agent_of(model), "Go")
    asked = model.requests[4]
    assert (asked.tool_choice, brief(asked)[-1]) == ("none", "u Sum up.")
    summary = trace.of(Compaction)[1]
    assert (summary.text, summary.model) == ("Two [3].", "scripted")
    assert (summary.request_hash, summary.sent_chars) == (asked.hash, asked.sent_chars)


@pytest.mark.anyio
async def test_summaries_replay() -> None:
    """Replay rebuilds the calls of summaries too, the failed one included."""
    agent = agent_of(ScriptedChatModel(*SCRIPT))
    trace = await talked(agent, "Go")

    def graph_for(input: Input) -> Graph:
        return agent.build(None, accepted(agent.input, input)[1], None)

    rebuilt = await replay(list(trace), graph_for)
    assert [each.same_request for each in rebuilt] == [True] * 7
    assert retrace(list(trace), graph_for) == []


@pytest.mark.anyio
async def test_a_short_conversation_is_left_alone() -> None:
    """Below the size nothing is summed up, and neither without enough parts."""
    for above, keep in ((100_000, 1), (1, 5)):
        model = ScriptedChatModel(call("look", at=1), say("Done."), say("Bye."))
        trace = await talked(agent_of(model, above, keep), "Go", "Thanks")
        assert trace.of(Compaction) == ()


@pytest.mark.anyio
async def test_an_empty_summary_is_refused() -> None:
    """What the model did not write cannot stand for anything."""
    compact = CompactStep(step(1).messages, ScriptedChatModel(say(" ")), Compacting(1, 1))
    with pytest.raises(ValueError, match="wrote an empty summary"):
        await compact(view(said("One"), ModelOutput(text="1")))


def view(*events: Event, stream: str = "main") -> Trace:
    """Return the view of hand-made events."""
    return grown(events).view(stream)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("keep", "through"), [(1, 5), (2, 4), (3, None)], ids=["one", "two", "too few"]
)
async def test_the_last_parts_stay(keep: int, through: int | None) -> None:
    """A part is a fresh input, or an output with its results; a response is no part."""
    events = (
        said("One"), calls("c1"), result("c1"), Input(payload="ok", answers=9),
        ModelOutput(text="1"), ModelOutput(text="2"),
    )  # fmt: skip
    compact = step(keep)
    assert compact.due(view(*events)) == (through is not None)
    if through is None:
        with pytest.raises(ValueError, match="it has no 6 parts since the last one"):
            await compact(view(*events))
    else:
        made = await compact(view(*events))
        assert [each.through for each in made if isinstance(each, Compaction)] == [through]


def test_parts_are_counted_since_the_last_summary() -> None:
    """What is summed up already is no reason for the next summary."""
    events = [said("One"), ModelOutput(text="1"), Compaction(text="s", through=1), said("Two")]
    assert not step(2).due(view(*events, ModelOutput(text="2")))
    assert step(2).due(view(*events, ModelOutput(text="2"), ModelOutput(text="3")))


def test_a_branch_sums_up_its_own_events() -> None:
    """The parent's parts are not the branch's to cover."""
    branch = "main/model#4.1"
    parent = (said("One"), ModelOutput(text="1"), said("Two"), ModelOutput(text="2"))
    own = [ModelOutput(text=f"b{number}", stream=branch) for number in range(2)]
    assert not step(1).due(view(*parent, own[0], stream=branch))
    assert step(1).due(view(*parent, *own, stream=branch))
    assert not step(2).due(view(*parent[:2], *[ModelOutput(stream="main/b#2.1")] * 2))


@pytest.mark.parametrize("wrong", [{"above": 0}, {"above": 1, "keep": 0}])
def test_a_summary_of_everything_is_refused(wrong: dict[str, int]) -> None:
    """Sizes and parts begin at one."""
    with pytest.raises(ValueError, match="a summary needs 1 or more"):
        Compacting(**wrong)  # type: ignore[arg-type]  # no instruction among them
