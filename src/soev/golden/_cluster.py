"""The same change in many calls and traces, as one change."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from soev.golden._changes import Change, Cluster, TraceReport

_VALUE = re.compile(
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{6,}\b|\d+(?:[.,:]\d+)*"
)

# Their values are all different, and say nothing that a reviewer would decide about one by one.
_ALIKE = ("numbering", "prompt prefix", "message moved")


def cluster(reports: Iterable[TraceReport]) -> tuple[Cluster, ...]:
    """Group the changes of all traces: what a reviewer decides about once.

    Two changes are one when they are of one kind, about one thing, and remove and add the same
    lines, or lines that differ in numbers and ids alone.

    Args:
        reports: The reports, in the order in which to name the changes.
    """
    groups: dict[tuple[object, ...], _Group] = {}
    for report in reports:
        for call in report.calls:
            for change, line in zip(call.changes, call.lines, strict=True):
                group = groups.setdefault(_masked(change), _Group(change, report.file, line))
                group.add(report, call.index, change)
    return tuple(
        group.cluster(_letter(place))
        for place, group in enumerate(sorted(groups.values(), key=_weight))
    )


def exact_key(change: Change) -> tuple[object, ...]:
    """Return what two equal changes have in common."""
    return change.kind, change.scope, change.removed, change.added


def _masked(change: Change) -> tuple[object, ...]:
    if change.kind in _ALIKE:
        return change.kind, change.scope
    sides = (change.removed, change.added)
    return change.kind, change.scope, *(_blanked(side) for side in sides)


def _blanked(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_VALUE.sub("#", line) for line in lines)


@dataclass
class _Group:
    """A cluster that grows."""

    change: Change
    file: str
    line: int
    agents: dict[str, None] = field(default_factory=dict)
    places: dict[tuple[str, int], None] = field(default_factory=dict)
    keys: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, report: TraceReport, call: int, change: Change) -> None:
        self.agents[report.agent] = None
        self.places[report.file, call] = None
        self.keys.add(exact_key(change))

    def cluster(self, letter: str) -> Cluster:
        return Cluster(
            letter=letter,
            change=self.change,
            agents=tuple(self.agents),
            places=tuple(self.places),
            file=self.file,
            line=self.line,
            variants=len(self.keys),
        )


def _weight(group: _Group) -> bool:
    """Put consequences after causes: a moved prefix follows from another change."""
    return group.change.kind == "prompt prefix"


def _letter(place: int) -> str:
    letters = ""
    place += 1
    while place:
        place, digit = divmod(place - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters
