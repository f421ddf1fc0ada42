"""`soev_replay` holds a thread to today's code from inside a test."""

import pytest

from .shop import Shop

TESTS = """
import pytest
from pytest_soev import say
import shop

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_old(soev_replay):
    report = await soev_replay("tests/golden/refund.soev.jsonl")
    assert len(report.calls) == 3
    assert report.calls[-1].characters < 8_000
    report.unchanged()


async def test_except(soev_replay):
    report = await soev_replay("tests/golden/refund.soev.jsonl")
    report.unchanged(except_=["system"])


async def test_new(soev, soev_replay):
    soev.model.script(say("Hello."))
    await soev.run("assistant", "Hi")
    for source in (soev.thread, soev.trace()):
        report = await soev_replay(source)
        report.unchanged()


async def test_else(soev_harness, soev_replay, monkeypatch):
    monkeypatch.setattr(shop, "PROMPT", "Be rude.")
    with soev_harness() as soev:
        soev.model.script(say("What?"))
        await soev.run("assistant", "Hi")
    monkeypatch.undo()
    report = await soev_replay(soev.trace())
    assert [call.as_sent for call in report.calls] == [False]
    with pytest.raises(pytest.fail.Exception, match="something else than was sent in calls 1;"):
        report.unchanged()
"""


@pytest.fixture
def replaying(shop: Shop) -> Shop:
    """A project with a golden trace and tests that replay it."""
    path = shop.path / "tests" / "test_old.py"
    path.write_text(TESTS, "utf-8")
    return shop


def run(shop: Shop) -> pytest.RunResult:
    """Run the tests that replay."""
    return shop.run("-p", "anyio.pytest_plugin", "tests")


def test_what_is_as_accepted_passes(replaying: Shop) -> None:
    """A golden trace, a thread and a trace replay as they are."""
    run(replaying).assert_outcomes(passed=4)


def test_a_change_is_shown_unless_it_is_excepted(replaying: Shop) -> None:
    """The failure reads like that of a golden trace; `except_` lets a kind of change pass."""
    replaying.shorten_prompt()
    result = run(replaying)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        ["3 of 3 calls changed.*", "     - Answer briefly.", "     + Answer in one sentence."]
    )


def test_an_agent_that_is_gone_is_told(replaying: Shop) -> None:
    """What cannot be replayed fails with the reason of a golden trace."""
    replaying.edit('{"assistant"', '{"helper"')
    result = run(replaying)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*agent 'assistant' is not in the catalog (helper)*"])
