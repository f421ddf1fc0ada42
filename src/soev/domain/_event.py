"""Events: what a thread's log records."""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue, SerializeAsAny

from soev.domain._chat import Finish, JsonSchema, Usage
from soev.domain._element import Element
from soev.domain._messages import ToolCall
from soev.domain._secrets import without_secrets

ROOT_STREAM: Final = "main"
MAX_FAILURE_CHARS: Final = 2_000

NodeName = str
Actor = Literal["person", "system"] | str
Elements = tuple[SerializeAsAny[Element], ...]
AnyEvent = TypeVar("AnyEvent", bound="Event")


class Event(BaseModel):
    """One recorded fact. It never changes.

    A concrete class declares `type`, its tag in stored JSON; `former_types` names tags that it
    was stored under before. The fields here are the envelope: what a step sets in them is
    overwritten.

    Args:
        stream: The stream that the event belongs to. Set by the runtime.
        origin: The node that recorded it, None for what came from outside. Set by the runtime.
        seq: Its place in its stream, from 1, None until it is stored. Set by the store.
        ts: When it was stored, in UTC. Set by the store.
        version: The version of the code that appended it. Set by the runtime.
        left: How many events of the same append follow it in its stream. Set by the store.

    Raises:
        TypeError: A subclass declares a field of the envelope again.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="constants", defer_build=True
    )

    type: ClassVar[str]
    former_types: ClassVar[tuple[str, ...]] = ()

    stream: str = ROOT_STREAM
    origin: NodeName | None = None
    seq: int | None = None
    ts: datetime | None = None
    version: str | None = None
    left: int | None = None

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: str | None) -> dict[str, Any]:
        """Rewrite the stored payload of an older version of this class. The default keeps it.

        Args:
            data: The payload as it was stored.
            version: The version of the code that recorded it, or None.
        """
        return data

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a class that takes a name of the envelope for its own."""
        super().__pydantic_init_subclass__(**kwargs)
        taken = ENVELOPE & inspect.get_annotations(cls).keys()
        if taken:
            raise TypeError(
                f"`{cls.__name__}` declares {sorted(taken)} again, which the envelope of every "
                "event has. Give the payload's fields other names."
            )


ENVELOPE: Final = frozenset({"stream", "origin", "seq", "ts", "version", "left"})


_set = object.__setattr__


def stamped(event: AnyEvent, **envelope: Any) -> AnyEvent:
    """Return a copy of an event with other values in its envelope.

    Args:
        event: The event.
        envelope: Names and values of envelope fields. They are not validated.
    """
    copy = event.__class__.__new__(event.__class__)
    # Pydantic's own copy looks at each part again; an event never changes, so parts are shared.
    _set(copy, "__dict__", {**event.__dict__, **envelope})
    _set(copy, "__pydantic_fields_set__", event.__pydantic_fields_set__)
    _set(copy, "__pydantic_extra__", event.__pydantic_extra__)
    _set(copy, "__pydantic_private__", event.__pydantic_private__)
    return copy


class Opened(Event):
    """A thread was opened by a catalog, for the agent of this name. Its first event."""

    type: ClassVar[str] = "opened"

    agent: str


class Input(Event):
    """Something came from outside: a fresh input opens a turn, a response answers a request.

    Args:
        payload: What was said, as JSON.
        model: The model that the input asks for, or None.
        elements: Elements that came with it.
        answers: The seq, in this input's stream, of the request that it answers. Set by `submit`
            alone, None for a fresh input and for the head of a task.
    """

    type: ClassVar[str] = "input"

    payload: JsonValue = None
    model: str | None = None
    elements: Elements = ()
    answers: int | None = None


class Ended(Event):
    """The turn is over. Recorded by the runtime in the root stream."""

    type: ClassVar[str] = "ended"


