"""The record headers that mean something to logbroker; all of them begin with `logbroker-`."""

from __future__ import annotations

from typing import Final

from logbroker.errors import InvalidRequestError
from logbroker.record.codec import Headers

NOT_BEFORE: Final = "logbroker-not-before"
"""The time before which a queue group does not hand the record out: ASCII decimal, milliseconds since 1970."""

PRIORITY: Final = "logbroker-priority"
"""How urgent the record is: one ASCII digit, 9 the most urgent."""

MIN_PRIORITY: Final = 0
MAX_PRIORITY: Final = 9
DEFAULT_PRIORITY: Final = 4
"""Of a record without a priority, or with one that is none."""

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


def priority_of(headers: Headers) -> int:
    """Return the priority that the last such header of a record tells."""
    for name, value in reversed(headers):
        if name == PRIORITY:
            return int(value) if value and len(value) == 1 and value.isdigit() else DEFAULT_PRIORITY
    return DEFAULT_PRIORITY


def check_priority(priority: int) -> None:
    """Raise InvalidRequestError for what is no priority."""
    if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidRequestError(
            f"a priority of {priority} is out of range: give {MIN_PRIORITY} to {MAX_PRIORITY}, {MAX_PRIORITY} for the"
            " most urgent"
        )
