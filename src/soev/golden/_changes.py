"""What a check finds, as values that JSON can carry from a worker to its controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

ChangeKind = Literal[
    "message",
    "message inserted",
    "message removed",
    "message moved",
    "numbering",
    "tool description",
    "tool parameters",
    "tool added",
    "tool withdrawn",
    "tool order",
    "model",
    "option",
    "tool choice",
    "response schema",
    "prompt prefix",
    "call added",
    "call removed",
    "call moved",
]
Verdict = Literal["same", "drifted", "changed", "reverted", "missing", "broken"]
# These can be accepted: they tell how today differs, and nothing is wrong with the trace.
ACCEPTABLE = ("growth", "route")
ProblemKind = Literal[
    "undecodable",
    "unreadable",
    "unbuildable",
    "unreplayable",
    "builder raised",
    "impure",
    "obsolete",
    "orphan",
    "damaged",
    "growth",
    "route",
]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between an accepted request and today's: one hunk, or one fact.

    Args:
        kind: What kind of thing changed.
        scope: What it is about: a role, a tool's name, an option's name.
        removed: The lines, or the value, that the accepted request has.
        added: The lines, or the value, that today's request has.
        before: The line of context before them, if any.
        after: The line of context after them, if any.
        part: The part of the accepted request that it is in, such as `message 0`.
        offset: Where in that part the hunk, its context included, begins: a 0-based line.
    """

    kind: ChangeKind
    scope: str
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    part: str = ""
    offset: int = 0

    @property
    def title(self) -> str:
        """What changed, in words: `system message`, `tool search: description`."""
        return _TITLES[self.kind].format(self.scope)


_TITLES: dict[ChangeKind, str] = {
    "message": "{0} message",
    "message inserted": "{0} message inserted",
    "message removed": "{0} message removed",
    "message moved": "{0} message moved",
    "numbering": "numbering of {0}",
    "tool description": "tool {0}: description",
    "tool parameters": "tool {0}: parameters",
    "tool added": "tool {0}: added",
    "tool withdrawn": "tool {0}: withdrawn",
    "tool order": "order of the tools",
    "model": "model",
    "option": "option {0}",
    "tool choice": "tool choice",
    "response schema": "response schema",
    "prompt prefix": "prompt prefix",
    "call added": "call of node {0} added",
    "call removed": "call of node {0} removed",
    "call moved": "call of node {0} moved",
}


@dataclass(frozen=True, slots=True)
class CallReport:
    """What the check found about one model call.

    Args:
        index: Its 1-based place in the thread.
        turn: The 1-based turn.
        node: The node that called the model.
        changes: How today's request differs from the accepted one.
        lines: The line of the accepted file for each change.
        line: The line of the call in the accepted file, 1 when it has none.
        accepted_size: Characters of the accepted request, None without one.
        size: Characters of today's request, None without one.
        same_as_recorded: Whether today's request is what was really sent; None: not comparable.
    """

    index: int
    turn: int
    node: str
    changes: tuple[Change, ...] = ()
    lines: tuple[int, ...] = ()
    line: int = 1
    accepted_size: int | None = None
    size: int | None = None
    same_as_recorded: bool | None = None

    @property
    def growth(self) -> float | None:
        """How much larger today's request is than the accepted one, as a fraction."""
        if not self.accepted_size or self.size is None:
            return None
        return self.size / self.accepted_size - 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a golden trace cannot be held to today's code, or fails for another reason than a change.

    Args:
        kind: The failure class.
        text: What is wrong and what to do, ready to print. It may have several lines.
        file: The file to look at, as the trace's path was given.
        line: The 1-based line in it.
        call: The model call that it is about, or None.
    """

    kind: ProblemKind
    text: str
    file: str = ""
    line: int = 1
    call: int | None = None


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What the check of one golden trace found.

    Args:
        name: The golden trace.
        agent: The agent that it names.
        file: The calls file, named as the trace's file was.
        verdict: `same` and `drifted` pass. `changed`, `reverted` (changed back to what was really
            sent) and `missing` can be accepted. `broken` has problems.
        calls: One report for each model call of today, and each accepted one that is gone.
        problems: What fails for another reason than a change.
        warnings: Problems that the project asked only to be warned of.
        rendering: Today's calls file, empty when it cannot be made.
        accepted: Whether there is an accepted file.
        drifted: Whether any request is no longer what was really sent.
    """

    name: str
    agent: str
    file: str
    verdict: Verdict
    calls: tuple[CallReport, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    rendering: str = ""
    accepted: bool = False
    drifted: bool = False

    @property
    def passed(self) -> bool:
        """Whether the trace is as accepted."""
        return self.verdict in ("same", "drifted")

    @property
    def acceptable(self) -> bool:
        """Whether writing `rendering` to the calls file would make the next check pass."""
        return bool(self.rendering) and self.verdict != "broken"

    @property
    def changed(self) -> tuple[CallReport, ...]:
        """The calls whose request differs from the accepted one."""
        return tuple(call for call in self.calls if call.changes)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        data: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return data

    @staticmethod
    def from_json(data: object) -> TraceReport:
        """Take a report back from what `to_json` returned."""
        return _ADAPTER.validate_python(data)


_ADAPTER = TypeAdapter(TraceReport)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One change, wherever it occurs: what a reviewer decides about.

    Args:
        letter: Its name in a report: A, B, ..., Z, AA, ...
        change: The change, as it first occurs.
        agents: The agents that it concerns.
        places: The calls that it occurs in: the calls file and the index of the call.
        file: The accepted file where it first occurs.
        line: The line there.
        variants: How many different values the same edit has.
    """

    letter: str
    change: Change
    agents: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    file: str
    line: int
    variants: int = 1

    @property
    def traces(self) -> tuple[str, ...]:
        """The calls files of the traces that it occurs in, each once."""
        return tuple(dict.fromkeys(file for file, _ in self.places))
