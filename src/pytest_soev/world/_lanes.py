"""Lanes: what is ready to run, and in which order it may run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_soev.world._lives import Life

KEPT_LANES: Final = 256


@dataclass(eq=False, slots=True)
class Lane:
    """What must stay in order: the steps of one task, or the callbacks of one process.

    Args:
        number: Which lane it is in the schedule, from 0. A boundary has its task's number.
        life: The process that it belongs to.
        owner: What it is the lane of, kept so that nothing of a dead process is collected.
        boundary: Whether what it holds are answers from outside of the process.
    """

    number: int
    life: Life
    owner: Hashable
    boundary: bool = False
    handles: deque[tuple[int, asyncio.Handle]] = field(default_factory=deque)

    @property
    def since(self) -> int:
        """When its first handle became ready."""
        return self.handles[0][0]


class Lanes:
    """Every lane of a schedule, and which of them are ready."""

    def __init__(self) -> None:
        self.ready: list[Lane] = []
        self.count = 0
        self._lanes: dict[Hashable, Lane] = {}
        self._numbers = self._order = 0
        self._sweep_at = KEPT_LANES
        self._parked: list[Lane] = []

    def lane(self, owner: Hashable, life: Life) -> Lane:
        """Return the lane of a task, a process or a job. A new one belongs to a process.

        Args:
            owner: What it is the lane of.
            life: The process.
        """
        found = self._lanes.get(owner)
        if found is None:
            if len(self._lanes) >= self._sweep_at:
                self._sweep()
            found = self._lanes[owner] = Lane(self._numbers, life, owner)
            self._numbers += 1
        return found

    def boundary(self, lane: Lane) -> Lane:
        """Return the lane in which a task's answers from outside arrive."""
        key = (lane.number, "boundary")
        found = self._lanes.get(key)
        if found is None:
            found = self._lanes[key] = Lane(lane.number, lane.life, lane.owner, boundary=True)
        return found

    def _sweep(self) -> None:
        """Forget the lanes of tasks that ended."""
        for key, lane in list(self._lanes.items()):
            ended = isinstance(lane.owner, asyncio.Future) and lane.owner.done()
            if ended and not lane.handles:
                del self._lanes[key]
        self._sweep_at = max(KEPT_LANES, 2 * len(self._lanes))

    def add(self, lane: Lane, handle: asyncio.Handle) -> None:
        """Put a handle at the end of a lane."""
        self._order += 1
        if not lane.handles:
            (self.ready if lane.life.running else self._parked).append(lane)
        lane.handles.append((self._order, handle))
        if lane.life.running:
            self.count += 1

    def take(self, lane: Lane) -> asyncio.Handle:
        """Take the first handle of a lane that is ready."""
        _, handle = lane.handles.popleft()
        self.count -= 1
        if not lane.handles:
            self.ready.remove(lane)
        return handle

    def sort(self) -> None:
        """Put aside the lanes of processes that stand still, and take back those that go on."""
        every = self.ready + self._parked
        self.ready = [lane for lane in every if lane.life.running]
        self._parked = [lane for lane in every if not lane.life.running]
        self.count = sum(len(lane.handles) for lane in self.ready)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended, the oldest first."""
        lanes = sorted(self._lanes.values(), key=lambda lane: lane.number)
        tasks = [lane.owner for lane in lanes if isinstance(lane.owner, asyncio.Task)]
        return [task for task in dict.fromkeys(tasks) if not task.done()]

    def life_of(self, task: asyncio.Task[Any]) -> Life | None:
        """Return the process of a task."""
        found = self._lanes.get(task)
        return None if found is None else found.life

    def forget(self) -> None:
        """Let everything go, at the end of the schedule."""
        for lane in self._lanes.values():
            lane.handles.clear()
        self._lanes.clear()
        self.ready, self._parked, self.count = [], [], 0
