"""What a model thought: read from the fields of several providers, handed back unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from soev.adapters._openai._text import mended, text_in

_TEXTS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_WRITTEN_ON = ("text", "summary", "data")

Json = Mapping[str, JsonValue]


class Reasoning:
    """Collects the reasoning of one answer, in the fields that it came in."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._details: list[dict[str, JsonValue]] = []

    def add(self, delta: Json) -> str:
        """Take a delta's reasoning, and return the text of it to show."""
        pieces = {field: text_in(delta, field) for field in _TEXTS}
        for field, piece in pieces.items():
            if piece:
                self._texts[field] = self._texts.get(field, "") + piece
        listed = delta.get(_DETAILS)
        details = (
            [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )
        for detail in details:
            self._add_detail(detail)
        shown = pieces[_TEXTS[0]] or pieces[_TEXTS[1]] or "".join(map(_shown, details))
        return mended(shown)

    def _add_detail(self, detail: Json) -> None:
        for known in self._details:
            if "index" in detail and _place(known) == _place(detail):
                _write_on(known, detail)
                return
        self._details.append(dict(detail))

    def value(self) -> JsonValue:
        """Return the fields to hand back, or None. Details say all that the plain texts say."""
        if self._details:
            return {_DETAILS: [_whole(detail) for detail in self._details]}
        return {field: mended(text) for field, text in self._texts.items()} or None


def _place(detail: Json) -> tuple[JsonValue, JsonValue]:
    return detail.get("index"), detail.get("type")


def _write_on(known: dict[str, JsonValue], detail: Json) -> None:
    for key, value in detail.items():
        before = known.get(key)
        if key in _WRITTEN_ON and isinstance(before, str) and isinstance(value, str):
            known[key] = before + value
        elif value not in (None, ""):
            known[key] = value


def _whole(detail: Json) -> JsonValue:
    return {key: mended(each) if isinstance(each, str) else each for key, each in detail.items()}


def _shown(detail: Json) -> str:
    return text_in(detail, "text") or text_in(detail, "summary")


def handed_back(reasoning: JsonValue) -> dict[str, JsonValue]:
    """Return the fields of an assistant's message that hand its reasoning back."""
    if not isinstance(reasoning, dict):
        return {}
    return {field: reasoning[field] for field in (*_TEXTS, _DETAILS) if field in reasoning}
