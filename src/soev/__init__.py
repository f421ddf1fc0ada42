"""soev: a durable runtime for LLM agents, and what makes them testable.

The packages below this one are the API: `soev.domain` (events, traces and ports), `soev.runtime`
(graphs, steps and threads), `soev.adapters` (stores and models) and `soev.toolkit` (ready parts).
Nothing is re-exported here, so `import soev` costs next to nothing.
"""

import importlib


def __getattr__(name: str) -> str:
    """Look up `__version__` in the installed package when it is asked for."""
    if name == "__version__":
        # Reading metadata takes longer than the rest of this package, so it is loaded by name here.
        version: str = importlib.import_module("importlib.metadata").version("soev")
        return version
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
