"""Elements: their tags, what a model is shown of them, and how they read back."""

from typing import Any, ClassVar, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError

from soev.domain import (
    Element,
    ElementReader,
    ElementTypes,
    ImagePart,
    Input,
    JsonValue,
    Source,
    TextPart,
    ToolOutput,
    ToolOutputBase,
    UnknownElementTypeError,
    elements_in,
    tag_of,
)
from soev.domain._parts import Content


class Document(Source):
    """A document."""

    tag: ClassVar[str] = "document"

    title: str
    pages: tuple[SerializeAsAny[Element], ...] = ()


class Page(Element):
    """A page, with an older form."""

    tag: ClassVar[str] = "page"
    former_tags: ClassVar[tuple[str, ...]] = ("sheet",)

    number: int = 0

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: str | None) -> dict[str, Any]:
        """Read `no`, as version 1 called the number."""
        return {"number": data.pop("no"), **data} if version == "1" else data


class Photo(Element):
    """An element that is shown as an image."""

    tag: ClassVar[str] = "photo"

    url: str

    def show(self) -> Content:
        """Show the image."""
        return (TextPart("A photo:"), ImagePart("image/png", url=self.url))


TYPES = ElementTypes(Document, Page, Photo)


class Found(ToolOutputBase):
    """A result with elements in fields of its own."""

    type: ClassVar[str] = "found"

    best: SerializeAsAny[Element] | None = None
    by_name: dict[str, SerializeAsAny[Element]] = Field(default_factory=dict)


def again(event: Found | Input | ToolOutput, version: str | None = None) -> Any:
    """Write an event and read it back."""
    text = event.model_dump_json(serialize_as_any=True)
    return type(event).model_validate_json(text, context=ElementReader(TYPES, version))


def test_a_model_is_shown_fields_without_ids() -> None:
    """By default the public fields are shown as JSON, without any id, of nested elements too."""
    shown = Document(id="secret", ref="whole", title="Té", pages=(Page(id="p", number=2),))
    assert shown.show() == '{"pages":[{"number":2}],"title":"Té"}'


def test_an_element_may_show_message_parts() -> None:
    """A class that overrides `show` may return an image."""
    parts = Photo(id="x", url="https://example.org/x.png").show()
    assert parts[1] == ImagePart("image/png", url="https://example.org/x.png")


def test_elements_read_back_as_their_class() -> None:
    """Elements of any class, nested in any field, come back with their fields and types."""
    page = Page(id="p", number=3)
    event = Found(
        elements=(Document(id="d", title="T", pages=(page,)), page),
        best=Photo(id="x", url="u"),
        by_name={"one": page},
    )
    read = again(event)
    assert read == event
    assert [type(each) for each in elements_in(read)] == [Document, Page, Page, Photo, Page]


def test_elements_are_immutable_and_strict() -> None:
    """A field can't be set, and an unknown one is refused."""
    page = Page(id="p")
    with pytest.raises(ValidationError, match="frozen"):
        page.number = 1  # type: ignore[misc]  # what is refused
    with pytest.raises(ValidationError, match="extra"):
        Page.model_validate({"id": "p", "colour": "red"})


def test_former_tags_are_read() -> None:
    """An element that was stored under another tag comes back as today's class."""
    raw = '{"elements": [{"tag": "sheet", "id": "p", "number": 4}]}'
    read = ToolOutput.model_validate_json(raw, context=ElementReader(TYPES))
    assert read.elements == (Page(id="p", number=4),)


def test_old_fields_are_upgraded() -> None:
    """`upgrade` gets the stored fields and the version that wrote them."""
    raw = '{"elements": [{"tag": "page", "id": "p", "no": 4}]}'
    read = ToolOutput.model_validate_json(raw, context=ElementReader(TYPES, "1"))
    assert read.elements == (Page(id="p", number=4),)


def test_unknown_tags_are_named() -> None:
    """A tag that no listed class has is its own error, never a dict."""
    raw = '{"elements": [{"tag": "mail", "id": "m"}]}'
    with pytest.raises(UnknownElementTypeError) as unknown:
        ToolOutput.model_validate_json(raw, context=ElementReader(TYPES))
    assert unknown.value.tag == "mail"
    assert unknown.value.known == ("document", "page", "photo", "sheet")


def test_a_field_of_one_class_takes_no_other() -> None:
    """A stored element of another class does not fit a field of one class."""

    class Holder(BaseModel):
        page: Page

    with pytest.raises(ValidationError, match="Photo is no Page"):
        Holder.model_validate_json(
            '{"page": {"tag": "photo", "id": "x", "url": "u"}}', context=ElementReader(TYPES)
        )


def test_a_class_without_a_tag_is_refused() -> None:
    """A concrete class declares its own tag; an inherited one does not count."""

    class Untagged(Page):
        pass

    for cls in (Untagged, Element):
        with pytest.raises(TypeError, match="declares no `tag`"):
            tag_of(cls)
    with pytest.raises(TypeError, match="Untagged"):
        ElementTypes(Untagged)


@pytest.mark.parametrize("taken", ["page", "sheet"])
def test_two_classes_with_one_tag_are_refused(taken: str) -> None:
    """A tag, also a former one, belongs to one class, and the error names both."""
    other = type("Other", (Element,), {"tag": taken, "__module__": __name__, "__annotations__": {}})
    with pytest.raises(ValueError, match="`Other` and `Page` share"):
        ElementTypes(Page, other)


def test_types_grow_by_copies() -> None:
    """`including` leaves the set as it was, and a class may be listed twice."""
    more = ElementTypes(Page).including(Photo, Page)
    assert more.types == (Page, Photo)
    assert more.by_tag("photo") is Photo
    with pytest.raises(UnknownElementTypeError):
        ElementTypes(Page).by_tag("photo")


class Row(NamedTuple):
    """A tuple with an element in it."""

    page: Page


class Loose(BaseModel):
    """A pydantic object with elements at many places."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    first: JsonValue = None
    rows: list[Row] = []
    named: dict[str, Page] = {}
    many: frozenset[str] = frozenset()
    last: Document | None = None


def test_elements_are_found_depth_first() -> None:
    """Elements are yielded in field order, a whole before what it holds."""
    inner = Page(id="inner")
    value = Loose(
        first={"tag": "page", "id": "plain JSON"},
        rows=[Row(Page(id="a"))],
        named={"x": Page(id="b")},
        last=Document(id="c", title="T", pages=(inner, Page(id="d"))),
    )
    assert [each.id for each in elements_in(value)] == ["a", "b", "c", "inner", "d"]
    assert list(elements_in("text")) == []
