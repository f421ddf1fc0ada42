"""Marks on the arguments of tools: ids that a model writes as numbers, and what the log gives."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from soev.domain import ArgumentMark, Element, Trace
from soev.runtime._numbering import numbering

El = TypeVar("El", bound=Element)

# What a dataclass, a TypedDict and a NamedTuple have.
_DECLARING = ("__dataclass_fields__", "__required_keys__", "_fields")
_ARRAYS = (list, tuple, set, frozenset, Sequence)


class Filling:
    """The validation context of a call's arguments: what the view holds.

    Args:
        view: The view that the call sees. None leaves the places empty and ids as they are, for
            comparing calls.
    """

    __slots__ = ("_view",)

    def __init__(self, view: Trace | None) -> None:
        self._view = view

    def recorded(self, cls: type[Element]) -> tuple[Element, ...]:
        """Return all elements of a class, distinct by id."""
        return () if self._view is None else self._view.elements(cls)

    def element(self, real_id: str, accepts: tuple[type[Element], ...]) -> object:
        """Return the first recorded element of an id.

        Raises:
            ValueError: The view has no such element of an accepted class.
        """
        if self._view is None:
            return real_id
        found = numbering(self._view).by_id(real_id)
        if not isinstance(found, accepts):
            raise ValueError(f"nothing recorded here is {_named(accepts)}")
        return found


class ElementId:
    """A mark on an argument that holds the id of an element.

    `Annotated[str, ElementId(Document)]`, alone, in a list or optional: the model writes a number
    that it was shown, the log records the real id. On a field of an element class, without
    classes, the tool gets the first recorded element of that id. The mark itself checks no value,
    so code can make arguments from real ids.

    Args:
        accepts: The classes of elements that the argument accepts, subclasses included. None on
            a field of an element class: it accepts that class.

    Raises:
        TypeError: One of them is no element class.
    """

    __slots__ = ("accepts",)

    def __init__(self, *accepts: type[Element]) -> None:
        for each in accepts:
            if not _element_classes(each):
                raise TypeError(
                    f"`ElementId` accepts classes of elements, not {each!r}. Name the classes."
                )
        self.accepts = accepts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ElementId) and self.accepts == other.accepts

    def __hash__(self) -> int:
        return hash((ElementId, self.accepts))

    def __repr__(self) -> str:
        return f"ElementId({', '.join(each.__name__ for each in self.accepts)})"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let a recorded id stand for an element; a text stays a text."""
        accepts = _element_classes(source)
        if not accepts:
            return handler(source)

        def fill(value: object, inner: Any, info: ValidationInfo) -> object:
            if isinstance(value, str) and isinstance(info.context, Filling):
                return info.context.element(value, accepts)
            return inner(value)

        return core_schema.with_info_wrap_validator_function(fill, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Show a model a plain text, also where the tool gets an element."""
        wraps = schema["type"] == "function-wrap"
        return {"type": "string"} if wraps else handler(schema)


class ResultHandle:
    """A mark on a text argument that holds the handle of a result, such as `r12`.

    `Annotated[str, ResultHandle()]`, alone, in a list or optional: the model writes a handle that
    it was shown, the log records the id of the call that has that result.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResultHandle)

    def __hash__(self) -> int:
        return hash(ResultHandle)

    def __repr__(self) -> str:
        return "ResultHandle()"


