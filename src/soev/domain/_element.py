"""Elements: things with an id that events carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    JsonValue,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from soev.domain._errors import UnknownElementTypeError
from soev.domain._json import write_checked
from soev.domain._parts import Content

_SHOWN = object()
"""The context of a dump that is shown to a model."""


class Element(BaseModel):
    """A thing with an id that events carry: a document, a mail, a row.

    A concrete class declares `tag`, its name in stored JSON. Two elements with one id are the
    same thing. `former_tags` names tags that the class was stored under before.

    Args:
        id: The real id. A model never sees it.
        ref: The id of the whole that this element is a part of, or None.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="constants", defer_build=True
    )

    tag: ClassVar[str]
    former_tags: ClassVar[tuple[str, ...]] = ()

    id: str
    ref: str | None = None

    def show(self) -> Content:
        """Return what a model is shown of this element: its fields but `id` and `ref`, as JSON.

        Override it to show something else: a text, or message parts.
        """
        shown = self.model_dump(mode="json", serialize_as_any=True, context=_SHOWN)
        return write_checked(shown, type(self).__name__)

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: str | None) -> dict[str, Any]:
        """Rewrite the stored fields of an older version of this class. The default keeps them.

        Args:
            data: The fields as they were stored.
            version: The version of the code that recorded them, or None.
        """
        return data

    @model_serializer(mode="wrap")
    def _tagged(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Put the tag beside the fields, so that the class can be found again.

        What is shown to a model has neither tag nor id, in nested elements too.
        """
        dumped: dict[str, Any] = handler(self)
        if info.context is _SHOWN:
            return {name: value for name, value in dumped.items() if name not in {"id", "ref"}}
        return {"tag": tag_of(type(self)), **dumped}

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
        stored = {key: value for key, value in data.items() if key != "tag"}
        stored = found.upgrade(stored, reader.version)
        return handler(stored) if found is cls else found.model_validate(stored, context=reader)


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
_PLAIN = (*_SCALARS, date, time, timedelta, Decimal, Enum)
Reader = Callable[[Any], Iterable[object]]


def elements_in(value: object) -> Iterator[Element]:
    """Yield the elements in a value, depth first in field order, a whole before what it holds.

    Plain JSON holds none, so fields of plain JSON and of scalars are not looked into.

    Args:
        value: An event, an element, another pydantic object or dataclass, or a collection of these.
    """
    found: list[Element] = []
    _collect(value, found)
    return iter(found)


def _collect(value: Any, found: list[Element]) -> None:
    is_element, read = _look(type(value))  # type: ignore[arg-type]  # a class has a hash
    if is_element:
        found.append(value)
    if read is not None:
        for inner in read(value):
            _collect(inner, found)


@cache
def _look(kind: type) -> tuple[bool, Reader | None]:
    """Return whether values of a class are elements, and what gives their parts. Once per class."""
    return issubclass(kind, Element), _reader(kind)


def _reader(kind: type) -> Reader | None:
    """Return what gives the parts of a value of a class, None when they can be no element."""
    if issubclass(kind, _PLAIN):
        return None
    if issubclass(kind, Mapping):
        return kind.values
    if issubclass(kind, (tuple, list, set, frozenset)):
        return iter
    names: Iterable[str] = ()
    if issubclass(kind, BaseModel):
        infos = kind.__pydantic_fields__.items()
        names = [name for name, info in infos if _has_room(info.annotation)]
    elif is_dataclass(kind):
        names = [field.name for field in fields(kind)]
    return _fields_reader(tuple(names)) if names else None


def _fields_reader(names: tuple[str, ...]) -> Reader:
    return lambda value: [getattr(value, name) for name in names]


def _has_room(annotation: Any) -> bool:
    """Whether a value of an annotation can be or hold an element. In doubt it can."""
    if annotation is JsonValue or get_origin(annotation) is Literal:
        return False
    arguments = get_args(annotation)
    if arguments:
        return any(_has_room(each) for each in arguments if each is not Ellipsis)
    return not (isinstance(annotation, type) and issubclass(annotation, _PLAIN))
