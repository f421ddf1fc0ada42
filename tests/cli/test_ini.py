"""The pytest configuration, as the command reads it."""

from pathlib import Path

import pytest

from soev.cli._ini import BrokenIniError, find_ini


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.toml", '[pytest]\nsoev_catalog = "a:b"\nsoev_golden = ["x", "y z"]\n'),
        ("pytest.ini", '[pytest]\nsoev_catalog = a:b\nsoev_golden = x "y z"\n'),
        ("pyproject.toml", '[tool.pytest]\nsoev_catalog = "a:b"\nsoev_golden = ["x", "y z"]\n'),
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\nsoev_catalog = "a:b"\nsoev_golden = ["x", "y z"]\n',
        ),
        ("tox.ini", '[tox]\n[pytest]\nsoev_catalog = a:b\nsoev_golden = x "y z"\n'),
        ("setup.cfg", '[tool:pytest]\nsoev_catalog = a:b\nsoev_golden =\n  x\n  "y z"\n'),
    ],
)
def test_each_file_that_pytest_reads(tmp_path: Path, name: str, text: str) -> None:
    """The key is found in each kind of file, with paths relative to it, from a directory below."""
    (tmp_path / name).write_text(text, "utf-8")
    below = tmp_path / "src" / "shop"
    below.mkdir(parents=True)
    ini = find_ini(below)
    assert ini.text("soev_catalog") == "a:b"
    assert ini.paths("soev_golden") == [tmp_path / "x", tmp_path / "y z"]


def test_pytest_toml_comes_before_the_others(tmp_path: Path) -> None:
    """Of several files in one directory the one that pytest takes is taken, also when empty."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest]\nsoev_catalog = "a:b"\n', "utf-8")
    (tmp_path / "pytest.ini").write_text("", "utf-8")
    assert find_ini(tmp_path).text("soev_catalog") == ""


def test_files_without_a_section_do_not_count(tmp_path: Path) -> None:
    """A pyproject.toml that says nothing about pytest is passed over."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest]\nsoev_catalog = "a:b"\n', "utf-8")
    below = tmp_path / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text("[tool.ruff]\n", "utf-8")
    (below / "setup.cfg").write_text("[metadata]\n", "utf-8")
    assert find_ini(below).root == tmp_path


def test_lines_are_lists_or_text(tmp_path: Path) -> None:
    """A list of patterns is written as a list, or one a line."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nsoev_redact =\n  a+ b\n  c%d\n", "utf-8")
    assert find_ini(tmp_path).lines("soev_redact") == ["a+ b", "c%d"]


@pytest.mark.parametrize(("name", "text"), [("pytest.toml", "[pytest"), ("tox.ini", "no section")])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, text: str) -> None:
    """The file and the problem are named."""
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(BrokenIniError, match="cannot be read") as caught:
        find_ini(tmp_path)
    assert caught.value.file == str(tmp_path / name)
