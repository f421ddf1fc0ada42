"""Once nothing goes wrong any more, every thread comes to rest within three times its lease."""

import pytest

from pytest_soev.world import Fault, FaultKind, Outcome, Report, SchedulePlan
from soev.domain import Input, OutcomeUnknownError, StoreUnavailableError
from tests.reliability.races import TTL, Race, race, resumed
from tests.reliability.report import LEDGER
from tests.reliability.rules import Story, holds

KINDS: tuple[FaultKind, ...] = ("refuse", "lost", "disconnect", "full")


async def outage(race: Race) -> None:
    """Run a turn on a store that fails from some call on, then elsewhere on one that is back."""
    await race.sim.store.delete("t-1")
    running = race.a.start(race.thread(race.a).send(Input(payload="Hello")))
    try:
        await running
    except (StoreUnavailableError, OutcomeUnknownError) as error:
        race.must(bool(str(error)), "an error says nothing")
    begun = race.sim.loop.now
    race.sim.calls.faults = ()
    if not (await race.types()):
        await race.b.call(race.thread(race.b).submit(Input(payload="Hello")))
    await race.b.call(resumed(race.thread(race.b)))
    race.must((await race.types())[-1] == "ended", "the turn did not end")
    race.must(race.sim.loop.now - begun <= 3 * TTL, "it took longer than three leases")
    race.must(set(race.sim.world.acts.values()) == {1}, "the act did not happen once")


OUTAGE = race("outage of the store", outage)


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_goes_on_after_an_outage(kind: FaultKind) -> None:
    """From whatever call on the store fails, a turn is run to its end once it is back."""

    def expect(outcome: Outcome[Story]) -> None:
        holds(outcome)

    report = Report(OUTAGE, expect)
    for at in range(1, len(OUTAGE.run().calls) + 1):
        report.add(OUTAGE.run(SchedulePlan(faults=(Fault(kind, at, lasting=True),))))
    LEDGER.ran("T11", f"`{kind}` from each call on", report)
    report.check()
