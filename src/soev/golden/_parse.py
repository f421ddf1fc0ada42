"""Reads calls files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import NoReturn

from soev.golden._calls import (
    CallsFile,
    RouteException,
    ShownCall,
    ShownRequest,
    ShownTool,
)
from soev.golden._conversation import ShownMessage, ShownMessages
from soev.golden._errors import BadLineError, TruncatedFileError, UnknownFormatError
from soev.golden._escape import BLANK, NAME, json_text, unescape, unquoted
from soev.golden._files import refuse_conflicts
from soev.golden._render import DEFAULTS, INDENT
from soev.golden._shown import ARGUMENT

_ADVICE = (
    "Restore the file from version control, or write it again with "
    "`pytest --soev-replay --soev-update`."
)
_FORMAT = re.compile(r"<!-- soev calls/(\w+): ")
_COMPARISON = r"(?:, (?P<comparison>as recorded|changed since recorded|not comparable))?\Z"
_AGENT = re.compile(rf"agent ({NAME}), (\d+) turns?, (\d+) calls?{_COMPARISON}")
_ROUTE = re.compile(rf"route: ({NAME}) -> ({NAME}) \(recorded: ({NAME})\)\Z")
_TOOLS = re.compile(r"## tools (T\d+)\Z")
_CALL = re.compile(
    rf"## call (?P<index>\d+): turn (?P<turn>\d+), node (?P<node>{NAME})"
    rf"(?:, stream (?P<stream>{NAME}))?(?:, (?P<lost>not replayable))?(?:, (?P<model>{NAME}))?"
    rf"(?:, tools (?P<tools>T\d+))?, after event (?P<position>\d+){_COMPARISON}"
)
_SHARED = re.compile(r"= 0\.\.(\d+) of call (\d+)\Z")
_SETTING = re.compile(r"(options|tool_choice|response_schema): (.+)\Z")
_MESSAGE = re.compile(rf"### (\d+) (system|user|assistant|tool)(?: ({NAME}))?\Z")
_TOOL = re.compile(rf"### ({NAME})\Z")


def parse_calls(text: str, file: str = "calls.md") -> CallsFile:
    """Read a calls file. Lines may end in LF or CRLF, and a formatter may have been at it.

    Args:
        text: The file's text.
        file: The file's name, for errors.

    Raises:
        GoldenFileError: The text is no calls file of this version, or is damaged.
    """
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    refuse_conflicts(file, lines)
    found = _FORMAT.match(lines[0])
    if found is None or found[1] != "1":
        problem = "the first line does not say `soev calls/1`"
        if found is not None:
            problem = f"the file has the format 'calls/{found[1]}', this version reads 'calls/1'"
        raise UnknownFormatError(file, 1, problem, _ADVICE)
    return _Reader(file, lines).calls_file()


class _Reader:
    """Walks the lines of a calls file, section by section."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file, self.lines = file, lines
        self.at = 1
        self.places: dict[tuple[int, str], int] = {}
        self.toolsets: dict[str, tuple[tuple[ShownTool, ...], dict[str, int]]] = {}
        self.requests: dict[int, ShownRequest] = {}
        self.bases: dict[int, tuple[int, int]] = {}
        self.root = ShownMessages()

    def calls_file(self) -> CallsFile:
        title = self.take()
        if not title.startswith("# "):
            self.refuse("a heading `# NAME` belongs here")
        name = self.checked(unescape, title[2:])
        agent = self.match(_AGENT, "`agent NAME, N turns, N calls`")
        routes = self.routes()
        while _TOOLS.match(self.peek()):
            self.tools()
        calls = []
        while self.peek():
            calls.append(self.call(agent["comparison"]))
        if len(calls) != int(agent[3]):
            problem = f"line 3 says {agent[3]} calls, the file has {len(calls)}"
            raise TruncatedFileError(self.file, len(self.lines), problem, _ADVICE)
        return CallsFile(
            name,
            unquoted(agent[1]),
            int(agent[2]),
            tuple(calls),
            routes,
            self.places,
            self.bases,
        )

    def peek(self) -> str:
        """Return the next line that is not blank, or nothing at the end."""
        while self.at < len(self.lines) and not self.lines[self.at].strip():
            self.at += 1
        return self.lines[self.at] if self.at < len(self.lines) else ""

    def take(self) -> str:
        line = self.peek()
        self.at += 1
        return line

    def refuse(self, problem: str) -> NoReturn:
        raise BadLineError(self.file, min(self.at, len(self.lines)), problem, _ADVICE)

    def match(self, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        found = pattern.match(self.take())
        if found is None:
            self.refuse(f"{wanted} belongs here")
        return found

    def checked(self, read: object, text: str) -> str:
        """Read a text with a function that raises ValueError for a bad one."""
        try:
            value = read(text)  # type: ignore[operator]  # unescape or unquoted
        except ValueError as error:
            self.refuse(str(error))
        assert isinstance(value, str)
        return value

    def name(self, text: str) -> str:
        return self.checked(unquoted, text)

    def routes(self) -> tuple[RouteException, ...]:
        found = []
        while (route := _ROUTE.match(self.peek())) is not None:
            self.take()
            found.append(RouteException(*map(self.name, route.groups())))
        return tuple(found)

    def tools(self) -> None:
        title = self.match(_TOOLS, "`## tools T1`")[1]
        tools, places = [], {}
        while (heading := _TOOL.match(self.peek())) is not None:
            self.take()
            name = self.name(heading[1])
            places[name] = self.at + 1
            lines = self.body()
            cut = next((n for n, line in enumerate(lines) if ARGUMENT.match(line)), len(lines))
            tools.append(ShownTool(name, lines[:cut], lines[cut:]))
        self.toolsets[title] = (tuple(tools), places)

    def body(self) -> tuple[str, ...]:
        """Take indented lines up to the next line of ours; blank lines at their edges are none."""
        found: list[str] = []
        blanks = 0
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(INDENT) and line.strip():
                found += [""] * (blanks if found else 0)
                found.append("" if line == INDENT + BLANK else line[len(INDENT) :])
                blanks = 0
            elif not line.strip():
                blanks += 1
            else:
                break
            self.at += 1
        return tuple(found)

    def call(self, usual: str | None) -> ShownCall:
        found = self.match(_CALL, "`## call N: turn N, node NAME, ...`")
        index = int(found["index"])
        self.places[index, ""] = self.at
        request = None
        if not found["lost"]:
            request = self.request(index, found["model"], found["tools"])
        return ShownCall(
            index=index,
            turn=int(found["turn"]),
            node=self.name(found["node"]),
            position=int(found["position"]),
            request=request,
            stream=self.name(found["stream"] or "main"),
            comparison=found["comparison"] or usual or "not comparable",  # type: ignore[arg-type]  # by the pattern
        )

    def request(self, index: int, model: str | None, toolset: str | None) -> ShownRequest:
        tools = self.toolset(index, toolset)
        shared = self.shared(index)
        base = self.settings(DEFAULTS if shared is None else shared)
        messages = self.root if shared is None else shared.conversation
        while (heading := _MESSAGE.match(self.peek())) is not None:
            self.take()
            if int(heading[1]) != len(messages):
                self.refuse(f"message {heading[1]} stands where {len(messages)} belongs")
            self.places[index, f"message {len(messages)}"] = self.at + 1
            call = None if heading[3] is None else self.name(heading[3])
            role = heading[2]
            message = ShownMessage(role, self.body(), call)  # type: ignore[arg-type]  # by the pattern
            messages = messages.adding([message])
        name = None if model is None else self.name(model)
        request = replace(base, messages=messages, tools=tools, model=name)
        self.requests[index] = request
        return request

    def toolset(self, index: int, name: str | None) -> tuple[ShownTool, ...]:
        if name is None:
            return ()
        if name not in self.toolsets:
            self.refuse(f"there are no tools {name} in this file")
        tools, places = self.toolsets[name]
        self.places.update({(index, f"tool {tool}"): line for tool, line in places.items()})
        return tools

    def shared(self, index: int) -> ShownRequest | None:
        """Read which messages are those of an earlier call, and take them from there."""
        found = _SHARED.match(self.peek())
        if found is None:
            return None
        self.take()
        count, call = int(found[1]) + 1, int(found[2])
        base = self.requests.get(call)
        if base is None or len(base.messages) < count:
            self.refuse(f"no earlier call {call} has messages 0..{found[1]}")
        self.bases[index] = call, count
        return replace(base, messages=base.conversation.first(count))

    def settings(self, base: ShownRequest) -> ShownRequest:
        while (found := _SETTING.match(self.peek())) is not None:
            self.take()
            name, value = found.groups()
            try:
                base = _set(base, name, value)
            except ValueError:
                self.refuse(f"the value of {name} is no JSON")
        return base


def _set(base: ShownRequest, name: str, value: str) -> ShownRequest:
    if name == "tool_choice":
        return replace(base, tool_choice=unquoted(value))
    if name == "response_schema":
        return replace(base, response_schema=None if value == "none" else value)
    options = json.loads(value)
    return replace(base, options=tuple((key, json_text(options[key])) for key in sorted(options)))
