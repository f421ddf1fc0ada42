"""Where the streams of a growing turn stand, from their events alone: no graph is asked here."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Literal

from soev.domain import (
    ROOT_STREAM,
    BudgetExceeded,
    Cancelled,
    EffectIntent,
    EffectResult,
    Ended,
    Event,
    Failure,
    Input,
    ModelOutput,
    NodeName,
    Request,
    TraceBuilder,
    parse_stream,
)
from soev.runtime._actions import Action, Done
from soev.runtime._graph import RUNTIME_EVENTS, Graph, Spent
from soev.runtime._turn import ThreadState, is_final, opens_turn, state_of

Role = Literal["stop", "input", "intent", "result", "trip", "request", "output", "other", "mark"]

_STANDING = (Request, Failure)
_SPENT: frozenset[Role] = frozenset({"output", "trip", "input"})
PLAIN: frozenset[Role] = frozenset({"output", "other"})


@cache
def role(cls: type[Event]) -> Role:
    """Return what events of a class do to their stream. Once per class: it is asked per event."""
    roles: tuple[tuple[type[Event] | tuple[type[Event], ...], Role], ...] = (
        ((Failure, Cancelled), "stop"),
        (Input, "input"),
        (EffectIntent, "intent"),
        (EffectResult, "result"),
        (BudgetExceeded, "trip"),
        (Request, "request"),
        (ModelOutput, "output"),
        (RUNTIME_EVENTS, "mark"),
    )
    return next((found for classes, found in roles if issubclass(cls, classes)), "other")


class Children:
    """The streams that a stream waits for, and how far they are.

    Args:
        node: The node that fanned out, or that delegates.
        delegates: Whether they are tasks.
        missing: Whether some of the tasks must still be opened.
    """

    __slots__ = ("cursors", "delegates", "joins", "missing", "node", "open")

    def __init__(self, node: NodeName, *, delegates: bool = False, missing: bool = False) -> None:
        self.node, self.delegates, self.missing = node, delegates, missing
        self.cursors: dict[str, Cursor] = {}
        self.joins: Counter[NodeName] = Counter()
        self.open = 0

    def count(self, end: Done | None, by: int = 1) -> None:
        """Take the outcome of one of them into account, or, with -1, take it back."""
        if end is None:
            self.open += by
        elif end.join is not None:
            self.joins[end.join] += by


class Cursor:
    """One stream of the current turn: what its events say, and what was decided about it."""

    __slots__ = (
        "action",
        "at",
        "branch",
        "calling",
        "children",
        "fans",
        "graph",
        "head",
        "intended",
        "intent",
        "kids",
        "kind",
        "last",
        "made",
        "name",
        "opened",
        "order",
        "outcome",
        "parent",
        "position",
        "queued",
        "requests",
        "rescued",
        "seq",
        "spent",
        "stale",
        "standing",
        "touched",
    )  # fmt: skip

    def __init__(self, name: str, parent: Cursor | None = None, seq: int = 0) -> None:
        parts = parse_stream(name)
        above = parent.order if parent else ()
        self.name, self.parent, self.seq = name, parent, seq
        self.order: tuple[tuple[int, int, str], ...] = (
            (*above, (parts.seq, parts.index, parts.node)) if parts else ()
        )
        self.position = self.opened = self.at = self.intended = 0
        self.last: Event | None = None
        self.kind: Role | None = None
        self.head: Input | None = None
        self.calling = False
        self.intent: EffectIntent | None = None
        self.requests: dict[int, tuple[int, NodeName | None]] = {}
        self.spent = Spent()
        self.kids: dict[int, dict[str, Cursor]] = {}
        self.standing: Request | Failure | None = None
        self.graph: Graph | None = None
        self.made: Graph | Exception | None = None
        self.branch, self.fans = False, 0
        self.stale, self.queued = True, False
        self.touched: list[Cursor] = []
        self.outcome: Done | None = None
        self.action: Action | None = None
        self.children: Children | None = None
        self.rescued: list[Cursor] = []

    def take(self, event: Event, position: int) -> list[Cursor]:
        """Take the stream's next event, and return the streams that it left behind."""
        kind = role(type(event))
        if self.last is None and isinstance(event, Input):
            self.head = event
        self.seq = event.seq or self.seq + 1
        self._count(event, kind)
        self.last, self.kind, self.position = event, kind, position
        self.standing = event if isinstance(event, _STANDING) else None
        left: list[Cursor] = []
        if kind != "stop":
            self.at = self.seq
            if self.kids:
                for seq in [seq for seq in self.kids if seq < self.at]:
                    left += self.kids.pop(seq).values()
        if kind in PLAIN:
            return left
        if kind == "request":
            self.requests[self.seq] = (position, event.origin)
        elif isinstance(event, EffectIntent):
            self.intent, self.intended = event, position
        elif isinstance(event, EffectResult) and self.intent is not None:
            self.intent = None if event.intent == self.intent.id else self.intent
        return left

    def _count(self, event: Event, kind: Role) -> None:
        """Count for the budget, and note whether the last append holds an output with calls."""
        if kind in _SPENT:
            self.spent = self.spent.after(event)
        last = self.last
        if last is None or last.left == 0 or last.origin != event.origin:
            self.calling = False
        if kind == "output":
            self.calling = self.calling or bool(getattr(event, "calls", ()))
        elif kind not in {"other", "request"}:
            self.calling = False

    def decides(self) -> tuple[int, NodeName | None]:
        """Return the node whose edge is next, and the position of the event that names it."""
        last = self.last
        if isinstance(last, Input):
            return self.requests.get(last.answers or 0, (self.position, None))
        return self.position, last.origin if last else None

    def below(self) -> dict[str, Cursor]:
        """Return the streams that hang on the stream's last event."""
        return self.kids.get(self.at, {})

    def hanging(self, *, tasks: bool) -> dict[str, int]:
        """Return the tasks or branches on the stream's last event, and where they began."""
        if not self.kids:
            return {}
        found = [
            kid for kid in self.below().values() if kid.opened and (kid.head is not None) is tasks
        ]
        return {kid.name: kid.opened for kid in sorted(found, key=lambda kid: kid.order)}

    def touch(self) -> None:
        """Ask for another look at the stream, and at those above it on the way."""
        kid = self
        while kid.parent is not None and kid.name in kid.parent.below():
            if not kid.queued:
                kid.queued = True
                kid.parent.touched.append(kid)
            kid = kid.parent


