"""A failed comparison of traces or requests says where they differ."""

import pytest

from pytest_soev.plugin import pytest_assertrepr_compare
from soev.domain import ChatRequest, Input, Opened, SystemMessage, Trace, UserMessage


def request(system: str) -> ChatRequest:
    """Make a request with this system prompt."""
    return ChatRequest(messages=(SystemMessage(system), UserMessage("Hi")))


def explained(config: pytest.Config, left: object, right: object) -> list[str] | None:
    """Return what pytest prints below `left == right`."""
    return pytest_assertrepr_compare(config, "==", left, right)


def test_two_requests(pytestconfig: pytest.Config) -> None:
    """The lines that differ are shown, and what they are part of."""
    left, right = request("Be brief.\nCite."), request("Be kind.\nCite.")
    assert explained(pytestconfig, left, right) == [
        "the requests differ",
        "system message (message 0)",
        "  - Be brief.",
        "  + Be kind.",
    ]


def test_two_traces(pytestconfig: pytest.Config) -> None:
    """The first event that differs is shown with its position."""
    opened = Opened(agent="assistant")
    left, right = Trace([opened, Input(payload="Hi")]), Trace([opened])
    lines = explained(pytestconfig, left, right)
    assert lines is not None
    assert lines[:2] == ["the traces differ (2 and 1 events)", "first at position 2:"]
    assert lines[2].startswith("  - Input(")
    assert lines[3] == "  + nothing"


def test_other_values_are_left_to_pytest(pytestconfig: pytest.Config) -> None:
    """Values of other kinds, and other comparisons, are not ours."""
    assert explained(pytestconfig, [1], [2]) is None
    assert explained(pytestconfig, request("A"), "A") is None
    assert pytest_assertrepr_compare(pytestconfig, "!=", request("A"), request("A")) is None
