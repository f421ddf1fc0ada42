"""What a model is shown of a tool, pinned so that no version of pydantic changes it."""

import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel, create_model

from soev.domain import ArgumentMark, ToolOutput
from soev.runtime._errors import ToolDefinitionError
from soev.runtime._marks import ElementId, Recorded, ResultHandle
from soev.runtime._tool_def import tool_def
from tests.runtime.elements import Document, Order

GOLDEN = Path(__file__).with_name("tool_defs.json")


class Color(enum.Enum):
    """A docstring that no model is shown."""

    RED = "red"
    BLUE = "blue"


class Only(enum.Enum):
    """An enum of one."""

    ONE = "one"


class Level(enum.IntEnum):
    """Numbers with names."""

    LOW = 1
    HIGH = 2


class Cat(BaseModel):
    """A docstring that no model is shown."""

    kind: Literal["cat"] = "cat"
    lives: int = Field(9, description="How many\n    are left.")


class Dog(BaseModel):
    """A model with a field that is named like a keyword."""

    model_config = ConfigDict(extra="forbid", title="The dog")

    kind: Literal["dog"] = "dog"
    title: str
    age: Annotated[int, Field(ge=0, lt=30)] = 3


class Box(BaseModel):
    """A model that holds models."""

    cats: list[Cat]
    spare: Cat | None = Field(None, description="One more.")
    by_name: dict[str, list[Optional[Dog]]] = {}  # noqa: UP045  # the old spelling


class Pair(NamedTuple):
    """A named tuple."""

    left: int
    right: str = "r"


@dataclass
class Point:
    """A dataclass."""

    x: float
    y: float = 0.0


FIELDS: dict[str, dict[str, Any]] = {
    "scalars": {"text": str, "count": int, "ratio": float, "flag": bool, "nothing": type(None)},
    "defaults": {
        "text": (str, "x"),
        "count": (int, 3),
        "ratio": (float, 0.5),
        "color": (Color, Color.RED),
        "cat": (Cat, Cat()),
        "items": (list[int], [1, 2]),
        "made": (list[int], Field(default_factory=list)),
    },
    "enums": {"color": Color, "only": Only, "level": Level},
    "literals": {
        "one": Literal["a"],
        "two": Literal["a", "b"],
        "mixed": Literal[1, "a", None],  # noqa: PYI061  # as teams write it
    },
    "unions": {
        "old": Optional[int],  # noqa: UP045  # the old spelling
        "new": int | str | None,
        "pets": Union[Cat, Dog],  # noqa: UP007  # the old spelling
        "tagged": Annotated[Cat | Dog, Field(discriminator="kind", description="Which pet.")],
    },
    "times": {"at": dt.datetime, "day": dt.date, "hour": dt.time, "long": dt.timedelta},
    "constrained": {
        "age": Annotated[int, Field(ge=0, le=150)],
        "share": Annotated[float, Field(gt=0, le=1.5, multiple_of=0.5)],
        "name": Annotated[str, Field(min_length=1, max_length=5, pattern="^a")],
        "few": Annotated[list[str], Field(min_length=1, max_length=3)],
        "strict": Annotated[int, Field(strict=True, examples=[1], title="T")],
    },
    "nested": {"box": Box, "boxes": list[Box], "described": Annotated[Cat, Field(description="C")]},
    "collections": {
        "pair": tuple[int, str],
        "many": tuple[int, ...],
        "distinct": set[int],
        "frozen": frozenset[str],
        "plain": dict[str, int],
        "open": dict[str, Any],
        "bare": dict,
        "numbered": dict[int, str],
    },
    "loose": {"data": JsonValue, "any": Any, "bytes": bytes, "path": Path, "id": uuid.UUID},
    "classes": {"pair": Pair, "point": Point, "amount": decimal.Decimal},
    "marked": {
        "doc": Annotated[str, ElementId(Document)],
        "docs": list[Annotated[str, ElementId(Document)]],
        "order": (Annotated[Order, ElementId()] | None, None),
        "result": Annotated[str, ResultHandle(), Field(description="Which result.")],
        "seen": (Recorded[Document], ()),
    },
    "empty": {},
}


@dataclasses.dataclass(frozen=True)
class Plain:
    """A tool by hand."""

    arguments: type[BaseModel]
    name: str = "plain"
    description: str = """Do it.

        With care.
    """

    async def run(self, arguments: BaseModel) -> ToolOutput:
        """Do nothing."""
        return ToolOutput()


def tool_of(fields: dict[str, Any]) -> Plain:
    """Make a tool whose arguments have these fields."""
    full: dict[str, Any] = {
        name: each if isinstance(each, tuple) else (each, ...) for name, each in fields.items()
    }
    return Plain(create_model("Arguments", **full))


