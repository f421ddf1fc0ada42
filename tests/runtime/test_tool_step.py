"""The step that answers calls."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from soev.domain import (
    Event,
    Input,
    InvalidQueryError,
    ModelOutput,
    ResourceUnavailableError,
    ToolCall,
    ToolOutput,
    ToolOutputBase,
    Trace,
    TransientError,
)
from soev.runtime._errors import (
    MutableToolError,
    ToolDefinitionError,
    ToolResultError,
    UnrecordedWholeError,
)
from soev.runtime._limits import at_most
from soev.runtime._marks import ElementId, Recorded
from soev.runtime._tool_step import ToolStep
from soev.runtime._tools import FunctionTool, tool
from tests.runtime.elements import Document, Order, read

pytestmark = pytest.mark.anyio


class Log:
    """What tools did, in the order they did it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def gate(self, name: str) -> asyncio.Event:
        """Return the event that a call waits for."""
        return self.gates.setdefault(name, asyncio.Event())


@tool(name="note", description="Note.")
async def note(text: str, times: int = 1, *, log: Log) -> ToolOutput:
    """Write down that it was called."""
    log.lines.append(text)
    return ToolOutput(text=text * times)


@tool(name="wait", description="Wait.")
async def wait(name: str, opens: str = "", *, log: Log) -> ToolOutput:
    """Open one gate, then wait at another."""
    if opens:
        log.gate(opens).set()
    await log.gate(name).wait()
    log.lines.append(name)
    return ToolOutput(text=name)


def call(call_id: str, name: str, /, **arguments: JsonValue) -> ToolCall:
    """Make a recorded call."""
    return ToolCall(id=call_id, name=name, arguments=arguments)


def asked(*calls: ToolCall, before: Sequence[Event] = ()) -> Trace:
    """Return the view of a turn that ends with an output."""
    return Trace([Input(payload="go"), *before, ModelOutput(calls=calls)])


def step(log: Log, *more: Any, repeats: bool = False) -> ToolStep:
    """Make a step of the tools here, bound to a log."""
    tools = [note.bind(log=log), wait.bind(log=log), read, *more]
    return ToolStep({each.name: each for each in tools}, repeats=repeats)


async def answers(made: ToolStep, trace: Trace) -> list[ToolOutput]:
    """Run a step whose results are ToolOutputs."""
    results = await made(trace)
    assert all(isinstance(each, ToolOutput) for each in results)
    return [each for each in results if isinstance(each, ToolOutput)]


async def error_of(made: ToolStep, trace: Trace) -> str:
    """Return the error of a step's one result."""
    (result,) = await answers(made, trace)
    assert result.error is not None
    return result.error


async def test_each_call_has_a_result_in_call_order() -> None:
    """Results stand in call order and carry the call's id, whatever order the calls end in."""
    log = Log()
    trace = asked(
        call("a", "wait", name="first"),
        call("b", "wait", name="second", opens="third"),
        call("c", "wait", name="third", opens="first"),
        call("d", "note", text="x"),
        call("e", "wait", name="last", opens="second"),
    )
    log.gate("last").set()
    results = await answers(step(log), trace)
    assert [each.call_id for each in results] == ["a", "b", "c", "d", "e"]
    assert [each.text for each in results] == ["first", "second", "third", "x", "last"]
    assert sorted(log.lines) == ["first", "last", "second", "third", "x"]


async def test_calls_with_a_result_are_left_out() -> None:
    """Only calls without a result in the view are answered."""
    log = Log()
    view = asked(call("a", "note", text="one"), call("b", "note", text="two"))
    view = Trace([*view, ToolOutput(call_id="a", text="by an effect")])
    assert [each.call_id for each in await answers(step(log), view)] == ["b"]
    assert log.lines == ["two"]


