"""The clock that everything which decides by time is given, so that tests can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The clock that people read."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. May step."""
        ...


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
