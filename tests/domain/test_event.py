"""Events: their envelope, their payload, and what a subclass may declare."""

import datetime as dt
import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from soev import domain
from soev.domain import (
    ENVELOPE,
    BudgetExceeded,
    Cancelled,
    Citation,
    Compaction,
    EffectIntent,
    EffectResult,
    Ended,
    Event,
    Failure,
    Input,
    ModelOutput,
    Opened,
    Request,
    ToolCall,
    ToolOutput,
    ToolOutputBase,
    Usage,
    stamped,
    write_checked,
)

EVENTS: list[Event] = [
    Opened(agent="desk"),
    Input(payload={"a": [1, None]}, model="m", answers=3),
    Ended(),
    ModelOutput(
        text="Hi",
        calls=(ToolCall(id="a", name="b", arguments={"c": 1}, unresolved=("/c",)),),
        citations=(Citation(at=2, ids=("d",)), Citation(at=2, invalid=" [9]")),
        finish="tools",
        usage=Usage(input_tokens=1),
        reasoning={"sig": "x"},
    ),
    ToolOutput(call_id="a", error="no", text="t"),
    Request(kind="approval", actor="person", expects={"type": "object"}, prompt="Sure?"),
    EffectIntent(kind="mail", args={"to": "x"}, id="i"),
    EffectResult(intent="i", output={"ok": True}),
    Compaction(text="short", through=4),
    BudgetExceeded(cap=3, trip=1),
    Failure(error_type="LookupError", message="no", transient=False),
    Cancelled(input=2),
]
TAGS = {
    "Opened": "opened",
    "Input": "input",
    "Ended": "ended",
    "ModelOutput": "model_output",
    "ToolOutput": "tool_output",
    "Request": "request",
    "EffectIntent": "effect_intent",
    "EffectResult": "effect_result",
    "Compaction": "compaction",
    "BudgetExceeded": "budget_exceeded",
    "Failure": "failure",
    "Cancelled": "cancelled",
}


def payload(event: Event) -> str:
    """Write an event's payload as the log keeps it."""
    dumped = event.model_dump(mode="json", serialize_as_any=True, exclude=set(ENVELOPE))
    return write_checked(dumped, event.type)


def test_core_events_have_their_tags() -> None:
    """The tag of a core event is its class name in snake case."""
    assert {type(event).__name__: event.type for event in EVENTS} == TAGS


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_events_read_back(event: Event) -> None:
    """An event reads back equal from its payload, and writes the same text again."""
    text = payload(event)
    again = type(event).model_validate_json(text)
    assert again == event
    assert payload(again) == text
    assert not ENVELOPE & json.loads(text).keys()


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_events_are_immutable_and_strict(event: Event) -> None:
    """No field can be set, and no unknown one is taken."""
    with pytest.raises(ValidationError, match="frozen"):
        event.stream = "other"  # type: ignore[misc]  # what is refused
    with pytest.raises(ValidationError, match="extra"):
        type(event).model_validate({**event.model_dump(), "colour": "red"})


def test_what_only_the_runtime_fills_has_a_default() -> None:
    """An output or a result can be made of its text alone."""
    assert ModelOutput(text="Hi").finish == "stop"
    assert (ToolOutput(text="x").call_id, ToolOutput(text="x").elements) == (None, ())
    assert EffectIntent(kind="mail").id is None
    assert {getattr(Ended(), name) for name in ENVELOPE - {"stream"}} == {None}
    assert Ended().stream == domain.ROOT_STREAM == "main"


def test_equality_compares_payload_and_envelope() -> None:
    """Two events are equal when both their parts are."""
    assert Input(payload=1) == Input(payload=1)
    assert Input(payload=1) != Input(payload=2)
    assert Input(payload=1) != Input(payload=1, seq=1)
    assert ToolOutput() != ToolOutputBase()


def test_stamping_copies() -> None:
    """A stamped event has another envelope, and the first one is as it was."""
    event = Input(payload={"a": 1})
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    copy = stamped(event, seq=4, ts=at, origin="n", stream="main/x#1.1", version="v", left=0)
    assert (copy.seq, copy.ts, copy.origin, copy.stream, copy.left) == (
        4,
        at,
        "n",
        "main/x#1.1",
        0,
    )
    assert copy.payload == event.payload
    assert (event.seq, event.stream) == (None, "main")


@pytest.mark.parametrize("name", sorted(ENVELOPE))
def test_the_envelope_is_not_redefined(name: str) -> None:
    """A subclass that declares a field of the envelope is a TypeError that names it."""
    with pytest.raises(TypeError, match=f"declares \\['{name}'\\] again"):
        type("Mine", (Event,), {"__annotations__": {name: Any}, name: None, "__module__": __name__})


def test_a_teams_own_event_is_an_event() -> None:
    """A subclass has a tag and fields of its own."""

    class Noted(ToolOutputBase):
        type: ClassVar[str] = "noted"

        note: str

    assert Noted(note="x", call_id="a").note == "x"
    assert Noted.type == "noted"


def test_only_outputs_with_calls_call_tools() -> None:
    """`calls_tools` follows the calls, whatever the finish says."""
    assert not ModelOutput(finish="tools").calls_tools
    assert ModelOutput(calls=(ToolCall(id="a", name="b"),)).calls_tools


def test_a_failure_holds_no_key_and_no_novel() -> None:
    """A Failure's message has known keys replaced, and 2,000 characters at most."""
    key = "sk-" + "a1" * 12
    failure = Failure(error_type="E", message=f"refused {key}: " + "x" * 5000, transient=True)
    assert failure.message.startswith("refused <secret>: x")
    assert len(failure.message) == 2000


@given(st.text(max_size=3000))
def test_a_failure_reads_back_whatever_its_text(message: str) -> None:
    """Cutting and cleaning a message a second time changes nothing."""
    failure = Failure(error_type="E", message=message, transient=False)
    again = Failure.model_validate_json(failure.model_dump_json())
    assert again == failure


@given(st.integers(0, 2100), st.sampled_from(["sk-" + "a" * 30, "AKIA" + "A1" * 8]))
def test_a_key_at_the_cut_leaves_no_rest(before: int, key: str) -> None:
    """A key that would be cut in two is replaced before the cut."""
    failure = Failure(error_type="E", message="x" * before + " " + key, transient=False)
    assert key[:12] not in failure.message


def test_upgrades_change_nothing_by_default() -> None:
    """An event class reads its old payloads as they are unless it says otherwise."""
    data: dict[str, Any] = {"payload": 1}
    assert Input.upgrade(data, "1.0") == {"payload": 1}
    assert Input.former_types == ()