@pytest.mark.parametrize(
    "view",
    [
        Trace([Input(payload="go")]),
        Trace([Input(payload="go"), ModelOutput(text="Hi")]),
        Trace([ModelOutput(calls=(ToolCall(id="a", name="n"),)), ToolOutput(call_id="a")]),
        Trace([ModelOutput(calls=(ToolCall(id="a", name="n"),)), ModelOutput(text="Hi")]),
    ],
    ids=["no output", "no calls", "answered", "older"],
)
async def test_a_step_without_calls_is_an_error(view: Trace) -> None:
    """When the latest output has no call left, the graph is at fault."""
    with pytest.raises(ValueError, match="no call without a result"):
        await step(Log())(view)


async def test_a_branch_answers_its_parents_output() -> None:
    """In a branch without an output of its own the parent's calls are answered there."""
    trace = asked(call("a", "note", text="x")).view("main/tools#2.1")
    (result,) = await step(Log())(trace)
    assert result.stream == "main/tools#2.1"


async def test_unknown_tools_are_told() -> None:
    """The error names the tool and those that there are."""
    error = await error_of(step(Log()), asked(call("a", "nope")))
    assert "`nope`" in error
    assert "`note`, `wait`, `read`" in error
    assert "no tools" in await error_of(ToolStep({}), asked(call("a", "nope")))


async def test_raw_arguments_are_told() -> None:
    """Arguments that are no JSON object are quoted, with the fields that are wanted."""
    broken = ToolCall(id="a", name="note", raw='{"text": "x')
    error = await error_of(step(Log()), asked(broken))
    assert "one JSON object with `text`, `times` (optional)" in error
    assert '{\\"text\\": \\"x' in error


async def test_arguments_that_do_not_fit_are_told_by_field() -> None:
    """There is one line for each field, with what was written, and no address of pydantic's."""
    log = Log()
    error = await error_of(step(log), asked(call("a", "note", times="many", more=[1])))
    first, *lines = error.splitlines()
    assert "`note`" in first
    assert [each.split("`")[1] for each in lines] == ["text", "times", "more"]
    assert '(you wrote "many")' in lines[1]
    assert "you wrote" not in lines[0]
    assert "http" not in error
    assert log.lines == []


class Choice(BaseModel):
    """Arguments with a union in a list."""

    items: list[int | bool | None] = []
    doc: Annotated[str, ElementId(Document)] | None = None


@dataclass(frozen=True)
class Chooser:
    """A tool by hand."""

    name: str = "choose"
    description: str = "Choose."
    arguments: type[Choice] = Choice

    async def run(self, arguments: Choice) -> ToolOutput:
        """Say what was chosen."""
        return ToolOutput(text=str(arguments.items))


async def test_a_field_of_a_union_has_one_line() -> None:
    """The members of a union share the line of the value that fits none of them."""
    error = await error_of(step(Log(), Chooser()), asked(call("a", "choose", items=[1, "x", 2])))
    assert len(error.splitlines()) == 2
    assert "- `items.1`: " in error
    assert error.endswith('(you wrote "x")')


async def test_errors_speak_in_the_models_numbers() -> None:
    """A real id in an argument that does not fit is shown as the number that was written."""
    shown = Input(elements=(Document(id="secret-id"),))
    trace = asked(call("a", "choose", items="no", doc=["secret-id"]), before=[shown])
    error = await error_of(step(Log(), Chooser()), trace)
    assert "secret-id" not in error
    assert '(you wrote ["1"])' in error


async def test_numbers_that_name_nothing_are_told_with_valid_ones() -> None:
    """Each unresolved pointer has a line that says what would be valid."""
    shown = Input(elements=(Order(id="o"), Document(id="d"), Document(id="e")))
    wrong = ToolCall(
        id="a",
        name="read",
        arguments={"doc": "1", "order": 7, "result": "r9"},
        unresolved=("/doc", "/order", "/result"),
    )
    error = await error_of(step(Log()), asked(wrong, before=[shown]))
    _, doc, order, result = error.splitlines()
    assert doc == '- `doc`: "1" is not the number of a Document. Valid: 2, 3.'
    assert order == "- `order`: 7 is not the number of a Order. Valid: 1."
    assert result == '- `result`: "r9" is not the handle of a result. There is none yet.'


