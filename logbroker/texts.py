"""Texts of users and programs: one way to read numbers, and one way to show texts and sizes to people.

Python's `int` accepts more than digits: spaces and line ends around a number, `+`, `_` between digits, digits of every
script. It raises for very long texts, and for a few characters that `isdigit` accepts.
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")


def whole_number(text: str) -> int | None:
    """Return the number of a text (up to 20 ASCII digits, perhaps after a minus), else None."""
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


_BLANK_LETTERS: Final = re.compile("[\u115f\u1160\u3164\uffa0]")
"""Fillers of Hangul. They look like nothing, but count as letters, and so as printable."""


class _Escapes(dict[int, str]):
    """A table for `str.translate`: each character that is not printable becomes its escape, as Python writes it."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        return self.escape(code) if _is_unseen(character) else character

    def escape(self, code: int) -> str:
        return chr(code).encode("unicode_escape").decode("ascii")


class _JsonEscapes(_Escapes):
    """The same table for JSON strings. JSON escapes have four digits, so characters above U+FFFF take two escapes."""

    def escape(self, code: int) -> str:
        if code == ord("\n"):
            return "\n"  # A line end is between values: within a string, JSON has escaped it already.
        units = chr(code).encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_ESCAPES: Final = _Escapes()
_JSON_ESCAPES: Final = _JsonEscapes()


def _is_unseen(text: str) -> bool:
    """Whether any character of a text is not printable, or is blank without being a space."""
    return not text.isprintable() or _BLANK_LETTERS.search(text) is not None


def shown(text: str) -> str:
    """Return a text that is safe to show in a line on a terminal or in a log: nothing in it controls the terminal, ends
    the line, or changes the display of other text.

    Control characters (C0 and C1, such as ESC, bells and line ends), separators, format characters (bidirectional
    overrides, zero widths), blank letters and lone surrogates become escapes such as `\\x1b`. A backslash is not
    escaped: the result is safe, but not unambiguous. A `repr` is unambiguous; this function changes only the blank
    letters in it.
    """
    return text.translate(_ESCAPES) if _is_unseen(text) else text


def shown_json(encoded: bytes) -> bytes:
    """Return equivalent JSON, with escapes for the characters that `shown` escapes. Of these, JSON itself requires
    escapes only for the C0 characters."""
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    text = encoded.decode()
    return text.translate(_JSON_ESCAPES).encode() if _is_unseen(text.replace("\n", "")) else encoded


def size_text(size_bytes: float) -> str:
    """Write a size as people do: 1536 is 1.5 KiB."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:,.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:,.1f} {_UNITS[unit]}"


def words_of(error: BaseException) -> str:
    """Return the text of an exception, even if its `__str__` raises an exception."""
    try:
        return str(error)
    except Exception as failure:
        return f"its text cannot be shown: its __str__ raises {type(failure).__name__}"
