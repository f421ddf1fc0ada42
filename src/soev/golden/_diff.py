"""How today's requests differ from the accepted ones, in the words of a reviewer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from soev.golden._calls import CallsFile, ShownCall, ShownRequest, ShownTool
from soev.golden._changes import CallReport, Change, ChangeKind
from soev.golden._conversation import ShownMessage, ShownMessages
from soev.golden._hunks import Hunk, hunks, spans

_MARK = re.compile(r"\[\^?\d+(?:, ?\d+)*\]|\(\d+(?:, ?\d+)*\)|<cite>[\d, ]+</cite>")
_HANDLE = re.compile(r" as [rx]\d+\Z")
_OWN_MODEL = "the model's own name"


def diff_requests(accepted: ShownRequest, today: ShownRequest) -> tuple[Change, ...]:
    """Say how one request differs from another. Equal requests cost one comparison of digests.

    Messages are aligned by what they say and by role and call, never by their place alone.

    Args:
        accepted: The request that was accepted.
        today: The request that today's code sends.
    """
    return tuple(_Differ().requests(accepted, today))


class _Differ:
    """Compares requests, and keeps what it found for the requests that go on from them."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], tuple[Change, ...]] = {}

    def requests(self, accepted: ShownRequest, today: ShownRequest) -> Iterator[Change]:
        """Yield how one request differs from another."""
        if accepted is today or accepted.digest == today.digest:
            return
        yield from _settings(accepted, today)
        yield from self.messages(accepted.conversation, today.conversation)
        yield from _tools(accepted.tools, today.tools)

    def messages(self, old: ShownMessages, new: ShownMessages) -> tuple[Change, ...]:
        """Compare conversations; what both end with is set aside, back to what is known."""
        passed = []
        key = (old.digest, new.digest)
        while (
            key not in self._known
            and old.before is not None
            and new.before is not None
            and old.last == new.last
        ):
            passed.append(key)
            old, new = old.before, new.before
            key = (old.digest, new.digest)
        if key not in self._known:
            self._known[key] = tuple(_messages(tuple(old), tuple(new)))
        for each in passed:
            self._known[each] = self._known[key]
        return self._known[key]


def _settings(accepted: ShownRequest, today: ShownRequest) -> Iterator[Change]:
    if accepted.model != today.model:
        yield _fact("model", "", accepted.model or _OWN_MODEL, today.model or _OWN_MODEL)
    old, new = dict(accepted.options), dict(today.options)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield _fact("option", name, old.get(name), new.get(name))
    if accepted.tool_choice != today.tool_choice:
        yield _fact("tool choice", "", accepted.tool_choice, today.tool_choice)
    if accepted.response_schema != today.response_schema:
        old_lines, new_lines = map(_pretty, (accepted.response_schema, today.response_schema))
        for hunk in hunks(old_lines, new_lines):
            yield _of(hunk, "response schema", "", "")


def _fact(kind: ChangeKind, scope: str, old: str | None, new: str | None) -> Change:
    removed, added = (() if value is None else (value,) for value in (old, new))
    return Change(kind, scope, removed, added)


def _pretty(schema: str | None) -> tuple[str, ...]:
    if schema is None:
        return ()
    return tuple(json.dumps(json.loads(schema), indent=2, ensure_ascii=False).split("\n"))


def _of(hunk: Hunk, kind: ChangeKind, scope: str, part: str, start: int = 0) -> Change:
    return Change(
        kind,
        scope,
        hunk.removed,
        hunk.added,
        hunk.before,
        hunk.after,
        part,
        start + hunk.start - len(hunk.before),
    )


def _tools(accepted: Sequence[ShownTool], today: Sequence[ShownTool]) -> Iterator[Change]:
    if accepted == today:
        return
    old, new = _named(accepted), _named(today)
    for name, tool in old.items():
        part = f"tool {name}"
        if name not in new:
            yield Change("tool withdrawn", name, removed=tool.lines, part=part)
            continue
        for hunk in hunks(tool.description, new[name].description):
            yield _of(hunk, "tool description", name, part)
        for hunk in hunks(tool.arguments, new[name].arguments):
            yield _of(hunk, "tool parameters", name, part, len(tool.description))
    for name, tool in new.items():
        if name not in old:
            yield Change("tool added", name, added=tool.lines)
    both = [name for name in old if name in new]
    if both != [name for name in new if name in old]:
        yield _fact("tool order", "", ", ".join(old), ", ".join(new))


