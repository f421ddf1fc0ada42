"""A model that answers from a script: the test double, and what examples run on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from pydantic import JsonValue

from soev.adapters._scripted._steps import Hold, ScriptStep, Telling
from soev.domain import (
    CallSite,
    ChatDelta,
    ChatReply,
    ChatRequest,
    PreparedRequest,
    SoevError,
    call_site,
    message_json,
    reached,
    role_of,
)

_SHOWN_MESSAGES = 3
_SHOWN_CHARS = 200


class OffScriptError(SoevError):
    """A scripted model was called once more than its script has steps.

    It is not UnusedStepsError, which is about steps that no call used.

    Args:
        lane: Whose script it is, such as `node 'writer'`, or `every call`.
        messages: The last messages of the request.
        used: The steps that were used, as code.
        others: The unused steps of the other scripts, as code.
    """

    def __init__(
        self,
        lane: str,
        messages: tuple[str, ...],
        used: tuple[str, ...] = (),
        others: tuple[str, ...] = (),
    ) -> None:
        super().__init__(lane, messages, used, others)
        self.lane, self.messages, self.used, self.others = lane, messages, used, others

    def __str__(self) -> str:
        lines = [
            f"The script for {self.lane} has no step for call {len(self.used) + 1}. "
            "Add a step with `model.script(...)`.",
            "The request ends with:",
            *(f"  {each}" for each in self.messages),
            f"Used steps ({len(self.used)}):",
            *(f"  {each}" for each in self.used),
        ]
        if self.others:
            lines += ["Next steps of other scripts:", *(f"  {each}" for each in self.others)]
        return "\n".join(lines)


class UnusedStepsError(SoevError):
    """A script has steps that no call used.

    Args:
        unused: The steps, as code, with the script that they belong to.
    """

    def __init__(self, unused: tuple[str, ...]) -> None:
        super().__init__(unused)
        self.unused = unused

    def __str__(self) -> str:
        steps = "\n".join(f"  {each}" for each in self.unused)
        count = len(self.unused)
        left = f"{count} steps of its script are" if count > 1 else "1 step of its script is"
        return (
            f"The model was called too few times: {left} unused. Remove what is not needed, or "
            f"wrap it in `optional(...)`.\n{steps}"
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Which calls a script is for. The more exactly it says so, the sooner it is asked."""

    stream: str | None = None
    node: str | None = None
    agent: str | None = None

    def covers(self, site: CallSite | None) -> bool:
        named = ((self.stream, "stream"), (self.node, "node"), (self.agent, "agent"))
        return all(
            want is None or (site is not None and getattr(site, what) == want)
            for want, what in named
        )

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        return self.stream is not None, self.node is not None, self.agent is not None

    def __str__(self) -> str:
        named = (("agent", self.agent), ("node", self.node), ("stream", self.stream))
        return ", ".join(f"{what} {name!r}" for what, name in named if name) or "every call"


@dataclass(slots=True)
class _Lane:
    """One script as it is used up. Its calls are numbered, so their ids are always the same."""

    place: _Place
    steps: list[ScriptStep] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    at: int = 0
    calls: int = 0
    touched: bool = False

    def add(self, steps: tuple[ScriptStep, ...]) -> None:
        for step in steps:
            if self.steps and self.steps[-1].endless:
                raise ValueError(
                    f"The script for {self.place} goes on with {self.steps[-1]!r} for ever, "
                    f"so {step!r} would never be used. Put it before that."
                )
            self.steps.append(step)

    def take(self) -> ScriptStep | None:
        if self.at == len(self.steps):
            return None
        step = self.steps[self.at]
        self.used.append(repr(step))
        if step.endless:
            self.touched = True
        else:
            self.at += 1
        return step

    def left(self) -> Iterator[ScriptStep]:
        for step in self.steps[self.at :]:
            if not (self.touched and step.endless):
                yield step

    def next_id(self) -> str:
        self.calls += 1
        names = [name for name in (self.place.stream, self.place.node, self.place.agent) if name]
        return "-".join(["call", *names, str(self.calls)])


