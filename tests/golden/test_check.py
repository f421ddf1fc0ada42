"""Golden traces held to agents that changed in all the ways that agents change."""

from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import BaseModel

from soev.domain import Event, Input, JsonValue, ModelOutput, StoredEvent
from soev.golden import (
    CheckOptions,
    ConflictMarkersError,
    GoldenTrace,
    TraceReport,
    check,
    damaged,
    golden_trace,
    parse_calls,
    render_calls,
    trace_text,
)
from soev.runtime import Graph, encode

from .shop import PROMPT, Document, agents, called, found, log, pinned, react, refund, said, turn

pytestmark = pytest.mark.anyio
SHORTER = PROMPT.replace("Answer briefly.", "Answer in one sentence.")


async def accepted_text(golden: GoldenTrace, prompt: Any = PROMPT) -> str:
    """Return the calls file that accepting would write."""
    return (await check(golden, None, agents(prompt))).rendering


def matches(text: str, pattern: str) -> bool:
    """Tell whether a text is what a pattern with `*` says."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


async def test_an_accepted_trace_passes_with_the_code_that_recorded_it() -> None:
    """Unchanged code sends what was really sent, call by call."""
    golden = await refund()
    report = await check(golden, await accepted_text(golden), agents())
    assert (report.verdict, report.passed, report.drifted) == ("same", True, False)
    assert [call.same_as_recorded for call in report.calls] == [True] * 4
    assert trace_text(report) == ""


async def test_a_trace_without_an_accepted_file_is_missing() -> None:
    """The message names the command that accepts new files, and the file to commit."""
    report = await check(await refund(), None, agents())
    assert (report.verdict, report.passed, report.acceptable) == ("missing", False, True)
    assert trace_text(report) == (
        'no accepted requests yet: run "pytest --soev-replay --soev-update=new" and commit '
        "refund.calls.md"
    )


async def test_a_changed_prompt_is_shown_once_with_its_line() -> None:
    """The failure shows the hunk, the calls, and the size, for all calls of the trace together."""
    golden = await refund()
    report = await check(golden, await accepted_text(golden), agents(SHORTER))
    assert (report.verdict, report.acceptable) == ("changed", True)
    assert matches(
        trace_text(report),
        """\
4 of 4 calls changed. First: call 1, turn 1, node model (refund.calls.md:12)

  A  system message
       You are a support assistant.
     - Answer briefly.
     + Answer in one sentence.
       Cite each source.

  calls 1-4: A
  size: * -> * characters (+*%)""",
    )
    assert parse_calls(report.rendering).calls[0].comparison == "changed since recorded"


async def test_whole_requests_are_shown_on_request() -> None:
    """With `-vv` each changed request follows, before and after."""
    golden = await refund()
    accepted = await accepted_text(golden)
    report = await check(golden, accepted, agents(SHORTER))
    text = trace_text(report, verbosity=2, accepted=accepted)
    before, today = text.split("call 4, accepted:")[1].split("call 4, today:")
    assert "0 system\n      You are a support assistant.\n      Answer briefly." in before
    assert "0 system\n      You are a support assistant.\n      Answer in one" in today
    assert "  tool search\n      Search the documents." in today


async def test_an_accepted_change_passes_and_counts_as_drifted() -> None:
    """Once today's requests are accepted, the trace passes although the log says otherwise."""
    golden = await refund()
    report = await check(golden, await accepted_text(golden, SHORTER), agents(SHORTER))
    assert (report.verdict, report.passed, report.drifted) == ("drifted", True, True)


async def test_taking_an_accepted_change_back_is_named() -> None:
    """Code that again sends what was really sent is a change, with a hint that says so."""
    golden = await refund()
    report = await check(golden, await accepted_text(golden, SHORTER), agents())
    assert (report.verdict, report.passed) == ("reverted", False)
    assert "again sends what was really sent" in trace_text(report)


async def test_a_representation_alone_is_no_change() -> None:
    """A calls file that a formatter went over, with CRLF, passes and has another text."""
    golden = await refund()
    text = (await accepted_text(golden)).replace("\n#", "\n\n#").replace("\n", "\r\n")
    report = await check(golden, text, agents())
    assert report.passed
    assert report.rendering != text
    assert report.rendering == render_calls(parse_calls(text))


async def test_an_unknown_agent_is_obsolete() -> None:
    """A trace of an agent that the project no longer has is named with those that it has."""
    golden = await refund()
    report = await check(golden, None, {"helper": react(), "router": react()})
    (problem,) = report.problems
    assert (report.verdict, problem.kind) == ("broken", "obsolete")
    assert problem.text == "agent 'assistant' is not in the catalog (helper, router)"


class Quote(Event):
    """What a class of the project looked like when the trace was recorded."""

    type: ClassVar[str] = "refund_quote"

    amount: JsonValue


class StrictQuote(Event):
    """The same class today."""

    type: ClassVar[str] = "refund_quote"

    amount: int


async def quoted_trace() -> GoldenTrace:
    """Make a trace with an event of the project's own."""
    quote = encode(Quote(amount="12.50", origin="model", left=0))
    events = (*log(*turn()), quote)
    return golden_trace("quote", "assistant", events)


