"""What the index is made of: lanes and runs."""

from __future__ import annotations

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

NO_PLACE: Final = -1
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
        count = (self.head != NO_PLACE) + len(self.tail or ())
        if self.chunks:
            first = self.chunks[0]
            count += (len(self.chunks) - 1) * CHUNK_RECORDS + (CHUNK_RECORDS if isinstance(first, int) else len(first))
        return count


class Run(msgspec.Struct, gc=False, eq=False):
    """Consecutive records without an order among them, `start` to before `end`."""

    start: int
    end: int
    redelivered: bool
