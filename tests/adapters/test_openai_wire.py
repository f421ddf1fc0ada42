"""The pure half of the Chat Completions adapter: bodies of requests, answers out of chunks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soev.adapters._openai._answer import Answer, usage_in
from soev.adapters._openai._body import chat_body, is_strict
from soev.adapters._openai._text import Text, mended
from soev.domain import (
    AssistantMessage,
    ChatDelta,
    ChatReply,
    ChatRequest,
    ImagePart,
    JsonValue,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolDef,
    ToolMessage,
    Usage,
    UserMessage,
    canonical_json,
)

SEARCH = ToolDef("search", "Search.", {"type": "object", "properties": {}})
PNG = ImagePart("image/png", data=b"\x89PNG")


def body(*messages: Message, **fields: object) -> dict[str, JsonValue]:
    """Return the body of a request with these messages and fields."""
    return chat_body(ChatRequest(messages, **fields), "tea-1")  # type: ignore[arg-type] # by name


def sent(*messages: Message) -> list[JsonValue]:
    """Return what these messages become."""
    listed = body(*messages)["messages"]
    assert isinstance(listed, list)
    return listed


def heard(*chunks: dict[str, JsonValue]) -> tuple[list[ChatDelta], ChatReply]:
    """Return the deltas and the reply of a stream of chunks."""
    answer = Answer()
    deltas = [delta for chunk in chunks for delta in answer.feed(chunk)]
    return [*deltas, *answer.rest()], answer.reply()


def said(finish: str | None = None, **delta: JsonValue) -> dict[str, JsonValue]:
    """Return a chunk."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def called(**delta: JsonValue) -> dict[str, JsonValue]:
    """Return a chunk with a piece of one call."""
    return said(None, tool_calls=[delta])


# --- bodies ---------------------------------------------------------------------------------------


def test_a_body_asks_for_a_stream_and_its_usage() -> None:
    """The smallest body has the model, the messages, and asks for a stream that ends with usage."""
    assert body(UserMessage("Hi")) == {
        "messages": [{"role": "user", "content": "Hi"}],
        "model": "tea-1",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_model_that_is_asked_for_goes_before_the_own_name() -> None:
    """A request that names a model is sent to that one."""
    assert body(UserMessage("Hi"), model="tea-2")["model"] == "tea-2"


def test_calls_are_written_with_their_handles() -> None:
    """A call of an earlier answer is shown by its handle, its arguments as canonical JSON."""
    call = ToolCall(id="r1", name="search", arguments={"b": 1, "a": "ä"})
    written = {
        "id": "r1",
        "type": "function",
        "function": {"name": "search", "arguments": '{"a":"ä","b":1}'},
    }
    assert sent(AssistantMessage(calls=(call,)), ToolMessage("r1", "Nothing.")) == [
        {"role": "assistant", "content": None, "tool_calls": [written]},
        {"role": "tool", "tool_call_id": "r1", "content": "Nothing."},
    ]


def test_arguments_that_were_no_object_are_shown_as_written() -> None:
    """What the model wrote in place of an object is handed back to it."""
    call = ToolCall(id="x1", name="search", raw="{oops")
    [message] = sent(AssistantMessage("So:", calls=(call,)))
    assert isinstance(message, dict)
    assert message["content"] == "So:"
    assert json.dumps(message["tool_calls"]).count("{oops") == 1


@pytest.mark.parametrize(
    ("image", "url"),
    [
        (ImagePart("image/png", url="https://example.com/a.png"), "https://example.com/a.png"),
        (PNG, "data:image/png;base64,iVBORw=="),
    ],
)
def test_images_go_by_url_or_in_place(image: ImagePart, url: str) -> None:
    """An image is sent by its address, or by its bytes as a data URL."""
    assert sent(UserMessage((TextPart("See"), image))) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": url}},
            ],
        }
    ]


def test_images_of_results_follow_the_last_result_of_their_group() -> None:
    """Results hold text alone and stand together, so their images come in a user message after."""
    roles = [
        (message["role"], message["content"])
        for message in sent(
            ToolMessage("r1", (PNG,)), ToolMessage("r2", "Two."), UserMessage("And now?")
        )
        if isinstance(message, dict)
    ]
    assert [role for role, _ in roles] == ["tool", "tool", "user", "user"]
    assert roles[0][1] == "The images follow."
    images = roles[2][1]
    assert isinstance(images, list)
    assert images[0] == {"type": "text", "text": "Images of r1:"}


