"""StructuredOutput: a final answer that fits a pydantic class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from soev.domain import ModelOutput, ToolOutput, Trace
from soev.runtime import call_arguments

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class StructuredOutput(Generic[T]):
    """The tool by which a model gives its final answer, as the fields of a pydantic class.

    An answer that does not fit is an error that the model reads, and it tries again within the
    budget. With `ReActConfig(output=...)` the turn ends at the first answer that fits.

    Args:
        form: The class of the answer.
        name: The name that the model calls it by.
        description: What the model reads about it.
    """

    form: type[T]
    name: str = "answer"
    description: str = "Give the final answer. Call it once, when you have all that it needs."

    @property
    def arguments(self) -> type[T]:
        """The class of the answer, as the arguments of a tool."""
        return self.form

    async def run(self, arguments: T) -> ToolOutput:
        """Take an answer that fits."""
        return ToolOutput(text="The answer was taken.")

    def given(self, view: Trace) -> bool:
        """Whether the model's last output gave an answer that fits.

        Args:
            view: The view of the stream that answers.
        """
        return self._called(view) is not None

    def read(self, trace: Trace) -> T | None:
        """Return the answer of the current turn, or None when it has none.

        A text counts too when it is the JSON of an answer: the model's last word after the budget
        withdrew its tools, or one that calls no tool whatever it is told.

        Args:
            trace: The thread's trace, or the view of the stream that answers.
        """
        called = self._called(trace)
        if called is not None:
            return called
        output = self._last(trace)
        if output is None or output.calls:
            return None
        try:
            return self.form.model_validate_json(output.text)
        except ValidationError:
            return None

    def _called(self, trace: Trace) -> T | None:
        output, results = self._last(trace), trace.results()
        for call in output.calls if output is not None else ():
            result = results.get(call)
            if call.name == self.name and result is not None and result.error is None:
                arguments = call_arguments(self, call, trace)
                return arguments if isinstance(arguments, self.form) else None
        return None

    def _last(self, trace: Trace) -> ModelOutput | None:
        """Return the stream's last output in the current turn."""
        for event in reversed(trace.turn):
            if isinstance(event, ModelOutput) and event.stream == trace.stream:
                return event
        return None
