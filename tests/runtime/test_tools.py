"""Tools that are made of functions, and what they may be bound to."""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

import pytest
from pydantic import BaseModel, ValidationError

from soev.domain import ArgumentMark, ToolOutput, ToolOutputBase, Trace, TraceBuilder
from soev.runtime._errors import MutableToolError, ToolDefinitionError
from soev.runtime._limits import at_most
from soev.runtime._marks import ElementId, Recorded
from soev.runtime._tools import FunctionTool, ToolDecorator, tool, tool_def
from tests.runtime.elements import Document

pytestmark = pytest.mark.anyio


class Index:
    """A search client, as a team has one."""

    def __init__(self, *hits: str) -> None:
        self.hits = hits


SPENT = at_most(2, calls="search", error="Enough.")


@tool(name="search", description="Search.", repeats=True, limit=SPENT)
async def search(
    query: str,
    near: Annotated[str, ElementId(Document)] | None = None,
    limit: int = 3,
    *,
    index: Index,
    prefix: str = "hit ",
    seen: Recorded[Document],
) -> ToolOutput:
    """Words for people alone."""
    text = ", ".join(prefix + hit for hit in index.hits[:limit])
    return ToolOutput(text=f"{query}: {text} ({near}, {len(seen)} seen)")


def test_a_tool_takes_after_its_decorator() -> None:
    """The decorator's values, and the parameters that need a value, are fields of the tool."""
    assert (search.name, search.description) == ("search", "Search.")
    assert (search.repeats, search.turn_limit, search.unbound) == (True, SPENT, ("index",))
    assert tool(name="n", description="d") == ToolDecorator("n", "d", None, None)


def test_a_model_is_shown_the_parameters_before_the_star() -> None:
    """The schema holds what a model writes, and neither bound nor recorded parameters."""
    shown = tool_def(search)
    assert list(shown.parameters["properties"]) == ["limit", "near", "query"]  # type: ignore[arg-type]  # an object
    assert shown.parameters["required"] == ["query"]
    assert shown.marks == (ArgumentMark("near", "element", (Document,)),)
    assert "people" not in shown.json


def test_unknown_arguments_do_not_fit() -> None:
    """An argument that the function does not have is refused, not ignored."""
    with pytest.raises(ValidationError, match="extra"):
        search.arguments.model_validate({"query": "x", "what": 1})


async def test_calling_a_tool_calls_its_function() -> None:
    """Without a runtime the caller gives every value itself."""
    result = await search("cats", index=Index("a", "b"), seen=(), prefix="")
    assert result.text == "cats: a, b (None, 0 seen)"


async def test_running_a_tool_uses_parsed_arguments() -> None:
    """`run` hands the arguments on as keywords, beside the bound values."""
    bound = search.bind(index=Index("a", "b"))
    assert bound.unbound == ()
    arguments = bound.arguments.model_validate({"query": "cats", "limit": 1})
    assert (await bound.run(arguments)).text == "cats: hit a (None, 0 seen)"


async def test_binding_makes_a_new_tool() -> None:
    """The tool that was bound stays as it was, also when a default is replaced."""
    loud = search.bind(prefix="HIT ").bind(index=Index("a"))
    assert search.unbound == ("index",)
    assert (await loud("cats", seen=())).text == "cats: HIT a (None, 0 seen)"


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("nothing", "no such parameter"),
        ("seen", "Recorded"),
        ("query", "the model writes it"),
    ],
)
def test_names_that_cannot_be_bound_are_refused(name: str, match: str) -> None:
    """A name that is unknown, recorded, or the model's own is refused."""
    with pytest.raises(ToolDefinitionError, match=match) as refused:
        search.bind(**{name: "x"})
    assert (refused.value.tool, refused.value.parameter) == ("search", name)


def test_a_parameter_is_bound_once() -> None:
    """A second value for one parameter is refused."""
    with pytest.raises(ToolDefinitionError, match="bound already"):
        search.bind(index=Index()).bind(index=Index())


class Store:
    """A store by its methods."""

    def append(self) -> None: ...
    def read_back(self) -> None: ...
    def acquire(self) -> None: ...
    def renew(self) -> None: ...


class Model:
    """A model by its methods."""

    name = "m"

    def prepare(self) -> None: ...
    def stream(self) -> None: ...


class ModelOfTeam(Model):
    """A model that inherits them."""


@dataclass(frozen=True)
class Holder:
    """A frozen holder of one value."""

    held: Any


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Trace(), "trace"),
        (TraceBuilder(), "trace"),
        (Store(), "store"),
        (ModelOfTeam(), "model"),
        ((1, Holder(Model())), "model"),
    ],
    ids=["trace", "builder", "store", "model", "held"],
)
def test_values_that_reach_the_log_are_refused(value: object, kind: str) -> None:
    """A trace, a store or a model can't be bound, at any depth."""
    with pytest.raises(ToolDefinitionError, match=f"is a {kind}") as refused:
        search.bind(index=value)
    assert refused.value.parameter == "index"


class Refusing:
    """A stand-in for a resource: every attribute is there, and none may be used."""

    def __getattr__(self, name: str) -> "Refusing":
        return self

    def __call__(self) -> NoReturn:
        raise AssertionError("nothing may be called")


def test_a_stand_in_is_bound_without_being_used() -> None:
    """A value is judged by its class, so an object with every attribute passes."""
    assert search.bind(index=Refusing()).unbound == ()


@dataclass
class Loose:
    """A dataclass that can change."""

    x: int = 1


