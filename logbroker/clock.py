"""The wall clock of the broker. Tests can replace it. Deadlines use the monotonic clock of the event loop instead."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970. The clock may jump forward or back."""
        ...


class SystemClock:
    """The computer's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
