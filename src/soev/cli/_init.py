"""`soev golden init`: prepares a directory for golden traces."""

from __future__ import annotations

from pathlib import Path

import click

from soev.cli._project import Project, shown
from soev.golden import write_text

ATTRIBUTES = (
    "*.calls.md diff=markdown text eol=lf",
    "*.soev.jsonl -diff linguist-generated text eol=lf",
)
NEXT = """\
Keep formatters off these files. For pre-commit, at the top of .pre-commit-config.yaml:
  exclude: ^{pattern}/.*\\.(calls\\.md|soev\\.jsonl)$
Next, add a conversation in one of these ways:
  soev golden add --store sqlite:threads.db --thread ID --name refund-denied
  soev golden import conversations.json --format openai-messages --agent NAME
  await soev_golden(thread, "refund-denied") in a test, then pytest --soev-update
Then hold today's code to it: pytest --soev-replay"""


@click.command()
@click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False), required=False, metavar="[DIR]"
)
def init(directory: Path | None) -> None:
    """Prepare a directory for golden traces.

    Writes its .gitattributes, so that git keeps line ends and reviewers see what matters, and
    says what to do next. DIR is the ini key soev_golden, else tests/golden.
    """
    place = Project.here().directory(directory)
    path = place / ".gitattributes"
    try:
        there = path.read_text("utf-8") if path.exists() else ""
        missing = [line for line in ATTRIBUTES if line not in there.splitlines()]
        if missing:
            lines = [*there.splitlines(), *missing]
            write_text(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise click.ClickException(f"{shown(path)} is not written: {error}") from None
    click.echo(f"{'wrote' if missing else 'as it should be:'} {shown(path)}")
    click.echo(NEXT.format(pattern=shown(place)))
