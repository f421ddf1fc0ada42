"""Record the conversations of `scenarios` as golden traces.

    python -m examples.support_desk.record fixtures/golden

Each is played by the real runtime with a scripted model, scrubbed, and proven by replay. The files
that `pytest --soev-replay` holds the agent to are then written anew, and are the same again as long
as nothing changed.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from examples.support_desk.__main__ import catalog_of
from examples.support_desk.agent import Desk, agents
from examples.support_desk.conversation import Conversation
from examples.support_desk.scenarios import SCENARIOS, Scenario
from soev.adapters import InMemoryTraceStore, ScriptedChatModel
from soev.domain import StoredEvent
from soev.golden import TRACE_SUFFIX, Recording, calls_path, record, write_golden, write_text

SOURCE: Final = "program:examples/support_desk/record.py"


class StillClock:
    """A clock that stands still, so that a recording does not depend on how fast it was."""

    def now(self) -> datetime:
        """Return the same moment, always."""
        return datetime(2026, 3, 12, 9, tzinfo=UTC)

    def monotonic(self) -> float:
        """Return the same moment, always."""
        return 0.0


async def log_of(scenario: Scenario) -> list[StoredEvent]:
    """Play a conversation and return what the store has of it."""
    store = InMemoryTraceStore(clock=StillClock())
    model = ScriptedChatModel(*scenario.steps)
    with Desk() as desk:
        async with catalog_of(model, store, desk) as catalog:
            conversation = Conversation(catalog, scenario.name, scenario.agent, quiet=True)
            for move in scenario.moves:
                await move(conversation)
    model.check()
    page = await store.read(scenario.name)
    return [entry.event for entry in page.entries]


async def recorded(scenario: Scenario, folder: Path) -> Recording:
    """Play a conversation and make a golden trace of it."""
    log = await log_of(scenario)
    return await record(log, agents(), scenario.name, source=SOURCE, directory=folder.as_posix())


async def write_all(folder: Path) -> None:
    """Write the golden trace of each conversation into a folder."""
    for scenario in SCENARIOS:
        recording = await recorded(scenario, folder)
        path = folder / f"{scenario.name}{TRACE_SUFFIX}"
        write_golden(path, recording.trace)
        write_text(calls_path(path), recording.calls)
        print(f"{path}: {len(recording.trace.events)} events")


def main() -> None:
    """Read the folder and record."""
    options = argparse.ArgumentParser(
        prog="python -m examples.support_desk.record", description=__doc__
    )
    options.add_argument("folder", type=Path, nargs="?", default=Path("fixtures/golden"))
    folder: Path = options.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(write_all(folder))


if __name__ == "__main__":
    main()
