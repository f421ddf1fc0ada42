"""Traces: what a window on a thread's events tells."""

from __future__ import annotations

import pickle
from typing import ClassVar

import pytest

from soev.domain import (
    Cancelled,
    Element,
    Ended,
    Event,
    Input,
    ModelOutput,
    Request,
    Source,
    ToolCall,
    ToolOutput,
    ToolOutputBase,
    Trace,
    TraceBuilder,
    stamped,
)


class Page(Source):
    """An element that can be cited."""

    tag: ClassVar[str] = "page"


class Row(Element):
    """An element that cannot."""

    tag: ClassVar[str] = "row"


class Found(ToolOutput):
    """A result class of a team's own."""

    type: ClassVar[str] = "found"


def called(*ids: str, stream: str = "main") -> ModelOutput:
    """Return an output that calls tools."""
    calls = tuple(ToolCall(id=each, name="t", arguments={}) for each in ids)
    return ModelOutput(calls=calls, stream=stream)


FRESH = Input(payload="hi")


def test_trace_is_a_sequence() -> None:
    """A trace has a length, indices from both ends, slices, and an order."""
    events = [FRESH, ModelOutput(text="a"), Ended()]
    trace = Trace(events)
    assert len(trace) == 3
    assert list(trace) == events
    assert (trace[0], trace[-1]) == (events[0], events[2])
    assert list(trace[1:]) == events[1:]
    assert list(trace[::-1]) == events[::-1]
    assert list(trace[1:][-1:]) == events[2:]
    assert list(trace[2:1]) == []
    assert list(reversed(trace)) == events[::-1]
    assert events[1] in trace


@pytest.mark.parametrize("index", [3, -4])
def test_index_outside_the_trace(index: int) -> None:
    """An index that no event has is an IndexError that says how many there are."""
    with pytest.raises(IndexError, match="among 3"):
        Trace([FRESH, Ended(), FRESH])[index]


def test_slice_ends_where_it_ends() -> None:
    """A part of a trace knows nothing before and after it."""
    trace = Trace([FRESH, called("c1"), Ended()])
    assert trace[1:2].latest(Input) is None
    assert trace[:1].latest() == FRESH
    assert trace[1:].opening is None
    assert len(trace[1:].turn) == 0
    with pytest.raises(IndexError):
        trace[:1][1]


def test_traces_compare_by_stream_and_events() -> None:
    """Two traces of the same events are equal when they are of the same stream."""
    assert Trace([FRESH]) == Trace([FRESH])
    assert Trace([FRESH]) != Trace([FRESH], "main/a#1.1")
    assert Trace([FRESH]) != Trace([FRESH, Ended()])
    assert Trace([FRESH]) != [FRESH]


def test_trace_pickles() -> None:
    """A trace survives pickling with its stream."""
    trace = Trace([FRESH, Ended()], "main/a#1.1")
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_turn_begins_at_the_last_fresh_input() -> None:
    """A response opens no turn; the input of the next turn does."""
    events = [FRESH, Request(kind="k", actor="person"), Input(answers=2), Ended()]
    trace = Trace(events)
    assert trace.opening == FRESH
    assert list(trace.turn) == events
    second = Input(payload="second")
    longer = Trace([*events, second, called("c1")])
    assert longer.opening == second
    assert list(longer.turn) == [second, called("c1")]
    assert longer[:4].opening == FRESH


def test_trace_without_a_turn() -> None:
    """Before the first input there is no turn."""
    assert Trace().opening is None
    assert list(Trace([called("c1")]).turn) == []


def test_heads_of_tasks_open_no_turn_of_the_root() -> None:
    """The thread's turn is the root's; a task's turn begins at its head."""
    head = Input(payload="task", stream="main/d#2.1")
    trace = Trace([FRESH, called("c1"), head])
    assert trace.opening == FRESH
    assert trace.view("main/d#2.1").opening == head
    assert list(trace.view("main/d#2.1").turn) == [head]


