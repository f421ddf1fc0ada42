"""A model behind Chat Completions: the shell that sends, retries and reads the stream."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import httpx
from httpx_sse import EventSource
from pydantic import JsonValue

from soev.adapters._http import (
    Clients,
    ModelUnavailableError,
    address,
    begun,
    failure,
    mapped,
    refusal,
    without,
)
from soev.adapters._openai._answer import Answer, Json
from soev.adapters._openai._body import chat_body
from soev.domain import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    PreparedRequest,
    canonical_json,
    reached,
    refuse_blocked_model,
)

OPENAI = "https://api.openai.com/v1"
HEADERS = {"accept": "text/event-stream", "content-type": "application/json"}

Piece = ChatDelta | ChatReply


class OpenAIChatModel:
    """A model of OpenAI, or of any server that speaks Chat Completions.

    Making one needs no key and opens nothing. The key is read from the environment at each send,
    and is in no repr, error, prepared request or log. Connections live per event loop, from the
    first send to `aclose`.

    A request is sent again when the server is busy or cannot be reached, as long as nothing of the
    answer was heard.

    Args:
        name: The model to ask when a request names none.
        base_url: The server's address up to the version, such as `http://localhost:8080/v1`. A
            user and a password in it are sent as basic authentication.
        api_key_env: The environment variable that holds the key, or None for no key. OpenAI itself
            needs one; another server is asked without it when the variable is not set.
        timeout: The seconds that the server may be silent.
        attempts: How often a request is sent at most.
        client: A client to send with, for proxies and certificates of your own. It is not closed.

    Raises:
        ValueError: The address is none of HTTP, or has a query, which would be logged.
    """

    def __init__(
        self,
        name: str = "gpt-5-mini",
        *,
        base_url: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        timeout: float = 120.0,
        attempts: int = 5,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        self.name = name
        self._address, self._basic = address(base_url or OPENAI)
        self._key_needed = base_url is None
        self._api_key_env = api_key_env
        self._attempts = attempts
        self._clients = Clients(timeout, client)

    def prepare(self, request: ChatRequest) -> PreparedRequest:
        """Return what would be sent, without sending it.

        Raises:
            ValueError: An option would overwrite what the request says, or the tool choice names
                no tool of the request.
        """
        body: JsonValue = chat_body(request, self.name)
        return PreparedRequest("POST", self._url.path, dict(HEADERS), body)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Piece]:
        """Send a request, and yield the answer as it comes, whole at the end.

        Raises:
            ModelUnavailableError: The model could not be asked, or broke off; try again later.
            RequestRefusedError: The provider refuses this request.
            RealModelBlockedError: Real models are blocked. Nothing was sent.
            ValueError: The key is missing, or there is no answer in the stream.
        """
        model = request.model or self.name
        content = canonical_json(chat_body(request, self.name), "request").encode()
        first, rest = await begun(lambda: self._pieces(model, content), self._attempts)
        async with aclosing(rest):
            yield first
            async for piece in rest:
                yield piece

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    def __repr__(self) -> str:
        return f"OpenAIChatModel({self.name!r}, base_url={str(self._address)!r})"

    @property
    def _url(self) -> httpx.URL:
        return self._address.copy_with(path=f"{self._address.path.rstrip('/')}/chat/completions")

    async def _pieces(self, model: str, content: bytes) -> AsyncGenerator[Piece, None]:
        """Send once, and yield the pieces of the answer."""
        refuse_blocked_model(model)
        secret = self._secret()
        headers = HEADERS if secret is None else {**HEADERS, "authorization": secret}
        client = await self._clients.client()
        answer, ended = Answer(), False
        reached("model.request.sending")
        with mapped(model):
            sending = client.stream("POST", self._url, content=content, headers=headers)
            async with sending as response, aclosing(_chunks(model, response, secret)) as chunks:
                async for chunk in chunks:
                    ended = chunk is None
                    if chunk is not None and chunk.get("error") and not answer.finished:
                        raise failure(model, _without(chunk["error"], secret))
                    for delta in answer.rest() if chunk is None else answer.feed(chunk):
                        yield delta
        if not (ended or answer.finished) or answer.failed:
            raise ModelUnavailableError(model, "the stream broke off before its end")
        reached("model.reply.read")
        yield answer.reply()

    def _secret(self) -> str | None:
        """Return the value of the authorization header, or None for none.

        Raises:
            ValueError: There is no key where one is needed, or no header can hold it.
        """
        if self._basic is not None or self._api_key_env is None:
            return self._basic
        key = os.environ.get(self._api_key_env, "").strip()
        if not key and self._key_needed:
            raise ValueError(
                f"The environment variable {self._api_key_env!r} has no key for {OPENAI}. Set it, "
                "or give the `base_url` of a server that needs none."
            )
        if not (key.isascii() and key.isprintable()):
            raise ValueError(
                f"The key in {self._api_key_env!r} has characters that no header can hold. "
                "Set it to the key alone."
            )
        return f"Bearer {key}" if key else None


async def _chunks(
    model: str, response: httpx.Response, secret: str | None
) -> AsyncGenerator[Json | None, None]:
    """Yield the chunks of an answer, and None for the mark at its end."""
    reached("model.request.sent")
    if not response.is_success:
        body = (await response.aread()).decode("utf-8", "replace")
        raise refusal(model, response, without(body, secret))
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.endswith("json"):
        yield _chunk(model, (await response.aread()).decode("utf-8", "replace"))
        yield None
        return
    if kind != "text/event-stream":
        raise ValueError(
            f"Model {model!r} was answered with {kind or 'no content type'!r}, not with an event "
            "stream. Check that the server at `base_url` speaks Chat Completions."
        )
    response.encoding = "utf-8"
    async with aclosing(EventSource(response).aiter_sse()) as events:
        async for event in events:
            if event.data.strip() == "[DONE]":
                yield None
                return
            if event.data.strip():
                yield _chunk(model, event.data, failed=event.event == "error")


def _chunk(model: str, data: str, *, failed: bool = False) -> Json:
    """Read a chunk. An error stands in its `error`, wherever the server puts it.

    Raises:
        ModelUnavailableError: It is no JSON object.
    """
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise ModelUnavailableError(model, "the stream broke off: a chunk is no JSON object")
    failed = failed or chunk.get("object") == "error"
    return {"error": chunk} if failed and not chunk.get("error") else chunk


def _without(error: JsonValue, secret: str | None) -> JsonValue:
    told: JsonValue = json.loads(without(json.dumps(error), secret))
    return told
