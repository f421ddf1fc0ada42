"""Real processes on a real file, killed and stopped by signals."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_soev.world import Scenario
from tests.reliability.graphs import EFFECTS, GRAPHS
from tests.reliability.report import LEDGER, SOAK
from tests.reliability.rules import Story, holds

ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")
POINTS = (
    "lease.acquired", "step.calling", "run.append.sending", "store.append.sending",
    "store.append.sent", "effect.intending", "effect.intended", "world.changed",
)  # fmt: skip
PAIRS = 100 if SOAK == 1 else 500 * SOAK
STOPS = 1 if SOAK == 1 else 10
# What the play of the last graph has deleted is known to its own memory alone.
FIT = GRAPHS[:-1]
Run = dict[str, Any]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs fork and signals")
each_fit = pytest.mark.parametrize("scenario", FIT, ids=lambda scenario: scenario.name)
each_effect = pytest.mark.parametrize("scenario", EFFECTS, ids=lambda scenario: scenario.name)


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory in memory where there is one: what is killed loses no file of its own."""
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="soev-", dir=memory) as directory:
        yield Path(directory)


def ran(directory: Path, mode: str, scenario: Scenario[Story], *words: str) -> list[Run]:
    """Run the program, and return what it printed of each run."""
    number = str(GRAPHS.index(scenario))
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability.killed", mode, str(directory), number, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def held_to_calm(scenario: Scenario[Story], runs: Sequence[Run]) -> None:
    """Hold runs to the log and the acts of a calm one in the deterministic world."""
    calm = holds(scenario.run())
    for each in runs:
        assert each["code"] == 0, each
        assert each["broken"] == [], each
        assert (each["log"], each["acts"]) == (list(calm.log), list(calm.acts)), each


@each_fit
def test_sigkill_at_any_point_changes_nothing(place: Path, scenario: Scenario[Story]) -> None:
    """Killed at any point on SQLite, a graph leaves the log and the acts of a calm run."""
    runs = ran(place, "kill", scenario)
    *killed, spared = runs
    assert spared["died"] == 0
    assert all(each["died"] for each in killed)
    assert len(killed) > 20
    held_to_calm(scenario, runs)
    LEDGER.counted("T5", scenario.name, "SIGKILL at every point, SQLite", len(killed))


@each_effect
def test_sigkill_twice_changes_nothing(place: Path, scenario: Scenario[Story]) -> None:
    """Killed at two points, one process after the other, effects leave the calm log and acts."""
    every = [f"{first},{second}" for first in range(1, 41) for second in range(1, 41)]
    pairs = min(PAIRS // len(EFFECTS), len(every))
    plans = random.Random(scenario.name).sample(every, pairs)
    runs = ran(place, "kill", scenario, *plans)
    held_to_calm(scenario, runs)
    assert any(each["died"] == 2 for each in runs)
    LEDGER.counted("T5", scenario.name, "two SIGKILLs, random points, SQLite", pairs)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", EFFECTS[:3], ids=lambda scenario: scenario.name)
def test_sigkill_at_every_pair_of_points_changes_nothing(
    place: Path, scenario: Scenario[Story]
) -> None:
    """Killed at any point, and again at any point of the process after it, nothing changes."""
    points = sum(each["died"] for each in ran(place, "kill", scenario))
    firsts = [f"{at},*" for at in range(1, points + 1)]
    halves = [(place / f"half-{half}", firsts[half::2]) for half in range(2)]

    def half(directory: Path, words: list[str]) -> list[Run]:
        directory.mkdir()
        return ran(directory, "kill", scenario, *words)

    with ThreadPoolExecutor(2) as pool:
        runs = [run for each in pool.map(half, *zip(*halves, strict=True)) for run in each]
    held_to_calm(scenario, runs)
    pairs = sum(each["died"] == 2 for each in runs)
    assert pairs > points
    LEDGER.counted("T5", scenario.name, "two SIGKILLs, every pair of points, SQLite", pairs)


def test_sigkill_while_the_tables_are_made_changes_nothing(place: Path) -> None:
    """Killed before any statement that makes the tables, a process leaves a file to go on with."""
    scenario = EFFECTS[0]
    runs = ran(place, "create", scenario)
    held_to_calm(scenario, runs)
    assert len(runs) > 10
    LEDGER.counted("T5", scenario.name, "SIGKILL while the tables are made, SQLite", len(runs) - 1)


@each_effect
def test_sigstop_past_the_lease_changes_nothing(place: Path, scenario: Scenario[Story]) -> None:
    """Stopped, overtaken and gone on with, a process appends nothing, and acts no second time."""
    for number in range(STOPS):
        (directory := place / f"round-{number}").mkdir()
        runs = ran(directory, "stop", scenario, *POINTS)
        held_to_calm(scenario, runs)
        assert all(each["stopped"] and each["same"] and each["late"] == 0 for each in runs), runs
    LEDGER.counted("T6", scenario.name, "SIGSTOP past the lease, SQLite", STOPS * len(POINTS))
