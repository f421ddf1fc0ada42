"""What MessageBuilder makes of a view."""

from typing import ClassVar

import pytest

from soev.domain import (
    ArgumentMark,
    AssistantMessage,
    BudgetExceeded,
    Cancelled,
    Citation,
    Compaction,
    Ended,
    Event,
    Failure,
    ImagePart,
    Input,
    JsonValue,
    ModelOutput,
    Request,
    TextPart,
    ToolCall,
    ToolDef,
    ToolOutput,
    ToolOutputBase,
    UnencodableError,
    UserMessage,
)
from soev.runtime import Budget, ModelContext
from soev.toolkit import MessageBuilder

from .logs import SQUARE, Box, Page, brief, calls, grown, result, said

NO_RESULT = "Error: this call has no result. It did not run, or was stopped before it ended."
LOOK = ToolDef("look", "Look at a page.", {"type": "object"}, (ArgumentMark("of", "element"),))
PLAIN = MessageBuilder("Be brief.", "scripted")


def built(*events: Event, builder: MessageBuilder = PLAIN, stream: str = "main") -> ModelContext:
    """Build the context of the next call in a stream."""
    return builder(grown(events).view(stream))


def shown(*events: Event, builder: MessageBuilder = PLAIN, stream: str = "main") -> list[str]:
    """Build the context of the next call in a stream and write its messages short."""
    return brief(built(*events, builder=builder, stream=stream).request)


def test_a_conversation_is_shown_turn_by_turn() -> None:
    """The prompt comes first, then inputs, outputs and results in order."""
    assert shown(
        said("Hello"), calls("c1", text="Let me see."), result("c1"), ModelOutput(text="Hi."),
        Ended(), said("Bye"),
    ) == [
        "s Be brief.", "u Hello", "a Let me see. look:r1", "t r1 result c1", "a Hi.", "u Bye",
    ]  # fmt: skip


def test_no_prompt_is_no_message() -> None:
    """Without a prompt the conversation begins with the input."""
    assert shown(said("Hello"), builder=MessageBuilder("", "scripted")) == ["u Hello"]


def test_results_stand_in_the_order_of_the_calls() -> None:
    """Results that were recorded in another order follow their output in call order."""
    assert shown(said("Hello"), calls("c1", "c2"), result("c2"), result("c1")) == [
        "s Be brief.", "u Hello", "a look:r2 look:r1", "t r2 result c1", "t r1 result c2",
    ]  # fmt: skip


def test_a_call_that_never_ran_gets_an_error() -> None:
    """Each call without a result has a handle of its own and an error text."""
    assert shown(
        said("Hello"), calls("c1", "c2"), result("c2"), Failure(
            error_type="E", message="m", transient=False
        ), said("Again"), calls("c3"), BudgetExceeded(cap=1, trip=1),
    ) == [
        "s Be brief.", "u Hello", "a look:x1 look:r1", f"t x1 {NO_RESULT}", "t r1 result c2",
        "u Again", "a look:x2", f"t x2 {NO_RESULT}",
    ]  # fmt: skip


def test_a_second_result_of_a_call_is_not_shown() -> None:
    """A call has exactly one result, the first."""
    lines = shown(said("Hello"), calls("c1"), result("c1", "first"), result("c1", "second"))
    assert lines[2:] == ["a look:r1", "t r1 first"]


def test_a_response_follows_the_results() -> None:
    """What a person answered stands after the results of the output before it, as their words."""
    assert shown(
        said("Hello"), calls("c1"), Request(kind="choice", actor="person", origin="ask"),
        Input(payload={"take": 2}, answers=3), result("c1"),
    )[2:] == ["a look:r1", "t r1 result c1", 'u {"take":2}']  # fmt: skip


def test_an_answer_of_a_hidden_node_is_not_shown() -> None:
    """The answer to an approval is not shown, an answer to another node's request is."""
    builder = MessageBuilder("Be brief.", "scripted", hidden=("approval",))
    assert shown(
        said("Hello"), calls("c1"), Request(kind="approval", actor="person", origin="approval"),
        Input(payload="yes", answers=3), result("c1"),
        Request(kind="approval", actor="person", origin="ask"), Input(payload="fine", answers=6),
        builder=builder,
    )[2:] == ["a look:r1", "t r1 result c1", "u fine"]  # fmt: skip


