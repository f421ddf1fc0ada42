"""Branches that run side by side, the joins where they meet, and what happens between them."""

import asyncio
from collections.abc import Sequence
from itertools import count, permutations

import pytest

from soev.adapters import InMemoryTraceStore
from soev.domain import (
    BudgetExceeded,
    EffectIntent,
    Event,
    Failure,
    Input,
    ModelOutput,
    Request,
    ToolCall,
    Trace,
    TransientError,
)
from soev.runtime._graph import Budget, Graph, Step
from soev.runtime._runs import Runs
from tests.runtime.deeds import Mail, Mailer, World, died, expire, outputs, told
from tests.runtime.turns import graph_of
from tests.runtime.world import (
    HELLO,
    FaultyTraceStore,
    Gate,
    asks,
    names,
    raises,
    says,
    thread_of,
)

pytestmark = pytest.mark.anyio


def fan(joined: Step | None = None, **branches: object) -> Graph:
    """Make a graph of a step, branches of one node each, and the join where they meet."""
    nodes: dict[str, object] = {"a": says("a"), **branches, "end": joined or says("end")}
    edges = {"a": " ".join(branches), **dict.fromkeys(branches, "end")}
    return graph_of(nodes, edges, joins="end")


class Gates:
    """Steps that end when they are told to."""

    def __init__(self, *names: str) -> None:
        self.gates = {name: Gate() for name in names}

    async def entered(self) -> None:
        """Wait until all of them were entered."""
        for gate in self.gates.values():
            await gate.entered.wait()


def streams(trace: Trace) -> dict[str, list[str]]:
    """Return the events of each stream."""
    return {
        stream: names([event for event in trace if event.stream == stream])
        for stream in trace.streams
    }


async def test_branches_run_at_once_and_meet_at_the_join() -> None:
    """All targets start before one ends, and the join runs once, in the stream that fanned out."""
    gates = Gates("x", "y", "z")
    running = asyncio.create_task(thread_of(fan(**gates.gates)).send(HELLO))
    await gates.entered()
    for gate in gates.gates.values():
        gate.opened.set()
    trace = await running
    assert streams(trace) == {
        "main": ["Input", "a", "end", "Ended"],
        "main/x#2.1": ["gate"],
        "main/y#2.2": ["gate"],
        "main/z#2.3": ["gate"],
    }


@pytest.mark.parametrize("order", list(permutations("xyz")), ids="".join)
async def test_the_order_of_completion_changes_nothing_but_the_log(order: tuple[str, ...]) -> None:
    """Each stream's events, and what the join is shown, are the same in any order."""
    shown: list[Trace] = []

    async def joined(view: Trace) -> Sequence[Event]:
        shown.append(view)
        return [ModelOutput(text="end")]

    store, turns = InMemoryTraceStore(), [asyncio.Event() for _ in order]
    entered = [asyncio.Event() for _ in order]

    def branch(name: str) -> Step:
        async def step(view: Trace) -> Sequence[Event]:
            entered[order.index(name)].set()
            await turns[order.index(name)].wait()
            return [ModelOutput(text=name)]

        return step

    graph = fan(joined, **{name: branch(name) for name in "xyz"})
    thread = thread_of(graph, store)
    running = asyncio.create_task(thread.send(HELLO))
    for each in entered:
        await each.wait()
    for number, turn in enumerate(turns):
        position = (await store.head("t-1")).position
        turn.set()
        await store.wait("t-1", after=await store.head("t-1"), timeout=5)
        assert (await store.head("t-1")).position > position or number < 0
    trace = await running
    assert outputs(trace) == ["a", *order, "end"]
    assert outputs(shown[0]) == ["a", "x", "y", "z"]
    assert [event.seq for event in shown[0]] == [1, 2, 1, 1, 1]


async def test_each_step_of_a_branch_is_appended_as_it_ends() -> None:
    """A branch goes on while another is in the middle of a step."""
    gate = Gate()
    graph = graph_of(
        {"a": says("a"), "x": gate, "y": says("y"), "z": says("z"), "end": says("end")},
        {"a": "x y", "x": "end", "y": "z", "z": "end"},
        joins="end",
    )
    store = InMemoryTraceStore()
    running = asyncio.create_task(thread_of(graph, store).send(HELLO))
    await gate.entered.wait()
    while (await store.head("t-1")).position < 4:
        await store.wait("t-1", after=await store.head("t-1"), timeout=5)
    gate.opened.set()
    assert outputs(await running) == ["a", "y", "z", "gate", "end"]


async def test_a_view_of_a_branch_holds_no_sibling() -> None:
    """A branch sees its parent up to the fan-out and itself."""
    views: dict[str, Trace] = {}

    def looks(name: str) -> Step:
        async def step(view: Trace) -> Sequence[Event]:
            views[name] = view
            return [ModelOutput(text=name)]

        return step

    graph = graph_of(
        {"a": says("a"), "x": looks("x"), "x2": looks("x2"), "y": looks("y")},
        {"a": "x y", "x": "x2"},
    )
    await thread_of(graph).send(HELLO)
    assert outputs(views["x"]) == outputs(views["y"]) == ["a"]
    assert outputs(views["x2"]) == ["a", "x"]
    with pytest.raises(ValueError, match="thread"):
        _ = views["x2"].thread


