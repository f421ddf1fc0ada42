"""The report of a long run: what was run, how often, what was found."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_soev.world import Report

SOAK = max(int(os.environ.get("SOEV_SOAK", "1")), 1)
"""How many times as much is run as in the usual test run."""

SOMETIMES = (
    "effect.cancelling", "effect.intended", "effect.intending", "effect.performed",
    "effect.performing", "effect.recorded", "effect.recovered", "effect.recovering",
    "effect.waiting", "lease.acquire.sending", "lease.acquired", "lease.release.sending",
    "lease.released", "lease.renew.sending", "lease.renewed", "model.reply.read",
    "model.request.sending", "model.request.sent", "run.append.sending", "step.calling",
    "store.acquire.sent", "store.append.answered", "store.append.sent", "store.copy.sent",
    "store.delete.sent", "store.read.sending", "store.read_back.sending", "store.release.sent",
    "store.renew.sent", "tasks.opening", "tasks.reporting", "world.answered", "world.asking",
    "world.changed", "world.sending",
    "cancelled in the log", "fresh input refused beside an open intent", "lease held elsewhere",
    "lease lost", "nothing left to cancel", "recovery called", "recovery called twice",
    "response denied", "result after Cancelled", "thread deleted under a run",
    "thread was active", "turn interrupted",
)  # fmt: skip
"""What the schedules must come to at least once, or they did not try what they are for."""


@dataclass
class Ledger:
    """What a test session ran, for its report."""

    rows: list[tuple[str, str, str, int, int, int]] = field(default_factory=list)
    plants: list[tuple[str, str, int | None]] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)

    def ran(self, part: str, how: str, report: Report[Any]) -> None:
        """Note what many schedules of one scenario came to."""
        name, failed = report.scenario.name, len(report.failures)
        self.rows.append((part, name, how, report.runs, report.steps, failed))
        self.reached.update(report.points)

    def counted(self, part: str, name: str, how: str, runs: int) -> None:
        """Note runs that were none of schedules."""
        self.rows.append((part, name, how, runs, 0, 0))

    def saw(self, names: Iterable[str]) -> None:
        """Note what came up."""
        self.reached.update(names)

    def planted(self, bug: str, killer: str, schedules: int | None) -> None:
        """Note after how many schedules a planted bug was caught, None when it was not."""
        self.plants.append((bug, killer, schedules))

    def missing(self) -> list[str]:
        """Return what was never reached."""
        return [name for name in SOMETIMES if not self.reached[name]]

    def text(self) -> str:
        """Return the report as Markdown."""
        return "\n".join([*self._ran(), *self._plants(), *self._reached()]) + "\n"

    def _ran(self) -> list[str]:
        runs, failed = sum(row[3] for row in self.rows), sum(row[5] for row in self.rows)
        return [
            "# Reliability report",
            "",
            f"Scale {SOAK}. {runs:,} runs, {failed:,} of them failed.",
            "",
            "| part | scenario | how | runs | steps | failed |",
            "| --- | --- | --- | ---: | ---: | ---: |",
            *(
                f"| {part} | {name} | {how} | {runs:,} | {steps:,} | {failed:,} |"
                for part, name, how, runs, steps, failed in sorted(self.rows)
            ),
            "",
        ]

    def _plants(self) -> list[str]:
        caught = sum(schedules is not None for _, _, schedules in self.plants)
        return [
            "## Planted bugs",
            "",
            f"{caught} of {len(self.plants)} were caught.",
            "",
            "| planted bug | caught by | at schedule |",
            "| --- | --- | ---: |",
            *(
                f"| {bug} | {killer} | {schedules or 'never'} |"
                for bug, killer, schedules in sorted(self.plants)
            ),
            "",
        ]

    def _reached(self) -> list[str]:
        there = len(SOMETIMES) - len(self.missing())
        return [
            "## What was reached",
            "",
            f"{there} of {len(SOMETIMES)}. Never: {', '.join(self.missing()) or 'none'}.",
            "",
            "| point | times |",
            "| --- | ---: |",
            *(f"| {name} | {self.reached[name]:,} |" for name in SOMETIMES),
        ]


LEDGER = Ledger()


def write(path: str) -> None:
    """Write the report of this session.

    Args:
        path: The file.
    """
    Path(path).write_text(LEDGER.text(), encoding="utf-8")
