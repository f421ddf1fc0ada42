"""The table of one stream in one turn: each row, on hand-made traces."""

from __future__ import annotations

import pytest

from soev.domain import Cancelled, Ended, Event, Input, ModelOutput, Opened, Trace
from soev.runtime._errors import GraphMismatchError
from soev.runtime._graph import Budget
from soev.runtime._plan import Action, End, Fault, Recover, RunStep, Trip, plan

from .turns import (
    Mail,
    actions,
    failed,
    graph_of,
    intent,
    log,
    note,
    output,
    request,
    result,
    step,
    steps,
    tripped,
)

LOOP = graph_of(
    steps("model tools"),
    {"model": lambda view: "tools" if view[-1] != note("x") else None, "tools": "model"},
)
LINE = graph_of(steps("a b"), {"a": "b"})
WORLD = graph_of({"a": step, "mail": Mail(), "b": step}, {"a": "mail", "mail": "b"})
FRESH = Input(payload="hi")


def run(node: str, stream: str = "main") -> tuple[Action, ...]:
    """Return the plan in which one step is due."""
    return (RunStep(stream, node),)


@pytest.mark.parametrize(
    ("events", "due"),
    [
        ([], ()),
        ([Opened(agent="x")], ()),
        ([FRESH], run("a")),
        ([FRESH, note("a")], run("b")),
        ([FRESH, note("a"), note("b")], (End(),)),
        ([FRESH, note("a"), note("b"), Ended()], ()),
        ([FRESH, note("a"), note("b"), Ended(), FRESH], run("a")),
        ([FRESH, [note("a"), note("a")]], run("b")),
        ([FRESH, request("a")], ()),
        ([FRESH, [note("a"), request("a")]], ()),
        ([FRESH, request("a"), Input(answers=2)], run("b")),
        ([FRESH, note("a"), request("b"), Input(answers=3)], (End(),)),
        ([FRESH, failed("a", transient=True)], run("a")),
        ([FRESH, note("a"), failed("b", transient=True)], run("b")),
        ([FRESH, note("a"), failed("b", transient=True), note("b")], (End(),)),
        ([FRESH, note("a"), failed("b")], ()),
        ([FRESH, note("a"), Cancelled(input=1)], ()),
        ([FRESH, note("a"), failed("b"), FRESH], run("a")),
        ([FRESH, Cancelled(input=1), FRESH, note("a")], run("b")),
    ],
)
def test_a_line_of_steps(events: list[Event], due: tuple[Action, ...]) -> None:
    """A turn on a line of steps goes from its input to its end, stops, and goes on."""
    assert actions(LINE, log(*events)) == due


@pytest.mark.parametrize("transient", [True, False])
def test_failure_of_this_run_stops_its_stream(transient: bool) -> None:
    """A Failure after the run began leaves nothing to do, whether it can be tried again or not."""
    events = log(FRESH, note("a"), failed("b", transient=transient))
    assert actions(LINE, events, since=2) == ()
    assert plan(LINE, Trace(events), since=2).state == "failed"


def test_failures_before_the_last_one_are_settled() -> None:
    """Of two failures in a row, the later one says what is due."""
    events = log(FRESH, failed("a", transient=True), failed("b", transient=True))
    assert actions(LINE, events) == run("b")


def test_cancel_of_this_run_stops_it() -> None:
    """After a new Cancelled nothing is due, not even a recovery."""
    events = log(FRESH, note("a"), intent("mail"), Cancelled(input=1))
    assert actions(WORLD, events, since=3) == ()


def test_retry_does_not_ask_the_router_again() -> None:
    """What failed is due again, whatever the router would say today."""
    graph = graph_of(steps("a b"), {"a": lambda view: pytest.fail("the router was asked")})
    events = log(FRESH, note("a"), failed("b", transient=True))
    assert actions(graph, events) == run("b")


def test_router_sees_the_new_events_of_its_node() -> None:
    """A router gets the stream's view with what its node just returned."""
    views: list[Trace] = []

    def route(view: Trace) -> str:
        views.append(view)
        return "b"

    graph = graph_of(steps("a b"), {"a": route})
    events = log(FRESH, [note("a"), note("a")])
    assert actions(graph, events) == run("b")
    assert [list(view) for view in views] == [events, events]
    with pytest.raises(ValueError, match="does not show the whole thread"):
        views[0].thread  # noqa: B018  # the property is what is refused


def broken(view: Trace) -> str:
    """Fail, as a router should not."""
    raise KeyError("no way")


