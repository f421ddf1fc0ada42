"""Where in a run a step is called."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from soev.domain._chat import ChatDelta


@dataclass(frozen=True, slots=True)
class CallSite:
    """The place of a step in a run, for a model that wants to know it. None must need it.

    Args:
        thread_id: The thread that runs.
        agent: The agent's name in its catalog, or None.
        stream: The stream that the step works in.
        node: The node.
        on_delta: Takes each piece of a model's answer, citation marks resolved.
    """

    thread_id: str
    agent: str | None
    stream: str
    node: str
    on_delta: Callable[[ChatDelta], None]


call_site: ContextVar[CallSite | None] = ContextVar("call_site", default=None)
"""Set by the engine around each step."""
