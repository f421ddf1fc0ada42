"""Contracts as test classes: subclass one, fill its hooks, and pytest runs a test per clause."""

from pytest_soev.suites._append import AppendClauses
from pytest_soev.suites._chat_model import BREAKING, PREPARED, ChatModelSuite, Exchange
from pytest_soev.suites._clauses import (
    SECOND_HANDLE,
    SET_BACK,
    StoreClauses,
)
from pytest_soev.suites._copy import CopyClauses
from pytest_soev.suites._delete import DeleteClauses
from pytest_soev.suites._lease import LeaseClauses
from pytest_soev.suites._read import ReadClauses
from pytest_soev.suites._store import TraceStoreSuite
from pytest_soev.suites._wait import WaitClauses

__all__ = [
    "BREAKING",
    "PREPARED",
    "SECOND_HANDLE",
    "SET_BACK",
    "AppendClauses",
    "ChatModelSuite",
    "CopyClauses",
    "DeleteClauses",
    "Exchange",
    "LeaseClauses",
    "ReadClauses",
    "StoreClauses",
    "TraceStoreSuite",
    "WaitClauses",
]
