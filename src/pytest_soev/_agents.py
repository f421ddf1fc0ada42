"""Finds the agents that golden traces are held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from soev.domain import SoevError
from soev.golden import Agents, load_agents

if TYPE_CHECKING:
    from soev.domain import ChatModel

NO_AGENTS = """\
No agents to hold golden traces to. Say where they come from, in one of these three ways:
  1. a fixture `soev_agents` in a conftest.py above the traces, which returns them by name
  2. the option --soev-catalog=shop.agents:agents
  3. the ini key soev_catalog = shop.agents:agents"""


class NoAgentsError(SoevError):
    """Nobody says where the agents come from."""

    def __str__(self) -> str:
        return NO_AGENTS


class ConfiguredAgents:
    """The agents that the option, else the ini file, names. They are imported when called for.

    Args:
        config: The configuration of the run.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._place = catalog_place(config)

    def __call__(self, model: ChatModel | None = None) -> Agents:
        """Return the agents by name.

        Args:
            model: The model to build them with, or None for the project's own.

        Raises:
            NoAgentsError: Neither the option nor the ini file names a place.
            CatalogError: The place gives no agents.
        """
        if not self._place:
            raise NoAgentsError
        return load_agents(self._place, model)


def catalog_place(config: pytest.Config) -> str:
    """Return the place that the option, else the ini file, names, or an empty text."""
    return str(config.getoption("soev_catalog") or config.getini("soev_catalog"))
