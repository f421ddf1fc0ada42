"""Errors of golden traces.

SoevError
├── CatalogError                a project's agents cannot be had
├── GoldenFileError             a file of a golden trace cannot be used
│   ├── TruncatedFileError      it ends too early, or has events too many
│   ├── ConflictMarkersError    git left both sides of a conflict in it
│   ├── UnknownFormatError      another version of soev wrote it, or it is no golden file
│   └── BadLineError            one line is not what the format has there
├── ImportRefusedError          a recorded conversation that does not fit
├── SecretFoundError            a value that looks like a secret is about to be written
└── UnprovenRecordingError      scrubbing would change what the model is sent
"""

from __future__ import annotations

from soev.domain import SoevError


class CatalogError(SoevError):
    """The place that a project's agents come from gives none.

    Args:
        place: The place, such as `shop.agents:agents`.
        problem: What is wrong with it.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem

    def __str__(self) -> str:
        return (
            f"The agents at {self.place!r} cannot be had: {self.problem}. Name a mapping, an "
            "`AgentCatalog` or a function, such as `shop.agents:agents`."
        )


class GoldenFileError(SoevError):
    """A file of a golden trace cannot be used. Nothing of it was.

    Args:
        file: The file, as the caller named it.
        line: The 1-based line at fault.
        problem: What is wrong there.
        advice: What to do.
    """

    def __init__(self, file: str, line: int, problem: str, advice: str) -> None:
        super().__init__(file, line, problem, advice)
        self.file, self.line, self.problem, self.advice = file, line, problem, advice

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}. {self.advice}"


class TruncatedFileError(GoldenFileError):
    """The file has another number of events than its header says."""


class ConflictMarkersError(GoldenFileError):
    """The file holds both sides of a git conflict."""


class UnknownFormatError(GoldenFileError):
    """The file is of a format that this version does not read, or is no golden file at all."""


class BadLineError(GoldenFileError):
    """A line is not what the format has at this place."""


class ImportRefusedError(SoevError):
    """A recorded conversation does not fit, so no golden trace was made of it.

    Args:
        file: The file that it was read from.
        conversation: The 0-based index of the conversation in the file.
        message: The 0-based index of the message, or None for the conversation as a whole.
        problem: What does not fit.
    """

    def __init__(self, file: str, conversation: int, message: int | None, problem: str) -> None:
        super().__init__(file, conversation, message, problem)
        self.file, self.conversation = file, conversation
        self.message, self.problem = message, problem

    def __str__(self) -> str:
        place = "" if self.message is None else f", message {self.message}"
        return (
            f"{self.file}: conversation {self.conversation}{place}: {self.problem}. "
            "Correct the log, or leave the conversation out with `--skip-bad`."
        )


class SecretFoundError(SoevError):
    """A value that looks like a secret is about to be written to a file. Nothing was written.

    Args:
        file: The file that it would be in.
        line: The 1-based line.
        kind: What it looks like. The value itself is never shown.
    """

    def __init__(self, file: str, line: int, kind: str) -> None:
        super().__init__(file, line, kind)
        self.file, self.line, self.kind = file, line, kind

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line}: a value looks like {self.kind}, and scrubbing could not "
            "remove it. Add a pattern for it to `soev_redact`, or record another conversation."
        )


class UnprovenRecordingError(SoevError):
    """A thread cannot be recorded so that replay proves the recording. Nothing was written.

    Args:
        name: The golden trace.
        problem: What the proof found.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return (
            f"Golden trace {self.name!r} is not recorded, since replay does not prove it: "
            f"{self.problem}. Correct that first, then record the thread again."
        )
