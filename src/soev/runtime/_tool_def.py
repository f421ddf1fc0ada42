"""What a model is shown of a tool, in a form that no version of pydantic changes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from pydantic import BaseModel
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from soev.domain import ArgumentMark, JsonValue, ToolDef
from soev.runtime._errors import ToolDefinitionError
from soev.runtime._marks import marks_of, recorded_fields

_REF = "#/$defs/"
_NAMED = ("properties", "patternProperties")
_LITERAL = ("default", "const", "enum", "examples")
_DROPPED = ("title", "discriminator", "$defs")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


class Shown(Protocol):
    """What `tool_def` reads of a tool."""

    @property
    def name(self) -> str:
        """The name that a model calls it by."""
        ...

    @property
    def description(self) -> str:
        """When and how to use it."""
        ...

    @property
    def arguments(self) -> type[BaseModel]:
        """The pydantic model of its arguments."""
        ...


def tool_def(tool: Shown) -> ToolDef:
    """Return what a model is shown of a tool.

    The schema has no titles and no docstrings of classes, references are written out, and keys
    and `required` are sorted, so equal tools have equal text.

    Args:
        tool: The tool.

    Raises:
        ValueError: An `ElementId` or a `ResultHandle` stands where no call could be translated.
        ToolDefinitionError: The arguments contain themselves, are no JSON object, or cannot be
            described as JSON.
    """
    try:
        parameters, marks = _shown(tool.arguments)
    except _Refused as refused:
        raise ToolDefinitionError(tool.name, None, str(refused)) from refused.__cause__
    return ToolDef(tool.name, inspect.cleandoc(tool.description), parameters, marks)


class _Refused(Exception):
    """The arguments cannot be shown; the text says why. Left for `tool_def` to name the tool."""


class _Schema(GenerateJsonSchema):
    """A decimal as a number or any text: its pattern differs between versions of pydantic."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # as pydantic declares it

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        found = super().decimal_schema(schema)
        for each in found.get("anyOf", ()):
            each.pop("pattern", None)
        return found


@lru_cache(maxsize=512)
def _shown(arguments: type[BaseModel]) -> tuple[Mapping[str, JsonValue], tuple[ArgumentMark, ...]]:
    marks = marks_of(arguments)
    try:
        schema = arguments.model_json_schema(schema_generator=_Schema)
    except PydanticUserError as error:
        raise _Refused(f"no JSON Schema describes its arguments: {error.message}") from error
    normal = _Inliner(schema.get("$defs", {})).normal(schema, docstring=True)
    if normal.get("type") != "object":
        raise _Refused("its arguments are no JSON object. Give it a model with fields.")
    for field in recorded_fields(arguments).values():
        normal.get("properties", {}).pop(field, None)
        if field in normal.get("required", ()):
            normal["required"].remove(field)
    if not normal.get("required", True):
        del normal["required"]
    return normal, marks


class _Inliner:
    """Writes out the references of a schema, and leaves out what no model needs."""

    def __init__(self, defs: Mapping[str, Any]) -> None:
        self._defs = defs
        self._open: list[str] = []

    def normal(self, schema: Any, *, docstring: bool = False) -> Any:
        """Return the normal form of a schema.

        Args:
            schema: The schema as pydantic wrote it.
            docstring: Whether a description in it comes from a class.
        """
        if not isinstance(schema, dict):
            return schema
        schema = self._written_out(schema)
        kept = {key: self._value(key, schema[key]) for key in sorted(schema) if key not in _DROPPED}
        if docstring:
            kept.pop("description", None)
        return _settled(kept)

    def _written_out(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Put what a reference names in its place, under the keys that stand beside it."""
        whole = schema.get("allOf")
        if isinstance(whole, list) and len(whole) == 1:
            beside = {key: value for key, value in schema.items() if key != "allOf"}
            return self._written_out({**whole[0], **beside})
        if "$ref" not in schema:
            return schema
        name = schema["$ref"].removeprefix(_REF)
        if name in self._open:
            raise _Refused(
                f"its arguments contain themselves (`{name}`), which no flat schema can show. "
                "Use a list with ids, or another shape."
            )
        self._open.append(name)
        target = self.normal(self._defs[name], docstring=_is_class(self._defs[name]))
        self._open.pop()
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}

    def _value(self, key: str, value: Any) -> Any:
        if key in _LITERAL:
            return value
        if key in _NAMED:
            return {name: self.normal(value[name]) for name in sorted(value)}
        if key == "required":
            return sorted(value)
        if key == "description":
            return inspect.cleandoc(value)
        if key in _BOUNDS and isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, list):
            return [self.normal(each) for each in value]
        return self.normal(value)


def _is_class(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" or "enum" in schema or "const" in schema


def _settled(schema: dict[str, Any]) -> dict[str, Any]:
    """Choose one of the ways in which versions of pydantic write the same."""
    if schema.get("additionalProperties") is True:
        del schema["additionalProperties"]
    if "const" not in schema and len(schema.get("enum", ())) == 1:
        schema["const"] = schema["enum"][0]
    if "const" in schema:
        schema.pop("enum", None)
    return dict(sorted(schema.items()))