async def test_long_lists_of_valid_numbers_are_cut() -> None:
    """Only the latest numbers are listed when there are many."""
    shown = Input(elements=tuple(Document(id=f"d{n}") for n in range(50)))
    wrong = ToolCall(id="a", name="read", arguments={"doc": "99"}, unresolved=("/doc",))
    error = await error_of(step(Log()), asked(wrong, before=[shown]))
    assert "Valid: …, 31, 32, " in error
    assert error.endswith("50.")


async def test_the_log_fills_in_what_a_tool_reads() -> None:
    """`Recorded` holds all turns' elements, distinct, and what a model wrote there is replaced."""
    before = [
        Input(elements=(Document(id="d"), Order(id="o", total=5))),
        ModelOutput(calls=(call("z", "note"),)),
        ToolOutput(call_id="z", elements=(Document(id="e"), Document(id="d"))),
        Input(payload="next turn"),
    ]
    trace = asked(
        call("a", "read", doc="d", order="o", result="z", seen=["made up"]), before=before
    )
    (result,) = await answers(step(Log()), trace)
    assert result.text == "d 5 z ['d', 'e']"


@pytest.mark.parametrize(
    "error",
    [
        TransientError("busy"),
        InvalidQueryError("no such field"),
        ResourceUnavailableError("gone"),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_errors_for_the_model_are_results(error: Exception) -> None:
    """The three errors that a model can act on become the call's error, without keys."""

    @tool(name="fail", description="Fail.")
    async def fail() -> ToolOutput:
        error.args = (f"{error.args[0]} sk-{'x' * 20}",)
        raise error

    told = await error_of(step(Log(), fail), asked(call("a", "fail")))
    assert told.endswith("<secret>")


@pytest.mark.parametrize("calls", [1, 2])
async def test_other_errors_fail_the_step(calls: int) -> None:
    """Any other error is raised as it is, also from calls that run side by side."""

    @tool(name="fail", description="Fail.")
    async def fail(number: int) -> ToolOutput:
        raise LookupError(f"no {number}")

    with pytest.raises(LookupError, match="no 0"):
        await step(Log(), fail)(asked(*[call(f"c{n}", "fail", number=n) for n in range(calls)]))


async def test_a_failing_call_stops_the_others() -> None:
    """When one call fails, those that still run are cancelled."""
    log = Log()

    @tool(name="fail", description="Fail.")
    async def fail() -> ToolOutput:
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        await step(log, fail)(asked(call("a", "wait", name="never"), call("b", "fail")))
    assert log.lines == []


async def test_cancelling_the_step_cancels_its_calls() -> None:
    """A cancelled step leaves no call running."""
    log = Log()
    trace = asked(call("a", "wait", name="x", opens="ran"), call("b", "wait", name="y"))
    running = asyncio.ensure_future(step(log)(trace))
    await log.gate("ran").wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    log.gate("x").set()
    log.gate("y").set()
    await asyncio.sleep(0)
    assert log.lines == []


async def test_one_call_runs_in_the_steps_own_task() -> None:
    """A single call needs no task of its own."""
    tasks = []

    @tool(name="who", description="Who.")
    async def who() -> ToolOutput:
        tasks.append(asyncio.current_task())
        return ToolOutput()

    await step(Log(), who)(asked(call("a", "nope"), call("b", "who")))
    assert tasks == [asyncio.current_task()]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"text": "x"}, {"text": "x"}),
        ({"text": "x"}, {"text": "x", "times": 1}),
        ({"text": "x", "times": "2"}, {"text": "x", "times": 2}),
    ],
    ids=["same", "default", "parsed"],
)
async def test_identical_calls_are_refused(
    first: dict[str, JsonValue], second: dict[str, JsonValue]
) -> None:
    """A call that equals one that succeeded in the turn, once parsed, does not run."""
    log = Log()
    earlier = [ModelOutput(calls=(call("a", "note", **first),)), ToolOutput(call_id="a")]
    error = await error_of(step(log), asked(call("b", "note", **second), before=earlier))
    assert "identical to an earlier one, whose result is r1" in error
    assert log.lines == []


