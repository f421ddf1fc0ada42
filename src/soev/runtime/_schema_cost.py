"""What it costs to hold a value to a JSON Schema, counted before it is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pydantic import JsonValue

from soev.domain import JsonSchema

MAX_VISITS: Final = 10_000
MAX_PRODUCT: Final = 5_000_000
_ONE: Final = ("not", "if", "then", "else")
_MANY: Final = ("allOf", "anyOf", "oneOf")
_NAMED: Final = ("dependentSchemas", "dependencies")


class Applied(NamedTuple):
    """A schema that one value is held to.

    Args:
        node: The schema.
        times: How often.
        entered: The references that led to it without leaving the value.
    """

    node: JsonValue
    times: int
    entered: frozenset[str] = frozenset()


def too_costly(root: JsonSchema, payload: JsonValue, unfolded: int, *, recursive: bool) -> bool:
    """Tell whether holding a payload to a schema takes more steps than are allowed.

    A schema that does not recurse costs each value at most its unfolded nodes. One that does may
    meet itself several times at one place, and then each level of the payload multiplies the cost.

    Args:
        root: The schema.
        payload: The value.
        unfolded: The nodes that its references unfold into, a cycle once.
        recursive: Whether a reference of it leads back to itself.
    """
    if not recursive:
        return _size(payload) * unfolded > MAX_PRODUCT
    visits = 0
    waiting: list[tuple[JsonValue, list[Applied]]] = [(payload, [Applied(root, 1)])]
    while waiting:
        value, applied = waiting.pop()
        met: list[Applied] = []
        for each in _in_place(root, applied):
            met.append(each)
            visits += each.times
            if visits > MAX_VISITS:
                return True
        if isinstance(value, (dict, list)):
            waiting += _below(value, met)
    return False


def resolved(root: JsonSchema, pointer: str) -> JsonValue:
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


def _size(value: JsonValue) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _in_place(root: JsonSchema, applied: list[Applied]) -> Iterator[Applied]:
    """Yield all schemas that a value is held to, with those that they lead to on the spot."""
    stack = list(applied)
    while stack:
        each = stack.pop()
        yield each
        if not isinstance(each.node, dict):
            continue
        node, entered = each.node, each.entered
        # What was not looked at yet is found by looking at all else once more.
        again = any(key in node for key in ("unevaluatedProperties", "unevaluatedItems"))
        times = each.times * (2 if again else 1)
        stack += [Applied(part, times, entered) for part in _parts(node)]
        target = node.get("$ref")
        if isinstance(target, str) and target not in entered:
            stack.append(Applied(resolved(root, target), times, entered | {target}))


def _parts(node: dict[str, JsonValue]) -> Iterator[JsonValue]:
    for key in _ONE:
        if key in node:
            yield node[key]
    for key in _MANY:
        found = node.get(key)
        if isinstance(found, list):
            yield from found
    for key in _NAMED:
        found = node.get(key)
        if isinstance(found, dict):
            yield from found.values()


def _below(
    value: dict[str, JsonValue] | list[JsonValue], met: list[Applied]
) -> Iterator[tuple[JsonValue, list[Applied]]]:
    """Yield the values in a value, each with the schemas that it is held to."""
    keyed = isinstance(value, dict)
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        times: dict[int, Applied] = {}
        for each in met:
            if isinstance(each.node, dict):
                for node in _for(each.node, key) if keyed else _at(each.node, int(key)):
                    before = times.get(id(node))
                    count = each.times + (before.times if before else 0)
                    times[id(node)] = Applied(node, count)
        if times:
            yield item, list(times.values())


def _for(node: dict[str, JsonValue], key: object) -> Iterator[JsonValue]:
    """Yield the schemas of a property. A pattern is taken to match."""
    own, patterns = node.get("properties"), node.get("patternProperties")
    if isinstance(own, dict) and key in own:
        yield own[str(key)]
    elif "additionalProperties" in node:
        yield node["additionalProperties"]
    if isinstance(patterns, dict):
        yield from patterns.values()
    if "unevaluatedProperties" in node:
        yield node["unevaluatedProperties"]


def _at(node: dict[str, JsonValue], place: int) -> Iterator[JsonValue]:
    """Yield the schemas of an item."""
    items = node.get("items")
    first = node.get("prefixItems", items)
    if isinstance(first, list) and place < len(first):
        yield first[place]
    elif "additionalItems" in node:
        yield node["additionalItems"]
    if isinstance(items, (dict, bool)):
        yield items
    for key in ("contains", "unevaluatedItems"):
        if key in node:
            yield node[key]
