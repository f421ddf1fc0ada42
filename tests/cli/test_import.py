"""`soev golden import`: conversations of other frameworks become golden traces."""

import json
from pathlib import Path
from typing import Any

import pytest

from soev.golden import read_golden

from .conftest import Soev

SYSTEM = {"role": "system", "content": "Recorded prompt."}
ASK = {"role": "user", "content": "Where is my refund?"}
SEARCH = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_abc",
            "type": "function",
            "function": {"name": "search", "arguments": '{"query": "refund"}'},
        }
    ],
}
FOUND = {"role": "tool", "tool_call_id": "call_abc", "content": "Thirty days."}
ANSWER = {"role": "assistant", "content": "Thirty days."}
GOOD = [SYSTEM, ASK, SEARCH, FOUND, ANSWER]
BAD = [ASK, FOUND]
ARGS = ("golden", "import", "logs.json", "--format", "openai-messages", "--agent", "assistant")


def write(project: Path, conversations: Any) -> None:
    """Write the file of conversations."""
    (project / "logs.json").write_text(json.dumps(conversations), "utf-8")


def names(project: Path) -> list[str]:
    """Return the names of the golden files."""
    return sorted(path.name for path in (project / "tests/golden").glob("*"))


def test_each_conversation_becomes_a_golden_trace(soev: Soev, project: Path) -> None:
    """Both files are written for each, held to today's prompt, with the recorded one beside."""
    write(project, [GOOD, {"messages": [ASK, ANSWER]}])
    result = soev(*ARGS)
    assert result.exit_code == 0, result.output
    assert "wrote 2 golden traces with 3 calls to tests/golden" in result.output
    assert names(project) == [
        "logs-1.calls.md",
        "logs-1.soev.jsonl",
        "logs-2.calls.md",
        "logs-2.soev.jsonl",
    ]
    header = read_golden(project / "tests/golden/logs-1.soev.jsonl").header
    assert (header.agent, header.recorded_system) == ("assistant", "Recorded prompt.")
    accepted = (project / "tests/golden/logs-1.calls.md").read_text("utf-8")
    assert "You are a support assistant." in accepted
    assert "not comparable" in accepted
    assert "Recorded prompt." not in accepted


def test_json_lines_and_another_name(soev: Soev, project: Path) -> None:
    """One conversation a line is read too, and `--name` begins the names."""
    lines = "".join(f"{json.dumps({'traj': each})}\n" for each in (GOOD, [ASK, ANSWER]))
    (project / "logs.json").write_text(lines, "utf-8")
    assert soev(*ARGS, "--name", "old", "--golden", "kept").exit_code == 0
    assert (project / "kept/old-2.soev.jsonl").exists()


def test_a_conversation_that_does_not_fit_stops_everything(soev: Soev, project: Path) -> None:
    """The conversation and the message are named, and nothing is written."""
    write(project, [GOOD, BAD])
    result = soev(*ARGS)
    assert result.exit_code == 1
    assert "logs.json: conversation 1, message 1: the result of 'call_abc' has no call" in (
        result.output
    )
    assert names(project) == []


def test_bad_conversations_can_be_skipped(soev: Soev, project: Path) -> None:
    """With `--skip-bad` the others are written, and what was left out is listed."""
    write(project, [BAD, GOOD])
    result = soev(*ARGS, "--skip-bad")
    assert result.exit_code == 0, result.output
    assert "left out 1 conversation:\n  logs.json: conversation 0, message 1: " in result.output
    assert names(project) == ["logs-2.calls.md", "logs-2.soev.jsonl"]


def test_nodes_of_the_agent_are_held_to(soev: Soev, project: Path) -> None:
    """A node that the agent does not have stops the import, with what was looked for."""
    write(project, [GOOD])
    result = soev(*ARGS, "--model-node", "writer")
    assert result.exit_code == 1
    assert "logs.json#0: call 1 (turn 1, node writer): the graph has no node" in result.output
    assert "Nothing was written." in result.output
    skipped = soev(*ARGS, "--model-node", "writer", "--skip-bad")
    assert skipped.exit_code == 1
    assert "there is no conversation to make a golden trace of" in skipped.output
    assert names(project) == []


def test_a_name_that_is_taken_stops_the_import(soev: Soev, project: Path) -> None:
    """Golden traces that are there stay as they are."""
    write(project, [GOOD])
    soev(*ARGS)
    result = soev(*ARGS)
    assert result.exit_code == 2
    assert "tests/golden/logs-1.soev.jsonl is there already." in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--agent", "helper"], "agent 'helper' is not in the catalog (assistant)."),
        (["--format", "other"], "'other' is not 'openai-messages'"),
        (["--catalog", "shop"], "not of the form `package.module:attribute`"),
    ],
)
def test_wrong_usage(soev: Soev, project: Path, args: list[str], message: str) -> None:
    """A wrong option exits with 2 and says what would be right."""
    write(project, [GOOD])
    result = soev(*ARGS, *args)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("text", ["", "[]", "no json", "\xff"])
def test_a_file_without_conversations(soev: Soev, project: Path, text: str) -> None:
    """A file that holds none is refused with the reason."""
    (project / "logs.json").write_bytes(text.encode("latin-1"))
    result = soev(*ARGS)
    assert result.exit_code == 1
    assert "Error: " in result.output
