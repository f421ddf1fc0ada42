"""A program that keeps several worker processes alive, which run the turns of all threads.

It is started as `python -m tests.reliability.workers DSN SCHEMA WORLD WORKERS LEASE SEED`, and
prints a line when it is ready for signals. At each SIGUSR1 it kills a worker; in place of one that
died it starts another. At SIGTERM it kills them all, and prints how many it killed and how many
died by themselves. What effects do is a line in the file WORLD.
"""

import asyncio
import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pytest_soev.world import RecordingEffector, passed
from soev.adapters import PostgresTraceStore
from soev.domain import (
    Ended,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    PositionConflictError,
    StoreUnavailableError,
    TraceStore,
)
from soev.runtime import Graph
from tests.reliability.graphs import EFFECT, Mail, Stage, Team, line, says
from tests.reliability.killed import FiledWorld, forked
from tests.reliability.real import Reality, RealProcess

HANDS = 4
LOOK = 0.1
ON_THE_WAY = 0.05
MOST_THREADS = 10_000
SIGNALS = {signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD}
BUSY = (
    LeaseHeldError, LeaseLostError, OutcomeUnknownError, PositionConflictError,
    StoreUnavailableError,
)  # fmt: skip


def parted(stage: Stage) -> Graph:
    """Make a graph of two effects at the same time, and a step after both."""
    graph = line(start=says("start"), x=stage.effect("x"), end=says("end"))
    graph.add_node("y", stage.effect("y"))  # type: ignore[arg-type]  # its recovery is a method
    graph.add_edge("start", "y")
    graph.add_edge("y", "end")
    graph.add_join("end")
    return graph


MAKES: Sequence[Callable[[Stage], Graph]] = (
    lambda stage: line(start=says("start"), mail=stage.effect(), end=says("end")),
    parted,
    lambda stage: line(team=Team(lambda: line(mail=stage.effect())), end=says("end")),
)
"""The graphs of the turns: thread 0 runs the first, thread 1 the second, and so on, in a circle."""


class SlowStage(Stage):
    """What graphs act on where an act takes a while, so that processes die in the middle of it."""

    def effect(self, kind: str = "mail", **given: Any) -> Mail:
        mail = super().effect(kind, **given)
        mail.effector = RecordingEffector(self.sim.world, partial(passed, ON_THE_WAY))
        return mail


def kind_of(thread_id: str) -> int:
    """Return which of the graphs a thread runs: its id ends with its number."""
    return int(thread_id.rpartition("-")[2]) % len(MAKES)


@dataclass
class Worker:
    """One process that takes turns which nobody runs, several at a time.

    Args:
        process: Its registry of runs.
        store: The store.
        graphs: The graphs of turns.
        draw: Makes each worker go through the threads in an order of its own.
    """

    process: RealProcess
    store: TraceStore
    graphs: Sequence[Graph]
    draw: random.Random
    _open: list[str] = field(default_factory=list)

    async def work(self) -> None:
        """Run turns for as long as the program that started it is there."""
        async with asyncio.TaskGroup() as hands:
            for _ in range(HANDS):
                hands.create_task(self._hand())

    async def _hand(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            try:
                thread_id = await self._next()
                if thread_id is not None:
                    graph = self.graphs[kind_of(thread_id)]
                    await self.process.thread(thread_id, graph).resume()
                    continue
            except BUSY:
                pass
            await passed(LOOK)

    async def _next(self) -> str | None:
        """Return a thread whose turn waits for somebody to run it, or None."""
        if not self._open:
            found = await self.store.threads(limit=MOST_THREADS)
            self._open = [
                each.thread_id
                for each in found
                if each.last_type != Ended.type and each.lease is None
            ]
            self.draw.shuffle(self._open)
        return self._open.pop() if self._open else None


async def work(dsn: str, schema: str, world: Path, lease_ttl: float, number: int) -> None:
    """Run turns until the process is killed."""
    patience = lease_ttl / 4
    async with PostgresTraceStore(dsn, schema=schema, patience=patience, listen=False) as store:
        here = Reality(store, FiledWorld(world), life=number, lease_ttl=lease_ttl, alone=False)
        graphs = [make(here.stage(SlowStage)) for make in MAKES]
        worker = Worker(here.process("w"), here.store, graphs, random.Random(number))
        await worker.work()


@dataclass
class Crew:
    """The workers that are alive.

    Args:
        size: How many there are.
        life: What each of them does, given its number.
    """

    size: int
    life: Callable[[int], Coroutine[Any, Any, None]]
    killed: int = 0
    crashed: int = 0
    _begun: int = 0
    _alive: list[int] = field(default_factory=list)

    def fill(self) -> None:
        """Start workers in place of those that died."""
        for each in [each for each in self._alive if os.waitpid(each, os.WNOHANG)[0]]:
            self._alive.remove(each)
            self.crashed += 1
        while len(self._alive) < self.size:
            self._begun += 1
            self._alive.append(forked(partial(begin, self.life, self._begun)))

    def kill(self, unlucky: int) -> None:
        """Kill one in the middle of what it does."""
        process = self._alive.pop(unlucky)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        self.killed += 1

    def dismiss(self) -> None:
        """Kill all that are left, which counts for nothing."""
        for process in self._alive:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def begin(life: Callable[[int], Coroutine[Any, Any, None]], number: int) -> None:
    """Live one life."""
    asyncio.run(life(number))


def main() -> None:
    """Keep workers alive until SIGTERM, or until nobody is there to send one."""
    dsn, schema, world, workers, lease_ttl, seed = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    logging.disable()
    EFFECT.run()  # what is built at its first use would be built by each worker anew
    crew = Crew(int(workers), partial(work, dsn, schema, Path(world), float(lease_ttl)))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    draw, parent = random.Random(int(seed)), os.getppid()
    while os.getppid() == parent:
        crew.fill()
        sent = signal.sigtimedwait(SIGNALS, 1)
        if sent is not None and sent.si_signo == signal.SIGTERM:
            break
        if sent is not None and sent.si_signo == signal.SIGUSR1:
            crew.kill(draw.randrange(crew.size))
    crew.dismiss()
    sys.stdout.write(json.dumps({"killed": crew.killed, "crashed": crew.crashed}))


if __name__ == "__main__":
    main()
