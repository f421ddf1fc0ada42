"""`soev_golden` in a test records a thread, or compares it with what was recorded."""

import pytest

from soev.golden import read_golden

from .shop import BRIEF, SHORT, Shop

RECORDS = '''
import pytest

from soev.adapters import InMemoryTraceStore, ScriptedChatModel, call, say
from soev.domain import Input
from soev.runtime import AgentCatalog
import shop

pytestmark = pytest.mark.anyio
ANSWER = "Thirty days."


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.soev_golden("denied")
async def test_denied(soev_golden):
    """The desk answers."""
    model = ScriptedChatModel(call("search", query="refund"), say(ANSWER), name="gpt-x")
    async with AgentCatalog(InMemoryTraceStore(), shop.agents(model), version="1.4.0") as catalog:
        thread, _ = await catalog.open("assistant", Input(payload="Refund?"))
        await thread.resume()
        await soev_golden(thread)
'''
NODE = "tests/test_denied.py::test_denied"


@pytest.fixture
def recording(empty_shop: Shop) -> Shop:
    """A project with a test that records."""
    directory = empty_shop.path / "tests"
    directory.mkdir()
    (directory / "test_denied.py").write_text(RECORDS, "utf-8")
    return empty_shop


def record(shop: Shop, *args: str) -> pytest.RunResult:
    """Run the test that records, with the plugin for async tests."""
    return shop.run("-p", "anyio.pytest_plugin", "tests", *args)


def edit(shop: Shop, old: str, new: str) -> None:
    """Change the test that records."""
    path = shop.path / "tests" / "test_denied.py"
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


def test_nothing_is_recorded_without_an_update(recording: Shop) -> None:
    """A trace that is not there yet fails the test, with the command that records it."""
    result = record(recording)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"golden trace 'denied' is not recorded yet: run \"pytest --soev-update=new {NODE}\" *"]
    )
    assert not recording.golden.exists()


def test_an_update_records_a_trace_that_replays(recording: Shop) -> None:
    """Both files are written, scrubbed, and a replay holds them as accepted."""
    record(recording, "--soev-update=new").assert_outcomes(passed=1)
    header = read_golden(recording.trace("denied")).header
    assert (header.name, header.agent, header.calls) == ("denied", "assistant", 2)
    assert header.source == f"test:{NODE}"
    assert header.scrubbed == ("ids", "times", "secrets")
    result = recording.replay("tests/golden")
    assert result.ret == pytest.ExitCode.OK
    record(recording).assert_outcomes(passed=1)


def test_the_directory_is_made_by_the_first_recording(recording: Shop) -> None:
    """A directory that the ini file names need not be there before something is recorded."""
    recording.ini('soev_golden = ["kept"]')
    record(recording, "--soev-update").assert_outcomes(passed=1)
    assert (recording.path / "kept" / "denied.soev.jsonl").exists()


def test_recording_twice_gives_the_same_bytes(recording: Shop) -> None:
    """The files depend on the conversation alone."""
    record(recording, "--soev-update").assert_outcomes(passed=1)
    paths = (recording.trace("denied"), recording.calls("denied"))
    before = [path.read_bytes() for path in paths]
    record(recording, "--soev-update").assert_outcomes(passed=1)
    assert [path.read_bytes() for path in paths] == before


def test_another_conversation_fails(recording: Shop) -> None:
    """The first event that differs is shown with its line, and how to accept it."""
    record(recording, "--soev-update").assert_outcomes(passed=1)
    edit(recording, "Thirty days.", "Sixty days.")
    result = record(recording)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "the conversation is not as recorded",
            "tests/golden/denied.soev.jsonl:6",
            "  - model_output in main, node model: *Thirty days.*",
            "  + model_output in main, node model: *Sixty days.*",
            f'Accept: pytest --soev-update "{NODE}"',
        ]
    )


def test_another_request_fails_until_it_is_accepted(recording: Shop) -> None:
    """A prompt change is shown as in a replay; accepting it there satisfies the test too."""
    record(recording, "--soev-update").assert_outcomes(passed=1)
    recording.shorten_prompt()
    result = record(recording)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"     - {BRIEF}", f"     + {SHORT}"])
    recording.replay("tests/golden", "--soev-update").assert_outcomes(passed=1)
    record(recording).assert_outcomes(passed=1)


def test_a_secret_stops_the_recording(recording: Shop) -> None:
    """A value that a project's pattern finds is replaced, and never reaches the files."""
    recording.ini('soev_redact = ["order [0-9]+"]')
    edit(recording, "Refund?", "Refund of order 4711?")
    record(recording, "--soev-update").assert_outcomes(passed=1)
    text = recording.trace("denied").read_text("utf-8")
    assert "4711" not in text + recording.calls("denied").read_text("utf-8")
    assert "<secret-1>" in text


def test_a_project_redacts_events_by_a_hook(recording: Shop) -> None:
    """`pytest_soev_redact` gets each event and returns the one to write."""
    (recording.path / "conftest.py").write_text(
        """
from dataclasses import replace

def pytest_soev_redact(event):
    if event.type == "input":
        return replace(event, data=event.data.replace("Refund?", "R."))
""",
        "utf-8",
    )
    record(recording, "--soev-update").assert_outcomes(passed=1)
    assert "Refund?" not in recording.trace("denied").read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('@pytest.mark.soev_golden("denied")', "", "give the golden trace a name: *"),
        ('soev_golden("denied")', 'soev_golden("../denied")', "'../denied' is no name for *"),
        ("shop.agents(model)", "{'other': shop.agents(model)['assistant']}", "*'other'*"),
    ],
)
def test_what_cannot_be_recorded(recording: Shop, old: str, new: str, message: str) -> None:
    """A recording that would not be replayed is refused with the reason."""
    edit(recording, old, new)
    edit(recording, '"assistant", Input', "next(iter(catalog.agents)), Input")
    result = record(recording, "--soev-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])
    assert not recording.golden.exists()


def test_two_tests_do_not_share_a_name(recording: Shop) -> None:
    """The second test of a run that records under a name is refused."""
    path = recording.path / "tests" / "test_again.py"
    path.write_text(RECORDS.replace("test_denied", "test_again"), "utf-8")
    result = record(recording, "--soev-update")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["golden trace 'denied' is recorded by tests/test_again.py* too: *"]
    )
