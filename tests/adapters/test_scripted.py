"""The scripted model: what its steps answer, in which order, and what it says when it is off."""

import asyncio
import hashlib
import pickle

import pytest

from soev.adapters import (
    OffScriptError,
    ScriptedChatModel,
    ScriptStep,
    UnusedStepsError,
    call,
    calls,
    fail,
    forever,
    hold,
    optional,
    reply,
    say,
    stream,
    think,
)
from soev.domain import (
    CallSite,
    ChatDelta,
    ChatReply,
    ChatRequest,
    JsonValue,
    SystemMessage,
    ToolCall,
    ToolDef,
    TransientError,
    Usage,
    UserMessage,
    call_site,
    canonical_json,
    fault_plan,
)

pytestmark = pytest.mark.anyio

ASK = ChatRequest((SystemMessage("Be brief."), UserMessage("Hello")))


async def pieces(model: ScriptedChatModel, request: ChatRequest = ASK) -> list[object]:
    """Return all that a model streams."""
    return [piece async for piece in model.stream(request)]


async def answer(model: ScriptedChatModel, request: ChatRequest = ASK) -> ChatReply:
    """Return the last piece that a model streams."""
    last = (await pieces(model, request))[-1]
    assert isinstance(last, ChatReply)
    return last


async def answer_at(
    model: ScriptedChatModel, *, node: str = "model", stream: str = "main", agent: str = "desk"
) -> str:
    """Return the text that a model answers in a step."""
    token = call_site.set(CallSite("t-1", agent, stream, node, lambda _: None))
    try:
        return (await answer(model)).text
    finally:
        call_site.reset(token)


# --- steps ----------------------------------------------------------------------------------------


async def test_say_streams_a_text_word_by_word() -> None:
    """The text comes in several deltas, which join to it with every space."""
    text = " Thirty days,\n at  most. "
    *deltas, last = await pieces(ScriptedChatModel(say(text)))
    assert all(isinstance(delta, ChatDelta) for delta in deltas)
    assert len(deltas) > 3
    assert "".join(delta.text for delta in deltas if isinstance(delta, ChatDelta)) == text
    assert last == ChatReply(text, model="scripted")


async def test_say_can_end_in_other_ways() -> None:
    """A step can say why it stops, and which tokens it took."""
    usage = Usage(output_tokens=3)
    cut = await answer(ScriptedChatModel(say("One", finish="length", usage=usage)))
    assert (cut.finish, cut.usage) == ("length", usage)


async def test_saying_nothing_is_an_answer() -> None:
    """An empty text makes a reply without deltas."""
    assert await pieces(ScriptedChatModel(say(""))) == [ChatReply(model="scripted")]


async def test_stream_keeps_its_pieces() -> None:
    """The deltas are exactly the given ones."""
    deltas = await pieces(ScriptedChatModel(stream("He", "llo")))
    assert deltas == [ChatDelta("He"), ChatDelta("llo"), ChatReply("Hello", model="scripted")]


async def test_a_stream_can_break_off() -> None:
    """An error among the pieces is raised after the pieces before it."""
    told = ScriptedChatModel(stream("He", TransientError("gone"))).stream(ASK)
    assert await anext(told) == ChatDelta("He")
    with pytest.raises(TransientError, match="gone"):
        await anext(told)


async def test_call_calls_a_tool() -> None:
    """A call has its arguments and an id that is the same in every run."""
    model = ScriptedChatModel(call("search", tool="x", query="refund"), call("search"))
    first, second = await answer(model), await answer(model)
    arguments: dict[str, JsonValue] = {"tool": "x", "query": "refund"}
    assert first.calls == (ToolCall(id="call-1", name="search", arguments=arguments),)
    assert first.finish == "tools"
    assert second.calls == (ToolCall(id="call-2", name="search"),)


async def test_calls_call_tools_at_once() -> None:
    """Several calls come in one answer, after the text; a whole call keeps its id."""
    own = ToolCall(id="mine", name="order", raw="{oops")
    model = ScriptedChatModel(calls(call("search", q=1), own, call("order"), text="Looking."))
    assert await answer(model) == ChatReply(
        "Looking.",
        (
            ToolCall(id="call-1", name="search", arguments={"q": 1}),
            own,
            ToolCall(id="call-2", name="order"),
        ),
        model="scripted",
        finish="tools",
    )


async def test_calls_takes_calls_alone() -> None:
    """A step that is no call has no place among calls."""
    with pytest.raises(ValueError, match=r"`calls` takes what `call` makes, not say\('x'\)"):
        calls(call("search"), say("x"))


