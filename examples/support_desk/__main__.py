"""The desk in a terminal.

Without any setting it plays a conversation with a scripted model. With `SOEV_BASE_URL` and
`SOEV_MODEL` it talks to that server; the conversation is kept in a file, so that it can be left at
any moment, also in the middle of an answer, and gone on with later:

    SOEV_BASE_URL=http://localhost:8080/v1 SOEV_MODEL=qwen3 python -m examples.support_desk
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from examples.support_desk.agent import Desk, agents
from examples.support_desk.conversation import Conversation
from examples.support_desk.orders import Ledger
from examples.support_desk.scenarios import TOUR, Scenario
from soev.adapters import InMemoryTraceStore, OpenAIChatModel, ScriptedChatModel, SqliteTraceStore
from soev.domain import ChatModel, TraceStore
from soev.runtime import Agent, AgentCatalog, Status

VERSION = "1"
AGAIN = "/again"


def catalog_of(model: ChatModel, store: TraceStore, desk: Desk) -> AgentCatalog:
    """Put the agent, a store and what the tools use together."""

    async def resources(agent: Agent[Any, Any]) -> Desk:
        return desk

    return AgentCatalog(store, agents(model), version=VERSION, resources=resources)


async def play(scenario: Scenario) -> None:
    """Play a conversation with a scripted model, in memory."""
    model = ScriptedChatModel(*scenario.steps)
    with Desk() as desk:
        async with catalog_of(model, InMemoryTraceStore(), desk) as catalog:
            conversation = Conversation(catalog, scenario.name, scenario.agent)
            for move in scenario.moves:
                await move(conversation)


async def chat(model: ChatModel, path: Path, thread_id: str) -> None:
    """Talk to a model until the input ends."""
    ledger = Ledger(path.with_suffix(".credits.db"))
    with Desk(ledger=ledger) as desk:
        async with SqliteTraceStore(path) as store, catalog_of(model, store, desk) as catalog:
            conversation = Conversation(catalog, thread_id, echo=False)
            status = await conversation.history()
            with suppress(EOFError):
                while True:
                    status = await step(conversation, status)
    print(f"\nKept as thread {thread_id!r} in {path}.")


async def step(conversation: Conversation, status: Status | None) -> Status:
    """Do what the thread waits for: go on, ask a person, or listen to the customer.

    Raises:
        EOFError: Nobody types any more.
    """
    if status is not None and status.state == "interrupted":
        return await conversation.resume()
    if status is not None and status.pending:
        request = status.pending[0].event
        if request.kind == "effect":
            print(f"\n   Check  {request.prompt}")
            happened = (await typed("Did it happen? yes or no: ")).lower() in {"y", "yes"}
            return await conversation.answer({"happened": happened})
        print(f"\nApproval  {request.prompt}")
        said = await typed("Approve? yes, or why not: ")
        if said.lower() in {"y", "yes"}:
            return await conversation.answer({"approved": True})
        return await conversation.answer({"approved": False, "comment": said})
    if status is not None and status.state == "failed":
        print(f"          type {AGAIN} to try again, or say something else")
    said = await typed("\n> ")
    return await (conversation.resume() if said == AGAIN else conversation.say(said))


async def typed(prompt: str) -> str:
    """Read a line that is not empty, while the event loop goes on."""
    line = ""
    while not line.strip():
        line = await asyncio.to_thread(input, prompt)
    return line.strip()


def main() -> None:
    """Read the settings and run."""
    # A failure is part of the conversation here; its traceback would only be in the way.
    logging.getLogger("soev").addHandler(logging.NullHandler())
    options = argparse.ArgumentParser(prog="python -m examples.support_desk", description=__doc__)
    options.add_argument("--thread", default="desk", help="which conversation to go on with")
    options.add_argument("--store", type=Path, default=Path("support_desk.db"), help="its file")
    chosen = options.parse_args()
    address, name = os.environ.get("SOEV_BASE_URL"), os.environ.get("SOEV_MODEL")
    if not (address and name):
        asyncio.run(play(TOUR))
        return
    model = OpenAIChatModel(name, base_url=address)
    asyncio.run(chat(model, chosen.store, chosen.thread))


if __name__ == "__main__":
    main()
