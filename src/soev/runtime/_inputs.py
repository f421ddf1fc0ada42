"""Whether a thread takes an input now, and what is then recorded."""

from __future__ import annotations

from collections.abc import Callable

from soev.domain import ROOT_STREAM, Input, Request, stamped
from soev.runtime._agent import payload_text
from soev.runtime._errors import InputDeniedError, NothingToCancelError, ThreadActiveError
from soev.runtime._outside import TurnSnapshot
from soev.runtime._schemas import mismatch

Accept = Callable[[Input], Input]


def fresh_input(input: Input, accept: Accept | None) -> Input:
    """Return the fresh input to record, as the agent accepts it.

    Args:
        input: What the caller gave.
        accept: Parses it, or refuses it.

    Raises:
        InputDeniedError: The agent or every store refuses it.
    """
    refuse_answered(input)
    payload_text(input.payload)
    recorded = input if accept is None else accept(input)
    return stamped(recorded, stream=ROOT_STREAM)


def refuse_answered(input: Input) -> None:
    """Refuse an input that says itself which request it answers.

    Raises:
        InputDeniedError: It does.
    """
    if input.answers is not None:
        raise InputDeniedError(
            f"it has `answers={input.answers}` already",
            "Leave it out, and name a request with `Thread.submit(input, answering=request)`.",
        )


def refuse_active(thread_id: str, turn: TurnSnapshot) -> None:
    """Refuse a fresh input while the turn is not over, or an intent is open.

    Raises:
        ThreadActiveError: It says what to do first.
    """
    reading, held = turn.reading, turn.head.lease is not None
    if reading.accepts_input(held=held):
        return
    waiting = turn.status().pending
    if waiting:
        reason = (
            f"its turn waits for the {waiting[0].event.kind!r} request at position "
            f"{waiting[0].position}"
        )
        advice = (
            "Answer it with `Thread.submit(..., answering=request)`, or cancel the turn with "
            "`Thread.cancel`."
        )
    elif held:
        reason = "its turn is running"
        advice = "Wait for it with `Thread.follow`, or cancel it with `Thread.cancel`."
    elif reading.intents:
        kind = next(iter(reading.intents.values())).kind
        reason = f"nobody knows yet what became of its {kind!r} effect"
        advice = "Settle it with `Thread.resume`."
    else:
        reason = "its turn was interrupted"
        advice = "Run it on with `Thread.resume`, or cancel it with `Thread.cancel`."
    raise ThreadActiveError(thread_id, reason, advice)


def response_input(input: Input, request: Request, turn: TurnSnapshot) -> Input:
    """Return the response to record, when its request waits and takes it.

    Args:
        input: What the caller gave.
        request: The request that it answers, found again by stream and seq.
        turn: The current turn.

    Raises:
        InputDeniedError: The request does not wait, its schema refuses the payload, or the
            response names another model than the turn runs with.
    """
    refuse_answered(input)
    key = (request.stream, request.seq)
    waiting = (entry.event for entry in turn.status().pending)
    found = next((each for each in waiting if (each.stream, each.seq) == key), None)
    if found is None:
        raise InputDeniedError(
            f"the {request.kind!r} request (seq {request.seq} of stream {request.stream!r}) does "
            "not wait for a response",
            "Read the requests that do with `Thread.status`.",
        )
    model = turn.opening.model if turn.opening else None
    if input.model is not None and input.model != model:
        raise InputDeniedError(
            f"the response names the model {input.model!r}, and its turn runs with {model!r}",
            "Leave the model out.",
        )
    payload_text(input.payload)
    refused = None if found.expects is None else mismatch(found.expects, input.payload)
    if refused is not None:
        path, problem = refused
        raise InputDeniedError(
            f"the {found.kind!r} request does not take it: {problem}",
            "Send what its `expects` describes.",
            path,
        )
    return stamped(input, stream=found.stream, answers=found.seq)


def cancellable(thread_id: str, turn: TurnSnapshot, meant: int | None) -> int:
    """Return the position of the input that opened a turn which can be cancelled.

    Args:
        thread_id: The thread.
        turn: The current turn.
        meant: The position that the caller meant, None for the current turn.

    Raises:
        NothingToCancelError: The turn is over, or another one.
    """
    opened = turn.opened_at
    if opened is None:
        raise NothingToCancelError(thread_id, "it has no turn")
    if meant is not None and meant != opened:
        raise NothingToCancelError(
            thread_id, f"the current turn was opened at position {opened}, not at {meant}"
        )
    state = turn.status().state
    if state in {"cancelled", "finished", "failed"}:
        raise NothingToCancelError(thread_id, f"its turn is {state}")
    return opened
