"""Where a project's agents come from."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from soev.domain import ChatModel
from soev.golden._errors import CatalogError
from soev.runtime import Agent, AgentCatalog

Agents = Mapping[str, Agent[Any, Any]]


def load_agents(place: str, model: ChatModel | None = None) -> Agents:
    """Import a project's agents from a place such as `shop.agents:agents`.

    Args:
        place: A module and an attribute in it, with a colon between them.
        model: The model to build them with, or None for the project's own.

    Raises:
        CatalogError: The place is no module with such an attribute, or holds no agents.
    """
    module_name, colon, attribute = place.partition(":")
    if not (module_name and colon and attribute):
        raise CatalogError(place, "it is not of the form `package.module:attribute`")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        problem = (
            f"there is no module `{error.name}` to import; the ini key `pythonpath` of pytest can "
            "name its directory"
        )
        raise CatalogError(place, problem) from error
    if not hasattr(module, attribute):
        raise CatalogError(place, f"`{module_name}` has no attribute `{attribute}`")
    return agents_of(getattr(module, attribute), place, model)


def agents_of(source: object, place: str, model: ChatModel | None = None) -> Agents:
    """Return the agents that a project gives: a catalog's, a mapping's, or a function's.

    Args:
        source: An `AgentCatalog`, a mapping of names to agents, or a function that returns
            either. A function with a parameter is called with `model`.
        place: What to call the source in an error.
        model: The model to build the agents with, or None for the project's own.

    Raises:
        CatalogError: The source is something else.
    """
    if isinstance(source, AgentCatalog):
        return source.agents
    if isinstance(source, Mapping):
        return source
    if callable(source):
        takes_model = bool(inspect.signature(source).parameters)
        made = source(model) if takes_model else source()
        if not callable(made) or isinstance(made, AgentCatalog):
            return agents_of(made, place, model)
    raise CatalogError(
        place,
        f"it holds a {type(source).__name__}, no catalog, no mapping of names to agents, and no "
        "function that returns one",
    )
