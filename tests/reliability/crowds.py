"""Several processes, with clocks that are wrong, carry one talk on at the same time."""

from collections.abc import Callable

from pytest_soev.world import (
    Process,
    ProcessDiedError,
    Scenario,
    Setting,
    Simulation,
    Talk,
    carry_on,
    raced,
)
from soev.domain import Input, OutcomeUnknownError
from soev.runtime import Graph, Runs, Thread
from tests.reliability.graphs import Stage, Team, asks, fan, line, looping, mailing, says, told
from tests.reliability.rules import Story
from tests.reliability.traps import slow

DAY = 86_400.0


async def carried_on(process: Process, graph: Graph) -> None:
    """Carry a talk on, also when a freeze outlasted the store's answer to taking the lease."""
    while True:
        try:
            return await carry_on(process, lambda: graph, Talk(inputs=()))
        except OutcomeUnknownError:
            continue


def crowd(name: str, make: Callable[[Stage], Graph], *inputs: str) -> Scenario[Story]:
    """Make a scenario in which three processes carry a talk on, as far as they live.

    The world drops a repeat of an intent's id: a process that is frozen between its last look at
    the clock and its call acts late, and nobody but the world can tell.
    """

    async def play(sim: Simulation) -> Story:
        stage, story = Stage(sim), Story()
        sim.world.drops_repeats = True
        graph = make(stage)
        crew = [
            sim.process("a"),
            sim.process("b", offset=DAY, rate=1.1),
            sim.process("c", offset=-DAY, rate=0.9),
        ]
        # A fresh input has no id by which a second one could be known, so one caller sends it.
        caller = Thread("t-1", None, sim.store, Runs(clock=sim.clock), version="1")
        for said in inputs or ("Hello", "And now?"):
            await caller.submit(Input(payload=said))
            came = await raced(
                *(
                    sim.loop.create_task(each.call(carried_on(each, graph)))
                    for each in crew
                    if each.alive
                )
            )
            story.broken += [
                f"a process came to {each!r}"
                for each in came
                if each is not None and not isinstance(each, ProcessDiedError)
            ]
        return await told(sim, stage, story)

    return Scenario(name, play, Setting(lease_ttl=9))


CROWDS = (
    crowd("crowd around an effect", mailing),
    crowd(
        "crowd around an approved effect",
        lambda stage: line(ask=asks, mail=stage.effect(), end=says("end")),
    ),
    crowd(
        "crowd around a fan-out of effects",
        lambda stage: fan(x=stage.effect("x"), y=stage.effect("y"), z=says("z")),
    ),
    crowd(
        "crowd around tasks",
        lambda stage: line(team=Team(lambda: line(mail=stage.effect())), end=says("end")),
    ),
    crowd("crowd around a loop", looping),
)
PATIENT = crowd("crowd around a long step", slow, "Hello")
