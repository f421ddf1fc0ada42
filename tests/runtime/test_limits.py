"""Limits of a tool's use in a turn."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soev.domain import Event, Input, ModelOutput, ToolCall, ToolOutput, Trace, TraceBuilder
from soev.runtime._limits import AtMost, at_most
from tests.runtime.elements import Document, Letter, Order


def called(name: str, call_id: str, error: str | None = None) -> list[Event]:
    """Return an output that calls a tool, and the result."""
    output = ModelOutput(calls=(ToolCall(id=call_id, name=name),))
    return [output, ToolOutput(call_id=call_id, error=error)]


STEPS = st.lists(
    st.one_of(
        st.just("turn"),
        st.tuples(st.sampled_from(["search", "read"]), st.booleans(), st.integers(0, 3)),
    ),
    max_size=12,
)


def events_of(steps: list[object]) -> list[Event]:
    """Make a conversation of turns and calls."""
    events: list[Event] = [Input(payload="go")]
    for place, step in enumerate(steps):
        if isinstance(step, tuple):
            name, fails, shown = step
            output, result = called(name, f"c{place}", "no" if fails else None)
            element = Document(id=f"d{shown}")
            events += [output, result.model_copy(update={"elements": (element,)})]
        else:
            events.append(Input(payload="again", elements=(Document(id="d0"),)))
    return events


@given(STEPS, st.integers(1, 3))
def test_limits_count_the_turn(steps: list[object], n: int) -> None:
    """At every event a limit holds for the calls and the elements of its turn alone."""
    builder = TraceBuilder()
    calls = at_most(n, calls="search", error="spent")
    elements = at_most(n, elements=Document, error="full")
    for event in events_of(steps):
        builder.feed(event)
        view = builder.view("main")
        turn = view.turn
        names = {call.id: call.name for each in turn.of(ModelOutput) for call in each.calls}
        done = [each for each in turn.of(ToolOutput) if each.error is None]
        count = sum(names[each.call_id or ""] == "search" for each in done)
        assert calls(view) == ("spent" if count >= n else None)
        assert elements(view) == ("full" if len(turn.elements(Document)) >= n else None)


def test_an_element_counts_once_and_by_class() -> None:
    """Subclasses count, other classes do not, and an id counts once."""
    shown = (Document(id="a"), Letter(id="b"), Order(id="c"), Document(id="a"))
    view = Trace([Input(elements=shown)])
    assert at_most(2, elements=Document, error="full")(view) == "full"
    assert at_most(3, elements=Document, error="full")(view) is None


def test_a_branch_counts_what_its_parent_did() -> None:
    """A branch sees the parent's calls and not its siblings'."""
    limit = at_most(2, calls="search", error="spent")
    events = [Input(payload="go"), *called("search", "a")]
    for stream, call_id in (("main/x#3.1", "b"), ("main/y#3.2", "c")):
        events += [each.model_copy(update={"stream": stream}) for each in called("search", call_id)]
    trace = Trace(events)
    assert limit(trace.view("main/x#3.1")) == "spent"
    assert limit(Trace(events[:3]).view("main/z#3.3")) is None
    assert at_most(3, calls="search", error="spent")(trace.view("main/y#3.2")) is None
    assert at_most(3, calls="search", error="spent")(trace.view("main")) == "spent"


def test_a_result_in_a_branch_counts_for_its_parents_call() -> None:
    """Calls that a branch answers for its parent count there, and after the join, once each."""
    output, result = called("search", "a")
    answered = [result.model_copy(update={"stream": f"main/t#2.{n}"}) for n in (1, 2)]
    trace = Trace([Input(payload="go"), output, *answered])
    for view in (trace.view("main/t#2.1"), trace.view("main/t#2.2"), trace.view("main")):
        assert at_most(1, calls="search", error="spent")(view) == "spent"
        assert at_most(2, calls="search", error="spent")(view) is None


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: at_most(0, calls="x", error="e"), "limit of 0"),
        (lambda: at_most(1, error="e"), "exactly one"),
        (lambda: at_most(1, calls="x", elements=Document, error="e"), "exactly one"),
        (lambda: AtMost(1, "e"), "exactly one"),
    ],
    ids=["none", "nothing", "both", "by hand"],
)
def test_limits_that_count_nothing_are_refused(make: Callable[[], AtMost], match: str) -> None:
    """A limit below 1, or not of exactly one thing, is a ValueError."""
    with pytest.raises(ValueError, match=match):
        make()


def test_limits_compare_by_value() -> None:
    """`at_most` makes a plain value, so that equal limits are equal."""
    assert at_most(2, calls="x", error="e") == AtMost(2, "e", "x")
