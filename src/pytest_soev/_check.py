"""Checks one golden trace, and says what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_soev._agents import NO_AGENTS, NoAgentsError
from pytest_soev._found import FOUND, Found
from pytest_soev._settings import Settings
from soev.golden import (
    Agents,
    CatalogError,
    GoldenFileError,
    Style,
    TraceReport,
    agents_of,
    calls_path,
    check,
    damaged,
    read_golden,
    trace_text,
)

SETTINGS = pytest.StashKey[Settings]()
_MADE = pytest.StashKey[dict[int, tuple[object, Agents]]]()


class SetupFailure(Exception):
    """The run is set up so that no golden trace can be replayed."""


class GoldenFailure(Exception):
    """A golden trace is not as accepted.

    Args:
        report: What is wrong.
        tell: Writes the whole report, in a style.
    """

    def __init__(self, report: TraceReport, tell: Callable[[Style], str]) -> None:
        super().__init__(report, tell)
        self.report, self.tell = report, tell


def check_item(request: pytest.FixtureRequest, *, routes: bool) -> None:
    """Check the golden trace of an item, and fail with all that is wrong with it.

    Args:
        request: The item's request for fixtures.
        routes: Whether to check routing decisions instead of model calls.

    Raises:
        GoldenFailure: The trace is not as accepted, and the run does not accept it.
        SetupFailure: There are no agents to hold it to.
    """
    __tracebackhide__ = True
    settings = request.config.stash[SETTINGS]
    shown = shown_path(request.path, settings.root)
    try:
        agents = agents_for(request.config, request.getfixturevalue("soev_agents"))
    except (NoAgentsError, CatalogError) as error:
        request.node.stash[FOUND] = Found(shown, routes=routes, setup=str(error))
        raise SetupFailure(str(error)) from None
    accepted = _accepted(request.path)
    report = _report(request.path, shown, accepted, agents, settings, routes=routes)
    accept = _is_accepted(report, accepted, settings)
    request.node.stash[FOUND] = Found(shown, report, routes=routes, accept=accept)
    if not (report.passed or accept):
        raise GoldenFailure(report, teller(request.config, report, accepted))


def shown_path(path: Path, root: Path) -> str:
    """Return a path as reports name it: relative to the root, with forward slashes."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def agents_for(config: pytest.Config, given: object) -> Agents:
    """Return the agents of what a `soev_agents` fixture gave, made once for each fixture.

    Raises:
        NoAgentsError: Nobody says where they come from.
        CatalogError: The place gives none.
    """
    made = config.stash.setdefault(_MADE, {})
    kept = made.get(id(given))
    if kept is None or kept[0] is not given:
        kept = made[id(given)] = given, agents_of(given, "the fixture `soev_agents`")
    return kept[1]


def _accepted(path: Path) -> str | None:
    try:
        # Not in the text mode, which would hide the line ends that a checkout may have changed.
        return calls_path(path).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def _report(
    path: Path,
    shown: str,
    accepted: str | None,
    agents: Agents,
    settings: Settings,
    *,
    routes: bool,
) -> TraceReport:
    try:
        golden = read_golden(path, shown)
    except GoldenFileError as error:
        return damaged(path, error)
    return asyncio.run(check(golden, accepted, agents, replace(settings.checks, routes=routes)))


def _is_accepted(report: TraceReport, accepted: str | None, settings: Settings) -> bool:
    """Tell whether the run accepts what it found, and the file is not that already."""
    if settings.update is None or not report.acceptable or report.rendering == accepted:
        return False
    return settings.update == "all" or report.verdict == "missing"


def teller(
    config: pytest.Config, report: TraceReport, accepted: str | None
) -> Callable[[Style], str]:
    """Return a function that writes a report as the options ask, in a style."""

    def tell(style: Style) -> str:
        return trace_text(
            report,
            style,
            verbosity=config.get_verbosity(),
            details=bool(config.getoption("soev_details")),
            accepted=accepted,
        )

    return tell


class _Terminal(Protocol):
    """What of pytest's terminal writer a report needs."""

    hasmarkup: bool

    def markup(self, text: str, **markup: bool) -> str: ...

    def line(self, text: str = "") -> None: ...


@dataclass(frozen=True)
class Crash:
    """Where a failure is, and what it is in one line: what pytest's short summary prints.

    Args:
        path: The file at fault.
        lineno: The line in it.
        message: What is wrong.
    """

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


class Told:
    """A failure of ours as pytest prints it: plain text, with colour where there is a terminal.

    Args:
        tell: Writes the text, in a style.
        file: The file at fault.
        line: The line in it.
    """

    def __init__(self, tell: Callable[[Style], str], file: str, line: int) -> None:
        self._tell = tell
        self.reprcrash = Crash(file, line, str(self).partition("\n")[0])

    def __str__(self) -> str:
        return self._tell(Style())

    def toterminal(self, terminal: _Terminal) -> None:
        """Write the text to a terminal."""
        text = self._tell(_coloured(terminal)) if terminal.hasmarkup else str(self)
        for line in text.split("\n"):
            terminal.line(line)


def _coloured(terminal: _Terminal) -> Style:
    def marked(**markup: bool) -> Callable[[str], str]:
        return lambda text: terminal.markup(text, **markup)

    return Style(
        removed=marked(red=True),
        added=marked(green=True),
        removed_word=marked(red=True, invert=True),
        added_word=marked(green=True, invert=True),
        title=marked(bold=True),
    )


def told(error: GoldenFailure | SetupFailure, trace: str) -> Told:
    """Return a failure of ours as pytest prints it.

    Args:
        error: The failure.
        trace: The events file, as reports name it.
    """
    if isinstance(error, SetupFailure):
        first = str(error).partition("\n")[0]
        more = " The end of the run says how." if str(error) == NO_AGENTS else ""
        return Told(lambda _: first + more, trace, 1)
    report = error.report
    if report.problems:
        return Told(error.tell, report.problems[0].file or trace, report.problems[0].line)
    lines = [line for call in report.changed for line in call.lines]
    return Told(error.tell, report.file, lines[0] if lines else 1)


def properties(found: Found) -> list[tuple[str, Any]]:
    """Return what JUnit and other reports are told of an item."""
    report = found.report
    if report is None:
        return [("soev.trace", found.trace)]
    lost = [each for each in (*report.problems, *report.warnings) if each.kind == "unreplayable"]
    return [
        ("soev.trace", found.trace),
        ("soev.agent", report.agent),
        ("soev.calls", len(report.calls)),
        ("soev.calls_changed", len(report.changed)),
        ("soev.unreplayable", len(lost)),
    ]
