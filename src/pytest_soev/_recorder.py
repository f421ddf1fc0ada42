"""The `soev_golden` fixture: a test records a thread as a golden trace, or compares it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import pytest

from pytest_soev._agents import NoAgentsError
from pytest_soev._check import agents_for, shown_path, teller
from pytest_soev._settings import DEFAULT_DIRECTORY, named_directories
from soev.domain import Event, StoredEvent
from soev.golden import (
    TRACE_SUFFIX,
    Agents,
    CatalogError,
    GoldenFileError,
    GoldenTrace,
    Recording,
    Scrubbing,
    SecretFoundError,
    Style,
    UnprovenRecordingError,
    calls_path,
    check,
    read_golden,
    record,
    write_golden,
    write_text,
)
from soev.runtime import Thread, UnknownAgentError, encode

# What changes with the code, while the conversation stays the same. The calls file tells it.
_OF_THE_CODE: Final = ("request_hash", "sent_chars")
_NAME: Final = re.compile(r"[\w][\w .+@-]*")
_RECORDED = pytest.StashKey[dict[str, str]]()


class GoldenRecorder:
    """Records a thread as a golden trace under --soev-update, and else compares it with the file.

    Args:
        request: The test's request for fixtures.
        given: What the fixture `soev_agents` gave.
    """

    def __init__(self, request: pytest.FixtureRequest, given: object) -> None:
        self._request, self._given = request, given
        self._config = request.config

    async def __call__(self, thread: Thread | Sequence[Event], name: str | None = None) -> None:
        """Record a thread, or fail when it is not as recorded.

        Args:
            thread: The thread, or its events in log order.
            name: The golden trace. None takes the name of the test's marker `soev_golden`.
        """
        __tracebackhide__ = True
        path = self._path(name)
        events = await thread.trace() if isinstance(thread, Thread) else thread
        agents = self._agents()
        recording = await self._recording(path, [encode(event) for event in events], agents)
        update = self._config.getoption("soev_update")
        there = await asyncio.to_thread(path.exists)
        if update == "all" or (update == "new" and not there):
            await asyncio.to_thread(_write, path, recording)
        elif not there:
            _fail(
                f"golden trace {_name_of(path)!r} is not recorded yet: run "
                f'"pytest --soev-update=new {self._request.node.nodeid}" and commit both files'
            )
        else:
            await self._compare(path, recording, agents)

    def _path(self, name: str | None) -> Path:
        """Return the events file of a name, which one test of a run may record."""
        __tracebackhide__ = True
        marker = self._request.node.get_closest_marker("soev_golden")
        if name is None and marker is not None and marker.args:
            name = str(marker.args[0])
        if name is None:
            _fail('give the golden trace a name: `await soev_golden(thread, "refund-denied")`')
        if not _NAME.fullmatch(name):
            _fail(f"{name!r} is no name for a golden trace: use letters, digits, `-`, `_`, `.`")
        node = self._request.node.nodeid
        taken = self._config.stash.setdefault(_RECORDED, {}).setdefault(name, node)
        if taken != node:
            _fail(f"golden trace {name!r} is recorded by {taken} too: give one another name")
        found = named_directories(self._config)
        directory = found[0] if found else self._config.rootpath / DEFAULT_DIRECTORY
        return directory / f"{name}{TRACE_SUFFIX}"

    def _agents(self) -> Agents:
        __tracebackhide__ = True
        try:
            return agents_for(self._config, self._given)
        except (NoAgentsError, CatalogError) as error:
            _fail(str(error))

    async def _recording(
        self, path: Path, events: Sequence[StoredEvent], agents: Agents
    ) -> Recording:
        __tracebackhide__ = True
        root = self._config.rootpath
        try:
            return await record(
                events,
                agents,
                _name_of(path),
                source=f"test:{self._request.node.nodeid}",
                directory=shown_path(path.parent, root),
                scrubbing=_scrubbing(self._config),
            )
        except (UnprovenRecordingError, SecretFoundError, UnknownAgentError) as error:
            _fail(str(error))

    async def _compare(self, path: Path, recording: Recording, agents: Agents) -> None:
        __tracebackhide__ = True
        shown = shown_path(path, self._config.rootpath)
        update = f'Accept: pytest --soev-update "{self._request.node.nodeid}"'
        try:
            golden = await asyncio.to_thread(read_golden, path, shown)
        except GoldenFileError as error:
            _fail(f"{error}\n{update}")
        difference = _difference(golden, recording.trace)
        if difference:
            _fail(f"the conversation is not as recorded\n{difference}\n{update}")
        accepted = await asyncio.to_thread(_text, calls_path(path))
        today = replace(recording.trace, path=path, shown=shown)
        report = await check(today, accepted, agents)
        if not report.passed:
            text = teller(self._config, report, accepted)(Style())
            _fail(f"{text}\n{update}")


def _fail(text: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(text, pytrace=False)


def _name_of(path: Path) -> str:
    return path.name.removesuffix(TRACE_SUFFIX)


def _text(path: Path) -> str | None:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else None


def _write(path: Path, recording: Recording) -> None:
    """Write both files; the events come last, since a trace is there when they are."""
    write_text(calls_path(path), recording.calls)
    write_golden(path, recording.trace)


def _scrubbing(config: pytest.Config) -> Scrubbing:
    try:
        patterns = tuple(re.compile(each) for each in config.getini("soev_redact"))
    except re.error as error:
        raise pytest.UsageError(f"soev_redact has {error.pattern!r}, {error}") from None

    def redact(event: StoredEvent) -> StoredEvent:
        redacted: StoredEvent | None = config.hook.pytest_soev_redact(event=event)
        return event if redacted is None else redacted

    return Scrubbing(patterns, redact, frozenset(config.getini("soev_not_secret")))


def _difference(golden: GoldenTrace, today: GoldenTrace) -> str:
    """Show the first event that is not as recorded, or nothing."""
    before, now = list(map(_line, golden.events)), list(map(_line, today.events))
    for position, (one, other) in enumerate(zip(before, now, strict=False), 1):
        if one != other:
            return f"{golden.file}:{position + 1}\n  - {one}\n  + {other}"
    if len(before) != len(now):
        longer = (before if len(before) > len(now) else now)[min(len(before), len(now)) :]
        sign = "-" if len(before) > len(now) else "+"
        lines = "\n".join(f"  {sign} {line}" for line in longer[:5])
        return f"{golden.file}: {len(before)} events recorded, {len(now)} today\n{lines}"
    return ""


def _line(event: StoredEvent) -> str:
    """Return what an event says about the conversation, and not about the code that ran it."""
    data = {key: value for key, value in json.loads(event.data).items() if key not in _OF_THE_CODE}
    place = event.stream if event.origin is None else f"{event.stream}, node {event.origin}"
    return f"{event.type} in {place}: {json.dumps(data, ensure_ascii=False)}"
