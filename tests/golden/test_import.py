"""Conversations of other frameworks as golden traces."""

import json
from typing import Any

import pytest

from soev.domain import Ended, Event, Input, ModelOutput, ToolOutput
from soev.golden import (
    CheckOptions,
    Imported,
    ImportOptions,
    ImportRefusedError,
    check,
    golden_text,
    import_conversations,
)
from soev.runtime import CORE_EVENT_TYPES

from .shop import agents

Message = dict[str, Any]
SYSTEM: Message = {"role": "system", "content": "Be an agent."}
USER: Message = {"role": "user", "content": "Where is my refund?"}
ANSWER: Message = {"role": "assistant", "content": "Thirty days."}


def calling(
    *ids: str, content: str | None = None, arguments: Any = '{"query":"refund"}'
) -> Message:
    """Make an assistant message that calls `search` under these ids."""
    function = {"name": "search", "arguments": arguments}
    calls = [{"id": each, "type": "function", "function": function} for each in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(call: str, content: Any = "30 days.") -> Message:
    """Make a tool message."""
    return {"role": "tool", "tool_call_id": call, "name": "search", "content": content}


def imported(*conversations: Any, **options: Any) -> Imported:
    """Import conversations from a JSON list."""
    given = ImportOptions(file="log.json", agent="assistant", name="log", **options)
    return import_conversations(json.dumps(list(conversations)), given)


def events(messages: list[Message], **options: Any) -> list[Event]:
    """Import one conversation and decode its events."""
    (trace,) = imported(messages, **options).traces
    return [CORE_EVENT_TYPES.decode(event) for event in trace.events]


def kinds(found: list[Event]) -> str:
    """Name the classes of events by one letter each."""
    letters = {"opened": "O", "input": "I", "model_output": "M", "tool_output": "T", "ended": "E"}
    return "".join(letters[type(event).type] for event in found)


def test_a_conversation_becomes_turns() -> None:
    """User messages open turns, outputs and results follow, an answer ends the turn."""
    log = events([SYSTEM, USER, calling("a"), result("a"), ANSWER, USER, ANSWER])
    assert kinds(log) == "OIMTMEIME"
    assert [event.origin for event in log] == [
        *(None, None, "model", "tools", "model", None),
        *(None, "model", None),
    ]
    assert [event.left for event in log] == [1, 0, 0, 0, 1, 0, 0, 1, 0]
    assert [event.seq for event in log] == list(range(1, 10))


def test_the_system_prompt_is_kept_for_the_reader() -> None:
    """The recorded prompt stands in the header, since today's is what is replayed."""
    (trace,) = imported([SYSTEM, USER, ANSWER]).traces
    assert trace.header.recorded_system == "Be an agent."
    assert trace.header.source == "import:log.json#0"
    assert '"recorded_system":"Be an agent."' in golden_text(trace).split("\n", maxsplit=1)[0]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER], "OI"),
        ([USER, USER, ANSWER], "OIIME"),
        ([USER, calling("a"), result("a")], "OIMT"),
        ([USER, calling("a"), result("a"), USER, ANSWER], "OIMTIME"),
        ([USER, calling("a", content="Let me see."), result("a"), ANSWER], "OIMTME"),
        ([USER, ANSWER, calling("a"), result("a"), ANSWER], "OIMTME"),
        ([USER, calling("a"), result("a"), calling("a"), result("a"), ANSWER], "OIMTMTME"),
    ],
)
@pytest.mark.anyio
async def test_every_shape_of_a_conversation_is_a_log_that_holds(
    messages: list[Message], expected: str
) -> None:
    """Each conversation replays, and the agent's routes are the recorded ones."""
    (trace,) = imported([SYSTEM, *messages]).traces
    log = [CORE_EVENT_TYPES.decode(event) for event in trace.events]
    assert kinds(log) == expected
    report = await check(trace, None, agents())
    assert (report.verdict, report.problems) == ("missing", ())
    assert (await check(trace, None, agents(), CheckOptions(routes=True))).problems == ()


def test_text_and_calls_in_two_messages_are_one_output() -> None:
    """An assistant message with calls alone goes on from the text that precedes it."""
    (output, _) = (
        e
        for e in events([USER, ANSWER, calling("a"), result("a"), ANSWER])
        if isinstance(e, ModelOutput)
    )
    assert (output.text, len(output.calls), output.finish) == ("Thirty days.", 1, "tools")


def test_call_ids_are_numbered_and_results_stand_in_call_order() -> None:
    """Ids that are repeated or empty don't meet, and results follow the order of the calls."""
    log = events(
        [
            USER,
            calling("x", "y"),
            result("y", "second"),
            result("x", "first"),
            calling("x", "x"),
            result("x", "third"),
            result("x", "fourth"),
            ANSWER,
        ]
    )
    outputs = [event for event in log if isinstance(event, ModelOutput)]
    results = [event for event in log if isinstance(event, ToolOutput)]
    assert [call.id for each in outputs for call in each.calls] == [
        f"call-{n}" for n in range(1, 5)
    ]
    assert [(e.call_id, e.text, e.left) for e in results] == [
        ("call-1", "first", 1),
        ("call-2", "second", 0),
        ("call-3", "third", 1),
        ("call-4", "fourth", 0),
    ]


