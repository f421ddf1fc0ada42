"""Hold the code to the limits that no linter knows: sizes, reasons and sleeping tests."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SUITES = ROOT / "src" / "pytest_soev" / "suites"

MODULE_LINES = 400
CLASS_LINES = 300
CLASS_METHODS = 12
THREAD_METHODS = 16
TEST_LINES = 40

REASONLESS = re.compile(r"#\s*(?:type: ignore(?:\[[\w, -]+\])?|noqa(?:: ?[A-Z0-9, ]+)?)\s*$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """Name a file by its path in the project."""
    return path.relative_to(ROOT).as_posix()


def nodes(path: Path) -> Iterator[ast.AST]:
    """Yield every node of a file's syntax tree."""
    yield from ast.walk(ast.parse(path.read_text("utf-8")))


def lines(node: ast.ClassDef | Function) -> int:
    """Count the lines of a definition, its docstring included."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_property(node: Function) -> bool:
    """Tell whether a method is read like an attribute."""
    names = [each.id for each in node.decorator_list if isinstance(each, ast.Name)]
    return any(name.endswith("property") for name in names)


def public_methods(node: ast.ClassDef) -> list[str]:
    """Return what a public class lets a caller do: no properties, and an overload counts once."""
    if node.name.startswith("_"):
        return []
    methods = [each for each in node.body if isinstance(each, Function) and not is_property(each)]
    return sorted({each.name for each in methods if not each.name.startswith("_")})


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_module_is_short(path: Path) -> None:
    """A module has at most 400 lines."""
    assert len(path.read_text("utf-8").splitlines()) <= MODULE_LINES


@pytest.mark.parametrize(
    "path", [each for each in SOURCES if SUITES not in each.parents], ids=name_of
)
def test_classes_are_small(path: Path) -> None:
    """A class has at most 300 lines and 12 public methods; `Thread` may have 16."""
    for node in nodes(path):
        if isinstance(node, ast.ClassDef):
            allowed = THREAD_METHODS if node.name == "Thread" else CLASS_METHODS
            assert lines(node) <= CLASS_LINES, node.name
            assert len(public_methods(node)) <= allowed, (node.name, public_methods(node))


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=name_of)
def test_exceptions_have_a_reason(path: Path) -> None:
    """A line that silences a checker says which rule it breaks, and why."""
    text = path.read_text("utf-8").splitlines()
    assert [
        f"{n}: {line.strip()}" for n, line in enumerate(text, 1) if REASONLESS.search(line)
    ] == []


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_tests_are_short(path: Path) -> None:
    """A test has at most 40 lines."""
    for node in nodes(path):
        if isinstance(node, Function) and node.name.startswith("test_"):
            assert lines(node) <= TEST_LINES, node.name


def sleeps(node: ast.AST) -> bool:
    """Tell whether a node waits for time to pass; `sleep(0)` only lets other tasks run."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr != "sleep" or not node.args:
        return False
    seconds = node.args[0]
    return not (isinstance(seconds, ast.Constant) and seconds.value == 0)


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_tests_do_not_sleep(path: Path) -> None:
    """No test waits for a number of seconds."""
    assert [
        node.lineno for node in nodes(path) if isinstance(node, ast.Call) and sleeps(node)
    ] == []