def test_images_of_a_last_result_are_sent_too() -> None:
    """The images of a result at the end of the conversation are not lost."""
    assert len(sent(ToolMessage("r1", (TextPart("Chart"), PNG)))) == 2


def test_reasoning_is_handed_back_in_the_field_that_it_came_in() -> None:
    """The provider's reasoning stands beside the content, unchanged; other forms are left out."""
    thought: JsonValue = {"reasoning_content": "Hm."}
    assert sent(SystemMessage("S"), AssistantMessage("A", reasoning=thought)) == [
        {"role": "system", "content": "S"},
        {"role": "assistant", "content": "A", "reasoning_content": "Hm."},
    ]
    assert sent(AssistantMessage("A", reasoning=["other"])) == [
        {"role": "assistant", "content": "A"}
    ]


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        ("none", "none"),
        ("required", "required"),
        ("search", {"type": "function", "function": {"name": "search"}}),
    ],
)
def test_the_tool_choice_is_written(choice: str, written: JsonValue) -> None:
    """Any choice but `auto`, which servers assume, is said."""
    assert body(UserMessage("Hi"), tools=(SEARCH,), tool_choice=choice)["tool_choice"] == written
    assert "tool_choice" not in body(UserMessage("Hi"), tools=(SEARCH,))


@pytest.mark.parametrize("choice", ["required", "order"])
def test_a_choice_without_its_tool_is_refused(choice: str) -> None:
    """A request that demands a tool which it does not offer is not sent."""
    with pytest.raises(ValueError, match=rf"tool choice '{choice}' needs a tool"):
        body(UserMessage("Hi"), tool_choice=choice)


@pytest.mark.parametrize("name", ["messages", "model", "stream", "tools"])
def test_options_overwrite_nothing_of_the_request(name: str) -> None:
    """An option with the name of what the request says is refused by that name."""
    with pytest.raises(ValueError, match=f"'{name}' would overwrite"):
        body(UserMessage("Hi"), options={name: None, "temperature": 0})


def test_options_stand_beside_the_rest() -> None:
    """Options are sent in the provider's names, and may change how usage is asked for."""
    made = body(UserMessage("Hi"), options={"seed": 1, "stream_options": {}})
    assert (made["seed"], made["stream_options"]) == (1, {})


def test_a_schema_that_is_asked_for_twice_is_refused() -> None:
    """An option cannot replace the response schema, but may ask for JSON without one."""
    asked: JsonValue = {"type": "json_object"}
    assert body(UserMessage("Hi"), options={"response_format": asked})["response_format"] == asked
    with pytest.raises(ValueError, match="'response_format' would overwrite"):
        body(UserMessage("Hi"), options={"response_format": asked}, response_schema={})


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, True),
    ],
)
def test_strict_decoding_is_asked_only_for_strict_schemas(schema: JsonValue, strict: bool) -> None:
    """A schema counts as strict when each object lists all its properties and allows no other."""
    assert is_strict(schema) is strict


# --- answers --------------------------------------------------------------------------------------


def test_the_deltas_join_to_the_text() -> None:
    """The text of the deltas is the text of the reply."""
    deltas, reply = heard(said(content="Two "), said(content="years."), said("stop"))
    assert [delta.text for delta in deltas] == ["Two ", "years."]
    assert reply == ChatReply("Two years.")