def shown(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one set of fields, as plain JSON."""
    schema: dict[str, Any] = json.loads(tool_def(tool_of(fields)).json)["parameters"]
    return schema


@pytest.mark.parametrize("name", FIELDS)
def test_definitions_are_pinned(name: str) -> None:
    """The canonical JSON of a definition is the recorded one, on every version of pydantic.

    Run this module as a program to record them anew.
    """
    made = tool_def(tool_of(FIELDS[name]))
    pinned = json.loads(GOLDEN.read_text("utf-8"))[name]
    assert json.loads(made.json) == pinned["shown"]
    assert hashlib.sha256(made.json.encode()).hexdigest() == pinned["sha256"]


def test_texts_are_cleaned() -> None:
    """Descriptions lose the indentation of the code that they stand in."""
    made = tool_def(tool_of({"cat": Cat}))
    assert made.description == "Do it.\n\nWith care."
    assert shown({"cat": Cat})["properties"]["cat"]["properties"]["lives"] == {
        "default": 9,
        "description": "How many\nare left.",
        "type": "integer",
    }


def test_a_field_may_be_named_like_a_keyword() -> None:
    """Titles are dropped as keywords and kept as names of fields."""
    dog = shown({"dog": Dog})["properties"]["dog"]
    assert dog["properties"]["title"] == {"type": "string"}
    assert "title" not in dog


def test_a_default_is_kept_as_it_is() -> None:
    """A default that looks like a schema is a value, and nothing in it is changed."""
    default = {"title": "T", "required": ["b", "a"]}
    schema = shown({"x": (dict[str, JsonValue], default)})
    assert schema["properties"]["x"]["default"] == default


def test_bounds_are_written_as_whole_numbers() -> None:
    """A bound of `0.0` and one of `0` are one bound, whichever a version of pydantic keeps."""
    made = tool_def(tool_of({"x": Annotated[float, Field(ge=0.0, lt=2.5)]}))
    assert '"x":{"exclusiveMaximum":2.5,"minimum":0,"type":"number"}' in made.json


def test_recorded_fields_are_hidden() -> None:
    """What the log fills in is neither shown nor required."""
    schema = shown({"docs": Recorded[Document]})
    assert schema == {"properties": {}, "type": "object"}


def test_marks_go_with_the_definition() -> None:
    """The definition says which arguments hold ids, and the marks are no part of its text."""
    made = tool_def(tool_of(FIELDS["marked"]))
    assert made.marks == (
        ArgumentMark("doc", "element", (Document,)),
        ArgumentMark("docs", "element", (Document,)),
        ArgumentMark("order", "element", (Order,)),
        ArgumentMark("result", "result"),
    )
    assert "marks" not in made.json


def test_aliases_are_what_a_model_writes() -> None:
    """A field with an alias is shown and marked under it."""
    fields = {"doc": (Annotated[str, ElementId(Document)], Field(alias="document"))}
    made = tool_def(tool_of(fields))
    assert list(shown(fields)["properties"]) == ["document"]
    assert made.marks[0].field == "document"


class Node(BaseModel):
    """A model that holds itself."""

    children: list["Node"] = []


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (Node, "contain themselves"),
        (create_model("Deep", node=(Node, ...)), "contain themselves"),
        (RootModel[list[int]], "no JSON object"),
        (create_model("Code", run=(type, ...)), "no JSON Schema"),
    ],
)
def test_arguments_that_cannot_be_shown_are_refused(arguments: type[BaseModel], match: str) -> None:
    """Arguments without a finite schema of an object are refused, and the tool is named."""
    with pytest.raises(ToolDefinitionError, match=match) as refused:
        tool_def(Plain(arguments))
    assert refused.value.tool == "plain"


def test_a_mark_too_deep_is_refused() -> None:
    """A mark that no call could be translated by is a ValueError."""
    with pytest.raises(ValueError, match="too deep"):
        tool_def(tool_of({"x": dict[str, Annotated[str, ElementId(Document)]]}))


def test_one_class_used_twice_is_no_recursion() -> None:
    """A class may stand in several places, side by side and nested."""
    schema = shown({"one": Cat, "two": list[Cat], "box": Box})
    assert schema["properties"]["one"] == schema["properties"]["two"]["items"]


def record() -> None:
    """Write the definitions of all fields to the golden file."""
    pinned = {}
    for name, fields in FIELDS.items():
        text = tool_def(tool_of(fields)).json
        digest = hashlib.sha256(text.encode()).hexdigest()
        pinned[name] = {"sha256": digest, "shown": json.loads(text)}
    GOLDEN.write_text(json.dumps(pinned, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    record()
