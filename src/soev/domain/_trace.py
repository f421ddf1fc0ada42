"""Traces: an immutable, typed view of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from soev.domain._element import Element, elements_in
from soev.domain._event import ROOT_STREAM, Event, Input, ModelOutput, Request, ToolOutputBase
from soev.domain._lines import Fold, Line, Weave, parse_stream
from soev.domain._messages import ToolCall

E = TypeVar("E", bound=Event)
El = TypeVar("El", bound=Element)
S = TypeVar("S")


class Trace(Sequence[Event]):
    """An immutable sequence of events: a thread's log, or what one stream sees of it.

    Traces of one thread share their events, so making the next one costs nothing that grows with
    the thread, and neither do `latest`, `turn` and `opening`.

    Args:
        events: The events, in log order. An event without a seq counts as the next of its stream.
        stream: Whose view it is.
    """

    __slots__ = ("_count", "_line", "_start", "_stop", "_view", "_weave")

    def __init__(self, events: Iterable[Event] = (), stream: str = ROOT_STREAM) -> None:
        weave = Weave(stream)
        for event in events:
            weave.feed(event)
        self._set(weave, weave.log, 0, weave.log.stop, view=False)

    def _set(self, weave: Weave, line: Line, start: int, stop: int, *, view: bool) -> Trace:
        self._weave, self._line, self._start, self._stop = weave, line, start, stop
        self._count, self._view = weave.log.stop, view
        return self

    @property
    def stream(self) -> str:
        """The stream whose view it is."""
        return self._line.name

    @property
    def thread(self) -> Trace:
        """The thread's trace: all streams, in log order.

        Raises:
            ValueError: This is one stream's view, which a step, router, builder or `intend` gets.
        """
        if self._view:
            raise ValueError(
                f"The view of stream {self.stream!r} does not show the whole thread, since what "
                "other branches do depends on timing. Use the events of the view alone."
            )
        whole = Trace.__new__(Trace)._set(self._weave, self._weave.log, 0, self._count, view=False)
        whole._count = self._count
        return whole

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the thread's streams, first appearance first."""
        return self.thread._weave.names(self._count)

    def view(self, stream: str) -> Trace:
        """Return the thread's trace as one stream sees it.

        A branch sees its parent up to the fan-out and its own events; a stream that fanned out
        sees the events of its branches after the event that they hang on, by index; a task sees
        its own events alone.

        Args:
            stream: The stream. One that has no event yet counts as a branch.
        """
        thread = self.thread
        weave = thread._weave
        if thread._count != weave.log.stop:
            weave = Weave(weave.log.name)
            for event in thread:
                weave.feed(event)
        line = weave.line(stream)
        return Trace.__new__(Trace)._set(weave, line, 0, line.stop, view=True)

    @property
    def opening(self) -> Input | None:
        """The input that opened the current turn, in a task its head, or None without a turn."""
        place = self._line.opening(self._start, self._stop)
        event = self._line.at(place) if place >= 0 else None
        return event if isinstance(event, Input) else None

    @property
    def turn(self) -> Trace:
        """The part from `opening` on, empty without a turn."""
        place = self._line.opening(self._start, self._stop)
        return self._part(place if place >= 0 else self._stop, self._stop)

    @overload
    def latest(self) -> Event | None: ...
    @overload
    def latest(self, *types: type[E]) -> E | None: ...
    def latest(self, *types: type[Event]) -> Event | None:
        """Return the last event of one of the classes, subclasses included, or None.

        Args:
            types: The classes. None at all: the last event, whatever it is.
        """
        if not types:
            return self._line.at(self._stop - 1) if len(self) else None
        place = self._line.last(types if len(types) > 1 else types[0], self._start, self._stop)
        return self._line.at(place) if place >= 0 else None

    def of(self, type: type[E]) -> tuple[E, ...]:
        """Return all events of a class, subclasses included, in the order of the trace."""
        places = self._line.places(type, self._start, self._stop)
        return tuple(self._line.at(place) for place in places)  # type: ignore[misc]  # by class

    @overload
    def elements(self) -> tuple[Element, ...]: ...
    @overload
    def elements(self, type: type[El]) -> tuple[El, ...]: ...
    def elements(self, type: type[Element] = Element) -> tuple[Element, ...]:
        """Return the distinct elements of a class that the trace shows, first appearance first."""
        found: dict[str, Element] = {}
        for element in self.fold(_SHOWN):
            if isinstance(element, type):
                found.setdefault(element.id, element)
        return tuple(found.values())

    def results(self) -> Mapping[ToolCall, ToolOutputBase]:
        """Return the result of each call that has one.

        A result belongs to the nearest earlier call of its id in its own stream, or in a stream
        that its branch goes on from. The mapping knows the very calls of this trace's events, so
        two equal calls in sibling branches each have their own result.
        """
        return self.fold(_RESULTS)

    def response_to(self, request: Request) -> Input | None:
        """Return the input that answers a request, or None. The whole thread is searched."""
        seq = self._weave.seq(request)
        return None if seq is None else self._weave.answer(request.stream, seq, self._count)

    def fold(self, fold: Fold[S]) -> S:
        """Return the state of a fold over these events, from the last state kept with the thread.

        Args:
            fold: What to fold, hashable and compared by value.
        """
        if self._start == 0:
            return self._line.fold(fold, self._stop)
        state = fold.start()
        for event in self:
            state = fold.step(state, event)
        return state

    def followed_by(self, *events: Event) -> Trace:
        """Return what this view would be with more events at its end. It costs those alone.

        Args:
            events: The events, in the stream of the view or in one below it.
        """
        line = Line(self.stream, (self._line, self._stop))
        line.items.extend(events)
        longer = Trace.__new__(Trace)._set(self._weave, line, self._start, line.stop, view=True)
        longer._count = self._count
        return longer

    def _part(self, start: int, stop: int) -> Trace:
        part = Trace.__new__(Trace)._set(self._weave, self._line, start, stop, view=self._view)
        part._count = self._count
        return part

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Trace: ...
    def __getitem__(self, index: int | slice) -> Event | Trace:
        """Return one event, or the trace of a part. A part with a step is copied."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return Trace(list(self)[index], self.stream)
            return self._part(self._start + start, self._start + max(start, stop))
        place = self._start + index if index >= 0 else self._stop + index
        if not self._start <= place < self._stop:
            raise IndexError(f"There is no event {index} among {len(self)}.")
        return self._line.at(place)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in the order of the trace."""
        return self._line.walk(self._start, self._stop)

    def __reversed__(self) -> Iterator[Event]:
        """Yield the events, the last first."""
        return self._line.back(self._start, self._stop)

    def __len__(self) -> int:
        """Count the events."""
        return self._stop - self._start

    def __eq__(self, other: object) -> bool:
        """Compare the stream and event by event."""
        if not isinstance(other, Trace):
            return NotImplemented
        same = self.stream == other.stream and len(self) == len(other)
        return same and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # events hold plain JSON, which has no hash

    def __repr__(self) -> str:
        """Show the stream and the classes of the events."""
        names = ", ".join(type(event).__name__ for event in self)
        return f"<Trace of {self.stream}: {names}>"

    def __reduce__(self) -> tuple[type[Trace], tuple[tuple[Event, ...], str]]:
        """Pickle the events alone."""
        return (Trace, (tuple(self), self.stream))


