"""The project that a command works in: its golden directory, its agents and its patterns."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from soev.cli._ini import BrokenIniError, Ini, find_ini
from soev.golden import Agents, CatalogError, Scrubbing, load_agents

DEFAULT_DIRECTORY = Path("tests", "golden")
NO_CATALOG = (
    "no agents to prove the recording with. Say where they come from with "
    "`--catalog shop.agents:agents`, or with the ini key `soev_catalog`"
)


@dataclass(frozen=True)
class Project:
    """The project in the current directory.

    Args:
        ini: Its pytest configuration.
    """

    ini: Ini

    @staticmethod
    def here() -> Project:
        """Return the project of the current directory.

        Raises:
            UsageError: Its configuration cannot be read.
        """
        try:
            return Project(find_ini(Path.cwd()))
        except BrokenIniError as error:
            raise click.UsageError(str(error)) from None

    def directory(self, given: Path | None) -> Path:
        """Return the golden directory: the given one, else the ini file's, else the default."""
        if given is not None:
            return given
        configured = self.ini.paths("soev_golden")
        return configured[0] if configured else self.ini.root / DEFAULT_DIRECTORY

    def agents(self, given: str | None) -> Agents:
        """Import the agents from the given place, else from the ini file's.

        Raises:
            UsageError: Neither is there, or the place gives no agents.
        """
        place = given or self.ini.text("soev_catalog")
        if not place:
            raise click.UsageError(f"{NO_CATALOG}.")
        for path in (*self.ini.paths("pythonpath"), Path.cwd()):
            if str(path) not in sys.path:
                sys.path.insert(0, str(path))
        try:
            return load_agents(place)
        except CatalogError as error:
            raise click.UsageError(str(error)) from None

    def scrubbing(self) -> Scrubbing:
        """Return what the ini file adds to the scrubbing.

        Raises:
            UsageError: A pattern is none.
        """
        patterns = []
        for each in self.ini.lines("soev_redact"):
            try:
                patterns.append(re.compile(each))
            except re.error as error:
                raise click.UsageError(f"`soev_redact` has {each!r}: {error}") from None
        return Scrubbing(tuple(patterns), allowed=frozenset(self.ini.lines("soev_not_secret")))


def shown(path: Path) -> str:
    """Return a path as messages name it: relative to where the command runs, if it is below."""
    here = Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


golden_option = click.option(
    "--golden",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where golden traces are. Default: the ini key soev_golden, else tests/golden.",
)
catalog_option = click.option(
    "--catalog",
    metavar="MODULE:ATTR",
    help="Where the agents come from. Default: the ini key soev_catalog.",
)
