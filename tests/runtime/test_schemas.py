"""JSON Schemas that responses are held to."""

from typing import Any

import pytest
from pydantic import JsonValue

from soev.domain import JsonSchema
from soev.runtime._schemas import mismatch, schema_problem


def doubling(depth: int) -> dict[str, Any]:
    """Make a small schema that unfolds into a huge one."""
    rules: dict[str, Any] = {"d0": {"type": "integer"}}
    for n in range(1, depth + 1):
        rules[f"d{n}"] = {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}, {"$ref": f"#/$defs/d{n - 1}"}]}
    return {"$ref": f"#/$defs/d{depth}", "$defs": rules}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "nothing"}, '"nothing" is not valid'),
        ({"pattern": "(a"}, 'is not a "regex"'),
        ({"pattern": "^(?=a)"}, 'is not a "regex"'),
        ({"$ref": "https://example.com/s.json"}, "leaves the schema; put it under `$defs`"),
        ({"$ref": "file:///etc/passwd"}, "leaves the schema"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"$schema": "https://example.com/own"}, "https://example.com/own"),
        (doubling(20), "unfold into more than 10000 nodes"),
        ({"$defs": {"n": {"$anchor": "n"}}, "$ref": "#n"}, "`$ref` to '#n' is a name"),
        ({"$dynamicAnchor": "n", "$dynamicRef": "#n"}, "`$dynamicRef` '#n' is not followed"),
        ({"$defs": {"n": {"$id": "https://e.com/n"}}}, "`$id` 'https://e.com/n' is not followed"),
    ],
)
def test_broken_schemas_say_why(schema: JsonSchema, problem: str) -> None:
    """A schema that cannot be used is named with its fault, and nothing is fetched."""
    found = schema_problem(schema)
    assert found is not None
    assert problem in found
    assert "\n" not in found


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$defs": {"a/b": {"type": "null"}}, "$ref": "#/$defs/a~1b"},
        {"properties": {"next": {"$ref": "#"}}},
        doubling(8),
        {"$id": "https://example.com/own", "properties": {"$id": {"type": "string"}}},
    ],
)
def test_usable_schemas_have_no_problem(schema: JsonSchema) -> None:
    """References inside the schema are followed, cycles too."""
    assert schema_problem(schema) is None


@pytest.mark.parametrize(
    ("schema", "payload", "path"),
    [
        ({"type": "object", "required": ["a"]}, {}, "$"),
        ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}, "$.a[1]"),
        ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!", "$"),
        ({"type": "nothing"}, 1, "$"),
    ],
)
def test_a_payload_that_is_refused_names_its_path(
    schema: JsonSchema, payload: JsonValue, path: str
) -> None:
    """The first value that a schema refuses is named; a hostile pattern takes linear time."""
    found = mismatch(schema, payload)
    assert found is not None
    assert found[0] == path


def test_a_payload_that_fits_has_no_mismatch() -> None:
    """What the schema describes is taken."""
    assert mismatch({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}) is None


def nested(depth: int, key: str = "a") -> JsonValue:
    """Nest objects."""
    value: JsonValue = {}
    for _ in range(depth):
        value = {key: value}
    return value


TWICE: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [TWICE, TWICE]},
        {"anyOf": [TWICE | {"required": ["b"]}, TWICE | {"required": ["c"]}]},
        {"oneOf": [TWICE, TWICE]},
        {"if": TWICE, "then": TWICE},
        {"not": TWICE, "dependentSchemas": {"a": TWICE}},
        TWICE | {"patternProperties": {"^a": {"$ref": "#"}}},
        {"allOf": [TWICE], "unevaluatedProperties": False},
        {"additionalProperties": {"$ref": "#"}, "patternProperties": {"b|a": {"$ref": "#"}}},
        {
            "$defs": {"n": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}},
            "properties": {"a": {"$ref": "#/$defs/n"}},
        },
    ],
)
def test_a_schema_that_meets_itself_twice_at_one_place_is_bounded(schema: JsonSchema) -> None:
    """Each level of a payload may double the steps, so a deep payload is refused unseen."""
    assert schema_problem(schema) is None
    assert mismatch(schema, nested(100)) == (
        "$",
        "holding it to the request's schema takes too many steps; send less",
    )


def test_items_that_meet_themselves_twice_are_bounded() -> None:
    """The same holds for lists."""
    payload: JsonValue = []
    for _ in range(100):
        payload = [payload]
    for schema in (
        {"items": {"$ref": "#"}, "contains": {"$ref": "#"}},
        {"prefixItems": [{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}]},
    ):
        found = mismatch(schema, payload)  # type: ignore[arg-type]  # a table of mixed schemas
        assert found is not None
        assert "too many steps" in found[1]


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (
            {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
            {"left": nested(100, "left"), "right": nested(100, "right")},
        ),
        (
            {"properties": {"text": {"type": "string"}, "replies": {"items": {"$ref": "#"}}}},
            {"text": "x", "replies": [{"text": "y", "replies": [{"text": "z"}] * 20}] * 20},
        ),
        (
            {"anyOf": [{"type": "null"}, {"properties": {"a": {"$ref": "#"}}}]},
            nested(100),
        ),
        ({"prefixItems": [True], "items": False}, [1]),
        ({"items": {"type": "integer"}}, list(range(100_000))),
    ],
)
def test_a_schema_that_recurses_once_at_each_place_takes_deep_payloads(
    schema: JsonSchema, payload: JsonValue
) -> None:
    """Trees and long lists cost as much as they have nodes."""
    assert mismatch(schema, payload) is None


def test_a_long_list_and_a_wide_schema_are_bounded() -> None:
    """What does not recurse costs at most its nodes for each value of the payload."""
    schema: dict[str, Any] = {"items": {"allOf": [{"type": "integer"}] * 4_000}}
    found = mismatch(schema, list(range(1_000)))
    assert found is not None
    assert "too many steps" in found[1]