class TraceBuilder:
    """The growing log of a thread, and traces of it at each moment.

    The one place where a trace gets longer: a run feeds it what it appends and reads.
    """

    def __init__(self) -> None:
        self._weave = Weave()

    def feed(self, event: Event) -> None:
        """Take the next event of the log."""
        self._weave.feed(event)

    def __len__(self) -> int:
        """Count the events so far."""
        return self._weave.log.stop

    def trace(self) -> Trace:
        """Return the thread's trace as it is now."""
        log = self._weave.log
        return Trace.__new__(Trace)._set(self._weave, log, 0, log.stop, view=False)

    def view(self, stream: str, *, whole: bool = False) -> Trace:
        """Return what one stream sees now.

        Args:
            stream: The stream.
            whole: Whether the view can be asked for `thread`, since no branch depends on it.
        """
        line = self._weave.line(stream)
        return Trace.__new__(Trace)._set(self._weave, line, 0, line.stop, view=not whole)


class _Shown:
    """Elements in order of first appearance, as a shared list and how much of it counts."""

    __slots__ = ("base", "count", "list", "places")

    def __init__(self, base: _Shown | None = None) -> None:
        self.base, self.list, self.count = base, list[Element](), 0
        self.places: dict[tuple[str, type], int] = {}

    def __iter__(self) -> Iterator[Element]:
        if self.base is not None:
            yield from self.base
        yield from self.list[: self.count]

    def holds(self, key: tuple[str, type]) -> bool:
        own = self.places.get(key, self.count) < self.count
        return own or (self.base is not None and self.base.holds(key))

    def after(self, event: Event) -> _Shown:
        grown = _Shown(self.base)
        grown.list, grown.places, grown.count = self.list, self.places, self.count
        for element in elements_in(event):
            key = (element.id, type(element))
            if not grown.holds(key):
                grown.places[key] = grown.count
                grown.list.append(element)
                grown.count += 1
        return grown


