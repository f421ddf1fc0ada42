"""Chat Completions: the body of a request, the answer out of its chunks, and the model."""

from soev.adapters._openai._model import OpenAIChatModel

__all__ = ["OpenAIChatModel"]
