"""What the replay of a trace found, in the shape that travels to the controller."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from soev.golden import TraceReport

FOUND = pytest.StashKey["Found"]()


@dataclass(frozen=True, slots=True)
class Found:
    """What one golden item found.

    Args:
        trace: The events file, relative to the root.
        report: The report, or None when the run is set up wrongly.
        routes: Whether it is about routing decisions.
        accept: Whether the run accepts it: the controller writes the calls file.
        setup: What is wrong with the set-up, or an empty text.
    """

    trace: str
    report: TraceReport | None = None
    routes: bool = False
    accept: bool = False
    setup: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values. A rendering that nothing needs is left out."""
        report = self.report
        if report is not None and report.passed and not self.accept:
            report = replace(report, rendering="")
        return {
            "trace": self.trace,
            "report": None if report is None else report.to_json(),
            "routes": self.routes,
            "accept": self.accept,
            "setup": self.setup,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Found:
        """Take it back from what `to_json` returned."""
        report = data["report"]
        found = None if report is None else TraceReport.from_json(report)
        return Found(**{**data, "report": found})