def test_events_of_the_runtime_are_not_shown() -> None:
    """Failures, ends, cancels and trips leave no message."""
    assert shown(
        said("Hello"), Failure(error_type="E", message="m", transient=True),
        BudgetExceeded(cap=1, trip=1), Cancelled(input=1), said("Again"),
    ) == ["s Be brief.", "u Hello", "u Again"]  # fmt: skip


def test_an_output_that_says_nothing_is_not_shown() -> None:
    """An empty output leaves no message, since servers refuse an empty one."""
    assert shown(said("Hello"), ModelOutput(), Ended(), said("Again"))[2:] == ["u Again"]


def test_elements_are_shown_by_number() -> None:
    """An element has its number, a part names the number of its whole, and no real id is shown."""
    context = built(
        Input(payload="What is it?", elements=(Box(id="box-7", size=3),)), calls("c1"),
        result("c1", "Found:", "main", Page(id="p-1", title="Refunds", ref="book-9"),
               Page(id="p-1", title="Refunds", ref="book-9")),
    )  # fmt: skip
    assert brief(context.request)[1:] == [
        'u What is it?\n[1] {"size":3}',
        "a look:r1",
        "t r1 Found:\n[3] part of [2]: Refunds",
    ]


def test_an_element_inside_a_payload_is_shown_by_number() -> None:
    """A structured input is shown as JSON with a number in place of each element in it."""
    page = Page(id="p-1", title="Refunds")
    payload: JsonValue = {"ask": "What?", "about": [page.model_dump(mode="json")]}
    assert shown(Input(payload=payload, elements=(page,)))[1:] == [
        'u {"about":["[1]"],"ask":"What?"}\n[1] Refunds'
    ]


class Count(ToolOutputBase):
    """A result class of a team, with a field and an element of its own."""

    type: ClassVar[str] = "count"

    total: int
    best: Page


def test_a_result_of_a_teams_own_class_shows_its_fields() -> None:
    """Own fields are shown as JSON, the elements in them by number."""
    best = Page(id="p-1", title="Refunds")
    assert shown(said("Hello"), calls("c1"), Count(call_id="c1", total=2, best=best))[3:] == [
        't r1 {"best":"[1]","total":2}\n[1] Refunds'
    ]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (ToolOutput(call_id="c1", error="No such page."), "Error: No such page."),
        (ToolOutput(call_id="c1"), "(nothing)"),
        (ToolOutput(call_id="c1", error="Half done.", text="One."), "Error: Half done.\nOne."),
    ],
)
def test_errors_and_empty_results_are_said(output: ToolOutput, text: str) -> None:
    """An error is marked as one, and a result without content says so."""
    assert shown(said("Hello"), calls("c1"), output)[3:] == [f"t r1 {text}"]


class Photo(Page):
    """An element that a model is shown as an image."""

    tag: ClassVar[str] = "photo"

    def show(self) -> tuple[TextPart | ImagePart, ...]:  # type: ignore[override]  # wider than Page's
        return (TextPart("a photo: "), ImagePart("image/png", url="https://example.com/p.png"))


def test_an_image_is_shown_as_parts() -> None:
    """An element may show an image, with the text around it joined into as few parts as fit."""
    event = Input(payload="See:", elements=(Photo(id="1"), Page(id="2", title="Refunds")))
    message = built(event).request.messages[1]
    assert message == UserMessage((
        TextPart("See:\n[1] a photo: "),
        ImagePart("image/png", url="https://example.com/p.png"),
        TextPart("\n[2] Refunds"),
    ))  # fmt: skip


def test_arguments_are_shown_as_the_model_wrote_them() -> None:
    """Real ids in marked arguments become numbers and handles again; unresolved ones stay."""
    tool = ToolDef("look", "Look.", {}, (
        ArgumentMark("pages", "element"), ArgumentMark("of", "result"), ArgumentMark("x", "element")
    ))  # fmt: skip
    arguments = {"pages": ["p-1", "p-1", None], "of": "c1", "x": "p-1", "free": "p-1"}
    call = ToolCall(id="c2", name="look", arguments=arguments, unresolved=("/pages/1",))  # type: ignore[arg-type]  # JSON
    events = (
        said("Hello"), calls("c1"), result("c1", "", "main", Page(id="p-1")),
        ModelOutput(calls=(call,)), result("c2"),
    )  # fmt: skip
    message = built(*events, builder=MessageBuilder("", "m", tools=(tool,))).request.messages[-2]
    assert isinstance(message, AssistantMessage)
    assert message.calls[0] == ToolCall(
        id="r2", name="look",
        arguments={"pages": ["1", "p-1", None], "of": "r1", "x": "1", "free": "p-1"},
    )  # fmt: skip


