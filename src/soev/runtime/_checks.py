"""What a step may return, and the failure that is recorded when it returns something else."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from typing import NamedTuple

from soev.domain import (
    Event,
    Failure,
    NodeName,
    Request,
    StoredEvent,
    TransientError,
    stamped,
    without_secrets,
)
from soev.runtime._codec import EventTypes
from soev.runtime._graph import RUNTIME_EVENTS
from soev.runtime._schemas import schema_problem

_log = logging.getLogger("soev")


class Draft(NamedTuple):
    """An event that is about to be appended, and its stored form, which is made once."""

    event: Event
    stored: StoredEvent


class Desk(NamedTuple):
    """What every event of one append gets from the runtime.

    Args:
        types: The classes that the thread may record.
        version: The version of the code.
        stream: The stream.
        origin: The node, or None.
    """

    types: EventTypes
    version: str | None
    stream: str
    origin: NodeName | None

    def draft(self, event: Event) -> Draft:
        """Return an event with its envelope set, whatever was in it, and its stored form.

        Raises:
            UnreadableEventError: It would not read back as it is.
            UnencodableError: It holds a value that JSON cannot hold.
        """
        own = stamped(
            event,
            stream=self.stream,
            origin=self.origin,
            version=self.version,
            seq=None,
            ts=None,
            left=None,
        )
        return Draft(own, self.types.encode_readable(own))

    def drafts(self, returned: object, who: str = "A step") -> list[Draft]:
        """Return what a step returned, once it is known that it may be recorded.

        Args:
            returned: What it returned.
            who: What to call it in an error.

        Raises:
            TypeError: It is no sequence of events.
            ValueError: It is empty, or an event stands where no step may put it.
            UnreadableEventError: An event would not read back as it is.
            UnencodableError: An event holds a value that JSON cannot hold.
        """
        if not isinstance(returned, Sequence) or isinstance(returned, str):
            raise TypeError(
                f"{who} returned a {type(returned).__name__}. Return a list or tuple of events."
            )
        if not returned:
            raise ValueError(f"{who} returned no event. Return at least one.")
        drafts = [self._checked(event, who) for event in returned]
        for draft in drafts[:-1]:
            if isinstance(draft.event, Request):
                raise ValueError(
                    f"{who} returned a Request before other events. Return it as the last."
                )
        return drafts

    def _checked(self, event: object, who: str) -> Draft:
        if not isinstance(event, Event):
            raise TypeError(f"{who} returned a {type(event).__name__} among its events.")
        if isinstance(event, RUNTIME_EVENTS):
            raise ValueError(f"{who} returned {_article(event)}, which the runtime alone records.")
        if isinstance(event, Request) and event.expects is not None:
            problem = schema_problem(event.expects)
            if problem is not None:
                raise ValueError(
                    f"The Request {event.kind!r} expects what is no JSON Schema: {problem}. "
                    "Correct its `expects`."
                )
        return self.draft(event)


def _article(event: Event) -> str:
    name = type(event).__name__
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


def failure_of(error: BaseException) -> Failure:
    """Return the Failure that is recorded for what a step raised.

    Args:
        error: What it raised. A group of one stands for its one error.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    request_hash = getattr(error, "request_hash", None)
    return Failure(
        error_type=type(error).__name__,
        message=_text_of(error),
        transient=isinstance(error, TransientError),
        request_hash=request_hash if isinstance(request_hash, str) else None,
    )


def _text_of(error: BaseException) -> str:
    """Return an error's text as what can be recorded, whatever its class makes of it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # the class of the error is the team's own
        text = ""
    return (text or type(error).__name__).encode("utf-8", "replace").decode()


def log_failure(thread_id: str, node: NodeName, error: BaseException) -> None:
    """Write the traceback of a failed step to the log of the process, without known keys.

    Args:
        thread_id: The thread.
        node: The node.
        error: What its step raised.
    """
    lines = without_secrets("".join(traceback.format_exception(error)))
    # A handler that writes UTF-8 would break on a lone surrogate in an error's text.
    safe = lines.encode("utf-8", "backslashreplace").decode()
    _log.error("Step %r of thread %r failed.\n%s", node, thread_id, safe)
