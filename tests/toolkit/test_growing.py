"""A rendering that grows with its view is the rendering from scratch, and its beginning stays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from soev.domain import (
    AssistantMessage,
    Compaction,
    Event,
    Input,
    Message,
    ModelOutput,
    Request,
    ToolMessage,
    TraceBuilder,
    stamped,
)
from soev.runtime import numbering
from soev.toolkit import MessageBuilder

from .logs import SQUARE, Page, calls, grown, result, said

BUILDER = MessageBuilder("Be brief.", "m", citations=SQUARE, hidden=("approval",))


@dataclass
class Scene:
    """A log in the making: what each stream could record next, as a runtime would."""

    draw: st.DrawFn
    events: list[Event] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, list[str]] = field(default_factory=dict)
    live: list[str] = field(default_factory=lambda: ["main"])
    calls: int = 0

    def add(self, event: Event) -> None:
        """Record an event with the next seq of its stream."""
        self.seqs[event.stream] = self.seqs.get(event.stream, 0) + 1
        self.events.append(stamped(event, seq=self.seqs[event.stream]))

    def output(self, stream: str) -> None:
        """Let a model call some tools, or say something. Sibling branches may reuse an id."""
        count = self.draw(st.integers(0, 3))
        ids = [f"c{self.calls + number}" for number in range(1, count + 1)]
        if self.draw(st.booleans()) or "/" not in stream:
            self.calls += count
        self.waiting[stream] = ids
        self.add(calls(*ids, text=f"t{len(self.events)}", stream=stream))

    def result(self, stream: str) -> None:
        """Answer an open call, or a parent's."""
        owner = stream
        while not self.waiting.get(owner) and "/" in owner:
            owner = owner.rpartition("/")[0]
        ids = self.waiting.get(owner)
        if ids:
            call = self.draw(st.sampled_from(ids))
            if owner == stream:
                ids.remove(call)
            page = Page(id=f"p{self.draw(st.integers(0, 5))}", ref=self.draw(REFS))
            self.add(result(call, f"t{len(self.events)}", stream, page))

    def late(self, stream: str) -> None:
        """Answer any earlier call of the stream, perhaps once more."""
        made = [e for e in self.events if isinstance(e, ModelOutput) and e.stream == stream]
        ids = [call.id for output in made for call in output.calls]
        if ids:
            call, page = self.draw(st.sampled_from(ids)), Page(id="late")
            self.add(result(call, f"t{len(self.events)}", stream, page))

    def ask(self, stream: str) -> None:
        """Ask a person and take the answer."""
        origin = self.draw(st.sampled_from(["approval", "ask"]))
        self.add(Request(kind="approval", actor="person", stream=stream, origin=origin))
        self.add(Input(payload="ok", answers=self.seqs[stream], stream=stream))

    def compact(self, stream: str) -> None:
        """Sum up the beginning of a stream."""
        through = self.draw(st.integers(0, self.seqs.get(stream, 0)))
        self.add(Compaction(text=f"s{len(self.events)}", through=through, stream=stream))

    def fan(self, stream: str) -> None:
        """Start branches of a stream, which then goes on only when they are over."""
        if stream.count("/") < 2:
            self.live.remove(stream)
            seq = self.seqs.get(stream, 0)
            self.live += [f"{stream}/b#{seq}.{index}" for index in (1, 2)]

    def join(self, stream: str) -> None:
        """End all branches beside this one; their parent goes on."""
        parent = stream.rpartition("/")[0]
        if parent and self.events[-1].stream.startswith(parent):
            self.live = [name for name in self.live if not name.startswith(parent)]
            self.live.append(parent)
            self.output(parent)

    def turn(self, stream: str) -> None:
        """Open the next turn once all branches are over."""
        if self.live == ["main"]:
            self.waiting.clear()
            self.add(said(f"t{len(self.events)}"))


REFS = st.sampled_from([None, None, "w1", "w2"])
LINEAR = ("output", "output", "result", "result", "result", "ask", "turn")


