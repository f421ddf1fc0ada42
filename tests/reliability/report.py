"""The report of a long run: what was run, how often, what was found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

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


MOST_LISTED = 20


class Row(NamedTuple):
    """What was run of one scenario in one way.

    Args:
        part: The part of the test plan.
        scenario: The scenario.
        how: How it was run.
        runs: How often.
        steps: How many handles ran in all, 0 where nothing counts them.
        failed: How many runs failed.
        seconds: How long it took, of one worker.
    """

    part: str
    scenario: str
    how: str
    runs: int
    steps: int
    failed: int
    seconds: float

    @property
    def what(self) -> tuple[str, str, str]:
        """What rows of one kind have in common."""
        return self.part, self.scenario, self.how

    def plus(self, other: Row) -> Row:
        """Return both as one row."""
        return self._replace(
            runs=self.runs + other.runs,
            steps=self.steps + other.steps,
            failed=self.failed + other.failed,
            seconds=self.seconds + other.seconds,
        )


@dataclass
class Ledger:
    """What a test session ran, for its report. One that ran in several processes is added up."""

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    plants: list[tuple[str, str, int | None]] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    tokens: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    begun: float = field(default_factory=perf_counter)

    def begin(self) -> None:
        """Count the time from now on for what is noted next."""
        self.begun = perf_counter()

    def ran(self, part: str, how: str, report: Report[Any]) -> None:
        """Note what many schedules of one scenario came to."""
        name = report.scenario.name
        self._add(part, name, how, report.runs, report.steps, len(report.failures))
        self.reached.update(report.points)
        self.tokens += [f"{name}: {plan.token}: {error}" for plan, error in report.failures]

    def counted(self, part: str, name: str, how: str, runs: int) -> None:
        """Note runs that were none of schedules."""
        self._add(part, name, how, runs, 0, 0)

    def _add(self, part: str, name: str, how: str, runs: int, steps: int, failed: int) -> None:
        now = perf_counter()
        self._take(Row(part, name, how, runs, steps, failed, now - self.begun))
        self.begun = now

    def _take(self, row: Row) -> None:
        known = self.rows.get(row.what)
        self.rows[row.what] = row if known is None else known.plus(row)

    def saw(self, names: Iterable[str]) -> None:
        """Note what came up."""
        self.reached.update(names)

    def planted(self, bug: str, killer: str, schedules: int | None) -> None:
        """Note after how many schedules a planted bug was caught, None when it was not."""
        self.plants.append((bug, killer, schedules))

    def broke(self, test: str) -> None:
        """Note a test that failed."""
        if test not in self.broken:
            self.broken.append(test)

    def missing(self) -> list[str]:
        """Return what was never reached."""
        return [name for name in SOMETIMES if not self.reached[name]]

    def data(self) -> dict[str, Any]:
        """Return all of it as plain values, for another process."""
        return {
            "rows": [tuple(row) for row in self.rows.values()],
            "plants": self.plants,
            "reached": dict(self.reached),
            "tokens": self.tokens,
        }

    def add(self, data: Mapping[str, Any]) -> None:
        """Add what another process noted."""
        for row in data["rows"]:
            self._take(Row(*row))
        self.plants += [(bug, killer, schedules) for bug, killer, schedules in data["plants"]]
        self.reached.update(data["reached"])
        self.tokens += data["tokens"]

    def text(self) -> str:
        """Return the report as Markdown."""
        return "\n".join([*self._parts(), *self._plants(), *self._ran(), *self._reached()]) + "\n"

    def _parts(self) -> Iterator[str]:
        parts: dict[tuple[str, str], Row] = {}
        for row in self.rows.values():
            known = parts.get((row.part, row.how))
            parts[row.part, row.how] = row if known is None else known.plus(row)
        rows = self.rows.values()
        runs, failed = sum(row.runs for row in rows), sum(row.failed for row in rows)
        yield from ("# Reliability report", "")
        yield f"Scale {SOAK}. {runs:,} runs, {failed:,} of them failed."
        yield f"{len(self.broken):,} tests failed."
        if self.lost:
            yield from ("", f"What {', '.join(self.lost)} ran is missing below: a worker died.")
        yield from ("", "| part | how | scenarios | runs | failed | minutes of one core |")
        yield "| --- | --- | ---: | ---: | ---: | ---: |"
        for (part, how), row in sorted(parts.items()):
            scenarios = len(
                {each.scenario for each in rows if (each.part, each.how) == (part, how)}
            )
            yield (
                f"| {part} | {how} | {scenarios} | {row.runs:,} | {row.failed:,} "
                f"| {row.seconds / 60:.1f} |"
            )
        yield ""
        yield from _listed("Failed schedules", self.tokens)
        yield from _listed("Failed tests", self.broken)

    def _ran(self) -> list[str]:
        return [
            "## Scenarios",
            "",
            "| part | scenario | how | runs | steps | failed |",
            "| --- | --- | --- | ---: | ---: | ---: |",
            *(
                f"| {row.part} | {row.scenario} | {row.how} | {row.runs:,} | {row.steps:,} "
                f"| {row.failed:,} |"
                for row in sorted(self.rows.values())
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


def _listed(title: str, lines: list[str]) -> Iterator[str]:
    if not lines:
        return
    yield from (f"## {title}", "")
    yield from (f"* `{line}`" for line in lines[:MOST_LISTED])
    if len(lines) > MOST_LISTED:
        yield f"* and {len(lines) - MOST_LISTED:,} more"
    yield ""


LEDGER = Ledger()


def write(path: str) -> None:
    """Write the report of this session.

    Args:
        path: The file.
    """
    Path(path).write_text(LEDGER.text(), encoding="utf-8")
