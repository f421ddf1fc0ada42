"""Files of golden traces that serve nothing any more, known from the files alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from soev.golden._changes import Problem
from soev.golden._errors import GoldenFileError
from soev.golden._files import CALLS_SUFFIX, TRACE_SUFFIX, GoldenHeader, read_header, trace_name


def find_obsolete(
    directories: Iterable[Path], root: Path, agents: Collection[str] | None = None
) -> tuple[Problem, ...]:
    """Find what no test run needs: by construction, not by what ran.

    A calls file without a trace, a trace whose agent is gone, a trace whose test is gone, and
    traces that are copies of each other. A trace that cannot be read is left to its own check.

    Args:
        directories: Where to look, with the directories in them.
        root: The directory that the sources of traces are relative to, and paths in messages.
        agents: The names of the project's agents, or None when they are not known.
    """
    traces: set[Path] = set()
    calls: set[Path] = set()
    for directory in directories:
        traces.update(directory.rglob(f"*{TRACE_SUFFIX}"))
        calls.update(directory.rglob(f"*{CALLS_SUFFIX}"))
    found = [*_orphans(sorted(calls), root), *_copies(sorted(traces), root)]
    for trace in sorted(traces):
        try:
            header = read_header(trace)
        except GoldenFileError:
            continue
        found += _gone(trace, header, root, agents)
    return tuple(found)


def shown_path(path: Path, root: Path) -> str:
    """Return a path relative to a root, with forward slashes, or whole when it is elsewhere."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _orphans(calls: Iterable[Path], root: Path) -> Iterator[Problem]:
    for path in calls:
        trace = path.with_name(path.name.removesuffix(CALLS_SUFFIX) + TRACE_SUFFIX)
        if not trace.exists():
            yield Problem("orphan", f"{path.name} has no trace", shown_path(path, root))


def _copies(traces: Iterable[Path], root: Path) -> Iterator[Problem]:
    """Name each trace whose events are those of an earlier one, byte by byte."""
    seen: dict[bytes, Path] = {}
    for path in traces:
        with path.open("rb") as file:
            file.readline()
            first = seen.setdefault(sha256(file.read()).digest(), path)
        if first is not path:
            text = f"{path.name} has the same events as {shown_path(first, root)}"
            yield Problem("obsolete", text, shown_path(path, root))


def _gone(
    trace: Path, header: GoldenHeader, root: Path, agents: Collection[str] | None
) -> Iterator[Problem]:
    where = shown_path(trace, root)
    if agents is not None and header.agent not in agents:
        known = ", ".join(sorted(agents)) or "none"
        text = f"agent {header.agent!r} is not in the catalog ({known})"
        yield Problem("obsolete", text, where)
    if header.source.startswith("test:"):
        file, *names = header.source.removeprefix("test:").split("::")
        if not _has(root / file, names):
            text = f"{trace_name(trace)} was recorded by {header.source[5:]}, which is gone"
            yield Problem("obsolete", text, where)


def _has(path: Path, names: list[str]) -> bool:
    """Tell whether a file defines a test, by its syntax tree: selection and skips do not matter."""
    try:
        scope: list[ast.stmt] = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        # A file that cannot be parsed says nothing about the tests in it; one that is gone does.
        return path.exists()
    for name in names:
        bare = name.partition("[")[0]
        found = next((node for node in _definitions(scope) if node.name == bare), None)
        if found is None:
            return False
        scope = found.body
    return True


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(scope: list[ast.stmt]) -> Iterator[Definition]:
    """Yield the definitions in a scope, those under an `if` or `with` or `try` too."""
    for node in scope:
        if isinstance(node, Definition):
            yield node
        elif isinstance(node, ast.If | ast.With | ast.Try):
            yield from _definitions([*node.body, *getattr(node, "orelse", [])])