def test_router_that_raises_is_a_fault() -> None:
    """Whatever a router raises becomes a final Failure of the node whose edge it is."""
    graph = graph_of(steps("a b"), {"a": broken})
    (action,) = actions(graph, log(FRESH, note("a")))
    assert isinstance(action, Fault)
    assert (action.stream, action.failure.origin) == ("main", "a")
    assert (action.failure.error_type, action.failure.transient) == ("KeyError", False)
    assert isinstance(action.error, KeyError)


def test_router_that_names_no_node_is_a_fault() -> None:
    """An unknown name is a Failure that says the name."""
    graph = graph_of(steps("a b"), {"a": lambda view: "c"})
    (action,) = actions(graph, log(FRESH, note("a")))
    assert isinstance(action, Fault)
    assert "picked 'c'" in action.failure.message


@pytest.mark.parametrize(
    "events",
    [
        [FRESH, note("gone")],
        [FRESH, failed("gone", transient=True)],
        [FRESH, request("gone"), Input(answers=2)],
        [FRESH, intent("gone")],
        [FRESH, intent("b")],
        [FRESH, intent("gone"), Cancelled(input=1)],
        [FRESH, tripped("gone")],
    ],
)
def test_origin_that_decides_must_be_there(events: list[Event]) -> None:
    """A node of the log that today's graph lacks is a mismatch where it decides what is next."""
    with pytest.raises(GraphMismatchError, match="position 2") as caught:
        actions(LINE, log(*events))
    assert caught.value.position == 2
    assert caught.value.node in {"gone", "b"}


@pytest.mark.parametrize(
    "events",
    [
        [FRESH, request("gone")],
        [FRESH, failed("gone")],
        [FRESH, note("gone"), note("a")],
        [FRESH, note("gone"), Ended()],
        [FRESH, note("gone"), Cancelled(input=1)],
    ],
)
def test_origin_that_decides_nothing_may_be_gone(events: list[Event]) -> None:
    """Where nothing follows from a node, today's graph may lack it."""
    actions(LINE, log(*events))


ONCE = Budget(cap=1, resume_at="model", tolerance=1)
CAPPED = graph_of(
    steps("model tools other"),
    {"model": "tools", "tools": "model", "other": "model"},
    budget=ONCE,
)
SPENT: list[Event] = [FRESH, output("model"), note("tools"), output("model")]


@pytest.mark.parametrize(
    ("events", "due"),
    [
        (SPENT[:2], run("tools")),
        (SPENT[:3], run("model")),
        (SPENT, (Trip("main", "model", tripped("m").model_copy(update={"origin": None})),)),
        ([*SPENT[:3], [output("model"), note("model")]], "trip"),
        ([*SPENT[:3], [output("model"), request("model")]], ()),
        ([*SPENT[:3], [output("model"), request("model")], Input(answers=5)], run("tools")),
        ([*SPENT[:3], ModelOutput(origin="model", text="done")], run("tools")),
        ([*SPENT, tripped("model")], run("model")),
        ([*SPENT, tripped("model"), failed("model", transient=True)], run("model")),
        ([*SPENT, tripped("model"), ModelOutput(origin="model")], run("tools")),
        ([*SPENT, tripped("model"), output("model")], "second trip"),
        ([*SPENT, tripped("model"), output("model"), tripped("model", 2)], (End(),)),
        ([*SPENT, note("tools")], run("model")),
        ([*SPENT[:3], output("other")], "trip of other"),
    ],
)
def test_budget(events: list[Event], due: tuple[Action, ...] | str) -> None:
    """The output that passes the cap trips, `resume_at` follows, and one trip more ends it."""
    planned = actions(CAPPED, log(*events))
    if isinstance(due, str):
        (trip,) = planned
        assert isinstance(trip, Trip)
        assert trip.node == ("other" if "other" in due else "model")
        assert trip.event.cap == 1
        assert trip.event.trip == (2 if "second" in due else 1)
    else:
        assert planned == due


def test_a_response_resets_the_budget_that_says_so() -> None:
    """With `resets_on_answer` the count and the trips start anew at each response."""
    asking: list[Event] = [output("model"), request("model")]
    events: list[Event | list[Event]] = [*SPENT[:3], asking, Input(answers=5), note("tools")]
    again = log(*events, output("model"))
    assert isinstance(actions(CAPPED, again)[0], Trip)
    resetting = Budget(cap=1, resume_at="model", tolerance=0, resets_on_answer=True)
    graph = graph_of(steps("model tools"), {"model": "tools", "tools": "model"}, budget=resetting)
    assert actions(graph, again) == run("tools")
    (trip,) = actions(graph, log(*events, output("model"), note("tools"), output("model")))
    assert isinstance(trip, Trip)
    assert trip.event.trip == 1


