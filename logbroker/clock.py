"""The clock that everything which decides by time is given, so that tests can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that people read, one for intervals."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. May step."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds since some moment. Never steps."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        return time.monotonic()
