"""What the runtime needs of a team's agent, and how it takes an input in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from soev.domain import (
    Element,
    Event,
    Input,
    UnencodableError,
    UnknownElementTypeError,
    canonical_json,
    elements_in,
    stamped,
)
from soev.runtime._errors import InputDeniedError
from soev.runtime._graph import Graph

R_contra = TypeVar("R_contra", contravariant=True)
T = TypeVar("T", bound=BaseModel)

_WORD_BITS = 64


class Agent(Protocol[R_contra, T]):
    """The contract between a team's code and the runtime.

    Attributes:
        input: The pydantic class that a fresh input's payload must parse into, in strict JSON
            mode.
        element_types: The classes of elements that its threads may record.
        event_types: The classes of events that they may record, beyond the core ones.
    """

    input: type[T]
    element_types: Sequence[type[Element]]
    event_types: Sequence[type[Event]]

    def build(self, resources: R_contra, turn: T, model: str | None) -> Graph:
        """Make the graph of one turn.

        It is a function of its arguments and the code alone. It hands resources on and asks them
        nothing.

        Args:
            resources: What `Resources` returned for this agent.
            turn: The payload of the input that opened the turn, parsed.
            model: The model that the input names, or None.

        Raises:
            InputDeniedError: The agent refuses the input. Nothing is recorded.
        """
        ...


Resources = Callable[[Agent[Any, Any]], Awaitable[Any]]
"""An async function from an agent to what its `build` gets. It is not called to read a thread."""


async def no_resources(agent: Agent[Any, Any]) -> None:
    """Give an agent nothing."""


def accepted(input_type: type[T], input: Input) -> tuple[Input, T]:
    """Parse a fresh input's payload, strictly.

    Args:
        input_type: The pydantic class of the payload.
        input: The input.

    Returns:
        The input to record, with its elements and then those in the parsed payload, and the
        parsed payload.

    Raises:
        InputDeniedError: The payload does not fit the class, or cannot be recorded.
    """
    text = payload_text(input.payload)
    try:
        turn = input_type.model_validate_json(text, strict=True)
    except ValidationError as error:
        first: Any = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = "$" + "".join(_part(part) for part in first["loc"])
        raise InputDeniedError(
            f"the payload is no {input_type.__name__}: {first['msg']}",
            "Send a payload that fits the agent's `input` class.",
            path,
        ) from error
    except UnknownElementTypeError as error:
        raise InputDeniedError(str(error)) from error
    elements: dict[str, Element] = {}
    for element in (*input.elements, *elements_in(turn)):
        elements.setdefault(element.id, element)
    return stamped(input, elements=tuple(elements.values())), turn


def _part(part: object) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"


def payload_text(payload: JsonValue) -> str:
    """Return a payload's canonical JSON, once it is known that every store can hold it.

    Raises:
        InputDeniedError: NaN, an infinity, a lone surrogate, a key that is no text, an integer
            beyond 64 bits, or nesting that is too deep. It names the JSON path.
    """
    try:
        text = canonical_json(payload, "input")
    except UnencodableError as error:
        raise InputDeniedError(error.problem, "Send a value that JSON holds.", error.path) from None
    path = _too_large(payload, "$")
    if path is not None:
        raise InputDeniedError(
            f"the integer does not fit {_WORD_BITS} bits", "Send it as a text.", path
        )
    return text


def _too_large(value: JsonValue, path: str) -> str | None:
    """Return the path of the first integer beyond 64 bits, signed or not."""
    if isinstance(value, int):
        fits = -(2 ** (_WORD_BITS - 1)) <= value < 2**_WORD_BITS
        return None if fits else path
    if isinstance(value, dict):
        found = (_too_large(item, f"{path}.{key}") for key, item in value.items())
    elif isinstance(value, list):
        found = (_too_large(item, f"{path}[{place}]") for place, item in enumerate(value))
    else:
        return None
    return next((each for each in found if each is not None), None)
