"""The `soev_replay` fixture: a test replays a golden trace, or a thread, and looks at the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_soev._check import agents_for, shown_path
from soev.domain import Event
from soev.golden import (
    CallReport,
    Change,
    CheckOptions,
    GoldenTrace,
    TraceReport,
    calls_path,
    check,
    golden_trace,
    read_golden,
    trace_text,
)
from soev.runtime import Thread, encode

# It follows from the other changes of a call, so it is none of its own.
_FOLLOWS = "prompt prefix"


@dataclass(frozen=True)
class ReplayedCall:
    """One model call of a thread, as today's code makes it.

    Args:
        report: What the check found about it.
    """

    report: CallReport

    @property
    def characters(self) -> int:
        """The size of today's request in characters of canonical JSON.

        Raises:
            ValueError: Today's code does not make this call.
        """
        if self.report.size is None:
            raise ValueError(f"Today's code does not make call {self.report.index}.")
        return self.report.size

    @property
    def as_sent(self) -> bool | None:
        """Whether today's request is what was really sent; None where that is not known."""
        return self.report.same_as_recorded


@dataclass(frozen=True)
class ReplayReport:
    """What today's code makes of the model calls of a thread.

    Args:
        report: What the check found.
        text: What it found, as a failing golden trace prints it.
    """

    report: TraceReport
    text: str

    @property
    def calls(self) -> tuple[ReplayedCall, ...]:
        """The calls, in the order of the log."""
        return tuple(map(ReplayedCall, self.report.calls))

    def unchanged(self, except_: Collection[str] = ()) -> None:
        """Fail the test when a request differs from the accepted one.

        A thread or a trace without accepted requests is held to what was really sent. Only the
        hash of that is known, so nothing can be excepted.

        Args:
            except_: What may differ: kinds of changes such as `tool added`, or what they are
                about, such as the role `system` or a tool's name.
        """
        __tracebackhide__ = True
        if self.report.problems:
            pytest.fail(self.text, pytrace=False)
        if not self.report.accepted:
            self._as_sent()
            return
        changes = [change for call in self.report.calls for change in call.changes]
        if any(change.kind != _FOLLOWS and not _excepted(change, except_) for change in changes):
            pytest.fail(self.text, pytrace=False)

    def _as_sent(self) -> None:
        __tracebackhide__ = True
        others = [str(call.report.index) for call in self.calls if call.as_sent is False]
        if others:
            pytest.fail(
                f"today's code sends something else than was sent in calls {', '.join(others)}; "
                "only hashes are known of what was sent. Record the thread with `soev_golden` to "
                "see what changed.",
                pytrace=False,
            )


def _excepted(change: Change, except_: Collection[str]) -> bool:
    return bool({change.kind, change.scope, change.title} & set(except_))


class Replayer:
    """Replays a golden trace by its path, a thread, or its events.

    Args:
        config: The configuration of the run.
        given: What the fixture `soev_agents` gave.
    """

    def __init__(self, config: pytest.Config, given: object) -> None:
        self._config, self._given = config, given

    async def __call__(self, source: Thread | Sequence[Event] | str | Path) -> ReplayReport:
        """Rebuild every model call with today's code. Nothing is executed.

        Args:
            source: A thread, its events in log order, or the path of a golden trace, relative to
                the root of the project.

        Raises:
            FileNotFoundError: There is no such golden trace.
            GoldenFileError: It cannot be read.
        """
        if isinstance(source, str | Path):
            golden, accepted = await asyncio.to_thread(self._read, source)
        else:
            golden, accepted = _unnamed(await _events(source)), None
        agents = agents_for(self._config, self._given)
        report = await check(golden, accepted, agents, CheckOptions(max_growth=None))
        return ReplayReport(report, trace_text(report, accepted=accepted))

    def _read(self, source: str | Path) -> tuple[GoldenTrace, str | None]:
        """Return a golden trace, and the text of its accepted requests."""
        root = self._config.rootpath
        path = root / source
        return read_golden(path, shown_path(path, root)), _text(calls_path(path))


async def _events(source: Thread | Sequence[Event]) -> Sequence[Event]:
    return await source.trace() if isinstance(source, Thread) else source


def _unnamed(events: Sequence[Event]) -> GoldenTrace:
    golden = golden_trace("thread", "", map(encode, events))
    return replace(golden, shown="thread")


def _text(path: Path) -> str | None:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else None