def _named(tools: Sequence[ShownTool]) -> dict[str, ShownTool]:
    """Return tools by name; the second one of a name is told apart by its place."""
    named: dict[str, ShownTool] = {}
    for place, tool in enumerate(tools, 1):
        named[f"{tool.name} ({place})" if tool.name in named else tool.name] = tool
    return named


@dataclass(frozen=True, slots=True)
class _Placed:
    """A message and its place in the accepted request, or in today's."""

    place: int
    message: ShownMessage


def _messages(old: Sequence[ShownMessage], new: Sequence[ShownMessage]) -> Iterator[Change]:
    """Pair messages that say the same, then those of one role and call in between."""
    removed: list[_Placed] = []
    inserted: list[_Placed] = []
    edits = []
    for start, stop, begin, end in spans(old, new):
        pairs, gone, come = _paired(old[start:stop], new[begin:end])
        edits += [(start + place, was, now) for place, was, now in pairs]
        removed += [_Placed(start + each.place, each.message) for each in gone]
        inserted += [_Placed(begin + each.place, each.message) for each in come]
    for place, was, now in edits:
        yield from _edited(place, was, now)
    yield from _moved(removed, inserted)


def _paired(
    old: Sequence[ShownMessage], new: Sequence[ShownMessage]
) -> tuple[list[tuple[int, ShownMessage, ShownMessage]], list[_Placed], list[_Placed]]:
    """Align two runs without an equal message by role and call."""
    gone = {place: _Placed(place, message) for place, message in enumerate(old)}
    come = {place: _Placed(place, message) for place, message in enumerate(new)}
    pairs = []
    at = begin = 0
    ways = [
        *spans([_key(m) for m in old], [_key(m) for m in new]),
        (len(old), len(old), len(new), 0),
    ]
    for start, stop, first, end in ways:
        for place, other in zip(range(at, start), range(begin, first), strict=True):
            pairs.append((place, gone.pop(place).message, come.pop(other).message))
        at, begin = stop, end
    return pairs, list(gone.values()), list(come.values())


def _key(message: ShownMessage) -> tuple[object, ...]:
    """What makes two messages the same one with another text: who speaks, and about which call."""
    calls = [found[0] for line in message.lines if (found := _HANDLE.search(line))]
    return message.role, message.call, *(calls if message.role == "assistant" else ())


def _edited(place: int, was: ShownMessage, now: ShownMessage) -> Iterator[Change]:
    for hunk in hunks(was.lines, now.lines):
        renumbered = _renumbered(hunk)
        kind: ChangeKind = "numbering" if renumbered else "message"
        yield _of(hunk, kind, renumbered or was.role, f"message {place}")


def _renumbered(hunk: Hunk) -> str | None:
    """Name what is only numbered anew in a hunk, or return None."""
    for pattern, noun in ((_MARK, "sources"), (_HANDLE, "calls")):
        old, new = (
            [pattern.sub("#", line) for line in side] for side in (hunk.removed, hunk.added)
        )
        if old and old == new:
            return noun
    return None


def _moved(removed: Iterable[_Placed], inserted: Iterable[_Placed]) -> Iterator[Change]:
    """Name messages that stand elsewhere, then those that came or went."""
    waiting = list(inserted)
    for each in removed:
        twin = next((other for other in waiting if _alike(each.message, other.message)), None)
        if twin is None:
            role, lines = each.message.role, each.message.lines
            yield Change("message removed", role, removed=lines, part=f"message {each.place}")
        else:
            waiting.remove(twin)
            yield _twins(each, twin)
    for each in waiting:
        yield Change("message inserted", each.message.role, added=each.message.lines)