@given(order=st.permutations([0, 0, 0, 1, 1, 2, 2, 2, 2]))
def test_interleaved_calls_are_put_together(order: list[int]) -> None:
    """Pieces of parallel calls make the same calls in whichever turns they come."""
    whole = ['{"a":1}', '{"b":[2]}', '{"c":"three"}']
    cuts = {index: order.count(index) for index in range(3)}
    given_out = dict.fromkeys(range(3), 0)
    chunks = []
    for index in order:
        size, n = len(whole[index]) // cuts[index] + 1, given_out[index]
        piece: dict[str, JsonValue] = {"arguments": whole[index][n * size : (n + 1) * size]}
        first: dict[str, JsonValue] = {"id": f"c{index}"} if n == 0 else {}
        named: dict[str, JsonValue] = {"name": f"tool{index}"} if n == 0 else {}
        chunks.append(called(index=index, function=named | piece, **first))
        given_out[index] += 1
    _, reply = heard(*chunks, said("tool_calls"))
    assert [(call.id, call.name, canonical_json(call.arguments)) for call in reply.calls] == [
        (f"c{index}", f"tool{index}", text) for index, text in enumerate(whole)
    ]


def test_calls_without_numbers_are_told_apart_by_their_ids() -> None:
    """A server that numbers no calls begins each with an id, and goes on without one."""
    _, reply = heard(
        called(id="a", function={"name": "search", "arguments": '{"q":'}),
        called(function={"arguments": "1}"}),
        called(id="b", function={"name": "order", "arguments": "{}"}),
        said("tool_calls"),
    )
    assert [(call.id, call.arguments) for call in reply.calls] == [("a", {"q": 1}), ("b", {})]


def test_calls_that_share_a_number_are_told_apart() -> None:
    """A server that numbers every call 0 begins each with an id and a name."""
    _, reply = heard(
        called(index=0, id="a", function={"name": "search", "arguments": "{}"}),
        called(index=0, id="b", function={"name": "search", "arguments": '{"q":2}'}),
        said("stop"),
    )
    assert [call.id for call in reply.calls] == ["a", "b"]
    assert reply.finish == "tools"


def test_an_id_and_a_name_in_every_piece_belong_to_one_call() -> None:
    """A server that repeats id and name in each piece of a call makes one call."""
    piece: dict[str, JsonValue] = {"index": 0, "id": "a"}
    _, reply = heard(
        called(**piece, function={"name": "search", "arguments": "{"}),
        called(**piece, function={"name": "search", "arguments": "}"}),
        said("tool_calls"),
    )
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [("a", "search", {})]


@pytest.mark.parametrize(
    "written",
    ['{"a":1', "[1]", "7", "null", '{"a":NaN}', '{"a":"\\ud83d"}', "[" * 100_000, "{'a': 1}"],
    ids=["cut", "list", "number", "null", "nan", "surrogate", "deep", "python"],
)
def test_arguments_that_are_no_json_object_are_kept_raw(written: str) -> None:
    """What is no JSON object that an event can hold is kept as the model wrote it."""
    _, reply = heard(called(index=0, id="a", function={"name": "f", "arguments": written}))
    assert reply.calls == (ToolCall(id="a", name="f", raw=written),)


def test_no_arguments_at_all_are_an_empty_object() -> None:
    """A model that calls a tool of no arguments may write nothing."""
    _, reply = heard(called(index=0, id="a", function={"name": "f"}), said("tool_calls"))
    assert reply.calls == (ToolCall(id="a", name="f"),)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("tool_calls", "other"),
        ("something_new", "other"),
        (None, "stop"),
    ],
)
def test_the_reason_to_stop_is_mapped(reason: str | None, finish: str) -> None:
    """Each provider's reason becomes one of ours; an unknown one, or one that lies, is `other`."""
    assert heard(said(reason, content="x"))[1].finish == finish


def test_a_refusal_is_text_with_its_own_finish() -> None:
    """The words of a refusal are the text, whatever the reason says."""
    deltas, reply = heard(said(refusal="I "), said("stop", refusal="won't."))
    assert (reply.text, reply.finish) == ("I won't.", "refusal")
    assert "".join(delta.text for delta in deltas) == reply.text


def test_a_stream_without_an_answer_is_no_empty_answer() -> None:
    """A stream in which nothing is said and no reason given is a ValueError."""
    with pytest.raises(ValueError, match="ended without an answer"):
        heard({"choices": [], "usage": {"prompt_tokens": 1}})


def test_a_model_that_says_nothing_on_purpose_is_an_answer() -> None:
    """An answer without text is one when the model gave its reason to stop."""
    assert heard(said("stop"))[1] == ChatReply()


