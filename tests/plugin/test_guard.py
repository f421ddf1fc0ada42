"""Real models are blocked while tests run, by the name of the test."""

import pytest

from soev.domain import refuse_blocked_model

from .shop import PLUGIN, Shop

pytestmark = pytest.mark.soev_live("the tests inside have a guard of their own")

CALLS = """
import pytest

from soev.domain import refuse_blocked_model


def test_calls():
    refuse_blocked_model("gpt-x")


@pytest.mark.soev_live("tries the real thing")
def test_live():
    refuse_blocked_model("gpt-x")


@pytest.mark.soev_live
def test_live_without_a_reason():
    refuse_blocked_model("gpt-x")
"""


def test_a_real_model_is_refused_with_the_name_of_the_test(shop: Shop) -> None:
    """A send raises in a test without the marker, or with one that gives no reason."""
    shop.pytester.makepyfile(CALLS)
    result = shop.run(".")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*RealModelBlockedError: model 'gpt-x' was called by test_calls. *soev_live(\"why\")*",
            "*RealModelBlockedError: model 'gpt-x' was called by test_live_without_a_reason. *",
        ]
    )


@pytest.mark.parametrize("how", ["option", "ini"])
def test_the_guard_can_be_lifted(shop: Shop, how: str) -> None:
    """`--soev-live` and `soev_block_models = false` let real models be called."""
    shop.pytester.makepyfile(CALLS)
    if how == "ini":
        shop.ini("soev_block_models = false")
    shop.run(".", *(["--soev-live"] if how == "option" else [])).assert_outcomes(passed=3)


def test_the_guard_stands_when_a_fixture_imports_soev(pytester: pytest.Pytester) -> None:
    """A test whose fixture is the first to import soev is guarded like any other."""
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.fixture
        def refuse():
            assert "soev.domain" not in sys.modules
            from soev.domain import refuse_blocked_model
            return refuse_blocked_model

        def test_calls(refuse):
            refuse("gpt-x")
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*model 'gpt-x' was called by test_calls.*"])


def test_code_outside_of_tests_is_refused_too(shop: Shop) -> None:
    """Between tests nobody calls a real model."""
    (shop.path / "conftest.py").write_text(
        """
import pytest
from soev.domain import RealModelBlockedError, refuse_blocked_model

def pytest_sessionfinish():
    with pytest.raises(RealModelBlockedError, match="code outside of any test"):
        refuse_blocked_model("gpt-x")
""",
        "utf-8",
    )
    shop.pytester.makepyfile("def test_one(): pass")
    assert shop.run(".").ret == pytest.ExitCode.OK


def test_the_guard_ends_with_the_run(shop: Shop) -> None:
    """After the run the process may call models again."""
    shop.pytester.makepyfile(CALLS)
    shop.run(".")
    refuse_blocked_model("gpt-x")
