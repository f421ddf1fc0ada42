"""Whether a value that was read back is the value that was written, types included."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue

from soev.domain import ENVELOPE, Event

Difference = tuple[str, str]
Check = Callable[[Any], bool]

_SCALARS = (str, int, bool, NoneType)
_JSON_SCALARS = frozenset((str, int, float, bool, NoneType))


def _never(value: object) -> bool:
    return False


def difference(event: Event, back: Event) -> Difference | None:
    """Return the field in which two events' payloads differ and how, or None.

    Plain `==` is not enough: it takes `True` for `1`, and `-0.0` for `0.0`.

    Args:
        event: The event as it was made.
        back: The event as it was read back.
    """
    if type(event) is not type(back):
        return "", _classes(event, back)
    found = _unlike_models(event, back, ENVELOPE)
    return None if found is None else (found[0].removeprefix("."), found[1])


def _unlike(a: Any, b: Any) -> Difference | None:
    """Return where two values differ, as a path below them, and how."""
    if type(a) is not type(b):
        return "", _classes(a, b)
    if isinstance(a, _SCALARS):
        return None if a == b else _other()
    if isinstance(a, BaseModel):
        return _unlike_models(a, b, frozenset())
    if isinstance(a, Mapping):
        return _unlike_mappings(a, b)
    if isinstance(a, (list, tuple)):
        return _unlike_items(a, b)
    return _unlike_others(a, b)


def _unlike_others(a: Any, b: Any) -> Difference | None:
    if isinstance(a, float):
        same = (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)  # noqa: PLR0124  # NaN is the number that differs from itself
        return None if same else _other()
    if isinstance(a, (set, frozenset)):
        same = {(type(item), item) for item in a} == {(type(item), item) for item in b}
        return None if same else _other()
    if is_dataclass(a):
        for field in fields(a):
            found = _unlike(getattr(a, field.name), getattr(b, field.name))
            if found is not None:
                return f".{field.name}{found[0]}", found[1]
        return None
    return None if a == b else _other()


def _unlike_models(a: BaseModel, b: BaseModel, skipped: frozenset[str]) -> Difference | None:
    for name in type(a).__pydantic_fields__:
        if name in skipped:
            continue
        found = _unlike(getattr(a, name), getattr(b, name))
        if found is not None:
            return f".{name}{found[0]}", found[1]
    for kept in ("__pydantic_extra__", "__pydantic_private__"):
        found = _unlike(getattr(a, kept), getattr(b, kept))
        if found is not None:
            return found[0], f"what it keeps beside its fields is not recorded: {found[1]}"
    return None


def _unlike_mappings(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> Difference | None:
    if len(a) != len(b):
        return _other()
    keys = {key: key for key in b}
    for key, value in a.items():
        if key not in keys or type(keys[key]) is not type(key):
            return f"[{key!r}]", "the key is read back as another"
        found = _unlike(value, b[key])
        if found is not None:
            return f"[{key!r}]{found[0]}", found[1]
    return None


def _unlike_items(a: Any, b: Any) -> Difference | None:
    if len(a) != len(b):
        return _other()
    for place, (one, other) in enumerate(zip(a, b, strict=True)):
        found = _unlike(one, other)
        if found is not None:
            return f"[{place}]{found[0]}", found[1]
    return None


def _classes(a: object, b: object) -> str:
    return f"a {type(a).__qualname__} is read back as a {type(b).__qualname__}"


def _other() -> Difference:
    return "", "it is read back as another value"


def plain_check(cls: type[BaseModel], *, json: bool = False) -> Check:
    """Make the check that an instance of a class holds exactly the types that reading it gives.

    It holds only exact scalars, empty collections and models of which the same is true. Elements
    and subclasses are never plain. What is plain surely reads back equal; with JSON values in it
    one `==` proves it.

    Args:
        cls: A class whose own fields JSON can hold, and that reads them without changing them.
        json: Whether JSON values are plain too.
    """
    checks: list[tuple[str, frozenset[type], Check]] = []
    for name, field in cls.__pydantic_fields__.items():
        if name in ENVELOPE and issubclass(cls, Event):
            continue
        known = (
            (frozenset[type](), _never) if field.metadata else _plain(field.annotation, json=json)
        )
        checks.append((name, *known))

    def is_plain(value: Any) -> bool:
        held = value.__dict__
        for name, exact, nested in checks:
            item = held[name]
            if type(item) not in exact and not nested(item):
                return False
        return value.__pydantic_private__ is None

    return is_plain


def _plain(annotation: Any, *, json: bool) -> tuple[frozenset[type], Check]:
    """Return the exact classes that are plain in a field, and the check of any other value."""
    if annotation in _SCALARS:
        return frozenset({annotation}), _never
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        parts = [_plain(each, json=json) for each in args]
        return frozenset[type]().union(*(exact for exact, _ in parts)), _any_of(parts)
    if origin is Literal:
        return frozenset(), lambda value: type(value) is str and value in args
    if origin is tuple:
        return frozenset(), _items_check(args[0], json=json)
    if origin is dict:
        held = json_exact if json else operator.not_
        return frozenset(), lambda value: type(value) is dict and held(value)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        inner = plain_check(annotation, json=json)
        return frozenset(), lambda value: type(value) is annotation and inner(value)
    return frozenset({NoneType}), json_exact if json and annotation is JsonValue else _never


def _any_of(parts: list[tuple[frozenset[type], Check]]) -> Check:
    checks = [check for _, check in parts if check is not _never]
    if not checks:
        return _never
    return checks[0] if len(checks) == 1 else lambda value: any(check(value) for check in checks)


def _items_check(annotation: Any, *, json: bool) -> Check:
    """Make the check of a tuple of one class. Of elements, which are annotated, only none is."""
    if not isinstance(annotation, type):
        return lambda value: type(value) is tuple and not value
    exact, nested = _plain(annotation, json=json)

    def check(value: Any) -> bool:
        if type(value) is not tuple:
            return False
        return all(type(item) in exact or nested(item) for item in value)

    return check


def json_exact(value: Any) -> bool:
    """Tell whether a value is made of exactly the types that reading JSON gives."""
    kind = type(value)
    if kind in _JSON_SCALARS:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not (type(item) in _JSON_SCALARS or json_exact(item)):
                return False
        return True
    return kind is list and all(type(item) in _JSON_SCALARS or json_exact(item) for item in value)
