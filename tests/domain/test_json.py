"""Canonical JSON: one text for each value, and what it refuses."""

import json
import math
from collections.abc import Callable
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from soev.domain import UnencodableError, canonical_json, check_json, write_checked

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
ODD = st.sampled_from([math.nan, math.inf, -math.inf, "\ud800", 10**1000, b"x", object()])


def deep(depth: int) -> JsonValue:
    """Return lists within lists."""
    value: JsonValue = []
    for _ in range(depth - 1):
        value = [value]
    return value


@given(VALUES)
def test_values_read_back(value: JsonValue) -> None:
    """What is written reads back equal, with the same types, and writes the same again."""
    text = canonical_json(value)
    again = json.loads(text)
    assert repr(again) == repr(json.loads(json.dumps(value, sort_keys=True)))
    assert again == value
    assert canonical_json(again) == text


@given(VALUES)
def test_both_writers_write_the_same(value: JsonValue) -> None:
    """The quick way and the checked way give one text."""
    assert write_checked(value, "x") == canonical_json(value)


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_keys_makes_no_difference(value: dict[str, JsonValue], random: object) -> None:
    """Equal objects have one text."""
    items = list(value.items())
    random.shuffle(items)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert canonical_json(dict(items)) == canonical_json(value)
    assert canonical_json(MappingProxyType(value)) == canonical_json(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ("é€😀", '"é€😀"'),
        ('\n\x00\x1f"\\/', '"\\n\\u0000\\u001f\\"\\\\/"'),
        (1e-7, "1e-07"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (10**20, "100000000000000000000"),
        ((1, 2), "[1,2]"),
    ],
    ids=repr,
)
def test_the_form_is_fixed(value: JsonValue, text: str) -> None:
    """Keys are sorted, nothing is spaced, and only what must be is escaped."""
    assert canonical_json(value) == text


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        ({"a": [1, math.nan]}, "$.a[1]", "nan"),
        ([math.inf], "$[0]", "inf"),
        ({"a": {"b": "x\ud800"}}, "$.a.b", "surrogate"),
        ({"\udfff": 1}, "$", "surrogate"),
        ({"a": {1: 2}}, "$.a", "1 is no text"),
        ([10**1000], "$[0]", "1000 digits"),
        ([-(10**1000)], "$[0]", "1000 digits"),
        (deep(129), "$" + "[0]" * 128, "128 levels"),
        ({"a": b"x"}, "$.a", "bytes"),
        ([{1, 2}], "$[0]", "set"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_what_json_cannot_hold_is_refused(value: object, path: str, problem: str) -> None:
    """The error names what holds the value, the path to it, and what is wrong."""
    with pytest.raises(UnencodableError) as refused:
        canonical_json(value, "note")
    assert (refused.value.holder, refused.value.path) == ("note", path)
    assert problem in refused.value.problem


@pytest.mark.parametrize(
    "value", [deep(128), [10**999], [-(10**1000) + 1]], ids=["deep", "long", "low"]
)
def test_the_largest_values_are_written(value: JsonValue) -> None:
    """128 levels and 1,000 digits are within the limits."""
    assert json.loads(canonical_json(value)) == value
    assert write_checked(value, "x") == canonical_json(value)


@given(VALUES, ODD)
def test_the_quick_writer_refuses_the_same(value: JsonValue, odd: object) -> None:
    """Where one way refuses a value the other does, with the same path."""
    holder = {"a": [value, odd]}
    paths = []
    writers: list[Callable[[], object]] = [
        lambda: canonical_json(holder),
        lambda: write_checked(holder, "value"),  # type: ignore[arg-type]  # what is refused
        lambda: check_json(holder),
    ]
    for write in writers:
        with pytest.raises(UnencodableError) as refused:
            write()
        paths.append(refused.value.path)
    assert paths == ["$.a[1]"] * 3