@pytest.mark.parametrize(
    ("event_types", "kind", "pattern"),
    [
        (
            (),
            "undecodable",
            "event 7: type 'refund_quote' is not among the types of agent 'assistant'; "
            "add the class to its `event_types`",
        ),
        ((StrictQuote,), "unreadable", "event 7 (refund_quote): field 'amount': *integer*"),
    ],
)
async def test_events_that_cannot_be_read_are_named(
    event_types: tuple[type[Event], ...], kind: str, pattern: str
) -> None:
    """An event of an unlisted class, or that no longer fits its class, stops the replay."""
    report = await check(await quoted_trace(), None, agents(event_types=event_types))
    (problem,) = report.problems
    assert (problem.kind, problem.file, problem.line) == (kind, "quote.soev.jsonl", 8)
    assert matches(problem.text, pattern)
    assert not report.rendering


async def test_an_element_of_an_unlisted_class_is_named() -> None:
    """The message says where the class of an element must be added."""
    result = found("call_x1", elements=(Document(id="d", title="Refunds"),))
    events = log([Input(payload="Hi")], [called("call_x1")], [result], said("Done."))
    golden = golden_trace("elements", "assistant", events)
    report = await check(golden, None, agents(element_types=()))
    assert "element tag 'document' is not among those of agent 'assistant'" in trace_text(report)


class Ticket(BaseModel):
    """An input that the first turns did not have."""

    text: str
    priority: Literal["high", "low"]


async def test_a_turn_that_cannot_be_built_is_named_once() -> None:
    """An input that no longer fits is a problem of its turn, not of each of its calls."""
    report = await check(await refund(), None, agents(input=Ticket))
    assert [problem.kind for problem in report.problems] == ["unbuildable", "unbuildable"]
    text = report.problems[1].text
    assert matches(text, "turn 2: *Ticket*. Threads with this input cannot resume")
    assert report.problems[1].line == 8


async def test_a_build_that_calls_a_resource_fails_with_its_name() -> None:
    """Replay hands out resources that refuse, so a build that uses one is found."""
    report = await check(await refund(), None, {"assistant": EagerAgent()})
    assert "`resources.index.open` cannot be used here" in report.problems[0].text
    assert report.problems[0].text.startswith("turn 1: `build` raised\n")


async def test_a_missing_node_is_unreplayable_with_the_events_around_it() -> None:
    """A call whose node is gone says so and shows where it stands."""
    events = log([Input(payload="Hi")], [called("call_x1", node="writer")])
    golden = golden_trace("gone", "assistant", events)
    report = await check(golden, None, agents())
    (problem,) = report.problems
    assert (problem.kind, problem.call) == ("unreplayable", 1)
    assert "call 1 (turn 1, node writer)" in problem.text
    assert problem.text.endswith(
        "  event 1: opened in main\n  event 2: input in main\n"
        "  event 3: model_output in main, node writer"
    )


async def test_a_project_may_only_be_warned_of_unreplayable_calls() -> None:
    """With the policy `warn` the other calls of the trace are compared all the same."""
    events = await pinned(log(*turn(), [Input(payload="Hi")], [called("c", node="writer")]))
    golden = golden_trace("gone", "assistant", events)
    options = CheckOptions(unreplayable="warn")
    first = await check(golden, None, agents(), options)
    report = await check(golden, first.rendering, agents(), options)
    assert (report.verdict, len(report.warnings), report.problems) == ("same", 1, ())
    assert "not replayable" in report.rendering


def prompt_that_fails(turn: Any) -> str:
    """Raise where a prompt belongs."""
    raise KeyError("locale")


class WrappedAgent:
    """An agent that is made of another one."""

    def __init__(self) -> None:
        self.agent = react()
        self.input = self.agent.input
        self.element_types = self.agent.element_types
        self.event_types = self.agent.event_types


class EagerAgent(WrappedAgent):
    """An agent that asks its resources for something when it is built."""

    def build(self, resources: Any, turn: Any, model: str | None) -> Graph:
        resources.index.open()
        return self.agent.build(resources, turn, model)


class FailingBuilder(WrappedAgent):
    """An agent whose context builder raises."""

    def build(self, resources: Any, turn: Any, model: str | None) -> Graph:
        graph, broken = self.agent.build(resources, turn, model), Graph()
        step = graph.node("model").step
        broken.add_node("model", replace(step, builder=builder_that_fails))  # type: ignore[type-var]  # a dataclass
        broken.set_entry_point("model")
        return broken


def builder_that_fails(view: Any) -> Any:
    """Raise where a context belongs."""
    raise KeyError("locale")


async def test_a_builder_that_raises_shows_the_project_s_own_traceback() -> None:
    """The traceback begins at the project's first frame, not in this package."""
    report = await check(await refund(), None, {"assistant": FailingBuilder()})
    problem = report.problems[0]
    assert problem.kind == "builder raised"
    head, first, place, *_ = problem.text.split("\n")
    assert head == "call 1 (turn 1, node model): the context builder raised"
    assert first.startswith("Traceback")
    assert place.strip().startswith("File ")
    assert "in builder_that_fails" in place
    assert problem.text.endswith("KeyError: 'locale'")


