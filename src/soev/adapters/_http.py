"""What adapters of models over HTTP share: their errors, retries, addresses and clients."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar
from weakref import WeakKeyDictionary

import httpx
import stamina
from pydantic import JsonValue

from soev.domain import SoevError, TransientError, without_secrets

Piece = TypeVar("Piece")

LONGEST_WAIT = 60.0
"""The most seconds that a server's Retry-After is waited for."""

_RETRIED = frozenset({408, 409, 429})
_REFUSALS = frozenset(
    {
        "authentication_error",
        "content_filter",
        "context_length_exceeded",
        "exceed_context_size_error",
        "insufficient_quota",
        "invalid_prompt",
        "invalid_request_error",
        "not_found_error",
        "permission_error",
        "request_too_large",
    }
)
_SHOWN = 500


class RequestRefusedError(SoevError):
    """A provider refused a request, and will refuse the same request again.

    It is not ModelUnavailableError, after which the same request may succeed.

    Args:
        model: The model that was asked.
        status: The HTTP status, or the status in an error that came inside a stream, if any.
        message: What the provider said, without any secret.
        code: The provider's word for the error, or None.
    """

    def __init__(
        self, model: str, status: int | None, message: str, code: str | None = None
    ) -> None:
        super().__init__(model, status, message, code)
        self.model, self.status, self.message, self.code = model, status, message, code

    def __str__(self) -> str:
        facts = " ".join(str(fact) for fact in (self.status, self.code) if fact is not None)
        said = f" ({facts})" if facts else ""
        return (
            f"Model {self.model!r} refused the request{said}: {self.message.rstrip('.')}. "
            "Change the request: it will be refused again as it is."
        )


class ModelUnavailableError(TransientError):
    """A model gave no whole answer: it was not reached, was busy, or its stream broke off.

    It is not RequestRefusedError: the same request may succeed later.

    Args:
        model: The model that was asked.
        reason: What happened, without any secret.
        status: The HTTP status, or None when there was no answer.
        wait: The seconds after which the server wants to be asked again, or None.
    """

    def __init__(
        self, model: str, reason: str, status: int | None = None, wait: float | None = None
    ) -> None:
        super().__init__(model, reason, status, wait)
        self.model, self.reason, self.status, self.wait = model, reason, status, wait

    def __str__(self) -> str:
        said = f" ({self.status})" if self.status is not None else ""
        return (
            f"Model {self.model!r} gave no answer{said}: {self.reason.rstrip('.')}. "
            "Try again later."
        )


def is_retried(status: int) -> bool:
    """Tell whether a request that got this status may succeed when it is sent again."""
    return status in _RETRIED or 500 <= status <= 599  # noqa: PLR2004 (the range of HTTP statuses)


async def begun(
    pieces: Callable[[], AsyncGenerator[Piece, None]], attempts: int
) -> tuple[Piece, AsyncGenerator[Piece, None]]:
    """Start a stream, again while it fails before its first piece.

    Args:
        pieces: Sends the request and yields the pieces of the answer.
        attempts: How often it is sent at most.

    Returns:
        The first piece, and the stream of the others.

    Raises:
        ModelUnavailableError: The last attempt failed too.
    """
    async for attempt in stamina.retry_context(
        on=_next_try, attempts=attempts, timeout=None, wait_initial=0.5, wait_max=20.0
    ):
        with attempt:
            stream = pieces()
            return await anext(stream), stream
    raise AssertionError("the retries end with an answer or an error")


def _next_try(error: Exception) -> bool | float:
    if not isinstance(error, ModelUnavailableError):
        return False
    return True if error.wait is None else error.wait


@contextmanager
def mapped(model: str) -> Iterator[None]:
    """Turn the HTTP client's errors into ours."""
    try:
        yield
    except httpx.TimeoutException as error:
        reason = f"no byte came in time ({type(error).__name__})"
        raise ModelUnavailableError(model, reason) from error
    except httpx.RequestError as error:
        text = without_secrets(str(error)) or type(error).__name__
        raise ModelUnavailableError(model, f"the connection failed: {text}") from error


def refusal(model: str, response: httpx.Response, text: str) -> SoevError:
    """Return the error for an answer whose status is no success.

    Args:
        model: The model that was asked.
        response: The answer.
        text: Its body, without any secret.
    """
    message, code = error_words(text)
    message = message or response.reason_phrase or "no reason was given"
    if is_retried(response.status_code):
        wait = retry_after(response.headers)
        return ModelUnavailableError(model, message, response.status_code, wait)
    return RequestRefusedError(model, response.status_code, message, code)