MUTABLE_IDS = [
    *("list", "dict", "set", "bytearray", "nested-tuple", "nested-holder", "loose", "held-loose"),
    *("lock", "event", "queue", "semaphore"),
]
LOOP_BOUND: list[Callable[[], object]] = [
    asyncio.Lock,
    asyncio.Event,
    asyncio.Queue,
    lambda: asyncio.Semaphore(1),
]


@pytest.mark.parametrize(
    ("make", "fields", "holds"),
    [
        (lambda: [1], ("index",), list),
        (lambda: {"a": 1}, ("index",), dict),
        (lambda: {1}, ("index",), set),
        (lambda: bytearray(b"x"), ("index",), bytearray),
        (lambda: (1, (2, [3])), ("index", "1", "1"), list),
        (lambda: Holder(Holder({})), ("index", "held", "held"), dict),
        (Loose, ("index",), None),
        (lambda: Holder(Loose()), ("index", "held"), None),
        *[(make, ("index",), type(make())) for make in LOOP_BOUND],
    ],
    ids=MUTABLE_IDS,
)
def test_mutable_values_are_refused(
    make: Callable[[], object], fields: tuple[str, ...], holds: type | None
) -> None:
    """A value that could keep state is refused, with the path of fields to it."""
    with pytest.raises(MutableToolError) as refused:
        search.bind(index=make())
    error = refused.value
    assert (error.tool, error.fields, error.holds) == ("search", fields, holds)
    assert ".".join(("search", *fields)) in str(error)


def test_frozen_values_and_resources_are_bound() -> None:
    """Frozen collections, frozen dataclasses, classes and any other object may be bound."""
    values = (MappingProxyType({"a": 1}), frozenset({1}), Holder((1, "x")), Index, Loose, None)
    assert search.bind(index=values).unbound == ()


def test_a_value_that_holds_itself_ends() -> None:
    """A cycle of frozen values is walked once."""
    knot = Holder(None)
    object.__setattr__(knot, "held", (knot,))
    assert search.bind(index=knot).unbound == ()


def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
    """Make a tool of a function that no type checker would let through."""
    return tool(name="made", description="d")(function)


async def _no_result(x: str) -> str:
    return x


async def _no_annotation(x: str):  # type: ignore[no-untyped-def]  # what is refused
    return ToolOutput(text=x)


async def _untyped(x) -> ToolOutput:  # type: ignore[no-untyped-def]  # what is refused
    return ToolOutput(text=x)


async def _many(*x: str) -> ToolOutput:
    return ToolOutput(text=str(x))


async def _named(**x: str) -> ToolOutput:
    return ToolOutput(text=str(x))


async def _by_place(x: str, /) -> ToolOutput:
    return ToolOutput(text=x)


async def _client(x: Index) -> ToolOutput:
    return ToolOutput(text=str(x))


async def _hidden(_x: str) -> ToolOutput:
    return ToolOutput(text=_x)


async def _early(seen: Recorded[Document]) -> ToolOutput:
    return ToolOutput(text=str(seen))


async def _unresolved(x: "Nowhere") -> ToolOutput:  # type: ignore[name-defined]  # noqa: F821  # what is refused
    return ToolOutput(text=str(x))


def _sync(x: str) -> ToolOutput:
    return ToolOutput(text=x)


class Tree(BaseModel):
    """A model that holds itself."""

    kids: list["Tree"] = []


async def _recursive(tree: Tree) -> ToolOutput:
    return ToolOutput(text=str(tree))


@pytest.mark.parametrize(
    ("function", "parameter", "match"),
    [
        (_sync, None, "not async"),
        (_no_result, None, "ToolOutputBase"),
        (_no_annotation, None, "ToolOutputBase"),
        (_unresolved, None, "cannot be resolved"),
        (_recursive, None, "contain themselves"),
        (_untyped, "x", "no annotation"),
        (_many, "x", "by name"),
        (_named, "x", "by name"),
        (_by_place, "x", "by name"),
        (_client, "x", "cannot write it"),
        (_hidden, "_x", "underscore"),
        (_early, "seen", "Recorded"),
    ],
)
def test_functions_that_make_no_tool_are_refused(
    function: Callable[..., Any], parameter: str | None, match: str
) -> None:
    """A function that no model could call is refused, with the parameter at fault."""
    with pytest.raises(ToolDefinitionError, match=match) as refused:
        make(function)
    assert (refused.value.tool, refused.value.parameter) == ("made", parameter)


def test_marks_are_checked_when_a_tool_is_made() -> None:
    """An `ElementId` without a class, or too deep, is a ValueError of the decorator."""

    async def deep(x: dict[str, Annotated[str, ElementId(Document)]]) -> ToolOutput:
        return ToolOutput(text=str(x))

    async def bare(x: Annotated[str, ElementId()]) -> ToolOutput:
        return ToolOutput(text=x)

    with pytest.raises(ValueError, match="too deep"):
        make(deep)
    with pytest.raises(ValueError, match="accepts no class"):
        make(bare)


class Found(ToolOutputBase):
    """A team's own result."""

    type = "found"


async def test_results_of_a_teams_own_class_are_fine() -> None:
    """A function may return any ToolOutputBase, or one of several."""

    async def find(schema: str, copy: int = 1) -> Found | ToolOutput:
        return Found(error=f"{schema}{copy}")

    made = make(find)
    arguments = made.arguments.model_validate({"schema": "s"})
    assert (await made.run(arguments)).error == "s1"


def test_tools_are_frozen_and_compare_by_value() -> None:
    """A tool's fields can't be set, and equal tools are equal."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        search.name = "other"  # type: ignore[misc]  # what is refused
    function: Callable[..., Coroutine[Any, Any, ToolOutput]] = search.function
    assert FunctionTool("a", "b", Tree, function) == FunctionTool("a", "b", Tree, function)
