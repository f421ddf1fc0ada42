"""What a thread's log means, written a second time from the contract, and as simply as it can be.

The runtime reads a turn with code that is made to be fast. This module reads the stored rows, walks
them as often as it likes, and shares nothing with the runtime.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from soev.domain import StoredEvent

AFTER_CANCELLED = {"effect_result", "request", "input", "failure"}


class Fact(NamedTuple):
    """One row of a log, or one that somebody wants to append.

    Args:
        stream: Its stream.
        seq: Its place there, None for one that is not stored.
        type: What it is.
        data: Its payload.
    """

    stream: str
    seq: int | None
    type: str
    data: dict[str, Any]

    @classmethod
    def of(cls, event: StoredEvent) -> "Fact":
        """Read a stored event."""
        return cls(event.stream, event.seq, event.type, json.loads(event.data))

    @property
    def opens(self) -> bool:
        """Whether it is a fresh input, which opens a turn."""
        return self.is_from_outside and self.stream == "main" and self.data["answers"] is None

    @property
    def is_from_outside(self) -> bool:
        """Whether it is an input, of a caller or for a task."""
        return self.type == "input"

    @property
    def is_final(self) -> bool:
        """Whether it is a failure that no resume tries again."""
        return self.type == "failure" and not self.data["transient"]


Log = Sequence[Fact]


def turn_at(log: Log) -> int:
    """Return where the current turn begins, the log's length when there is none."""
    return next((at for at in range(len(log) - 1, -1, -1) if log[at].opens), len(log))


def standing(turn: Log) -> Iterator[Fact]:
    """Yield the events with no later one in their stream or in a stream below it."""
    for at, fact in enumerate(turn):
        below = (fact.stream, fact.stream + "/")
        if not any(later.stream == below[0] or later.stream.startswith(below[1])
                   for later in turn[at + 1 :]):  # fmt: skip
            yield fact


def intents(turn: Log) -> dict[str, Fact]:
    """Return the intent without a result of each stream that has one."""
    found: dict[str, Fact] = {}
    for fact in turn:
        if fact.type == "effect_intent":
            found[fact.stream] = fact
        elif fact.type == "effect_result" and _settles(fact, found.get(fact.stream)):
            del found[fact.stream]
    return found


def _settles(result: Fact, intent: Fact | None) -> bool:
    return intent is not None and intent.data["id"] == result.data["intent"]


def status(log: Log, held: bool) -> str:
    """Return the state of a thread: the first row of the table that fits."""
    turn = log[turn_at(log) :]
    types = {fact.type for fact in turn}
    last = list(standing(turn))
    if "cancelled" in types:
        return "cancelled"
    if "ended" in types or not turn:
        return "finished"
    if held:
        return "running"
    if any(fact.is_final for fact in last):
        return "failed"
    if any(fact.type == "request" for fact in last):
        return "waiting"
    return "failed" if any(fact.type == "failure" for fact in last) else "interrupted"


def pending(log: Log) -> list[Fact]:
    """Return the requests that wait for a response."""
    turn = log[turn_at(log) :]
    last, open_now = list(standing(turn)), intents(turn)
    if any(fact.type == "ended" for fact in turn):
        return []
    over = any(fact.type == "cancelled" for fact in turn) or any(fact.is_final for fact in last)
    asked = [fact for fact in last if fact.type == "request"]
    return [fact for fact in asked if not over or fact.stream in open_now]


def takes_input(log: Log, held: bool) -> bool:
    """Tell whether a fresh input is accepted."""
    over = status(log, held) in {"cancelled", "finished", "failed"}
    return over and not intents(log[turn_at(log) :])


def can_cancel(log: Log, held: bool) -> bool:
    """Tell whether there is a turn that can be cancelled."""
    return status(log, held) in {"running", "waiting", "interrupted"}


def problems(log: Log, batch: Log, leased: bool) -> Iterator[str]:
    """Yield what is wrong with appending events at this place, in words that begin with a rule."""
    now = list(log)
    for fact in batch:
        yield from _problems(now, fact, leased)
        now.append(fact)
    if batch and batch[-1].type == "ended" and (pending(now[:-1]) or intents(now[turn_at(now) :])):
        yield "I29: a turn ended that waits, or with an open intent"


def _problems(log: Log, fact: Fact, leased: bool) -> Iterator[str]:
    turn = log[turn_at(log) :]
    types = {each.type for each in turn}
    mine = intents(turn).get(fact.stream)
    outside = fact.type in {"opened", "cancelled"} or (
        fact.is_from_outside and (fact.stream == "main" or fact.data["answers"] is not None)
    )
    if outside == leased:
        yield f"I3: a {fact.type!r} was appended {'under a' if leased else 'without a'} lease"
    if fact.opens:
        if not takes_input(log, held=False):
            yield f"I8: a fresh input came while the turn was {status(log, held=False)}"
        return
    if "ended" in types:
        yield f"I29: a {fact.type!r} came after the end of its turn"
    if fact.type == "cancelled" and "cancelled" in types:
        yield "I16: a turn was cancelled twice"
    elif "cancelled" in types and (fact.type not in AFTER_CANCELLED or mine is None):
        yield f"I17: a {fact.type!r} came after Cancelled"
    yield from _effect_problems(log, fact, mine)
    if fact.type == "cancelled" and fact.data["input"] != turn_at(log) + 1:
        yield f"I16: Cancelled names position {fact.data['input']}"
    if fact.is_from_outside and fact.data["answers"] is not None:
        asked = (fact.stream, fact.data["answers"])
        if asked not in {(each.stream, each.seq) for each in pending(log)}:
            yield f"I27: a response came to {asked}, which does not wait"


def _effect_problems(log: Log, fact: Fact, mine: Fact | None) -> Iterator[str]:
    if fact.type == "effect_intent":
        if mine is not None:
            yield "I7: an intent came beside an open one"
        if fact.data["id"] in {None, *(each.data.get("id") for each in log)}:
            yield f"I7: the id {fact.data['id']!r} of an intent is not new"
    if fact.type == "effect_result" and (mine is None or mine.data["id"] != fact.data["intent"]):
        yield f"I7: a result came for {fact.data['intent']!r}, which is not open"
