"""MessageBuilder: a view as the messages of the next model call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from soev.domain import (
    ArgumentMark,
    AssistantMessage,
    ChatRequest,
    Compaction,
    Input,
    JsonSchema,
    JsonValue,
    Message,
    Messages,
    NodeName,
    SystemMessage,
    ToolCall,
    ToolDef,
    ToolOutputBase,
    Trace,
    canonical_json,
)
from soev.runtime import Budget, CitationStrategy, ModelContext, Tool, numbering, tool_def
from soev.toolkit._outline import Item, Outline, OutlineFold
from soev.toolkit._rendering import Rendering


@dataclass(frozen=True)
class MessageBuilder:
    """A ContextBuilder that shows a view as a conversation.

    The prompt comes first, then each turn's input, outputs and results, a compaction in place of
    what it covers. All results stand directly after their output, in the order of the calls; a
    call without one gets an error. Elements are shown by number, calls by handle.

    Builders are compared by value, and what one has written of a view is kept with the view: the
    next call writes only what is new.

    Args:
        prompt: What the model is told to be. With `citations`, how to cite is added to it.
        model: The name of the model's adapter.
        asked: The model to ask for, or None for the adapter's own.
        tools: What the model can call.
        citations: How the model cites sources, or None when it does not.
        budget: The budget of the graph. Once it withdraws the tools, the request has none.
        options: Temperature and the like, in the provider's names.
        response_schema: The JSON Schema that the answer must satisfy, or None.
        tool_choice: `auto`, `none`, `required`, or the name of a tool.
        hidden: Nodes whose requests are answered without the model being shown the answer.

    Raises:
        UnencodableError: An option or the schema is no JSON.
    """

    prompt: str
    model: str
    _: KW_ONLY
    asked: str | None = None
    tools: Sequence[ToolDef | Tool[Any]] = ()
    citations: CitationStrategy | None = None
    budget: Budget | None = None
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    response_schema: JsonSchema | None = None
    tool_choice: str = "auto"
    hidden: Iterable[NodeName] = ()

    def __post_init__(self) -> None:
        """Keep the tools as a model is shown them, and the options from being changed."""
        defs = tuple(each if isinstance(each, ToolDef) else tool_def(each) for each in self.tools)
        object.__setattr__(self, "tools", defs)
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        object.__setattr__(self, "hidden", frozenset(self.hidden))
        canonical_json([self.options, self.response_schema], "MessageBuilder")

    def __hash__(self) -> int:
        """Hash by what is no plain JSON."""
        return hash((self.prompt, self.model, self.asked, self.tools, self.citations, self.budget))

    def __call__(self, view: Trace) -> ModelContext:
        """Build the context of the next model call.

        Args:
            view: What the stream of the call sees.
        """
        numbers = numbering(view)
        model = self.asked or self.model
        rendering = Rendering(numbers, self._marks, self.citations, model)
        writer = _Writer(self._opening, rendering, view.results())
        outline = view.fold(self._fold)
        withdrawn = self.budget is not None and self.budget.withdraws_tools(view)
        request = (self._bare if withdrawn else self._armed).with_messages(writer.messages(outline))
        return ModelContext(
            request=request, model=model, citations=self.citations, numbering=numbers
        )

    @cached_property
    def _armed(self) -> ChatRequest:
        """What is asked while the model may call tools, without messages."""
        return replace(self._bare, tool_choice=self.tool_choice, tools=self._defs)

    @cached_property
    def _bare(self) -> ChatRequest:
        """What is asked once the tools are withdrawn, without messages."""
        return ChatRequest((), self.asked, self.options, self.response_schema)

    @cached_property
    def _defs(self) -> tuple[ToolDef, ...]:
        return tuple(each for each in self.tools if isinstance(each, ToolDef))

    @cached_property
    def _marks(self) -> Mapping[str, tuple[ArgumentMark, ...]]:
        return {each.name: each.marks for each in self._defs if each.marks}

    @cached_property
    def _fold(self) -> OutlineFold[_Written]:
        """The fold, by all that messages depend on: builders that share it share what is kept."""
        key = (self.prompt, self.asked or self.model, self.citations, tuple(self._marks.items()))
        return OutlineFold(key, frozenset(self.hidden))

    @cached_property
    def _opening(self) -> tuple[Message, ...]:
        paragraphs = [self.prompt] if self.prompt else []
        if self.citations is not None:
            one, two = self.citations.write([1]), self.citations.write([1, 2])
            paragraphs.append(
                "Cite the sources that you use by their numbers, right after what they support: "
                f"{one} for one source, {two} for two."
            )
        return (SystemMessage("\n\n".join(paragraphs)),) if paragraphs else ()


_SILENT = AssistantMessage()


@dataclass(frozen=True, slots=True)
class _Gap:
    """An output that was written while calls of it had no result.

    Args:
        before: What was written before it.
        calls: The calls without a result.
    """

    before: _Written
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class _Written:
    """The messages of the first items of an outline.

    Args:
        messages: The messages.
        done: How many items they show.
        strays: The strays of the outline at that time.
        unanswered: How many calls had no result.
        gap: The last output with such calls.
    """

    messages: Messages
    done: int = 0
    strays: int = 0
    unanswered: int = 0
    gap: _Gap | None = None


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes an outline as messages, from where the last writer stopped.

    Args:
        opening: The messages before all items.
        rendering: How each item is written.
        results: The results of the calls in the view.
    """

    opening: tuple[Message, ...]
    rendering: Rendering
    results: Mapping[ToolCall, ToolOutputBase]

    def messages(self, outline: Outline[_Written]) -> Messages:
        """Return all messages of an outline.

        An output that still waits for results, and what follows it, can change. So these messages
        go into a list of their own, and the kept one holds only what stays.
        """
        output = outline.open_output()
        waits = output is not None and any(call not in self.results for call in output.calls)
        written = self._kept(outline, outline.open if waits else outline.count)
        if written.done == outline.count:
            return written.messages
        apart = _Written(written.messages.fork(), written.done, 0, written.unanswered)
        return self._write(apart, outline, outline.count).messages

    def _kept(self, outline: Outline[_Written], stop: int) -> _Written:
        """Write the items up to one place, and keep the messages for the next writer."""
        log = outline.log
        written = log.written or self._base(outline)
        if written.done > stop or written.strays > outline.strays:
            return self._write(_Written(Messages(self.opening)), outline, stop)
        if written.strays < outline.strays:
            written = self._before_late_results(written)
        written = self._write(written, outline, stop)
        log.written = written
        return written

    def _base(self, outline: Outline[_Written]) -> _Written:
        """Begin with what was written of the outline that this one goes on from."""
        base = outline.log.base
        if base is None or base.strays != outline.strays:
            return _Written(Messages(self.opening))
        known = base.log.written
        if known is None or known.done > base.count:
            known = self._kept(base, base.open if base.open >= 0 else base.count)
        return _Written(
            known.messages.fork(), known.done, known.strays, known.unanswered, known.gap
        )

    def _before_late_results(self, written: _Written) -> _Written:
        """Go back to before the first output that got a result after it was written."""
        gap = written.gap
        while gap is not None:
            if any(call in self.results for call in gap.calls):
                written = gap.before
            gap = gap.before.gap
        return written

    def _write(self, written: _Written, outline: Outline[_Written], stop: int) -> _Written:
        messages, unanswered, gap = written.messages, written.unanswered, written.gap
        done = written.done
        for item in outline.items(done):
            if done == stop:
                break
            added, without = self._item(item, outline, unanswered)
            if without:
                gap = _Gap(_Written(messages, done, outline.strays, unanswered, gap), without)
                unanswered += len(without)
            messages = messages.add(*added)
            done += 1
        return _Written(messages, done, outline.strays, unanswered, gap)

    def _item(
        self, item: Item, outline: Outline[_Written], unanswered: int
    ) -> tuple[tuple[Message, ...], tuple[ToolCall, ...]]:
        """Return the messages of an item, and its calls without a result."""
        event = item.event
        if isinstance(event, Input):
            return (self.rendering.input(event),), ()
        if isinstance(event, Compaction):
            return (self.rendering.summary(event),), ()
        answers = [(call, self.results.get(call)) for call in event.calls]
        without = tuple(call for call, result in answers if result is None)
        if item.hollow:
            return (), without
        handles = list[str]()
        for _, result in answers:
            unanswered += result is None
            handles.append(f"x{unanswered}" if result is None else outline.handle(result))
        output = self.rendering.output(event, handles)
        if output == _SILENT:
            return (), without
        told = zip(answers, handles, strict=True)
        return (
            output,
            *(self.rendering.result(result, handle) for (_, result), handle in told),
        ), without
