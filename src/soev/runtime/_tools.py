"""Tools: what a model can call, and how an async function becomes one."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model
from pydantic.errors import PydanticUserError

from soev.domain import ToolOutputBase
from soev.runtime._errors import ToolDefinitionError
from soev.runtime._limits import Limit
from soev.runtime._marks import is_recorded, marks_of, recorded_fields
from soev.runtime._tool_checks import check_bound
from soev.runtime._tool_def import tool_def

__all__ = ["FunctionTool", "Tool", "ToolDecorator", "tool", "tool_def"]

A = TypeVar("A", bound=BaseModel)
P = ParamSpec("P")
R = TypeVar("R", bound=ToolOutputBase)

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_EMPTY = inspect.Parameter.empty
_CONFIG = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Tool(Protocol[A]):
    """What a model can call: a frozen dataclass that keeps nothing between calls.

    It may also have `turn_limit` (a Limit for each turn), `repeats` (whether an identical call
    runs again; it wins over ToolStep's own) and `unbound` (the parameters that still need a
    value; ToolStep refuses the tool until there are none).
    """

    @property
    def name(self) -> str:
        """The name that a model calls it by."""
        ...

    @property
    def description(self) -> str:
        """What a model reads about when and how to use it."""
        ...

    @property
    def arguments(self) -> type[A]:
        """The pydantic model of its arguments."""
        ...

    async def run(self, arguments: A) -> ToolOutputBase:
        """Run one call.

        Args:
            arguments: The parsed arguments, with real ids.

        Returns:
            The one result of the call.

        Raises:
            TransientError: A resource failed for a moment. The model reads the error.
            InvalidQueryError: A resource refused the query. The model reads the error.
            ResourceUnavailableError: A resource is not there. The model reads the error.
        """
        ...


@dataclass(frozen=True)
class FunctionTool(Generic[P, R]):
    """A tool that `tool` made of an async function. Calling it calls the function.

    Args:
        name: The name that a model calls it by.
        description: What a model reads about when and how to use it.
        arguments: The pydantic model of what a model writes, and of what the log fills in.
        function: The function, with the bound parameters in it.
        repeats: Whether an identical call runs again, None to leave it to the ToolStep.
        turn_limit: The limit for each turn, or None.
        unbound: The parameters that still need a value from `bind`.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    function: Callable[P, Coroutine[Any, Any, R]]
    repeats: bool | None = None
    turn_limit: Limit | None = None
    unbound: tuple[str, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself. No runtime is needed, and nothing is filled in."""
        return self.function(*args, **kwargs)

    async def run(self, arguments: BaseModel) -> R:
        """Call the function with parsed arguments as its keywords.

        Args:
            arguments: The parsed arguments.
        """
        fields = type(arguments).__pydantic_fields__
        function: Callable[..., Coroutine[Any, Any, R]] = self.function
        return await function(**{name: getattr(arguments, name) for name in fields})

    def bind(self, **values: Any) -> FunctionTool[..., R]:
        """Return a new tool with values for parameters that come after `*`.

        Args:
            values: The value of each parameter, by name.

        Raises:
            ToolDefinitionError: A name is unknown, bound already, written by the model, or
                `Recorded`; or a value is a trace, a store or a model.
            MutableToolError: A value could keep state between calls.
        """
        for name, value in values.items():
            problem = self._unbindable(name)
            if problem is not None:
                raise ToolDefinitionError(self.name, name, problem)
            check_bound(self.name, name, value)
        bound = functools.partial(self.function, **values)
        left = tuple(name for name in self.unbound if name not in values)
        tool: FunctionTool[..., R] = replace(self, function=bound, unbound=left)
        return tool

    def _unbindable(self, name: str) -> str | None:
        """Say why a parameter takes no value, or return None when it does."""
        function, bound = _unwrapped(self.function)
        parameter = inspect.signature(function).parameters.get(name)
        if parameter is None:
            return "the function has no such parameter. Correct the name."
        if name in bound:
            return "it is bound already. Bind it once."
        if name in recorded_fields(self.arguments):
            return "it is `Recorded`, so each call gets its value from the log. Leave it out."
        if parameter.kind is not _KEYWORD:
            return "the model writes it. Move the parameter after `*` to bind it."
        return None


def _unwrapped(function: Callable[..., Any]) -> tuple[Callable[..., Any], frozenset[str]]:
    """Return a function without its bound parameters, and their names."""
    if isinstance(function, functools.partial):
        return function.func, frozenset(function.keywords)
    return function, frozenset()


@dataclass(frozen=True, slots=True)
class ToolDecorator:
    """Makes a FunctionTool of an async function. `tool` returns it.

    Args:
        name: The name that a model calls the tool by.
        description: What a model reads about when and how to use it.
        repeats: Whether an identical call runs again, None to leave it to the ToolStep.
        limit: The limit for each turn, or None.
    """

    name: str
    description: str
    repeats: bool | None = None
    limit: Limit | None = None

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> FunctionTool[P, R]:
        """Make the tool of a function.

        Args:
            function: An async function. Parameters before `*` are the model's; those after it are
                `Recorded`, have a default, or are bound later.

        Raises:
            ToolDefinitionError: The function is not async, returns no ToolOutputBase, has a
                parameter that a model cannot write, or an annotation that cannot be resolved.
            ValueError: An `ElementId` accepts no class, or stands too deep.
        """
        signature = _Signature(self.name, function)
        signature.check_result()
        arguments = signature.arguments()
        made = FunctionTool(
            self.name,
            self.description,
            arguments,
            function,
            self.repeats,
            self.limit,
            signature.unbound(),
        )
        marks_of(arguments)
        tool_def(made)
        return made


def tool(
    *, name: str, description: str, repeats: bool | None = None, limit: Limit | None = None
) -> ToolDecorator:
    """Return the decorator that makes an async function a tool.

    Parameters before `*` are what the model writes. A parameter after it is `Recorded[T]`, keeps
    its default, or gets its value from `FunctionTool.bind`. The docstring is for people: the
    model reads `description`.

    Args:
        name: The name that a model calls the tool by.
        description: What a model reads about when and how to use it.
        repeats: Whether a call identical to an earlier one of the turn runs again. None leaves it
            to the ToolStep.
        limit: The limit for each turn, such as `at_most(3, calls=name, error="...")`.

    Example:
        ```python
        from soev.domain import ToolOutput
        from soev.runtime import tool


        @tool(name="area", description="Area of a rectangle in square metres.")
        async def area(width: float, height: float, *, digits: int = 2) -> ToolOutput:
            return ToolOutput(text=str(round(width * height, digits)))
        ```
    """
    return ToolDecorator(name, description, repeats, limit)


class _Signature:
    """The signature of a function that is to become a tool.

    Raises:
        ToolDefinitionError: It is not async, or an annotation cannot be resolved.
    """

    def __init__(self, tool: str, function: Callable[..., Any]) -> None:
        self._tool = tool
        if not inspect.iscoroutinefunction(function):
            raise ToolDefinitionError(
                tool, None, "the function is not async. Declare it with `async def`."
            )
        try:
            self._hints = get_type_hints(function, include_extras=True)
        except (NameError, AttributeError, TypeError) as error:
            raise ToolDefinitionError(
                tool,
                None,
                f"an annotation cannot be resolved ({error}). Annotate with classes that the "
                "module itself defines or imports, outside of functions and `TYPE_CHECKING`.",
            ) from error
        self._parameters = inspect.signature(function).parameters

    def check_result(self) -> None:
        """Refuse a function whose result is no ToolOutputBase."""
        result = self._hints.get("return")
        classes = get_args(result) or (result,)
        if not all(isinstance(each, type) and issubclass(each, ToolOutputBase) for each in classes):
            raise ToolDefinitionError(
                self._tool, None, "it must return a `ToolOutputBase`: annotate `-> ToolOutput`."
            )

    def unbound(self) -> tuple[str, ...]:
        """Return the parameters that `bind` must give a value."""
        return tuple(
            name
            for name, each in self._parameters.items()
            if each.kind is _KEYWORD and each.default is _EMPTY and not self._recorded(name)
        )

    def arguments(self) -> type[BaseModel]:
        """Make the model of what a model writes, and of what the log fills in."""
        fields: dict[str, Any] = {}
        for name, each in self._parameters.items():
            if each.kind is _KEYWORD:
                if self._recorded(name):
                    fields[name] = (self._hints[name], ())
                continue
            self._check(name, each)
            default = ... if each.default is _EMPTY else each.default
            fields[name] = (self._hints[name], default)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                return create_model(f"{self._tool}_arguments", __config__=_CONFIG, **fields)
            except (PydanticUserError, NameError, TypeError) as error:
                raise ToolDefinitionError(
                    self._tool, None, f"its parameters make no pydantic model: {error}"
                ) from error

    def _recorded(self, name: str) -> bool:
        return is_recorded(self._hints.get(name))

    def _check(self, name: str, parameter: inspect.Parameter) -> None:
        """Refuse a parameter that a model cannot write."""
        problem = None
        if parameter.kind is not _POSITIONAL:
            problem = "a model writes arguments by name. Use plain parameters, without `*` and `/`."
        elif name not in self._hints:
            problem = "it has no annotation. Add one, or move it after `*`."
        elif self._recorded(name):
            problem = "a model cannot write what is `Recorded`. Move it after `*`."
        elif name.startswith("_"):
            problem = "its name begins with an underscore. Rename it, or move it after `*`."
        else:
            problem = _unwritable(self._hints[name])
        if problem is not None:
            raise ToolDefinitionError(self._tool, name, problem)


def _unwritable(annotation: Any) -> str | None:
    """Say why a model cannot write a value of a type, or return None when it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            TypeAdapter(annotation).json_schema()
    except PydanticUserError as error:
        return (
            f"a model cannot write it ({error.message.splitlines()[0]}). "
            "Use a type that JSON can hold, or move it after `*` and bind it."
        )
    return None
