"""Races of three callers: whoever is first, no rule breaks and each loser gets a named error."""

from __future__ import annotations

from typing import Any

from pytest_soev.world import Process, passed, raced
from soev.domain import Input, LeaseHeldError, LeaseLostError, UnknownThreadError
from soev.runtime import InputDeniedError, NothingToCancelError, ThreadActiveError
from tests.reliability.graphs import asks, line, says
from tests.reliability.races import TTL, Race, Work, asked, race, resumed


def third(race: Race) -> Process:
    """Return the third process of a race."""
    return race.sim.process("c")


async def all_at_once(race: Race, *works: Work) -> list[Any]:
    """Let three callers begin at once, each in a process of its own."""
    crew = (race.a, race.b, third(race))
    return await raced(
        *(each.start(work) for each, work in zip(crew, works, strict=True)),
    )


async def cancelled_or_not(race: Race, cancel: object) -> None:
    """Hold the log to what the cancel came to."""
    types = await race.types()
    if race.only(cancel, NothingToCancelError):
        race.must("cancelled" not in types, "I16: a refused cancel was recorded")
    else:
        race.must(types.count("cancelled") == 1, "I16: Cancelled is not there once")


async def resume_resume_cancel(race: Race) -> None:
    """Two run one turn while a third cancels it."""
    await race.opened()
    one, two, cancel = await all_at_once(
        race,
        race.thread(race.a).resume(),
        race.thread(race.b).resume(),
        race.thread(third(race)).cancel(),
    )
    for each in (one, two):
        race.only(each, LeaseHeldError, LeaseLostError)
    await cancelled_or_not(race, cancel)
    await race.a.call(resumed(race.thread(race.a)))
    await race.rest()
    race.must((await race.types())[-1] != "input", "I26: nobody ran the turn")


async def respond_respond_cancel(race: Race) -> None:
    """Two answer one request while a third cancels the turn: one response at most is recorded."""
    request = await asked(race)
    *answers, cancel = await all_at_once(
        race,
        race.thread(race.a).submit(Input(payload=1), answering=request),
        race.thread(race.b).submit(Input(payload=2), answering=request),
        race.thread(third(race)).cancel(),
    )
    denied = [race.only(each, InputDeniedError) for each in answers]
    race.must(any(denied), "I20: two responses were taken")
    race.must(not race.only(cancel), "I16: the cancel lost")
    wanted = ["input", "request", *(["input"] if not all(denied) else []), "cancelled"]
    types = await race.types()
    race.must(types == wanted, f"I20: the log is {types}")


async def renew_steal_cancel(race: Race) -> None:
    """A lease ends while two take it and a third cancels: one holds it, and one order is kept."""
    await race.opened()
    lease = await race.a.call(race.a.store.acquire("t-1", "a", 3, request="r-1"))

    async def renew() -> object:
        await passed(3)
        return await race.a.store.renew(lease, 3)

    async def steal() -> object:
        await passed(3)
        return await race.b.store.acquire("t-1", "b", 3, request="r-2")

    async def cancel() -> object:
        await passed(3)
        return await race.thread(third(race)).cancel()

    renewed, stolen, cancelled = await all_at_once(race, renew(), steal(), cancel())
    lost = [race.only(renewed, LeaseLostError), race.only(stolen, LeaseHeldError)]
    race.must(sum(lost) == 1, f"I4: {renewed!r} and {stolen!r}")
    race.must(not race.only(cancelled), "I16: the cancel lost")
    now = (await race.sim.store.head("t-1")).lease
    race.must(now is not None and now.owner == ("b" if lost[0] else "a"), f"I4: {now!r} holds it")
    race.must(await race.types() == ["input", "cancelled"], "I16: Cancelled is not there once")


async def delete_resume_submit(race: Race) -> None:
    """Delete a thread while one runs it and another writes to it: no life mixes with the next."""
    await race.opened()
    deleted, ran, submitted = await all_at_once(
        race,
        race.thread(race.a).delete(),
        race.thread(race.b).resume(),
        race.thread(third(race)).submit(Input(payload="Next")),
    )
    race.must(deleted is None, f"I18: delete came to {deleted!r}")
    race.only(ran, UnknownThreadError, LeaseLostError, LeaseHeldError)
    refused = race.only(submitted, ThreadActiveError, UnknownThreadError)
    await passed(3 * TTL)
    types = await race.types()
    if refused:
        race.must(types == [], f"I18: {types} is left of a deleted thread")
    else:
        race.must(types[:1] in (["input"], []), f"I18: {types} begins in an earlier life")
        race.must(types.count("input") <= 1, f"I18: {types} holds two lives")


def speaking_asks(stage: object) -> Any:
    """Make a graph that asks a person, then ends."""
    return line(ask=asks, end=says("end"))


TRIOS = (
    race("resume, resume and cancel", resume_resume_cancel),
    race("respond, respond and cancel", respond_respond_cancel, speaking_asks),
    race("renew, steal and cancel", renew_steal_cancel),
    race("delete, resume and submit", delete_resume_submit),
)
"""Three callers at once, of whom each order is tried."""
