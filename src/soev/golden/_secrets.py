"""Finds what looks like a secret, and replaces it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from soev.domain import KEY_SHAPES

_TOKEN = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
_BITS = 4.2
_NAMES = (
    r"authorization|api[-_]?key|apikey|passw(?:or)?d|passphrase|secret|client[-_]?secret|"
    r"private[-_]?key|access[-_]?key|access[-_]?token|refresh[-_]?token|auth[-_]?token|token|"
    r"cookie|set-cookie|credentials?"
)
NAME = re.compile(rf"(?:.*[-_.])?(?:{_NAMES})\Z", re.IGNORECASE)
# A value without a digit is a word of a sentence more often than a secret.
_IN_TEXT = re.compile(
    rf"""["']?\b(?:{_NAMES})["']?\s*[:=]\s*["']?(?!<secret-)"""
    r"""((?:bearer |basic )?(?=[^\s"',;&<]*\d)[^\s"',;&<]{6,})""",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"<secret-\d+>")


@dataclass(frozen=True, slots=True)
class Found:
    """A part of a text that looks like a secret.

    Args:
        start: Where it begins.
        stop: Where it ends.
        kind: What it looks like.
    """

    start: int
    stop: int
    kind: str


def find_secrets(text: str, patterns: Sequence[re.Pattern[str]] = ()) -> list[Found]:
    """Find the parts of a text that look like secrets, in order and without overlaps.

    Args:
        text: Any text.
        patterns: More shapes, of the project.
    """
    found = sorted(_candidates(text, patterns), key=_place)
    kept: list[Found] = []
    for each in found:
        if not kept or each.start >= kept[-1].stop:
            kept.append(each)
    return kept


def _place(found: Found) -> tuple[int, int]:
    return found.start, -found.stop


def _candidates(text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[Found]:
    for pattern in patterns:
        yield from (
            Found(*match.span(), "a pattern of the project")
            for match in pattern.finditer(text)
            if match[0] and not _PLACEHOLDER.fullmatch(match[0])
        )
    for shape in KEY_SHAPES:
        yield from (
            Found(*match.span(), "a key")
            for match in shape.finditer(text)
            if "<secret-" not in match[0]
        )
    yield from (Found(*match.span(1), "the value of a secret") for match in _IN_TEXT.finditer(text))
    yield from (
        Found(*match.span(), "a random token")
        for match in _TOKEN.finditer(text)
        if _is_random(match[0])
    )


def _is_random(token: str) -> bool:
    """Tell a random token from a word, a path and a hexadecimal digest."""
    classes = (str.islower, str.isupper, str.isdigit)
    if not all(any(map(of_class, token)) for of_class in classes):
        return False
    counts = Counter(token)
    size = len(token)
    bits = -sum(count / size * math.log2(count / size) for count in counts.values())
    return bits >= _BITS


@dataclass
class Placeholders:
    """Gives each secret a number, the same one wherever it occurs."""

    numbers: dict[str, str] = field(default_factory=dict)

    def of(self, secret: str) -> str:
        """Return what stands for a secret."""
        return self.numbers.setdefault(secret, f"<secret-{len(self.numbers) + 1}>")

    def replace(self, text: str, found: Sequence[Found]) -> str:
        """Return a text with placeholders for what was found in it."""
        pieces, at = [], 0
        for each in found:
            pieces += [text[at : each.start], self.of(text[each.start : each.stop])]
            at = each.stop
        return "".join([*pieces, text[at:]])