class Citation(BaseModel):
    """A mark in a model's text that names sources.

    Args:
        at: Where the mark stood, an offset in the text without marks.
        ids: The real ids of the sources.
        invalid: The mark as written, when it named no source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    at: int
    ids: tuple[str, ...] = ()
    invalid: str | None = None


class ModelOutput(Event):
    """What a model answered.

    Args:
        text: The text, without citation marks.
        calls: The tools that it called.
        citations: The sources that it named.
        finish: Why the model stopped.
        model: The model that replied.
        sent_chars: The size of the request in characters of canonical JSON.
        request_hash: The hash of the request.
        usage: The tokens, or None.
        reasoning: What the provider wants handed back unchanged, or None.
    """

    type: ClassVar[str] = "model_output"

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    citations: tuple[Citation, ...] = ()
    finish: Finish = "stop"
    model: str | None = None
    sent_chars: int | None = None
    request_hash: str | None = None
    usage: Usage | None = None
    reasoning: JsonValue = None

    @property
    def calls_tools(self) -> bool:
        """Whether the model called any tool."""
        return bool(self.calls)


class ToolOutputBase(Event):
    """The result of one call. A team's own result classes derive from it.

    Args:
        call_id: The id of the call. Set by ToolStep.
        error: Why the call has no result, worded for the model, or None.
        elements: The elements that the result shows.
    """

    call_id: str | None = None
    error: str | None = None
    elements: Elements = ()


class ToolOutput(ToolOutputBase):
    """The result of one call, as a text and elements."""

    type: ClassVar[str] = "tool_output"

    text: str = ""


class Request(Event):
    """The turn waits for a response from outside.

    Args:
        kind: What kind of request it is, such as `approval`.
        actor: Who is responsible: `person`, `system`, or a name.
        expects: The JSON Schema that the response must satisfy, or None for any JSON.
        prompt: What a person is asked, or None.
    """

    type: ClassVar[str] = "request"

    kind: str
    actor: Actor
    expects: JsonSchema | None = None
    prompt: str | None = None


class EffectIntent(Event):
    """A change of the world is about to be made.

    Args:
        kind: The verb.
        args: What the verb is applied to.
        id: The key that the world can know the change by. Set by the runtime when it records it.
    """

    type: ClassVar[str] = "effect_intent"

    kind: str
    args: JsonValue = None
    id: str | None = None


class EffectResult(Event):
    """What the world answered to an intent.

    Args:
        intent: The intent's id. Set by the runtime.
        output: The world's answer.
        error: A definite refusal, or None.
    """

    type: ClassVar[str] = "effect_result"

    intent: str | None = None
    output: JsonValue = None
    error: str | None = None


class Compaction(Event):
    """A summary that a model is shown in place of earlier events.

    Args:
        text: The summary.
        through: The seq, in this event's stream, of the last event that it covers, with the
            branches of fan-outs at or before it.
        model: The model that wrote it.
        sent_chars: The size of the request in characters of canonical JSON.
        request_hash: The hash of the request.
        usage: The tokens, or None.
    """

    type: ClassVar[str] = "compaction"

    text: str
    through: int
    model: str | None = None
    sent_chars: int | None = None
    request_hash: str | None = None
    usage: Usage | None = None


class BudgetExceeded(Event):
    """A stream's model outputs with calls passed the cap.

    Args:
        cap: The cap.
        trip: Which passing it is, from 1.
    """

    type: ClassVar[str] = "budget_exceeded"

    cap: int
    trip: int


def _failure_text(message: str) -> str:
    return without_secrets(message)[:MAX_FAILURE_CHARS]


class Failure(Event):
    """A step failed.

    Args:
        error_type: The class of the error.
        message: The error's text, without known keys, at most 2,000 characters.
        transient: Whether the next resume tries again.
        request_hash: The hash of the request, when a model call failed.
    """

    type: ClassVar[str] = "failure"

    error_type: str
    message: Annotated[str, AfterValidator(_failure_text)]
    transient: bool
    request_hash: str | None = None


class Cancelled(Event):
    """The caller cancelled the turn.

    Args:
        input: The position of the input that opened the turn.
    """

    type: ClassVar[str] = "cancelled"

    input: int
