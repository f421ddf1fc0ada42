"""Collects golden traces as tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_soev import _items
from pytest_soev._check import GoldenFailure, SetupFailure, shown_path, told
from soev.golden import trace_name


class GoldenItem(pytest.Function):
    """The replay of one golden trace."""

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the trace without a dot, since pytest prints dots here as `::`."""
        return self.path, 0, f"{trace_name(self.path).replace('.', '_')} {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """Print our own failures in their own words, and all else as pytest does."""
        if isinstance(excinfo.value, GoldenFailure | SetupFailure):
            return told(excinfo.value, shown_path(self.path, self.config.rootpath))
        return super().repr_failure(excinfo, *args)


class GoldenFile(pytest.Module):
    """The events file of a golden trace. It is a Module, so that fixtures of that scope work."""

    def _getobj(self) -> ModuleType:
        return _items

    def collect(self) -> Iterator[GoldenItem]:
        """Yield the replay of the trace, and that of its routes where the project wants it."""
        functions = [_items.replay]
        if self.config.getini("soev_routes"):
            functions.append(_items.routes)
        for function in functions:
            item = GoldenItem.from_parent(self, name=function.__name__, callobj=function)
            item.add_marker("soev_replay")
            yield item
