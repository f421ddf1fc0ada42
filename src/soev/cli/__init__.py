"""The `soev` command."""

from soev.cli._main import main

__all__ = ["main"]