async def test_fail_raises_before_anything_is_said() -> None:
    """The given error is what the caller gets."""
    error = TransientError("busy")
    with pytest.raises(TransientError) as caught:
        await answer(ScriptedChatModel(fail(error)))
    assert caught.value is error


async def test_think_reasons_before_the_answer() -> None:
    """Reasoning is streamed first, and the reply hands it back as a whole."""
    *deltas, last = await pieces(ScriptedChatModel(think("Hm", ".", then=call("search"))))
    assert deltas == [ChatDelta(reasoning="Hm"), ChatDelta(reasoning=".")]
    assert isinstance(last, ChatReply)
    assert (last.reasoning, last.calls[0].name, last.finish) == ("Hm.", "search", "tools")


@pytest.mark.parametrize("made", [say("2"), "2", ChatReply("2", model="scripted")])
async def test_reply_answers_what_a_function_makes(made: ScriptStep | ChatReply | str) -> None:
    """A function of the request returns a step, a text, or a whole reply."""
    seen: list[ChatRequest] = []

    def made_of(request: ChatRequest) -> ScriptStep | ChatReply | str:
        seen.append(request)
        return made

    told = await pieces(ScriptedChatModel(reply(made_of)))
    assert told == [ChatDelta("2"), ChatReply("2", model="scripted")]
    assert seen == [ASK]


async def test_hold_waits_until_the_test_opens_it() -> None:
    """A call stands at the gate, and answers once it is open."""
    gate = hold(say("late"))
    task = asyncio.create_task(answer(ScriptedChatModel(gate)))
    await gate.reached()
    assert not task.done()
    gate.open()
    assert (await task).text == "late"


async def test_a_script_hands_its_gates_out() -> None:
    """The part that was added has its gates, and opens the first that is closed."""
    model = ScriptedChatModel()
    script = model.script(hold(say("1")), say("2"), think("Hm", then=hold(say("3"))))
    assert len(script.holds) == 2
    for text in ("1", "2", "3"):
        task = asyncio.create_task(answer(model))
        if text != "2":
            await script.reached()
            script.open()
        assert (await task).text == text
    with pytest.raises(ValueError, match="no closed gate"):
        script.open()


async def test_the_model_that_is_asked_for_replies() -> None:
    """The reply has the name that the request asks for, else the model's own."""
    asked = ChatRequest(ASK.messages, model="gpt-x")
    model = ScriptedChatModel(say("a"), say("b"), name="desk")
    assert [(await answer(model, asked)).model, (await answer(model)).model] == ["gpt-x", "desk"]


# --- order ----------------------------------------------------------------------------------------


async def test_steps_are_used_in_order_and_requests_kept() -> None:
    """Each call takes the next step, and what was sent can be read and not changed."""
    model = ScriptedChatModel(say("1"))
    model.script(say("2"))
    other = ChatRequest((UserMessage("Again"),))
    assert [(await answer(model)).text, (await answer(model, other)).text] == ["1", "2"]
    assert model.requests == (ASK, other)
    model.check()


async def test_a_call_too_many_shows_where_the_script_ended() -> None:
    """The error has the last messages, the used steps, and the next steps of other scripts."""
    model = ScriptedChatModel(say("1"), call("search", q="x"))
    model.script(say("hello"), node="writer")
    await answer(model)
    await answer(model)
    with pytest.raises(OffScriptError, match="no step for call 3") as caught:
        await answer(model)
    error = caught.value
    assert error.messages == ("system: Be brief.", "user: Hello")
    assert error.used == ("say('1')", "call('search', q='x')")
    assert error.others == ("node 'writer': say('hello')",)
    assert all(line in str(error) for line in (*error.messages, *error.used, *error.others))
    assert len(model.requests) == 3


async def test_check_repeats_the_call_that_was_too_many() -> None:
    """A run that swallowed the error fails the test at its end."""
    model = ScriptedChatModel()
    with pytest.raises(OffScriptError):
        await answer(model)
    with pytest.raises(OffScriptError, match="every call has no step for call 1"):
        model.check()


async def test_check_names_the_steps_that_are_left() -> None:
    """Steps that no call used fail the test, and are named."""
    model = ScriptedChatModel(say("1"), say("2"), optional(say("3")))
    await answer(model)
    with pytest.raises(UnusedStepsError, match="1 step of its script is unused") as caught:
        model.check()
    assert caught.value.unused == model.unused == ("every call: say('2')",)


async def test_optional_steps_may_be_used() -> None:
    """An optional step answers when its turn comes."""
    model = ScriptedChatModel(optional(say("1")))
    model.check()
    assert (await answer(model)).text == "1"


