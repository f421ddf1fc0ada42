"""How an agent's input is parsed."""

from typing import ClassVar

import pytest
from pydantic import BaseModel, JsonValue, RootModel

from soev.domain import Element, Input
from soev.runtime._agent import accepted
from soev.runtime._errors import InputDeniedError


class File(Element):
    """A file that a person sends."""

    tag: ClassVar[str] = "file"

    name: str = ""


class Question(BaseModel):
    """What a person asks."""

    text: str
    count: int = 0
    parts: tuple[str, ...] = ()
    files: tuple[File, ...] = ()


def test_a_payload_is_parsed_in_json_mode() -> None:
    """JSON has no tuples, so a list fits one; a number in a text does not fit a number."""
    _, turn = accepted(Question, Input(payload={"text": "a", "parts": ["b"]}))
    assert turn == Question(text="a", parts=("b",))
    with pytest.raises(InputDeniedError, match=r"the payload is no Question.*integer") as caught:
        accepted(Question, Input(payload={"text": "a", "count": "3"}))
    assert caught.value.path == "$.count"


def test_a_bare_string_is_a_root_model() -> None:
    """A payload that is one text has a class of its own."""
    recorded, turn = accepted(RootModel[str], Input(payload="hi"))
    assert (turn.root, recorded) == ("hi", Input(payload="hi"))


@pytest.mark.parametrize(
    ("payload", "path"),
    [(3, "$"), ({"text": 3}, "$.text"), ({"text": "a", "parts": ["b", 1]}, "$.parts[1]")],
)
def test_a_payload_that_does_not_fit_names_the_path(payload: JsonValue, path: str) -> None:
    """The first value that does not fit is named by its JSON path."""
    with pytest.raises(InputDeniedError) as caught:
        accepted(Question, Input(payload=payload))
    assert caught.value.path == path


def test_elements_of_the_payload_are_recorded() -> None:
    """The recorded input has the caller's elements, then those of the payload, each id once."""
    mine = File(id="1", name="mine")
    sent: JsonValue = {"tag": "file", "id": "1", "name": "sent"}
    other: JsonValue = {"tag": "file", "id": "2", "name": "other"}
    payload: JsonValue = {"text": "a", "files": [sent, other, other]}
    recorded, turn = accepted(Question, Input(payload=payload, elements=(mine,)))
    assert recorded.elements == (mine, File(id="2", name="other"))
    assert recorded.payload == payload
    assert len(turn.files) == 3


def test_an_element_of_an_unknown_class_is_denied() -> None:
    """A payload cannot bring an element that the input class does not know."""
    payload: JsonValue = {"text": "a", "files": [{"tag": "secret", "id": "1"}]}
    with pytest.raises(InputDeniedError, match="'secret'"):
        accepted(Question, Input(payload=payload))
