"""History of the workers of a queue group, as they wrote it down: one file per process, one JSON line per event.

`at` is the machine's monotonic clock, which all its processes share. Receipts count up over a group epoch and
from one to the next, so they say in which order records were handed out, whoever saw them first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.history import Happening, read_events

PART = "part"
"""The header that holds the second key."""
OUTPUTS = "outputs"
"""The topic that outputs go to."""


def lane_name(key: bytes | None, part: bytes | None) -> str:
    """Return the name under which histories know the records of a key that always stay in order, split or not."""
    return f"{(key or b'').decode()}/{part.decode()}" if key and part else (key or b"").decode()


class RecordId(NamedTuple):
    """A record of the topic that the queue group works on."""

    partition: int
    offset: int


class How(enum.Enum):
    """Ways in which a program settles deliveries."""

    ACK = "ack"
    NACK = "nack"
    RELEASE = "release"


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """One record in the hands of a program."""

    receipt: int
    record_id: RecordId
    key: str
    attempt: int
    redelivered: bool
    token: int = 0
    """Token of the session that it belongs to."""


class Taken(Happening, frozen=True):
    """The program was given these."""

    deliveries: list[Delivery]


class SettleBegun(Happening, frozen=True):
    """The program says so; the client sends it at once or by and by."""

    number: int
    how: How
    receipts: list[int]
    delay_seconds: float = 0.0
    """For nacks, how long the broker was asked to wait at least."""


class SettleEnded(Happening, frozen=True):
    """Outcome of a settlement. Without an answer it may or may not have taken effect."""

    number: int
    answered: bool
    refused: dict[int, str]
    """Reasons by receipt."""


class SessionOpened(Happening, frozen=True):
    """The worker holds the lane of this key."""

    key: str
    token: int
    state: str


class SessionBegun(Happening, frozen=True):
    """The holder of a session is about to write its state, or to renew it."""

    number: int
    key: str
    token: int
    state: str | None = None


class SessionEnded(Happening, frozen=True):
    """Outcome of a `SessionBegun`."""

    number: int
    answered: bool
    refused: str
    """The reason; empty: done."""


class ResumeBegun(Happening, frozen=True):
    """An operator is about to resume the lane of a key."""

    key: str


Event = Taken | SettleBegun | SettleEnded | SessionOpened | SessionBegun | SessionEnded | ResumeBegun

_decode = msgspec.json.Decoder(Event).decode


def read_histories(paths: Iterable[Path]) -> list[Event]:
    """Return the events of all processes in the order of their times; those of a process keep their own order."""
    return read_events(paths, _decode)
