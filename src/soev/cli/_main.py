"""The command and its groups."""

from __future__ import annotations

import click

from soev.cli._add import add
from soev.cli._import import import_
from soev.cli._init import init

HELP = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=HELP)
@click.version_option(package_name="soev")
def main() -> None:
    """Record conversations of agents, and hold today's code to them."""


@main.group()
def golden() -> None:
    """Make golden traces: conversations under version control.

    `pytest --soev-replay` replays them.
    """


golden.add_command(init)
golden.add_command(add)
golden.add_command(import_)
