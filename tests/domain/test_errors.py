"""Every error of the domain and the runtime: its fields, its text, and how it travels."""

import copy
import datetime as dt
import inspect
import pickle
from collections.abc import Iterator

import pytest

import soev.domain._errors as domain_errors
import soev.runtime._errors as runtime_errors
from soev.domain import (
    Head,
    InvalidQueryError,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    PositionConflictError,
    PositionOutOfRangeError,
    RealModelBlockedError,
    ResourceUnavailableError,
    SoevError,
    StoreError,
    StoreRewoundError,
    StoreUnavailableError,
    ThreadExistsError,
    TransientError,
    UnencodableError,
    UnknownElementTypeError,
    UnknownThreadError,
)
from soev.runtime._errors import (
    AgentMismatchError,
    GraphMismatchError,
    InputDeniedError,
    MutableToolError,
    NothingToCancelError,
    ThreadActiveError,
    ToolDefinitionError,
    ToolResultError,
    UnknownAgentError,
    UnknownEventTypeError,
    UnreadableEventError,
    UnrecordedWholeError,
)

LEASE = Lease("t-42", "inc", "worker-7", 3, dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC))
HEAD = Head(position=9, incarnation="inc")

SAMPLES: list[tuple[SoevError, dict[str, object], list[str]]] = [
    (SoevError("odd"), {}, ["odd"]),
    (TransientError("busy"), {}, ["busy"]),
    (TransientError(), {}, ["Try again later"]),
    (InvalidQueryError("no field x"), {}, ["no field x"]),
    (ResourceUnavailableError("gone"), {}, ["gone"]),
    (StoreError("odd"), {}, ["odd"]),
    (
        PositionConflictError("t-42", 7, HEAD),
        {"thread_id": "t-42", "expected": 7, "head": HEAD},
        ["'t-42'", "7", "9"],
    ),
    (
        LeaseHeldError("t-42", LEASE),
        {"thread_id": "t-42", "lease": LEASE},
        ["'t-42'", "'worker-7'", "03:04:05"],
    ),
    (LeaseHeldError("t-42"), {"lease": None}, ["'t-42'", "another owner"]),
    (LeaseLostError(LEASE), {"lease": LEASE}, ["'t-42'", "'worker-7'", "epoch 3"]),
    (
        OutcomeUnknownError("t-42", "append", "no answer"),
        {"thread_id": "t-42", "operation": "append", "reason": "no answer"},
        ["'t-42'", "`append`", "no answer", "Repeat"],
    ),
    (
        StoreUnavailableError("read", "no route"),
        {"operation": "read", "reason": "no route"},
        ["`read`", "no route", "Nothing was stored"],
    ),
    (
        StoreRewoundError("t-42", 9, 4),
        {"thread_id": "t-42", "seen": 9, "found": 4},
        ["'t-42'", "9", "4", "backup"],
    ),
    (UnknownThreadError("t-42"), {"thread_id": "t-42"}, ["'t-42'"]),
    (ThreadExistsError("t-42"), {"thread_id": "t-42"}, ["'t-42'", "exists"]),
    (
        PositionOutOfRangeError("t-42", 12, 9),
        {"thread_id": "t-42", "position": 12, "last": 9, "nearest": ()},
        ["'t-42'", "12", "1 to 9"],
    ),
    (
        PositionOutOfRangeError("t-42", 5, 9, (4, 6)),
        {"nearest": (4, 6)},
        ["'t-42'", "5", "4 or 6"],
    ),
    (
        UnencodableError("input", "$.a", "NaN is no number"),
        {"holder": "input", "path": "$.a", "problem": "NaN is no number"},
        ["`input`", "$.a", "NaN"],
    ),
    (
        UnknownElementTypeError("mail", ("row",)),
        {"tag": "mail", "known": ("row",)},
        ["'mail'", "'row'", "element_types"],
    ),
    (
        RealModelBlockedError("gpt", "test_x"),
        {"model": "gpt", "caller": "test_x"},
        ["'gpt'", "test_x"],
    ),
    (
        InputDeniedError("the payload is odd", "Send another.", "$.a"),
        {"problem": "the payload is odd", "advice": "Send another.", "path": "$.a"},
        ["the payload is odd", "$.a", "Send another."],
    ),
    (
        ThreadActiveError("t-42", "it waits", "Answer it."),
        {"thread_id": "t-42", "reason": "it waits", "advice": "Answer it."},
        ["'t-42'", "it waits", "Answer it."],
    ),
    (
        UnknownAgentError("help", ("desk",)),
        {"agent": "help", "known": ("desk",), "thread_id": None},
        ["'help'", "'desk'"],
    ),
    (UnknownAgentError(None, (), "t-42"), {"thread_id": "t-42"}, ["'t-42'", "`Opened`"]),
    (
        AgentMismatchError("t-42", "help", "desk"),
        {"thread_id": "t-42", "wanted": "help", "found": "desk"},
        ["'t-42'", "'help'", "'desk'"],
    ),
    (
        NothingToCancelError("t-42", "it is over"),
        {"thread_id": "t-42", "reason": "it is over"},
        ["'t-42'", "it is over"],
    ),
    (
        GraphMismatchError("ask", 7, "it has no such node"),
        {"node": "ask", "position": 7, "problem": "it has no such node"},
        ["'ask'", "7", "it has no such node"],
    ),
    (
        UnknownEventTypeError("note", ("input",)),
        {"type": "note", "known": ("input",)},
        ["'note'", "event_types"],
    ),
    (
        UnreadableEventError("note", "it is cut", "text", "t-42", 7),
        {
            "type": "note",
            "problem": "it is cut",
            "field": "text",
            "thread_id": "t-42",
            "position": 7,
        },
        ["'note'", "it is cut", "'text'", "'t-42'", "7"],
    ),
    (UnreadableEventError("note", "it is cut"), {"field": None}, ["'note'", "it is cut"]),
    (
        ToolDefinitionError("search", "index", "it has no value."),
        {"tool": "search", "parameter": "index", "problem": "it has no value."},
        ["'search'", "`index`", "it has no value."],
    ),
    (ToolDefinitionError("search", None, "no."), {"parameter": None}, ["'search'", "no."]),
    (
        MutableToolError("search", ("filters",), dict),
        {"tool": "search", "fields": ("filters",), "holds": dict},
        ["`search.filters` holds a dict", "frozen mapping", "bind a tuple"],
    ),
    (MutableToolError("search", (), None), {"holds": None}, ["`search`", "frozen=True"]),
    (
        ToolResultError("search", list),
        {"tool": "search", "returned": list},
        ["'search'", "list", "ToolOutput"],
    ),
    (
        UnrecordedWholeError("search", "part", "whole"),
        {"tool": "search", "element": "part", "ref": "whole"},
        ["'search'", "'part'", "'whole'"],
    ),
]
ERRORS = [error for error, _, _ in SAMPLES]


