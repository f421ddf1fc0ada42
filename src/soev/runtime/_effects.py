"""Effects: changes of the world, what performs them, and what settles them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from soev.domain import EffectIntent, EffectResult, Event, Trace


class Effector(Protocol):
    """Changes the world: sends the mail, makes the refund.

    A class may also declare `timeout`, in seconds: the act is stopped after it, and a recovery
    waits until it has passed since the intent, so that no request is still on its way.
    """

    async def perform(self, intent: EffectIntent) -> EffectResult:
        """Do the act and return its result.

        The id of the intent is the key by which the world can tell a repeat. A definite refusal
        is a result with an `error`; raising says that the outcome is unknown.

        Args:
            intent: What to do, as it was recorded.
        """
        ...


EffectRecovery = Callable[[Trace, EffectIntent, Effector], Awaitable[Sequence[Event]]]
EffectCancellation = Callable[
    [Trace, EffectIntent, Effector, "asyncio.Task[EffectResult]"], Awaitable[Sequence[Event]]
]


class EffectStep(Protocol):
    """A node that changes the world once: the intent is recorded, then the act, then its result.

    Attributes:
        effector: Performs the act.
        recovery: Settles an intent that was left without a result. It returns the EffectResult
            of the intent, or a Request that asks for the outcome.
        cancellation: Decides about an act in progress when its turn is cancelled or stopped. It
            returns one EffectResult, one Request, or nothing, which leaves it to `recovery`.
    """

    effector: Effector
    recovery: EffectRecovery
    cancellation: EffectCancellation

    def intend(self, trace: Trace) -> EffectIntent:
        """Return what to do, from the view alone and without an id.

        Args:
            trace: The stream's view.
        """
        ...


async def abandon(
    trace: Trace,
    intent: EffectIntent,
    effector: Effector,
    performing: asyncio.Task[EffectResult],
) -> Sequence[Event]:
    """Wait for nothing and decide nothing: recovery settles the intent later.

    Args:
        trace: The stream's view.
        intent: The intent of the act.
        effector: What performs it.
        performing: The asyncio task of the act. It is cancelled when this function returns.
    """
    return ()