async def test_calls_that_differ_run() -> None:
    """Other arguments, a failed earlier call, and an earlier turn's call do not count."""
    log = Log()
    one = call("a", "note", text="x")
    before: list[Event] = [ModelOutput(calls=(one,)), ToolOutput(call_id="a"), Input(payload="on")]
    before += [ModelOutput(calls=(call("b", "note", text="x"),)), ToolOutput(call_id="b", error="")]
    trace = asked(call("c", "note", text="x"), call("d", "note", text="y"), before=before)
    assert [each.error for each in await answers(step(log), trace)] == [None, None]
    assert sorted(log.lines) == ["x", "y"]


async def test_an_identical_call_in_the_same_output_is_refused() -> None:
    """The first of two equal calls runs, the second is told to use its result."""
    log = Log()
    trace = asked(call("a", "note", text="x"), call("b", "note", text="x"))
    first, second = await answers(step(log), trace)
    assert first.error is None
    assert "same answer" in (second.error or "")
    assert log.lines == ["x"]


async def test_recorded_arguments_make_no_difference() -> None:
    """Two calls of a tool are identical although the log has grown between them."""
    before = [
        Input(elements=(Document(id="d"),)),
        ModelOutput(calls=(call("a", "read", doc="d"),)),
        ToolOutput(call_id="a", elements=(Document(id="new"),)),
    ]
    trace = asked(call("b", "read", doc="d", seen=["x"]), before=before)
    assert "identical" in await error_of(step(Log()), trace)


async def test_types_make_a_difference() -> None:
    """`1` and `true` are different arguments where both fit."""
    before = [ModelOutput(calls=(call("a", "choose", items=[1]),)), ToolOutput(call_id="a")]
    trace = asked(call("b", "choose", items=[True]), before=before)
    (result,) = await answers(step(Log(), Chooser()), trace)
    assert result.text == "[True]"


class Inner(BaseModel):
    """A model in arguments."""

    n: int = 0


class Anything(BaseModel):
    """Arguments of every shape."""

    inner: Inner = Inner()
    by_name: dict[str, JsonValue] = {}
    distinct: set[int] = set()


@dataclass(frozen=True)
class Take:
    """A tool by hand that takes arguments of every shape."""

    name: str = "take"
    description: str = "Take."
    arguments: type[Anything] = Anything

    async def run(self, arguments: Anything) -> ToolOutput:
        """Take them."""
        return ToolOutput(text="ran")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"inner": {"n": 1}}, {"inner": {"n": "1"}}, True),
        ({"inner": {"n": 1}}, {"inner": {"n": 2}}, False),
        ({"by_name": {"a": [1], "b": {}}}, {"by_name": {"b": {}, "a": [1]}}, True),
        ({"by_name": {"a": [1]}}, {"by_name": {"a": [1.0]}}, False),
        ({"by_name": {"a": None}}, {"by_name": {}}, False),
        ({"distinct": [1, 2, 2]}, {"distinct": [2, 1]}, True),
        ({"distinct": [1]}, {"distinct": [2]}, False),
    ],
    ids=str,
)
async def test_identity_is_of_parsed_values(
    *, first: dict[str, JsonValue], second: dict[str, JsonValue], same: bool
) -> None:
    """Order of keys and of sets makes no difference; values and their types do."""
    before = [ModelOutput(calls=(call("a", "take", **first),)), ToolOutput(call_id="a")]
    trace = asked(call("b", "take", **second), before=before)
    (result,) = await answers(step(Log(), Take()), trace)
    assert (result.error is not None) == same


async def test_a_branch_knows_its_parents_calls() -> None:
    """A branch's call that repeats its parent's is refused; a sibling's does not count."""
    log = Log()
    one = call("a", "note", text="x")
    parent = [Input(payload="go"), ModelOutput(calls=(one,)), ToolOutput(call_id="a")]
    branch = "main/ask#3.1"
    sibling: list[Event] = [
        ModelOutput(calls=(call("s", "note", text="y"),), stream="main/ask#3.2"),
        ToolOutput(call_id="s", stream="main/ask#3.2"),
    ]
    own = ModelOutput(calls=(call("b", "note", text="x"), call("c", "note", text="y")))
    trace = Trace([*parent, *sibling, own.model_copy(update={"stream": branch})]).view(branch)
    first, second = await answers(step(log), trace)
    assert "whose result is r1" in (first.error or "")
    assert (second.error, log.lines) == (None, ["y"])


