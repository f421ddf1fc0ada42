"""The harness: your agents in a test, with a scripted model, a world that records, and crashes.

The fixtures of the plugin give it: `soev` is one process for one test, `soev_harness` makes more.
"""

from pytest_soev.harness._clock import HarnessClock
from pytest_soev.harness._crash import EFFECT_POINTS, CrashPlan
from pytest_soev.harness._errors import (
    ActOutsideEffectError,
    ChangedEventError,
    DeadProcessError,
    HarnessError,
    ImpureError,
    LeftTasksError,
    NoThreadError,
    NotReachedError,
    NotSettledError,
    ProcessCrash,
)
from pytest_soev.harness._factory import HarnessFactory, in_memory
from pytest_soev.harness._harness import Harness, settled
from pytest_soev.harness._process import Parts
from pytest_soev.harness._sweeping import CrashReport, SweepFailedError
from pytest_soev.harness._world import HarnessWorld

__all__ = [
    "EFFECT_POINTS",
    "ActOutsideEffectError",
    "ChangedEventError",
    "CrashPlan",
    "CrashReport",
    "DeadProcessError",
    "Harness",
    "HarnessClock",
    "HarnessError",
    "HarnessFactory",
    "HarnessWorld",
    "ImpureError",
    "LeftTasksError",
    "NoThreadError",
    "NotReachedError",
    "NotSettledError",
    "Parts",
    "ProcessCrash",
    "SweepFailedError",
    "in_memory",
    "settled",
]