@dataclass(frozen=True, slots=True)
class Script:
    """The steps that one call of `ScriptedChatModel.script` added.

    Args:
        holds: The gates among them, in order.
    """

    holds: tuple[Hold, ...]

    async def reached(self) -> None:
        """Wait until a call stands at the first gate that is closed."""
        await self._closed().reached()

    def open(self) -> None:
        """Open the first gate that is closed."""
        self._closed().open()

    def _closed(self) -> Hold:
        for hold in self.holds:
            if not hold.is_open:
                return hold
        raise ValueError("This script has no closed gate. Add one with `hold(...)`.")


class ScriptedChatModel:
    """A model that gives the answers of a script, one step for each call, in order.

    It needs no network. It says its text in several deltas, as a real model does.

    Args:
        steps: The script for every call that no other script is for.
        name: The model's name.
    """

    def __init__(self, *steps: ScriptStep, name: str = "scripted") -> None:
        self.name = name
        self._lanes: dict[_Place, _Lane] = {}
        self._requests: list[ChatRequest] = []
        self._off: list[OffScriptError] = []
        if steps:
            self.script(*steps)

    def script(
        self,
        *steps: ScriptStep,
        agent: str | None = None,
        node: str | None = None,
        stream: str | None = None,
    ) -> Script:
        """Add steps to a script.

        A call uses the script that names its stream, else the one that names its node, else its
        agent, else the script for every call.

        Args:
            steps: What to answer, in order.
            agent: Only calls of this agent.
            node: Only calls of this node.
            stream: Only calls in this stream.

        Returns:
            The added part, with its gates.

        Raises:
            ValueError: A step stands behind one that goes on for ever.
        """
        place = _Place(stream, node, agent)
        self._lanes.setdefault(place, _Lane(place)).add(steps)
        return Script(tuple(hold for step in steps for hold in step.holds()))

    @property
    def requests(self) -> tuple[ChatRequest, ...]:
        """What the model was sent, in order."""
        return tuple(self._requests)

    @property
    def unused(self) -> tuple[str, ...]:
        """The steps that still have to be used, as code, each with its script."""
        return tuple(
            f"{lane.place}: {step!r}"
            for lane in self._lanes.values()
            for step in lane.left()
            if step.needed
        )

    def check(self) -> None:
        """Hold the calls to the script, at the end of a test.

        Raises:
            OffScriptError: There was a call that the script had no step for.
            UnusedStepsError: Steps are left that are not optional.
        """
        if self._off:
            raise self._off[0]
        if self.unused:
            raise UnusedStepsError(self.unused)

    def prepare(self, request: ChatRequest) -> PreparedRequest:
        """Return the request's canonical JSON as the body."""
        messages: list[JsonValue] = [json.loads(message_json(each)) for each in request.messages]
        body: JsonValue = {
            "messages": messages,
            "model": request.model,
            "options": dict(request.options),
            "response_schema": request.response_schema,
            "tool_choice": request.tool_choice,
            "tools": [json.loads(tool.json) for tool in request.tools],
        }
        return PreparedRequest("POST", "/scripted", {}, body)

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        """Answer with the next step.

        Raises:
            OffScriptError: There is none.
        """
        reached("model.request.sending")
        self._requests.append(request)
        lane = self._lane()
        step = lane.take()
        if step is None:
            raise self._off_script(lane, request)
        reached("model.request.sent")
        async for piece in step.play(Telling(request, request.model or self.name, lane.next_id)):
            if isinstance(piece, ChatReply):
                reached("model.reply.read")
            yield piece

    def _lane(self) -> _Lane:
        site = call_site.get()
        fitting = [lane for lane in self._lanes.values() if lane.place.covers(site)]
        return max(fitting, key=lambda lane: lane.place.rank, default=_Lane(_Place()))

    def _off_script(self, lane: _Lane, request: ChatRequest) -> OffScriptError:
        messages = list(request.messages)[-_SHOWN_MESSAGES:]
        shown = (f"{role_of(each)}: {each.text}" for each in messages)
        error = OffScriptError(
            str(lane.place),
            tuple(
                text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…" for text in shown
            ),
            tuple(lane.used),
            tuple(
                f"{other.place}: {step!r}"
                for other in self._lanes.values()
                for step in list(other.left())[:1]
            ),
        )
        self._off.append(error)
        return error

    def __repr__(self) -> str:
        return f"ScriptedChatModel(name={self.name!r})"
