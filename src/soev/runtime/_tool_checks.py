"""What a tool may hold: nothing that keeps state between calls, nothing that reaches the log."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from soev.domain import Trace, TraceBuilder
from soev.runtime._errors import MutableToolError, ToolDefinitionError

_MUTABLE = (
    list,
    dict,
    set,
    bytearray,
    asyncio.Lock,
    asyncio.Event,
    asyncio.Condition,
    asyncio.Semaphore,
    asyncio.Barrier,
    asyncio.Queue,
    asyncio.Future,
    asyncio.TaskGroup,
)
_STORE = ("append", "read_back", "acquire", "renew")
_MODEL = ("prepare", "stream")


def check_frozen(tool: str, thing: object) -> None:
    """Refuse a tool that is no frozen dataclass, or that holds a mutable value.

    Args:
        tool: The tool's name.
        thing: The tool itself.

    Raises:
        MutableToolError: With the path of fields to the value.
    """
    # A subclass without the decorator could set attributes of its own.
    if "__dataclass_params__" not in vars(type(thing)):
        raise MutableToolError(tool, (), None)
    _Walk(tool, lambda value, path: None).visit(thing, ())


def check_bound(tool: str, parameter: str, value: object) -> None:
    """Refuse a value that a tool must not be bound to.

    Args:
        tool: The tool's name.
        parameter: The parameter that the value is for.
        value: The value. Only its class is looked at, so a stand-in for a resource passes.

    Raises:
        ToolDefinitionError: It is a trace, a store or a model.
        MutableToolError: It is mutable, or holds what is.
    """

    def refuse_state(value: object, path: tuple[str, ...]) -> None:
        found = _state(value)
        if found is not None:
            raise ToolDefinitionError(
                tool,
                parameter,
                f"`{'.'.join(path)}` is a {found}, and a tool that reaches one cannot be replayed. "
                "Take what it needs as arguments or as `Recorded[...]`.",
            )

    _Walk(tool, refuse_state).visit(value, (parameter,))


def _state(value: object) -> str | None:
    """Name the kind of a value that reaches the conversation, by its class alone."""
    if isinstance(value, (Trace, TraceBuilder)):
        return "trace"
    cls = value if isinstance(value, type) else type(value)
    if _has_all(cls, _STORE):
        return "store"
    return "model" if _has_all(cls, _MODEL) else None


def _has_all(cls: type, names: tuple[str, ...]) -> bool:
    return all(any(name in vars(base) for base in cls.__mro__) for name in names)


class _Walk:
    """A walk through frozen dataclasses and tuples; any other object is a resource.

    Args:
        tool: The tool's name.
        check: Looks at each value on the way.
    """

    def __init__(self, tool: str, check: Callable[[object, tuple[str, ...]], None]) -> None:
        self._tool, self._check = tool, check
        self._seen: set[int] = set()

    def visit(self, value: object, path: tuple[str, ...]) -> None:
        """Look at a value and at what it holds."""
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._check(value, path)
        if isinstance(value, _MUTABLE):
            raise MutableToolError(self._tool, path, type(value))
        if isinstance(value, tuple):
            for place, item in enumerate(value):
                self.visit(item, (*path, str(place)))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            self._visit_fields(value, path)

    def _visit_fields(self, value: object, path: tuple[str, ...]) -> None:
        if not type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]  # a dataclass
            raise MutableToolError(self._tool, path, None)
        for field in dataclasses.fields(value):  # type: ignore[arg-type]  # a dataclass
            self.visit(getattr(value, field.name, None), (*path, field.name))
