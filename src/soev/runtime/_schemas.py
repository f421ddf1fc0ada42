"""JSON Schemas that responses are held to. Neither a schema nor a payload is trusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import jsonschema_rs
from pydantic import JsonValue

from soev.domain import JsonSchema

MAX_NODES = 10_000
_LINEAR = jsonschema_rs.RegexOptions()


def schema_problem(schema: JsonSchema) -> str | None:
    """Say why nothing can be held to a JSON Schema, or return None.

    Args:
        schema: The schema.
    """
    problem = _expansion_problem(schema)
    if problem is not None:
        return problem
    try:
        _validator(schema)
    except ValueError as error:
        return _line(error)
    return None


def mismatch(schema: JsonSchema, payload: JsonValue) -> tuple[str, str] | None:
    """Return the JSON path of the first value that a schema refuses and why, or None.

    Args:
        schema: The schema. One that is broken refuses everything.
        payload: The value that is held to it.
    """
    problem = schema_problem(schema)
    if problem is not None:
        return "$", f"the request's schema is broken: {problem}"
    error = next(iter(_validator(schema).iter_errors(payload)), None)
    if error is None:
        return None
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    return "$" + "".join(steps), error.message


def _validator(schema: JsonSchema) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(schema, retriever=_refuse, pattern_options=_LINEAR)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"`$ref` to {uri!r} leaves the schema; put it under `$defs`")


def _line(error: ValueError) -> str:
    message = getattr(error, "message", None)
    return str(message if isinstance(message, str) else error).partition("\n")[0]


def _expansion_problem(schema: JsonSchema) -> str | None:
    """Refuse a schema whose references unfold into more than a bounded number of nodes."""
    for count, _ in enumerate(_unfold(schema, schema, frozenset()), 1):
        if count > MAX_NODES:
            return f"its `$ref`s unfold into more than {MAX_NODES} nodes"
    return None


def _unfold(root: JsonSchema, node: JsonValue, entered: frozenset[str]) -> Iterator[None]:
    """Yield once for each node, following references, a cycle once."""
    yield None
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith("#") and target not in entered:
            yield from _unfold(root, _resolved(root, target), entered | {target})
        for item in node.values():
            yield from _unfold(root, item, entered)
    elif isinstance(node, list):
        for item in node:
            yield from _unfold(root, item, entered)


def _resolved(root: JsonSchema, pointer: str) -> JsonValue:
    """Follow a JSON pointer. One that leads nowhere is left to the library to refuse."""
    node: Any = root
    for part in pointer.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    value: JsonValue = node
    return value
