"""The Chat Completions adapter on recorded exchanges: sending, retrying, reading, refusing."""

import asyncio
import copy
import json
import logging
import pickle
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
import stamina
from hypothesis import given
from hypothesis import strategies as st

from soev.adapters import ModelUnavailableError, OpenAIChatModel, RequestRefusedError
from soev.adapters._http import retry_after
from soev.domain import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    JsonValue,
    Message,
    RealModelBlockedError,
    SystemMessage,
    ToolCall,
    ToolDef,
    TransientError,
    Usage,
    UserMessage,
    block_real_models,
    fault_plan,
)

pytestmark = [pytest.mark.anyio, pytest.mark.soev_live("a recorded server answers")]

WIRE = Path(__file__).parents[2] / "fixtures" / "wire"
WIRES = sorted(WIRE.glob("*.json"))
SERVER = "http://tea.test/v1"
KEY = "sk-tea-0123456789abcdefghij"
ASK = ChatRequest((UserMessage("Hello"),))
ATTEMPTS = 3

ORDER: dict[str, JsonValue] = {"number": 17}
REPLIES = {
    "text-stream": ChatReply(
        "Two years, dry and dark. Grüße!",
        usage=Usage(input_tokens=31, output_tokens=12, cached_tokens=16, reasoning_tokens=0),
    ),
    "tool-call-stream": ChatReply(
        calls=(ToolCall(id="call_o17", name="order", arguments=ORDER),), finish="tools"
    ),
    "parallel-calls-stream": ChatReply(
        calls=(
            ToolCall(id="call_a", name="order", arguments=ORDER),
            ToolCall(id="call_b", name="order", arguments={"number": 18}),
            ToolCall(id="call_c", name="search", arguments={"query": "late orders"}),
        ),
        finish="tools",
    ),
    "empty-deltas-stream": ChatReply("Yes."),
    "usage-last-stream": ChatReply(
        "Yes.",
        usage=Usage(input_tokens=900, output_tokens=310, cached_tokens=768, reasoning_tokens=256),
    ),
    "length-stream": ChatReply("One, two, three", finish="length"),
    "refusal-stream": ChatReply("I can't help with that.", finish="refusal"),
    "filter-stream": ChatReply("It is", finish="refusal"),
    "bad-arguments-stream": ChatReply(
        calls=(
            ToolCall(id="call_x", name="order", raw='{"number": 17'),
            ToolCall(id="call_y", name="order", raw="[17]"),
            ToolCall(id="call_z", name="search"),
        ),
        finish="tools",
    ),
    "schema-stream": ChatReply('{"late":true}'),
    "reasoning-content-stream": ChatReply(
        "No.", reasoning={"reasoning_content": "91 is 7 times 13."}
    ),
    "reasoning-details-stream": ChatReply(
        "No.",
        reasoning={
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "text": "91 is 7 times 13.",
                    "index": 0,
                    "format": "tea-v1",
                    "signature": "c2lnbmVk",
                }
            ]
        },
    ),
    "text-plain": ChatReply("Yes."),
    "calls-plain": ChatReply(
        calls=(
            ToolCall(id="call_a", name="order", arguments=ORDER),
            ToolCall(id="call_b", name="order", arguments={"number": 18}),
        ),
        finish="tools",
    ),
    "llamacpp-text-stream": ChatReply("The capital of France is<|im_end|>\n<|im_", finish="length"),
    "llamacpp-text-plain": ChatReply("The capital of France is<|im_end|>\n<|im_", finish="length"),
    "llamacpp-length-stream": ChatReply("<|im", finish="length"),
}


def recorded(name: str) -> dict[str, Any]:
    """Return a recorded exchange."""
    exchange: dict[str, Any] = json.loads((WIRE / f"{name}.json").read_text("utf-8"))
    return exchange


def answer(name: str) -> httpx.Response:
    """Return the response of a recorded exchange."""
    exchange = recorded(name)
    headers = {"content-type": exchange["content_type"], **exchange.get("headers", {})}
    return httpx.Response(exchange["status"], headers=headers, content=exchange["body"].encode())


