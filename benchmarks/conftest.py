"""Gathers the figures of a run and prints them beside the goals."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

FIGURES = pytest.StashKey["Figures"]()


@dataclass
class Figures:
    """The rows of the closing table.

    Args:
        rows: What was measured, the figure, the goal and the limit, each as a text.
    """

    rows: list[tuple[str, str, str, str]] = field(default_factory=list)

    def ratio(self, what: str, value: float, goal: float, limit: float) -> None:
        """Add a ratio to a floor of the same run."""
        self.rows.append((what, f"{value:.2f} x", f"{goal:g} x", f"{limit:g} x"))

    def add(self, what: str, value: str, goal: str = "", limit: str = "") -> None:
        """Add any other figure."""
        self.rows.append((what, value, goal, limit))


def pytest_configure(config: pytest.Config) -> None:
    """Begin with an empty table."""
    config.stash[FIGURES] = Figures()


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> Figures:
    """The closing table."""
    return pytestconfig.stash[FIGURES]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table."""
    rows = config.stash[FIGURES].rows
    if not rows:
        return
    terminalreporter.section("figures of this run")
    heads = ("what", "measured", "goal", "limit")
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(4)]
    for row in [heads, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        terminalreporter.write_line("  ".join(cells).rstrip())
