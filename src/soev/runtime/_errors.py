"""Errors of the runtime.

SoevError
├── InputDeniedError          an input was refused
├── ThreadActiveError         the turn is not over
├── UnknownAgentError         no such agent in the catalog
├── AgentMismatchError        the thread runs another agent
├── NothingToCancelError      the turn is over, or another one
├── GraphMismatchError        the graph no longer fits the trace (a ValueError too)
├── UnknownEventTypeError     a stored type that no listed class has
├── UnreadableEventError      an event that would not read back as it was
├── ToolDefinitionError       a tool that could reach state, or that no model could call
├── MutableToolError          a tool that could keep state between calls
├── ToolResultError           a tool returned something else than one result
└── UnrecordedWholeError      a tool showed a part without its whole
"""

from __future__ import annotations

from soev.domain import SoevError


class InputDeniedError(SoevError):
    """An input was refused, and nothing was recorded.

    It is not ThreadActiveError, which refuses any input at this moment.

    Args:
        problem: What is refused, with the value.
        advice: What to do.
        path: The JSON path of the value in the payload, or None.
    """

    def __init__(self, problem: str, advice: str = "", path: str | None = None) -> None:
        super().__init__(problem, advice, path)
        self.problem, self.advice, self.path = problem, advice, path

    def __str__(self) -> str:
        where = f" (at {self.path})" if self.path else ""
        return f"The input is refused: {self.problem}{where}. {self.advice}".rstrip()


class ThreadActiveError(SoevError):
    """A thread takes no fresh input now. Nothing was recorded.

    Args:
        thread_id: The thread.
        reason: Why its turn is not over.
        advice: What to do first.
    """

    def __init__(self, thread_id: str, reason: str, advice: str) -> None:
        super().__init__(thread_id, reason, advice)
        self.thread_id, self.reason, self.advice = thread_id, reason, advice

    def __str__(self) -> str:
        return f"Thread {self.thread_id!r} takes no new input: {self.reason}. {self.advice}"


class UnknownAgentError(SoevError):
    """The catalog has no such agent, or the thread's log names none.

    Args:
        agent: The name that was asked for, or None when the log does not begin with `Opened`.
        known: The names that the catalog has.
        thread_id: The thread, when its log was read.
    """

    def __init__(
        self, agent: str | None, known: tuple[str, ...], thread_id: str | None = None
    ) -> None:
        super().__init__(agent, known, thread_id)
        self.agent, self.known, self.thread_id = agent, known, thread_id

    def __str__(self) -> str:
        listed = ", ".join(repr(name) for name in self.known) or "none"
        if self.agent is None:
            return (
                f"Thread {self.thread_id!r} names no agent: its log does not begin with `Opened`. "
                "Make a `Thread` by hand to read it."
            )
        return (
            f"The catalog has no agent {self.agent!r} (it has {listed}). "
            "Add the agent to the catalog, or correct the name."
        )


class AgentMismatchError(SoevError):
    """A thread runs another agent than the caller named.

    Args:
        thread_id: The thread.
        wanted: The agent that the caller named.
        found: The agent that the thread was opened for.
    """

    def __init__(self, thread_id: str, wanted: str, found: str) -> None:
        super().__init__(thread_id, wanted, found)
        self.thread_id, self.wanted, self.found = thread_id, wanted, found

    def __str__(self) -> str:
        return (
            f"Thread {self.thread_id!r} was opened for agent {self.found!r}, not {self.wanted!r}. "
            "Ask for the agent that it has, or for another thread."
        )


class NothingToCancelError(SoevError):
    """There is no turn to cancel: it is over, or another one than the caller meant.

    Args:
        thread_id: The thread.
        reason: Why nothing was cancelled.
    """

    def __init__(self, thread_id: str, reason: str) -> None:
        super().__init__(thread_id, reason)
        self.thread_id, self.reason = thread_id, reason

    def __str__(self) -> str:
        return f"Nothing to cancel in thread {self.thread_id!r}: {self.reason}."