def asked(name: str) -> ChatRequest:
    """Return the request of a recorded exchange, as an agent would make it."""
    fields = dict(recorded(name)["request"])
    messages: list[Message] = [
        (SystemMessage if each["role"] == "system" else UserMessage)(each["content"])
        for each in fields.pop("messages")
    ]
    functions = [tool["function"] for tool in fields.pop("tools", [])]
    tools = [ToolDef(each["name"], each["description"], each["parameters"]) for each in functions]
    form = fields.pop("response_format", None)
    for name_ in ("stream", "stream_options"):
        fields.pop(name_, None)
    return ChatRequest(
        messages,
        model=fields.pop("model"),
        options=fields,
        response_schema=form and form["json_schema"]["schema"],
        tools=tuple(tools),
    )


async def pieces(model: OpenAIChatModel, request: ChatRequest = ASK) -> list[ChatDelta | ChatReply]:
    """Return all that a model streams."""
    return [piece async for piece in model.stream(request)]


async def reply(model: OpenAIChatModel, request: ChatRequest = ASK) -> ChatReply:
    """Return the last piece that a model streams."""
    last = (await pieces(model, request))[-1]
    assert isinstance(last, ChatReply)
    return last


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Retry at once, and have a key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with stamina.set_testing(True, attempts=ATTEMPTS, cap=True):
        yield


@pytest.fixture
def server() -> Iterator[respx.Route]:
    """Stand in for the server: the route of all requests."""
    with respx.mock(assert_all_called=False) as router:
        yield router.post(f"{SERVER}/chat/completions")


@pytest.fixture
async def model() -> AsyncIterator[OpenAIChatModel]:
    """Make a model of that server, and close it at the end."""
    model = OpenAIChatModel("tea-1", base_url=SERVER)
    yield model
    await model.aclose()


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPLIES)
async def test_a_recorded_answer_is_read(
    name: str, server: respx.Route, model: OpenAIChatModel
) -> None:
    """The reply holds what the recorded server said, and the deltas join to its text."""
    server.mock(answer(name))
    *deltas, last = await pieces(model)
    expected = REPLIES[name]
    assert isinstance(last, ChatReply)
    assert (last.text, last.calls) == (expected.text, expected.calls)
    assert (last.finish, last.reasoning) == (expected.finish, expected.reasoning)
    assert last.usage is not None
    assert expected.usage in (None, last.usage)
    assert last.model is not None
    assert not any(isinstance(delta, ChatReply) for delta in deltas)
    assert "".join(delta.text for delta in deltas) == last.text


@pytest.mark.parametrize("name", ["schema-stream", "schema-plain"])
async def test_a_recorded_answer_keeps_its_schema(
    name: str, server: respx.Route, model: OpenAIChatModel
) -> None:
    """An answer by JSON schema is the text of one object."""
    server.mock(answer(f"llamacpp-{name}"))
    assert json.loads((await reply(model)).text)["tool"] == "answer"


@pytest.mark.parametrize(
    "name",
    [
        path.stem
        for path in WIRES
        if "stream" in json.loads(path.read_text("utf-8"))["request"]
        and path.stem != "llamacpp-schema-stream"  # its client gave the schema a name of its own
    ],
)
async def test_what_is_sent_is_what_the_recorded_client_sent(
    name: str, server: respx.Route, model: OpenAIChatModel
) -> None:
    """The body that is prepared equals the recorded one, field by field."""
    exchange = recorded(name)
    prepared = model.prepare(asked(name))
    assert prepared.body == exchange["request"]
    assert prepared.url == exchange["path"]