def failure(model: str, error: JsonValue) -> SoevError:
    """Return the error for one that a provider sent inside an answer.

    The request was taken, so what has no known word is the provider's fault.

    Args:
        model: The model that was asked.
        error: What the provider sent, without any secret.
    """
    status, code = _status_of(error), code_of(error)
    refused = code in _REFUSALS if status is None else not is_retried(status)
    if refused:
        return RequestRefusedError(model, status, message_of(error), code)
    return ModelUnavailableError(model, message_of(error), status)


def _status_of(error: JsonValue) -> int | None:
    if not isinstance(error, dict):
        return None
    said = str(error.get("code") or error.get("status") or "")
    return int(said) if said.isdecimal() and len(said) == len("404") else None


def without(text: str, secret: str | None) -> str:
    """Return a text without an authorization header's value, or the key in it."""
    if secret is None:
        return text
    return text.replace(secret, "<secret>").replace(secret.partition(" ")[2], "<secret>")


def error_words(text: str) -> tuple[str, str | None]:
    """Read a provider's message and code out of the body of an error."""
    try:
        data = json.loads(text)
    except ValueError:
        data = text
    if isinstance(data, list) and data:
        data = data[0]
    if isinstance(data, dict):
        return message_of(data.get("error", data)), code_of(data.get("error", data))
    return shortened(str(data)), None


def message_of(error: JsonValue) -> str:
    """Return the words of an error object, or of whatever stands in its place."""
    if isinstance(error, dict):
        for key in ("message", "detail", "error", "msg"):
            if error.get(key):
                said = error[key]
                text = said if isinstance(said, str) else json.dumps(said)
                return shortened(f"{text}: {raw}" if (raw := _upstream(error)) else text)
        return shortened(json.dumps(error))
    return shortened(str(error))


def _upstream(error: dict[str, JsonValue]) -> str:
    """Return what the provider behind a router said."""
    about = error.get("metadata")
    raw = about.get("raw") if isinstance(about, dict) else None
    return raw if isinstance(raw, str) else ""


def code_of(error: JsonValue) -> str | None:
    """Return the provider's word for an error, or None: a status is no word."""
    if not isinstance(error, dict):
        return None
    words = [error.get("code"), error.get("type")]
    return next((word for word in words if isinstance(word, str) and not word.isdigit()), None)


def shortened(text: str) -> str:
    """Put a text on one line of bearable length, without known keys."""
    line = " ".join(without_secrets(text).split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server wants to be left alone, at most a minute, or None."""
    said = headers.get("retry-after", "").strip()
    if not said:
        return None
    try:
        seconds = float(said)
    except ValueError:
        return _until(said, headers.get("date", ""))
    return min(seconds, LONGEST_WAIT) if seconds >= 0 else None


def _until(date: str, now: str) -> float | None:
    """Compare a date with the server's own clock, or with ours when it shows none."""
    moment = _moment(date)
    if moment is None:
        return None
    since = _moment(now) or datetime.now(UTC)
    return min(max((moment - since).total_seconds(), 0.0), LONGEST_WAIT)


def _moment(date: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def address(base_url: str) -> tuple[httpx.URL, str | None]:
    """Split an address into what can be shown, and the authorization header that it implies.

    Raises:
        ValueError: The address is none of HTTP, or has a query, which would be logged.
    """
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, UnicodeError):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise ValueError(
            "`base_url` takes the address of an HTTP server up to the version, without a query, "
            "such as 'https://api.example.com/v1'."
        )
    if not url.userinfo:
        return url, None
    user = base64.b64encode(f"{url.username}:{url.password}".encode()).decode("ascii")
    return url.copy_with(username=None, password=None), f"Basic {user}"


class Clients:
    """The HTTP clients of one model: one for each event loop, made at its first send.

    Args:
        timeout: The seconds that a server may be silent.
        given: A client of somebody else to use in place of them all. It is not closed.
    """

    def __init__(self, timeout: float, given: httpx.AsyncClient | None = None) -> None:
        self._timeout = timeout
        self._given = given
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    async def client(self) -> httpx.AsyncClient:
        """Return the client of the running event loop."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            # Reading the certificates takes a while, and another call may be quicker.
            client = await asyncio.to_thread(httpx.AsyncClient, timeout=self._timeout)
            self._made.setdefault(loop, client)
        return self._made[loop]

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._made.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
