"""Sub-agents: tasks that are opened, run side by side, and handed back in order."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    ToolOutput,
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
    line,
    names,
    raises,
    says,
    thread_of,
)

pytestmark = pytest.mark.anyio


def first_text(child: Trace) -> Sequence[Event]:
    """Report a task by its last output."""
    output = child.latest(ModelOutput)
    return [ToolOutput(text="" if output is None else output.text)]


@dataclass
class Team:
    """A delegation: what it hands off, the graph of each task, and how it reports."""

    given: Sequence[object] = (Input(payload="one"), Input(payload="two"))
    graph: Callable[[Input], Graph] = lambda task: line(work=says(f"did {task.payload}"))
    report: Callable[[Trace], Sequence[Event]] = first_text
    asked: list[Trace] = field(default_factory=list)

    def hand_offs(self, parent: Trace, /) -> Sequence[Event]:
        self.asked.append(parent)
        return self.given  # type: ignore[return-value]  # tests hand off wrong things too

    def graph_for(self, task: Input, /) -> Graph:
        return self.graph(task)

    def hand_back(self, child: Trace, /) -> Sequence[Event]:
        return self.report(child)


def delegating(team: object) -> Graph:
    """Make a graph of a step, the delegation and another step."""
    return line(a=says("a"), team=team, end=says("end"))  # type: ignore[arg-type]  # mixed kinds


def texts(trace: Trace) -> list[str]:
    """Return the texts of the results."""
    return [event.text for event in trace.of(ToolOutput)]


def own(trace: Trace, stream: str = "main") -> list[str]:
    """Return the events of one stream."""
    return names([event for event in trace if event.stream == stream])


async def test_tasks_are_opened_in_one_append_and_handed_back_in_one() -> None:
    """The heads come together, the delegation is their origin, and so do the results."""
    team = Team()
    trace = await thread_of(delegating(team)).send(HELLO)
    assert own(trace) == ["Input", "a", "ToolOutput", "ToolOutput", "end", "Ended"]
    assert own(trace, "main/team#2.1") == ["Input", "did one"]
    assert own(trace, "main/team#2.2") == ["Input", "did two"]
    heads = [event for event in trace.of(Input) if event.stream != "main"]
    assert [(event.origin, event.seq, event.left) for event in heads] == [("team", 1, 0)] * 2
    assert [type(event).__name__ for event in trace[2:4]] == ["Input", "Input"]
    assert [event.left for event in trace.of(ToolOutput)] == [1, 0]
    assert texts(trace) == ["did one", "did two"]
    assert [outputs(view) for view in team.asked] == [["a"]] * len(team.asked)


async def test_the_number_of_appends_is_that_of_the_work() -> None:
    """Opening and handing back are one append each, and the last brings the end with it."""
    store = FaultyTraceStore(InMemoryTraceStore())
    await thread_of(delegating(Team()), store, Runs()).send(HELLO)
    assert store.calls["append"] == 1 + 1 + 1 + 2 + 1 + 1
    assert "release" not in store.calls


async def test_a_parent_sees_only_what_was_handed_back() -> None:
    """Tasks are no part of the parent's view, and a task sees itself alone."""
    views: dict[str, Trace] = {}

    def looks(name: str) -> Step:
        async def step(view: Trace) -> Sequence[Event]:
            views[name] = view
            return [ModelOutput(text=name)]

        return step

    team = Team(given=[Input(payload=1)], graph=lambda task: line(work=looks("work")))
    graph = line(a=says("a"), team=team, end=looks("end"))  # type: ignore[arg-type]  # mixed kinds
    await thread_of(graph).send(HELLO)
    assert names(views["work"]) == ["Input"]
    assert names(views["end"]) == ["Input", "a", "ToolOutput"]


