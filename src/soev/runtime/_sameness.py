"""Whether a value that was read back is the value that was written, types included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any

from pydantic import BaseModel

from soev.domain import ENVELOPE, Event, shortened

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
            return f"[{shortened(key)}]", "the key is read back as another"
        found = _unlike(value, b[key])
        if found is not None:
            return f"[{shortened(key)}]{found[0]}", found[1]
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