def test_turn_of_a_branch_is_that_of_its_parent() -> None:
    """In a branch the turn includes the parent's part."""
    own = called("c2", stream="main/a#2.1")
    view = Trace([Ended(), FRESH, own]).view("main/a#2.1")
    assert view.opening == FRESH
    assert list(view.turn) == [FRESH, own]


def test_latest_and_of_go_by_class() -> None:
    """Subclasses count, several classes may be asked for, and none means any event."""
    found = Found(text="x")
    events = [FRESH, called("c1"), found, Ended()]
    trace = Trace(events)
    assert trace.latest() == Ended()
    assert trace.latest(ToolOutputBase) == found
    assert trace.latest(ModelOutput, Input) == called("c1")
    assert trace.latest(Request) is None
    assert trace.of(ToolOutput) == (found,)
    assert trace.of(Event) == tuple(events)


def test_latest_of_an_older_trace() -> None:
    """What was appended later does not show in a trace that was made before."""
    builder = TraceBuilder()
    builder.feed(FRESH)
    before = builder.trace()
    builder.feed(Ended())
    assert builder.trace().latest(Ended) == Ended()
    assert before.latest(Ended) is None
    assert (len(before), len(builder)) == (1, 2)
    assert before.thread == before


def test_elements_are_distinct() -> None:
    """Elements come in order of first appearance, once each, and by class."""
    page, row, same = Page(id="p"), Row(id="r"), Page(id="p")
    trace = Trace(
        [Input(elements=(row,)), ToolOutput(elements=(page, row)), ToolOutput(elements=(same,))]
    )
    assert trace.elements() == (row, page)
    assert trace.elements(Source) == (page,)
    assert trace[:1].elements() == (row,)
    assert trace[1:].elements() == (page, row)


def test_results_belong_to_the_nearest_earlier_call() -> None:
    """A call id that comes again belongs to the later call from there on."""
    first, second = called("c1"), called("c1")
    one, two = ToolOutput(call_id="c1", text="1"), ToolOutput(call_id="c1", text="2")
    early = ToolOutput(call_id="c1", text="0")
    results = Trace([early, first, one, second, two]).results()
    assert results[first.calls[0]] is one
    assert results[second.calls[0]] is two
    assert len(results) == 2
    assert list(results.values()) == [one, two]


def test_results_of_calls_without_one() -> None:
    """A call without a result is not in the mapping."""
    output = called("c1", "c2")
    result = ToolOutput(call_id="c2")
    results = Trace([output, result]).results()
    assert output.calls[0] not in results
    assert results[output.calls[1]] is result
    with pytest.raises(KeyError):
        results[output.calls[0]]


def test_results_of_sibling_branches_do_not_meet() -> None:
    """Equal call ids in sibling branches have each their own result."""
    a, b = "main/a#1.1", "main/b#1.2"
    outputs = called("c1", stream=a), called("c1", stream=b)
    results = ToolOutput(call_id="c1", stream=b), ToolOutput(call_id="c1", stream=a)
    found = Trace([FRESH, *outputs, *results]).view("main").results()
    assert found[outputs[0].calls[0]] is results[1]
    assert found[outputs[1].calls[0]] is results[0]


def test_branch_answers_the_output_of_its_parent() -> None:
    """A result in a branch that made no such call belongs to the parent's."""
    output, result = called("c1"), ToolOutput(call_id="c1", stream="main/a#1.1")
    found = Trace([output, result]).view("main/a#1.1").results()
    assert found[output.calls[0]] is result


def test_later_calls_of_the_parent_do_not_reach_a_branch() -> None:
    """A branch that is read again later still answers what its parent had called before it."""
    stream, first, second = "main/a#1.1", called("c1"), called("c1")
    result = ToolOutput(call_id="c1", stream=stream)
    builder = TraceBuilder()
    builder.feed(first)
    builder.feed(called("c2", stream=stream))
    assert len(builder.view(stream).results()) == 0
    builder.feed(result)
    builder.feed(second)
    builder.view("main").results()
    found = builder.view(stream).results()
    assert found[first.calls[0]] is result


