"""Conversations that any process can carry on from where the log ends."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pytest_soev.world._errors import ProcessDiedError, WorldError
from pytest_soev.world._processes import Process
from soev.domain import (
    ROOT_STREAM,
    Input,
    JsonValue,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    PositionConflictError,
    Request,
    StoreUnavailableError,
    TraceStore,
)
from soev.runtime import (
    CORE_EVENT_TYPES,
    EventTypes,
    Graph,
    InputDeniedError,
    Thread,
    ThreadActiveError,
)

T = TypeVar("T")

MOST_LIVES: Final = 20
MOST_ROUNDS: Final = 200
PAUSE: Final = 1.0
_ID: Final = re.compile(r"id~[^\"~\\]+~\d+")


def approve(request: Request) -> JsonValue:
    """Answer every request with an approval."""
    return {"approved": True}


@dataclass(frozen=True, kw_only=True)
class Talk:
    """What a person says in one thread.

    Args:
        inputs: The fresh inputs, one for each turn.
        respond: Answers the requests of the turns.
        thread_id: The thread.
        types: The classes of its events.
    """

    inputs: Sequence[JsonValue] = ("Hello",)
    respond: Callable[[Request], JsonValue] = approve
    thread_id: str = "t-1"
    types: EventTypes = CORE_EVENT_TYPES


async def carry_on(process: Process, graph: Callable[[], Graph], talk: Talk) -> None:
    """Carry a talk on from where the log ends, to the end of its last turn.

    It asks the log what is next each time, so another process can call it again after a crash.
    Whoever holds the lease is waited for.

    Args:
        process: Where it runs.
        graph: Makes the graph of a turn.
        talk: The talk.

    Raises:
        WorldError: It does not come to an end.
    """
    for _ in range(MOST_ROUNDS):
        thread = process.thread(talk.thread_id, graph(), talk.types)
        try:
            if await _next(process, thread, talk):
                return
        except (LeaseHeldError, LeaseLostError):
            await asyncio.sleep(process.runs.lease_ttl / 3)
        except (StoreUnavailableError, OutcomeUnknownError):
            await asyncio.sleep(PAUSE)
        except (ThreadActiveError, InputDeniedError, PositionConflictError):
            continue
    raise WorldError(f"The talk in {talk.thread_id!r} goes on after {MOST_ROUNDS} rounds.")


async def _next(process: Process, thread: Thread, talk: Talk) -> bool:
    """Do the next thing of a talk, and tell whether it is over."""
    status = await thread.status()
    if status.pending:
        request = status.pending[0].event
        await thread.send(Input(payload=talk.respond(request)), answering=request)
        return False
    begun = await _turns(process.store, talk.thread_id)
    if status.state in {"interrupted", "running"} or (status.state == "failed" and begun):
        await thread.resume()
        after = await thread.status()
        if after.position > status.position or after.state != "failed":
            return False
    if begun < len(talk.inputs):
        await thread.send(Input(payload=talk.inputs[begun]))
        return False
    return True


async def _turns(store: TraceStore, thread_id: str) -> int:
    """Count the turns of a thread by the stored text, which costs less than reading events."""
    page = await store.read(thread_id)
    inputs = (entry.event for entry in page.entries if entry.event.type == Input.type)
    return sum(
        event.stream == ROOT_STREAM and json.loads(event.data).get("answers") is None
        for event in inputs
    )


async def survive(process: Process, work: Callable[[Process], Coroutine[Any, Any, T]]) -> T:
    """Do work in a process, again after each death of it, until it is done.

    Args:
        process: The process. It is started again when it was killed.
        work: Makes the work. It must ask the store where to go on.

    Raises:
        WorldError: The process dies again and again.
    """
    for _ in range(MOST_LIVES):
        try:
            return await process.call(work(process))
        except ProcessDiedError:
            process.restart()
    raise WorldError(f"Process {process.name!r} died {MOST_LIVES} times.")


async def log_of(store: TraceStore, thread_id: str = "t-1") -> tuple[str, ...]:
    """Return a thread's log as text, without what a crash may change: times and made ids.

    Args:
        store: The store.
        thread_id: The thread.
    """
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"id-{len(numbers) + 1}")

    page = await store.read(thread_id)
    return tuple(
        f"{entry.position} {event.stream}:{event.seq}/{event.left} {event.origin} {event.type} "
        + _ID.sub(numbered, event.data)
        for entry in page.entries
        for event in (entry.event,)
    )


async def raced(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Return what each of several tasks returned or raised. None for one whose process died.

    Args:
        tasks: What `Process.start` returned.
    """
    pending = set(tasks)
    while pending:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    return [_came_of(task) for task in tasks]


def _came_of(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()
