"""One run of a scenario in the deterministic world."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

from pytest_soev.world._effects import World
from pytest_soev.world._errors import WorldError
from pytest_soev.world._lives import Life
from pytest_soev.world._loop import Limits, Mode, WorldLoop
from pytest_soev.world._plans import SchedulePlan
from pytest_soev.world._points import Counting
from pytest_soev.world._processes import Process
from pytest_soev.world._strategies import Replay, Strategy
from pytest_soev.world._surface import NumberedTask
from pytest_soev.world._time import StoreClock
from pytest_soev.world._witness import Witness
from soev.adapters import InMemoryTraceStore
from soev.domain import Clock, TraceStore, fault_plan

T = TypeVar("T")

LEASE_TTL: Final = 30.0


def memory(clock: Clock) -> TraceStore:
    """Make the store that a schedule has by default.

    Args:
        clock: The store's clock.
    """
    return InMemoryTraceStore(clock=clock)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What schedules of one kind have in common.

    Args:
        mode: Which lanes are picked from: only answers from outside, or all.
        lease_ttl: The seconds that a lease lasts.
        limits: How long a schedule may be.
        store: Makes the store from its clock.
        eager: Whether tasks begin inside the call that creates them. It needs Python 3.12.
    """

    mode: Mode = "strict"
    lease_ttl: float = LEASE_TTL
    limits: Limits = field(default_factory=Limits)
    store: Callable[[Clock], TraceStore] = memory
    eager: bool = False


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of one schedule.

    Args:
        value: What the scenario returned, None when it raised.
        error: What it raised, or None.
        plan: The plan that runs it again.
        identity: The hash of every choice, point and blow: equal for equal schedules.
        points: The named points that were passed, each with its process.
        calls: The store calls that were made, each with its process.
        widths: How many lanes were ready at each choice.
        steps: How many handles ran.
        seconds: How much virtual time passed.
        left: The tasks that were left when the scenario ended, of processes that were alive.
        complaints: What nobody handled.
        logged: What the `soev` logger was told. It is not passed on to other handlers.
    """

    value: T | None
    error: BaseException | None
    plan: SchedulePlan
    identity: str
    points: tuple[str, ...]
    calls: tuple[str, ...]
    widths: tuple[int, ...]
    steps: int
    seconds: float
    left: tuple[str, ...]
    complaints: tuple[dict[str, Any], ...]
    logged: tuple[logging.LogRecord, ...]

    @property
    def token(self) -> str:
        """The plan as a short text."""
        return self.plan.token

    def result(self) -> T:
        """Return what the scenario returned, or raise what it raised with the token as a note."""
        if self.error is not None:
            note = f"Run this schedule again: scenario.again({self.token!r})"
            if note not in getattr(self.error, "__notes__", ()):
                self.error.add_note(note)
            raise self.error
        return self.value  # type: ignore[return-value]  # a scenario that did not raise returned


class Simulation:
    """A loop, a store, a world and processes, for one run of one scenario.

    Args:
        plan: What goes wrong, and the answers at the choices.
        strategy: What answers instead of the plan.
        setting: What schedules of this kind have in common.
    """

    def __init__(
        self,
        plan: SchedulePlan | None = None,
        strategy: Strategy | None = None,
        *,
        setting: Setting | None = None,
    ) -> None:
        self.setting = setting or Setting()
        mode = plan.mode if plan is not None else self.setting.mode
        self.plan = plan or SchedulePlan(mode=mode)
        self.lease_ttl = self.setting.lease_ttl
        self.loop = WorldLoop(
            strategy or Replay(self.plan.answers), mode=mode, limits=self.setting.limits
        )
        self.loop.frozen = self._frozen
        if self.setting.eager:
            self.loop.set_task_factory(asyncio.create_eager_task_factory(NumberedTask))  # type: ignore[attr-defined, unused-ignore]  # there from 3.12 on
        self.clock = StoreClock(self.loop)
        self.witness = Witness(self.setting.store(self.clock))
        self.world = World(durable=self.witness.intents.__contains__)
        faults = self.plan.faults
        self.calls = Counting([fault for fault in faults if not fault.at_point])
        self.points = Counting([fault for fault in faults if fault.at_point])
        self._processes: dict[str, Process] = {}
        self._logged: list[logging.LogRecord] = []

    @property
    def store(self) -> TraceStore:
        """The store itself: no call of it fails or takes time."""
        return self.witness

    def process(self, name: str, *, offset: float = 0.0, rate: float = 1.0) -> Process:
        """Return a process. The first call of a name begins it.

        Args:
            name: The process.
            offset: How far its clock is ahead, in seconds.
            rate: How fast its clock goes, 1 for right.
        """
        found = self._processes.get(name)
        if found is None:
            found = self._processes[name] = Process(self, Life(name, 1, offset, rate))
        return found

    def note(self, what: str, who: str) -> None:
        """Write something into the schedule's trace.

        Args:
            what: What happened.
            who: The process.
        """
        self.loop.trace.append((what, who))

    def _frozen(self) -> tuple[str, ...]:
        return tuple(name for name, each in self._processes.items() if each.frozen)

    def _reached(self, point: str) -> None:
        """Count a named point of a process, and let the fault strike that waits for it."""
        life = self.loop.life
        if not life.mortal or self.loop.is_closed():
            return
        self.loop.trace.append((point, str(life)))
        fault = self.points.next(point, str(life))
        if fault is None:
            return
        process = self._processes[life.name]
        if fault.kind == "crash":
            process.kill()
        else:
            process.freeze(fault.seconds)

    def run(self, scenario: Callable[[Simulation], Coroutine[Any, Any, T]]) -> Outcome[T]:
        """Run a scenario to its end, and hold the store to its rules.

        A simulation runs once.

        Args:
            scenario: The scenario.
        """
        value: T | None = None
        error: BaseException | None = None
        left: tuple[str, ...] = ()
        with _listening(self._logged):
            try:
                value = self.loop.run_until_complete(self._played(scenario))
                left = self._left()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as raised:  # noqa: BLE001  # what the scenario raised is its outcome
                error = raised
            finally:
                said = len(self._logged)
                self.loop.close()
                # What is taken down may complain of it, and that is nobody's fault.
                del self._logged[said:]
        return self._outcome(value, error, left)

    async def _played(self, scenario: Callable[[Simulation], Awaitable[T]]) -> T:
        fault_plan.set(self._reached)
        try:
            value = await scenario(self)
        except WorldError:
            raise
        except Exception:
            # A broken rule is the cause of what a scenario then finds wrong.
            if self.witness.broken:
                raise self.witness.broken[0] from None
            raise
        await self.witness.check()
        if self.world.refused:
            raise self.world.refused[0]
        return value

    def _left(self) -> tuple[str, ...]:
        tasks = self.loop.lanes.tasks()
        lives = [(task, self.loop.lanes.life_of(task)) for task in tasks]
        return tuple(task.get_name() for task, life in lives if life is not None and not life.dead)

    def _outcome(
        self, value: T | None, error: BaseException | None, left: tuple[str, ...]
    ) -> Outcome[T]:
        loop = self.loop
        trace = repr((loop.trace, loop.steps, type(error).__name__)).encode()
        return Outcome(
            value,
            error,
            SchedulePlan(tuple(loop.answers), self.plan.faults, self.plan.mode),
            blake2b(trace, digest_size=16).hexdigest(),
            tuple(self.points.passed),
            tuple(self.calls.passed),
            tuple(loop.widths),
            loop.steps,
            loop.now,
            left,
            tuple(loop.complaints),
            tuple(self._logged),
        )


class _Ears(logging.Handler):
    """Keeps what a logger is told."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@contextmanager
def _listening(records: list[logging.LogRecord]) -> Iterator[None]:
    """Keep what the `soev` logger is told: a schedule of many deaths says the same over and over.

    Args:
        records: Where it is kept.
    """
    logger, ears = logging.getLogger("soev"), _Ears(records)
    passes_on, logger.propagate = logger.propagate, False
    logger.addHandler(ears)
    try:
        yield
    finally:
        logger.removeHandler(ears)
        logger.propagate = passes_on
