"""Marks on arguments: where they may stand, and what they translate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError, create_model
from typing_extensions import TypedDict

from soev.domain import ArgumentMark, Element, Input, JsonValue, ToolCall, ToolOutput, Trace
from soev.runtime._marks import (
    ElementId,
    Filling,
    Recorded,
    ResultHandle,
    is_recorded,
    marks_of,
    recorded_fields,
)
from soev.runtime._numbering import numbering
from soev.runtime._translate import pointer, resolved, written
from tests.runtime.elements import Document, Letter, Order

DOCUMENT = Annotated[str, ElementId(Document)]
RESULT = Annotated[str, ResultHandle()]


class Holder(BaseModel):
    """A model with a mark in it."""

    doc: DOCUMENT


class Typed(TypedDict):
    """A typed dict with a mark in it."""

    doc: DOCUMENT


@dataclass
class Plain:
    """A dataclass with a mark in it."""

    doc: DOCUMENT


def arguments(annotation: Any) -> type[BaseModel]:
    """Make an arguments class with one field."""
    return create_model("Arguments", x=(annotation, ...))


TRACE = Trace(
    [
        Input(elements=(Document(id="D"), Letter(id="L"), Order(id="O", ref="whole"))),
        ToolOutput(call_id="call-a"),
    ]
)
NUMBERS = numbering(TRACE)


@pytest.mark.parametrize(
    ("annotation", "mark"),
    [
        (DOCUMENT, ArgumentMark("x", "element", (Document,))),
        (list[DOCUMENT], ArgumentMark("x", "element", (Document,))),
        (DOCUMENT | None, ArgumentMark("x", "element", (Document,))),
        (Optional[list[DOCUMENT]], ArgumentMark("x", "element", (Document,))),  # noqa: UP045  # the old spelling
        (list[DOCUMENT | None], ArgumentMark("x", "element", (Document,))),
        (tuple[DOCUMENT, ...], ArgumentMark("x", "element", (Document,))),
        (Sequence[RESULT], ArgumentMark("x", "result")),
        (RESULT, ArgumentMark("x", "result")),
        (Annotated[list[RESULT], Field(max_length=2)], ArgumentMark("x", "result")),
        (
            Annotated[str, ElementId(Document, Order)],
            ArgumentMark("x", "element", (Document, Order)),
        ),
        (Annotated[Order, ElementId()], ArgumentMark("x", "element", (Order,))),
        (
            list[Annotated[Document | Order, ElementId()]],
            ArgumentMark("x", "element", (Document, Order)),
        ),
    ],
    ids=str,
)
def test_marks_are_found(annotation: Any, mark: ArgumentMark) -> None:
    """A mark alone, on a list's items, or optional is found with the classes it accepts."""
    assert marks_of(arguments(annotation)) == (mark,)


@pytest.mark.parametrize(
    ("annotation", "match"),
    [
        (list[list[DOCUMENT]], "too deep"),
        (dict[str, DOCUMENT], "too deep"),
        (DOCUMENT | int, "too deep"),
        (tuple[DOCUMENT, int], "too deep"),
        (Holder, "too deep"),
        (list[Holder], "too deep"),
        (Typed, "too deep"),
        (Plain, "too deep"),
        (Annotated[str, ElementId()], "accepts no class"),
        (Annotated[Order, ElementId(Order)], "without classes|alone"),
        (Annotated[list[str], ElementId(Document)], "items of a list"),
        (Annotated[int, ResultHandle()], "items of a list"),
        (Annotated[str, ElementId(Document), ElementId(Order)], "2 marks"),
        (list[Recorded[Document]], "too deep"),
    ],
    ids=str,
)
def test_marks_that_no_call_could_use_are_refused(annotation: Any, match: str) -> None:
    """A mark that could not be translated is a ValueError that names the field."""
    with pytest.raises(ValueError, match=match) as refused:
        marks_of(arguments(annotation))
    assert "`x`" in str(refused.value)


def test_marks_accept_element_classes_alone() -> None:
    """`ElementId` of something else is a TypeError."""
    with pytest.raises(TypeError, match="str"):
        ElementId(str)  # type: ignore[arg-type]  # refused at run time too


def test_marks_compare_by_value() -> None:
    """Equal marks are equal, hash alike, and show their classes."""
    assert ElementId(Document) == ElementId(Document) != ElementId(Order)
    assert len({ElementId(Document), ElementId(Document), ResultHandle(), ResultHandle()}) == 2
    assert repr(ElementId(Document)) == "ElementId(Document)"


