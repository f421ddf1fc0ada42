"""What GitHub Actions is told: annotations on accepted files, and the summary of the job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from soev.golden import Problem, TraceReport, github_annotations

# It annotates each failing test by itself.
OTHER_PLUGIN = "pytest_github_actions_annotate_failures"


def is_on(config: pytest.Config) -> bool:
    """Whether GitHub runs the tests, and is to be told."""
    on = os.environ.get("GITHUB_ACTIONS", "").lower() == "true"
    return on and config.getoption("soev_annotations") == "auto"


def add_summary(text: str) -> None:
    """Append a report to the summary of the job.

    Args:
        text: The report, in Markdown.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)


def annotation_lines(
    config: pytest.Config, reports: Sequence[TraceReport], obsolete: Sequence[Problem]
) -> Iterator[str]:
    """Yield one workflow command for each change, and for each problem.

    Args:
        config: The configuration of the run.
        reports: The reports of all traces.
        obsolete: What nothing needs any more.
    """
    if config.pluginmanager.hasplugin(OTHER_PLUGIN):
        reports = [replace(each, problems=()) for each in reports if each.changed]
    top = _repository(config.rootpath)
    for file, line, title, text in github_annotations(reports, obsolete):
        path = config.rootpath / file
        shown = path.relative_to(top) if path.is_relative_to(top) else path
        place = f"file={_property(shown.as_posix())},line={line},title=soev"
        yield f"::error {place}::{_escaped(title)}%0A{_escaped(text)}"


def _repository(root: Path) -> Path:
    """Return the directory that GitHub names files relative to, also in a sub-directory of it."""
    for directory in (root, *root.parents):
        if (directory / ".git").exists():
            return directory
    return Path(os.environ.get("GITHUB_WORKSPACE") or root)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
