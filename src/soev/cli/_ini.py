"""Reads what a project wrote into its pytest configuration, without pytest."""

from __future__ import annotations

import configparser
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soev.domain import SoevError

# In the order in which pytest looks for them in a directory, with the sections that count.
_FILES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pytest.toml", ("pytest",)),
    (".pytest.toml", ("pytest",)),
    ("pytest.ini", ("pytest",)),
    (".pytest.ini", ("pytest",)),
    ("pyproject.toml", ("tool.pytest", "tool.pytest.ini_options")),
    ("tox.ini", ("pytest",)),
    ("setup.cfg", ("tool:pytest",)),
)
# These are the project's configuration even when they are empty.
_ALWAYS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")


class BrokenIniError(SoevError):
    """A configuration file cannot be read.

    Args:
        file: The file.
        problem: What is wrong with it.
    """

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(file, problem)
        self.file, self.problem = file, problem

    def __str__(self) -> str:
        return f"{self.file} cannot be read: {self.problem}"


@dataclass(frozen=True)
class Ini:
    """The pytest configuration of a project.

    Args:
        root: The directory of the file, or where the search began when there is none.
        values: The keys and what they are set to, as written.
    """

    root: Path
    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """Return a key's text, empty when it is not set."""
        return str(self.values.get(key, "")).strip()

    def lines(self, key: str) -> list[str]:
        """Return a key's lines."""
        value = self.values.get(key, "")
        lines = value if isinstance(value, list) else str(value).split("\n")
        return [str(line).strip() for line in lines if str(line).strip()]

    def paths(self, key: str) -> list[Path]:
        """Return a key's paths, relative to the file."""
        value = self.values.get(key, "")
        names = value if isinstance(value, list) else shlex.split(str(value))
        return [self.root / str(name) for name in names]


def find_ini(start: Path) -> Ini:
    """Return the pytest configuration that holds in a directory: the nearest one, going up.

    Args:
        start: The directory.

    Raises:
        BrokenIniError: The nearest file cannot be read.
    """
    for directory in (start, *start.parents):
        for name, sections in _FILES:
            path = directory / name
            if not path.is_file():
                continue
            values = _values(path, sections)
            if values is not None or name in _ALWAYS:
                return Ini(directory, values or {})
    return Ini(start)


def _values(path: Path, sections: tuple[str, ...]) -> Mapping[str, Any] | None:
    """Return what the first section that is there holds, or None."""
    try:
        read = _toml if path.suffix == ".toml" else _classic
        found = read(path, sections)
    except (OSError, ValueError, configparser.Error) as error:
        raise BrokenIniError(str(path), " ".join(str(error).split())) from error
    return found


def _toml(path: Path, sections: tuple[str, ...]) -> Mapping[str, Any] | None:
    data: Any = tomllib.loads(path.read_text("utf-8"))
    # `ini_options` stands inside of `tool.pytest`, so the longer name is looked for first.
    for section in sorted(sections, key=len, reverse=True):
        table = data
        for part in section.split("."):
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict):
            return table
    return None


def _classic(path: Path, sections: tuple[str, ...]) -> Mapping[str, Any] | None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(path.read_text("utf-8"), str(path))
    return next((dict(parser[each]) for each in sections if parser.has_section(each)), None)
