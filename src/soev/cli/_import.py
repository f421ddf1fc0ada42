"""`soev golden import`: makes golden traces of conversations that others recorded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from soev.cli._add import new_trace, write_files
from soev.cli._project import Project, catalog_option, golden_option, shown
from soev.domain import SoevError
from soev.golden import (
    CALLS_SUFFIX,
    TRACE_SUFFIX,
    Agents,
    GoldenTrace,
    Imported,
    ImportOptions,
    ImportRefusedError,
    Scrubbing,
    check,
    golden_text,
    import_conversations,
    refuse_secrets,
)

Ready = tuple[Path, GoldenTrace, str]


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["openai-messages"]),
    required=True,
    help="A JSON list of conversations, or one a line, in the messages of OpenAI's API.",
)
@click.option("--agent", required=True, help="The agent of the project that they are held to.")
@click.option("--name", help="What the names begin with. Default: the name of the file.")
@click.option("--model-node", default="model", show_default=True, help="Its node of the model.")
@click.option("--tools-node", default="tools", show_default=True, help="Its node of the tools.")
@click.option("--skip-bad", is_flag=True, help="Leave out what does not fit, and list it.")
@catalog_option
@golden_option
def import_(  # noqa: PLR0913  # one parameter for each option
    file: Path,
    *,
    format_: str,
    agent: str,
    name: str | None,
    model_node: str,
    tools_node: str,
    skip_bad: bool,
    catalog: str | None,
    directory: Path | None,
) -> None:
    """Make golden traces of the conversations in FILE.

    What was really sent is not known, so what today's code sends is accepted, and later runs are
    held to that. Nothing is written when a conversation does not fit, unless --skip-bad.
    """
    project = Project.here()
    agents = project.agents(catalog)
    if agent not in agents:
        known = ", ".join(sorted(agents)) or "none"
        raise click.UsageError(f"agent {agent!r} is not in the catalog ({known}).")
    options = ImportOptions(
        file.name, agent, name or file.stem, model_node, tools_node, skip_bad=skip_bad
    )
    imported = _conversations(file, options)
    bulk = _Bulk(project.directory(directory), agents, project.scrubbing(), skip_bad)
    ready = list(bulk.checked(imported))
    for path, trace, calls in ready:
        write_files(path, trace, calls)
    _tell(ready, [str(each) for each in imported.refused] + bulk.refused, bulk.directory)


def _conversations(file: Path, options: ImportOptions) -> Imported:
    try:
        return import_conversations(file.read_text("utf-8-sig"), options)
    except (ImportRefusedError, UnicodeDecodeError) as error:
        raise click.ClickException(str(error)) from None


@dataclass
class _Bulk:
    """Checks many traces, and keeps a list of those that are refused."""

    directory: Path
    agents: Agents
    scrubbing: Scrubbing
    skip_bad: bool

    def __post_init__(self) -> None:
        self.refused: list[str] = []

    def checked(self, imported: Imported) -> Iterator[Ready]:
        """Yield the traces that today's code can replay, with their paths and calls files."""
        # All paths first: a name that is taken is found before anything is replayed.
        paths = [new_trace(self.directory, each.header.name) for each in imported.traces]
        with click.progressbar(imported.traces, label="replaying", file=sys.stderr) as traces:
            for path, trace in zip(paths, traces, strict=True):
                try:
                    yield path, trace, self._calls(trace)
                except SoevError as error:
                    self.refuse(str(error))

    def refuse(self, why: str) -> None:
        """Note why a trace is left out, or end the command."""
        if not self.skip_bad:
            raise click.ClickException(f"{why}\nNothing was written. --skip-bad leaves it out.")
        self.refused.append(why)

    def _calls(self, trace: GoldenTrace) -> str:
        """Return the calls file of a trace.

        Raises:
            SoevError: Today's code cannot replay it, or a file would hold a secret.
        """
        report = asyncio.run(check(trace, None, self.agents))
        if report.problems:
            raise _UnfitError(trace.header.source, report.problems[0].text)
        name, extra = trace.header.name, self.scrubbing
        for suffix, text in ((TRACE_SUFFIX, golden_text(trace)), (CALLS_SUFFIX, report.rendering)):
            file = shown(self.directory / f"{name}{suffix}")
            refuse_secrets(file, text, extra.patterns, extra.allowed)
        return report.rendering


class _UnfitError(SoevError):
    """An imported conversation cannot be replayed with the project's agent.

    Args:
        source: The conversation.
        problem: Why not.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(source, problem)
        self.source, self.problem = source, problem

    def __str__(self) -> str:
        return f"{self.source.removeprefix('import:')}: {self.problem}"


def _tell(ready: list[Ready], refused: list[str], directory: Path) -> None:
    """Say what was written, and what was left out.

    Raises:
        ClickException: Nothing was written.
    """
    calls = sum(trace.header.calls for _, trace, _ in ready)
    if refused:
        click.echo(f"left out {_counted(len(refused), 'conversation')}:", err=True)
        for each in refused:
            click.echo(f"  {each}", err=True)
    if not ready:
        raise click.ClickException("there is no conversation to make a golden trace of")
    click.echo(
        f"wrote {_counted(len(ready), 'golden trace')} with {_counted(calls, 'call')} "
        f"to {shown(directory)}"
    )
    click.echo("Read the calls files, commit them, then run: pytest --soev-replay")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