@pytest.mark.parametrize("order", list(permutations((0, 1, 2))), ids=str)
async def test_tasks_run_at_once_and_report_in_the_order_of_hand_offs(
    order: tuple[int, ...],
) -> None:
    """Whatever task ends first, the results come in the order of `hand_offs`."""
    gates = [Gate() for _ in order]
    given = [
        Input(payload=0),
        ToolOutput(error="no such agent"),
        Input(payload=1),
        Input(payload=2),
    ]

    def graph(task: Input) -> Graph:
        number = task.payload
        assert isinstance(number, int)
        return line(wait=gates[number], work=says(f"did {number}"))

    store = InMemoryTraceStore()
    running = asyncio.create_task(thread_of(delegating(Team(given, graph)), store).send(HELLO))
    for gate in gates:
        await gate.entered.wait()
    for number in order:
        position = (await store.head("t-1")).position
        gates[number].opened.set()
        while (await store.head("t-1")).position < position + 2:
            await store.wait("t-1", after=await store.head("t-1"), timeout=5)
    trace = await running
    assert texts(trace) == ["did 0", "", "did 1", "did 2"]
    assert own(trace, "main/team#2.3") == ["Input", "gate", "did 2"]
    assert [each for each in outputs(trace) if each.startswith("did")] == [
        f"did {n}" for n in order
    ]


async def test_results_without_a_task_are_recorded_at_once() -> None:
    """A hand-off of no Input is one append of results."""
    team = Team(given=[ToolOutput(error="none"), ToolOutput(error="neither")])
    trace = await thread_of(delegating(team)).send(HELLO)
    assert own(trace) == ["Input", "a", "ToolOutput", "ToolOutput", "end", "Ended"]
    assert trace.streams == ("main",)
    assert len(team.asked) <= 2


@pytest.mark.parametrize(
    ("given", "error_type", "message"),
    [
        ([], "ValueError", "`hand_offs` returned no event"),
        ("text", "TypeError", "`hand_offs` returned a str"),
        ([Request(kind="k", actor="person")], "ValueError", "`hand_offs` returned a Request"),
        ([Failure(error_type="E", message="m", transient=False)], "ValueError", "a Failure"),
        ([Input(payload=1, answers=3)], "ValueError", "`answers=3`"),
        ([Input(payload=float("nan"))], "UnencodableError", "nan"),
        ([Input(payload="x" * 2_000_000)], "UnencodableError", "bytes"),
        ([Input(payload=1), Request(kind="k", actor="person")], "ValueError", "a Request"),
    ],
)
async def test_what_hand_offs_may_not_return_is_a_failure(
    given: Sequence[object], error_type: str, message: str
) -> None:
    """A wrong hand-off is a final Failure of the delegation in the parent's stream."""
    trace = await thread_of(delegating(Team(given))).send(HELLO)
    failure = trace[-1]
    assert isinstance(failure, Failure)
    assert (failure.stream, failure.origin, failure.error_type, failure.transient) == (
        "main",
        "team",
        error_type,
        False,
    )
    assert message in failure.message


@pytest.mark.parametrize(
    ("reported", "message"),
    [
        ([], "`hand_back` returned no event"),
        ([Request(kind="k", actor="person")], "`hand_back` returned a Request"),
        ([Input(payload=1)], "`hand_back` returned an Input"),
    ],
)
async def test_what_hand_back_may_not_return_is_a_failure(
    reported: Sequence[Event], message: str
) -> None:
    """A wrong report is a final Failure, and nothing of it is recorded."""
    trace = await thread_of(delegating(Team(report=lambda child: reported))).send(HELLO)
    failure = trace[-1]
    assert isinstance(failure, Failure)
    assert message in failure.message
    assert own(trace) == ["Input", "a", "Failure"]
    assert not failure.transient


@pytest.mark.parametrize("part", ["hand_offs", "graph_for", "hand_back"])
@pytest.mark.parametrize("error", [TransientError("busy"), ValueError("broken")], ids=["t", "f"])
async def test_what_a_delegation_raises_is_its_failure(part: str, error: Exception) -> None:
    """It is transient for a TransientError, and a resume finds the tasks it opened before."""

    class Broken(Team):
        broken = True

        def _raise(self, where: str) -> None:
            if self.broken and part == where:
                raise error

        def hand_offs(self, parent: Trace, /) -> Sequence[Event]:
            self._raise("hand_offs")
            return super().hand_offs(parent)

        def graph_for(self, task: Input, /) -> Graph:
            self._raise("graph_for")
            return super().graph_for(task)

        def hand_back(self, child: Trace, /) -> Sequence[Event]:
            self._raise("hand_back")
            return super().hand_back(child)

    team = Broken()
    thread = thread_of(delegating(team))
    trace = await thread.send(HELLO)
    failure = trace[-1]
    assert isinstance(failure, Failure)
    transient = isinstance(error, TransientError)
    assert (failure.stream, failure.origin, failure.transient) == ("main", "team", transient)
    team.broken = False
    again = await thread.resume()
    assert all(names(view) == ["Input", "a"] for view in team.asked)
    if transient:
        assert own(again) == ["Input", "a", "Failure", "ToolOutput", "ToolOutput", "end", "Ended"]
        assert len(again.of(Input)) == 3
        assert texts(again) == ["did one", "did two"]
    else:
        assert again == trace