def test_arguments_that_are_no_object_are_shown_raw() -> None:
    """What the model wrote in place of a JSON object is shown back to it."""
    call = ToolCall(id="c1", name="look", raw="not json")
    message = built(said("Hello"), ModelOutput(calls=(call,))).request.messages[2]
    assert isinstance(message, AssistantMessage)
    assert message.calls == (ToolCall(id="x1", name="look", raw="not json"),)


def test_citations_are_written_back_by_number() -> None:
    """A citation becomes a mark where it stood, an invalid one its text with the note."""
    builder = MessageBuilder("Be brief.", "scripted", citations=SQUARE)
    text = "Thirty days. No fee."
    citations = (
        Citation(at=11, ids=("p-2", "p-1")), Citation(at=0, ids=("p-1",)),
        Citation(at=19, invalid=" [9]"),
    )  # fmt: skip
    lines = shown(
        Input(payload="", elements=(Page(id="p-1"), Page(id="p-2"))),
        ModelOutput(text=text, citations=citations), builder=builder,
    )  # fmt: skip
    assert lines[-1] == f"a [1]Thirty days [2, 1]. No fee{SQUARE.write_invalid(' [9]')}."


def test_the_prompt_says_how_to_cite() -> None:
    """With a strategy the prompt ends with an example that the strategy wrote."""
    lines = shown(said("Hi"), builder=MessageBuilder("Be brief.", "m", citations=SQUARE))
    assert lines[0].startswith("s Be brief.\n\nCite")
    assert lines[0].endswith("[1] for one source, [1, 2] for two.")


def test_citations_are_left_out_without_a_strategy() -> None:
    """A builder that does not cite shows the clean text."""
    output = ModelOutput(text="Yes.", citations=(Citation(at=3, ids=("p-1",)),))
    assert shown(Input(payload="", elements=(Page(id="p-1"),)), output)[-1] == "a Yes."


@pytest.mark.parametrize(
    ("wrote", "reads", "back"),
    [
        ("m", "m", True),
        ("m-2026-01-31", "m", True),
        ("m-mini", "m", False),
        ("other", "m", False),
        (None, "m", False),
    ],
)
def test_reasoning_goes_back_to_its_model_alone(wrote: str | None, reads: str, back: bool) -> None:
    """Another model is not shown it; a dated name is the same model."""
    output = ModelOutput(text="Yes.", model=wrote, reasoning={"sig": "abc"})
    message = built(said("Hi"), output, builder=MessageBuilder("", reads)).request.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert message.reasoning == ({"sig": "abc"} if back else None)


def test_a_compaction_stands_for_what_it_covers() -> None:
    """The summary replaces the events up to `through`; what came after stays."""
    lines = shown(
        said("One"), calls("c1"), result("c1"), ModelOutput(text="Done."), Ended(), said("Two"),
        ModelOutput(text="Yes."), Compaction(text="They said one.", through=5), said("Three"),
    )  # fmt: skip
    assert lines == [
        "s Be brief.", "u Summary of the conversation before this point:\nThey said one.",
        "u Two", "a Yes.", "u Three",
    ]  # fmt: skip


def test_a_later_compaction_covers_the_earlier_one() -> None:
    """Only the last summary of a stream is shown."""
    lines = shown(
        said("One"), ModelOutput(text="1"), Compaction(text="First.", through=2), said("Two"),
        ModelOutput(text="2"), Compaction(text="Second.", through=4),
    )  # fmt: skip
    assert lines[1:] == ["u Summary of the conversation before this point:\nSecond.", "a 2"]


def test_handles_go_on_counting_what_was_compacted() -> None:
    """Numbers, results and calls without one keep their names after a compaction."""
    lines = shown(
        said("One"), calls("c1", "c2"), result("c1", "", "main", Page(id="p-1")), Ended(),
        said("Two"), Compaction(text="One.", through=4), calls("c3", "c4"),
        result("c3", "", "main", Page(id="p-2")),
    )  # fmt: skip
    assert lines[3:] == ["a look:r2 look:x2", "t r2 result c3\n[2] Page", f"t x2 {NO_RESULT}"]