def test_only_the_first_choice_is_read() -> None:
    """Further choices, which nobody asked for, don't mix into the answer."""
    other: dict[str, JsonValue] = {"choices": [{"index": 1, "delta": {"content": "B"}}]}
    assert heard(said(content="A"), other, said("stop"))[1].text == "A"


@given(text=st.text(min_size=1), data=st.data())
def test_halves_of_characters_are_joined(text: str, data: st.DataObject) -> None:
    """However a text is cut, between the halves of a character too, all that is shown is whole."""
    halves = "".join(
        chr(unit)
        for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist()
    )
    cuts = sorted(data.draw(st.sets(st.integers(1, len(halves)))) | {len(halves)})
    joined = Text()
    shown = [joined.add(halves[a:b]) for a, b in zip([0, *cuts], cuts, strict=False)]
    shown.append(joined.rest())
    assert "".join(shown) == str(joined) == text
    assert all(piece.encode() is not None for piece in shown)


def test_half_a_character_that_stays_alone_is_replaced() -> None:
    """A half without its other half becomes the replacement character, so events can hold it."""
    assert heard(said("length", content="a\ud83d"))[1].text == "a\ufffd"
    assert mended("\ude00b") == "\ufffdb"


def test_thoughts_in_parts_of_the_content_are_reasoning() -> None:
    """A content in parts gives text and thoughts apart."""
    parts: JsonValue = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "No."},
    ]
    deltas, reply = heard(said("stop", content=parts))
    assert deltas == [ChatDelta(reasoning="Hm."), ChatDelta(text="No.")]
    assert reply.text == "No."


def test_pieces_of_reasoning_details_are_joined_by_their_index() -> None:
    """Details of one index are one detail again, with what came last for what is no text."""

    def detail(**fields: JsonValue) -> dict[str, JsonValue]:
        return said(reasoning_details=[{"type": "reasoning.text", "index": 0, **fields}])

    deltas, reply = heard(
        detail(text="91 is"),
        detail(text=" not."),
        detail(signature="s", text=""),
        detail(signature=None),
        said("stop"),
    )
    assert "".join(delta.reasoning for delta in deltas) == "91 is not."
    joined = {"type": "reasoning.text", "index": 0, "text": "91 is not.", "signature": "s"}
    assert reply.reasoning == {"reasoning_details": [joined]}


@pytest.mark.parametrize(
    ("chunk", "usage"),
    [
        ({"usage": {"prompt_tokens": 3}}, Usage(input_tokens=3)),
        ({"usage": {"completion_tokens": 4}}, Usage(output_tokens=4)),
        ({"usage": {"prompt_cache_hit_tokens": 5}}, Usage(cached_tokens=5)),
        ({"usage": {"num_cached_tokens": 6}}, Usage(cached_tokens=6)),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 0}}}, Usage(cached_tokens=0)),
        ({"x_groq": {"usage": {"prompt_tokens": 7}}}, Usage(input_tokens=7)),
        ({"usage": {"prompt_tokens": True, "prompt_tokens_details": None}}, Usage()),
        ({"usage": None}, None),
    ],
)
def test_usage_is_found_where_providers_put_it(
    chunk: dict[str, JsonValue], usage: Usage | None
) -> None:
    """Tokens are read from the places of several providers; what is no count stays None."""
    assert usage_in(chunk) == usage


def test_usage_stays_when_later_chunks_count_nothing() -> None:
    """The last count is the reply's, wherever in the stream it came."""
    first: dict[str, JsonValue] = {"choices": [], "usage": {"prompt_tokens": 1}}
    last: dict[str, JsonValue] = {"choices": [], "usage": {"prompt_tokens": 2}}
    assert heard(first, last, said("stop", content="x"))[1].usage == Usage(input_tokens=2)


def test_a_chunk_of_odd_shapes_breaks_nothing() -> None:
    """Fields that hold something else than they should are passed over."""
    odd: dict[str, JsonValue] = {
        "model": 3,
        "usage": [],
        "choices": [None, {"delta": None}, {"delta": {"content": 5, "tool_calls": [None, {}]}}],
    }
    assert heard(odd, said("stop", content="x"))[1] == ChatReply("x")
