"""The entries of the index: lanes and runs."""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from typing import Final

import msgspec

READY: Final = 0
IN_FLIGHT: Final = 1
WAITING: Final = 2
"""The lane waits for the end of a backoff, for the not-before time of its head, or for the next attempt to read its
head."""
BLOCKED: Final = 3
PARKED: Final = 4
DEAD_LETTERING: Final = 5
IN_SESSION: Final = 6
"""A worker has the lane for itself. Its records in flight belong to the session, not to the lane."""
GATED: Final = 7
"""The lane is being split, and waits until its records are in sub-lanes; or it is being joined, and waits until all its
sub-lanes are empty."""

STATE_NAMES: Final = ("ready", "in flight", "waiting", "blocked", "parked", "dead-lettering", "in session", "gated")

MAX_KEY_BYTES: Final = 256
SHOWN_KEY_BYTES: Final = 64
"""Number of bytes that are kept of a longer key."""
NO_RECORD: Final = -1
CHUNK_RECORDS: Final = 512


class Lane(msgspec.Struct, gc=False, eq=False):
    """The waiting records of one ordering key, or a single record without a key: the head, and its successors behind
    it. Only the head may be handed out."""

    key: bytes | None
    head: int
    """Record id of the first record. NO_RECORD only in a parked lane that has no admitted records yet."""
    state: int
    tail: array[int] | None = None
    """The last successors. None or not empty; the same holds for `chunks`."""
    chunks: deque[array[int] | int] | None = None
    """The successors before `tail`, in chunks of 512. Each chunk is stored in reverse order. The first chunk is being
    consumed and may be shorter. A number stands for a chunk in the `ChunkStore`."""

    def __len__(self) -> int:
        """Return the number of records in the lane, its head included."""
        count = (self.head != NO_RECORD) + len(self.tail or ())
        if self.chunks:
            first = self.chunks[0]
            count += (len(self.chunks) - 1) * CHUNK_RECORDS + (CHUNK_RECORDS if isinstance(first, int) else len(first))
        return count


class RankedLane(Lane, gc=False, eq=False):
    """A lane in a queue group with priorities."""

    priority: int = 0
    """Priority of the head."""
    timestamp_ms: int = -1
    """Timestamp of the head."""
    counts: list[int] | None = None
    """Number of waiting records by priority, the head included; None: all have the same priority."""
    level: int = 0
    """The priority under which the ready queue keeps the lane."""
    entry: int = 0
    """The number of the lane's entry in the ready queue; 0: the lane has no entry there."""

    @property
    def urgency(self) -> int:
        """The priority of its most urgent record."""
        counts = self.counts
        if counts is None:
            return self.priority
        return next(priority for priority in range(len(counts) - 1, -1, -1) if counts[priority])


def ranked(lane: Lane) -> RankedLane:
    """Return the lane as a RankedLane. In a queue group with priorities every lane is one."""
    assert isinstance(lane, RankedLane)
    return lane


class Run(msgspec.Struct, gc=False, eq=False):
    """Consecutive records that need not stay in order. `start` and `end` are record ids; `end` is not part of the
    run."""

    start: int
    end: int
    redelivered: bool


def lane_key(ordering_key: bytes) -> bytes:
    """Return the key under which a lane is kept: the ordering key or, if it has more than 256 bytes, its beginning and
    a hash.

    The bound keeps long keys from filling the memory. `Queue.admit` gets keys in this form.
    """
    if len(ordering_key) <= MAX_KEY_BYTES:
        return ordering_key
    return ordering_key[:SHOWN_KEY_BYTES] + hashlib.blake2b(ordering_key, digest_size=32).digest()
