"""Files that no trace needs, found without running anything."""

from pathlib import Path

import pytest

from soev.golden import GoldenTrace, Problem, find_obsolete, golden_trace, write_golden

from .shop import log, said, turn

TESTS = """
import pytest

if True:
    async def test_nested(): ...

class TestRefund:
    @pytest.mark.skip
    def test_denied(self): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a test file."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_refund.py").write_text(TESTS, "utf-8")
    return tmp_path


def add(root: Path, name: str, text: str = "Hi.", source: str = "", agent: str = "a") -> Path:
    """Write a golden trace and its calls file."""
    trace: GoldenTrace = golden_trace(name, agent, log(turn()[0], said(text)), source=source)
    path = root / "tests" / "golden" / f"{name}.soev.jsonl"
    write_golden(path, trace)
    path.with_name(f"{name}.calls.md").write_text("", "utf-8")
    return path


def texts(problems: tuple[Problem, ...]) -> list[tuple[str, str]]:
    """Return kind and text of each problem."""
    return [(problem.kind, problem.text) for problem in problems]


def look(root: Path, **options: list[str]) -> tuple[Problem, ...]:
    """Look through the project's golden traces."""
    return find_obsolete([root / "tests" / "golden"], root, **options)


def test_a_tidy_directory_has_nothing_obsolete(root: Path) -> None:
    """Traces with their calls files, their agents and their tests are all needed."""
    add(root, "plain")
    add(root, "denied", "No.", "test:tests/test_refund.py::TestRefund::test_denied")
    add(root, "nested", "Yes.", "test:tests/test_refund.py::test_nested[de]")
    add(root, "imported", "Well.", "import:log.json#3")
    assert look(root, agents=["a"]) == ()


def test_a_calls_file_without_a_trace_is_an_orphan(root: Path) -> None:
    """The file is named with its path in the project."""
    add(root, "gift-card").unlink()
    (problem,) = look(root)
    assert (problem.kind, problem.text) == ("orphan", "gift-card.calls.md has no trace")
    assert problem.file == "tests/golden/gift-card.calls.md"


def test_a_copy_of_another_trace_is_obsolete(root: Path) -> None:
    """Events that are equal byte by byte are recorded once."""
    add(root, "first")
    add(root, "second")
    text = "second.soev.jsonl has the same events as tests/golden/first.soev.jsonl"
    assert texts(look(root)) == [("obsolete", text)]


@pytest.mark.parametrize(
    "source",
    [
        "tests/test_refund.py::test_denied",
        "tests/test_refund.py::TestRefund::test_paid",
        "tests/test_gone.py::test_nested",
    ],
)
def test_a_trace_whose_test_is_gone_is_obsolete(root: Path, source: str) -> None:
    """A function, a method and a file that are no longer there are each found."""
    add(root, "old", source=f"test:{source}")
    text = f"old was recorded by {source}, which is gone"
    assert texts(look(root)) == [("obsolete", text)]


def test_a_file_that_does_not_parse_says_nothing_of_its_tests(root: Path) -> None:
    """A syntax error in a test file makes no trace obsolete."""
    add(root, "old", source="test:tests/test_refund.py::test_x")
    (root / "tests" / "test_refund.py").write_text("def (", "utf-8")
    assert look(root) == ()


def test_a_trace_of_an_agent_that_is_gone_is_obsolete(root: Path) -> None:
    """Where the agents are known, each trace needs one of them."""
    add(root, "help", agent="helpdesk")
    text = "agent 'helpdesk' is not in the catalog (assistant, router)"
    assert texts(look(root, agents=["router", "assistant"])) == [("obsolete", text)]
    assert look(root) == ()


def test_a_damaged_trace_is_left_to_its_own_check(root: Path) -> None:
    """A header that cannot be read is no reason to call a trace obsolete."""
    add(root, "cut").write_text("junk\n", "utf-8")
    assert look(root, agents=["a"]) == ()