class _Filled:
    """The mark of an argument that the log fills in; a model never sees it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Recorded"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Replace whatever a model wrote by what the view holds."""
        cls = get_args(source)[0]

        def fill(value: object, inner: Any, info: ValidationInfo) -> object:
            if isinstance(info.context, Filling):
                return info.context.recorded(cls)
            return inner(value)

        return core_schema.with_info_wrap_validator_function(fill, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe nothing: the argument is taken out of the schema."""
        return {}


Recorded = Annotated[tuple[El, ...], _Filled()]
"""`Recorded[T]` is `tuple[T, ...]`: all elements of class T that the view holds."""


def is_recorded(annotation: Any) -> bool:
    """Whether an annotation is `Recorded[T]`."""
    metadata = getattr(_alias(annotation), "__metadata__", ())
    return any(isinstance(each, _Filled) for each in metadata)


def recorded_fields(arguments: type[BaseModel]) -> Mapping[str, str]:
    """Return the `Recorded` fields of an arguments class, each with its name in JSON."""
    return {
        name: written_name(name, field)
        for name, field in arguments.__pydantic_fields__.items()
        if any(isinstance(each, _Filled) for each in field.metadata)
    }


def written_name(name: str, field: Any) -> str:
    """Return the name of a field as a model writes it."""
    alias = field.validation_alias or field.alias
    return alias if isinstance(alias, str) else name


def marks_of(arguments: type[BaseModel]) -> tuple[ArgumentMark, ...]:
    """Return which fields of an arguments class hold numbers and handles.

    Raises:
        ValueError: A mark stands where no call could be translated, or accepts no class.
    """
    found = []
    recorded = recorded_fields(arguments)
    for name, field in arguments.__pydantic_fields__.items():
        if name in recorded:
            continue
        mark = _mark(field.rebuild_annotation(), written_name(name, field))
        if mark is not None:
            found.append(mark)
    return tuple(found)


def _mark(annotation: Any, name: str, *, in_list: bool = False) -> ArgumentMark | None:
    annotation = _alias(annotation)
    if get_origin(annotation) is Annotated and not is_recorded(annotation):
        # Some versions of pydantic write the metadata of a field with an alias twice.
        marks = {m for m in annotation.__metadata__ if isinstance(m, (ElementId, ResultHandle))}
        if marks:
            return _leaf([*marks], annotation.__origin__, name)
        return _mark(annotation.__origin__, name, in_list=in_list)
    inner = _optional(annotation)
    if inner is not None:
        return _mark(inner, name, in_list=in_list)
    item = _item(annotation)
    if item is not None and not in_list:
        return _mark(item, name, in_list=True)
    if _holds_mark(annotation, set()):
        raise ValueError(
            f"The mark in `{name}` sits too deep: no call could be translated. Put it on a field, "
            "on the items of a list, or on an optional one of these."
        )
    return None


def _leaf(marks: list[ElementId | ResultHandle], marked: Any, name: str) -> ArgumentMark:
    if len(marks) > 1:
        raise ValueError(f"`{name}` has {len(marks)} marks. Give it one, with all classes in it.")
    mark, marked = marks[0], _optional(marked) or marked
    classes = _element_classes(marked)
    if isinstance(mark, ResultHandle):
        if marked is not str:
            raise ValueError(f"`{name}`: a `ResultHandle` marks a `str`. Mark the items of a list.")
        return ArgumentMark(name, "result")
    if marked is str and not mark.accepts:
        raise ValueError(
            f"`{name}`: `ElementId()` on a `str` accepts no class. Name one, such as "
            "`ElementId(Document)`."
        )
    if classes and mark.accepts:
        raise ValueError(
            f"`{name}`: the field's class says what it accepts. Write `ElementId()` alone."
        )
    if marked is not str and not classes:
        raise ValueError(
            f"`{name}`: an `ElementId` marks a `str` or an element class. Mark the items of a list."
        )
    return ArgumentMark(name, "element", classes or mark.accepts)


def _alias(annotation: Any) -> Any:
    """Return what a `type X = ...` alias stands for."""
    while type(annotation).__name__ == "TypeAliasType":
        annotation = annotation.__value__
    return annotation


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()


def _optional(annotation: Any) -> Any:
    """Return the X of `X | None`, a union when there are several, else None."""
    members = _members(annotation)
    if types.NoneType not in members:
        return None
    rest = tuple(each for each in members if each is not types.NoneType)
    return rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007  # built from values


def _item(annotation: Any) -> Any:
    """Return the type of a list's items, None for what is no list."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin not in _ARRAYS or not args:
        return None
    if origin is tuple and args[1:] != (...,):
        return None
    return args[0]


def _element_classes(annotation: Any) -> tuple[type[Element], ...]:
    """Return the element classes of an annotation, empty when it is anything else."""
    members = _members(annotation) or (annotation,)
    if all(isinstance(each, type) and issubclass(each, Element) for each in members):
        return members
    return ()


def _holds_mark(annotation: Any, seen: set[Any]) -> bool:
    annotation = _alias(annotation)
    if isinstance(annotation, type) and get_origin(annotation) is None:
        if annotation in seen:
            return False
        seen.add(annotation)
        return any(_holds_mark(each, seen) for each in _fields(annotation))
    if get_origin(annotation) is Annotated and any(
        isinstance(each, (ElementId, ResultHandle, _Filled)) for each in annotation.__metadata__
    ):
        return True
    return any(_holds_mark(each, seen) for each in get_args(annotation))


def _fields(cls: type[Any]) -> Iterator[Any]:
    """Yield the annotations of a class's fields, where it declares any."""
    if issubclass(cls, Element):
        return
    if issubclass(cls, BaseModel):
        for field in cls.__pydantic_fields__.values():
            yield field.rebuild_annotation()
    elif any(hasattr(cls, each) for each in _DECLARING):
        yield from typing.get_type_hints(cls, include_extras=True).values()


def _named(classes: tuple[type[Element], ...]) -> str:
    return " or ".join(f"a {each.__name__}" for each in classes)