MARKS = (
    ArgumentMark("doc", "element", (Document,)),
    ArgumentMark("docs", "element", (Document, Order)),
    ArgumentMark("result", "result"),
)


@pytest.mark.parametrize(
    ("given_", "real", "unresolved"),
    [
        ({"doc": "1"}, {"doc": "D"}, ()),
        ({"doc": 2}, {"doc": "L"}, ()),
        ({"doc": " 1 "}, {"doc": "D"}, ()),
        ({"doc": None, "other": "1"}, {"doc": None, "other": "1"}, ()),
        ({"docs": ["1", 4]}, {"docs": ["D", "O"]}, ()),
        ({"result": "r1"}, {"result": "call-a"}, ()),
        ({"doc": "4"}, {"doc": "4"}, ("/doc",)),
        ({"doc": 3}, {"doc": 3}, ("/doc",)),
        ({"doc": "D"}, {"doc": "D"}, ("/doc",)),
        ({"doc": True}, {"doc": True}, ("/doc",)),
        ({"doc": {"id": 1}}, {"doc": {"id": 1}}, ("/doc",)),
        ({"doc": "9" * 5000}, {"doc": "9" * 5000}, ("/doc",)),
        ({"doc": "¹"}, {"doc": "¹"}, ("/doc",)),
        ({"docs": ["1", "9", 4]}, {"docs": ["D", "9", "O"]}, ("/docs/1",)),
        ({"result": "r2"}, {"result": "r2"}, ("/result",)),
        ({"result": 1}, {"result": 1}, ("/result",)),
    ],
    ids=lambda each: str(each)[:40],
)
def test_numbers_become_real_ids(
    given_: dict[str, JsonValue], real: dict[str, JsonValue], unresolved: tuple[str, ...]
) -> None:
    """What names an accepted element or a result becomes its id; the rest stays, with a pointer."""
    call = resolved(ToolCall(id="c", name="t", arguments=given_), MARKS, NUMBERS)
    assert call.arguments == real
    assert call.unresolved == unresolved


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "doc": st.sampled_from(["1", "2", "3", "7", "x", "D"]),
            "docs": st.lists(st.sampled_from(["1", "4", "9"]), max_size=4),
            "result": st.sampled_from(["r1", "r9", "call-a"]),
            "free": st.text(max_size=3),
        },
    )
)
def test_a_call_is_shown_as_it_was_written(given_: dict[str, JsonValue]) -> None:
    """Translating a call to real ids and back gives what the model wrote."""
    call = ToolCall(id="c", name="t", arguments=given_)
    assert written(resolved(call, MARKS, NUMBERS), MARKS, NUMBERS) == given_


def test_pointers_are_escaped() -> None:
    """A pointer escapes what JSON pointers reserve."""
    assert pointer("a/b~c", 3) == "/a~1b~0c/3"


class Reads(BaseModel):
    """Arguments that the log fills in."""

    order: Annotated[Order, ElementId()]
    docs: Recorded[Document] = ()


def test_the_log_fills_in_elements() -> None:
    """With a view an id becomes the recorded element, and `Recorded` all of its class."""
    raw = '{"order": "O", "docs": [{"id": "made up"}]}'
    filled = Reads.model_validate_json(raw, context=Filling(TRACE))
    assert filled.order == Order(id="O", ref="whole")
    assert filled.docs == (Document(id="D"), Letter(id="L"))


def test_code_makes_arguments_itself() -> None:
    """Without a view the same class takes elements as they are."""
    made = Reads(order=Order(id="x"), docs=(Document(id="y"),))
    assert (made.order.id, made.docs[0].id) == ("x", "y")


@pytest.mark.parametrize("real_id", ["D", "whole", "nothing"])
def test_an_id_of_another_class_does_not_fit(real_id: str) -> None:
    """An id that no element of the field's class has is a validation error."""
    with pytest.raises(ValidationError, match="nothing recorded here is a Order"):
        Reads.model_validate_json(f'{{"order": "{real_id}"}}', context=Filling(TRACE))


def test_recorded_is_a_tuple_with_a_mark() -> None:
    """`Recorded` fields are told from plain tuples."""
    assert is_recorded(Recorded[Document])
    assert not is_recorded(tuple[Document, ...])
    assert recorded_fields(Reads) == {"docs": "docs"}


def test_a_text_of_an_id_is_shown_as_a_text() -> None:
    """The schema of a marked field is a plain text, also where the tool gets an element."""
    schema = arguments(list[Annotated[Order, ElementId()]]).model_json_schema()
    assert schema["properties"]["x"]["items"] == {"type": "string"}
    assert issubclass(Order, Element)
