"""Plans: what is done to a schedule, written as a short token that runs it again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal, get_args

from pytest_soev.world._loop import Mode

FaultKind = Literal[
    "crash", "freeze",
    "refuse", "busy", "full", "disconnect", "lost", "late", "slow", "corrupt",
]  # fmt: skip
"""What can go wrong. `crash` and `freeze` strike a process at a named point. The others strike a
store call: `refuse` (nothing stored, said so), `busy` and `full` (the same, other reasons),
`disconnect` (nothing stored, the caller cannot know), `lost` (stored, the answer is lost), `late`
(the answer is lost, and the rows land some seconds later), `slow`, `corrupt` (a row reads badly).
"""

ANYWHERE: Final = "any"
AT_POINTS: Final = ("crash", "freeze")
LATENCY: Final = 1.3

_FAULT: Final = re.compile(
    r"(?P<kind>[a-z]+)@(?P<where>[\w.]+)\.(?P<at>\d+)(?P<lasting>\*?)(?:~(?P<seconds>[\d.]+))?"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong in a schedule.

    Args:
        kind: What happens.
        at: At which point or call it happens, counted from 1 over all processes.
        where: Only points of this name, such as `store.append.sent`; or only calls of this store
            operation, such as `append`. Any by default.
        lasting: Whether each later one is struck too.
        seconds: How long a freeze, a slow call or the delay of a late write lasts. A freeze of 0
            lasts until `thaw`.
    """

    kind: FaultKind
    at: int = 1
    where: str = ANYWHERE
    lasting: bool = False
    seconds: float = LATENCY

    def __post_init__(self) -> None:
        """Refuse what no token could say."""
        if self.kind not in get_args(FaultKind) or self.at < 1 or self.seconds < 0:
            raise ValueError(
                f"There is no fault {self.kind!r} at {self.at} for {self.seconds:g} seconds. Use "
                f"one of {', '.join(get_args(FaultKind))}, counted from 1."
            )

    @property
    def at_point(self) -> bool:
        """Whether it strikes a process at a named point, and not a store call."""
        return self.kind in AT_POINTS

    def strikes(self, name: str, count: int, total: int) -> bool:
        """Tell whether it strikes now.

        Args:
            name: The point or the operation.
            count: How often that name came so far, this time included.
            total: How many came in all, this one included.
        """
        if self.where not in {ANYWHERE, name}:
            return False
        number = total if self.where == ANYWHERE else count
        return number >= self.at if self.lasting else number == self.at

    def __str__(self) -> str:
        seconds = "" if self.seconds == LATENCY else f"~{self.seconds:g}"
        return f"{self.kind}@{self.where}.{self.at}{'*' if self.lasting else ''}{seconds}"


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """All that decides how a scenario runs.

    Args:
        answers: The answers at its choices, 0 where they end.
        faults: What goes wrong.
        mode: Which lanes the choices are about.
    """

    answers: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    mode: Mode = "strict"

    @property
    def token(self) -> str:
        """The plan as a short text, for `parse`."""
        runs = ((answer, len(list(same))) for answer, same in groupby(_trimmed(self.answers)))
        answers = ".".join(f"{answer}x{n}" if n > 1 else f"{answer}" for answer, n in runs)
        return "+".join([f"{self.mode}:{answers}", *map(str, self.faults)])

    @classmethod
    def parse(cls, token: str) -> SchedulePlan:
        """Read a token.

        Args:
            token: What a failed schedule printed.

        Raises:
            ValueError: It is no token.
        """
        head, *faults = token.strip().split("+")
        mode, colon, answers = head.partition(":")
        if not colon or mode not in get_args(Mode):
            raise ValueError(f"{token!r} is no token of a schedule. Copy the whole line after it.")
        known: Mode = "strict" if mode == "strict" else "wild"
        return cls(tuple(_answers(answers, token)), tuple(_fault(each) for each in faults), known)

    def __str__(self) -> str:
        return self.token


def _trimmed(answers: Sequence[int]) -> tuple[int, ...]:
    end = len(answers)
    while end and not answers[end - 1]:
        end -= 1
    return tuple(answers[:end])


def _answers(text: str, token: str) -> Iterator[int]:
    for run in filter(None, text.split(".")):
        answer, _, times = run.partition("x")
        if not (answer.isdecimal() and (times.isdecimal() or not times)):
            raise ValueError(f"{token!r} is no token of a schedule: {run!r} is no answer.")
        yield from [int(answer)] * int(times or 1)


def _fault(text: str) -> Fault:
    found = _FAULT.fullmatch(text)
    kind = next((kind for kind in get_args(FaultKind) if found and found["kind"] == kind), None)
    if found is None or kind is None:
        raise ValueError(f"{text!r} is no fault. Write it as `lost@append.3`.")
    seconds = float(found["seconds"] or LATENCY)
    return Fault(kind, int(found["at"]), found["where"], bool(found["lasting"]), seconds)


def shrink(plan: SchedulePlan, fails: Callable[[SchedulePlan], bool]) -> SchedulePlan:
    """Return a smaller plan that still fails: fewer faults, and fewer answers that are not 0.

    Args:
        plan: A plan that fails.
        fails: Runs a plan and tells whether it fails in the same way.
    """
    for fault in plan.faults:
        rest = tuple(each for each in plan.faults if each is not fault)
        smaller = replace(plan, faults=rest)
        if fails(smaller):
            plan = smaller
    plan = replace(plan, answers=_trimmed(plan.answers))
    size = len(plan.answers)
    while size:
        for start in range(0, len(plan.answers), size):
            block = plan.answers[start : start + size]
            if any(block):
                zeroed = (*plan.answers[:start], *[0] * len(block), *plan.answers[start + size :])
                smaller = replace(plan, answers=zeroed)
                if fails(smaller):
                    plan = smaller
        size //= 2
    return replace(plan, answers=_trimmed(plan.answers))