async def test_what_is_sent_equals_what_is_prepared(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """The request on the wire has the prepared method, path, headers and body."""
    server.mock(answer("text-stream"))
    request = asked("parallel-calls-stream")
    await reply(model, request)
    sent, prepared = server.calls.last.request, model.prepare(request)
    assert (sent.method, sent.url.path) == (prepared.method, prepared.url)
    assert json.loads(sent.content) == prepared.body
    assert {name: sent.headers[name] for name in prepared.headers} == prepared.headers


async def test_the_same_request_gives_the_same_bytes(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """Two sends of equal requests don't differ in a byte."""
    server.mock(side_effect=[answer("text-stream"), answer("text-stream")])
    for seed in ({"seed": 1, "top_p": 0}, {"top_p": 0, "seed": 1}):
        await reply(model, ChatRequest(ASK.messages, options=seed))
    first, second = server.calls
    assert first.request.content == second.request.content


class _Cut(httpx.AsyncByteStream):
    """A body that comes in given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@given(data=st.data(), name=st.sampled_from(sorted(set(REPLIES) - {"text-plain", "calls-plain"})))
def test_any_split_of_the_bytes_gives_the_same_answer(
    data: st.DataObject, name: str, anyio_backend: str
) -> None:
    """However the network cuts the stream, inside characters too, the reply is the same."""
    whole = recorded(name)["body"].encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    def respond(body: list[bytes]) -> httpx.MockTransport:
        headers = {"content-type": recorded(name)["content_type"]}
        return httpx.MockTransport(
            lambda _: httpx.Response(200, headers=headers, stream=_Cut(body))
        )

    async def streamed(body: list[bytes]) -> list[ChatDelta | ChatReply]:
        async with httpx.AsyncClient(transport=respond(body)) as client:
            return await pieces(OpenAIChatModel("tea-1", base_url=SERVER, client=client))

    assert asyncio.run(streamed(parts)) == asyncio.run(streamed([whole]))


# --- errors ---------------------------------------------------------------------------------------


async def test_a_refused_request_is_an_error_with_its_facts(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """A 400 is not sent again, and its error holds the status and the provider's words."""
    server.mock(answer("refused-400"))
    with pytest.raises(RequestRefusedError, match="Model 'tea-1' refused the request") as caught:
        await reply(model)
    error = caught.value
    assert (error.model, error.status, error.code) == ("tea-1", 400, "invalid_value")
    assert error.message == "'temperature' is at most 2, not 9."
    assert not isinstance(error, TransientError)
    assert server.call_count == 1


async def test_a_recorded_refusal_of_another_server_is_read(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """The words of a server that gives its status as the code are found."""
    server.mock(answer("llamacpp-bad-role"))
    with pytest.raises(RequestRefusedError, match="Expected 'content' to be a string or an array"):
        await reply(model)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_a_busy_server_is_asked_again(
    status: int, server: respx.Route, model: OpenAIChatModel
) -> None:
    """A status that may pass is retried, and the answer of a later attempt counts."""
    busy = httpx.Response(status, json={"error": {"message": "Busy."}})
    server.mock(side_effect=[busy, busy, answer("text-stream")])
    assert (await reply(model)).text == REPLIES["text-stream"].text
    assert server.call_count == ATTEMPTS


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 301])
async def test_other_statuses_are_not_retried(
    status: int, server: respx.Route, model: OpenAIChatModel
) -> None:
    """A status that says no is believed at once."""
    server.mock(httpx.Response(status, text="no"))
    with pytest.raises(RequestRefusedError, match=rf"\({status}\)"):
        await reply(model)
    assert server.call_count == 1


async def test_a_server_that_stays_busy_is_a_transient_error(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """After the last attempt the error is transient and says what the server said."""
    server.mock(answer("busy-429"))
    with pytest.raises(TransientError, match="Too many requests for tea-1") as caught:
        await reply(model)
    assert isinstance(caught.value, ModelUnavailableError)
    assert (caught.value.status, caught.value.wait) == (429, 7.0)
    assert server.call_count == ATTEMPTS


async def test_a_page_in_place_of_an_error_is_shown_on_one_line(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """What a proxy answers is part of the message."""
    server.mock(answer("broken-503"))
    with pytest.raises(ModelUnavailableError, match="<html> <body>No healthy upstream"):
        await reply(model)


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ('{"error":{"message":"Bad.","type":"invalid","code":400}}', "Bad.", "invalid"),
        ('{"error":"Bad."}', "Bad.", None),
        ('{"detail":[{"msg":"Bad."}]}', '[{"msg": "Bad."}]', None),
        ('[{"error":{"message":"Bad.","code":"worse"}}]', "Bad.", "worse"),
        ('{"error":{"reason":"Bad."}}', '{"reason": "Bad."}', None),
        ('{"error":{"message":"Bad.","metadata":{"raw":"Far."}}}', "Bad.: Far.", None),
        ('{"error":{"message":"Bad.","metadata":7}}', "Bad.", None),
        ("7", "7", None),
        ("", "Bad Request", None),
        ("x" * 600, "x" * 500 + "…", None),
    ],
)
async def test_the_words_of_an_error_are_found(
    body: str, message: str, code: str | None, server: respx.Route, model: OpenAIChatModel
) -> None:
    """Whatever form a server gives its errors, the error shows what it says."""
    server.mock(httpx.Response(400, text=body))
    with pytest.raises(RequestRefusedError, match=r"\(400") as caught:
        await reply(model)
    assert (caught.value.message, caught.value.code) == (message, code)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ({"code": 429}, False),
        ({"code": "502"}, False),
        ({"status": 404}, True),
        ({"type": "invalid_request_error"}, True),
        ({"code": "context_length_exceeded", "type": "x"}, True),
        ({"type": "something_new"}, False),
        ("It broke.", False),
    ],
)
async def test_errors_in_a_stream_are_told_apart(
    error: JsonValue, refused: bool, server: respx.Route, model: OpenAIChatModel
) -> None:
    """An error in a stream is transient, unless its status or its word says that it will stay."""
    kind = {"content-type": "text/event-stream"}
    server.mock(httpx.Response(200, headers=kind, text=f"data: {json.dumps({'error': error})}\n\n"))
    with pytest.raises(RequestRefusedError if refused else ModelUnavailableError, match="tea-1"):
        await reply(model)


