"""The test harness of soev: fixtures, suites and strategies, imported when they are asked for."""

from importlib import import_module

import pytest

pytest.register_assert_rewrite(
    "pytest_soev.suites", "pytest_soev.harness", "pytest_soev.strategies"
)

_HOMES = {
    "ChatModelSuite": "pytest_soev.suites",
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
    "stream": "soev.adapters",
    "think": "soev.adapters",
}

__all__ = [
    "ChatModelSuite",
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
    "stream",
    "think",
]


def __getattr__(name: str) -> object:
    """Import a public name from where it lives, the first time that it is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
