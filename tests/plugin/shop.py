"""A small project with one agent and its golden trace, for pytest to run in a pytest."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from soev.adapters import InMemoryTraceStore, ScriptedChatModel, call, say
from soev.domain import Input, StoredEvent
from soev.golden import golden_text, record
from soev.runtime import AgentCatalog, encode

AGENTS = '''
from soev.adapters import ScriptedChatModel
from soev.domain import ToolOutput
from soev.runtime import tool
from soev.toolkit import ReActAgent, ReActConfig

PROMPT = """You are a support assistant.
Answer briefly.
Cite each source."""


@tool(name="search", description="Search the documents. Use short keyword queries.")
async def search(query: str) -> ToolOutput:
    """Find documents."""
    return ToolOutput(text=f"30 days for {query}.")


def agents(model=None):
    """Return the agents by name."""
    config = ReActConfig(
        model=model or ScriptedChatModel(name="gpt-x"), prompt=PROMPT, tools=(search,)
    )
    return {"assistant": ReActAgent(config)}
'''
BRIEF, SHORT = "Answer briefly.", "Answer in one sentence."
PLUGIN = ("-p", "pytest_soev.plugin")
PYPROJECT = """
[tool.pytest.ini_options]
pythonpath = ["."]
soev_catalog = "shop:agents"
"""


def shop_module(prompt: str = BRIEF) -> ModuleType:
    """Return the project's module, without importing it by its name."""
    module = ModuleType("shop_of_the_tests")
    exec(compile(AGENTS.replace(BRIEF, prompt), "shop.py", "exec"), vars(module))
    return module


@cache
def conversation(name: str = "refund") -> tuple[StoredEvent, ...]:
    """Return the log of a conversation about a thing: two turns, three model calls."""
    model = ScriptedChatModel(
        call("search", query="refund policy"), say("Thirty days."), say("Bye."), name="gpt-x"
    )
    agents = shop_module().agents(model)

    async def talk() -> tuple[StoredEvent, ...]:
        async with AgentCatalog(InMemoryTraceStore(), agents, version="1.4.0") as catalog:
            thread, _ = await catalog.open("assistant", Input(payload=f"Where is my {name}?"))
            await thread.resume()
            thanks = Input(payload="Thanks, José! ✓")
            await (await catalog.thread(thread.id, input=thanks)).send(thanks)
            return tuple(encode(event) for event in await thread.trace())

    return asyncio.run(talk())


@cache
def golden_files(name: str) -> tuple[str, str]:
    """Return the events file and the calls file of the conversation."""
    made = asyncio.run(record(conversation(name), shop_module().agents(), name))
    return golden_text(made.trace), made.calls


@dataclass
class Shop:
    """The project in a directory of its own."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        return self.pytester.path

    @property
    def golden(self) -> Path:
        return self.path / "tests" / "golden"

    def trace(self, name: str = "refund") -> Path:
        return self.golden / f"{name}.soev.jsonl"

    def calls(self, name: str = "refund") -> Path:
        return self.golden / f"{name}.calls.md"

    def add(self, name: str = "refund", *, accepted: bool = True) -> None:
        """Write the golden trace under a name."""
        self.golden.mkdir(parents=True, exist_ok=True)
        events, calls = golden_files(name)
        self.trace(name).write_text(events, "utf-8", newline="\n")
        if accepted:
            self.calls(name).write_text(calls, "utf-8", newline="\n")

    def edit(self, old: str, new: str) -> None:
        """Change the project's code."""
        path = self.path / "shop.py"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    def shorten_prompt(self) -> None:
        """Make the change that most tests look at."""
        self.edit(BRIEF, SHORT)

    def ini(self, *lines: str) -> None:
        """Add lines to the project's ini section."""
        path = self.path / "pyproject.toml"
        path.write_text("\n".join([path.read_text("utf-8"), *lines, ""]), "utf-8")

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest in this process."""
        return self.pytester.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", *args)

    def replay(self, *args: str) -> pytest.RunResult:
        """Replay in this process."""
        return self.run("--soev-replay", *args)

    def replay_in_workers(self, *args: str) -> pytest.RunResult:
        """Replay in a process of its own, with two workers."""
        workers = ("-p", "xdist.plugin", "-n2")
        return self.pytester.runpytest_subprocess(*PLUGIN, *workers, "--soev-replay", *args)


def new_shop(pytester: pytest.Pytester) -> Shop:
    """Write the project, without a golden trace."""
    pytester.makepyprojecttoml(PYPROJECT)
    (pytester.path / "shop.py").write_text(AGENTS, "utf-8")
    return Shop(pytester)
