"""CompactStep: a summary in place of the beginning of a long conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from soev.domain import (
    ChatModel,
    Compaction,
    Event,
    Input,
    Messages,
    ModelOutput,
    Trace,
    UserMessage,
)
from soev.runtime import ContextBuilder, LlmStep, ModelContext

INSTRUCTION: Final = (
    "Sum up the conversation so far for yourself: it will be replaced by what you write now. Keep "
    "what was asked and is still open, what was decided, what was found with its numbers such as "
    "[3], and what must not be done again. Write no answer to anybody."
)


@dataclass(frozen=True, slots=True)
class Compacting:
    """When a conversation is summed up, and how much of it stays as it is.

    A part is an input that opens a turn, or an output with its results. There is a summary at
    most each time `keep` parts have been added.

    Args:
        above: The size of the next request, in characters of canonical JSON, that is too much.
        keep: How many of the last parts stay.
        instruction: What the model is told after the messages that it is to sum up.

    Raises:
        ValueError: `above` or `keep` is below 1.
    """

    above: int
    keep: int = 6
    instruction: str = INSTRUCTION

    def __post_init__(self) -> None:
        """Refuse what would sum up everything, always."""
        for name, value in (("above", self.above), ("keep", self.keep)):
            if value < 1:
                raise ValueError(f"`{name}` is {value}, and a summary needs 1 or more. Raise it.")


@dataclass(frozen=True)
class SummaryBuilder:
    """A ContextBuilder of the request for a summary: what is to be covered, and the instruction.

    Args:
        messages: Builds the messages of the stream's own model calls.
        when: How much stays.
    """

    messages: ContextBuilder
    when: Compacting

    def __call__(self, view: Trace) -> ModelContext:
        """Build the context of the summary that a view is due.

        Args:
            view: The stream's view.

        Raises:
            ValueError: Nothing in it can be covered.
        """
        place, _ = covered(view, self.when.keep) or (0, 0)
        if not place:
            raise ValueError(
                f"No summary of this view is due: it has no {2 * self.when.keep} parts since the "
                "last one. Route to a `CompactStep` only when its `due` says so."
            )
        context = self.messages(view[:place])
        request = context.request
        asked = Messages(request.messages).add(UserMessage(self.when.instruction))
        request = replace(
            request,
            messages=asked,
            response_schema=None,
            tool_choice="none" if request.tools else "auto",
        )
        return replace(context, request=request, citations=None)


@dataclass(frozen=True)
class CompactStep:
    """A step that records a summary of the older part of its stream.

    A model that is shown the view later sees the summary in place of what it covers. The log keeps
    everything.

    Args:
        messages: Builds the messages of the stream's own model calls, usually a MessageBuilder.
        model: The model that writes the summary.
        when: When a summary is due, and how much stays.
    """

    messages: ContextBuilder
    model: ChatModel
    when: Compacting

    @property
    def builder(self) -> ContextBuilder:
        """The builder of its model call, which replay rebuilds it with."""
        return SummaryBuilder(self.messages, self.when)

    def due(self, view: Trace) -> bool:
        """Whether the next request would be too large, and something can be covered.

        Args:
            view: The stream's view.
        """
        if covered(view, self.when.keep) is None:
            return False
        return self.messages(view).request.sent_chars > self.when.above

    async def __call__(self, view: Trace) -> Sequence[Event]:
        """Ask for the summary and return it as the one event.

        Args:
            view: The stream's view.

        Raises:
            ValueError: Nothing can be covered, or the model wrote nothing.
        """
        output = await LlmStep(self.builder, self.model).answer(self.builder(view))
        _, through = covered(view, self.when.keep) or (0, 0)
        if not output.text.strip():
            raise ValueError(f"Model {output.model!r} wrote an empty summary. Try another model.")
        return [
            Compaction(
                text=output.text,
                through=through,
                model=output.model,
                sent_chars=output.sent_chars,
                request_hash=output.request_hash,
                usage=output.usage,
            )
        ]


def covered(view: Trace, keep: int) -> tuple[int, int] | None:
    """Return how many events of a view a summary covers now, and the seq of the last own one.

    Args:
        view: The stream's view.
        keep: How many parts stay. As many are needed before them.

    Returns:
        None when there are not enough parts since the last summary.
    """
    starts = list(_starts(view, 2 * keep))
    if len(starts) < 2 * keep:
        return None
    place = starts[keep - 1]
    for before in range(place - 1, -1, -1):
        event = view[before]
        if event.stream == view.stream and event.seq is not None:
            return place, event.seq
    return None


def _starts(view: Trace, count: int) -> Iterator[int]:
    """Yield the places where the stream's last parts begin, the newest first."""
    done = _summed_up(view)
    for place in range(len(view) - 1, -1, -1):
        event = view[place]
        if event.stream != view.stream:
            continue
        if count == 0 or (event.seq or 0) <= done:
            return
        opens = isinstance(event, Input) and event.answers is None
        if opens or isinstance(event, ModelOutput):
            count -= 1
            yield place


def _summed_up(view: Trace) -> int:
    """Return the seq up to which the stream is summed up already."""
    own = [each for each in view.of(Compaction) if each.stream == view.stream]
    return own[-1].through if own else 0
