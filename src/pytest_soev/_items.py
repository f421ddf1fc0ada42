"""The functions that golden items run: pytest wants a module with real functions in it."""

from __future__ import annotations

import pytest


def replay(request: pytest.FixtureRequest) -> None:
    """Rebuild every model call of a golden trace and compare it with the accepted one."""
    from pytest_soev._check import check_item

    check_item(request, routes=False)


def routes(request: pytest.FixtureRequest) -> None:
    """Ask today's graphs for each decision of a golden trace and compare it with the recorded."""
    from pytest_soev._check import check_item

    check_item(request, routes=True)
