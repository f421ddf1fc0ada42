"""Encoding of events, and the proof that they read back."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, PrivateAttr, computed_field

from soev.domain import (
    BudgetExceeded,
    Cancelled,
    Citation,
    Compaction,
    EffectIntent,
    EffectResult,
    Element,
    ElementTypes,
    Ended,
    Event,
    Failure,
    Input,
    LogEntry,
    ModelOutput,
    Opened,
    Request,
    Source,
    StoredEvent,
    ToolCall,
    ToolOutput,
    UnencodableError,
    UnknownElementTypeError,
    Usage,
    canonical_json,
)
from soev.runtime import _codec
from soev.runtime._codec import (
    CORE_EVENT_TYPES,
    EventTypes,
    encode,
    entry_of,
    event_types_of,
)
from soev.runtime._errors import UnknownEventTypeError, UnreadableEventError
from soev.runtime._sameness import difference


class Page(Source):
    """A page of a document."""

    tag: ClassVar[str] = "page"
    former_tags: ClassVar[tuple[str, ...]] = ("sheet",)

    title: str = ""
    parts: tuple[Element, ...] = ()

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: str | None) -> dict[str, Any]:
        if "headline" in data:
            return {**data, "title": data["headline"], "headline": None} | {"parts": []}
        return data


class Note(Event):
    """A team's own event."""

    type: ClassVar[str] = "note"
    former_types: ClassVar[tuple[str, ...]] = ("memo",)

    text: str = ""
    weight: float = 0.0
    count: int = 0
    when: datetime | None = None
    pages: tuple[Page, ...] = ()

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: str | None) -> dict[str, Any]:
        return {"text": data["body"]} if "body" in data else data


class Box(BaseModel):
    """A value inside an event."""

    size: int = 0


class BigBox(Box):
    """One with a field that its base class does not know."""

    colour: str = "red"


class Holder(Event):
    """An event whose field is wider than what it says."""

    type: ClassVar[str] = "holder"

    box: Box = Box()
    value: JsonValue = None


TYPES = CORE_EVENT_TYPES.including(Note, Page, Holder)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
pages = st.builds(Page, id=st.text(), ref=st.none() | st.text(), title=st.text())
calls = st.builds(
    ToolCall,
    id=st.text(),
    name=st.text(),
    arguments=st.dictionaries(st.text(), json_values, max_size=3),
    raw=st.none() | st.text(),
    unresolved=st.tuples() | st.tuples(st.text()),
)
usages = st.none() | st.builds(Usage, input_tokens=st.none() | st.integers())
optional_texts = st.none() | st.text()
core_events: list[st.SearchStrategy[Event]] = [
    st.builds(Opened, agent=st.text()),
    st.builds(
        Input,
        payload=json_values,
        model=optional_texts,
        elements=st.lists(pages, max_size=2).map(tuple),
        answers=st.none() | st.integers(),
    ),
    st.just(Ended()),
    st.builds(
        ModelOutput,
        text=st.text(),
        calls=st.lists(calls, max_size=2).map(tuple),
        citations=st.tuples() | st.tuples(st.builds(Citation, at=st.integers())),
        model=optional_texts,
        usage=usages,
        reasoning=json_values,
    ),
    st.builds(ToolOutput, text=st.text(), elements=st.lists(pages, max_size=2).map(tuple)),
    st.builds(Request, kind=st.text(), actor=st.text(), prompt=optional_texts),
    st.builds(EffectIntent, kind=st.text(), args=json_values),
    st.builds(EffectResult, output=json_values, error=optional_texts),
    st.builds(Compaction, text=st.text(), through=st.integers(), usage=usages),
    st.builds(BudgetExceeded, cap=st.integers(), trip=st.integers()),
    st.builds(Failure, error_type=st.text(), message=st.text(), transient=st.booleans()),
    st.builds(Cancelled, input=st.integers()),
]
own_events = [
    st.builds(
        Note,
        text=st.text(),
        weight=st.floats(allow_nan=False, allow_infinity=False),
        when=st.none() | st.datetimes(timezones=st.just(UTC)),
        pages=st.lists(pages, max_size=2).map(tuple),
    ),
    st.builds(Holder, value=json_values),
]
events = st.one_of(*core_events, *own_events)


