"""A scripted model that gives the same answer again when a dead process' call is repeated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from pytest_soev.world import boundary
from soev.adapters import ScriptedChatModel
from soev.domain import ChatDelta, ChatReply, ChatRequest, call_site, fault_plan, reached

Key = tuple[str, str, str]


@dataclass(eq=False)
class _Told:
    """One answer of the script, with what it raised at its end."""

    pieces: list[ChatDelta | ChatReply] = field(default_factory=list)
    error: Exception | None = None


class RepeatingModel(ScriptedChatModel):
    """A scripted model for sweeps: an answer that was not recorded is given again."""

    def __init__(self) -> None:
        super().__init__()
        self._given: defaultdict[Key, list[_Told]] = defaultdict(list)
        self._again: defaultdict[Key, list[_Told]] = defaultdict(list)

    def died(self, recorded: Iterable[Key]) -> None:
        """Take back the answers that the dead process did not record.

        Args:
            recorded: The thread, stream and request of each call that the logs have.
        """
        counts = Counter(recorded)
        for key, given in self._given.items():
            self._again[key] = given[counts[key] :] + self._again[key]
            del given[counts[key] :]

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        """Answer with the next step, or as before."""
        reached("model.request.sending")
        await boundary()
        site = call_site.get()
        key = ("", "", request.hash)
        if site is not None:
            key = (site.thread_id, site.stream, request.hash)
        again = self._again[key]
        told = again.pop(0) if again else await self._next(request)
        self._given[key].append(told)
        reached("model.request.sent")
        await boundary()
        for piece in told.pieces:
            if isinstance(piece, ChatReply):
                reached("model.reply.read")
            yield piece
        if told.error is not None:
            raise told.error

    async def _next(self, request: ChatRequest) -> _Told:
        """Take a step of the script. No crash strikes in the middle of that."""
        told, token = _Told(), fault_plan.set(None)
        try:
            async for piece in super().stream(request):
                told.pieces.append(piece)
        except Exception as error:  # noqa: BLE001  # a script may raise anything
            told.error = error
        finally:
            fault_plan.reset(token)
        return told
