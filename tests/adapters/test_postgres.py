"""The PostgreSQL store keeps to the store contract, and to what a server adds to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pytest_soev.suites import TraceStoreSuite
from soev.domain import TraceStore
from tests import postgres

pytestmark = pytest.mark.anyio


class TestPostgresTraceStore(TraceStoreSuite):
    """The store contract, where other processes' appends are heard of."""

    listen = True
    schema: str
    clock: postgres.ServerClock

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[TraceStore]:
        self.schema = postgres.fresh_schema()
        async with postgres.open_store(self.schema, listen=self.listen) as store:
            self.clock = postgres.ServerClock(self.schema)
            yield store

    @asynccontextmanager
    async def reopen(self, store: TraceStore) -> AsyncIterator[TraceStore]:
        async with postgres.open_store(self.schema, listen=self.listen) as other:
            yield other

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestPollingPostgresTraceStore(TestPostgresTraceStore):
    """The store contract, where nobody listens."""

    listen = False
