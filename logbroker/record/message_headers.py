"""The record headers that logbroker reads, except those of dead letters (`dead_letter`). Their names begin with
`logbroker-`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from logbroker.errors import InvalidRequestError, quoted

if TYPE_CHECKING:
    from logbroker.record.codec import Headers

NOT_BEFORE: Final = "logbroker-not-before"
"""The time before which a queue group does not hand the record out: ASCII decimal, milliseconds since 1970."""

PRIORITY: Final = "logbroker-priority"
"""The priority of the record: one ASCII digit, where 9 is the most urgent."""

MIN_PRIORITY: Final = 0
MAX_PRIORITY: Final = 9
DEFAULT_PRIORITY: Final = 4
"""The priority of a record without a priority, or with an invalid one."""

KEY: Final = "logbroker-key"
"""The key of a record of a sub-stream, without the sub-key. The record's own key is `joined_key` of both."""

SUB_KEY: Final = "logbroker-sub-key"
"""The sub-key of a record of a sub-stream."""

COPY_OF: Final = "logbroker-copy-of"
"""The record's offset in its topic, in ASCII decimal. Set in the copies that a queue group keeps of records that were
deleted from the log."""

COPY_TOPIC: Final = "logbroker-copy-topic"
"""The id of the original topic, as text. Set in the same copies."""

_PRIORITIES: Final[dict[bytes | None, int]] = {
    b"%d" % priority: priority for priority in range(MIN_PRIORITY, MAX_PRIORITY + 1)
}
_STATED: Final[tuple[tuple[tuple[str, bytes | None], ...], ...]] = tuple(((PRIORITY, text),) for text in _PRIORITIES)
"""The headers that state a priority and nothing else, by priority."""

_MAX_DIGITS: Final = 100
"""Maximum number of digits of a number in a header, of which most may be zeros in front."""
_NUMBER: Final = re.compile(rb"-?[0-9]{1,%d}" % _MAX_DIGITS)
_END_MS: Final = 10**15
"""The year 33658. A number from here on is no time in milliseconds, but perhaps one in nanoseconds."""


def header_number(value: bytes | None) -> int | None:
    """Return the number that a header holds in ASCII decimal, or None if it holds none. It may begin with zeros or a
    minus sign, and has up to 100 digits."""
    return int(value) if value and _NUMBER.fullmatch(value) else None


def not_before_ms(headers: Headers) -> int | None:
    """Return the time of a record's last not-before header, or None if there is none or it is invalid."""
    for name, value in reversed(headers):
        if name == NOT_BEFORE:
            number = header_number(value)
            return number if number is not None and 0 <= number < _END_MS else None
    return None


def stated_priority(headers: Headers) -> int | None:
    """Return the priority in the last priority header of a record, or None if there is no such header or it is
    invalid."""
    for name, value in reversed(headers):
        if name == PRIORITY:
            return _PRIORITIES.get(value)
    return None


def priority_of(headers: Headers) -> int:
    """Return the priority of a record, which is the default one if its headers state none."""
    priority = stated_priority(headers)
    return DEFAULT_PRIORITY if priority is None else priority


def joined_key(key: bytes, sub_key: bytes) -> bytes:
    """Return the key that the records of a sub-stream have. Different pairs may have the same joined key, such as `a#b`
    with `c`, and `a` with `b#c`: they share a partition and a lane, and only their headers differ."""
    return key + b"#" + sub_key


def with_sub_key(headers: Headers, key: bytes, sub_key: bytes) -> Headers:
    """Return a record's headers with these parts of its key in place of any others."""
    parts = ((KEY, key), (SUB_KEY, sub_key))
    return [*(header for header in headers if header[0] not in (KEY, SUB_KEY)), *parts] if headers else parts


def key_parts(key: bytes | None, headers: Headers) -> tuple[bytes | None, bytes | None]:
    """Return the key of a record without its sub-key, and the sub-key. For a record that is in no sub-stream, return
    its whole key, and None.

    Headers that do not make up the record's key are ignored: a program may have copied the headers of a record to a
    record with another key.
    """
    main_key = sub_key = None
    for name, value in headers:
        if name == KEY:
            main_key = value
        elif name == SUB_KEY:
            sub_key = value
    if main_key is None or sub_key is None or joined_key(main_key, sub_key) != key:
        return key, None
    return main_key, sub_key


def check_priority(priority: object) -> None:
    """Raise InvalidRequestError for an invalid priority."""
    if (
        not isinstance(priority, int)
        or priority is True
        or priority is False
        or not MIN_PRIORITY <= priority <= MAX_PRIORITY
    ):
        raise InvalidRequestError(
            f"{quoted(priority)} is no priority: give {MIN_PRIORITY} to {MAX_PRIORITY}, {MAX_PRIORITY} for the most"
            " urgent"
        )


def with_priority(headers: Headers, priority: int) -> Headers:
    """Return a record's headers with this priority in place of any other; raises InvalidRequestError."""
    check_priority(priority)
    stated = _STATED[priority]
    return [*(header for header in headers if header[0] != PRIORITY), *stated] if headers else stated
