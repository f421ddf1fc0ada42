"""The store suite is able to fail: each clause is broken by a store with one fault."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from pytest_soev.suites import TraceStoreSuite
from soev.adapters import InMemoryTraceStore
from soev.domain import TraceStore
from tests.clocks import FakeClock
from tests.conformance.faults import FAULTS, Fault, FaultyStore

CLAUSES = {
    name: f"{name[5].upper()}{int(name[6:8])}"
    for name in dir(TraceStoreSuite)
    if name.startswith("test_") and name[6:8].isdigit()
}


class Suite(TraceStoreSuite):
    """The suite on a store with one fault. A second handle is the store itself."""

    def __init__(self, method: str, fault: Fault, patience: float = 10.0) -> None:
        self.method, self.fault = method, fault
        self.patience = patience  # type: ignore[misc]  # a class's own, short for some faults

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[TraceStore]:
        self.clock = FakeClock()
        store = FaultyStore(InMemoryTraceStore(clock=self.clock), self.method, self.fault)
        yield cast("TraceStore", store)

    @asynccontextmanager
    async def reopen(self, store: TraceStore) -> AsyncIterator[TraceStore]:
        yield store

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class Private(Suite):
    """A store that shares nothing with a second handle on the same data."""

    @asynccontextmanager
    async def reopen(self, store: TraceStore) -> AsyncIterator[TraceStore]:
        yield InMemoryTraceStore(clock=self.clock)


def failing(suite: TraceStoreSuite) -> set[str]:
    """Run every clause, and return the numbers of those that fail."""
    failed = set()
    for name, number in CLAUSES.items():
        try:
            getattr(suite, name)()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # whatever fails a test
            failed.add(number)
    return failed


@pytest.mark.parametrize(
    ("method", "fault", "clauses"),
    [pytest.param(*listed, id=name) for name, *listed in FAULTS],
)
def test_fault_breaks_exactly_its_clauses(
    method: str, fault: Fault, clauses: frozenset[str]
) -> None:
    """A store with one fault fails the clauses that are named with it, and no others."""
    patience = 0.4 if any(clause.startswith("W") for clause in clauses) else 10.0
    assert failing(Suite(method, fault, patience)) == clauses


def sound(call: object) -> object:
    """Do nothing wrong."""
    return call.sound()  # type: ignore[attr-defined]  # a `Call`


def test_store_without_fault_passes() -> None:
    """The faulty store is sound apart from its fault."""
    assert failing(Suite("append", sound)) == set()


def test_store_of_one_process_fails_for_two() -> None:
    """A store that keeps its data to itself fails the clauses of a second handle."""
    assert failing(Private("append", sound, 0.4)) == {"A34", "W12", "L19", "D7"}


def test_every_clause_is_broken_by_some_fault() -> None:
    """No clause passes whatever a store does."""
    broken = {"A34", "W12", "L19", "D7"}.union(*(clauses for *_, clauses in FAULTS))
    assert broken == set(CLAUSES.values())