def at_depth(depth: int) -> JsonValue:
    """Nest lists."""
    value: JsonValue = 0
    for _ in range(depth):
        value = [value]
    return value


def built(cls: type[Event], **fields: object) -> Event:
    """Make an event without validating it."""
    return cls.model_construct(**fields)  # type: ignore[arg-type]  # wrong values are the point


@given(events)
def test_events_read_back_equal_with_the_same_types(event: Event) -> None:
    """An event that is accepted decodes to an equal one, and encodes to the same text again."""
    stored = TYPES.encode_readable(event)
    back = TYPES.decode(stored)
    assert back == event
    assert difference(event, back) is None
    assert encode(back) == encode(event) == stored
    assert stored.data == canonical_json(json.loads(stored.data))


# What no reader gives back, or what a reader gives back as something else.
wild_values: st.SearchStrategy[object] = st.sampled_from(
    [True, 1, 1.0, -0.0, 0, "", "a", None, (), (1,), [], {}, b"x", Box(), BigBox(), Usage()]
)
wild_fields = st.dictionaries(
    st.sampled_from(["text", "calls", "finish", "model", "sent_chars", "usage", "reasoning"]),
    wild_values
    | st.builds(ToolCall.model_construct, id=wild_values, name=wild_values, arguments=wild_values),
    max_size=3,
)


@given(wild_fields)
def test_the_proof_and_its_short_cuts_agree(fields: dict[str, Any]) -> None:
    """An event that the short cuts accept is accepted by the whole proof, and the other way."""
    if isinstance(fields.get("calls"), ToolCall):
        fields = {**fields, "calls": (fields["calls"],)}
    event = ModelOutput.model_construct(**fields)
    answers: list[object] = []
    for pens in (_codec._PENS, {}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_codec, "_PENS", pens)
            try:
                answers.append(TYPES.encode_readable(event))
            except (UnreadableEventError, UnencodableError) as error:
                answers.append(type(error))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("event", "path", "problem"),
    [
        (Holder(value=math.nan), "$.value", "nan is no JSON number"),
        (Holder(value={"a": [math.inf]}), "$.value.a[0]", "inf is no JSON number"),
        (Holder(value="\ud800"), "$.value", "a lone surrogate"),
        (Holder(value={"\udfff": 1}), "$.value", "a lone surrogate"),
        (Holder.model_construct(value=at_depth(128)), "$.value", "the nesting passes 128 levels"),
        (Holder.model_construct(value=at_depth(5_000)), "$.value", "the nesting passes 128 levels"),
        (Holder(value=10**1000), "$.value", "the integer has over 1000 digits"),
        (Note(weight=math.nan), "$.weight", "nan is no JSON number"),
        (Note(text="\ud800"), "$.text", "a lone surrogate"),
        (Note(pages=(Page(id="\ud800"),)), "$.pages[0].id", "a lone surrogate"),
    ],
)
def test_what_json_cannot_hold_is_refused(event: Event, path: str, problem: str) -> None:
    """A value that JSON cannot hold is refused with its path, before anything is sent."""
    with pytest.raises(UnencodableError) as caught:
        TYPES.encode_readable(event)
    assert caught.value.path.startswith(path)
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    "value",
    [
        at_depth(126),
        10**999,
        -(10**999),
        -0.0,
        1e-7,
        5e-324,
        1.7976931348623157e308,
        "\0",
        "\u2028",
    ],
)
def test_values_at_the_edge_are_kept(value: JsonValue) -> None:
    """What lies just within the limits is read back as it was."""
    back = TYPES.decode(TYPES.encode_readable(Holder(value=value)))
    assert isinstance(back, Holder)
    assert repr(back.value) == repr(value)


