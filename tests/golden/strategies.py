"""Requests, and logs, that look as much like our own marks as they can."""

from typing import Any

from hypothesis import strategies as st

from soev.domain import (
    AssistantMessage,
    ChatRequest,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolDef,
    ToolMessage,
    UserMessage,
)
from soev.golden import CallsFile, RouteException, ShownCall, shown

WORDS = (
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\\",
    "\\&",
    "a",
    "text:",
    "image: ",
    "no parts",
    "reasoning: 1",
    "call a() as r1",
    "# a",
    "### 0 system",
    "## call 1: turn 1",
    "= 0..1 of call 1",
    "a: string",
    "a: string, required",
    "(schema): {}",
    "    ",
    "\u00a0",
    "\u2028",
    "é",
    "🙂",
    "\ufeff",
    '"',
    ", ",
    "```",
)
texts = st.lists(st.sampled_from(WORDS), max_size=4).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
)
names = st.sampled_from(["a", "r1", "main", "tools", "none", "a b", "a, b", '"', "", "é"])
numbers = st.sampled_from([0, 1, 1.0, -0.5, True, None, 10**30])
json_values: st.SearchStrategy[Any] = st.recursive(
    texts | numbers,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
parts = st.one_of(
    texts.map(TextPart),
    st.builds(ImagePart, names, url=texts),
    st.builds(ImagePart, names, data=st.binary(max_size=3)),
)
contents = texts | st.lists(parts, max_size=3).map(tuple)
tool_calls = st.builds(
    ToolCall,
    id=names,
    name=names,
    arguments=st.dictionaries(names, json_values, max_size=2),
    raw=st.none() | texts,
)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(SystemMessage, contents),
    st.builds(UserMessage, contents),
    st.builds(ToolMessage, names, contents),
    st.builds(
        AssistantMessage,
        content=contents,
        calls=st.lists(tool_calls, max_size=2).map(tuple),
        reasoning=st.none() | json_values,
    ),
)
kinds = st.sampled_from(["string", "integer", "object", "null"])
properties = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds,
        "description": texts,
        "default": json_values,
        "anyOf": st.just([{"type": "string"}, {"type": "null"}]),
        "items": st.fixed_dictionaries({"type": kinds}),
    },
)
schemas = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array"]),
        "properties": st.dictionaries(names, properties | st.booleans(), max_size=2) | texts,
        "required": st.lists(names, max_size=2) | texts,
        "additionalProperties": st.booleans(),
    },
)
tool_defs = st.builds(ToolDef, names, texts, schemas)
requests = st.builds(
    ChatRequest,
    messages=st.lists(messages, max_size=3),
    model=st.none() | names,
    options=st.dictionaries(names, json_values, max_size=2),
    response_schema=st.none() | st.dictionaries(names, json_values, max_size=1),
    tool_choice=st.sampled_from(["auto", "none", "required"]) | names,
    tools=st.lists(tool_defs, max_size=2).map(tuple),
)


@st.composite
def calls_files(draw: st.DrawFn) -> CallsFile:
    """Draw calls whose requests often begin alike."""
    pool = draw(st.lists(requests, min_size=1, max_size=3))
    calls = []
    for index in range(1, draw(st.integers(0, 4)) + 1):
        request = draw(st.none() | st.sampled_from(pool))
        if request is not None:
            keep = draw(st.integers(0, len(request.messages)))
            added = draw(st.lists(messages, max_size=2))
            request = ChatRequest(
                [*request.messages[:keep], *added],
                model=request.model,
                options=request.options,
                tool_choice=request.tool_choice,
                response_schema=request.response_schema,
                tools=request.tools,
            )
            pool.append(request)
        calls.append(
            ShownCall(
                index=index,
                turn=draw(st.integers(1, 3)),
                node=draw(names),
                position=draw(st.integers(0, 9)),
                request=None if request is None else shown(request),
                stream=draw(names),
                comparison=draw(
                    st.sampled_from(["as recorded", "changed since recorded", "not comparable"])
                ),
            )
        )
    routes = draw(st.lists(st.builds(RouteException, names, names, names), max_size=2))
    return CallsFile(
        draw(texts.filter(bool)),
        draw(names),
        draw(st.integers(0, 3)),
        tuple(calls),
        tuple(routes),
    )
