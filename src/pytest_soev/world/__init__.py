"""The deterministic world: one process simulates several, and decides what happens when.

An event loop with virtual time and a chosen order, processes that are killed, frozen and started
again in the middle of a step, a store whose calls fail, and a world that counts what was done to
it. Equal plans make equal runs; a failed one has a token that runs it again.
"""

from pytest_soev.world._effects import Honesty, RecordingEffector, World
from pytest_soev.world._errors import (
    BrokenRuleError,
    DeadlockError,
    EndlessError,
    OutsideError,
    ProcessDiedError,
    UndurableActError,
    WorldError,
)
from pytest_soev.world._loop import Limits, Mode, WorldLoop, boundary, passed
from pytest_soev.world._models import FunctionChatModel, calling
from pytest_soev.world._plans import Fault, FaultKind, SchedulePlan, shrink
from pytest_soev.world._processes import Process
from pytest_soev.world._simulation import Outcome, Setting, Simulation
from pytest_soev.world._stores import ProcessStore
from pytest_soev.world._strategies import (
    Exhaustion,
    Fifo,
    Pct,
    Priorities,
    Ready,
    Replay,
    Steady,
    Strategy,
    Uniform,
)
from pytest_soev.world._sweeps import (
    Report,
    Scenario,
    ScheduleFailedError,
    ends_well,
    exhaust,
    fail_each_call,
    same_as,
    shuffle,
    sweep,
)
from pytest_soev.world._talks import Talk, approve, carry_on, log_of, raced, survive
from pytest_soev.world._time import CountedIds, ProcessClock, StoreClock
from pytest_soev.world._witness import Witness

__all__ = [
    "BrokenRuleError",
    "CountedIds",
    "DeadlockError",
    "EndlessError",
    "Exhaustion",
    "Fault",
    "FaultKind",
    "Fifo",
    "FunctionChatModel",
    "Honesty",
    "Limits",
    "Mode",
    "Outcome",
    "OutsideError",
    "Pct",
    "Priorities",
    "Process",
    "ProcessClock",
    "ProcessDiedError",
    "ProcessStore",
    "Ready",
    "RecordingEffector",
    "Replay",
    "Report",
    "Scenario",
    "ScheduleFailedError",
    "SchedulePlan",
    "Setting",
    "Simulation",
    "Steady",
    "StoreClock",
    "Strategy",
    "Talk",
    "UndurableActError",
    "Uniform",
    "Witness",
    "World",
    "WorldError",
    "WorldLoop",
    "approve",
    "boundary",
    "calling",
    "carry_on",
    "ends_well",
    "exhaust",
    "fail_each_call",
    "log_of",
    "passed",
    "raced",
    "same_as",
    "shrink",
    "shuffle",
    "survive",
    "sweep",
]
