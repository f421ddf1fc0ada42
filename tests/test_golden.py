"""The golden traces of the example agent, replayed by today's code."""

from pathlib import Path

import pytest

from examples.support_desk import agents
from examples.support_desk.record import recorded
from examples.support_desk.scenarios import SCENARIOS, Scenario
from soev.domain import BudgetExceeded, EffectResult, Failure, Request
from soev.golden import (
    TRACE_SUFFIX,
    CheckOptions,
    GoldenTrace,
    calls_path,
    check,
    golden_text,
    read_golden,
)

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parent.parent / "fixtures" / "golden"
TRACES = sorted(GOLDEN.glob(f"*{TRACE_SUFFIX}"))


def types_of(trace: GoldenTrace) -> list[str]:
    """Return the types of a trace's events, in order."""
    return [event.type for event in trace.events]


@pytest.fixture(params=TRACES, ids=lambda path: path.name.removesuffix(TRACE_SUFFIX))
def path(request: pytest.FixtureRequest) -> Path:
    """Yield each trace."""
    found: Path = request.param
    return found


@pytest.fixture
def golden(path: Path) -> GoldenTrace:
    """Read the trace, outside of the event loop."""
    return read_golden(path)


@pytest.fixture
def accepted(path: Path) -> str:
    """Read what was accepted for it."""
    return calls_path(path).read_text("utf-8")


async def test_each_trace_holds(golden: GoldenTrace, accepted: str) -> None:
    """Today's code sends what was accepted, and takes the routes that were taken."""
    report = await check(golden, accepted, agents(), CheckOptions(routes=True))
    assert [problem.text for problem in report.problems] == []
    assert report.passed


def test_the_traces_cover_what_matters() -> None:
    """There are traces with approvals, effects, a trip, a failure, and one that is long."""
    traces = [read_golden(path) for path in TRACES]
    seen = {each for trace in traces for each in types_of(trace)}
    assert {Request.type, BudgetExceeded.type, Failure.type, EffectResult.type} <= seen
    assert len(traces) >= 8
    assert max(len(trace.events) for trace in traces) > 200


@pytest.mark.parametrize("scenario", SCENARIOS[:2], ids=lambda scenario: scenario.name)
async def test_recording_twice_gives_the_same_bytes(scenario: Scenario) -> None:
    """No clock and no random id is in a golden trace."""
    first, second = [await recorded(scenario, Path("golden")) for _ in range(2)]
    assert golden_text(first.trace) == golden_text(second.trace)
    assert first.calls == second.calls
