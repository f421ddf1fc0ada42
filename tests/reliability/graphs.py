"""The scenario graphs of the test plan: a table of what is run, crashed and compared."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pytest_soev.world import (
    Process,
    ProcessDiedError,
    RecordingEffector,
    Scenario,
    Setting,
    Simulation,
    Talk,
    boundary,
    calling,
    carry_on,
    passed,
)
from soev.domain import (
    EffectIntent,
    EffectResult,
    Event,
    Failure,
    Input,
    JsonValue,
    ModelOutput,
    OutcomeUnknownError,
    Request,
    StoreUnavailableError,
    ThreadExistsError,
    ToolCall,
    ToolOutput,
    Trace,
    TransientError,
)
from soev.runtime import (
    Budget,
    EffectCancellation,
    Effector,
    EffectRecovery,
    Graph,
    Step,
    Thread,
    ThreadActiveError,
    abandon,
)
from tests.reliability.rules import Story, open_intents, story_of
from tests.world.scenarios import REACT

__all__ = ["EFFECTS", "GRAPHS", "Stage", "calling"]

MOST_LIVES = 20
Make = Callable[["Stage"], Graph]


@dataclass
class Stage:
    """What the graph of one schedule acts on and counts.

    Args:
        sim: The schedule.
        recoveries: How often the recovery of each intent was called.
        needless: The intents whose recovery was called although their result was there.
    """

    sim: Simulation
    recoveries: Counter[str] = field(default_factory=Counter)
    needless: list[str] = field(default_factory=list)

    def effect(
        self,
        kind: str = "mail",
        *,
        timeout: float | None = None,
        recovery: EffectRecovery | None = None,
        cancellation: EffectCancellation = abandon,
    ) -> "Mail":
        """Make an effect that acts on the schedule's world."""
        effector = RecordingEffector(self.sim.world, timeout=timeout)
        return Mail(self, kind, effector, recovery or ask_world, cancellation)


class Mail:
    """An effect whose recovery is counted, and which notes a recovery that nothing asked for."""

    def __init__(
        self,
        stage: Stage,
        kind: str,
        effector: RecordingEffector,
        recovery: EffectRecovery,
        cancellation: EffectCancellation,
    ) -> None:
        self._stage, self._kind, self._recovery = stage, kind, recovery
        self.effector: Effector = effector
        self.cancellation = cancellation

    def intend(self, trace: Trace) -> EffectIntent:
        return EffectIntent(kind=self._kind, args={"to": "ann"})

    async def recovery(
        self, trace: Trace, intent: EffectIntent, effector: Effector
    ) -> Sequence[Event]:
        self._stage.recoveries[str(intent.id)] += 1
        if any(isinstance(each, EffectResult) and each.intent == intent.id for each in trace):
            self._stage.needless.append(str(intent.id))
        return await self._recovery(trace, intent, effector)


async def ask_world(trace: Trace, intent: EffectIntent, effector: Effector) -> Sequence[Event]:
    """Ask the world; act when it says that nothing happened; ask a person when it is silent."""
    assert isinstance(effector, RecordingEffector)
    request = trace.latest(Request)
    answer = None if request is None else trace.response_to(request)
    if answer is not None and request is not None and request.kind == "outcome":
        return [EffectResult(output=answer.payload)]
    done = await effector.ask(intent)
    if done is None:
        return [Request(kind="outcome", actor="person")]
    return [
        EffectResult(output={"receipt": intent.kind}) if done else await effector.perform(intent)
    ]


# --- the graphs ---


def says(text: str, *calls: str) -> Step:
    """Make a step that waits for something outside, and says the same on every view."""

    async def step(view: Trace) -> Sequence[Event]:
        await boundary()
        made = tuple(ToolCall(id=f"c-{name}", name=name, arguments={}) for name in calls)
        return [ModelOutput(text=text, calls=made)]

    return step


async def asks(view: Trace) -> Sequence[Event]:
    """Ask a person."""
    await boundary()
    return [Request(kind="approval", actor="person")]


async def gathers(view: Trace) -> Sequence[Event]:
    """Say what was said before, in the order in which it is shown."""
    await boundary()
    parts = [_shown(event) for event in view if not isinstance(event, Input | Failure)]
    return [ModelOutput(text=", ".join(parts))]


def _shown(event: Event) -> str:
    return event.text if isinstance(event, ModelOutput) else f"{event.origin}:{event.type}"