@pytest.mark.parametrize(
    ("of_step", "of_tool", "runs"),
    [(False, None, 1), (True, None, 2), (False, True, 2), (True, False, 1)],
)
async def test_repeats_lets_identical_calls_run(
    *, of_step: bool, of_tool: bool | None, runs: int
) -> None:
    """The step says whether identical calls run again, and a tool's own word wins."""
    log = Log()

    @tool(name="again", description="Again.", repeats=of_tool)
    async def again() -> ToolOutput:
        log.lines.append("ran")
        return ToolOutput()

    await step(log, again, repeats=of_step)(asked(call("a", "again"), call("b", "again")))
    assert len(log.lines) == runs


async def test_a_limited_call_sees_the_results_before_it() -> None:
    """A call to a tool with a limit waits for all earlier calls, and counts them."""
    log = Log()

    @tool(name="find", description="Find.", limit=at_most(2, elements=Document, error="Enough."))
    async def find(number: int, *, seen: Recorded[Document]) -> ToolOutput:
        log.lines.append(f"{number} after {len(seen)}")
        return ToolOutput(elements=(Document(id=f"d{number}"),))

    trace = asked(
        call("a", "wait", name="slow"),
        *[call(f"c{n}", "find", number=n) for n in range(4)],
        call("z", "wait", name="fast", opens="slow"),
    )
    log.gate("fast").set()
    results = await answers(step(log, find), trace)
    assert [each.error for each in results] == [None, None, None, "Enough.", "Enough.", None]
    assert log.lines[0] == "fast"
    assert log.lines[1:] == ["slow", "0 after 0", "1 after 1"]


async def test_a_limited_call_after_a_failing_one_does_not_run() -> None:
    """When a call before it fails the step, a call that waited never runs."""
    log = Log()

    @tool(name="find", description="Find.", limit=at_most(2, calls="find", error="Enough."))
    async def find(number: int) -> ToolOutput:
        if number == 0:
            raise LookupError("broken")
        log.lines.append("ran")
        return ToolOutput()

    with pytest.raises(LookupError, match="broken"):
        await step(log, find)(asked(call("a", "find", number=0), call("b", "find", number=1)))
    assert log.lines == []


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=12))
def test_limits_and_repeats_hold_step_by_step(steps: list[tuple[int, bool]]) -> None:
    """Over a conversation a tool runs as often as its limit and the calls before it allow."""
    runs: list[int] = []

    @tool(name="try", description="Try.", limit=at_most(2, calls="try", error="Enough."))
    async def attempt(number: int) -> ToolOutput:
        runs.append(number)
        return ToolOutput(error="no" if (number, True) in failing else None)

    failing: set[tuple[int, bool]] = set()
    made = ToolStep({"try": attempt})
    events: list[Event] = [Input(payload="go")]
    done: list[int] = []
    expected: list[int] = []
    with asyncio.Runner() as runner:
        for place, (number, fails) in enumerate(steps):
            failing = {(number, fails)}
            events.append(ModelOutput(calls=(call(f"c{place}", "try", number=number),)))
            if number not in done and len(done) < 2:
                expected.append(number)
                done += [] if fails else [number]
            events += runner.run(answers(made, Trace(events)))
            assert runs == expected


async def test_a_result_of_another_class_fails_the_step() -> None:
    """A tool that returns no ToolOutputBase is named, with what it returned."""

    @tool(name="odd", description="Odd.")
    async def odd() -> ToolOutput:
        return ["no result"]  # type: ignore[return-value]  # what is refused

    with pytest.raises(ToolResultError) as refused:
        await step(Log(), odd)(asked(call("a", "odd")))
    assert (refused.value.tool, refused.value.returned) == ("odd", list)


