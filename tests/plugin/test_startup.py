"""What the plugin costs a run that does not use it: nothing is imported."""

import subprocess
import sys

import pytest

from .shop import PLUGIN

UNWANTED = ("soev", "pydantic", "hypothesis", "syrupy", "httpx", "click")
LIST_NEW = """
import sys
import pytest
before = set(sys.modules)
import pytest_soev.plugin
new = sorted({name for name in set(sys.modules) - before})
print(*(name for name in new if name.partition(".")[0] not in sys.stdlib_module_names))
"""


def test_the_plugin_imports_the_standard_library_and_pytest_alone() -> None:
    """After `import pytest` the only new modules are the package and the plugin."""
    command = [sys.executable, "-c", LIST_NEW]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pytest_soev", "pytest_soev.plugin"]


def test_an_unrelated_run_imports_nothing_of_ours(pytester: pytest.Pytester) -> None:
    """After a test that has nothing to do with soev, a verbose run has imported none of it."""
    pytester.makepyfile("def test_one(): assert 1 == 1")
    pytester.makeconftest(
        f"""
        import sys

        def pytest_unconfigure():
            print("imported:", *[name for name in {UNWANTED!r} if name in sys.modules])
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-v", "-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["imported:"])


def test_a_failing_comparison_imports_nothing_of_ours(pytester: pytest.Pytester) -> None:
    """The hook that explains comparisons leaves other people's alone."""
    pytester.makepyfile(
        """
        import sys

        def test_one():
            try:
                assert [1] == [2]
            except AssertionError:
                pass
            assert "soev.domain" not in sys.modules
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(passed=1)
