"""Text out of chunks, with characters whole."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue


def text_in(holder: Mapping[str, JsonValue], field: str) -> str:
    """Return a field's text, or an empty one when it holds none."""
    value = holder.get(field)
    return value if isinstance(value, str) else ""


def mended(text: str) -> str:
    """Join the halves of characters that came apart, and replace a half that stays alone."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Text:
    """A text that is written in pieces. Half a character is held back until it is whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Take a piece, and return what can be shown now."""
        piece, self._half = self._half + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return self._show(mended(piece))

    def rest(self) -> str:
        """Return what was held back, at the end of the stream."""
        half, self._half = self._half, ""
        return self._show(mended(half))

    def _show(self, piece: str) -> str:
        if piece:
            self._pieces.append(piece)
        return piece

    def __str__(self) -> str:
        return "".join(self._pieces)
