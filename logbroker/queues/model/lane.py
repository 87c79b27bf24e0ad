"""What the index is made of: lanes and runs."""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from typing import Final

import msgspec

READY: Final = 0
IN_FLIGHT: Final = 1
WAITING: Final = 2
"""For a time: its backoff, or the not-before time of its head."""
BLOCKED: Final = 3
PARKED: Final = 4
DEAD_LETTERING: Final = 5
IN_SESSION: Final = 6
"""A worker has it alone; what of it is in flight is the session's."""

STATE_NAMES: Final = ("ready", "in flight", "waiting", "blocked", "parked", "dead-lettering", "in session")

MAX_KEY_BYTES: Final = 256
SHOWN_KEY_BYTES: Final = 64
"""Of a longer key, that are kept."""
NO_RECORD: Final = -1
CHUNK_RECORDS: Final = 512


class Lane(msgspec.Struct, gc=False, eq=False):
    """Records of one ordering key, of which only the head may be handed out."""

    key: bytes | None
    head: int
    """NO_PLACE only in a parked lane none of whose records is admitted yet."""
    state: int
    tail: array[int] | None = None
    """The last successors; None or not empty, as `chunks`."""
    chunks: deque[array[int] | int] | None = None
    """The successors before those, last first, 512 each but for the first chunk, which is consumed; a number: in the
    store."""

    def __len__(self) -> int:
        """The records of the lane, its head included."""
        count = (self.head != NO_RECORD) + len(self.tail or ())
        if self.chunks:
            first = self.chunks[0]
            count += (len(self.chunks) - 1) * CHUNK_RECORDS + (CHUNK_RECORDS if isinstance(first, int) else len(first))
        return count


class RankedLane(Lane, gc=False, eq=False):
    """A lane in a queue group with priorities."""

    priority: int = 0
    """Of the head."""
    timestamp_ms: int = -1
    """Of the head."""
    counts: list[int] | None = None
    """How many records wait by priority, the head included; None: all are of the same."""
    level: int = 0
    """The priority as which it stands in the line."""
    entry: int = 0
    """The number of its entry in the line; 0: it is not there."""

    @property
    def urgency(self) -> int:
        """The priority of its most urgent record."""
        counts = self.counts
        if counts is None:
            return self.priority
        return next(priority for priority in range(len(counts) - 1, -1, -1) if counts[priority])


def ranked(lane: Lane) -> RankedLane:
    """The lane, in a queue group with priorities, where all are such."""
    assert isinstance(lane, RankedLane)
    return lane


class Run(msgspec.Struct, gc=False, eq=False):
    """Consecutive records without an order among them, `start` to before `end`."""

    start: int
    end: int
    redelivered: bool


def lane_key(ordering_key: bytes) -> bytes:
    """The key by which a lane is kept: the ordering key or, of one of more than 256 bytes, its beginning and a hash.

    So no number of long keys fills the memory. The shell gives `Queue.admit` these, made off the event loop.
    """
    if len(ordering_key) <= MAX_KEY_BYTES:
        return ordering_key
    return ordering_key[:SHOWN_KEY_BYTES] + hashlib.blake2b(ordering_key, digest_size=32).digest()
