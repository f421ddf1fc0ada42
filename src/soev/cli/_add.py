"""`soev golden add`: makes a golden trace of a thread in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from soev.adapters import SqliteTraceStore
from soev.cli._project import Project, catalog_option, golden_option, shown
from soev.domain import SoevError, StoredEvent
from soev.golden import (
    TRACE_SUFFIX,
    GoldenTrace,
    calls_path,
    record,
    write_golden,
    write_text,
)

SCHEME = "sqlite"
SHOWN_THREADS = 5


@click.command()
@click.option("--store", required=True, metavar="sqlite:PATH", help="The store of the thread.")
@click.option("--thread", "thread_id", required=True, metavar="ID", help="The thread.")
@click.option(
    "--until",
    type=click.IntRange(min=1),
    metavar="POSITION",
    help="The last event to take. Default: all of them.",
)
@click.option("--name", required=True, help="The name of the golden trace.")
@catalog_option
@golden_option
def add(
    store: str,
    thread_id: str,
    until: int | None,
    name: str,
    catalog: str | None,
    directory: Path | None,
) -> None:
    """Make a golden trace of a thread in a store.

    Ids, times and secrets are scrubbed, and the scrubbing is proven: today's code must build the
    same requests from the scrubbed log. What changes a request is kept, and said.
    """
    project = Project.here()
    path = new_trace(project.directory(directory), name)
    agents = project.agents(catalog)
    events = asyncio.run(_events(_database(store), thread_id, until))
    try:
        recording = asyncio.run(
            record(
                events,
                agents,
                name,
                source=f"store:{_database(store).name}",
                directory=shown(path.parent),
                scrubbing=project.scrubbing(),
            )
        )
    except SoevError as error:
        raise click.ClickException(str(error)) from None
    write_files(path, recording.trace, recording.calls)
    header = recording.trace.header
    click.echo(f"wrote {shown(path)}: events {header.events}, model calls {header.calls}")
    click.echo(f"scrubbed: {', '.join(header.scrubbed) or 'nothing'}")
    if header.kept:
        click.echo(f"kept, since a request depends on them: {', '.join(header.kept)}")
    click.echo(f"Read {shown(calls_path(path))}, commit both files, then run: pytest --soev-replay")


def new_trace(directory: Path, name: str) -> Path:
    """Return the events file for a name.

    Raises:
        UsageError: The name is none for a file, or it is taken.
    """
    if Path(name).name != name or name.startswith("."):
        raise click.UsageError(f"{name!r} is no name for a golden trace: it becomes a file's name.")
    path = directory / f"{name}{TRACE_SUFFIX}"
    if path.exists():
        raise click.UsageError(
            f"{shown(path)} is there already. A recorded conversation is not written over: choose "
            "another name, or delete the file first."
        )
    return path


def write_files(path: Path, trace: GoldenTrace, calls: str) -> None:
    """Write both files of a golden trace.

    Raises:
        ClickException: They cannot be written.
    """
    try:
        write_text(calls_path(path), calls)
        write_golden(path, trace)
    except OSError as error:
        raise click.ClickException(f"{shown(path)} is not written: {error}") from None


def _database(store: str) -> Path:
    """Return the file of a store: a path, or one after `sqlite:`."""
    scheme, colon, rest = store.partition(":")
    # A single letter before the colon is a drive of Windows.
    is_url = bool(colon) and len(scheme) > 1
    if is_url and scheme != SCHEME:
        raise click.UsageError(f"no store can be opened at {store!r}: write `sqlite:PATH`.")
    path = Path(rest.removeprefix("//") if is_url else store)
    if not path.is_file():
        raise click.UsageError(f"there is no store at {str(path)!r}: no such file.")
    return path


async def _events(path: Path, thread_id: str, until: int | None) -> Sequence[StoredEvent]:
    """Read a thread's log up to a position.

    Raises:
        ClickException: There is no such thread or position, or the file is no store.
    """
    async with SqliteTraceStore(path) as store:
        try:
            page = await store.read(thread_id, limit=until)
            others = [] if page.entries else await store.threads(limit=SHOWN_THREADS + 1)
        except SoevError as error:
            raise click.ClickException(f"{path}: {error}") from None
    if not page.entries:
        known = ", ".join(repr(each.thread_id) for each in others[:SHOWN_THREADS]) or "none"
        more = ", ..." if len(others) > SHOWN_THREADS else ""
        raise click.ClickException(
            f"{path} has no thread {thread_id!r}. Its latest threads: {known}{more}"
        )
    events = [entry.event for entry in page.entries]
    if until is not None and len(events) < until:
        raise click.ClickException(
            f"position {until} is beyond the end: thread {thread_id!r} has {len(events)} events"
        )
    if events[-1].left:
        raise click.ClickException(
            f"position {len(events)} is inside an append, which is one fact: the next positions "
            f"up to {len(events) + events[-1].left} belong to it"
        )
    return events