def line(**nodes: object) -> Graph:
    """Make a graph of nodes that follow one another."""
    graph, names = Graph(), list(nodes)
    for name, node in nodes.items():
        graph.add_node(name, node)  # type: ignore[arg-type]  # a table of mixed kinds
    for source, target in pairwise(names):
        graph.add_edge(source, target)
    graph.set_entry_point(names[0])
    return graph


def fan(**branches: object) -> Graph:
    """Make a graph of a step, branches of one node each, and a join that sees them all."""
    graph = line(start=says("start"))
    graph.add_node("join", gathers)
    graph.add_join("join")
    for name, node in branches.items():
        graph.add_node(name, node)  # type: ignore[arg-type]  # a table of mixed kinds
        graph.add_edge("start", name)
        graph.add_edge(name, "join")
    return graph


def looping(stage: Stage) -> Graph:
    """Make a loop that calls a tool until its budget trips, and then says so."""

    async def model(view: Trace) -> Sequence[Event]:
        await boundary()
        place = sum(isinstance(event, ModelOutput) for event in view)
        return [ModelOutput(calls=(ToolCall(id=f"c-{place}", name="look", arguments={}),))]

    async def tools(view: Trace) -> Sequence[Event]:
        await boundary()
        output = view.latest(ModelOutput)
        assert output is not None
        return [ToolOutput(call_id=output.calls[0].id, text="found")]

    graph = line(model=model, tools=tools)
    graph.add_node("sum", says("It is enough."))
    graph.add_conditional_edge("tools", lambda view: "model")
    graph.set_budget(Budget(cap=2, resume_at="sum", tolerance=1))
    return graph


@dataclass(frozen=True)
class Team:
    """A delegation of one task for each name.

    Args:
        graph: Makes the graph of a task.
        tasks: The payloads of the tasks.
        unsteady: Whether `hand_back` fails for a moment until the parent has seen it fail.
    """

    graph: Callable[[], Graph]
    tasks: tuple[str, ...] = ("one", "two")
    unsteady: list[str] | None = None

    def graph_for(self, task: Input, /) -> Graph:
        return self.graph()

    def hand_offs(self, parent: Trace, /) -> Sequence[Event]:
        return [Input(payload=task) for task in self.tasks]

    def hand_back(self, child: Trace, /) -> Sequence[Event]:
        if self.unsteady:
            raise TransientError(self.unsteady.pop())
        opening = child[0]
        assert isinstance(opening, Input)
        return [ToolOutput(text=f"{opening.payload} came back")]


async def unsteady(view: Trace) -> Sequence[Event]:
    """Fail for a moment in each turn, once, as the log tells it."""
    await boundary()
    if not view.turn.of(Failure):
        raise TransientError("Come back later.")
    return [ModelOutput(text="Here.")]


def approved(stage: Stage) -> Graph:
    """Make a graph of an approval, the effect that it is for, and a step."""
    return line(ask=asks, mail=stage.effect(), end=says("end"))


def mailing(stage: Stage) -> Graph:
    """Make a graph of an effect and a step."""
    return line(mail=stage.effect(), end=says("end"))


# --- how they are played ---


async def survived(
    sim: Simulation, process: Process, work: Callable[[Process], object], story: Story
) -> None:
    """Do work in a process, again after each death; a fresh input is refused in between."""
    for _ in range(MOST_LIVES):
        try:
            await process.call(work(process))  # type: ignore[arg-type]  # a coroutine
        except ProcessDiedError:
            await refuses_input(sim, story)
            process.restart()
        else:
            return
    raise AssertionError(f"The process died {MOST_LIVES} times.")


async def refuses_input(sim: Simulation, story: Story, thread_id: str = "t-1") -> None:
    """Hold the runtime to I8: an open intent lets no fresh input in."""
    if not await open_intents(sim.store, thread_id):
        return
    caller = sim.process("caller")
    refused: object = None
    while refused is None:
        try:
            refused = await caller.call(tried(caller.thread(thread_id, None)))
        except ProcessDiedError:
            caller.restart()
    story.refusals += 1
    if not isinstance(refused, ThreadActiveError):
        story.broken.append(f"I8: a fresh input beside an open intent got {refused!r}")


async def tried(thread: Thread) -> object:
    """Submit a fresh input, and return what it comes to, None when the store failed."""
    try:
        return await thread.submit(Input(payload="Next!"))
    except ThreadActiveError as error:
        return error
    except StoreUnavailableError:
        return None