class Log:
    """The log of a thread, its views, and a cursor for each stream of its current turn."""

    def __init__(self) -> None:
        self.builder = TraceBuilder()
        self.position = 0
        self.cursors: dict[str, Cursor] = {}
        self.main = self.cursor(ROOT_STREAM)
        self.standing: dict[str, Cursor] = {}
        self.intents: dict[str, Cursor] = {}
        self.begun = self.ended = False
        self.cancelled = 0

    def feed(self, event: Event) -> Cursor:
        """Take the next event, and return the cursor of its stream."""
        self.builder.feed(event)
        self.position += 1
        if event.stream == ROOT_STREAM and opens_turn(event):
            self._begin()
        cursor = self.cursors.get(event.stream) or self.cursor(event.stream)
        for left in cursor.take(event, self.position):
            self._drop(left)
        self._note(cursor, event)
        return cursor

    def cursor(self, name: str) -> Cursor:
        """Return the cursor of a stream, a new one when it has no event yet."""
        found = self.cursors.get(name)
        if found is None:
            parts = parse_stream(name)
            parent = self.cursor(parts.parent) if parts else None
            found = self.cursors[name] = Cursor(name, parent)
            if parts and parent is not None:
                parent.kids.setdefault(parts.seq, {})[name] = found
        return found

    def state(self) -> ThreadState:
        """Return the state of the turn while nobody holds the lease."""
        failed = waits = failed_for_now = False
        for cursor in self.standing.values():
            failed = failed or is_final(cursor.standing)
            waits = waits or isinstance(cursor.standing, Request)
            failed_for_now = failed_for_now or isinstance(cursor.standing, Failure)
        return state_of(
            cancelled=bool(self.cancelled),
            finished=self.ended or not self.begun,
            held=False,
            failed=failed,
            waits=waits,
            failed_for_now=failed_for_now,
        )

    def is_over(self, since: int) -> bool:
        """Whether the turn was over when the run began: only recoveries are due in it."""
        if not self.standing:
            return bool(self.cancelled)
        return bool(self.cancelled) or any(
            is_final(cursor.standing) and cursor.position <= since
            for cursor in self.standing.values()
        )

    def _begin(self) -> None:
        """Begin a turn. What the streams of the last one did is settled."""
        seq = self.main.seq
        self.cursors.clear()
        self.main = self.cursor(ROOT_STREAM)
        self.main.seq = seq
        self.standing.clear()
        self.intents.clear()
        self.begun, self.ended, self.cancelled = True, False, 0

    def _drop(self, cursor: Cursor) -> None:
        """Forget a stream that its parent left behind, and the streams below it."""
        self.cursors.pop(cursor.name, None)
        for kids in cursor.kids.values():
            for kid in kids.values():
                self._drop(kid)

    def _note(self, cursor: Cursor, event: Event) -> None:
        """Keep what is asked about the turn as a whole."""
        above: Cursor | None = cursor
        while above is not None:
            above.opened = above.opened or self.position
            self.standing.pop(above.name, None)
            above = above.parent
        if cursor.standing is not None:
            self.standing[cursor.name] = cursor
        if cursor.intent is not None:
            self.intents[cursor.name] = cursor
        elif isinstance(event, EffectResult):
            self.intents.pop(cursor.name, None)
        if isinstance(event, Ended):
            self.ended = True
        elif isinstance(event, Cancelled):
            self.cancelled = self.position
