"""Writes the report of a long run when it ends, also of one in several processes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.reliability.report import LEDGER, write

NOTED = "reliability"


class Recorder:
    """Notes what tests of every folder come to, which hooks of this file would not be told."""

    def pytest_runtest_logstart(self) -> None:
        """Count the time of each test for itself."""
        LEDGER.begin()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed, also one that came to no row of the report."""
        if report.failed:
            LEDGER.broke(report.nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Listen to each test once: pytest-xdist repeats in its controller what its workers say."""
    config.pluginmanager.register(Recorder(), "soev-reliability")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add what a worker of pytest-xdist has noted, or that it took its notes along."""
    noted = getattr(node, "workeroutput", {}).get(NOTED)
    if noted is None:
        LEDGER.lost.append(node.gateway.id)
    else:
        LEDGER.add(noted)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand on what was noted, or write the report where `SOEV_REPORT` says."""
    output = getattr(session.config, "workeroutput", None)
    path = os.environ.get("SOEV_REPORT")
    if output is not None:
        output[NOTED] = LEDGER.data()
    elif path and (LEDGER.rows or LEDGER.broken):
        write(path)
