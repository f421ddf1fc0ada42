"""Writes core events fast: their canonical JSON in one pass, which also sees that they are plain.

An instance is plain when it holds exactly the types that reading its text gives: exact scalars,
tuples, and JSON made of exact JSON types. Whatever else an instance holds, a pen raises `NotPlain`,
and the event is written, proved and, where it must be, refused the long way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from json.encoder import encode_basestring
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue

from soev.domain import ENVELOPE, Event

Pen = Callable[[Any], str]

MAX_DEPTH: Final = 100
_LARGE: Final = 2**64


class NotPlain(Exception):  # never seen outside the codec: it picks the long way
    """A value is not one of those that surely read back as they are."""


class Pens(dict[type, Pen]):
    """The pens of a place, by the exact class of what stands there."""

    def __missing__(self, kind: type) -> Pen:
        """Write no other class."""
        raise NotPlain


class EventPen:
    """Writes the payload of a plain instance of one core class.

    Args:
        cls: The class.
    """

    def __init__(self, cls: type[Event]) -> None:
        fields = {
            name: field for name, field in cls.__pydantic_fields__.items() if name not in ENVELOPE
        }
        self.write = _model_pen(cls, fields.keys())
        self._json = tuple(name for name, field in fields.items() if _can_hold(field.annotation))

    def json_in(self, event: Event) -> list[str]:
        """Return the fields that hold JSON values in an instance, which must be proven."""
        held = event.__dict__
        return [name for name in self._json if held[name] is not None and held[name] != ()]


def _can_hold(annotation: Any) -> bool:
    """Whether a field of this annotation can hold a JSON value, at any depth."""
    if annotation is JsonValue:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_can_hold(field.annotation) for field in annotation.__pydantic_fields__.values())
    return any(_can_hold(each) for each in get_args(annotation))


def _model_pen(cls: type[BaseModel], names: Any) -> Pen:
    """Make the pen of a class's instances, with the keys in canonical order."""
    parts: list[tuple[str, str, Pens]] = []
    for name in sorted(names):
        field = cls.__pydantic_fields__[name]
        key = f"{',' if parts else '{'}{encode_basestring(name)}:"
        # A validator of its own could read a value as another one.
        parts.append((key, name, Pens() if field.metadata else _pens(field.annotation)))
    if not parts:
        return lambda value: "{}"

    def write(value: Any) -> str:
        held = value.__dict__
        text = ""
        for key, name, pens in parts:
            item = held[name]
            text += key + pens[type(item)](item)
        return text + "}"

    return write


def _pens(annotation: Any) -> Pens:
    """Return the pens of a field, by the exact class of the value."""
    if annotation in _SCALARS:
        return Pens({annotation: _SCALARS[annotation]})
    if annotation is JsonValue:
        return _JSON
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return Pens({kind: pen for each in args for kind, pen in _pens(each).items()})
    if origin is Literal:
        return Pens({str: _literal_pen(args)})
    if origin is tuple:
        return Pens({tuple: _tuple_pen(args[0])})
    if origin is dict:
        return Pens({dict: _write_json})
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Pens({annotation: _model_pen(annotation, annotation.__pydantic_fields__.keys())})
    return Pens()


def _literal_pen(values: tuple[str, ...]) -> Pen:
    texts = {value: encode_basestring(value) for value in values}

    def write(value: str) -> str:
        text = texts.get(value)
        if text is None:
            raise NotPlain
        return text

    return write


def _tuple_pen(annotation: Any) -> Pen:
    """Make the pen of a tuple of one class. Of elements, which are annotated, it takes none."""
    pens = _pens(annotation) if isinstance(annotation, type) else Pens()

    def write(items: tuple[Any, ...]) -> str:
        return f"[{','.join([pens[type(item)](item) for item in items])}]" if items else "[]"

    return write


def _write_int(value: int) -> str:
    if not -_LARGE < value < _LARGE:
        raise NotPlain
    return repr(value)


def _write_float(value: float) -> str:
    if not math.isfinite(value):
        raise NotPlain
    return repr(value)


_SCALARS: Final[dict[type, Pen]] = {
    str: encode_basestring,
    int: _write_int,
    bool: lambda value: "true" if value else "false",
    NoneType: lambda value: "null",
}


def _write_json(value: Any, depth: int = 0) -> str:
    """Write a list or an object of exact JSON types, nested less than the limit."""
    if depth > MAX_DEPTH:
        raise NotPlain
    texts = []
    if type(value) is list:
        for item in value:
            pen = _SCALARS.get(type(item))
            texts.append(pen(item) if pen else _write_nested(item, depth))
        return f"[{','.join(texts)}]"
    if not all(type(key) is str for key in value):
        raise NotPlain
    for key in sorted(value):
        item = value[key]
        pen = _SCALARS.get(type(item))
        text = pen(item) if pen else _write_nested(item, depth)
        texts.append(f"{encode_basestring(key)}:{text}")
    return f"{{{','.join(texts)}}}"


def _write_nested(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is dict or kind is list:
        return _write_json(value, depth + 1)
    if kind is float:
        return _write_float(value)
    raise NotPlain


_JSON: Final = Pens({**_SCALARS, float: _write_float, list: _write_json, dict: _write_json})
