"""Canonical JSON: one text for each value, and what it refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from json.encoder import (  # type: ignore[attr-defined]  # typeshed leaves the first one out
    c_make_encoder,
    encode_basestring,
)

from pydantic import JsonValue

from soev.domain._errors import UnencodableError

MAX_DEPTH = 128
MAX_DIGITS = 1_000
_BIGGEST = 10**MAX_DIGITS
_SHOWN = 80
_SCALARS = (str, int, float, type(None))


def shortened(value: object) -> str:
    """Return a value as an error shows it: its `repr`, of 80 characters at most.

    Args:
        value: Any value, also one that has no `repr`, such as an integer of 5,000 digits.
    """
    try:
        return _cut(repr(value))
    except Exception:  # noqa: BLE001  # a class of anybody's
        return f"of class {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: object) -> object:
    """Let the encoder write any mapping; everything else is no JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of class {type(value).__name__} is no JSON")


_ENCODER = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
    default=_plain,
)

# An encoder makes this part of itself anew in each call, for more than most values cost.
_PART = c_make_encoder and c_make_encoder(
    None, _plain, encode_basestring, None, ":", ",", True, False, False
)


def _write(value: object) -> str:
    return _ENCODER.encode(value) if _PART is None else "".join(_PART(value, 0))


def canonical_json(value: object, holder: str = "value") -> str:
    """Write a value as canonical JSON.

    Keys are sorted, nothing is spaced, floats are written by `repr`, and only control characters,
    quotes and backslashes are escaped.

    Args:
        value: Mappings with text keys, lists, tuples, texts, numbers, booleans and None.
        holder: What to call the value in an error.

    Returns:
        The one text of this value.

    Raises:
        UnencodableError: NaN, an infinity, a lone surrogate, a key that is no text, nesting over
            128, an integer over 1,000 digits, or a value that JSON does not know.
    """
    check_json(value, holder)
    return _write(value)


def write_checked(value: JsonValue, holder: str) -> str:
    """Write a value whose keys are known to be texts, and look closer only where needed.

    The checks cost little for what pydantic dumped: a failing write is explained by a walk.
    """
    try:
        text = _write(value)
        text.encode()
        if text.count("[") + text.count("{") <= MAX_DEPTH and len(text) <= MAX_DIGITS:
            return text
    except (ValueError, TypeError, RecursionError):
        check_json(value, holder)
        raise
    check_json(value, holder)
    return text


def check_json(value: object, holder: str = "value", path: str = "$") -> None:
    """Refuse what canonical JSON cannot hold, and name the place.

    Raises:
        UnencodableError: As in `canonical_json`.
    """
    flaw = _flaw(value, 0)
    if flaw is not None:
        where, problem = flaw
        raise UnencodableError(holder, path + where, problem)


def _flaw(value: object, depth: int) -> tuple[str, str] | None:
    """Return the path below a value to what JSON cannot hold, and what is wrong with it."""
    if isinstance(value, _SCALARS) or not isinstance(value, (dict, list, tuple, Mapping)):
        problem = _problem(value)
        return None if problem is None else ("", problem)
    if depth >= MAX_DEPTH:
        return "", f"the nesting passes {MAX_DEPTH} levels"
    keyed = isinstance(value, Mapping)
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        problem = _key_problem(key) if keyed else None
        if problem is not None:
            return "", problem
        found = _flaw(item, depth + 1)
        if found is not None:
            return _step(key) + found[0], found[1]
    return None


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str):
        return f"the key {shortened(key)} is no text"
    problem = _problem(key)
    return None if problem is None else f"a key: {problem}"


def _step(key: object) -> str:
    return f"[{key}]" if isinstance(key, int) else f".{_cut(str(key))}"


def _problem(value: object) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() or _encodes(value) else "a lone surrogate is no character"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        fits = -_BIGGEST < value < _BIGGEST
        return None if fits else f"the integer has over {MAX_DIGITS} digits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value!r} is no JSON number"
    return f"a value of class {type(value).__name__} is no JSON"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
