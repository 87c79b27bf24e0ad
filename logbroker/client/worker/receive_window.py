"""The number of bytes that the broker may send before the program takes them. No I/O, no clock."""

from __future__ import annotations

import math
from typing import Final

_FIRST_BYTES: Final = 256 * 1024
_LEAST_BYTES: Final = 1024
_EARLY_SHARE: Final = 0.25
"""The window grows while deliveries arrive within this share of their lease. A window of twice the size then takes half
a lease."""
_LATE_SHARE: Final = 0.6


class ReceiveWindow:
    """A window that is adjusted to the link. On a slow link, a full prefetch would arrive after its leases have ended.

    The window starts small. It doubles while it is used and deliveries arrive early in their leases, and is halved when
    they arrive late. It changes once per round trip, as in TCP's slow start (RFC 5681).
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: Final = max_bytes
        self.size_bytes = min(_FIRST_BYTES, max_bytes)
        self._changed_at = -math.inf

    def begin_stream(self) -> None:
        """Start again with a small window, because the new connection may use another link."""
        self.size_bytes = min(_FIRST_BYTES, self.size_bytes)
        self._changed_at = -math.inf

    def received(self, heard_at: float, lease_seconds: float, now: float, *, is_used: bool) -> bool:
        """Note that deliveries arrived which the broker sent after `heard_at`. `is_used` says that they used up a large
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