@st.composite
def logs(draw: st.DrawFn, moves: Sequence[str]) -> list[Event]:
    """Draw the events of a thread."""
    scene = Scene(draw)
    scene.add(said("Hello"))
    for move in draw(st.lists(st.sampled_from(moves), max_size=25)):
        getattr(scene, move)(draw(st.sampled_from(scene.live)))
    return scene.events


def prefixes(events: Sequence[Event]) -> Iterator[tuple[TraceBuilder, list[Event]]]:
    """Yield one growing log after each event, and the events so far."""
    log = TraceBuilder()
    for count, event in enumerate(events, 1):
        log.feed(event)
        yield log, list(events[:count])


BRANCHY = (*LINEAR, "late", "compact", "fan", "fan", "join", "join")


@settings(deadline=None)
@given(logs(BRANCHY), st.data())
def test_growing_equals_from_scratch(events: list[Event], data: st.DataObject) -> None:
    """In every stream, whenever it is asked, the grown rendering equals that of a new trace."""
    skipped = data.draw(st.sets(st.integers(1, len(events))))
    for log, so_far in prefixes(events):
        if len(so_far) in skipped:
            continue
        for stream in sorted({event.stream for event in so_far}):
            request = BUILDER(log.view(stream)).request
            fresh = BUILDER(grown(so_far).view(stream)).request
            assert list(request.messages) == list(fresh.messages)
            assert request.hash == fresh.hash


@settings(deadline=None)
@given(logs(BRANCHY))
def test_each_call_has_one_result_in_its_place(events: list[Event]) -> None:
    """After an output stand exactly the results of its calls, in order, by handles of their own."""
    for log, so_far in prefixes(events):
        for stream in {event.stream for event in so_far}:
            check_results(list(BUILDER(log.view(stream)).request.messages))


def check_results(messages: list[Message]) -> None:
    """Compare the calls of each output with the results that follow it."""
    due: list[str] = []
    known: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert due.pop(0) == message.call
            continue
        assert due == []
        if isinstance(message, AssistantMessage):
            due = [call.id for call in message.calls]
            assert known.isdisjoint(due)
            known.update(due)
    assert due == []


@settings(deadline=None)
@given(logs(LINEAR))
def test_what_was_shown_stays(events: list[Event]) -> None:
    """Messages up to an output that still waits for results never change while the view grows."""
    last = list(BUILDER(grown(events).view("main")).request.messages)
    for log, so_far in prefixes(events):
        messages = list(BUILDER(log.view("main")).request.messages)
        settled = len(messages) - volatile(so_far, messages)
        assert messages[:settled] == last[:settled]


def volatile(events: list[Event], messages: list[Message]) -> int:
    """Count the messages from the newest output on while one of its calls has no result."""
    turn = [place for place, event in enumerate(events) if is_fresh(event)][-1]
    trace = grown(events).view("main")
    outputs = [e for e in trace[turn:] if isinstance(e, ModelOutput)]
    waits = outputs and any(call not in trace.results() for call in outputs[-1].calls)
    from_end = [isinstance(each, AssistantMessage) for each in reversed(messages)]
    return from_end.index(True) + 1 if waits else 0


def is_fresh(event: Event) -> bool:
    """Whether an event opens a turn."""
    return isinstance(event, Input) and event.answers is None


@settings(deadline=None)
@given(logs(BRANCHY))
def test_numbers_are_those_of_the_numbering(events: list[Event]) -> None:
    """Each result is shown under the handle, and each page under the number, of the view."""
    view = grown(events).view("main")
    context = BUILDER(view)
    numbers = numbering(view)
    for message in context.request.messages:
        if isinstance(message, ToolMessage) and message.call.startswith("r"):
            assert numbers.call(message.call) is not None
            shown = message.text.partition("[")[2].partition("]")[0]
            assert numbers.element(int(shown)) is not None
