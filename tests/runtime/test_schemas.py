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
