"""Each store call fails in each of eight ways, once or until somebody repairs the store.

| kind | what the caller hears | what is stored |
| --- | --- | --- |
| refuse | StoreUnavailableError | nothing |
| busy, full | the same, each with its own reason | nothing |
| disconnect | OutcomeUnknownError of a write | nothing |
| lost | OutcomeUnknownError of a write | at once |
| late | OutcomeUnknownError of a write | some time later |
| slow | the answer, late | at once |
| corrupt | UnreadableEventError of a read, with the thread and the position | as ever |

Whatever it is, the log is that of a calm run once the store is whole again.
"""

from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from pytest_soev.world import (
    Fault,
    FaultKind,
    Process,
    Report,
    Scenario,
    SchedulePlan,
    Setting,
    Simulation,
    passed,
)
from soev.domain import (
    Input,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from soev.runtime import Graph, Thread, UnreadableEventError
from tests.reliability.graphs import Stage, Team, approved, gathers, line, mailing, told
from tests.reliability.report import LEDGER
from tests.reliability.rules import Story, as_calm, log

TTL = 9.0
KINDS: Sequence[FaultKind] = (
    "refuse", "lost", "late", "busy", "full", "disconnect", "slow", "corrupt",
)  # fmt: skip
SAID = {"busy": "it is locked by somebody else", "full": "its disk is full"}
Errors = StoreUnavailableError | OutcomeUnknownError | UnreadableEventError
MOST_ATTEMPTS = 40


def outage(name: str, make: Callable[[Stage], Graph]) -> Scenario[Story]:
    """Make a scenario in which a caller tries again after each failure of the store.

    The first failure that a caller hears of has the store repaired.
    """

    async def play(sim: Simulation) -> Story:
        stage, story = Stage(sim), Story()
        graph, process = make(stage), sim.process("a")
        for _ in range(MOST_ATTEMPTS):
            try:
                if await process.call(went_on(process.thread("t-1", graph))):
                    return await told(sim, stage, story)
            except (LeaseHeldError, LeaseLostError):
                await passed(TTL)
            except get_args(Errors) as error:
                await heard(sim, process, error, story)
        raise AssertionError(f"The talk was not over after {MOST_ATTEMPTS} attempts.")

    return Scenario(name, play, Setting(lease_ttl=TTL))


async def went_on(thread: Thread) -> bool:
    """Do the next thing in a thread, and tell whether nothing was left to do."""
    status = await thread.status()
    if not status.position:
        await thread.submit(Input(payload="Hello"))
    elif status.pending:
        await thread.submit(Input(payload=True), answering=status.pending[0].event)
    elif status.state == "finished":
        return True
    else:
        await thread.resume()
    return False


async def heard(sim: Simulation, process: Process, error: Errors, story: Story) -> None:
    """Hold what a caller heard to the fault that struck, and repair the store."""
    (fault,) = sim.plan.faults
    corrupt = fault.kind == "corrupt"
    if isinstance(error, UnreadableEventError) is not corrupt:
        story.broken.append(f"S2: a caller heard {error!r} of a {fault.kind!r} store")
    if SAID.get(fault.kind, "") not in str(error):
        story.broken.append(f"S2: {error} does not say that {SAID[fault.kind]}")
    if isinstance(error, UnreadableEventError):
        await stays(sim, error, story)
    story.seen.append(fault.kind)
    sim.calls.faults = ()
    await passed(TTL)


async def stays(sim: Simulation, error: UnreadableEventError, story: Story) -> None:
    """See that an error names a row that is there, and that nothing is written after it."""
    entries = await log(sim.store, "t-1")
    there = error.position is not None and 1 <= error.position <= len(entries)
    if error.thread_id != "t-1" or not there:
        story.broken.append(f"D7: {error} does not name its row")
    await passed(3 * TTL)
    if await log(sim.store, "t-1") != entries:
        story.broken.append("D7: something was written beside a row that cannot be read")


SCENARIOS = (
    outage("outage around an effect", mailing),
    outage("outage around an approved effect", approved),
    outage(
        "outage around a task with an effect",
        lambda stage: line(
            team=Team(lambda: line(mail=stage.effect()), tasks=("one",)), end=gathers
        ),
    ),
)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "until it is repaired"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_store_that_fails_at_any_call_changes_nothing(
    scenario: Scenario[Story], kind: FaultKind, lasting: bool
) -> None:
    """Struck at any call, once or for a while, a thread ends with the log of a calm run."""
    calm, told_of = scenario.run(), 0
    report = Report(scenario, as_calm(calm), exhausted=True)
    for at in range(1, len(calm.calls) + 1):
        outcome = scenario.run(SchedulePlan(faults=(Fault(kind, at, lasting=lasting),)))
        report.add(outcome)
        told_of += kind in (outcome.value.seen if outcome.value else ())
    how = f"each call fails {'until it is repaired' if lasting else 'once'}: {kind}"
    LEDGER.ran("T8", how, report)
    report.check()
    # A run repeats a write that failed once; a read that fails, and what lasts, reach a caller.
    assert (told_of > 0) is (kind != "slow")


def test_a_row_that_cannot_be_read_is_named() -> None:
    """A caller learns which row of which thread it is, and no secret of it."""

    async def play(sim: Simulation) -> str:
        process, graph = sim.process("a"), mailing(Stage(sim))
        thread = process.thread("t-1", graph)
        await process.call(thread.submit(Input(payload="Hello")))
        with pytest.raises(UnreadableEventError) as caught:
            await process.call(thread.resume())
        return str(caught.value)

    plan = SchedulePlan(faults=(Fault("corrupt", 1, "read", lasting=True),))
    text = Scenario("one bad row", play).run(plan).result()
    assert text.startswith("The event 'input' at position 1 of thread 't-1' cannot be read back: ")
    assert "Hello" not in text
