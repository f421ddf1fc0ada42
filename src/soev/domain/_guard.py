"""The switch that keeps real models from being called in tests."""

from __future__ import annotations

from collections.abc import Callable

from soev.domain._errors import RealModelBlockedError

_blockers: list[Callable[[], str | None]] = []


def block_real_models(caller: Callable[[], str | None]) -> Callable[[], None]:
    """Refuse every send of a real model until the block is lifted.

    Args:
        caller: Says who is calling, for the error. None lets this one call through.

    Returns:
        The function that lifts the block again.
    """
    _blockers.append(caller)
    return lambda: _blockers.remove(caller)


def refuse_blocked_model(model: str) -> None:
    """Raise when real models are blocked. An adapter calls it before each send.

    Args:
        model: The name of the model.

    Raises:
        RealModelBlockedError: A block stands. Nothing was sent.
    """
    for blocker in _blockers:
        caller = blocker()
        if caller is not None:
            raise RealModelBlockedError(model, caller)