def test_arguments_that_are_no_object_are_kept_as_written() -> None:
    """What the model wrote is not lost when it is no JSON object."""
    log = events([USER, calling("a", arguments="[1"), result("a"), ANSWER])
    (call,) = next(e for e in log if isinstance(e, ModelOutput)).calls
    assert (call.arguments, call.raw) == ({}, "[1")


def test_contents_in_parts_are_joined_or_kept() -> None:
    """Texts in parts are joined; a user message with an image keeps its parts."""
    text = [{"type": "text", "text": "Look: "}, {"type": "text", "text": "here"}]
    image = [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]
    log = events([{"role": "user", "content": text}, ANSWER, {"role": "user", "content": image}])
    assert [event.payload for event in log if isinstance(event, Input)] == ["Look: here", image]


def test_a_refusal_is_an_output() -> None:
    """What a provider calls a refusal is the text of an output that finished by it."""
    refusal = {"role": "assistant", "content": None, "refusal": "No."}
    (output,) = (e for e in events([USER, refusal]) if isinstance(e, ModelOutput))
    assert (output.text, output.finish) == ("No.", "refusal")


@pytest.mark.parametrize("form", ["list", "one", "lines", "traj", "bare lines"])
def test_every_container_is_read(form: str) -> None:
    """A list, one conversation, JSON Lines, and objects with `messages` or `traj` are the same."""
    one, two = [USER, ANSWER], [SYSTEM, USER]
    text = {
        "list": json.dumps([one, two]),
        "one": json.dumps({"messages": one, "id": 1}),
        "lines": "\n".join(json.dumps({"messages": each}) for each in (one, two)) + "\n\n",
        "traj": json.dumps([{"traj": one}, {"traj": two}]),
        "bare lines": json.dumps(one) + "\r\n" + json.dumps(two),
    }[form]
    found = import_conversations(text, ImportOptions("f", "assistant", "log"))
    names = [trace.header.name for trace in found.traces]
    assert names == (["log-1"] if form == "one" else ["log-1", "log-2"])


REFUSED: list[tuple[Any, int | None, str]] = [
    ([USER, result("a")], 1, "the result of 'a' has no call"),
    ([USER, calling("a"), USER], 2, "the call 'a' of 'search' has no result"),
    ([USER, calling("a")], 1, "the call 'a' of 'search' has no result"),
    ([USER, calling("a", "b"), result("a"), ANSWER], 3, "the call 'b' of 'search' has no result"),
    ([USER, ANSWER, ANSWER], 2, "two assistant messages in a row"),
    ([USER, ANSWER, SYSTEM], 2, "a system message after the first user message"),
    ([ANSWER, USER], 0, "an assistant message before the first user message"),
    ([USER, {"role": "function", "content": ""}], 1, "the role 'function' does not fit"),
    ([USER, {"role": "assistant", "function_call": {"name": "a"}}], 1, "`function_call` is an old"),
    ([USER, {"role": "assistant", "tool_calls": [{}]}], 1, "a call has no function with a name"),
    ([USER, {"role": "assistant", "content": 5}], 1, "neither a text nor a list of texts: 5"),
    ([USER, "text"], 1, "it is no message with a `role`"),
    ([SYSTEM], 0, "there is no user message"),
    ([], None, "it has no message"),
    ({"log": []}, None, "has none under `messages` or `traj`"),
]


@pytest.mark.parametrize(("conversation", "message", "problem"), REFUSED)
def test_what_does_not_fit_is_named(conversation: Any, message: int | None, problem: str) -> None:
    """The error has the index of the conversation and of the message, and the way out."""
    with pytest.raises(ImportRefusedError) as caught:
        imported([USER], conversation)
    assert (caught.value.conversation, caught.value.message) == (1, message)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("log.json: conversation 1")


def test_conversations_that_do_not_fit_can_be_left_out() -> None:
    """With `skip_bad` the others are imported, and each refusal is handed back."""
    found = imported([USER], [ANSWER], [USER, ANSWER], skip_bad=True)
    assert [trace.header.name for trace in found.traces] == ["log-1", "log-3"]
    assert [each.conversation for each in found.refused] == [1]


def test_a_line_that_is_no_json_is_named() -> None:
    """JSON Lines with a broken line say which one."""
    with pytest.raises(ImportRefusedError, match="line 2 is no JSON"):
        import_conversations('[{"role":"user"}]\n{', ImportOptions("f", "assistant", "log"))


def test_node_names_can_be_given() -> None:
    """The origins of outputs and results are the nodes of the project's graph."""
    log = events([USER, calling("a"), result("a"), ANSWER], model_node="think", tools_node="act")
    assert [event.origin for event in log if not isinstance(event, Ended)] == [
        *(None, None, "think", "act", "think")
    ]


def test_secrets_in_conversations_are_replaced() -> None:
    """A key that somebody pasted into a conversation does not reach the file."""
    asked = {"role": "user", "content": "My key is sk-abcdefghijklmnopqrstuvwx, is it valid?"}
    (trace,) = imported([asked, ANSWER]).traces
    assert "sk-abc" not in golden_text(trace)
    assert "My key is <secret-1>, is it valid?" in golden_text(trace)