def public_errors() -> Iterator[type[SoevError]]:
    """Yield the error classes of both packages."""
    for module in (domain_errors, runtime_errors):
        for name, each in inspect.getmembers(module, inspect.isclass):
            if issubclass(each, SoevError) and not name.startswith("_"):
                yield each


def test_every_error_has_a_sample() -> None:
    """No error class is left out of the tests below."""
    assert {type(error) for error in ERRORS} == set(public_errors())


def named(sample: object) -> str:
    """Name a sample by the class of its error."""
    return type(sample).__name__


@pytest.mark.parametrize(
    "place", range(len(SAMPLES)), ids=lambda place: named(ERRORS[place]) + str(place)
)
def test_errors_carry_their_facts(place: int) -> None:
    """An error has its facts as fields, and its text names them and what to do."""
    error, fields, words = SAMPLES[place]
    assert {name: getattr(error, name) for name in fields} == fields
    assert [word for word in words if word not in str(error)] == []


@pytest.mark.parametrize(
    "place", range(len(SAMPLES)), ids=lambda place: named(ERRORS[place]) + str(place)
)
def test_errors_travel(place: int) -> None:
    """An error survives pickle, copy and deepcopy with its fields and its text."""
    error = ERRORS[place]
    error.__dict__.setdefault("request_hash", "abc")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert vars(again) == vars(error)
        assert str(again) == str(error)
        assert again.args == error.args


@pytest.mark.parametrize("error", sorted(set(public_errors()), key=str), ids=lambda e: e.__name__)
def test_errors_are_named_and_told(error: type[SoevError]) -> None:
    """A class name ends in Error and its docstring says when it is raised."""
    assert error.__name__.endswith("Error")
    assert len(error.__doc__ or "") > 20


def test_no_answer_of_a_store_is_transient() -> None:
    """A tool cannot turn a store's answer into a result."""
    answers = [each for each in public_errors() if issubclass(each, StoreError)]
    assert len(answers) == 10
    assert not any(issubclass(each, TransientError) for each in answers)


def test_a_graph_that_does_not_fit_is_a_value_error() -> None:
    """`GraphMismatchError` is caught as the programmer's error that it is."""
    assert issubclass(GraphMismatchError, ValueError)
