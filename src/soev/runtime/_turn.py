"""What the events of a turn say about it: where it opened, what is open, and its state.

Nothing here needs a graph. `plan` and `Thread.status` both read with these functions, so they
cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol, TypeGuard

from soev.domain import (
    ROOT_STREAM,
    Cancelled,
    EffectIntent,
    EffectResult,
    Ended,
    Event,
    Failure,
    Input,
    Request,
    StoredEvent,
    Trace,
    TraceStore,
    parse_stream,
)
from soev.runtime._closing import closing

ThreadState = Literal["running", "waiting", "failed", "interrupted", "cancelled", "finished"]


class Decoder(Protocol):
    """Reads stored events back, as EventTypes does."""

    def decode(self, stored: StoredEvent) -> Event:
        """Return the event that was stored."""
        ...


def opens_turn(event: Event) -> TypeGuard[Input]:
    """Whether an event is an input that answers nothing: a fresh one, or the head of a task."""
    return isinstance(event, Input) and event.answers is None


def turn_starts(events: Sequence[Event]) -> list[int]:
    """Return the indices of the inputs that answer no request, ascending.

    The heads of tasks are among them; the root's are those with `stream == ROOT_STREAM`.

    Args:
        events: Events in log order.
    """
    return [index for index, event in enumerate(events) if opens_turn(event)]


def cancelled(trace: Trace) -> bool:
    """Whether the current turn was cancelled.

    Args:
        trace: The thread's trace.
    """
    return trace.thread.turn.latest(Cancelled) is not None


def open_requests(trace: Trace) -> tuple[Request, ...]:
    """Return the current turn's requests that wait for a response, in all streams.

    Args:
        trace: The thread's trace.
    """
    return pending(trace.thread.turn)


async def opening_input(store: TraceStore, thread_id: str, types: Decoder) -> Input | None:
    """Return the input that opened the current turn, None without a turn.

    The log is read backwards, and only as far as that input.

    Args:
        store: The store of the thread.
        thread_id: The thread.
        types: The classes to read the input with, an EventTypes.

    Raises:
        UnknownThreadError: There is no such thread.
    """
    before = await store.head(thread_id)
    async with closing(store.read_back(thread_id, before=before)) as entries:
        async for entry in entries:
            stored = entry.event
            if stored.stream == ROOT_STREAM and stored.type == Input.type:
                event = types.decode(stored)
                if opens_turn(event):
                    return event
    return None


@dataclass(frozen=True, slots=True)
class TurnReading:
    """What the events of the current turn say, whatever the graph.

    Args:
        begun: Whether there is a turn.
        ended: Whether it has Ended.
        cancelled: Whether it has Cancelled.
        standing: The Requests and Failures that stand last, by their index, ascending. An event
            stands last while no later one is in its stream or in a stream below it.
        intents: The open intent of each stream that has one.
    """

    begun: bool
    ended: bool
    cancelled: bool
    standing: Mapping[int, Request | Failure]
    intents: Mapping[str, EffectIntent]

    @property
    def failed(self) -> bool:
        """Whether a failure that no resume tries again stands last."""
        return any(is_final(event) for event in self.standing.values())

    def state(self, *, held: bool) -> ThreadState:
        """Return the state of the turn.

        Args:
            held: Whether somebody holds the thread's lease.
        """
        return state_of(
            cancelled=self.cancelled,
            finished=self.ended or not self.begun,
            held=held,
            failed=self.failed,
            waits=any(isinstance(event, Request) for event in self.standing.values()),
            failed_for_now=any(isinstance(event, Failure) for event in self.standing.values()),
        )

    def pending(self) -> dict[int, Request]:
        """Return the requests that wait for a response, by their index."""
        over = self.cancelled or self.failed
        return {
            index: event
            for index, event in self.standing.items()
            if isinstance(event, Request) and not self.ended
            if not over or event.stream in self.intents
        }

    def accepts_input(self, *, held: bool) -> bool:
        """Whether a fresh input is accepted.

        Args:
            held: Whether somebody holds the thread's lease.
        """
        return not self.intents and self.state(held=held) in {"cancelled", "finished", "failed"}


@cache
def state_of(
    *, cancelled: bool, finished: bool, held: bool, failed: bool, waits: bool, failed_for_now: bool
) -> ThreadState:
    """Return the state of a turn: the first row that fits, in the order of the parameters."""
    rows: tuple[tuple[bool, ThreadState], ...] = (
        (cancelled, "cancelled"),
        (finished, "finished"),
        (held, "running"),
        (failed, "failed"),
        (waits, "waiting"),
        (failed_for_now, "failed"),
    )
    return next((state for fits, state in rows if fits), "interrupted")


def read_turn(events: Sequence[Event]) -> TurnReading:
    """Read the current turn. It costs what the turn is long.

    Args:
        events: Events in log order, from the input that opened the turn or from further back.
            Indices in the answer are places in this sequence.
    """
    turn: list[tuple[int, Event]] = []
    for index in range(len(events) - 1, -1, -1):
        turn.append((index, events[index]))
        if events[index].stream == ROOT_STREAM and opens_turn(events[index]):
            break
    else:
        turn = []
    standing = {i: event for i, event in _last_ones(turn) if isinstance(event, Request | Failure)}
    turn.reverse()
    return TurnReading(
        begun=bool(turn),
        ended=any(isinstance(event, Ended) for _, event in turn),
        cancelled=any(isinstance(event, Cancelled) for _, event in turn),
        standing=dict(sorted(standing.items())),
        intents=_open_intents(event for _, event in turn),
    )


def turn_state(events: Sequence[Event], held: bool) -> ThreadState:
    """Return the state of the current turn, from its events and the lease.

    Args:
        events: Events in log order, from the input that opened the turn or from further back.
        held: Whether somebody holds the thread's lease.
    """
    return read_turn(events).state(held=held)


def pending(events: Sequence[Event]) -> tuple[Request, ...]:
    """Return the requests of the current turn that wait for a response, in all streams.

    Args:
        events: Events in log order, from the input that opened the turn or from further back.
    """
    return tuple(read_turn(events).pending().values())


def is_final(event: Event | None) -> bool:
    """Whether an event is a failure that no resume tries again."""
    return isinstance(event, Failure) and not event.transient


def above(stream: str) -> Iterator[str]:
    """Yield the streams that a stream hangs under, the nearest first."""
    parts = parse_stream(stream)
    while parts is not None:
        yield parts.parent
        parts = parse_stream(parts.parent)


def _last_ones(backwards: Iterable[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
    """Yield the events that stand last, from the newest event to the oldest."""
    passed: set[str] = set()
    for index, event in backwards:
        if event.stream not in passed:
            yield index, event
            passed.update((event.stream, *above(event.stream)))


def _open_intents(events: Iterable[Event]) -> dict[str, EffectIntent]:
    """Return the intents without a result, by stream."""
    found: dict[str, EffectIntent] = {}
    for event in events:
        if isinstance(event, EffectIntent):
            found[event.stream] = event
        elif isinstance(event, EffectResult) and _settles(event, found.get(event.stream)):
            del found[event.stream]
    return found


def _settles(result: EffectResult, intent: EffectIntent | None) -> bool:
    return intent is not None and result.intent == intent.id
