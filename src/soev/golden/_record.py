"""Makes a golden trace of a thread, scrubbed, with the proof that no request changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from re import Pattern
from typing import Any

from soev.domain import ChatRequest, StoredEvent, canonical_json
from soev.golden._agents import Agents
from soev.golden._check import agent_of, check
from soev.golden._errors import UnprovenRecordingError
from soev.golden._files import CALLS_SUFFIX, TRACE_SUFFIX, GoldenTrace, golden_text, golden_trace
from soev.golden._order import canonical_order, numbered
from soev.golden._scrub import (
    ID_CLASSES,
    refuse_secrets,
    scrub_ids,
    scrub_secrets,
    scrub_times,
)
from soev.golden._secrets import Placeholders
from soev.golden._turns import TurnGraphs
from soev.runtime import Agent, UnknownAgentError, UnreadableEventError, event_types_of, replay

# The request of each call by stream and seq of its answer; None for one that cannot be rebuilt.
Requests = dict[tuple[str, int | None], ChatRequest | None]


@dataclass(frozen=True, slots=True)
class Scrubbing:
    """What a project adds to the scrubbing.

    Args:
        patterns: More shapes of secrets.
        redact: A function from each event to the event to keep in its place.
        allowed: Values that look like secrets and are none.
    """

    patterns: tuple[Pattern[str], ...] = ()
    redact: Callable[[StoredEvent], StoredEvent] | None = None
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Recording:
    """A thread as a golden trace, ready to be written.

    Args:
        trace: The events file's content.
        calls: The text of the calls file.
        repinned: The positions of answers whose request hash is that of the scrubbed request.
    """

    trace: GoldenTrace
    calls: str
    repinned: tuple[int, ...] = ()


async def record(
    events: Sequence[StoredEvent],
    agents: Agents,
    name: str,
    *,
    source: str = "",
    directory: str = "",
    scrubbing: Scrubbing | None = None,
) -> Recording:
    """Make a golden trace of a thread's log.

    Ids are numbered, times begin in the year 2000, secrets are replaced. Today's code replays the
    log before and after each of these: what would change a request is kept, and the header says
    so. Where a secret was in a request, its hash is taken anew, if the log had the right one.

    Args:
        events: The log, from a store.
        agents: The project's agents by name.
        name: The golden trace.
        source: Where it comes from, for the header.
        directory: Where it will be written, for errors.
        scrubbing: What the project adds.

    Raises:
        UnprovenRecordingError: The log cannot be replayed with today's agents.
        SecretFoundError: A value that looks like a secret remains.
        UnknownAgentError: The agent of the log is not among the agents.
    """
    extra = scrubbing or Scrubbing()
    ordered = canonical_order(events)
    agent = agent_of(golden_trace(name, "", ordered))
    if agent not in agents:
        raise UnknownAgentError(agent or None, tuple(agents))
    recorder = _Recorder(name, agents[agent], await _requests(agents[agent], ordered))
    await recorder.prove_order(events)
    scrubbed, kept = await recorder.renamed(ordered)
    clean, repinned = await recorder.without_secrets(scrubbed, extra)
    done = tuple(each for each in ("ids", "times", "secrets") if each not in kept)
    trace = golden_trace(name, agent, clean, source=source, scrubbed=done, kept=kept)
    report = await check(trace, None, agents)
    if report.problems:
        raise UnprovenRecordingError(name, report.problems[0].text)
    for suffix, text in ((TRACE_SUFFIX, golden_text(trace)), (CALLS_SUFFIX, report.rendering)):
        file = f"{directory}/{name}{suffix}".removeprefix("/")
        refuse_secrets(file, text, extra.patterns, extra.allowed)
    return Recording(trace, report.rendering, repinned)


async def _requests(agent: Agent[Any, Any], log: Sequence[StoredEvent]) -> Requests:
    """Rebuild the request of each call."""
    types = event_types_of([agent])
    events = [types.decode(event) for event in log]
    calls = await replay(events, TurnGraphs(golden_trace("", "", log), agent, events))
    return {(call.stream, call.answer.seq): call.request for call in calls}


@dataclass(frozen=True)
class _Recorder:
    """Proves each step of the scrubbing against the requests of the log as it was."""

    name: str
    agent: Agent[Any, Any]
    before: Requests

    async def prove_order(self, events: Sequence[StoredEvent]) -> None:
        """Make sure that builders are pure, and that the order of the file means the same."""
        if not await self._same(tuple(numbered(events))):
            raise UnprovenRecordingError(self.name, "two builds of a call from the log differ")

    async def _same(self, log: Sequence[StoredEvent]) -> bool:
        try:
            after = await _requests(self.agent, log)
        except (ValueError, UnreadableEventError):
            # A class of the project refuses the scrubbed value.
            return False
        return _hashes(after) == _hashes(self.before)

    async def renamed(
        self, log: tuple[StoredEvent, ...]
    ) -> tuple[tuple[StoredEvent, ...], tuple[str, ...]]:
        """Scrub ids and times, as far as no request depends on them.

        Returns:
            The log, and what was kept.
        """
        renamed, kept = await self._with_new_ids(log)
        timed = scrub_times(renamed)
        if await self._same(timed):
            return timed, kept
        return renamed, (*kept, "times")

    async def _with_new_ids(
        self, log: tuple[StoredEvent, ...]
    ) -> tuple[tuple[StoredEvent, ...], tuple[str, ...]]:
        for arguments in (True, False):
            # A text in an argument can equal an id by accident, and the model is shown that text.
            renamed = scrub_ids(log, arguments=arguments)
            if await self._same(renamed):
                return renamed, ()
        fine = [each for each in ID_CLASSES if await self._same(scrub_ids(log, [each]))]
        if not fine:
            return log, ("ids",)
        kept = tuple(f"{each[:-1]} ids" for each in ID_CLASSES if each not in fine)
        return scrub_ids(log, fine), kept

    async def without_secrets(
        self, log: tuple[StoredEvent, ...], extra: Scrubbing
    ) -> tuple[tuple[StoredEvent, ...], tuple[int, ...]]:
        """Replace secrets, and take the hashes of requests that had one anew.

        Returns:
            The log, and the positions of the answers whose hash is new.
        """
        redacted = log if extra.redact is None else tuple(map(extra.redact, log))
        clean = scrub_secrets(redacted, Placeholders(), extra.patterns)
        after = await _requests(self.agent, clean)
        pinned = []
        repinned = []
        for position, event in enumerate(clean, 1):
            key = event.stream, event.seq
            new = self._pinned(event, self.before.get(key), after.get(key))
            pinned.append(new)
            if new is not event:
                repinned.append(position)
        return tuple(pinned), tuple(repinned)

    def _pinned(
        self, event: StoredEvent, before: ChatRequest | None, after: ChatRequest | None
    ) -> StoredEvent:
        """Return the event with the hash of today's request, if it had that of the whole one."""
        if before is None or (after is not None and before.hash == after.hash):
            return event
        if after is None:
            problem = f"the request of the {event.type} at {event.seq} in {event.stream} is lost"
            raise UnprovenRecordingError(self.name, f"{problem} when secrets are replaced")
        payload = json.loads(event.data)
        if payload.get("request_hash") != before.hash:
            return event
        payload["request_hash"] = after.hash
        if payload.get("sent_chars") is not None:
            payload["sent_chars"] = after.sent_chars
        return replace(event, data=canonical_json(payload))


def _hashes(requests: Requests) -> dict[tuple[str, int | None], str | None]:
    return {key: None if each is None else each.hash for key, each in requests.items()}
