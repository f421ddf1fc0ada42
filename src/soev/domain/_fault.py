"""Named points in stores, leases and model code where a harness may strike."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

fault_plan: ContextVar[Callable[[str], None] | None] = ContextVar("fault_plan", default=None)
"""What a harness wants done at each point: called with its name, it may raise. None: nothing."""


def reached(point: str) -> None:
    """Tell the fault plan that the code has reached a named point. Without a plan it does nothing.

    Args:
        point: The name, such as `store.append.sent`.
    """
    plan = fault_plan.get()
    if plan is not None:
        plan(point)
