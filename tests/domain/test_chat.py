"""Requests to a model: their hash, their size, what counts, and what does not."""

import dataclasses
import hashlib
import json
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soev.domain import (
    ArgumentMark,
    ChatRequest,
    Element,
    JsonValue,
    Message,
    Messages,
    SystemMessage,
    ToolDef,
    UnencodableError,
    Usage,
    UserMessage,
    canonical_json,
    message_json,
)

TEXTS = st.text(max_size=8)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.builds(UserMessage, TEXTS) | st.builds(SystemMessage, TEXTS), max_size=4
)
TOOLS = st.lists(st.builds(ToolDef, TEXTS, TEXTS, OBJECTS), max_size=2).map(tuple)
REQUESTS = st.builds(
    ChatRequest,
    MESSAGES,
    model=st.none() | TEXTS,
    options=OBJECTS,
    response_schema=st.none() | OBJECTS,
    tool_choice=TEXTS,
    tools=TOOLS,
)


class Page(Element):
    """An element that an argument may name."""

    tag = "page"


def whole(request: ChatRequest) -> str:
    """Return a request's canonical JSON, written from its fields in one piece."""
    return canonical_json(
        {
            "messages": [json.loads(message_json(each)) for each in request.messages],
            "model": request.model,
            "options": request.options,
            "response_schema": request.response_schema,
            "tool_choice": request.tool_choice,
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                }
                for tool in request.tools
            ],
        }
    )


@given(request=REQUESTS)
def test_the_hash_is_that_of_the_canonical_json(request: ChatRequest) -> None:
    """The hash that is put together from pieces is the SHA-256 of the whole text."""
    assert request.hash == hashlib.sha256(whole(request).encode()).hexdigest()


@given(request=REQUESTS)
def test_sent_chars_is_the_length_of_the_canonical_json(request: ChatRequest) -> None:
    """The size counts characters, not bytes, of the same text."""
    assert request.sent_chars == len(whole(request))


@given(messages=st.lists(MESSAGES, min_size=1, max_size=4), order=st.randoms())
def test_requests_of_a_growing_conversation_hash_as_if_alone(
    messages: list[list[Message]], order: random.Random
) -> None:
    """Whichever of several requests over shared messages is hashed first, all hashes are right."""
    grown, requests = Messages(), []
    for more in messages:
        grown = grown.add(*more)
        requests += [ChatRequest(grown), ChatRequest(grown.add(UserMessage("aside")))]
    order.shuffle(requests)
    for request in requests:
        assert request.hash == ChatRequest(tuple(request.messages)).hash


@given(request=REQUESTS, other=REQUESTS)
def test_requests_with_one_hash_are_equal(request: ChatRequest, other: ChatRequest) -> None:
    """The hash tells requests apart exactly where their JSON does."""
    assert (request.hash == other.hash) == (whole(request) == whole(other))


def test_every_field_but_marks_changes_the_hash() -> None:
    """A change of any field that a model is shown changes the hash; marks are not shown."""
    base = ChatRequest((UserMessage("Hi"),), tools=(ToolDef("search", "Search.", {}),))
    changes: list[dict[str, object]] = [
        {"messages": (UserMessage("Hello"),)},
        {"messages": (SystemMessage("Hi"),)},
        {"model": "gpt-x"},
        {"options": {"seed": 1}},
        {"response_schema": {}},
        {"tool_choice": "none"},
        {"tools": ()},
        {"tools": (ToolDef("find", "Search.", {}),)},
        {"tools": (ToolDef("search", "Find.", {}),)},
        {"tools": (ToolDef("search", "Search.", {"type": "object"}),)},
    ]
    hashes = {dataclasses.replace(base, **change).hash for change in changes}  # type: ignore[arg-type] # by name
    assert len(hashes | {base.hash}) == len(changes) + 1
    marked = ToolDef("search", "Search.", {}, (ArgumentMark("page", "element", (Page,)),))
    assert dataclasses.replace(base, tools=(marked,)).hash == base.hash


def test_messages_sort_first() -> None:
    """Every other field's name sorts after `messages`, so a prefix is hashed once."""
    names = [field.name for field in dataclasses.fields(ChatRequest)]
    assert sorted(names)[0] == "messages"
    assert whole(ChatRequest(())).startswith('{"messages":[')


def test_a_hash_is_pinned() -> None:
    """The hash of this request stays what it is, since recorded threads hold such hashes."""
    request = ChatRequest(
        (SystemMessage("Be brief."), UserMessage("Wie lange hält grüner Tee?")),
        model="tea-1",
        options={"temperature": 0.5},
        tools=(ToolDef("search", "Search.", {"type": "object", "properties": {}}),),
    )
    assert request.hash == "85ed74d85286655ff0640642cfb22041d220711b9f5111babd39f56571fc9ca5"


@given(request=REQUESTS)
def test_a_request_survives_pickle(request: ChatRequest) -> None:
    """A pickled request is equal, with the same hash, also after its hash was asked for."""
    for _ in range(2):
        twin = pickle.loads(pickle.dumps(request))
        assert twin == request
        assert (twin.hash, hash(twin)) == (request.hash, hash(request))


@given(request=REQUESTS)
def test_equality_is_by_value(request: ChatRequest) -> None:
    """A request with the same fields is equal, whichever sequence its messages came in."""
    twin = dataclasses.replace(request, messages=list(request.messages))
    assert twin == request
    assert hash(twin) == hash(request)
    assert twin != dataclasses.replace(request, model="another model")


def test_options_are_kept_as_they_were() -> None:
    """Neither the caller's dict nor the request's mapping can change the options later."""
    options: dict[str, JsonValue] = {"seed": 1}
    request = ChatRequest((), options=options)
    options["seed"] = 2
    assert request.options == {"seed": 1}
    with pytest.raises(TypeError, match="does not support item assignment"):
        request.options["seed"] = 3  # type: ignore[index] # what the mapping refuses


@pytest.mark.parametrize(
    "options", [{"top_p": float("nan")}, {"stop": "\ud83d"}, {"bias": {1: 2}}], ids=str
)
def test_what_is_no_json_has_no_hash(options: dict[str, JsonValue]) -> None:
    """A request that cannot be written is refused with the path of the value."""
    with pytest.raises(UnencodableError) as caught:
        _ = ChatRequest((), options=options).hash
    assert caught.value.path.startswith("$.options.")


@given(tool=st.builds(ToolDef, TEXTS, TEXTS, OBJECTS))
def test_a_tool_hashes_by_what_is_shown(tool: ToolDef) -> None:
    """Tools that are shown alike hash alike, and survive pickle."""
    twin = ToolDef(tool.name, tool.description, dict(tool.parameters))
    assert hash(twin) == hash(tool)
    assert pickle.loads(pickle.dumps(tool)) == tool == twin


def test_usage_counts_are_optional() -> None:
    """A provider may leave any count out."""
    assert Usage(input_tokens=3).model_dump() == {
        "input_tokens": 3,
        "output_tokens": None,
        "cached_tokens": None,
        "reasoning_tokens": None,
    }


@given(request=REQUESTS, messages=MESSAGES)
def test_the_same_request_about_other_messages(
    request: ChatRequest, messages: list[Message]
) -> None:
    """It equals one that is made from its parts, also in its hash and its size."""
    moved, made = request.with_messages(messages), dataclasses.replace(request, messages=messages)
    assert moved == made
    assert (moved.hash, moved.sent_chars) == (made.hash, made.sent_chars)
