"""Writes calls files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from soev.golden._calls import CallsFile, Comparison, ShownCall, ShownRequest, ShownTool
from soev.golden._conversation import ShownMessage, ShownMessages
from soev.golden._escape import BLANK, escape, quoted
from soev.golden._numbers import counted

HEAD: Final = (
    "<!-- soev calls/1: accepted requests. Change with `pytest --soev-replay --soev-update`, "
    "not by hand. -->"
)
DEFAULTS: Final = ShownRequest(())
INDENT: Final = "    "


def render_calls(file: CallsFile) -> str:
    """Write a calls file as text. `parse_calls` reads the same value back.

    A call shows only what is not in the earlier call that it shares most messages with.

    Args:
        file: The calls.
    """
    return "".join(f"{line}\n" for line in _lines(file))


def _lines(file: CallsFile) -> Iterator[str]:
    turns, calls = counted(file.turns, "turn"), counted(len(file.calls), "call")
    yield HEAD
    yield f"# {escape(file.name)}"
    usual = _usual(file.calls)
    yield ", ".join([f"agent {quoted(file.agent)}", turns, calls, *usual])
    yield from map(str, file.routes)
    toolsets = _toolsets(file.calls)
    for tools, name in toolsets.items():
        yield ""
        yield f"## tools {name}"
        for tool in tools:
            yield f"### {quoted(tool.name)}"
            yield from body(tool.lines)
    prefixes = Prefixes()
    for call in file.calls:
        yield ""
        own = [call.comparison] if call.comparison not in usual else []
        yield ", ".join([f"## call {call.index}: {_heading(call, toolsets)}", *own])
        if call.request is not None:
            yield from _request(call.index, call.request, prefixes)


def _usual(calls: Sequence[ShownCall]) -> list[Comparison]:
    """Return the comparison that most calls have, for the head of the file.

    A call repeats it only where its own is another, so that accepting one changed sentence
    changes the head, and not the heading of every call.
    """
    return [
        comparison for comparison, _ in Counter(each.comparison for each in calls).most_common(1)
    ]


def _toolsets(calls: Sequence[ShownCall]) -> dict[tuple[ShownTool, ...], str]:
    named: dict[tuple[ShownTool, ...], str] = {}
    for call in calls:
        if call.request is not None and call.request.tools:
            named.setdefault(call.request.tools, f"T{len(named) + 1}")
    return named


def _heading(call: ShownCall, toolsets: dict[tuple[ShownTool, ...], str]) -> str:
    items = [f"turn {call.turn}", f"node {quoted(call.node)}"]
    if call.stream != "main":
        items.append(f"stream {quoted(call.stream)}")
    if call.request is None:
        items.append("not replayable")
    elif call.request.model is not None:
        items.append(quoted(call.request.model))
    if call.request is not None and call.request.tools:
        items.append(f"tools {toolsets[call.request.tools]}")
    return ", ".join([*items, f"after event {call.position}"])


def _request(index: int, request: ShownRequest, prefixes: Prefixes) -> Iterator[str]:
    base, shared = prefixes.add(index, request)
    if base is not None:
        yield f"= 0..{shared - 1} of call {base[0]}"
    yield from _settings(request, DEFAULTS if base is None else base[1])
    for place, message in enumerate(_after(request.conversation, shared), shared):
        call = "" if message.call is None else f" {quoted(message.call)}"
        yield f"### {place} {message.role}{call}"
        yield from body(message.lines)


def _after(messages: ShownMessages, count: int) -> list[ShownMessage]:
    """Return the messages after the first ones, without a walk through those."""
    found = []
    while len(messages) > count and messages.last is not None and messages.before is not None:
        found.append(messages.last)
        messages = messages.before
    return found[::-1]


def _settings(request: ShownRequest, base: ShownRequest) -> Iterator[str]:
    if request.options != base.options:
        items = ",".join(f"{_key(name)}:{value}" for name, value in request.options)
        yield f"options: {{{items}}}"
    if request.tool_choice != base.tool_choice:
        yield f"tool_choice: {quoted(request.tool_choice)}"
    if request.response_schema != base.response_schema:
        yield f"response_schema: {request.response_schema or 'none'}"


def _key(name: str) -> str:
    text = quoted(name)
    return text if text.startswith('"') else f'"{text}"'


def body(lines: Sequence[str]) -> Iterator[str]:
    """Indent the lines of a section.

    An empty line is written empty between two others. Where a formatter could drop or join it, a
    mark stands for it.
    """
    last = len(lines) - 1
    for place, line in enumerate(lines):
        if line:
            yield INDENT + line
        elif 0 < place < last and lines[place - 1]:
            yield ""
        else:
            yield INDENT + BLANK


class Prefixes:
    """Finds, for each call, the earlier call that it shares the longest beginning with."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[int, ShownRequest]] = {}

    def add(self, index: int, request: ShownRequest) -> tuple[tuple[int, ShownRequest] | None, int]:
        """Take the next call.

        Returns:
            The first call that has the same beginning, its index and request, and how many
            messages are shared; None and 0 when no message is.
        """
        beginning: ShownMessages | None = request.conversation
        while beginning is not None and beginning.digest not in self._seen:
            if len(beginning):
                self._seen[beginning.digest] = index, request
            beginning = beginning.before
        if beginning is None:
            return None, 0
        return self._seen[beginning.digest], len(beginning)
