"""The loop behaves like asyncio's own in the usual order, and the same for equal seeds."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_soev.world import Pct, Replay, Strategy, Uniform, WorldLoop
from tests.reliability.report import LEDGER, SOAK
from tests.world.programs import PROGRAMS, Program, StockLoop, log_of

PROGRAMS_RUN = 200 if SOAK == 1 else 100 * SOAK
EAGER = [False, True] if sys.version_info >= (3, 12) else [False]


@pytest.mark.parametrize("eager", EAGER)
@settings(max_examples=PROGRAMS_RUN)
@given(program=PROGRAMS)
def test_the_usual_order_is_that_of_asyncio(eager: bool, program: Program) -> None:
    """In the order of asyncio a program does the same, at the same times, as on its own loop."""
    assert log_of(WorldLoop(), program, eager=eager) == log_of(StockLoop(), program, eager=eager)
    LEDGER.counted("T12", "generated programs", "the usual order against asyncio", 1)


@settings(max_examples=100)
@given(program=PROGRAMS, seed=st.integers(0, 1000), pct=st.booleans())
def test_equal_seeds_make_equal_schedules(program: Program, seed: int, pct: bool) -> None:
    """A seed makes the same choices and the same log again, and its answers replay it."""

    def strategy() -> Strategy:
        return Pct(seed) if pct else Uniform(seed)

    first, again = WorldLoop(strategy()), WorldLoop(strategy())
    log = log_of(first, program)
    assert log == log_of(again, program)
    assert (first.answers, first.widths, first.steps) == (again.answers, again.widths, again.steps)
    assert log == log_of(WorldLoop(Replay(first.answers)), program)