@tool(name="show", description="Show.")
async def show(part: str, whole: str, both: bool = False) -> ToolOutput:
    """Show a part, and its whole when asked."""
    elements = (Document(id=part, ref=whole), *([Document(id=whole)] if both else []))
    return ToolOutput(elements=elements)


async def test_a_part_without_its_whole_fails_the_step() -> None:
    """A part whose whole nothing recorded is refused; a named `ref` alone is not enough."""
    named = Input(elements=(Document(id="other", ref="whole"),))
    with pytest.raises(UnrecordedWholeError) as refused:
        await step(Log(), show)(asked(call("a", "show", part="p", whole="whole"), before=[named]))
    error = refused.value
    assert (error.tool, error.element, error.ref) == ("show", "p", "whole")


@pytest.mark.parametrize("where", ["view", "same output", "earlier call"])
async def test_a_part_beside_its_whole_is_fine(where: str) -> None:
    """The whole may be in the view, in the same output, or in an earlier call's."""
    before = [Input(elements=(Document(id="w"),))] if where == "view" else []
    calls = [call("b", "show", part="p", whole="w", both=where == "same output")]
    if where == "earlier call":
        calls.insert(0, call("a", "show", part="q", whole="w", both=True))
    results = await step(Log(), show)(asked(*calls, before=before))
    assert len(results) == len(calls)


async def test_a_tools_envelope_is_its_calls() -> None:
    """A call id that a tool sets itself is replaced by the call's."""

    @tool(name="own", description="Own.")
    async def own() -> ToolOutput:
        return ToolOutput(call_id="mine", text="x")

    (result,) = await answers(step(Log(), own), asked(call("a", "own")))
    assert (result.call_id, result.text) == ("a", "x")


@dataclass(frozen=True)
class Extra:
    """A tool whose `run` wants more than the arguments."""

    name: str = "extra"
    description: str = "Extra."
    arguments: type[Choice] = Choice

    async def run(self, arguments: Choice, trace: Trace) -> ToolOutput:
        """Never runs."""
        return ToolOutput()


@dataclass(frozen=True)
class Keeping(Chooser):
    """A tool that keeps what it saw."""

    cache: dict[str, str] = field(default_factory=dict)


async def test_tools_are_judged_when_the_step_is_made() -> None:
    """State, unbound parameters and other parameters of `run` are refused at once."""
    with pytest.raises(MutableToolError) as mutable:
        ToolStep({"choose": Keeping()})
    assert mutable.value.fields == ("cache",)
    with pytest.raises(ToolDefinitionError, match=r"note\.bind\(log=\.\.\.\)"):
        ToolStep({"note": note})
    with pytest.raises(ToolDefinitionError, match="arguments alone"):
        ToolStep({"extra": Extra()})  # type: ignore[dict-item]  # what is refused


class Undecorated(Chooser):
    """A tool that inherits from a frozen dataclass, and could set attributes of its own."""


class ByHand:
    """A tool that is no dataclass at all."""

    name = "hand"
    description = "By hand."
    arguments = Choice

    async def run(self, arguments: Choice) -> ToolOutput:
        """Never runs."""
        return ToolOutput()


@pytest.mark.parametrize("made", [ByHand(), Undecorated()], ids=["plain", "undecorated"])
async def test_a_tool_that_is_no_frozen_dataclass_is_refused(made: ByHand | Undecorated) -> None:
    """The tool's own class must be a frozen dataclass."""
    with pytest.raises(MutableToolError) as refused:
        ToolStep({"hand": made})
    assert (refused.value.fields, refused.value.holds) == ((), None)


async def test_a_step_keeps_the_tools_that_it_was_made_with() -> None:
    """A mapping that changes later does not change the step."""
    tools: dict[str, FunctionTool[..., ToolOutput]] = {"note": note.bind(log=Log())}
    made = ToolStep(tools)
    tools.clear()
    result: ToolOutputBase
    (result,) = await answers(made, asked(call("a", "note", text="x")))
    assert result.error is None
