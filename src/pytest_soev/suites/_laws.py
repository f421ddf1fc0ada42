"""What all suites hold their subclasses to."""

from __future__ import annotations

import pytest


def overridden(tests: type, suite: type) -> list[str]:
    """Return the clauses of a suite that a subclass replaced or removed without saying why.

    Args:
        tests: The subclass.
        suite: The suite that it subclasses.
    """
    return [
        name
        for name in dir(suite)
        if name.startswith("test_")
        and getattr(tests, name, None) is not getattr(suite, name)
        and not _expected_to_fail(getattr(tests, name, None))
    ]


def _expected_to_fail(test: object) -> bool:
    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    return any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks)
