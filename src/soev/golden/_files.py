"""The events file of a golden trace."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from soev.domain import StoredEvent, UnencodableError, canonical_json
from soev.golden._errors import (
    BadLineError,
    ConflictMarkersError,
    TruncatedFileError,
    UnknownFormatError,
)
from soev.golden._order import canonical_order, numbered

FORMAT: Final = "golden/1"
TRACE_SUFFIX: Final = ".soev.jsonl"
CALLS_SUFFIX: Final = ".calls.md"
_CONFLICT = ("<<<<<<< ", ">>>>>>> ", "||||||| ")
_RESTORE = "Restore the file from version control, or record the conversation again"


@dataclass(frozen=True, slots=True)
class GoldenHeader:
    """The first line of an events file.

    Args:
        name: The golden trace.
        agent: The agent that its `Opened` names.
        events: How many events follow.
        calls: How many of them answer a model call.
        types: The tags of the events, first appearance first.
        version: The version of the code that recorded the last of them, or None.
        source: Where it was recorded, such as `test:tests/test_refund.py::test_denied`.
        scrubbed: The scrubbers that changed it.
        kept: The classes of fields that were not scrubbed, since a request depends on them.
        recorded_system: The system prompt of an imported conversation, for the reader alone.
    """

    name: str
    agent: str
    events: int
    calls: int
    types: tuple[str, ...]
    version: str | None = None
    source: str = ""
    scrubbed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    recorded_system: str | None = None


@dataclass(frozen=True, slots=True)
class GoldenTrace:
    """A thread's log under version control.

    Args:
        header: Its first line.
        events: The events; the place of each is its position.
        path: The file that it was read from, or None.
        shown: What to call that file in reports.
    """

    header: GoldenHeader
    events: tuple[StoredEvent, ...]
    path: Path | None = None
    shown: str = ""

    @property
    def file(self) -> str:
        """The events file, as reports name it."""
        return self.shown or str(self.path or self.header.name + TRACE_SUFFIX)


def trace_name(path: Path) -> str:
    """Return the name of the golden trace in an events file."""
    return path.name.removesuffix(TRACE_SUFFIX)


def calls_path(path: Path) -> Path:
    """Return the calls file that stands beside an events file."""
    return path.with_name(trace_name(path) + CALLS_SUFFIX)


def golden_trace(
    name: str, agent: str, events: Iterable[StoredEvent], **header: Any
) -> GoldenTrace:
    """Make a golden trace of a thread's log.

    Args:
        name: The golden trace.
        agent: The agent that it is held to.
        events: The log, in any order that keeps each stream's own.
        header: More fields of the header: `source`, `scrubbed`, `kept`, `recorded_system`.
    """
    ordered = canonical_order(events)
    versions = [event.version for event in ordered if event.version is not None]
    facts: dict[str, Any] = {"version": versions[-1] if versions else None, **header}
    return GoldenTrace(
        GoldenHeader(
            name=name,
            agent=agent,
            events=len(ordered),
            calls=sum(map(_answers_model, ordered)),
            types=tuple(dict.fromkeys(event.type for event in ordered)),
            **facts,
        ),
        ordered,
    )


def _answers_model(event: StoredEvent) -> bool:
    if event.type in ("model_output", "compaction"):
        return True
    return event.type == "failure" and json.loads(event.data).get("request_hash") is not None


def golden_text(trace: GoldenTrace) -> str:
    """Return the text of an events file. One trace has one text."""
    lines = [_header_line(trace.header)]
    lines += [_event_line(at, event) for at, event in enumerate(trace.events, 1)]
    return "".join(f"{line}\n" for line in lines)


def _header_line(header: GoldenHeader) -> str:
    data: dict[str, Any] = {
        "soev": FORMAT,
        "name": header.name,
        "agent": header.agent,
        "events": header.events,
        "calls": header.calls,
        "types": list(header.types),
        "version": header.version,
        "source": header.source,
        "scrubbed": list(header.scrubbed),
        "kept": list(header.kept),
    }
    if header.recorded_system is not None:
        data["recorded_system"] = header.recorded_system
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _event_line(position: int, event: StoredEvent) -> str:
    envelope = {
        "position": position,
        "type": event.type,
        "stream": event.stream,
        "origin": event.origin,
        "left": event.left,
        "version": event.version,
        "ts": None if event.ts is None else _timestamp(event.ts),
    }
    head = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    return f'{head[:-1]},"data":{event.data}}}'


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def write_golden(path: Path, trace: GoldenTrace) -> None:
    """Write an events file, whole or not at all."""
    write_text(path, golden_text(trace))


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 with LF, whole or not at all.

    Args:
        path: The file. Its directory is made when it is not there.
        text: The text.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_header(path: Path) -> GoldenHeader:
    """Read the first line of an events file alone, which is fast enough for collection.

    Raises:
        GoldenFileError: It is no header of this format.
    """
    with path.open("rb") as file:
        return _header(str(path), _decoded(str(path), file.readline()).rstrip("\r\n"))


def read_golden(path: Path, shown: str = "") -> GoldenTrace:
    """Read a golden trace. Lines may end in LF or CRLF.

    Args:
        path: The events file.
        shown: What to call it in errors and reports, its path when this is empty.

    Raises:
        TruncatedFileError: It has another number of events than its header says.
        ConflictMarkersError: Git left a conflict in it.
        UnknownFormatError: It is of another format, or no golden file.
        BadLineError: A line is no event.
    """
    file = shown or str(path)
    text = _decoded(file, path.read_bytes())
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    refuse_conflicts(file, lines)
    if lines[-1]:
        raise TruncatedFileError(file, len(lines), "the last line is cut off", f"{_RESTORE}.")
    header = _header(file, lines[0])
    events = [_event(file, at, line) for at, line in enumerate(lines[1:-1], 2)]
    if len(events) != header.events:
        problem = f"header says {header.events} events, the file has {len(events)}"
        raise TruncatedFileError(file, len(lines) - 1, problem, f"{_RESTORE}.")
    return GoldenTrace(header, tuple(numbered(events)), path, shown)


def _decoded(file: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadLineError(file, line, "the line is no UTF-8", f"{_RESTORE}.") from None


def refuse_conflicts(file: str, lines: Iterable[str]) -> None:
    """Refuse lines that git left both sides of a conflict in.

    Args:
        file: The file, for the error.
        lines: Its lines.

    Raises:
        ConflictMarkersError: A line begins with a marker.
    """
    for at, line in enumerate(lines, 1):
        if line.startswith(_CONFLICT):
            advice = "Take one side whole, then replay and look at the difference."
            raise ConflictMarkersError(file, at, f"git conflict markers at line {at}", advice)


def _header(file: str, line: str) -> GoldenHeader:
    refuse_conflicts(file, [line])
    data = _object(line)
    found = data.get("soev") if data else None
    if found != FORMAT:
        problem = f"the first line is no {FORMAT!r} header"
        if isinstance(found, str):
            problem = f"the file has the format {found!r}, this version reads {FORMAT!r}"
        advice = "Use the version of soev that wrote it, or record the conversation again."
        raise UnknownFormatError(file, 1, problem, advice)
    assert data is not None
    return _Reader(file, 1, data).header()


def _object(line: str) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


class _Reader:
    """Takes typed fields out of one line's object."""

    def __init__(self, file: str, line: int, data: dict[str, Any]) -> None:
        self.file, self.line, self.data = file, line, data

    def header(self) -> GoldenHeader:
        return GoldenHeader(
            name=self.take("name", str),
            agent=self.take("agent", str),
            events=self.take("events", int),
            calls=self.take("calls", int),
            types=self.texts("types"),
            version=self.take("version", str, None),
            source=self.take("source", str, ""),
            scrubbed=self.texts("scrubbed"),
            kept=self.texts("kept"),
            recorded_system=self.take("recorded_system", str, None),
        )

    def event(self) -> StoredEvent:
        ts = self.take("ts", str, None)
        try:
            return StoredEvent(
                type=self.take("type", str),
                data=canonical_json(self.take("data", dict), "data"),
                stream=self.take("stream", str),
                origin=self.take("origin", str, None),
                version=self.take("version", str, None),
                ts=None if ts is None else datetime.fromisoformat(ts),
                left=self.take("left", int, None),
            )
        except (ValueError, UnencodableError) as error:
            self.refuse(str(error))

    def take(self, name: str, kind: type, *default: Any) -> Any:
        value = self.data.get(name, *default)
        if default and value == default[0]:
            return value
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.refuse(f"the field {name!r} is no {_KINDS[kind]}: {value!r:.60}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.take(name, list)
        if not all(isinstance(value, str) for value in values):
            self.refuse(f"the field {name!r} holds something else than texts")
        return tuple(values)

    def refuse(self, problem: str) -> NoReturn:
        raise BadLineError(self.file, self.line, problem, f"{_RESTORE}.")


_KINDS: dict[type, str] = {str: "text", int: "integer", list: "list", dict: "object"}


def _event(file: str, at: int, line: str) -> StoredEvent:
    data = _object(line)
    if data is None:
        raise BadLineError(file, at, "the line is no JSON object", f"{_RESTORE}.")
    reader = _Reader(file, at, data)
    if data.get("position") != at - 1:
        reader.refuse(f"the event has position {data.get('position')!r}, not {at - 1}")
    return reader.event()