def test_a_branch_compacts_its_own_events() -> None:
    """In a branch the summary stands where the branch began, after all that the parent said."""
    branch = "main/model#2.1"
    events = (
        said("One"), calls("c1"), result("c1", "", branch), calls("c2", stream=branch),
        Compaction(text="Mine.", through=1, stream=branch),
    )  # fmt: skip
    summary = "u Summary of the conversation before this point:\n"
    assert shown(*events, stream=branch)[1:] == [
        "u One", "a look:r1", "t r1 result c1", f"{summary}Mine.", "a look:x1", f"t x1 {NO_RESULT}",
    ]  # fmt: skip
    later = Compaction(text="All mine.", through=2, stream=branch)
    assert shown(*events, later, stream=branch)[4:] == [f"{summary}All mine."]


def test_a_compaction_covers_branches_that_hang_before_it() -> None:
    """The parent's summary covers the branches of fan-outs at or before `through`."""
    one, two = "main/model#1.1", "main/model#3.1"
    assert shown(
        said("One"), ModelOutput(text="b1", stream=one), ModelOutput(text="m"),
        Compaction(text="Short.", through=2), ModelOutput(text="b2", stream=two),
        ModelOutput(text="end"),
    )[1:] == [
        "u Summary of the conversation before this point:\nShort.", "a b2", "a end",
    ]  # fmt: skip


def test_a_branch_answers_its_parents_output() -> None:
    """In a branch the parent's call has the branch's result; the parent's own view is not it."""
    branch = "main/tools#2.1"
    events = (said("Hello"), calls("c1"), result("c1", "", branch))
    assert shown(*events, stream=branch)[2:] == ["a look:r1", "t r1 result c1"]


def test_a_late_result_stands_after_its_output() -> None:
    """At the join the result of a later branch goes to the output that called, not to the end."""
    one, two = "main/tools#2.1", "main/tools#2.2"
    assert shown(
        said("Hello"), calls("c1", "c2"), result("c1", "", one), ModelOutput(text="b1", stream=one),
        result("c2", "", two), ModelOutput(text="end"),
    )[2:] == [
        "a look:r1 look:r2", "t r1 result c1", "t r2 result c2", "a b1", "a end",
    ]  # fmt: skip


def test_the_budget_withdraws_the_tools() -> None:
    """After the last trip the request has no tools and no choice among them."""
    builder = MessageBuilder(
        "", "m", tools=(LOOK,), tool_choice="required", budget=Budget(1, "model", 1)
    )
    events = (said("Hello"), calls("c1"), result("c1"), calls("c2"))
    assert built(*events, builder=builder).request.tools == (LOOK,)
    last = built(*events, BudgetExceeded(cap=1, trip=1), builder=builder).request
    assert (last.tools, last.tool_choice) == ((), "auto")


def test_the_request_has_what_the_builder_was_given() -> None:
    """Model, options, schema, choice and tools are in the request; the context names the model."""
    builder = MessageBuilder(
        "", "m", tools=[LOOK], options={"temperature": 0}, response_schema={"type": "object"},
        tool_choice="look", asked="big",
    )  # fmt: skip
    context = built(said("Hello"), builder=builder)
    assert (context.model, context.request.model) == ("big", "big")
    assert context.request.options == {"temperature": 0}
    assert context.request.response_schema == {"type": "object"}
    assert (context.request.tool_choice, context.request.tools) == ("look", (LOOK,))
    assert (built(said("Hi")).model, built(said("Hi")).request.model) == ("scripted", None)


def test_builders_are_compared_by_value() -> None:
    """Two builders of the same values are equal, with equal hashes."""
    one, two = (
        MessageBuilder("p", "m", tools=[LOOK], options={"a": 1}, hidden=["n"]) for _ in range(2)
    )
    assert one == two
    assert hash(one) == hash(two)
    assert one != MessageBuilder("p", "m", tools=[LOOK], options={"a": 2}, hidden=["n"])


def test_an_option_that_is_no_json_is_refused() -> None:
    """What could not be hashed or sent is refused when the builder is made."""
    with pytest.raises(UnencodableError, match="inf is no JSON number"):
        MessageBuilder("", "m", options={"temperature": float("inf")})