async def test_a_failure_stops_its_stream_and_the_others_go_on() -> None:
    """A final Failure in a branch lets the others end, then the run stops failed."""
    gate = Gate()
    graph = fan(x=raises(ValueError("no")), y=gate)
    thread = thread_of(graph)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    gate.opened.set()
    trace = await running
    assert streams(trace)["main/y#2.2"] == ["gate"]
    assert streams(trace)["main/x#2.1"] == ["Failure"]
    assert (await thread.status()).state == "failed"
    assert not await thread.running()
    assert await thread.resume() == trace


async def test_a_transient_failure_of_a_branch_is_tried_again_alone() -> None:
    """A resume runs the branch that failed, and not those that ended."""
    ran: list[int] = []

    async def counted(view: Trace) -> Sequence[Event]:
        ran.append(1)
        return [ModelOutput(text="y")]

    thread = thread_of(fan(x=raises(TransientError("busy")), y=counted))
    assert names(await thread.send(HELLO)).count("Failure") == 1
    assert outputs(await thread.resume()) == ["a", "y", "fine", "end"]
    assert len(ran) == 1


async def test_a_branch_that_waits_holds_the_join_and_not_the_others() -> None:
    """The run stops when nothing else can move, and the response goes on in the branch."""
    thread = thread_of(fan(x=asks(), y=says("y")))
    trace = await thread.send(HELLO)
    assert (await thread.status()).state == "waiting"
    assert outputs(trace) == ["a", "y"]
    request = trace.latest(Request)
    assert request is not None
    assert request.stream == "main/x#2.1"
    trace = await thread.send(Input(payload="yes"), answering=request)
    assert streams(trace)["main/x#2.1"] == ["Request", "Input"]
    assert outputs(trace) == ["a", "y", "end"]


async def test_a_response_while_another_branch_works_is_picked_up() -> None:
    """The next append of the run finds the response and starts its branch again."""
    gate = Gate()
    graph = graph_of(
        {"a": says("a"), "x": asks(), "x2": says("x2"), "y": gate, "end": says("end")},
        {"a": "x y", "x": "x2", "x2": "end", "y": "end"},
        joins="end",
    )
    store = InMemoryTraceStore()
    thread = thread_of(graph, store)
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    while not (pending := (await thread_of(None, store).status()).pending):
        await store.wait("t-1", after=await store.head("t-1"), timeout=5)
    await thread_of(None, store).submit(Input(payload=1), answering=pending[0].event)
    gate.opened.set()
    trace = await running
    assert sorted(outputs(trace)) == ["a", "end", "gate", "x2"]
    assert names(trace)[-1] == "Ended"


async def test_no_join_ends_the_stream_that_fanned_out() -> None:
    """Branches that meet nowhere end the turn together."""
    graph = graph_of({"a": says("a"), "x": says("x"), "y": says("y")}, {"a": "x y"})
    trace = await thread_of(graph).send(HELLO)
    assert names(trace)[-1] == "Ended"
    assert sorted(outputs(trace)) == ["a", "x", "y"]


async def test_different_joins_are_a_fault() -> None:
    """Branches that reach different joins fail the stream that fanned out."""
    graph = graph_of(
        {"a": says("a"), "x": says("x"), "y": says("y"), "p": says("p"), "q": says("q")},
        {"a": "x y", "x": "p", "y": "q"},
        joins="p q",
    )
    failure = (await thread_of(graph).send(HELLO))[-1]
    assert isinstance(failure, Failure)
    assert (failure.stream, failure.origin, failure.transient) == ("main", "a", False)
    assert "different joins: 'p', 'q'" in failure.message


async def test_fan_outs_nest_and_come_again_in_loops() -> None:
    """A branch may fan out, and a loop may fan out many times, each under a new seq."""
    nodes = {name: says(name) for name in ("a", "x", "y", "u", "v", "in", "end")}
    graph = graph_of(
        dict(nodes),
        {
            "a": "x y",
            "x": "u v",
            "u": "in",
            "v": "in",
            "in": "end",
            "y": "end",
            "end": lambda view: "a" if len(view.of(ModelOutput)) < 12 else None,
        },
        joins="in end",
    )
    trace = await thread_of(graph).send(HELLO)
    assert streams(trace)["main"] == ["Input", "a", "end", "a", "end", "Ended"]
    for seq in (2, 4):
        assert streams(trace)[f"main/x#{seq}.1"] == ["x", "in"]
        assert streams(trace)[f"main/x#{seq}.1/v#1.2"] == ["v"]