@pytest.mark.parametrize(
    ("event", "field", "problem"),
    [
        (Holder(box=BigBox()), "box", "a BigBox is read back as a Box"),
        (Note.model_construct(count=True), "count", "a bool is read back as a int"),
        (Note.model_construct(weight=1), "weight", "a int is read back as a float"),
        (built(Holder, value=(1, 2)), "value", "a tuple is read back as a list"),
        (ModelOutput.model_construct(sent_chars=True), "sent_chars", "a bool is read back"),
        (built(ModelOutput, text=None), "text", "Input should be a valid string"),
        (built(ToolOutput, elements=[]), "elements", "a list is read back as a tuple"),
        (
            Failure.model_construct(error_type="E", message="sk-" + "a" * 20, transient=True),
            "message",
            "another value",
        ),
    ],
)
def test_what_reads_back_as_something_else_is_refused(
    event: Event, field: str, problem: str
) -> None:
    """A value that is read back with another type, or as another value, names its field."""
    with pytest.raises(UnreadableEventError) as caught:
        TYPES.encode_readable(event)
    assert caught.value.field == field
    assert problem in caught.value.problem


def test_fields_of_a_subclass_are_never_cut_off() -> None:
    """A value of a subclass is refused, since its own fields are not read back."""
    with pytest.raises(UnreadableEventError, match=r"'holder', field 'box'.*cannot be read back"):
        TYPES.encode_readable(Holder(box=BigBox()))


def test_private_state_is_no_part_of_an_event() -> None:
    """What an event keeps beside its fields would be lost, so it is refused."""

    class Secretive(Event):
        type: ClassVar[str] = "secretive"
        _kept: int = PrivateAttr(default=0)

    event = Secretive()
    event._kept = 3
    with pytest.raises(UnreadableEventError, match="what it keeps beside its fields"):
        CORE_EVENT_TYPES.including(Secretive).encode_readable(event)


def test_computed_fields_are_refused() -> None:
    """A field that is written and cannot be read is named."""

    class Computing(Event):
        type: ClassVar[str] = "computing"

        @computed_field  # type: ignore[prop-decorator]  # as pydantic's own documentation writes it
        @property
        def double(self) -> int:
            return 2

    with pytest.raises(UnreadableEventError, match="field 'double'"):
        CORE_EVENT_TYPES.including(Computing).encode_readable(Computing())


def test_a_class_that_is_not_listed_is_refused() -> None:
    """An event of a class that the agent does not declare says where to add it."""
    with pytest.raises(UnreadableEventError, match=r"`Note` is not listed.*`event_types`"):
        CORE_EVENT_TYPES.encode_readable(Note())
    with pytest.raises(UnreadableEventError, match="No listed element class has the tag 'page'"):
        CORE_EVENT_TYPES.encode_readable(ToolOutput(elements=(Page(id="1"),)))


def test_a_subclass_without_a_type_of_its_own_is_refused() -> None:
    """A class that would be read back as its base has no place in a log."""

    class Quiet(ToolOutput):
        """Declares no tag."""

    with pytest.raises(TypeError, match="`Quiet` declares no `type`"):
        encode(Quiet())
    with pytest.raises(TypeError, match="`Quiet` declares no `type`"):
        EventTypes(Quiet)


def test_elements_nest_and_keep_their_classes() -> None:
    """An element inside an element is read back into its own class."""
    page = Page(id="1", parts=(Page(id="2", ref="1"),))
    back = TYPES.decode(TYPES.encode_readable(ToolOutput(elements=(page,))))
    assert isinstance(back, ToolOutput)
    assert back.elements == (page,)
    assert type(back.elements[0]) is Page


def test_the_envelope_is_kept() -> None:
    """Encoding and decoding keep every field of the envelope."""
    event = Note(
        text="x",
        stream="main/a#1.2",
        origin="a",
        seq=4,
        ts=datetime(2030, 1, 1, tzinfo=UTC),
        version="2",
        left=1,
    )
    stored = encode(event)
    assert "stream" not in stored.data
    assert TYPES.decode(stored) == event


def test_old_payloads_are_upgraded() -> None:
    """A former tag and an old payload are read into today's class."""
    old = StoredEvent("memo", '{"body":"text"}', version="1")
    assert TYPES.decode(old) == Note(text="text", version="1")
    element = '{"elements":[{"tag":"sheet","id":"1","title":"T"}]}'
    back = TYPES.decode(StoredEvent("tool_output", element))
    assert isinstance(back, ToolOutput)
    assert back.elements == (Page(id="1", title="T"),)


