"""Ready policies for effects: how an open intent is settled, and what a cancel waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal

from soev.domain import (
    Cancelled,
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Input,
    JsonSchema,
    JsonValue,
    Request,
    Trace,
    canonical_json,
)
from soev.runtime import Effector, EffectRecovery, cancelled

NOT_DONE: Final = "not done"
Query = Callable[[EffectIntent], Awaitable[EffectResult | Literal["not done"] | None]]

ANSWER: Final[JsonSchema] = {
    "type": "object",
    "properties": {"happened": {"type": "boolean"}, "output": {}},
    "required": ["happened"],
    "additionalProperties": False,
}


async def ask_person(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
    """Let a person say whether the act happened; one that did not is performed.

    The answer is `{"happened": bool, "output": ...}`. In a cancelled turn an act that did not
    happen is an error. An answer that it did not is asked for again once an attempt may have been
    made since: after a failure, or a cancel.

    Args:
        trace: The stream's view.
        intent: The open intent.
        effector: What performs it.
    """
    answer = _answer(trace)
    if answer is None:
        return [_question(intent)]
    if answer["happened"]:
        return [EffectResult(output=answer.get("output"))]
    if cancelled(trace):
        return [EffectResult(error="A person said that it did not happen. The turn is cancelled.")]
    return [await _performed(effector, intent)]


async def perform_again(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
    """Perform the act again, for a world that drops repeats of an intent's id.

    In a cancelled turn a person is asked, as by `ask_person`.

    Args:
        trace: The stream's view.
        intent: The open intent.
        effector: What performs it.
    """
    if cancelled(trace) or _happened(trace):
        return await ask_person(trace, intent, effector)
    return [await _performed(effector, intent)]


def check_with(query: Query) -> EffectRecovery:
    """Return a recovery that asks the world first.

    What the world says was not done is performed; where it cannot tell, and for what it says was
    not done in a cancelled turn, a person is asked, as by `ask_person`.

    Args:
        query: An async function from an intent to its EffectResult, `"not done"`, or None when
            the world cannot tell.
    """

    async def recovery(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
        found = await query(intent)
        if isinstance(found, EffectResult):
            return [found]
        if found is not None and found != NOT_DONE:
            raise TypeError(
                f"The query of `check_with` answered {found!r}. Answer an `EffectResult`, "
                f"{NOT_DONE!r} or None."
            )
        if found is None or cancelled(trace) or _happened(trace):
            return await ask_person(trace, intent, effector)
        return [await _performed(effector, intent)]

    return recovery


async def await_result(
    trace: Trace,
    intent: EffectIntent,
    effector: Effector,
    performing: asyncio.Task[EffectResult],
) -> Sequence[Event]:
    """Wait for the act, however long it takes. What raised is left to recovery.

    Args:
        trace: The stream's view.
        intent: The intent of the act.
        effector: What performs it.
        performing: The asyncio task of the act.
    """
    await asyncio.wait({performing})
    if performing.cancelled() or performing.exception() is not None:
        return ()
    return [performing.result()]


def _question(intent: EffectIntent) -> Request:
    prompt = (
        f"Nobody knows whether this was done: {intent.kind} {canonical_json(intent.args)}. "
        "Did it happen? If it did not, it is done now, unless the turn was cancelled."
    )
    return Request(kind="effect", actor="person", expects=ANSWER, prompt=prompt)


def _answer(trace: Trace) -> Mapping[str, JsonValue] | None:
    """Return what a person said about the open intent of a stream, None when they are to be asked.

    That it happened stays true. That it did not holds only for the first attempt after it.
    """
    attempted = False
    for event in reversed(trace.thread):
        attempted = attempted or isinstance(event, Cancelled)
        if event.stream != trace.stream:
            continue
        attempted = attempted or isinstance(event, Failure)
        if isinstance(event, EffectIntent):
            break
        said = event.payload if isinstance(event, Input) else None
        if isinstance(said, dict) and isinstance(said.get("happened"), bool):
            return None if attempted and not said["happened"] else said
    return None


def _happened(trace: Trace) -> bool:
    answer = _answer(trace)
    return answer is not None and answer["happened"] is True


async def _performed(effector: Effector, intent: EffectIntent) -> EffectResult:
    """Perform an act within the time that its effector declares, as the first one was."""
    bound = asyncio.timeout(getattr(effector, "timeout", None))
    try:
        async with bound:
            return await effector.perform(intent)
    except TimeoutError:
        if not bound.expired():
            raise
        raise TimeoutError(
            "`perform` took longer than its effector's `timeout`, so the outcome is unknown."
        ) from None
