"""The errors of golden traces."""

import pickle

import pytest

from soev.domain import SoevError
from soev.golden import (
    BadLineError,
    ConflictMarkersError,
    GoldenFileError,
    ImportRefusedError,
    SecretFoundError,
    TruncatedFileError,
    UnknownFormatError,
    UnprovenRecordingError,
)

ERRORS: list[SoevError] = [
    *(
        each("a.soev.jsonl", 3, "it is cut", "Restore it.")
        for each in (
            GoldenFileError,
            TruncatedFileError,
            ConflictMarkersError,
            UnknownFormatError,
            BadLineError,
        )
    ),
    ImportRefusedError("log.json", 2, 5, "the role 'x' does not fit"),
    ImportRefusedError("log.json", 2, None, "it has no message"),
    SecretFoundError("a.soev.jsonl", 3, "a key"),
    UnprovenRecordingError("refund", "two builds differ"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_errors_survive_pickling_with_their_facts(error: SoevError) -> None:
    """A copy from another process has the same class, fields and message."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (vars(copy), str(copy)) == (vars(error), str(error))
    assert len(str(error)) > 20


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ERRORS[0], "a.soev.jsonl:3: it is cut. Restore it."),
        (
            ERRORS[5],
            "log.json: conversation 2, message 5: the role 'x' does not fit. Correct the log, or "
            "leave the conversation out with `--skip-bad`.",
        ),
    ],
)
def test_messages_name_the_place_and_what_to_do(error: SoevError, message: str) -> None:
    """File and line, or conversation and message, come first."""
    assert str(error) == message
