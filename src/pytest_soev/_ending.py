"""The end of a replay run: what is accepted, what is reported, and the exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_soev import _github
from pytest_soev._found import Found
from pytest_soev._settings import Settings, in_ci, replay_command, update_was_refused
from soev.golden import (
    TRACE_SUFFIX,
    CallReport,
    GoldenFileError,
    Problem,
    TraceReport,
    find_obsolete,
    markdown,
    parse_calls,
    render_calls,
    report_json,
    summary_lines,
    write_text,
)

GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class Ending:
    """Gathers what the items found, in one process, and ends the run.

    Args:
        config: The configuration of the run.
        settings: What it was asked for.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self._found: dict[str, Found] = {}
        self._obsolete: tuple[Problem, ...] = ()
        self._written: dict[str, None] = {}
        self._faults: list[str] = []

    def take(self, node_id: str, found: Found) -> None:
        """Take in what an item found, and write what the run accepts.

        One process writes all files, so that two workers never write the same one.

        Args:
            node_id: The item. One that runs again replaces what it found before.
            found: What it found.
        """
        self._found[node_id] = found
        if found.accept and found.report is not None:
            try:
                self._accept(found.report, routes=found.routes)
            except (OSError, GoldenFileError) as error:
                self._faults.append(f"{found.report.file} is not written: {error}")

    def _accept(self, report: TraceReport, *, routes: bool) -> None:
        """Write a calls file. Routes and calls of it are accepted by different items."""
        path = self._settings.root / report.file
        text = report.rendering
        if self._config.getini("soev_routes") and path.exists():
            there, wanted = parse_calls(path.read_text("utf-8")), parse_calls(text)
            text = render_calls(
                replace(there, routes=wanted.routes)
                if routes
                else replace(wanted, routes=there.routes)
            )
        write_text(path, text)
        self._written[report.file] = None

    def _reports(self) -> list[TraceReport]:
        """Return one report for each trace, by file: that of its calls with that of its routes."""
        by_trace: dict[str, TraceReport] = {}
        for found in sorted(self._found.values(), key=_trace_and_routes):
            if found.report is None:
                continue
            report = found.report
            if found.accept:
                report = replace(report, verdict="same", calls=_as_accepted(report), problems=())
            calls = by_trace.get(found.trace)
            by_trace[found.trace] = report if calls is None else _with_routes(calls, report)
        return list(by_trace.values())

    def finish(self, status: int | pytest.ExitCode, collected: int) -> int | pytest.ExitCode:
        """Find what is obsolete, write the reports, and return the exit code of the run.

        Args:
            status: The exit code so far.
            collected: How many traces were collected.
        """
        if self._config.getoption("collectonly"):
            return status
        if self._found or collected:
            self._obsolete = find_obsolete(self._directories(), self._settings.root)
        reports = self._reports()
        empty = self._nothing_replayed(collected)
        if empty and status in GREEN:
            self._faults.append(empty)
        self._write_reports(reports)
        if any(found.setup for found in self._found.values()) or (empty and status in GREEN):
            return pytest.ExitCode.USAGE_ERROR
        stale = bool(self._obsolete) and self._settings.obsolete == "fail"
        if (self._faults or stale) and status in GREEN:
            return pytest.ExitCode.TESTS_FAILED
        return status

    def _directories(self) -> list[Path]:
        """Return where golden files are: the golden directories, and where traces were found."""
        traces = [self._settings.root / found.trace for found in self._found.values()]
        return list(dict.fromkeys([*self._settings.directories, *(each.parent for each in traces)]))

    def _nothing_replayed(self, collected: int) -> str:
        """Say that a run that was asked to replay replayed nothing, or nothing."""
        config = self._config
        if self._found or config.getoption("soev_allow_empty"):
            return ""
        if collected:
            if not self._settings.explicit:
                return ""
            return (
                "No golden trace was replayed: the options of this run leave all of them out. "
                "Select one, or pass --soev-allow-empty."
            )
        if not self._settings.explicit and config.args_source is config.ArgsSource.ARGS:
            return ""
        return (
            f"No golden trace (*{TRACE_SUFFIX}) was found. Point --soev-golden or the ini key "
            "soev_golden at their directory, make one with `soev golden add`, or pass "
            "--soev-allow-empty."
        )

    def _write_reports(self, reports: list[TraceReport]) -> None:
        directory = self._config.getoption("soev_report")
        if directory and (reports or self._obsolete):
            path = self._config.invocation_params.dir / directory
            data = json.dumps(report_json(reports, self._obsolete), ensure_ascii=False, indent=1)
            try:
                write_text(path / "report.md", markdown(reports, self._obsolete))
                write_text(path / "report.json", f"{data}\n")
            except OSError as error:
                self._faults.append(f"The report is not written: {error}")
        if _github.is_on(self._config) and (reports or self._obsolete):
            _github.add_summary(markdown(reports, self._obsolete))

    def print(self, terminal: pytest.TerminalReporter) -> None:
        """Print the section at the end of the run, if there is something to say.

        Args:
            terminal: Where to print.
        """
        if self._config.getoption("collectonly"):
            return
        reports = self._reports()
        lines = self._lines(reports)
        if not lines:
            return
        bad = bool(self._faults) or any(not report.passed for report in reports)
        terminal.write_sep("=", "soev replay", red=bad, green=not bad)
        for line in lines:
            terminal.write_line(line)
        if _github.is_on(self._config):
            for line in _github.annotation_lines(self._config, reports, self._obsolete):
                terminal.write_line(line)

    def _lines(self, reports: list[TraceReport]) -> list[str]:
        lines: list[str] = []
        setups = dict.fromkeys(found.setup for found in self._found.values() if found.setup)
        if self._written:
            ci = "In CI, by --soev-update: " if in_ci(self._config) else ""
            count = len(self._written)
            noun = "accepted file was" if count == 1 else "accepted files were"
            lines.append(f"{ci}{count} {noun} written. Review with git diff:")
            lines += [f"  {file}" for file in sorted(self._written)]
        if update_was_refused(self._config):
            lines.append(
                "In CI nothing is accepted but by --soev-update on the command line itself; "
                "the one in `addopts` is left out."
            )
        if reports or self._obsolete:
            command = replay_command(self._config)
            lines += summary_lines(reports, self._obsolete, command=command)
        if self._obsolete:
            lines.append(_tidying(self._obsolete))
        for setup in setups:
            lines += setup.split("\n")
        return [*lines, *self._faults]


def _tidying(obsolete: tuple[Problem, ...]) -> str:
    files = " ".join(dict.fromkeys(each.file for each in obsolete))
    return f"nothing needs these files any more: git rm {files}"


def _trace_and_routes(found: Found) -> tuple[str, bool]:
    return found.trace, found.routes


def _with_routes(calls: TraceReport, routes: TraceReport) -> TraceReport:
    """Add what the routes of a trace came to, to what its calls came to."""
    if calls.problems and calls.problems == routes.problems:
        return calls
    return replace(
        calls,
        verdict=routes.verdict if calls.passed else calls.verdict,
        problems=(*calls.problems, *routes.problems),
        rendering=calls.rendering or routes.rendering,
    )


def _as_accepted(report: TraceReport) -> tuple[CallReport, ...]:
    """Return the calls of a report without the changes that were accepted."""
    return tuple(replace(call, changes=(), lines=()) for call in report.calls if call.size)
