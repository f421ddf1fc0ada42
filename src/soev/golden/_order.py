"""The order of events in a golden trace: one thread has one text, whatever ran first."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from soev.domain import ROOT_STREAM, StoredEvent, canonical_json, parse_stream


def canonical_order(events: Iterable[StoredEvent]) -> tuple[StoredEvent, ...]:
    """Bring a log into the order that golden traces are written in.

    Within a turn each stream stands whole after the event that it hangs on, siblings by index;
    `Cancelled` and what follows it come last. The order within each stream stays as it is, and
    that alone carries meaning.

    Args:
        events: The log of one thread.

    Returns:
        The same events with their seq, and with the inputs of `Cancelled` counted anew.
    """
    log = list(numbered(events))
    ordered = [place for turn in _turns(log) for place in _arranged(log, turn)]
    moved = {old + 1: new for new, old in enumerate(ordered, 1)}
    return tuple(_pointed(log[place], moved) for place in ordered)


def numbered(events: Iterable[StoredEvent]) -> Iterator[StoredEvent]:
    """Yield the events with the seq that their order gives each.

    Args:
        events: The events of one thread.
    """
    counts: Counter[str] = Counter()
    for event in events:
        counts[event.stream] += 1
        yield replace(event, seq=counts[event.stream])


def _pointed(event: StoredEvent, moved: dict[int, int]) -> StoredEvent:
    if event.type != "cancelled":
        return event
    data = json.loads(event.data)
    return replace(event, data=canonical_json({**data, "input": moved.get(data["input"], 0)}))


def opens_turn(event: StoredEvent) -> bool:
    """Tell whether an event is a fresh input of the root stream."""
    if event.type != "input" or event.stream != ROOT_STREAM:
        return False
    return json.loads(event.data).get("answers") is None


def _turns(log: list[StoredEvent]) -> Iterator[list[int]]:
    """Cut the log before each fresh input, and each turn before its `Cancelled`."""
    part: list[int] = []
    for place, event in enumerate(log):
        if opens_turn(event) or event.type == "cancelled":
            yield part
            part = []
        part.append(place)
    yield part


def _arranged(log: list[StoredEvent], turn: list[int]) -> Iterator[int]:
    streams: dict[str, list[int]] = defaultdict(list)
    if turn and log[turn[0]].type == "cancelled":
        yield turn[0]
        turn = turn[1:]
    for place in turn:
        streams[log[place].stream].append(place)
    hanging: dict[str, list[str]] = defaultdict(list)
    roots = []
    for name in streams:
        parts = parse_stream(name)
        if parts is None or parts.parent not in streams:
            roots.append(name)
        else:
            hanging[parts.parent].append(name)
    for name in sorted(roots, key=_rank):
        yield from _whole(name, log, streams, hanging)


def _rank(name: str) -> tuple[bool, list[tuple[int, int, str]]]:
    """Order streams by the places that they hang on, the root first."""
    path: list[tuple[int, int, str]] = []
    parts = parse_stream(name)
    while parts is not None:
        path.append((parts.seq, parts.index, parts.node))
        parts = parse_stream(parts.parent)
    return name != ROOT_STREAM, path[::-1]


def _whole(
    name: str,
    log: list[StoredEvent],
    streams: dict[str, list[int]],
    hanging: dict[str, list[str]],
) -> Iterator[int]:
    """Yield a stream's events, and after each the streams that hang on it."""
    waiting = sorted(hanging[name], key=_rank, reverse=True)
    for place in streams[name]:
        while waiting and _hangs_on(waiting[-1]) < (log[place].seq or 0):
            yield from _whole(waiting.pop(), log, streams, hanging)
        yield place
    for child in reversed(waiting):
        yield from _whole(child, log, streams, hanging)


def _hangs_on(name: str) -> int:
    parts = parse_stream(name)
    return 0 if parts is None else parts.seq
