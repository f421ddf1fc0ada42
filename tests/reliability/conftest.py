"""Writes the report of a long run when it ends, also of one in several processes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.reliability.report import LEDGER, write

NOTED = "reliability"


@pytest.fixture(autouse=True)
def _counted_from_here() -> None:
    """Count the time of each test for itself."""
    LEDGER.begin()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add what a worker of pytest-xdist has noted."""
    noted = getattr(node, "workeroutput", {}).get(NOTED)
    if noted is not None:
        LEDGER.add(noted)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand on what was noted, or write the report where `SOEV_REPORT` says."""
    output = getattr(session.config, "workeroutput", None)
    path = os.environ.get("SOEV_REPORT")
    if output is not None:
        output[NOTED] = LEDGER.data()
    elif path and LEDGER.rows:
        write(path)
