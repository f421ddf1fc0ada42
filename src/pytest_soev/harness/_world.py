"""The world that the effects of a test change, which plays every act itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal

from pytest_soev.harness._errors import ActOutsideEffectError, HarnessError
from pytest_soev.world import Honesty, World, boundary
from soev.domain import EffectIntent, EffectResult, JsonValue, call_site, reached
from soev.runtime import Effector

_in_effect: ContextVar[bool] = ContextVar("_in_effect", default=False)
NOT_DONE: Final = "not done"


class HarnessWorld(World):
    """A world with an effector that records. No act leaves it.

    It stands in for the effector of every effect, and can be handed to an agent as one.

    Args:
        honesty: What it answers when it is asked whether an intent was acted on: the truth, the
            opposite, or nothing.
        drops_repeats: Whether it acts on an intent's id only once.
    """

    def __init__(self, honesty: Honesty = "honest", *, drops_repeats: bool = False) -> None:
        super().__init__(honesty, drops_repeats=drops_repeats)
        self.problems: list[HarnessError] = []
        self._answers: dict[str, EffectResult] = {}
        self._real: set[str] = set()
        self._results: dict[str, EffectResult] = {}

    def answers(self, kind: str, output: JsonValue = None, *, error: str | None = None) -> None:
        """Set what the world says to acts of a kind. By default `{"receipt": kind}`.

        Args:
            kind: The kind, which is the tool's name for an `EffectTool`.
            output: What it says.
            error: A definite refusal: then nothing is done, and nothing counts.
        """
        self._answers[kind] = EffectResult(output=output, error=error)

    def lets_through(self, *kinds: str) -> None:
        """Let the agent's own effector perform acts of some kinds. They are recorded as well.

        Args:
            kinds: The kinds.
        """
        self._real.update(kinds)

    async def perform(self, intent: EffectIntent) -> EffectResult:
        """Do the act and return its result.

        Args:
            intent: What to do.

        Raises:
            ActOutsideEffectError: It is not called by an effect.
        """
        if not _in_effect.get():
            site = call_site.get()
            error = ActOutsideEffectError(None if site is None else site.node, intent.kind)
            self.problems.append(error)
            raise error
        return await self._played(intent, None)

    async def performed_by(self, effector: Effector, intent: EffectIntent) -> EffectResult:
        """Do the act of an effect whose own effector this is.

        Args:
            effector: The effect's own effector.
            intent: What to do.
        """
        with _acting():
            return await self._played(intent, effector if intent.kind in self._real else None)

    async def _played(self, intent: EffectIntent, real: Effector | None) -> EffectResult:
        reached("world.sending")
        await boundary()
        told = self._answers.get(intent.kind)
        if real is not None and real is not self:
            told = await real.perform(intent)
        if told is None or told.error is None:
            receipt = self.act(intent)
            told = told or EffectResult(output=receipt)
            self._results[intent.id or ""] = told
        reached("world.changed")
        await boundary()
        reached("world.answered")
        return EffectResult(output=told.output, error=told.error)

    async def query(self, intent: EffectIntent) -> EffectResult | Literal["not done"] | None:
        """Answer whether an intent was acted on, as `check_with` asks.

        Args:
            intent: The intent.
        """
        reached("world.asking")
        await boundary()
        done = self.asked(intent.id or "")
        if done is None:
            return None
        known = self._results.get(intent.id or "", EffectResult(output={"receipt": intent.kind}))
        return EffectResult(output=known.output) if done else NOT_DONE

    def repeated_kinds(self) -> tuple[str, ...]:
        """Return the kinds of intents that were acted on more than once."""
        return tuple(self._kinds[key].kind for key in self.repeated())

    def __repr__(self) -> str:
        acts = ", ".join(f"{kind} {n}x" for kind, n in self.performed().items()) or "nothing"
        return f"HarnessWorld({acts})"

    def performed(self) -> dict[str, int]:
        """Return how often acts of each kind were done."""
        kinds = dict.fromkeys(intent.kind for intent in self._kinds.values())
        return {kind: self.count(kind) for kind in kinds}


@contextmanager
def _acting() -> Iterator[None]:
    token = _in_effect.set(True)
    try:
        yield
    finally:
        _in_effect.reset(token)
