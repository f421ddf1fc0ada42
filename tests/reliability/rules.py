"""What every schedule is held to: the rules that can be read off a log and off the world."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_soev.world import Outcome, Simulation
from soev.domain import LogEntry, StoredEvent, TraceStore

Entry = LogEntry[StoredEvent]

MADE_ID = re.compile(r"id~[^\"~\\]+~\d+")
AFTER_CANCELLED = {"effect_result", "request", "input", "failure"}


@dataclass
class Story:
    """What one schedule came to. Two are equal when their logs and their acts are.

    Args:
        log: The events of each thread and stream, without times, with ids that are numbered.
        acts: How often the world was changed, for each kind of act.
        broken: The rules that do not hold.
        recoveries: How often a recovery was called.
        refusals: How often a fresh input was tried beside an open intent.
        seen: What else came up, for the list of what was reached.
    """

    log: tuple[str, ...] = ()
    acts: tuple[int, ...] = ()
    broken: list[str] = field(default_factory=list, compare=False)
    recoveries: int = field(default=0, compare=False)
    refusals: int = field(default=0, compare=False)
    seen: list[str] = field(default_factory=list, compare=False)


async def log(store: TraceStore, thread_id: str) -> Sequence[Entry]:
    """Return a thread's log as it is stored."""
    return (await store.read(thread_id)).entries


async def open_intents(store: TraceStore, thread_id: str) -> set[str]:
    """Return the ids of the intents of a thread that have no result yet."""
    return _open(await log(store, thread_id))


def _open(entries: Sequence[Entry]) -> set[str]:
    found: set[str] = set()
    for entry in entries:
        data = json.loads(entry.event.data)
        if entry.event.type == "effect_intent":
            found.add(data["id"])
        elif entry.event.type == "effect_result":
            found.discard(data["intent"])
    return found


async def story_of(sim: Simulation, story: Story, threads: Sequence[str]) -> None:
    """Write down what the threads and the world came to, and which rules do not hold."""
    numbers: dict[str, str] = {}
    lines: list[str] = []
    for thread_id in threads:
        entries = await log(sim.store, thread_id)
        story.broken += problems(thread_id, entries)
        story.seen += sorted({entry.event.type for entry in entries})
        lines += _lines(thread_id, entries, numbers)
    story.log = tuple(lines)
    story.acts = tuple(sorted(sim.world.acts.values()))
    story.broken += [f"I5: intent {each} was acted on {n} times" for each, n in _repeats(sim)]


def _repeats(sim: Simulation) -> Iterator[tuple[str, int]]:
    yield from sim.world.repeated().items()


def _lines(thread_id: str, entries: Sequence[Entry], numbers: dict[str, str]) -> list[str]:
    """Return a log by streams: how streams lie between each other depends on time."""

    def numbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"id-{len(numbers) + 1}")

    ordered = sorted(entries, key=lambda entry: (entry.event.stream, entry.position))
    return [
        f"{thread_id} {event.stream}:{event.seq} {event.origin} {event.type} "
        + MADE_ID.sub(numbered, event.data)
        for event in (entry.event for entry in ordered)
    ]


def problems(thread_id: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the rules that a log breaks, in words."""
    for problem in (*_numbered(entries), *_settled(entries), *_turned(entries)):
        yield f"{problem} of {thread_id!r}"


def _numbered(entries: Sequence[Entry]) -> Iterator[str]:
    seqs: dict[str, int] = {}
    for place, entry in enumerate(entries, 1):
        if entry.position != place:
            yield f"I1: position {entry.position} is the {place}. row"
        if entry.event.seq != seqs.get(entry.event.stream, 0) + 1:
            yield f"I1: position {entry.position} has the seq {entry.event.seq}"
        seqs[entry.event.stream] = entry.event.seq or 0


def _settled(entries: Sequence[Entry]) -> Iterator[str]:
    results: set[str] = set()
    for place, entry in enumerate(entries):
        if entry.event.type == "effect_result":
            intent = json.loads(entry.event.data)["intent"]
            if intent in results:
                yield f"I7: position {entry.position} is a second result"
            results.add(intent)
        if _is_fresh(entry) and _open(entries[:place]):
            yield f"I8: position {entry.position} is a fresh input beside an open intent"


def _turned(entries: Sequence[Entry]) -> Iterator[str]:
    closed: str | None = "nothing"
    for place, entry in enumerate(entries):
        kind = entry.event.type
        if _is_fresh(entry):
            if closed is None and not _may_follow(entries[place - 1]):
                yield f"I29: position {entry.position} is an input in a turn that is not over"
            closed = None
        elif closed == "ended":
            yield f"I29: position {entry.position} comes after the end of its turn"
        elif closed == "cancelled" and kind not in AFTER_CANCELLED:
            yield f"I17: position {entry.position} is a {kind!r} after Cancelled"
        if kind in {"ended", "cancelled"}:
            closed = kind


def _is_fresh(entry: Entry) -> bool:
    event = entry.event
    fresh = event.type == "input" and event.stream == "main"
    return fresh and json.loads(event.data).get("answers") is None


def _may_follow(entry: Entry) -> bool:
    return entry.event.type in {"opened", "failure"}


def holds(outcome: Outcome[Any]) -> Story:
    """Return the story of a schedule in which every rule holds.

    Raises:
        AssertionError: A rule is broken, a task was left, or something was not handled.
    """
    story = outcome.result()
    assert isinstance(story, Story)
    assert not story.broken, f"{story.broken[0]} ({outcome.token})"
    assert not outcome.left, f"I22: {outcome.left} was left ({outcome.token})"
    assert not outcome.complaints, f"nobody handled {outcome.complaints[0]} ({outcome.token})"
    return story


def as_calm(calm: Outcome[Story]) -> Any:
    """Make a check of I15: the log and the acts are those of a calm run, and every rule holds."""
    expected = holds(calm)

    def check(outcome: Outcome[Story]) -> None:
        story = holds(outcome)
        if story != expected:
            pairs = [(a, b) for a, b in zip(story.log, expected.log, strict=False) if a != b]
            raise AssertionError(
                f"I15: acts {story.acts}, calm {expected.acts}; {len(story.log)} events, calm "
                f"{len(expected.log)}; first difference {pairs[:1]} ({outcome.token})"
            )

    return check