class _ShownFold:
    """All elements that a view shows."""

    def start(self) -> _Shown:
        return _Shown()

    def step(self, state: _Shown, event: Event) -> _Shown:
        return state.after(event)

    def fork(self, state: _Shown) -> _Shown:
        return _Shown(state)


class _Results(Mapping[ToolCall, ToolOutputBase]):
    """Results by call, as shared lists and how much of them counts."""

    __slots__ = ("base", "by_call", "calls", "count", "outputs", "pairs")

    def __init__(self, base: _Results | None = None) -> None:
        self.base, self.count, self.outputs = base, 0, 0
        self.calls: dict[tuple[str, str], list[tuple[int, ToolCall]]] = {}
        self.pairs: list[tuple[ToolCall, ToolOutputBase]] = []
        self.by_call: dict[int, int] = {}

    def __getitem__(self, call: ToolCall) -> ToolOutputBase:
        found: ToolOutputBase | None = self.get(call)
        if found is None:
            raise KeyError(call)
        return found

    def get(self, call: object, default: Any = None) -> Any:
        place = self.by_call.get(id(call))
        if place is not None and place < self.count:
            return self.pairs[place][1]
        return default if self.base is None else self.base.get(call, default)

    def __contains__(self, call: object) -> bool:
        return self.get(call) is not None

    def __iter__(self) -> Iterator[ToolCall]:
        if self.base is not None:
            yield from self.base
        yield from (call for call, _ in self.pairs[: self.count])

    def __len__(self) -> int:
        return self.count + (len(self.base) if self.base is not None else 0)

    def after(self, event: Event) -> _Results:
        if isinstance(event, ModelOutput):
            return self._called(event)
        found = self._call_of(event) if isinstance(event, ToolOutputBase) else None
        if found is None or found in self:
            return self
        grown = self._grown()
        grown.by_call[id(found)] = len(grown.pairs)
        grown.pairs.append((found, event))  # type: ignore[arg-type]  # a result: it has a call
        grown.count = len(grown.pairs)
        return grown

    def _grown(self) -> _Results:
        grown = _Results(self.base)
        grown.calls, grown.pairs, grown.by_call = self.calls, self.pairs, self.by_call
        grown.count, grown.outputs = self.count, self.outputs
        return grown

    def _called(self, output: ModelOutput) -> _Results:
        grown = self._grown()
        grown.outputs += 1
        for call in output.calls:
            calls = grown.calls.setdefault((output.stream, call.id), [])
            calls.append((grown.outputs, call))
        return grown

    def _call_of(self, event: ToolOutputBase) -> ToolCall | None:
        """Find the call in the result's stream, or in one that its branch goes on from."""
        stream: str | None = event.stream
        while stream is not None and event.call_id is not None:
            found = self._latest_call(stream, event.call_id)
            if found is not None:
                return found
            parts = parse_stream(stream)
            stream = parts.parent if parts else None
        return None

    def _latest_call(self, stream: str, call_id: str) -> ToolCall | None:
        for output, call in reversed(self.calls.get((stream, call_id), ())):
            if output <= self.outputs:
                return call
        return self.base._latest_call(stream, call_id) if self.base is not None else None


class _ResultsFold:
    """The result of each call in a view."""

    def start(self) -> _Results:
        return _Results()

    def step(self, state: _Results, event: Event) -> _Results:
        return state.after(event)

    def fork(self, state: _Results) -> _Results:
        return _Results(state)


_SHOWN = _ShownFold()
_RESULTS = _ResultsFold()
