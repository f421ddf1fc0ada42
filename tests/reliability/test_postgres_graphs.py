"""Wherever the server ends a session, the scenario graphs leave the log and acts of a calm run."""

import asyncio
from itertools import count

import pytest

from pytest_soev.world import Scenario, World
from soev.adapters import PostgresTraceStore
from tests import postgres
from tests.reliability.graphs import EFFECTS, GRAPHS
from tests.reliability.real import Reality
from tests.reliability.report import LEDGER
from tests.reliability.rules import Story, holds
from tests.reliability.wire import When, laid_wire

SPREAD = 3
OTHERS = [scenario for scenario in GRAPHS if scenario not in EFFECTS]
pytestmark = pytest.mark.skipif(
    postgres.DSN is not None, reason="only the socket of a server of the tests is known"
)


async def cleared(store: PostgresTraceStore) -> None:
    """Leave no thread of a play behind."""
    for thread_id in ("t-1", "t-2"):
        await store.delete(thread_id)


async def swept(scenario: Scenario[Story], calm: Story, when: When, step: int) -> int:
    """End the session of every so many statements of a play, and compare with a calm run.

    Returns:
        How many sessions were ended.
    """
    schema = await asyncio.to_thread(postgres.made_schema)
    async with (
        laid_wire() as wire,
        PostgresTraceStore(wire.dsn, schema=schema, patience=10.0, listen=False) as store,
    ):
        await store.head("")
        wire.aim(0)
        assert await Reality(store, World()).play(scenario) == calm
        numbers = range(1, wire.statements + 1, step)
        for at in numbers:
            await cleared(store)
            wire.aim(at, when)
            assert await Reality(store, World()).play(scenario) == calm, f"statement {at}"
            assert wire.statements >= at
    return len(numbers)


def hold_to_calm(scenario: Scenario[Story], when: When, step: int = 1) -> None:
    """Hold the struck plays on PostgreSQL to the calm one in the deterministic world."""
    runs = asyncio.run(swept(scenario, holds(scenario.run()), when, step))
    LEDGER.counted("T7", scenario.name, f"session ended {when} a statement, PostgreSQL", runs)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("scenario", EFFECTS, ids=lambda scenario: scenario.name)
def test_a_session_that_ends_around_an_effect_changes_nothing(
    scenario: Scenario[Story], when: When
) -> None:
    """Ended at any statement, before it or instead of its answer, effects come to the same."""
    hold_to_calm(scenario, when)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.name)
def test_a_session_that_ends_changes_nothing(scenario: Scenario[Story], when: When) -> None:
    """Ended at every so many statements, the other graphs come to the same."""
    hold_to_calm(scenario, when, step=SPREAD)


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "while", "after"])
@pytest.mark.parametrize("scenario", GRAPHS, ids=lambda scenario: scenario.name)
def test_a_session_that_ends_anywhere_changes_nothing(
    scenario: Scenario[Story], when: When
) -> None:
    """Ended at any statement, also while the server works on it, every graph comes to the same."""
    hold_to_calm(scenario, when)


async def made(scenario: Scenario[Story], calm: Story, when: When) -> int:
    """End the session of each statement with which a store makes its tables, then play."""
    async with laid_wire() as wire:
        for at in count(1):
            wire.aim(at, when)
            schema = postgres.fresh_schema()
            async with PostgresTraceStore(wire.dsn, schema=schema, listen=False) as store:
                await store.head("")
                missed = wire.statements < at
                wire.aim(0)
                assert await Reality(store, World()).play(scenario) == calm, f"statement {at}"
            if missed:
                return at - 1
    raise AssertionError


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_session_that_ends_while_the_tables_are_made_changes_nothing(when: When) -> None:
    """Ended at any statement that makes the tables, a session leaves a schema to go on with."""
    (scenario, *_) = EFFECTS
    runs = asyncio.run(made(scenario, holds(scenario.run()), when))
    assert runs > 5
    how = f"session ended {when} a statement that makes the tables, PostgreSQL"
    LEDGER.counted("T7", scenario.name, how, runs)
