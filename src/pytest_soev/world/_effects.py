"""A small world that effects change, and that counts what was done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

from pytest_soev.world._errors import UndurableActError
from pytest_soev.world._loop import boundary
from soev.domain import EffectIntent, EffectResult, JsonValue, reached

Honesty = Literal["honest", "lying", "silent"]


class World:
    """What effectors act on. It lives longer than any process, as the real one does.

    Args:
        honesty: What it answers when it is asked whether an intent was acted on: the truth, the
            opposite, or nothing.
        drops_repeats: Whether it knows an intent by its id and acts on it only once. It counts
            the attempts all the same.
        durable: Tells whether a store holds an intent of this id. None leaves that unchecked.
    """

    def __init__(
        self,
        honesty: Honesty = "honest",
        *,
        drops_repeats: bool = False,
        durable: Callable[[str], bool] | None = None,
    ) -> None:
        self.honesty, self.drops_repeats, self.durable = honesty, drops_repeats, durable
        self.attempts: Counter[str] = Counter()
        self.acts: Counter[str] = Counter()
        self.refused: list[UndurableActError] = []
        self._kinds: dict[str, EffectIntent] = {}

    def act(self, intent: EffectIntent) -> JsonValue:
        """Do what an intent says.

        Args:
            intent: The intent, with its id.

        Returns:
            What the world has to say about it: the number of this act of its kind.

        Raises:
            UndurableActError: No store holds the intent.
        """
        if intent.id is None or (self.durable is not None and not self.durable(intent.id)):
            error = UndurableActError(intent.id)
            self.refused.append(error)
            raise error
        self.attempts[intent.id] += 1
        if not (self.drops_repeats and self.acts[intent.id]):
            self.acts[intent.id] += 1
        self._kinds[intent.id] = intent
        return {"receipt": intent.kind}

    def asked(self, intent_id: str) -> bool | None:
        """Answer whether an intent was acted on, as honestly as this world is.

        Args:
            intent_id: The intent's id.
        """
        done = self.acts[intent_id] > 0
        return None if self.honesty == "silent" else done == (self.honesty == "honest")

    def count(self, kind: str | None = None) -> int:
        """Return how many acts there were.

        Args:
            kind: Only those of intents of this kind.
        """
        return sum(n for key, n in self.acts.items() if kind in {None, self._kinds[key].kind})

    def happened(self, kind: str) -> bool:
        """Tell whether there was an act of a kind.

        Args:
            kind: The kind.
        """
        return self.count(kind) > 0

    def repeated(self) -> dict[str, int]:
        """Return the intents that were acted on more than once, with how often."""
        return {key: n for key, n in self.acts.items() if n > 1}


class RecordingEffector:
    """An effector that changes a World. Its request and its answer take time on their way.

    Args:
        world: What it changes.
        wait: Waits for something outside, by default at a `boundary` of the schedule.
        fails: What to raise after the act at each call in turn, None to return.
        timeout: The seconds after which no request of an act is still on its way, or None.
    """

    def __init__(
        self,
        world: World,
        wait: Callable[[], Awaitable[None]] | None = None,
        *,
        fails: tuple[Exception | None, ...] = (),
        timeout: float | None = None,
    ) -> None:
        self.world, self.timeout = world, timeout
        self._wait = wait or boundary
        self._fails = list(fails)
        self.performed: Counter[str | None] = Counter()

    async def perform(self, intent: EffectIntent) -> EffectResult:
        """Do the act and return its result.

        Args:
            intent: What to do.

        Raises:
            UndurableActError: No store holds the intent.
        """
        self.performed[intent.id] += 1
        reached("world.sending")
        await self._wait()
        output = self.world.act(intent)
        reached("world.changed")
        await self._wait()
        failure = self._fails.pop(0) if self._fails else None
        if failure is not None:
            raise failure
        reached("world.answered")
        return EffectResult(intent=intent.id, output=output)

    async def ask(self, intent: EffectIntent) -> bool | None:
        """Ask the world whether it was done; None when it does not say.

        Args:
            intent: The intent.
        """
        reached("world.asking")
        await self._wait()
        return self.world.asked(intent.id or "")
