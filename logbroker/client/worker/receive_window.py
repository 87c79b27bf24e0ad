"""The number of bytes that the broker may send before the program takes them. No I/O, no clock."""

from __future__ import annotations

import math
from typing import Final

_FIRST_BYTES: Final = 256 * 1024
_LEAST_BYTES: Final = 1024
_EARLY_SHARE: Final = 0.25
"""The window grows while deliveries come within this share of the time that a worker waits for a sign of life. After
the growth, deliveries take about half of that time at most."""
_LATE_SHARE: Final = 0.6
"""The share of a lease after which deliveries are late."""


class ReceiveWindow:
    """A window that fits the link. On a slow link, a full prefetch would arrive after the end of its leases, and
    answers would wait behind it until the connection seems dead.

    It begins small, doubles while it is used and deliveries come early, and is halved when they come late. It changes
    at most once in each round trip, as in TCP's slow start (RFC 5681). All buffers of a worker share it in equal parts.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` bounds the part of each buffer."""
        self._max_bytes = max_bytes
        self.buffers = 1
        """Number of buffers that share the window."""
        self._size_bytes = _FIRST_BYTES
        self._changed_at = -math.inf

    @property
    def part_bytes(self) -> int:
        """The part of one buffer."""
        return max(1, min(self._max_bytes, self._size_bytes // self.buffers))

    def begin_stream(self) -> None:
        """Begin again with a small window, because the new connection may use a slower link."""
        self._size_bytes = min(_FIRST_BYTES, self._size_bytes)
        self._changed_at = -math.inf

    def received(
        self,
        *,
        heard_at: float,
        asked_at: float,
        now: float,
        lease_seconds: float,
        patience_seconds: float,
        is_used: bool,
    ) -> bool:
        """Take note of deliveries that the broker sent after `heard_at`. Return whether the window has changed.

        `asked_at` is the time when the oldest unanswered request was sent, or `now` if there is none.
        `patience_seconds` says how long such a request may wait. `is_used` says whether the deliveries used up a good
        part of the window.
        """
        if heard_at <= self._changed_at:
            return False
        if now - asked_at > patience_seconds / 2 or now - heard_at > lease_seconds * _LATE_SHARE:
            self.shrink()
        elif is_used and self.part_bytes < self._max_bytes and now - heard_at < patience_seconds * _EARLY_SHARE:
            self._size_bytes *= 2
        else:
            return False
        self._changed_at = now
        return True

    def shrink(self) -> None:
        """Halve the window."""
        self._size_bytes = max(_LEAST_BYTES, min(self._size_bytes, self._max_bytes * self.buffers) // 2)
