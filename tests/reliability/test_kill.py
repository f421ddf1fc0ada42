"""Real processes on a real file, killed and stopped by signals."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.report import LEDGER, SOAK

ROOT = Path(__file__).parents[2]
POINTS = (
    "lease.acquired", "step.calling", "run.append.sending", "store.append.sending",
    "store.append.sent", "effect.intending", "effect.intended", "world.changed",
)  # fmt: skip
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs fork and signals")


def ran(directory: Path, mode: str, *words: str) -> list[dict[str, Any]]:
    """Run the program, and return what it printed of each run."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability.killed", mode, str(directory), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def held_to_calm(runs: list[dict[str, Any]], calm: dict[str, Any]) -> None:
    """Hold runs to the log and the acts of a calm one."""
    for each in runs:
        assert each["code"] == 0, each
        assert (each["log"], each["acts"]) == (calm["log"], [1]), each


def test_sigkill_at_any_point_changes_nothing(tmp_path: Path) -> None:
    """Killed at any point on SQLite, a turn leaves the log of a calm one, and one act."""
    runs = ran(tmp_path, "kill")
    *killed, calm = runs
    assert calm["died"] == 0
    assert all(each["died"] for each in killed)
    assert len(killed) > 30
    held_to_calm(killed, calm)
    LEDGER.counted("T5", "step, effect, step", "SIGKILL at every point, SQLite", len(killed))


def test_sigkill_twice_changes_nothing(tmp_path: Path) -> None:
    """Killed at two points, one after the other, a turn leaves one act and the calm log."""
    draw, pairs = random.Random(0), 25 * SOAK
    plans = [f"{draw.randint(1, 50)},{draw.randint(1, 50)}" for _ in range(pairs)]
    calm, *killed = ran(tmp_path, "kill", "9999", *plans)
    held_to_calm(killed, calm)
    assert any(each["died"] == 2 for each in killed)
    LEDGER.counted("T5", "step, effect, step", "two SIGKILLs, random points, SQLite", pairs)


def test_sigstop_past_the_lease_changes_nothing(tmp_path: Path) -> None:
    """Stopped, overtaken and gone on with, a process appends nothing, and acts no second time."""
    (calm,) = ran(tmp_path, "kill", "9999")
    times = 1 if SOAK == 1 else 5
    for number in range(times):
        (directory := tmp_path / f"run-{number}").mkdir()
        runs = ran(directory, "stop", *POINTS)
        held_to_calm(runs, calm)
        assert all(each["stopped"] and each["same"] for each in runs), runs
        assert {each["late"] for each in runs} <= {0, 3}
    LEDGER.counted("T6", "step, effect, step", "SIGSTOP past the lease, SQLite", times * 8)
