"""JSON Schemas that responses are held to. Neither a schema nor a payload is trusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import jsonschema_rs
from pydantic import JsonValue

from soev.domain import JsonSchema
from soev.runtime._schema_cost import resolved, too_costly

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
    nodes, _, recursive = _unfolding(schema)
    if too_costly(schema, payload, nodes, recursive=recursive):
        return "$", "holding it to the request's schema takes too many steps; send less"
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
    """Refuse a schema that is hard to bound: one that unfolds widely, or names its parts."""
    return _unfolding(schema)[1]


def _unfolding(schema: JsonSchema) -> tuple[int, str | None, bool]:
    """Return how many nodes a schema unfolds into, what is wrong, and whether it recurses."""
    count, recursive = 0, False
    for count, again in enumerate(_unfold(schema, schema, frozenset()), 1):
        recursive = recursive or again
        if count > MAX_NODES:
            return count, f"its `$ref`s unfold into more than {MAX_NODES} nodes", recursive
    return count, next(_named(schema, top=True), None), recursive


def _unfold(root: JsonSchema, node: JsonValue, entered: frozenset[str]) -> Iterator[bool]:
    """Yield once for each node whether it leads back, following references, a cycle once."""
    target = node.get("$ref") if isinstance(node, dict) else None
    inside = isinstance(target, str) and target.startswith("#")
    yield inside and target in entered
    if isinstance(node, dict):
        if isinstance(target, str) and inside and target not in entered:
            yield from _unfold(root, resolved(root, target), entered | {target})
        for item in node.values():
            yield from _unfold(root, item, entered)
    elif isinstance(node, list):
        for item in node:
            yield from _unfold(root, item, entered)


def _named(node: JsonValue, *, top: bool = False) -> Iterator[str]:
    """Yield what refers to a part of a schema by a name, so that no pointer tells what it costs."""
    if isinstance(node, dict):
        for key in ("$dynamicRef", "$recursiveRef", *(() if top else ("$id",))):
            if isinstance(node.get(key), str):
                yield f"`{key}` {node[key]!r} is not followed; use a `$ref` to `#/$defs/...`"
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith("#") and target[1:2] not in {"", "/"}:
            yield f"`$ref` to {target!r} is a name; use a pointer, such as `#/$defs/...`"
        for item in node.values():
            yield from _named(item)
    elif isinstance(node, list):
        for item in node:
            yield from _named(item)
