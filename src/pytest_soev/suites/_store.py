"""The whole store contract as one test class."""

from __future__ import annotations

from pytest_soev.suites._append import AppendClauses
from pytest_soev.suites._copy import CopyClauses
from pytest_soev.suites._delete import DeleteClauses
from pytest_soev.suites._laws import overridden
from pytest_soev.suites._lease import LeaseClauses
from pytest_soev.suites._read import ReadClauses
from pytest_soev.suites._wait import WaitClauses


class TraceStoreSuite(
    AppendClauses, ReadClauses, WaitClauses, LeaseClauses, CopyClauses, DeleteClauses
):
    """Holds a trace store to the store contract, one test per clause.

    Subclass it under a name that begins with `Test`, and fill `open_store` and `advance`; fill
    `reopen` too, or declare in `lacks` what the store does not have. A clause may be overridden
    only by a test that is marked `xfail` with a reason.
    """

    def test_no_clause_is_overridden(self) -> None:
        """Each clause is the suite's own, or marked `xfail` with a reason."""
        changed = overridden(type(self), TraceStoreSuite)
        assert changed == [], "mark each of them with `pytest.mark.xfail(reason=...)`"