async def test_a_graph_that_fans_out_into_itself_is_a_fault() -> None:
    """Fan-outs deeper than 32 fail; the run does not grow for ever."""
    graph = graph_of({"a": says("a"), "stop": says("stop")}, {"a": "a stop"})
    trace = await thread_of(graph).send(HELLO)
    failures = trace.of(Failure)
    assert "nested deeper than 32" in failures[0].message
    assert max(stream.count("/") for stream in trace.streams) == 32


async def test_a_budget_counts_in_each_branch() -> None:
    """Each branch has the cap for itself, from its start."""

    def calls(name: str) -> Step:
        async def step(view: Trace) -> Sequence[Event]:
            number = sum(event.stream == view.stream for event in view)
            call = ToolCall(id=f"{name}{number}", name="t", arguments={})
            return [ModelOutput(calls=(call,))]

        return step

    graph = graph_of(
        {
            "a": says("a"),
            "x": calls("x"),
            "y": calls("y"),
            "end": says("end"),
            "over": says("over"),
        },
        {"a": "x y", "x": "x", "y": "y", "over": "end"},
        joins="end",
        budget=Budget(cap=2, resume_at="over", tolerance=1),
    )
    trace = await thread_of(graph).send(HELLO)
    assert [event.stream for event in trace.of(BudgetExceeded)] == ["main/x#2.1", "main/y#2.2"]
    for stream in ("main/x#2.1", "main/y#2.2"):
        assert streams(trace)[stream] == ["ModelOutput"] * 3 + ["BudgetExceeded", "over"]
    assert names(trace)[-2:] == ["end", "Ended"]


async def test_a_cancel_stops_every_branch() -> None:
    """Steps in all branches are cancelled, and only Cancelled is recorded."""
    gates = Gates("x", "y")
    thread = thread_of(fan(**gates.gates))
    running = asyncio.create_task(thread.send(HELLO))
    await gates.entered()
    await thread.cancel()
    assert names(await running) == ["Input", "a", "Cancelled"]
    assert all(gate.cancelled for gate in gates.gates.values())


async def test_effects_in_branches_act_at_once() -> None:
    """Each branch has an intent of its own, and each is performed once."""
    world = World()
    one, two = Mailer(world), Mailer(world)
    one.hold = two.hold = asyncio.Event()
    thread = thread_of(fan(x=Mail(one), y=Mail(two)))
    running = asyncio.create_task(thread.send(HELLO))
    await one.entered.wait()
    await two.entered.wait()
    one.hold.set()
    trace = await running
    assert set(world.acts.values()) == {1}
    assert {event.id for event in trace.of(EffectIntent)} == set(world.acts)
    assert names(trace)[-2:] == ["end", "Ended"]


async def test_a_crash_in_branches_with_effects_is_recovered() -> None:
    """A process that dies at any point of a fan-out with effects leaves what another completes."""

    def graph(world: World) -> Graph:
        return fan(x=Mail(Mailer(world)), y=says("y"), z=Mail(Mailer(world)))

    calm = told(await thread_of(graph(World())).send(HELLO))
    for crash in count(1):
        store, world = InMemoryTraceStore(), World()
        await thread_of(graph(world), store).submit(HELLO)
        if not await died(thread_of(graph(world), store), crash):
            break
        await expire(store)
        assert told(await thread_of(graph(world), store).resume()) == calm
        assert sorted(world.acts.values()) == [1, 1]
    assert crash > 30


@pytest.mark.parametrize("at", range(1, 12))
async def test_a_fork_may_be_cut_after_any_append(at: int) -> None:
    """A fork in the middle of branches has the status of its own log, and runs to the same end."""
    world, store = World(), InMemoryTraceStore()
    graph = fan(x=Mail(Mailer(world)), y=says("y"), z=says("z"))
    thread = thread_of(graph, store)
    trace = await thread.send(HELLO)
    if at > len(trace) or trace[at - 1].left:
        return
    fork = await thread.fork(at=at)
    state = (await fork.status()).state
    assert state == ("finished" if at == len(trace) else "interrupted")
    assert told(await fork.resume()) == told(trace)
    assert set(world.acts.values()) == {1}


async def test_a_turn_with_branches_ends_in_one_append() -> None:
    """What the last stream does brings `Ended` and the release with it."""
    store = FaultyTraceStore(InMemoryTraceStore())
    await thread_of(fan(x=says("x"), y=says("y")), store, Runs()).send(HELLO)
    assert store.calls["append"] == 5
    assert "release" not in store.calls


async def test_a_store_that_breaks_ends_all_branches() -> None:
    """A store's error in one branch cancels the steps of the others, and records nothing more."""
    memory, gate = InMemoryTraceStore(), Gate()
    graph = fan(x=gate, y=says("y"))
    await thread_of(graph, memory).submit(HELLO)
    store = FaultyTraceStore(memory)
    store.faults["append", 2] = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        await thread_of(graph, store).resume()
    assert gate.cancelled or not gate.entered.is_set()
    assert names(await thread_of(None, memory).trace()) == ["Input", "a"]
    assert not await thread_of(None, memory).running()