async def test_a_prompt_that_raises_is_a_turn_that_cannot_be_built() -> None:
    """What `build` raises is shown with the project's traceback too."""
    report = await check(await refund(), None, agents(prompt_that_fails))
    assert report.problems[0].text.startswith("turn 1: `build` raised\nTraceback")
    assert "in prompt_that_fails" in report.problems[0].text.split("\n")[2]


async def test_two_builds_that_differ_are_impure() -> None:
    """A builder that counts its own calls is found by the second replay, with what differs."""
    numbers = count()
    report = await check(await refund(), None, agents(lambda turn: f"Build {next(numbers)}."))
    (problem,) = report.problems
    assert problem.kind == "impure"
    assert problem.text.startswith("two builds of call 1 from the same trace differ")
    assert "- Build 0.\n  + Build " in problem.text


async def test_secrets_in_errors_are_not_shown() -> None:
    """A key in an error's text is replaced in the report."""

    def leak(turn: Any) -> str:
        raise ValueError("bad key sk-abcdefghijklmnopqrstuvwx")

    report = await check(await refund(), None, agents(leak))
    assert "sk-abc" not in str(report.to_json())
    assert "<secret>" in report.problems[0].text


async def test_a_request_that_grew_too_much_is_named_and_can_be_accepted() -> None:
    """Growth beyond the limit has its own line; within the limit it has none."""
    golden = await refund()
    accepted = await accepted_text(golden)
    grown = agents(PROMPT + "\nBe kind." * 20)
    report = await check(golden, accepted, grown)
    (problem,) = report.problems
    assert matches(problem.text, "call 1 grew by 180 characters (+*%) against *allows 10%")
    assert (report.verdict, report.acceptable, problem.kind) == ("changed", True, "growth")
    assert (await check(golden, accepted, grown, CheckOptions(max_growth=None))).problems == ()


async def test_a_report_survives_json() -> None:
    """What a worker found reaches the controller unchanged."""
    golden = await refund()
    report = await check(golden, await accepted_text(golden), agents(SHORTER))
    assert TraceReport.from_json(report.to_json()) == report


async def test_damaged_files_are_reports_too(tmp_path: Path) -> None:
    """A calls file with conflict markers is a problem with file and line."""
    golden = await refund()
    text = (await accepted_text(golden)).replace("### 1 user", "<<<<<<< HEAD\n### 1 user", 1)
    report = await check(golden, text, agents())
    assert report.problems[0].text.startswith("refund.calls.md:15: git conflict markers at line 15")
    with pytest.raises(ConflictMarkersError, match="git conflict markers") as caught:
        parse_calls(text, "tests/refund.calls.md")
    assert damaged(tmp_path / "refund.soev.jsonl", caught.value).verdict == "broken"


async def test_files_are_named_as_the_caller_names_them() -> None:
    """Reports show the path that the caller gave for showing."""
    golden = replace(await refund(), shown="tests/golden/refund.soev.jsonl")
    report = await check(golden, None, {})
    assert report.file == "tests/golden/refund.calls.md"
    assert report.problems[0].file == "tests/golden/refund.soev.jsonl"


def without_tools(events: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
    """Return a log in which the tools never ran: the output is followed by another."""
    return tuple(event for event in events if event.type != "tool_output")


async def test_routes_hold_for_the_code_that_recorded_them() -> None:
    """Every decision of an unchanged agent is the recorded one."""
    golden = await refund()
    report = await check(golden, None, agents(), CheckOptions(routes=True))
    assert (report.verdict, report.problems) == ("same", ())


async def test_a_route_that_differs_is_named_and_can_be_accepted() -> None:
    """The message shows where today's router goes; an accepted exception makes it pass."""
    golden = golden_trace("skip", "assistant", without_tools(log(*turn())))
    accepted = await accepted_text(golden)
    options = CheckOptions(routes=True)
    report = await check(golden, accepted, agents(), options)
    assert (report.verdict, report.acceptable) == ("changed", True)
    assert matches(
        trace_text(report),
        "after event 3 (node model) today's router goes to 'tools'; the recorded turn went to "
        "'model'\n*The rest of turn 1 is not comparable. To accept: "
        "route: model -> tools (recorded: model)",
    )
    assert "\nroute: model -> tools (recorded: model)\n" in report.rendering
    assert (await check(golden, report.rendering, agents(), options)).passed
    again = await check(golden, report.rendering, agents())
    assert again.passed
    assert "route: model -> tools" in again.rendering


async def test_a_call_without_a_recorded_hash_is_compared_too() -> None:
    """A trace of outputs without hashes is not comparable with what was sent, and still held."""
    golden = golden_trace(
        "bare", "assistant", log([Input(payload="Hi")], [ModelOutput(origin="model")])
    )
    accepted = await accepted_text(golden)
    assert "not comparable" in accepted
    assert (await check(golden, accepted, agents())).verdict == "same"
    assert (await check(golden, accepted, agents(SHORTER))).verdict == "changed"
