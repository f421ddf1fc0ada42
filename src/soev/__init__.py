"""soev: a durable runtime for LLM agents, and what makes them testable.

The packages below this one are the API: `soev.domain` (events, traces and ports), `soev.runtime`
(graphs, steps and threads), `soev.adapters` (stores and models) and `soev.toolkit` (ready parts).
Nothing is re-exported here, so `import soev` costs next to nothing.
"""

from importlib.metadata import version as _installed_version


def __getattr__(name: str) -> str:
    """Look up `__version__` in the installed package when it is asked for."""
    if name == "__version__":
        return _installed_version("soev")
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
