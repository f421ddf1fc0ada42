"""Elements: things with an id that events carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from soev.domain._errors import UnknownElementTypeError
from soev.domain._json import write_checked
from soev.domain._parts import Content

E = TypeVar("E", bound="Element")


class Element(BaseModel):
    """A thing with an id that events carry: a document, a mail, a row.

    A concrete class declares `tag`, its name in stored JSON. Two elements with one id are the
    same thing. `former_tags` names tags that the class was stored under before.

    Args:
        id: The real id. A model never sees it.
        ref: The id of the whole that this element is a part of, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    tag: ClassVar[str]
    former_tags: ClassVar[tuple[str, ...]] = ()

    id: str
    ref: str | None = None

    def show(self) -> Content:
        """Return what a model is shown of this element: its fields but `id` and `ref`, as JSON.

        Override it to show something else: a text, or message parts.
        """
        fields = self.model_dump(mode="json", serialize_as_any=True, exclude={"id", "ref"})
        fields.pop("tag", None)
        return write_checked(fields, type(self).__name__)

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: str | None) -> dict[str, Any]:
        """Rewrite the stored fields of an older version of this class. The default keeps them.

        Args:
            data: The fields as they were stored.
            version: The version of the code that recorded them, or None.
        """
        return data

    @model_serializer(mode="wrap")
    def _tagged(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Put the tag beside the fields, so that the class can be found again."""
        return {"tag": tag_of(type(self)), **handler(self)}

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: ModelWrapValidatorHandler[Any], info: ValidationInfo) -> Any:
        """Read stored fields into the class that their tag names."""
        if not isinstance(data, dict) or "tag" not in data:
            return handler(data)
        reader = (
            info.context
            if isinstance(info.context, ElementReader)
            else ElementReader(ElementTypes(cls))
        )
        found = reader.types.by_tag(str(data["tag"]))
        if not issubclass(found, cls):
            raise ValueError(f"an element of class {found.__name__} is no {cls.__name__}")
        fields = {key: value for key, value in data.items() if key != "tag"}
        fields = found.upgrade(fields, reader.version)
        return handler(fields) if found is cls else found.model_validate(fields, context=reader)


class Source(Element):
    """An element that a model can cite."""


def tag_of(cls: type[Element]) -> str:
    """Return the tag that a concrete element class declares.

    Raises:
        TypeError: The class declares none.
    """
    tag = cls.__dict__.get("tag")
    if not isinstance(tag, str):
        raise TypeError(
            f"`{cls.__name__}` declares no `tag`: give it one, such as `tag = 'document'`."
        )
    return tag


class ElementTypes:
    """The classes that stored elements are read back into, by tag and former tag.

    Args:
        types: The classes.

    Raises:
        ValueError: Two classes share a tag.
        TypeError: A class declares no tag.
    """

    def __init__(self, *types: type[Element]) -> None:
        self.types: tuple[type[Element], ...] = tuple(dict.fromkeys(types))
        self._by_tag: dict[str, type[Element]] = {}
        for cls in self.types:
            if cls in (Element, Source):
                continue
            for tag in (tag_of(cls), *cls.former_tags):
                if self._by_tag.setdefault(tag, cls) is not cls:
                    other = self._by_tag[tag].__name__
                    raise ValueError(
                        f"`{cls.__name__}` and `{other}` share the tag {tag!r}. "
                        "Give one of them another."
                    )

    def by_tag(self, tag: str) -> type[Element]:
        """Return the class of a tag.

        Raises:
            UnknownElementTypeError: No listed class has it.
        """
        try:
            return self._by_tag[tag]
        except KeyError:
            raise UnknownElementTypeError(tag, tuple(sorted(self._by_tag))) from None

    def including(self, *types: type[Element]) -> ElementTypes:
        """Return a new set with more classes."""
        return ElementTypes(*self.types, *types)


class ElementReader:
    """The context of a decode: the element classes, and the version that wrote the event.

    Args:
        types: The classes that elements are read back into.
        version: The version of the code that recorded the event, or None.
    """

    __slots__ = ("types", "version")

    def __init__(self, types: ElementTypes, version: str | None = None) -> None:
        self.types, self.version = types, version


_SCALARS = (str, int, float, bool, bytes, type(None))


def elements_in(value: object) -> Iterator[Element]:
    """Yield the elements in a value, depth first in field order, a whole before what it holds.

    Plain JSON holds none, so mappings and lists of scalars cost a look and nothing more.

    Args:
        value: An event, an element, another pydantic object, or a collection of these.
    """
    if isinstance(value, _SCALARS):
        return
    if isinstance(value, Element):
        yield value
    if isinstance(value, BaseModel):
        for name in type(value).__pydantic_fields__:
            field = getattr(value, name)
            if not isinstance(field, _SCALARS):
                yield from elements_in(field)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from elements_in(item)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from elements_in(item)
