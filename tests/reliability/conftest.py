"""Writes the report of a long run when the session ends."""

import os

import pytest

from tests.reliability.report import LEDGER, write


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Write the report where `SOEV_REPORT` says, once anything was run."""
    path = os.environ.get("SOEV_REPORT")
    if path and LEDGER.rows:
        write(path)