class GraphMismatchError(SoevError, ValueError):
    """Today's graph no longer fits what a thread recorded. Nothing was recorded.

    Args:
        node: The node that the log names.
        position: The position of the event that names it.
        problem: How the graph differs.
    """

    def __init__(self, node: str, position: int, problem: str) -> None:
        super().__init__(node, position, problem)
        self.node, self.position, self.problem = node, position, problem

    def __str__(self) -> str:
        return (
            f"The graph does not fit the log at position {self.position}, node {self.node!r}: "
            f"{self.problem}. Run the turn with a graph that has it, or cancel the turn."
        )


class UnknownEventTypeError(SoevError):
    """A stored tag that no listed class has, or had.

    Args:
        type: The tag.
        known: The tags that are listed.
    """

    def __init__(self, type: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(type, known)
        self.type, self.known = type, known

    def __str__(self) -> str:
        return (
            f"No listed event class has the type {self.type!r}. "
            "Add the class to the agent's `event_types`."
        )


class UnreadableEventError(SoevError):
    """An event would not read back as it was, or a stored one does not fit its class.

    Args:
        type: The event's tag, or its class's name.
        problem: What does not fit.
        field: The field, or None.
        thread_id: The thread, where it is known.
        position: The position, where it is known.
    """

    def __init__(
        self,
        type: str,
        problem: str,
        field: str | None = None,
        thread_id: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(type, problem, field, thread_id, position)
        self.type, self.problem, self.field = type, problem, field
        self.thread_id, self.position = thread_id, position

    def __str__(self) -> str:
        where = "" if self.position is None else f" at position {self.position}"
        where += "" if self.thread_id is None else f" of thread {self.thread_id!r}"
        field = "" if self.field is None else f", field {self.field!r}"
        return f"The event {self.type!r}{where}{field} cannot be read back: {self.problem}."


class ToolDefinitionError(SoevError):
    """A tool could reach state, or no model could call it. Raised when it is made.

    Args:
        tool: The tool's name.
        parameter: The parameter at fault, or None when the fault is the tool's own.
        problem: What is wrong, worded as the fix.
    """

    def __init__(self, tool: str, parameter: str | None, problem: str) -> None:
        super().__init__(tool, parameter, problem)
        self.tool, self.parameter, self.problem = tool, parameter, problem

    def __str__(self) -> str:
        where = "" if self.parameter is None else f", parameter `{self.parameter}`"
        return f"The tool {self.tool!r} is refused{where}: {self.problem}"


class MutableToolError(SoevError):
    """A tool, or a value that it holds, could keep state between calls.

    Args:
        tool: The tool's name.
        fields: The path of fields from the tool to the value, empty for the tool itself.
        holds: The class of the mutable value, or None when an object is no frozen dataclass.
    """

    def __init__(self, tool: str, fields: tuple[str, ...], holds: type | None) -> None:
        super().__init__(tool, fields, holds)
        self.tool, self.fields, self.holds = tool, fields, holds

    def __str__(self) -> str:
        path = ".".join((self.tool, *self.fields))
        if self.holds is None:
            return f"`{path}` is no frozen dataclass. Declare it with `@dataclass(frozen=True)`."
        return (
            f"`{path}` holds a {self.holds.__name__}: use a frozen mapping, a frozenset, or bind a "
            "tuple."
        )


class ToolResultError(SoevError):
    """A tool returned something else than one ToolOutputBase, so its call has no one result.

    Args:
        tool: The tool's name.
        returned: The class of what it returned.
    """

    def __init__(self, tool: str, returned: type) -> None:
        super().__init__(tool, returned)
        self.tool, self.returned = tool, returned

    def __str__(self) -> str:
        return (
            f"The tool {self.tool!r} returned a {self.returned.__name__}. "
            "Return one `ToolOutput`, or another `ToolOutputBase`."
        )


class UnrecordedWholeError(SoevError):
    """A tool showed a part whose whole is recorded nowhere, so a model could do nothing with it.

    Args:
        tool: The tool's name.
        element: The id of the part.
        ref: The id of the whole that it names.
    """

    def __init__(self, tool: str, element: str, ref: str) -> None:
        super().__init__(tool, element, ref)
        self.tool, self.element, self.ref = tool, element, ref

    def __str__(self) -> str:
        return (
            f"The tool {self.tool!r} showed {self.element!r}, a part of {self.ref!r}, which is not "
            "recorded. Return the whole beside the part."
        )
