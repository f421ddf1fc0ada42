"""What type checkers must say of code that uses the public names. Checked, never run."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, assert_type

from pydantic import BaseModel

from soev.domain import (
    ChatModel,
    ChatRequest,
    Element,
    Event,
    Input,
    ModelOutput,
    Request,
    Source,
    ToolCall,
    ToolDef,
    ToolOutput,
    ToolOutputBase,
    Trace,
)
from soev.runtime import (
    AtMost,
    CitationStrategy,
    ContextBuilder,
    ElementId,
    FunctionTool,
    Limit,
    LlmStep,
    ModelContext,
    Numbering,
    Recorded,
    RequestStep,
    ResultHandle,
    Step,
    Tool,
    ToolDecorator,
    ToolStep,
    at_most,
    numbering,
    tool,
    tool_def,
)


class Document(Source):
    """A source of a team's own."""

    tag: ClassVar[str] = "document"

    title: str = ""


class Found(ToolOutputBase):
    """A result of a team's own."""

    type: ClassVar[str] = "found"

    hits: int = 0


class Index:
    """A resource."""

    async def hits(self, query: str) -> int:
        """Count what a query finds."""
        return len(query)


@tool(name="search", description="Search.", limit=at_most(3, calls="search", error="Enough."))
async def search(
    query: str,
    near: Annotated[str, ElementId(Document)] | None = None,
    after: Annotated[str, ResultHandle()] | None = None,
    *,
    index: Index,
    seen: Recorded[Document] = (),
) -> Found:
    """Count hits."""
    assert_type(near, str | None)
    assert_type(after, str | None)
    assert_type(seen, tuple[Document, ...])
    return Found(hits=await index.hits(query))


async def tools(index: Index, trace: Trace) -> None:
    """A tool keeps the signature of its function, until it is bound."""
    assert_type(await search("cats", index=index), Found)
    assert_type(await search("cats", "1", seen=(Document(id="d"),), index=index), Found)
    await search(1, index=index)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a text
    await search("cats")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no index

    bound = search.bind(index=index)
    assert_type(bound, FunctionTool[..., Found])
    assert_type(await bound("cats"), Found)
    assert_type(await bound.run(bound.arguments()), Found)
    assert_type(bound.arguments, type[BaseModel])
    assert_type(bound.unbound, tuple[str, ...])
    assert_type(bound.turn_limit, Limit | None)
    assert_type(tool_def(bound), ToolDef)
    assert_type(tool(name="a", description="b"), ToolDecorator)
    assert_type(at_most(1, elements=Document, error="e"), AtMost)
    assert_type(at_most(1, calls="a", error="e")(trace), str | None)


def not_async(query: str) -> ToolOutput:
    """Return at once, as no tool may."""
    return ToolOutput(text=query)


async def no_result(query: str) -> str:
    """Return what no tool may."""
    return query


tool(name="a", description="b")(not_async)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # not async
tool(name="a", description="b")(no_result)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]  # no result


class Numbers(BaseModel):
    """Arguments of a tool by hand."""

    left: int
    right: int


@dataclass(frozen=True)
class Add:
    """A tool by hand."""

    name: str = "add"
    description: str = "Add."
    arguments: type[Numbers] = Numbers

    async def run(self, arguments: Numbers) -> ToolOutput:
        """Add two numbers."""
        return ToolOutput(text=str(arguments.left + arguments.right))


by_hand: Tool[Numbers] = Add()
of_function: Tool[BaseModel] = search
steps: ToolStep = ToolStep({"add": Add(), "search": search.bind(index=Index())}, repeats=True)


class NoTool:
    """Something that is no tool."""

    name = "nothing"


wrong: Tool[Numbers] = NoTool()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # no `run`


def traces(trace: Trace, document: type[Document]) -> None:
    """A trace answers with the classes that it is asked for."""
    assert_type(trace[0], Event)
    assert_type(trace[1:], Trace)
    assert_type(trace.latest(), Event | None)
    assert_type(trace.latest(ModelOutput), ModelOutput | None)
    assert_type(trace.latest(Input, Input), Input | None)
    assert_type(trace.of(Request), tuple[Request, ...])
    assert_type(trace.elements(), tuple[Element, ...])
    assert_type(trace.elements(document), tuple[Document, ...])
    assert_type(trace.results(), Mapping[ToolCall, ToolOutputBase])
    assert_type(trace.opening, Input | None)
    assert_type(trace.turn, Trace)
    assert_type(numbering(trace), Numbering)
    assert_type(numbering(trace).by_id("d"), Element | None)
    assert_type(numbering(trace).number("d"), int | None)


def build(trace: Trace) -> ModelContext:
    """Build a context by hand."""
    return ModelContext(ChatRequest(()), "m", None, numbering(trace))


def takes_step(step: Step) -> None:
    """Take any step."""


async def model_steps(model: ChatModel, trace: Trace, strategy: CitationStrategy) -> None:
    """The steps of the runtime are steps, and a builder is any function of a view."""
    builder: ContextBuilder = build
    for each in (LlmStep(builder, model), steps, RequestStep("approval", "person")):
        takes_step(each)
    assert_type(await LlmStep(build, model)(trace), Sequence[ModelOutput])
    assert_type(await LlmStep(build, model).answer(build(trace)), ModelOutput)
    assert_type(await steps(trace), Sequence[Event])
    assert_type(await RequestStep("a", "person", {"type": "boolean"})(trace), Sequence[Event])
    assert_type(strategy.write([1]), str)
    function: Callable[..., Coroutine[Any, Any, Found]] = search.function
    assert_type(FunctionTool("a", "b", Numbers, function).name, str)
