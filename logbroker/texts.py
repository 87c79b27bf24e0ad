"""Texts from outside: one way to read numbers, and one way to write texts for people.

Python's `int` takes far more than a number: blanks and line ends around it, `+`, `_` between digits, the digits of
every script; and it raises for a few characters that `isdigit` takes, and for very long texts.
"""

from __future__ import annotations

import re
from typing import Final

_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")


def whole_number(text: str) -> int | None:
    """Return the number of a text (up to 20 ASCII digits, perhaps after a minus), else None."""
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


_BLANK_LETTERS: Final = re.compile("[\u115f\u1160\u3164\uffa0]")
"""Letters, and so printable, that look like nothing: fillers of Hangul."""


class _Escapes(dict[int, str]):
    """A table for `str.translate`: each character that is not printable becomes its escape, as Python writes it."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        return self.escape(code) if _is_unseen(character) else character

    def escape(self, code: int) -> str:
        return chr(code).encode("unicode_escape").decode("ascii")


class _JsonEscapes(_Escapes):
    """The same table for the strings of JSON, whose escapes have four digits: characters beyond take two."""

    def escape(self, code: int) -> str:
        if code == ord("\n"):
            return "\n"  # Stands between the values; within a string it is an escape already.
        units = chr(code).encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_ESCAPES: Final = _Escapes()
_JSON_ESCAPES: Final = _JsonEscapes()


def _is_unseen(text: str) -> bool:
    """Whether any character of a text is not printable, or is blank without being a space."""
    return not text.isprintable() or _BLANK_LETTERS.search(text) is not None


def shown(text: str) -> str:
    """Return a text as it may stand in a line on a terminal or in a log: with nothing in it that a terminal obeys, that
    ends the line, or that changes how what stands beside it looks.

    Controls (C0 and C1, so ESC, bells and line ends), separators, characters of format (bidirectional overrides, zero
    widths), blank letters and lone surrogates become escapes such as `\\x1b`. A backslash stays one: this makes a text
    harmless, not unambiguous; `repr` does both, and comes through this as it was.
    """
    return text.translate(_ESCAPES) if _is_unseen(text) else text


def shown_json(encoded: bytes) -> bytes:
    """Return equivalent JSON, with escapes for the characters that `shown` escapes. JSON itself demands those of C0
    only."""
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    text = encoded.decode()
    return text.translate(_JSON_ESCAPES).encode() if _is_unseen(text.replace("\n", "")) else encoded


def words_of(error: BaseException) -> str:
    """Return the text of an exception, even one of the program's own whose `__str__` fails."""
    try:
        return str(error)
    except Exception as failure:
        return f"what it says cannot be told: its __str__ raises {type(failure).__name__}"