def test_later_elements_of_the_parent_do_not_reach_a_branch() -> None:
    """What the parent was shown after the join does not hide what the branch was shown."""
    stream, page = "main/a#1.1", Page(id="p")
    builder = TraceBuilder()
    builder.feed(FRESH)
    builder.feed(called("c1", stream=stream))
    assert builder.view(stream).elements() == ()
    builder.feed(ToolOutput(stream=stream, elements=(page,)))
    builder.feed(ToolOutput(elements=(page,)))
    assert builder.view("main").elements() == (page,)
    assert builder.view(stream).elements() == (page,)


def test_response_is_found_in_the_whole_thread() -> None:
    """The response to a request is found from every view, once it is there."""
    request = Request(kind="k", actor="person", stream="main/a#1.1", seq=1)
    other = Request(kind="k", actor="person", seq=2)
    answer = Input(answers=1, stream="main/a#1.1", seq=2)
    trace = Trace([stamped(FRESH, seq=1), request, other, answer])
    assert trace.response_to(request) == answer
    assert trace.view("main").response_to(request) == answer
    assert trace.response_to(other) is None
    assert trace[:3].view("main").response_to(request) == answer
    assert Trace(list(trace)[:3]).response_to(request) is None


def test_response_to_a_request_that_was_not_stored() -> None:
    """A request without a seq counts as the next of its stream."""
    request, answer = Request(kind="k", actor="person"), Input(answers=2)
    trace = Trace([FRESH, request, answer])
    assert trace.response_to(request) is answer
    assert trace.response_to(Request(kind="k", actor="person")) is None


def test_streams_by_first_appearance() -> None:
    """The names of all streams that have an event, in the order in which they began."""
    trace = Trace([FRESH, called("c", stream="main/b#1.2"), called("c", stream="main/a#1.1")])
    trace.view("main/c#1.3")
    assert trace.streams == ("main", "main/b#1.2", "main/a#1.1")


def test_view_does_not_show_the_thread() -> None:
    """On the view of a stream the thread, its streams and other views are refused."""
    view = Trace([FRESH]).view("main")
    for ask in (
        lambda: view.thread,
        lambda: view.streams,
        lambda: view.view("main"),
        lambda: view[:1].thread,
    ):
        with pytest.raises(ValueError, match="view of stream 'main'"):
            ask()


def test_a_whole_view_shows_the_thread() -> None:
    """What settles an effect in a branch may know of a cancel in the root."""
    log = TraceBuilder()
    for event in (FRESH, called("c", stream="main/a#1.1"), Cancelled(input=1)):
        log.feed(event)
    view = log.view("main/a#1.1", whole=True)
    assert (view.stream, len(view)) == ("main/a#1.1", 2)
    assert view.thread.turn.latest(Cancelled) is not None
    with pytest.raises(ValueError, match="does not show the whole thread"):
        log.view("main/a#1.1").thread  # noqa: B018  # asking is what is tested


def test_folds_are_kept_with_the_thread() -> None:
    """A fold is stepped once for each event, however often and of whichever view it is asked."""
    stepped: list[Event] = []

    class Count:
        def start(self) -> int:
            return 0

        def step(self, state: int, event: Event) -> int:
            stepped.append(event)
            return state + 1

        def fork(self, state: int) -> int:
            return state

    builder, count = TraceBuilder(), Count()
    for number in range(1, 6):
        builder.feed(called(f"c{number}"))
        assert builder.view("main").fold(count) == number
    assert len(stepped) == 5
    builder.feed(called("c", stream="main/a#5.1"))
    assert builder.view("main/a#5.1").fold(count) == 6
    assert len(stepped) == 6
    assert builder.view("main")[:2].fold(count) == 2
    assert builder.view("main")[1:3].fold(count) == 2
