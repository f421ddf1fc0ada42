"""The project that the tests of the command run in."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from soev.cli import main
from tests.plugin.shop import AGENTS, PYPROJECT

Soev = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with an agent and its configuration, which the command runs in."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "pyproject.toml").write_text(PYPROJECT, "utf-8")
    (directory / "shop.py").write_text(AGENTS, "utf-8")
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield directory
    sys.modules.pop("shop", None)


@pytest.fixture
def soev(project: Path) -> Soev:
    """The command, run in the project with the given arguments."""
    return lambda *args: CliRunner().invoke(main, [str(arg) for arg in args])