def _alike(one: ShownMessage, other: ShownMessage) -> bool:
    return one.role == other.role and _unnumbered(one.lines) == _unnumbered(other.lines)


def _unnumbered(lines: Sequence[str]) -> list[str]:
    return [_HANDLE.sub("", line) for line in lines]


def _twins(was: _Placed, now: _Placed) -> Change:
    """Say how two messages with the same words differ: in a call's handle, or in their place."""
    part = f"message {was.place}"
    if was.message.call != now.message.call:
        calls = [f"tool {each.message.call}" for each in (was, now)]
        return Change("numbering", "calls", (calls[0],), (calls[1],), part=part)
    if was.message.lines != now.message.lines:
        return Change("numbering", "calls", was.message.lines, now.message.lines, part=part)
    places = [f"message {each.place}" for each in (was, now)]
    return Change("message moved", was.message.role, (places[0],), (places[1],), part=part)


def diff_calls(accepted: CallsFile | None, today: CallsFile) -> tuple[CallReport, ...]:
    """Compare all calls of a trace with the accepted ones.

    Args:
        accepted: The accepted file, or None when there is none.
        today: What today's code sends.
    """
    if accepted is None:
        return tuple(_report(call, None, (), None) for call in today.calls)
    old = {call.index: call for call in accepted.calls}
    reports = []
    differ = _Differ()
    before: dict[str, tuple[ShownCall, ShownCall]] = {}
    for call in today.calls:
        was = old.pop(call.index, None)
        changes = _call_changes(differ, was, call, before.get(call.stream))
        reports.append(_report(call, was, changes, accepted))
        if was is not None:
            before[call.stream] = (was, call)
    for was in old.values():
        gone = Change("call removed", was.node)
        line = accepted.line(was.index)
        reports.append(CallReport(was.index, was.turn, was.node, (gone,), (line,), line))
    return tuple(reports)


def _call_changes(
    differ: _Differ,
    was: ShownCall | None,
    call: ShownCall,
    before: tuple[ShownCall, ShownCall] | None,
) -> tuple[Change, ...]:
    if was is None or (was.request is None and call.request is not None):
        return (Change("call added", call.node),)
    if was.request is None or call.request is None:
        return ()
    changes = tuple(differ.requests(was.request, call.request))
    if (was.node, was.stream, was.turn) != (call.node, call.stream, call.turn):
        places = [f"turn {each.turn}, {each.stream}, node {each.node}" for each in (was, call)]
        changes += (_fact("call moved", call.node, *places),)
    if changes and before is not None:
        changes += tuple(_prefix(before, (was, call)))
    return changes


def _prefix(
    before: tuple[ShownCall, ShownCall], calls: tuple[ShownCall, ShownCall]
) -> Iterator[Change]:
    """Say when a provider's cache no longer covers what it covered: the call before's messages."""
    was, now = (_cached(*pair) for pair in zip(before, calls, strict=True))
    if now < was:
        yield _fact(
            "prompt prefix",
            "",
            f"messages 0..{was - 1} shared with the call before",
            f"new from message {now}",
        )


def _cached(before: ShownCall, call: ShownCall) -> int:
    one, other = before.request, call.request
    if one is None or other is None or (one.tools, one.model) != (other.tools, other.model):
        return 0
    return one.conversation.shared(other.conversation)


def _report(
    call: ShownCall,
    was: ShownCall | None,
    changes: tuple[Change, ...],
    accepted: CallsFile | None,
) -> CallReport:
    recorded = {"as recorded": True, "changed since recorded": False}
    before = was.request if was is not None else None
    return CallReport(
        index=call.index,
        turn=call.turn,
        node=call.node,
        changes=changes,
        lines=tuple(_line(accepted, call.index, change) for change in changes),
        line=1 if accepted is None else accepted.line(call.index),
        accepted_size=None if before is None else before.size,
        size=None if call.request is None else call.request.size,
        same_as_recorded=recorded.get(call.comparison),
    )


def _line(accepted: CallsFile | None, call: int, change: Change) -> int:
    if accepted is None:
        return 1
    return accepted.line(call, change.part) + (change.offset if change.part else 0)
