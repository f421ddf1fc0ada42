"""Golden traces from conversations that other frameworks recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from soev.domain import (
    Ended,
    Event,
    Finish,
    Input,
    ModelOutput,
    Opened,
    StoredEvent,
    ToolCall,
    ToolOutput,
    stamped,
)
from soev.golden._errors import ImportRefusedError
from soev.golden._files import GoldenTrace, golden_trace
from soev.golden._order import canonical_order
from soev.golden._scrub import START, scrub_secrets
from soev.golden._secrets import Placeholders
from soev.runtime import encode

_SYSTEM = ("system", "developer")
_CONTAINERS = ("messages", "traj")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What to make of recorded conversations.

    Args:
        file: The file that they come from, for errors and for the traces' `source`.
        agent: The agent of the project that they are held to.
        name: The beginning of the traces' names.
        model_node: The node that calls the model in that agent's graph.
        tools_node: The node that runs the tools.
        skip_bad: Leave conversations out that do not fit, instead of refusing the file.
    """

    file: str
    agent: str
    name: str
    model_node: str = "model"
    tools_node: str = "tools"
    skip_bad: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a file of conversations.

    Args:
        traces: One golden trace for each conversation that fits.
        refused: Why each of the others was left out.
    """

    traces: tuple[GoldenTrace, ...]
    refused: tuple[ImportRefusedError, ...] = ()


def import_conversations(text: str, options: ImportOptions) -> Imported:
    """Turn conversations in OpenAI's message format into golden traces.

    Each user message opens a turn, each assistant message is a model output, each tool message a
    result. A turn ends with an output that calls no tool. Call ids are numbered anew. The system
    prompt is kept in the header for the reader alone: today's prompt is what is replayed.

    Args:
        text: A JSON list of conversations, or one conversation a line. A conversation is a list
            of messages, or an object that has them under `messages` or `traj`.
        options: What to make of them.

    Returns:
        The traces.

    Raises:
        ImportRefusedError: A conversation does not fit, and `skip_bad` is not set; or the text
            holds no conversations at all.
    """
    conversations = list(_conversations(text, options.file))
    width = len(str(len(conversations)))
    traces, refused = [], []
    for index, conversation in enumerate(conversations):
        try:
            messages = _messages(conversation, options.file, index)
            name = f"{options.name}-{index + 1:0{width}}"
            traces.append(_Conversation(options, index).trace(name, messages))
        except ImportRefusedError as error:
            if not options.skip_bad:
                raise
            refused.append(error)
    return Imported(tuple(traces), tuple(refused))


def _conversations(text: str, file: str) -> Iterator[Any]:
    """Read a list, a single conversation, or one conversation a line."""
    try:
        data = json.loads(text)
    except ValueError:
        yield from _lines(text, file)
        return
    if isinstance(data, list) and not all(map(_is_message, data)):
        yield from data
    elif data:
        yield data


def _lines(text: str, file: str) -> Iterator[Any]:
    lines = [line for line in text.split("\n") if line.strip()]
    for index, line in enumerate(lines):
        try:
            yield json.loads(line)
        except ValueError as error:
            problem = f"line {index + 1} is no JSON ({error})"
            raise ImportRefusedError(file, index, None, problem) from None


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and "role" in item


def _messages(conversation: Any, file: str, index: int) -> list[dict[str, Any]]:
    found = conversation
    if isinstance(conversation, dict):
        found = next((conversation[key] for key in _CONTAINERS if key in conversation), None)
    if not isinstance(found, list):
        problem = "it is no list of messages, and has none under `messages` or `traj`"
        raise ImportRefusedError(file, index, None, problem)
    if not found:
        raise ImportRefusedError(file, index, None, "it has no message")
    for place, message in enumerate(found):
        if not _is_message(message):
            raise ImportRefusedError(file, index, place, "it is no message with a `role`")
    return found


@dataclass
class _Conversation:
    """The log that one conversation becomes, as it is read."""

    options: ImportOptions
    index: int
    place: int = 0
    system: list[str] = field(default_factory=list)
    appends: list[list[Event]] = field(default_factory=list)
    output: ModelOutput | None = None
    pending: list[tuple[str, ToolCall]] = field(default_factory=list)
    results: dict[str, ToolOutput] = field(default_factory=dict)
    calls: int = 0

    def trace(self, name: str, messages: Sequence[dict[str, Any]]) -> GoldenTrace:
        for self.place, message in enumerate(messages):
            if message["role"] not in _READERS:
                self.refuse(f"the role {message['role']!r} does not fit")
            _READERS[message["role"]](self, message)
        self.place = len(messages) - 1
        self.close()
        if not self.appends:
            self.refuse("there is no user message")
        opened = Opened(agent=self.options.agent)
        self.appends[0].insert(0, opened)
        return golden_trace(
            name,
            self.options.agent,
            scrub_secrets(canonical_order(_stored(self.appends)), Placeholders()),
            source=f"import:{self.options.file}#{self.index}",
            scrubbed=("ids", "times", "secrets"),
            recorded_system="\n\n".join(self.system) or None,
        )

    def refuse(self, problem: str) -> NoReturn:
        raise ImportRefusedError(self.options.file, self.index, self.place, problem)

    def read_system(self, message: dict[str, Any]) -> None:
        if self.appends:
            self.refuse("a system message after the first user message does not fit")
        self.system.append(self.text(message))

    def read_user(self, message: dict[str, Any]) -> None:
        self.close()
        content = message.get("content")
        parts = isinstance(content, list) and not all(map(_is_text, content))
        payload = content if parts else self.text(message)
        self.appends.append([Input(payload=payload)])

    def read_assistant(self, message: dict[str, Any]) -> None:
        if not self.appends:
            self.refuse("an assistant message before the first user message does not fit")
        if message.get("function_call"):
            self.refuse("`function_call` is an old form of calls; write `tool_calls` instead")
        if self.pending:
            self.refuse_pending()
        self.finish_results()
        calls = self.read_calls(message.get("tool_calls") or [])
        text, refusal = self.text(message), message.get("refusal")
        if self.output is not None:
            # Some recorders write the text of an output and its calls as two messages.
            if self.output.calls or not calls or text:
                self.refuse("two assistant messages in a row: the first one ended its turn")
            text = self.output.text
            self.appends.pop()
        finish: Finish = "tools" if calls else "refusal" if refusal and not text else "stop"
        self.output = ModelOutput(text=text or refusal or "", calls=calls, finish=finish)
        self.appends.append([stamped(self.output, origin=self.options.model_node)])

    def read_calls(self, listed: Any) -> tuple[ToolCall, ...]:
        if not isinstance(listed, list):
            self.refuse("`tool_calls` is no list")
        made = []
        for each in listed:
            function = each.get("function") if isinstance(each, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                self.refuse("a call has no function with a name")
            self.calls += 1
            call = ToolCall(id=f"call-{self.calls}", name=function["name"], **_arguments(function))
            self.pending.append((str(each.get("id", "")), call))
            made.append(call)
        return tuple(made)

    def read_tool(self, message: dict[str, Any]) -> None:
        wanted = str(message.get("tool_call_id", ""))
        found = next((pair for pair in self.pending if pair[0] == wanted), None)
        if found is None:
            self.refuse(f"the result of {wanted!r} has no call")
        self.pending.remove(found)
        call = found[1]
        output = ToolOutput(call_id=call.id, text=self.text(message))
        self.results[call.id] = stamped(output, origin=self.options.tools_node)

    def finish_results(self) -> None:
        """Record the results of the last output in one append, in the order of its calls."""
        if self.results and self.output is not None:
            self.appends.append([self.results[call.id] for call in self.output.calls])
            self.results, self.output = {}, None

    def close(self) -> None:
        """End the turn that is open, if its last output ended it."""
        if self.pending:
            self.refuse_pending()
        self.finish_results()
        if self.output is not None:
            self.appends[-1].append(Ended())
            self.output = None

    def refuse_pending(self) -> None:
        wanted, call = self.pending[0]
        self.refuse(f"the call {wanted!r} of {call.name!r} has no result")

    def text(self, message: dict[str, Any]) -> str:
        content = message.get("content")
        if isinstance(content, list) and all(map(_is_text, content)):
            return "".join(part["text"] for part in content)
        if content is not None and not isinstance(content, str):
            self.refuse(f"its content is neither a text nor a list of texts: {content!r:.60}")
        return content or ""


_READERS: Final = {
    **dict.fromkeys(_SYSTEM, _Conversation.read_system),
    "user": _Conversation.read_user,
    "assistant": _Conversation.read_assistant,
    "tool": _Conversation.read_tool,
}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _arguments(function: dict[str, Any]) -> dict[str, Any]:
    written = function.get("arguments", "{}")
    if isinstance(written, dict):
        return {"arguments": written}
    try:
        arguments = json.loads(written or "{}")
    except (TypeError, ValueError):
        arguments = None
    return {"arguments": arguments} if isinstance(arguments, dict) else {"raw": str(written)}


def _stored(appends: Sequence[Sequence[Event]]) -> Iterator[StoredEvent]:
    for append in appends:
        for place, event in enumerate(append, 1):
            yield encode(stamped(event, ts=START, left=len(append) - place))