async def test_forever_answers_every_further_call() -> None:
    """The last step repeats; it has to be used once, unless it is optional."""
    model = ScriptedChatModel(forever(call("search")))
    assert model.unused == ("every call: forever(call('search'))",)
    ids = [(await answer(model)).calls[0].id for _ in range(3)]
    assert ids == ["call-1", "call-2", "call-3"]
    model.check()
    ScriptedChatModel(optional(forever(say("x")))).check()
    ScriptedChatModel(forever(optional(say("x")))).check()


async def test_nothing_stands_behind_forever() -> None:
    """A step that could never be used is refused when the script is written."""
    model = ScriptedChatModel(optional(forever(say("x"))))
    with pytest.raises(ValueError, match=r"say\('y'\) would never be used"):
        model.script(say("y"))


# --- scripts of their own -------------------------------------------------------------------------


async def test_scripts_belong_to_nodes_streams_and_agents() -> None:
    """A call uses the script of its stream, else of its node, else of its agent, else the rest."""
    model = ScriptedChatModel(say("any"))
    model.script(say("agent"), agent="clerk")
    model.script(say("node"), node="writer")
    model.script(say("stream"), stream="main/2")
    texts = [
        await answer_at(model, agent="clerk", node="writer", stream="main/2"),
        await answer_at(model, agent="clerk", node="writer"),
        await answer_at(model, agent="clerk"),
        await answer_at(model),
    ]
    assert texts == ["stream", "node", "agent", "any"]
    model.check()


async def test_a_script_can_name_several_things() -> None:
    """A script for a node in a stream goes before one for the node alone."""
    model = ScriptedChatModel()
    model.script(say("node"), node="writer")
    model.script(say("both"), node="writer", stream="main/1")
    assert await answer_at(model, node="writer", stream="main/1") == "both"
    assert await answer_at(model, node="writer", stream="main/2") == "node"


async def test_a_call_outside_of_a_step_uses_the_script_for_every_call() -> None:
    """The call site is not needed."""
    model = ScriptedChatModel(say("any"))
    model.script(say("node"), node="writer")
    assert (await answer(model)).text == "any"


async def test_concurrency_does_not_shuffle_scripts() -> None:
    """Calls of two streams get their own answers and ids in whichever order they run."""

    async def ids(first: str, second: str) -> set[tuple[str, str]]:
        model = ScriptedChatModel()
        for name in ("main/1", "main/2"):
            model.script(call("search", by=name), stream=name)
        found = set()
        for name in (first, second):
            token = call_site.set(CallSite("t", None, name, "model", lambda _: None))
            found.add((name, (await answer(model)).calls[0].id))
            call_site.reset(token)
        return found

    assert await ids("main/1", "main/2") == await ids("main/2", "main/1")


# --- the shell ------------------------------------------------------------------------------------


async def test_prepare_returns_the_canonical_json() -> None:
    """The prepared body, written canonically, is what the request's hash and size are of."""
    request = ChatRequest(
        ASK.messages,
        model="gpt-x",
        options={"seed": 1},
        response_schema={"type": "object"},
        tools=(ToolDef("search", "Search.", {"type": "object"}),),
    )
    prepared = ScriptedChatModel().prepare(request)
    written = canonical_json(prepared.body)
    assert hashlib.sha256(written.encode()).hexdigest() == request.hash
    assert len(written) == request.sent_chars


async def test_the_points_of_a_call_are_passed_in_order() -> None:
    """A harness can strike at the same points as in a real model."""
    passed: list[str] = []
    token = fault_plan.set(passed.append)
    await answer(ScriptedChatModel(say("x")))
    fault_plan.reset(token)
    assert passed == ["model.request.sending", "model.request.sent", "model.reply.read"]


async def test_errors_can_be_pickled() -> None:
    """The errors of a script keep their facts."""
    for error in (
        OffScriptError("every call", ("user: x",), ("say('1')",), ("node 'a': say('2')",)),
        UnusedStepsError(("every call: say('1')",)),
    ):
        twin = pickle.loads(pickle.dumps(error))
        assert (type(twin), str(twin)) == (type(error), str(error))


@pytest.mark.parametrize(
    "code",
    [
        "say('x')",
        "say('x', finish='length')",
        "stream('a', 'b')",
        "call('search', q=1)",
        "calls(call('a'), call('b'), text='Hm')",
        "fail(ValueError('x'))",
        "think('Hm', then=say('x'))",
        "hold(say('x'))",
        "optional(forever(say('x')))",
    ],
)
async def test_a_step_prints_as_its_code(code: str) -> None:
    """The repr of a step is what a test would write."""
    assert repr(eval(code)) == code


async def test_the_model_prints_its_name() -> None:
    """The repr shows the name."""
    assert repr(ScriptedChatModel()) == "ScriptedChatModel(name='scripted')"
