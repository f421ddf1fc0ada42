"""The test harness of soev: fixtures, suites and strategies, imported when they are asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_soev.harness import EFFECT_POINTS, Harness, settled
    from pytest_soev.suites import ChatModelSuite, TraceStoreSuite
    from soev.adapters import (
        ScriptedChatModel,
        call,
        calls,
        fail,
        forever,
        hold,
        optional,
        reply,
        say,
        stream,
        think,
    )

pytest.register_assert_rewrite(
    "pytest_soev.suites", "pytest_soev.harness", "pytest_soev.strategies"
)

_HOMES = {
    "EFFECT_POINTS": "pytest_soev.harness",
    "ChatModelSuite": "pytest_soev.suites",
    "Harness": "pytest_soev.harness",
    "ScriptedChatModel": "soev.adapters",
    "TraceStoreSuite": "pytest_soev.suites",
    "call": "soev.adapters",
    "calls": "soev.adapters",
    "fail": "soev.adapters",
    "forever": "soev.adapters",
    "hold": "soev.adapters",
    "optional": "soev.adapters",
    "reply": "soev.adapters",
    "say": "soev.adapters",
    "settled": "pytest_soev.harness",
    "stream": "soev.adapters",
    "think": "soev.adapters",
}

__all__ = [
    "EFFECT_POINTS",
    "ChatModelSuite",
    "Harness",
    "ScriptedChatModel",
    "TraceStoreSuite",
    "call",
    "calls",
    "fail",
    "forever",
    "hold",
    "optional",
    "reply",
    "say",
    "settled",
    "stream",
    "think",
]


def __getattr__(name: str) -> object:
    """Import a public name from where it lives, the first time that it is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
