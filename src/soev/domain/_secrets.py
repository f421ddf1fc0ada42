"""The shapes of well-known keys, and text without them."""

from __future__ import annotations

import re

KEY_SHAPES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(shape)
    for shape in (
        r"\bsk-[A-Za-z0-9_-]{16,}",
        r"\b(?:gsk|xai|hf|r8|pplx|nvapi)[-_][A-Za-z0-9_-]{16,}",
        r"\bAIza[0-9A-Za-z_-]{30,}",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{30,}",
        r"\bgithub_pat_[A-Za-z0-9_]{30,}",
        r"\bglpat-[A-Za-z0-9_-]{16,}",
        r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        r"(?i:(?<=\bbearer )|(?<=\bbasic ))[A-Za-z0-9._~+/-]{16,}=*",
        r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    )
)
"""Patterns of API keys, tokens, private keys and passwords in URLs."""


def without_secrets(text: str) -> str:
    """Replace each well-known key in a text by `<secret>`.

    Args:
        text: Any text, for example an error's message.

    Returns:
        The text without keys. Doing it twice changes nothing more.
    """
    for shape in KEY_SHAPES:
        text = shape.sub("<secret>", text)
    return text
