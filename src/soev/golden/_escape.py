"""Text and names as calls files write them: nothing invisible, nothing that a formatter changes."""

from __future__ import annotations

import json
import re

from soev.domain import canonical_json

# Fixed ranges, since `str.isprintable` depends on the version of Unicode that Python has.
_INVISIBLE = (
    "\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
_IN_TEXT = re.compile(rf"[\\{_INVISIBLE}]| \Z")
_IN_JSON = re.compile(rf"[{_INVISIBLE}]")
_ESCAPE = re.compile(r"\\(?:[\\trn&]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_SHORT = {"\\": "\\\\", "\t": "\\t", "\r": "\\r", "\n": "\\n"}
_WIDTHS = {2: "x", 4: "u", 8: "U"}
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@#+-]*\Z")
QUOTED = r'"(?:[^"\\]|\\.)*"'
NAME = rf"(?:[A-Za-z0-9_][A-Za-z0-9_.:/@#+-]*|{QUOTED})"
BLANK = "\\&"
"""Stands for nothing: before text that looks like a mark of ours, and for an empty line."""


def escape(line: str) -> str:
    """Write one line of text so that all of it can be seen and survives an editor."""
    return _IN_TEXT.sub(_written, line)


def _written(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    code = f"{ord(char):x}"
    width = next(width for width in _WIDTHS if len(code) <= width)
    return f"\\{_WIDTHS[width]}{code:0>{width}}"


def unescape(line: str) -> str:
    """Read back what `escape` wrote.

    Raises:
        ValueError: A backslash begins no escape.
    """
    if "\\" in _ESCAPE.sub("", line):
        raise ValueError("a backslash begins no escape")
    return _ESCAPE.sub(_read, line)


def _read(match: re.Match[str]) -> str:
    letter = match[0][1]
    if letter in "xuU":
        return chr(int(match[0][2:], 16))
    return {"\\": "\\", "t": "\t", "r": "\r", "n": "\n", "&": ""}[letter]


def json_text(value: object, holder: str = "value") -> str:
    """Write a value as canonical JSON without invisible characters."""
    return _IN_JSON.sub(_json_escape, canonical_json(value, holder))


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def quoted(name: str) -> str:
    """Write a name bare where it is plain, else as a JSON string."""
    return name if _PLAIN.match(name) else json_text(name)


def unquoted(name: str) -> str:
    """Read back what `quoted` wrote.

    Raises:
        ValueError: It is no JSON string.
    """
    if not name.startswith('"'):
        return name
    value = json.loads(name)
    assert isinstance(value, str)
    return value
