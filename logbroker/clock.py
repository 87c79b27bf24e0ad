"""The clock of everything that decides by time. Tests can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. May step."""
        ...


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