@pytest.mark.parametrize(
    ("data", "field", "problem"),
    [
        ("", None, "Invalid JSON"),
        ("[]", None, "object"),
        ('{"input":"x"}', "input", "valid integer"),
        ('{"input":1,"more":2}', "more", "Extra inputs"),
        ('{"input":1', None, "Invalid JSON"),
    ],
)
def test_text_that_does_not_fit_names_its_field(data: str, field: str | None, problem: str) -> None:
    """A corrupt row is an UnreadableEventError with the field, the position and the thread."""
    entry = LogEntry(7, StoredEvent("cancelled", data))
    with pytest.raises(UnreadableEventError) as caught:
        CORE_EVENT_TYPES.entry(entry)
    assert (caught.value.field, caught.value.position, caught.value.thread_id) == (field, 7, None)
    assert problem in caught.value.problem
    with pytest.raises(UnreadableEventError, match=r"at position 7 of thread 't-1'"):
        entry_of(CORE_EVENT_TYPES, "t-1", entry)


def test_a_corrupt_row_of_a_class_with_an_upgrade_is_unreadable() -> None:
    """The text is looked at before a class may rewrite it."""
    with pytest.raises(UnreadableEventError, match="it is no JSON"):
        TYPES.decode(StoredEvent("note", "{"))


def test_unknown_tags_are_never_a_dict() -> None:
    """A tag that no class has raises, for events and for elements."""
    with pytest.raises(UnknownEventTypeError, match=r"type 'note'.*`event_types`") as caught:
        CORE_EVENT_TYPES.decode(StoredEvent("note", "{}"))
    assert caught.value.type == "note"
    with pytest.raises(UnknownElementTypeError, match="'page'"):
        CORE_EVENT_TYPES.decode(
            StoredEvent("tool_output", '{"elements":[{"tag":"page","id":"1"}]}')
        )


def test_tags_are_unique() -> None:
    """Two classes with one tag are refused, for events, former tags and elements."""

    class Memo(Event):
        type: ClassVar[str] = "memo"

    class Sheet(Element):
        tag: ClassVar[str] = "sheet"

    with pytest.raises(ValueError, match="`Memo` and `Note` share the type 'memo'"):
        EventTypes(Note, Memo)
    with pytest.raises(ValueError, match="share the tag 'sheet'"):
        TYPES.including(Sheet)
    with pytest.raises(TypeError, match="`Box` is no class of events or elements"):
        EventTypes(Box)  # type: ignore[arg-type]  # that is what is tested
    assert TYPES.including(Note, Page).decode(StoredEvent("note", "{}")) == Note()


def test_including_leaves_the_first_set_alone() -> None:
    """`including` makes a new set, with the elements in front of the others."""
    more = EventTypes(Note, elements=ElementTypes(Page))
    stored = StoredEvent("note", '{"pages":[{"tag":"page","id":"1"}]}')
    assert more.decode(stored) == Note(pages=(Page(id="1"),))
    with pytest.raises(UnknownEventTypeError):
        CORE_EVENT_TYPES.decode(StoredEvent("note", "{}"))


def test_event_types_of_reads_what_agents_declare() -> None:
    """The types of some agents are the core ones and all theirs."""

    class Declares:
        element_types: Sequence[type[Element]] = (Page,)
        event_types: Sequence[type[Event]] = (Note,)

    types = event_types_of([Declares(), Declares()])
    assert types.decode(encode(Note(pages=(Page(id="1"),)))) == Note(pages=(Page(id="1"),))


def test_the_stored_form_of_core_events_is_pinned() -> None:
    """The text of an event never changes, whatever pydantic's version."""
    output = ModelOutput(
        text="é",
        calls=(ToolCall(id="c", name="n", arguments={"b": 1e-7, "a": [True, None]}),),
        usage=Usage(input_tokens=1),
    )
    assert encode(output).data == (
        '{"calls":[{"arguments":{"a":[true,null],"b":1e-07},"id":"c","name":"n","raw":null,'
        '"unresolved":[]}],"citations":[],"finish":"stop","model":null,"reasoning":null,'
        '"request_hash":null,"sent_chars":null,"text":"é","usage":{"cached_tokens":null,'
        '"input_tokens":1,"output_tokens":null,"reasoning_tokens":null}}'
    )
    assert encode(Ended()).data == "{}"