async def test_hand_offs_that_change_are_a_failure() -> None:
    """When the tasks ended, other hand-offs than the recorded ones are refused."""
    team = Team()

    def report(child: Trace) -> Sequence[Event]:
        raise AssertionError

    def graph(task: Input) -> Graph:
        team.given = [Input(payload="one"), Input(payload="three")]
        return line(work=says("x"))

    team.graph, team.report = graph, report
    trace = await thread_of(delegating(team)).send(HELLO)
    failure = trace[-1]
    assert isinstance(failure, Failure)
    assert "not the 2 with the payloads that were recorded" in failure.message
    assert (failure.origin, failure.transient) == ("team", False)


async def test_a_stream_name_that_is_too_long_is_a_failure() -> None:
    """Tasks that nest until a name would pass 1,000 characters fail, and the run ends."""

    def graph(task: Input) -> Graph:
        return graph_of({"n" * 60: Team([Input(payload=1)], graph)})

    trace = await thread_of(graph(HELLO)).send(HELLO)
    (failure,) = trace.of(Failure)
    assert "the name of a stream would pass 1,000 characters" in failure.message
    assert max(map(len, trace.streams)) <= 1_000


async def test_a_failure_in_a_task_fails_the_turn() -> None:
    """`hand_back` is not called, the other task goes on to its end, and the turn is failed."""

    def graph(task: Input) -> Graph:
        return line(work=raises(ValueError("no")) if task.payload == "one" else says("two"))

    thread = thread_of(delegating(Team(graph=graph)))
    trace = await thread.send(HELLO)
    assert own(trace) == ["Input", "a"]
    assert own(trace, "main/team#2.2") == ["Input", "two"]
    assert (await thread.status()).state == "failed"


async def test_a_request_of_a_task_waits_in_its_stream() -> None:
    """The response goes into the task, and then the task is handed back."""

    def graph(task: Input) -> Graph:
        return line(ask=asks(), work=says(f"did {task.payload}"))

    thread = thread_of(delegating(Team(graph=graph)))
    trace = await thread.send(HELLO)
    for _ in range(2):
        status = await thread.status()
        assert status.state == "waiting"
        trace = await thread.send(Input(payload="yes"), answering=status.pending[0].event)
    assert own(trace, "main/team#2.1") == ["Input", "Request", "Input", "did one"]
    assert texts(trace) == ["did one", "did two"]
    assert own(trace)[-1] == "Ended"


async def test_a_task_has_a_budget_of_its_own() -> None:
    """A task that its budget ends is ended, and is handed back."""

    async def call(view: Trace) -> Sequence[Event]:
        return [
            ModelOutput(text="x", calls=(ToolCall(id=f"c{len(view)}", name="t", arguments={}),))
        ]

    def graph(task: Input) -> Graph:
        return graph_of({"model": call}, {"model": "model"}, budget=Budget(2, "model", tolerance=0))

    trace = await thread_of(delegating(Team(graph=graph))).send(HELLO)
    assert own(trace, "main/team#2.1") == ["Input", "x", "x", "x", "BudgetExceeded"]
    assert len(trace.of(BudgetExceeded)) == 2
    assert own(trace)[-1] == "Ended"


async def test_tasks_nest() -> None:
    """A task may delegate and fan out in turn."""

    def inner(task: Input) -> Graph:
        return graph_of(
            {"s": says("s"), "x": says("x"), "y": says("y"), "end": says("inner")},
            {"s": "x y", "x": "end", "y": "end"},
            joins="end",
        )

    outer = Team(graph=lambda task: delegating(Team([Input(payload="deep")], inner)))
    trace = await thread_of(delegating(outer)).send(HELLO)
    deep = "main/team#2.1/team#2.1"
    assert own(trace, deep) == ["Input", "s", "inner"]
    assert own(trace, f"{deep}/y#2.2") == ["y"]
    assert texts(trace).count("inner") == 2
    assert texts(trace)[-2:] == ["end", "end"]