def test_budget_counts_from_the_opening_input() -> None:
    """Outputs of an earlier turn are not counted."""
    events = log(*SPENT[:3], Ended(), *SPENT[:3])
    assert actions(CAPPED, events) == run("model")


def test_trip_of_a_graph_that_lost_its_budget_is_a_mismatch() -> None:
    """A recorded trip has no place to go on when today's graph has no budget."""
    with pytest.raises(GraphMismatchError, match="no budget"):
        actions(LINE, log(FRESH, note("a"), tripped("a")))


def test_resume_point_is_not_reached_by_an_edge() -> None:
    """In a branch, a `resume_at` that is a join runs there, since no edge led to it."""
    budget = Budget(cap=0, resume_at="meet", tolerance=1)
    graph = graph_of(
        steps("start a b meet"), {"start": "a b", "a": "meet"}, joins="meet", budget=budget
    )
    stream = "main/a#2.1"
    events = log(FRESH, note("start"), output("a", stream), tripped("a", stream=stream))
    assert actions(graph, events)[0] == RunStep(stream, "meet")


SENT: list[Event] = [FRESH, note("a"), intent("mail")]
OPEN = log(*SENT)[-1]


@pytest.mark.parametrize(
    ("events", "due"),
    [
        (SENT[:2], "Intend"),
        (SENT, "Recover"),
        ([*SENT, failed("mail", transient=True)], "Recover"),
        ([*SENT, failed("mail")], "Recover"),
        ([*SENT, request("mail")], None),
        ([*SENT, request("mail"), Input(answers=4)], "Recover"),
        ([*SENT, request("mail"), Input(answers=4), failed("mail")], "Recover"),
        ([*SENT, result("mail", key="another")], "Recover"),
        ([*SENT, result("mail")], "RunStep"),
        ([*SENT, Cancelled(input=1)], "Recover"),
        ([*SENT, request("mail"), Cancelled(input=1)], "Recover"),
        ([*SENT, Cancelled(input=1), request("mail")], None),
        ([*SENT, Cancelled(input=1), request("mail"), Input(answers=5)], "Recover"),
        ([*SENT, Cancelled(input=1), result("mail")], None),
        ([*SENT, result("mail"), Cancelled(input=1)], None),
    ],
)
def test_effects(events: list[Event], due: str | None) -> None:
    """An open intent is recovered, whatever came after it, unless a request about it waits."""
    planned = actions(WORLD, log(*events))
    assert [type(action).__name__ for action in planned] == ([due] if due else [])
    assert due != "Recover" or planned == (Recover("main", "mail", OPEN),)  # type: ignore[arg-type]  # an intent


@pytest.mark.parametrize("cancel", [True, False])
@pytest.mark.parametrize("transient", [True, False])
def test_recovery_is_asked_once_per_run(cancel: bool, transient: bool) -> None:
    """A recovery that failed in this run is not asked again, in a cancelled turn neither."""
    begun = log(*SENT, *([Cancelled(input=1)] if cancel else []))
    events = log(*begun, failed("mail", transient=transient))
    assert actions(WORLD, events, since=len(begun)) == ()
    assert len(actions(WORLD, events, since=len(events))) == 1


def test_entry_point_that_is_a_join_runs_in_the_root() -> None:
    """In a stream that is no branch a join is an ordinary node."""
    graph = graph_of(steps("a b"), {"a": "b", "b": "a"}, joins="a b")
    assert actions(graph, log(FRESH)) == run("a")
    assert actions(graph, log(FRESH, note("a"))) == run("b")
    assert actions(graph, log(FRESH, note("a"), note("b"))) == run("a")


def test_loop_plans_alike_in_each_turn_of_it() -> None:
    """A loop goes round as often as its router says."""
    rounds = [output("model"), note("tools")] * 5
    assert actions(LOOP, log(FRESH, *rounds)) == run("model")
    assert actions(LOOP, log(FRESH, *rounds, output("model"))) == run("tools")


def test_plan_of_a_view_is_refused() -> None:
    """A plan needs the thread's trace, so the view of one stream is refused."""
    view = Trace(log(FRESH)).view("main")
    with pytest.raises(ValueError, match="does not show the whole thread"):
        plan(LINE, view)
