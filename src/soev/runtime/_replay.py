"""Rebuilds recorded model calls with today's code. Nothing is executed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from soev.domain import (
    ChatModel,
    ChatRequest,
    Compaction,
    Event,
    Failure,
    Input,
    ModelOutput,
    PreparedRequest,
    ResourceUnavailableError,
    Trace,
    TraceBuilder,
    parse_stream,
)
from soev.runtime._context import ContextBuilder
from soev.runtime._graph import Graph, is_delegation
from soev.runtime._turn import opens_turn

Answer = ModelOutput | Compaction | Failure
CALLS_PER_BREATH = 50


@dataclass(frozen=True)
class ModelCall:
    """One model call of a thread, as `replay` rebuilt it.

    Args:
        answer: What the call recorded: an output, a summary, or the failure of a call.
        started: When the event before the answer was stored, None when it has no time.
        request: What today's code sends, or None when the call cannot be rebuilt.
        prepared: What would go over the wire for it, or None when the adapter cannot say.
        unreplayable: In a sentence why the call cannot be rebuilt, or None.
        view: The view that the request was built from, or None.
        builder: The builder of the call's step, or None.
        index: The call's place among the thread's model calls, from 1.
        position: The position of the event before the call.
        stream: The stream of the call.
        node: The node that made it.
        error: What the builder, the model's `prepare` or `graph_for` raised, or None.
    """

    answer: Answer
    started: datetime | None
    request: ChatRequest | None = None
    prepared: PreparedRequest | None = None
    unreplayable: str | None = None
    view: Trace | None = None
    builder: ContextBuilder | None = None
    index: int = 0
    position: int = 0
    stream: str = ""
    node: str | None = None
    error: Exception | None = field(default=None, compare=False)

    @property
    def same_request(self) -> bool | None:
        """Whether today's request has the recorded hash, None when either hash is missing."""
        recorded = self.answer.request_hash
        if self.request is None or recorded is None:
            return None
        return self.request.hash == recorded


async def replay(events: Sequence[Event], graph_for: Callable[[Input], Graph]) -> list[ModelCall]:
    """Rebuild every recorded model call of one thread with today's code, in log order.

    Models only prepare, and nothing runs. The time is linear in the length of the thread.

    Args:
        events: One thread's events in log order, decoded.
        graph_for: Builds the graph of the turn that an input opened, called once for each turn.

    Returns:
        One ModelCall for each model output, compaction, and failure of a model call.
    """
    graphs = StreamGraphs(graph_for)
    calls: list[ModelCall] = []
    for moment in moments(events):
        graphs.see(moment.event)
        if isinstance(moment.event, ModelOutput | Compaction) or (
            isinstance(moment.event, Failure) and moment.event.request_hash is not None
        ):
            calls.append(_rebuilt(moment, moment.event, graphs, len(calls) + 1))
            if len(calls) % CALLS_PER_BREATH == 0:
                await asyncio.sleep(0)
    return calls


@dataclass(frozen=True, slots=True)
class Moment:
    """One event of a log and what its stream saw when the step that recorded it began.

    Args:
        event: The event.
        position: Its position.
        first: Whether it is the first event of its append's part in its stream.
        view: What the stream saw before that part.
        before: The position of the last event of that view, 0 for none.
    """

    event: Event
    position: int
    first: bool
    view: Trace
    before: int


def moments(events: Sequence[Event]) -> Iterator[Moment]:
    """Yield each event with what its stream saw before the append that it belongs to."""
    log = TraceBuilder()
    positions: dict[int, int] = {}
    open_parts: dict[str, Trace] = {}
    for position, event in enumerate(events, start=1):
        view = open_parts.get(event.stream)
        first = view is None
        if view is None:
            view = log.view(event.stream)
        last = view.latest()
        yield Moment(event, position, first, view, positions[id(last)] if last is not None else 0)
        if event.left:
            open_parts[event.stream] = view
        else:
            open_parts.pop(event.stream, None)
        log.feed(event)
        positions[id(event)] = position


