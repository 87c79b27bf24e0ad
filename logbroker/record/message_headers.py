"""The record headers that mean something to logbroker; all of them begin with `logbroker-`."""

from __future__ import annotations

from typing import Final

from logbroker.record.codec import Headers

NOT_BEFORE: Final = "logbroker-not-before"
"""The time before which a queue group does not hand the record out: ASCII decimal, milliseconds since 1970."""

COPY_OF: Final = "logbroker-copy-of"
"""In the copies that a queue group keeps of what retention took: the record's offset in its topic, ASCII decimal."""

_MAX_DIGITS: Final = 15
"""Until the year 33658; more is no time."""


def not_before_ms(headers: Headers) -> int | None:
    """Return the last not-before time among a record's headers; None where there is none, or it is no time."""
    for name, value in reversed(headers):
        if name == NOT_BEFORE:
            return int(value) if value and len(value) <= _MAX_DIGITS and value.isdigit() else None
    return None