async def test_a_crash_with_effects_in_tasks_is_recovered() -> None:
    """A process that dies at any point leaves what another completes, with one act per intent."""

    def graph(world: World) -> Graph:
        return delegating(Team(graph=lambda task: line(mail=Mail(Mailer(world)), w=says("w"))))  # type: ignore[arg-type]  # mixed kinds

    calm = told(await thread_of(graph(World())).send(HELLO))
    for crash in count(1):
        store, world = InMemoryTraceStore(), World()
        await thread_of(graph(world), store).submit(HELLO)
        if not await died(thread_of(graph(world), store), crash):
            break
        await expire(store)
        assert told(await thread_of(graph(world), store).resume()) == calm
        assert sorted(world.acts.values()) == [1, 1]
    assert crash > 40


@pytest.mark.parametrize("at", range(1, 12))
async def test_a_fork_may_be_cut_anywhere_in_tasks(at: int) -> None:
    """A fork with some of a hand-off's tasks opens the others, and runs to the same end."""
    world = World()
    team = Team(graph=lambda task: line(mail=Mail(Mailer(world)), w=says("w")))  # type: ignore[arg-type]  # mixed kinds
    thread = thread_of(delegating(team))
    trace = await thread.send(HELLO)
    if at > len(trace) or trace[at - 1].left:
        return
    fork = await thread.fork(at=at)
    assert told(await fork.resume()) == told(trace)
    assert set(world.acts.values()) == {1}


async def test_a_cancel_covers_all_tasks() -> None:
    """Cancelled in `main` stops the steps of tasks, and an open intent there is settled later."""
    world, gate = World(), Gate()
    mailer = Mailer(world)
    mailer.linger = asyncio.Event()

    def graph(task: Input) -> Graph:
        return line(work=gate if task.payload == "one" else Mail(mailer))  # type: ignore[arg-type]  # mixed kinds

    thread = thread_of(delegating(Team(graph=graph)))
    running = asyncio.create_task(thread.send(HELLO))
    await gate.entered.wait()
    await mailer.changed.wait()
    await thread.cancel()
    assert names(await running)[4:] == ["EffectIntent", "Cancelled"]
    assert gate.cancelled
    trace = await thread.resume()
    assert names(trace)[4:] == ["EffectIntent", "Cancelled", "EffectResult"]
    assert trace.of(EffectIntent)[0].stream == "main/team#2.2"
    assert world.acts.total() == 1
    assert (await thread.status()).state == "cancelled"


async def test_a_recovery_whose_task_has_no_graph_is_a_failure() -> None:
    """In a cancelled turn a `graph_for` that raises leaves the intent open, with a Failure."""
    world = World()
    mailer = Mailer(world)
    mailer.linger = asyncio.Event()
    broken = False

    def graph(task: Input) -> Graph:
        if broken:
            raise TransientError("no catalogue")
        return line(mail=Mail(mailer))  # type: ignore[arg-type]  # mixed kinds

    store, team = InMemoryTraceStore(), Team([Input(payload=1)], graph)
    thread = thread_of(delegating(team), store)
    running = asyncio.create_task(thread.send(HELLO))
    await mailer.changed.wait()
    await thread.cancel()
    await running
    broken = True
    trace = await thread_of(delegating(team), store).resume()
    assert isinstance(trace[-1], Failure)
    assert trace[-1].stream == "main/team#2.1"
    broken = False
    assert names(await thread_of(delegating(team), store).resume())[-2:] == [
        "Failure",
        "EffectResult",
    ]


async def test_a_run_that_gives_way_after_each_action_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream that has nothing to do is free at once, however often the loop gets its turn."""
    calm = told(await thread_of(delegating(Team())).send(HELLO))
    monkeypatch.setattr("soev.runtime._engine.LONGEST_HOLD", -1.0)
    store = FaultyTraceStore(InMemoryTraceStore())
    assert told(await thread_of(delegating(Team()), store).send(HELLO)) == calm
    assert store.calls["append"] == 7
