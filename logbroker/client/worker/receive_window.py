"""The number of bytes that the broker may send ahead of the program. No I/O, no clock."""

from __future__ import annotations

import math
from typing import Final

_FIRST_BYTES: Final = 256 * 1024
_LEAST_BYTES: Final = 1024
_EARLY_SHARE: Final = 0.25
"""The window grows while deliveries come within this share of their lease. Twice as much then takes half a lease."""
_LATE_SHARE: Final = 0.6


class ReceiveWindow:
    """A window that fits the link: on a slow one, a full prefetch would arrive after the end of its leases.

    It begins small, doubles while it is used and deliveries come early in their leases, and is halved when they come
    late: once in each round trip, as in TCP's slow start (RFC 5681).
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: Final = max_bytes
        self.size_bytes = min(_FIRST_BYTES, max_bytes)
        self._changed_at = -math.inf

    def begin_stream(self) -> None:
        """Begin again with a small window, as the new connection may be another link."""
        self.size_bytes = min(_FIRST_BYTES, self.size_bytes)
        self._changed_at = -math.inf

    def received(self, heard_at: float, lease_seconds: float, now: float, *, is_used: bool) -> bool:
        """Take note of deliveries that the broker sent after `heard_at`. `is_used`: they used up a good
        part of the window. Return whether the window has changed."""
        if heard_at <= self._changed_at:
            return False
        age_seconds = now - heard_at
        if age_seconds > lease_seconds * _LATE_SHARE:
            self.shrink()
        elif is_used and age_seconds < lease_seconds * _EARLY_SHARE and self.size_bytes < self.max_bytes:
            self.size_bytes = min(self.max_bytes, self.size_bytes * 2)
        else:
            return False
        self._changed_at = now
        return True

    def shrink(self) -> None:
        """Halve the window."""
        self.size_bytes = max(min(_LEAST_BYTES, self.max_bytes), self.size_bytes // 2)
