"""What importing costs, and what the plugin adds to a run that has nothing to do with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Figures

ROUNDS = 9


def seconds(*command: str, cwd: Path | None = None) -> float:
    """Return how long a command takes, start and end of its process included."""
    begin = perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=cwd)
    return perf_counter() - begin


def added(before: tuple[str, ...], after: tuple[str, ...], cwd: Path | None = None) -> float:
    """Return the milliseconds that one command takes longer than another, run in turn."""
    pairs = [(seconds(*before, cwd=cwd), seconds(*after, cwd=cwd)) for _ in range(ROUNDS)]
    return median((longer - shorter) * 1e3 for shorter, longer in pairs)


def python(code: str) -> tuple[str, ...]:
    """Return the command that runs a line of Python."""
    return (sys.executable, "-c", code)


def test_import_of_the_runtime(benchmark: BenchmarkFixture, figures: Figures) -> None:
    """`import soev.runtime` beside an empty program, and beside pydantic alone.

    The goals are 100 and 150 ms on a machine that takes 42 ms for pydantic: as ratios 2.4 and 3.6.
    """
    empty = python("pass")

    def spent() -> tuple[float, float]:
        pydantic = added(empty, python("import pydantic; pydantic.BaseModel"))
        return added(empty, python("import soev.runtime")), pydantic

    runtime, pydantic = benchmark.pedantic(spent, rounds=1, warmup_rounds=1)
    figures.add("import soev.runtime", f"{runtime:.0f} ms", "100 ms", "150 ms")
    figures.ratio("the same, to importing pydantic alone", runtime / pydantic, 2.4, 3.6)


def test_import_of_the_plugin(benchmark: BenchmarkFixture, figures: Figures) -> None:
    """`import pytest_soev.plugin` after `import pytest`."""
    code = (
        "import pytest, time; t = time.perf_counter(); import pytest_soev.plugin; "
        "print(time.perf_counter() - t)"
    )

    def spent() -> float:
        runs = [subprocess.run(python(code), check=True, capture_output=True) for _ in range(9)]
        return median(float(run.stdout) * 1e3 for run in runs)

    figures.add(
        "import pytest_soev.plugin",
        f"{benchmark.pedantic(spent, rounds=1):.1f} ms",
        "3 ms",
        "10 ms",
    )


def test_a_trivial_test_in_a_read_only_install(
    benchmark: BenchmarkFixture, figures: Figures, tmp_path: Path
) -> None:
    """One test with and without the plugin, where pytest may write no bytecode."""
    site = tmp_path / "site"
    source = Path(__file__).parent.parent
    install = ("-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(source))
    subprocess.run((sys.executable, *install), check=True, capture_output=True)
    for each in sorted(site.rglob("*"), reverse=True):
        each.chmod(0o555 if each.is_dir() else 0o444)
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert True\n")
    start = f"import sys; sys.path.insert(0, {str(site)!r}); import pytest; "
    run = "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *{!r}]))"
    environment = "sys.dont_write_bytecode = True; "
    without = python(start + environment + run.format(["-p", "no:soev"]))
    with_it = python(start + environment + run.format([]))
    spent = benchmark.pedantic(lambda: added(without, with_it, tmp_path), rounds=1)
    figures.add("one trivial test, what the plugin adds", f"{spent:.0f} ms", "", "100 ms")