def talk(name: str, make: Make, *inputs: JsonValue) -> Scenario[Story]:
    """Make a scenario in which one process carries a talk on, started again when it dies."""

    async def play(sim: Simulation) -> Story:
        stage, story = Stage(sim), Story()
        graph, said = make(stage), Talk(inputs=inputs or ("Hello",))
        await survived(
            sim, sim.process("a"), lambda process: carry_on(process, lambda: graph, said), story
        )
        return await told(sim, stage, story)

    return Scenario(name, play, Setting(lease_ttl=30.0))


async def told(sim: Simulation, stage: Stage, story: Story, *threads: str) -> Story:
    """Return what a schedule came to, with the rules that it broke."""
    # A reader that stopped early is closed by the loop, in a task of its own.
    await passed(0.001)
    await story_of(sim, story, threads or ("t-1",))
    story.recoveries = sum(stage.recoveries.values())
    story.broken += [f"I9: intent {each} was recovered after its result" for each in stage.needless]
    return story


async def tried_again(write: Awaitable[object]) -> None:
    """Make a write of which the store itself tells later whether it was stored."""
    try:
        await write
    except (StoreUnavailableError, OutcomeUnknownError, ThreadExistsError):
        await passed(1)


def forked(name: str, make: Make) -> Scenario[Story]:
    """Make a scenario that runs a turn, forks it after the input, and runs the fork."""

    async def play(sim: Simulation) -> Story:
        stage, story = Stage(sim), Story()
        graph = make(stage)

        async def work(process: Process) -> None:
            await carry_on(process, lambda: graph, Talk())
            while not (await sim.store.head("t-2")).position:
                await tried_again(process.store.copy("t-1", "t-2", through=1))
            await carry_on(process, lambda: graph, Talk(thread_id="t-2"))

        await survived(sim, sim.process("a"), work, story)
        return await told(sim, stage, story, "t-1", "t-2")

    return Scenario(name, play)


def deleted(name: str, make: Make) -> Scenario[Story]:
    """Make a scenario that runs a turn, deletes the thread, and opens it anew."""

    async def play(sim: Simulation) -> Story:
        stage, story = Stage(sim), Story()
        graph = make(stage)
        first: list[str] = []

        async def work(process: Process) -> None:
            head = await sim.store.head("t-1")
            if not first or head.incarnation == first[0]:
                if not first:
                    await carry_on(process, lambda: graph, Talk())
                    first.append((await sim.store.head("t-1")).incarnation or "")
                while (await sim.store.head("t-1")).incarnation == first[0]:
                    await tried_again(process.thread("t-1", graph).delete())
            await carry_on(process, lambda: graph, Talk(inputs=("Again",)))

        await survived(sim, sim.process("a"), work, story)
        if (await sim.store.head("t-1")).incarnation in first:
            story.broken.append("I18: the thread was not made anew")
        return await told(sim, stage, story)

    return Scenario(name, play)


EFFECT = talk("effect", mailing)
APPROVED = talk("effect, request and response", approved)
TWO_EFFECTS = talk(
    "two effects in sequence",
    lambda stage: line(mail=stage.effect(), refund=stage.effect("refund"), end=says("end")),
)
FAN = talk("fan-out to a join", lambda stage: fan(x=says("x"), y=says("y"), z=says("z")))
FAN_EFFECTS = talk(
    "fan-out of effects", lambda stage: fan(x=stage.effect("x"), y=stage.effect("y"))
)
TASKS = talk(
    "delegation of two tasks",
    lambda stage: line(
        start=says("start"), team=Team(lambda: line(work=says("worked"))), end=gathers
    ),
)
TASK_EFFECT = talk(
    "delegation with an effect",
    lambda stage: line(team=Team(lambda: line(mail=stage.effect())), end=gathers),
)

GRAPHS = (
    talk("one step", lambda stage: line(step=says("Hello."))),
    talk("ReAct loop", lambda stage: REACT, "Pay back o-1"),
    EFFECT,
    APPROVED,
    TWO_EFFECTS,
    FAN,
    FAN_EFFECTS,
    talk("loop with a budget trip", looping),
    TASKS,
    TASK_EFFECT,
    talk("transient failure", lambda stage: line(unsteady=unsteady)),
    talk("multi-turn", lambda stage: line(step=says("Hello.")), "Hello", "And now?"),
    forked("fork, then run", mailing),
    deleted("delete, then open again", mailing),
)
EFFECTS = (EFFECT, APPROVED, TWO_EFFECTS, FAN_EFFECTS, TASK_EFFECT)