class StreamGraphs:
    """The graph of each stream: the turn's own, or in a task that of its delegation.

    Args:
        graph_for: Builds the graph of the turn that an input opened.
    """

    def __init__(self, graph_for: Callable[[Input], Graph]) -> None:
        self._graph_for = graph_for
        self._opening: Input | None = None
        self._tasks: dict[str, Input] = {}
        self._built: dict[str, Graph | Exception] = {}

    def see(self, event: Event) -> None:
        """Take note of an input that opens a turn or heads a task."""
        if not opens_turn(event):
            return
        if parse_stream(event.stream) is None:
            self._opening = event
            self._tasks.clear()
            self._built.clear()
        else:
            self._tasks[event.stream] = event

    def of(self, stream: str) -> Graph:
        """Return the graph that a stream runs on.

        Raises:
            LookupError: There is no turn, or the node of a task is no Delegation.
            Exception: What building the graph raised, the same each time it is asked for.
        """
        task = self._nearest_task(stream)
        if task not in self._built:
            try:
                self._built[task] = self._build(task)
            except Exception as error:  # noqa: BLE001  # the project's own code may raise anything
                self._built[task] = error
        built = self._built[task]
        if isinstance(built, Exception):
            raise built
        return built

    def _nearest_task(self, stream: str) -> str:
        """Return the task that a stream is in, or the root stream."""
        parts = parse_stream(stream)
        while parts is not None and stream not in self._tasks:
            stream = parts.parent
            parts = parse_stream(stream)
        return stream

    def _build(self, task: str) -> Graph:
        if task not in self._tasks:
            if self._opening is None:
                raise LookupError("no input opened a turn before it")
            return self._graph_for(self._opening)
        parts = parse_stream(task)
        assert parts is not None
        parent = self.of(parts.parent)
        step = parent.node(parts.node).step if parent.has_node(parts.node) else None
        if not is_delegation(step):
            raise LookupError(f"the node {parts.node!r} no longer runs sub-agents")
        return step.graph_for(self._tasks[task])


def _rebuilt(moment: Moment, answer: Answer, graphs: StreamGraphs, index: int) -> ModelCall:
    """Rebuild one call, or say why that cannot be done."""
    last = moment.view.latest()

    def call(unreplayable: str | None = None, **found: Any) -> ModelCall:
        return ModelCall(
            answer=answer,
            started=last.ts if last is not None else None,
            unreplayable=unreplayable,
            index=index,
            position=moment.before,
            stream=answer.stream,
            node=answer.origin,
            **found,
        )

    try:
        graph = graphs.of(answer.stream)
    except Exception as error:  # noqa: BLE001  # the project's own code may raise anything
        return call(f"the graph of the turn could not be built: {told(error)}", error=error)
    if answer.origin is None or not graph.has_node(answer.origin):
        return call(f"the graph has no node {answer.origin!r} any more")
    made_by = model_step(graph.node(answer.origin).step)
    if made_by is None:
        return call(f"the step of node {answer.origin!r} has no `builder` and `model`")
    builder, model = made_by
    try:
        context = builder(moment.view)
        prepared = model.prepare(context.request)
    except Exception as error:  # noqa: BLE001  # the project's own code may raise anything
        reason = f"the context builder of node {answer.origin!r} raised {told(error)}"
        return call(reason, error=error, view=moment.view, builder=builder)
    return call(request=context.request, prepared=prepared, view=moment.view, builder=builder)


def model_step(step: object) -> tuple[ContextBuilder, ChatModel] | None:
    """Return the builder and model of a step that calls a model, also behind `__wrapped__`."""
    while step is not None:
        builder, model = getattr(step, "builder", None), getattr(step, "model", None)
        if callable(builder) and model is not None:
            return builder, model
        step = getattr(step, "__wrapped__", None)
    return None


def told(error: BaseException) -> str:
    """Return an error's class and text in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Refusing:
    """A stand-in for a resource that refuses to be used, and says which one it is."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _refuse(self) -> NoReturn:
        raise ResourceUnavailableError(
            f"`{self._name}` cannot be used here: a replay builds graphs and runs nothing. "
            "`Agent.build` must hand resources on without a call."
        )

    def __getattr__(self, name: str) -> _Refusing:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Refusing(f"{self._name}.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        self._refuse()

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        self._refuse()

    def __await__(self) -> Iterator[Any]:
        self._refuse()

    def __iter__(self) -> Iterator[Any]:
        self._refuse()

    def __aiter__(self) -> NoReturn:
        self._refuse()

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *exc: object) -> None:
        self._refuse()

    async def __aenter__(self) -> NoReturn:
        self._refuse()

    async def __aexit__(self, *exc: object) -> None:
        self._refuse()

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse()

    def __contains__(self, item: object) -> NoReturn:
        self._refuse()

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Refusing) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"<refusing {self._name}>"


def refusing(name: str = "this resource") -> Any:
    """Return a stand-in for a resource that raises ResourceUnavailableError when it is used.

    Its attributes are stand-ins again, and it can be bound to a tool.

    Args:
        name: What the error calls the resource.
    """
    return _Refusing(name)