@pytest.mark.parametrize(
    "broken",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut")],
    ids=["connect", "timeout", "protocol"],
)
async def test_a_broken_connection_is_tried_again(
    broken: httpx.RequestError, server: respx.Route, model: OpenAIChatModel
) -> None:
    """Connection errors are retried, and are transient at the end."""
    server.mock(side_effect=[broken, answer("text-stream")])
    assert (await reply(model)).finish == "stop"
    server.mock(side_effect=broken)
    with pytest.raises(TransientError, match="gave no answer"):
        await reply(model)


async def test_an_error_in_the_stream_is_transient_and_not_retried(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """After the first delta nothing is sent again: the error goes to the caller."""
    server.mock(answer("error-in-stream"))
    stream = model.stream(ASK)
    assert await anext(stream) == ChatDelta("Oolong is")
    with pytest.raises(ModelUnavailableError, match="had an error while it wrote"):
        await anext(stream)
    assert server.call_count == 1


async def test_a_refusal_in_the_stream_is_not_transient(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """An error inside a stream that will come again is a refused request."""
    server.mock(answer("refused-in-stream"))
    with pytest.raises(RequestRefusedError, match="may not use this model") as caught:
        await reply(model)
    assert caught.value.status == 403


async def test_a_stream_that_begins_with_an_error_is_tried_again(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """An error before the first delta is retried, though the status was 200."""
    kind = {"content-type": "text/event-stream"}
    busy = b'event: error\ndata: {"type":"overloaded_error","message":"Full."}\n\n'
    server.mock(
        side_effect=[httpx.Response(200, headers=kind, content=busy), answer("text-stream")]
    )
    assert (await reply(model)).finish == "stop"


async def test_an_error_after_the_end_of_an_answer_takes_nothing_back(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """An answer whose model has said why it stopped is whole, whatever the server adds."""
    ended = '{"choices":[{"index":0,"delta":{"content":"On"},"finish_reason":"length"}]}'
    error = '{"error":{"code":400,"message":"Token limit reached"},"choices":[]}'
    kind = {"content-type": "text/event-stream"}
    body = f"data: {ended}\n\ndata: {error}\n\ndata: [DONE]\n\n"
    server.mock(httpx.Response(200, headers=kind, text=body))
    assert await reply(model) == ChatReply("On", finish="length")


async def test_a_cut_stream_is_transient(server: respx.Route, model: OpenAIChatModel) -> None:
    """A stream that ends without the model's reason to stop gives no reply."""
    server.mock(answer("cut-stream"))
    with pytest.raises(ModelUnavailableError, match="broke off before its end"):
        await reply(model)
    assert server.call_count == 1


async def test_a_stream_without_a_choice_is_no_answer(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """A stream that ends well and says nothing is a ValueError."""
    server.mock(answer("no-choice-stream"))
    with pytest.raises(ValueError, match="ended without an answer"):
        await reply(model)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (httpx.Response(200, html="<p>Hi"), "answered with 'text/html'"),
        (httpx.Response(200, json={"hello": 1}), "ended without an answer"),
        (httpx.Response(200), "answered with 'no content type'"),
    ],
    ids=["page", "json", "nothing"],
)
async def test_a_server_that_speaks_something_else_is_named(
    response: httpx.Response, message: str, server: respx.Route, model: OpenAIChatModel
) -> None:
    """A success that holds no answer says what came and what to check."""
    server.mock(response)
    with pytest.raises(ValueError, match=f"(?s){message}.*Check that the server"):
        await reply(model)


async def test_chunks_that_are_no_json_break_the_stream(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """A chunk that cannot be read is a stream that broke."""
    kind = {"content-type": "text/event-stream"}
    server.mock(httpx.Response(200, headers=kind, text="data: {oops\n\n"))
    with pytest.raises(ModelUnavailableError, match="a chunk is no JSON object"):
        await reply(model)


@pytest.mark.parametrize(
    "error",
    [
        RequestRefusedError("tea-1", 400, "No.", "bad"),
        RequestRefusedError("tea-1", None, "No."),
        ModelUnavailableError("tea-1", "busy", 429, 7.0),
        ModelUnavailableError("tea-1", "busy"),
    ],
)
async def test_errors_can_be_pickled_and_copied(error: Exception) -> None:
    """An error keeps its facts through pickle and copy."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(twin), twin.args, str(twin)) == (type(error), error.args, str(error))


# --- waiting --------------------------------------------------------------------------------------

NOW = datetime(2026, 10, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("86400", 60.0),
        (format_datetime(NOW + timedelta(seconds=9), usegmt=True), 9.0),
        (format_datetime(NOW + timedelta(days=1), usegmt=True), 60.0),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        ("-1", None),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
async def test_retry_after_is_read(said: str, seconds: float | None) -> None:
    """Seconds and dates count, up to a minute; anything else does not."""
    headers = httpx.Headers({"retry-after": said, "date": format_datetime(NOW, usegmt=True)})
    assert retry_after(headers) == seconds


async def test_a_date_without_the_servers_clock_is_compared_with_ours() -> None:
    """A server that shows no date of its own is believed to have our time."""
    said = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert retry_after({"retry-after": said}) == 60.0


async def test_the_wait_that_a_server_asks_for_is_waited(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """The next attempt comes after the seconds of Retry-After."""

    class WaitSeenError(Exception):
        """Raised in place of waiting."""

    def see(details: stamina.instrumentation.RetryDetails) -> None:
        raise WaitSeenError(details.wait_for)

    server.mock(answer("busy-429"))
    stamina.instrumentation.set_on_retry_hooks([see])
    try:
        with stamina.set_testing(False), pytest.raises(WaitSeenError) as caught:
            await reply(model)
    finally:
        stamina.instrumentation.set_on_retry_hooks(None)
    assert caught.value.args == (7.0,)


# --- keys and addresses ---------------------------------------------------------------------------


async def test_the_key_is_read_at_the_first_send(
    monkeypatch: pytest.MonkeyPatch, server: respx.Route
) -> None:
    """Making a model and preparing need no key; a key that is set later is sent."""
    monkeypatch.delenv("OPENAI_API_KEY")
    model = OpenAIChatModel("tea-1", base_url=SERVER, api_key_env="TEA_KEY")
    model.prepare(ASK)
    monkeypatch.setenv("TEA_KEY", f" {KEY}\n")
    server.mock(answer("text-stream"))
    await reply(model)
    assert server.calls.last.request.headers["authorization"] == f"Bearer {KEY}"
    await model.aclose()


async def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key nothing is sent to OpenAI, and the error names the variable."""
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ValueError, match="'OPENAI_API_KEY' has no key"):
        await reply(OpenAIChatModel())


@pytest.mark.parametrize("env", ["NOT_SET_ANYWHERE", None])
async def test_another_server_is_asked_without_a_key(env: str | None, server: respx.Route) -> None:
    """A server of one's own gets no authorization when there is no key."""
    server.mock(answer("text-stream"))
    model = OpenAIChatModel("tea-1", base_url=f"{SERVER}/", api_key_env=env)
    await reply(model)
    assert "authorization" not in server.calls.last.request.headers
    await model.aclose()


async def test_a_key_that_no_header_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken key is named by its variable, never shown."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-tea\nx")
    with pytest.raises(ValueError, match="'OPENAI_API_KEY' has characters") as caught:
        await reply(OpenAIChatModel())
    assert "sk-tea" not in str(caught.value)


async def test_a_user_in_the_address_is_sent_and_never_shown(server: respx.Route) -> None:
    """Credentials of the address become basic authentication, and are in no repr."""
    server.mock(answer("text-stream"))
    model = OpenAIChatModel("tea-1", base_url="http://jo:pepper@tea.test/v1")
    await reply(model)
    assert server.calls.last.request.headers["authorization"] == "Basic am86cGVwcGVy"
    assert "pepper" not in str(server.calls.last.request.url)
    assert repr(model) == "OpenAIChatModel('tea-1', base_url='http://tea.test/v1')"
    await model.aclose()


@pytest.mark.parametrize(
    "url", ["tea.test/v1", "ftp://tea.test", "http://tea:pepper", "http://tea.test/v1?key=pepper"]
)
async def test_an_address_that_would_leak_or_fail_is_refused(url: str) -> None:
    """An address without HTTP or with a query is refused, and not shown."""
    with pytest.raises(ValueError, match="`base_url` takes the address") as caught:
        OpenAIChatModel(base_url=url)
    assert "pepper" not in str(caught.value)


@pytest.mark.parametrize("in_stream", [False, True], ids=["status", "stream"])
@pytest.mark.parametrize("key", [KEY, "a key without any known shape".replace(" ", "")])
async def test_secrets_are_nowhere(
    key: str,
    in_stream: bool,
    server: respx.Route,
    model: OpenAIChatModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The key is in no repr, prepared request, error or log, even if the provider repeats it."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    caplog.set_level(logging.DEBUG)
    said = json.dumps({"error": {"message": f"The key {key} and Bearer {key} are busy."}})
    kind = {"content-type": "text/event-stream"}
    streamed = httpx.Response(200, headers=kind, text=f"data: {said}\n\n")
    server.mock(streamed if in_stream else httpx.Response(503, text=said))
    with pytest.raises(ModelUnavailableError, match="<secret>") as caught:
        await reply(model)
    shown = [repr(model), repr(model.prepare(ASK)), str(caught.value), repr(caught.value)]
    assert not any(key in text for text in [*shown, caplog.text])


# --- the shell ------------------------------------------------------------------------------------


async def test_a_blocked_model_sends_nothing(server: respx.Route, model: OpenAIChatModel) -> None:
    """While real models are blocked the model that is asked for is named, and preparing works."""
    unblock = block_real_models(lambda: "test_tea")
    try:
        with pytest.raises(RealModelBlockedError, match="'tea-2' was called by test_tea"):
            await reply(model, ChatRequest(ASK.messages, model="tea-2"))
        model.prepare(ASK)
    finally:
        unblock()
    assert server.call_count == 0


async def test_the_points_of_a_call_are_passed_in_order(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """A harness can strike before the send, after it, and before the reply."""
    passed: list[str] = []
    server.mock(answer("text-stream"))
    token = fault_plan.set(passed.append)
    await reply(model)
    fault_plan.reset(token)
    assert passed == ["model.request.sending", "model.request.sent", "model.reply.read"]


async def test_bad_options_are_refused_before_anything_is_sent(
    server: respx.Route, model: OpenAIChatModel
) -> None:
    """A request that cannot be prepared is not sent either."""
    with pytest.raises(ValueError, match="'model' would overwrite"):
        await reply(model, ChatRequest(ASK.messages, options={"model": "x"}))
    assert server.call_count == 0


async def test_calls_at_once_do_not_mix(server: respx.Route, model: OpenAIChatModel) -> None:
    """Several streams of one model run side by side, over one client."""
    server.mock(side_effect=[answer("text-stream"), answer("refusal-stream")] * 3)
    texts = await asyncio.gather(*(reply(model) for _ in range(6)))
    wanted = [REPLIES["text-stream"].text, REPLIES["refusal-stream"].text] * 3
    assert sorted(each.text for each in texts) == sorted(wanted)


async def test_a_stream_can_be_left(server: respx.Route, model: OpenAIChatModel) -> None:
    """A caller that wants no more closes the stream, and the model works on."""
    server.mock(side_effect=[answer("text-stream"), answer("text-stream")])
    stream = model.stream(ASK)
    first = await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined] # the stream of this model is a generator
    assert first == ChatDelta("Two")
    assert (await reply(model)).text == REPLIES["text-stream"].text


def test_each_event_loop_has_its_own_connections(server: respx.Route) -> None:
    """One model serves loops that come after each other, and closes what the running one has."""
    model = OpenAIChatModel("tea-1", base_url=SERVER)

    async def once() -> str:
        text = (await reply(model)).text
        await model.aclose()
        await model.aclose()
        return text

    server.mock(side_effect=[answer("text-stream"), answer("text-stream")])
    assert asyncio.run(once()) == asyncio.run(once())


async def test_a_client_of_ones_own_is_used_and_left_open() -> None:
    """A given client sends the requests, and stays its owner's."""
    sent: list[JsonValue] = []
    response = answer("text-stream")

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return response

    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
        model = OpenAIChatModel("tea-1", base_url=SERVER, client=client)
        await reply(model)
        await model.aclose()
        assert not client.is_closed
    assert len(sent) == 1
