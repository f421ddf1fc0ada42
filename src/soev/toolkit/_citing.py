"""Ready citation strategies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from soev.runtime import CitationStrategy

_NUMBERS = r"[0-9]+(?: ?, ?[0-9]+)*"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _brackets(numbers: Sequence[int]) -> str:
    return f"[{_listed(numbers)}]"


def _parens(numbers: Sequence[int]) -> str:
    return f"({_listed(numbers)})"


def _footnotes(numbers: Sequence[int]) -> str:
    return "".join(f"[^{number}]" for number in numbers)


def _xml(numbers: Sequence[int]) -> str:
    return f"<cite>{_listed(numbers)}</cite>"


BRACKETS: Final = CitationStrategy(re.compile(rf"\[{_NUMBERS}\]"), "[", _brackets)
"""Marks such as `[1]` and `[1, 2]`."""

PARENS: Final = CitationStrategy(re.compile(rf"\({_NUMBERS}\)"), "(", _parens)
"""Marks such as `(1)` and `(1, 2)`. Plain numbers in parentheses count as marks too."""

FOOTNOTES: Final = CitationStrategy(re.compile(r"\[\^[0-9]+\]"), "[", _footnotes)
"""Marks such as `[^1]`, one for each source."""

XML: Final = CitationStrategy(re.compile(rf"<cite>{_NUMBERS}</cite>"), "<", _xml)
"""Marks such as `<cite>1</cite>` and `<cite>1, 2</cite>`."""
