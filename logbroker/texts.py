"""Numbers as people and programs write them: one reading for all texts that come from outside.

Python's `int` takes far more than a number: blanks and line ends around it, `+`, `_` between digits, the digits of
every script; and it raises for a few characters that `isdigit` takes, and for very long texts.
"""

from __future__ import annotations

import re
from typing import Final

_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
_MAX_PORT: Final = 65_535


def whole_number(text: str) -> int | None:
    """Return the number that a text is: ASCII digits, up to 20, perhaps with a minus before them; else None."""
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def is_address(text: str, *, any_port: bool = False) -> bool:
    """Whether a text is HOST:PORT; with `any_port` the port may be 0, for any that is free."""
    host, _, port = text.rpartition(":")
    number = whole_number(port)
    return bool(host) and number is not None and (0 if any_port else 1) <= number <= _MAX_PORT
