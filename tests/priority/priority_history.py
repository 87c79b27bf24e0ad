"""History of producers and workers of queue groups with priorities, as they wrote it down.

Beside the events of `tests.queue_storm.queue_history`. `at` is the machine's monotonic clock, which all its processes
share.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.history import Happening, read_events
from tests.queue_storm.queue_history import Delivery, RecordId, SettleBegun, SettleEnded, Taken


class Appended(Happening, frozen=True):
    """These records were sent since `begun_at`, and the broker has answered that all of them are synced."""

    begun_at: float
    records: list[Sent]


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """One record, and where it lies."""

    record_id: RecordId
    key: str
    priority: int
    timestamp_ms: int


class ReceiveBegun(Happening, frozen=True):
    """The worker is about to give credit for one record. What it gets is the next `Taken` of its process."""

    lowest_priority: int = 0
    highest_priority: int = 9
    """Upper bound of the band that it serves."""


class Kept(Happening, frozen=True):
    """The worker has this delivery anew, with another receipt: the broker was killed, and it came back in time."""

    delivery: Delivery


class BrokerKilled(Happening, frozen=True):
    """The broker is about to be killed."""


class BrokerBack(Happening, frozen=True):
    """The broker serves again."""


Event = Appended | ReceiveBegun | Taken | Kept | SettleBegun | SettleEnded | BrokerKilled | BrokerBack

_decode = msgspec.json.Decoder(Event).decode


def read_histories(paths: Iterable[Path]) -> list[Event]:
    """Return the events of all processes in the order of their times; those of a process keep their own order."""
    return read_events(paths, _decode)
