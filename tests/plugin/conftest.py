"""The project that the tests of the plugin run pytest in."""

import pytest

from .shop import Shop, new_shop


@pytest.fixture(autouse=True)
def _outside_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test depend on whether CI runs it."""
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _without_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let inner runs load the plugin by name, and none that this environment happens to have."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def empty_shop(pytester: pytest.Pytester) -> Shop:
    """A project without golden traces."""
    return new_shop(pytester)


@pytest.fixture
def shop(empty_shop: Shop) -> Shop:
    """A project with one accepted golden trace, `refund`."""
    empty_shop.add()
    return empty_shop
