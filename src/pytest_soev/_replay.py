"""The replay of golden traces as a plugin of its own, registered in runs that ask for it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_soev._agents import catalog_place
from pytest_soev._check import SETTINGS, properties, shown_path
from pytest_soev._collect import GoldenFile
from pytest_soev._ending import Ending
from pytest_soev._found import FOUND, Found
from pytest_soev._settings import in_ci, is_worker, settings_of
from soev.golden import TRACE_SUFFIX


class Replay:
    """Collects golden traces, hands on what each found, and ends the run with a summary.

    Args:
        config: The configuration of the run.

    Raises:
        UsageError: A setting does not fit.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._settings = config.stash[SETTINGS] = settings_of(config)
        self._collected = 0
        self._ending = Ending(config, self._settings)
        if not is_worker(config):
            self._point_at_traces()

    def _point_at_traces(self) -> None:
        """Add the golden directories to what is collected.

        Those of the ini file are left out when the command line says what to collect.
        """
        config = self._config
        pointed = config.args_source is config.ArgsSource.ARGS
        if pointed and not config.getoption("soev_golden"):
            return
        known = list(self._places())
        for directory in self._settings.directories:
            if not any(directory.is_relative_to(place) for place in known):
                config.args.append(str(directory))

    def _places(self) -> Iterator[Path]:
        """Yield the files and directories that pytest is pointed at."""
        for arg in self._config.args:
            yield self._config.invocation_params.dir / str(arg).partition("::")[0]

    def pytest_report_header(self) -> str:
        """Say in one line what is replayed, and with which agents."""
        config = self._config
        places = [path for path in self._places() if path.exists()]
        if config.args_source is not config.ArgsSource.ARGS:
            places = list(self._settings.directories)
        count = sum(map(_traces, places))
        where = ", ".join(shown_path(path, self._settings.root) for path in places) or "no place"
        noun = "trace" if count == 1 else "traces"
        parts = [
            f"soev: replay of {count} {noun} in {where}",
            f"catalog {catalog_place(config) or 'of the fixture soev_agents'}",
        ]
        if self._settings.update is not None:
            ci = " IN CI" if in_ci(config) else ""
            parts.append(f"ACCEPTING {self._settings.update.upper()}{ci}")
        elif in_ci(config):
            parts.append("CI, nothing is written")
        return ", ".join(parts)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> GoldenFile | None:
        """Collect the events files of golden traces."""
        if not file_path.name.endswith(TRACE_SUFFIX):
            return None
        self._collected += 1
        return GoldenFile.from_parent(parent, path=file_path)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put what the item found on its report, as JSON."""
        found = item.stash.get(FOUND, None) if call.when == "call" else None
        if found is not None:
            # An item that runs again reports what it found last, once.
            others = [each for each in item.user_properties if not each[0].startswith("soev.")]
            item.user_properties[:] = [*others, *properties(found)]
        report = yield
        if found is not None:
            vars(report)["soev"] = found.to_json()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in what an item found, in this process or in a worker."""
        data: dict[str, Any] | None = vars(report).get("soev")
        if data is not None and not is_worker(self._config):
            self._ending.take(report.nodeid, Found.from_json(data))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take in how many traces a worker collected."""
        counted = getattr(node, "workeroutput", {}).get("soev_collected", 0)
        self._collected = max(self._collected, counted)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Decide the exit code, and write reports. A worker only counts for its controller."""
        if is_worker(self._config):
            vars(self._config)["workeroutput"]["soev_collected"] = self._collected
            return
        session.exitstatus = self._ending.finish(session.exitstatus, self._collected)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the changes of all traces, and the command to run next."""
        self._ending.print(terminalreporter)


def _traces(place: Path) -> int:
    if place.is_file():
        return int(place.name.endswith(TRACE_SUFFIX))
    return sum(1 for _ in place.rglob(f"*{TRACE_SUFFIX}"))
