"""The plugin beside others that users have."""

import pytest

from .shop import Shop


def test_syrupy_snapshots_and_golden_traces_in_one_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syrupy's snapshots and its report live beside golden items."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shop.pytester.makepyfile("def test_one(snapshot): assert {'a': 1} == snapshot")
    shop.replay("-p", "syrupy", ".", "--snapshot-update").assert_outcomes(passed=2)
    result = shop.replay("-p", "syrupy", ".")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*1 snapshot passed*"])


def test_traces_run_beside_async_tests(shop: Shop) -> None:
    """A replay between tests of an async plugin leaves their loops alone."""
    shop.pytester.makepyfile(
        zz_test_late="""
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_late():
            pass
        """
    )
    shop.replay("-p", "anyio.pytest_plugin", "tests", "zz_test_late.py").assert_outcomes(passed=2)


def test_a_fixture_error_of_the_project_is_shown_by_pytest(shop: Shop) -> None:
    """A `soev_agents` fixture that raises shows its own traceback."""
    (shop.path / "conftest.py").write_text(
        """
import pytest

@pytest.fixture(scope="session")
def soev_agents():
    raise LookupError("no settings")
""",
        "utf-8",
    )
    result = shop.replay()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["conftest.py:*", "*LookupError: no settings*"])
