"""How long a worker waits for a silent broker before it gives up the connection. No I/O, no clock."""

from __future__ import annotations

import math
from typing import Final

from logbroker.client.transport.connection import KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT_SECONDS

_LONG_HOLD_SECONDS: Final = 2 * (KEEPALIVE_SECONDS + KEEPALIVE_TIMEOUT_SECONDS)
_FIRST_SHARE: Final = 1 / 4
"""The share of a lease that a worker waits for an answer at first. The rest is enough to come back over another
connection."""
_LONGEST_FIRST_SECONDS: Final = 2.5
_SHORTEST_FIRST_SECONDS: Final = 0.2
_SLOW_SECONDS: Final = 60.0
"""How long a link counts as slow after it was slow."""


class Patience:
    """The patience of one worker with its broker.

    gRPC notices a dead connection by its pings, and takes every byte as a sign of life. If leases and locks last at
    least twice as long as this takes, the worker relies on gRPC. If they are shorter, the worker watches the answers to
    its extensions. It sees only whole messages, so a large message on a slow link looks like silence. Therefore the
    worker doubles its patience, up to the length of a lease, each time that it gives up a connection; otherwise such a
    message would never arrive. The patience is reset one lease after the last long silence. If a long silence ends with
    a message, the link is slow and not dead, and the patience also lasts for a minute.
    """

    def __init__(self) -> None:
        self._factor = 1
        self._silent_at = -math.inf
        """The time when a silence was last longer than the first patience."""
        self._is_silent = False
        self._slow_until = -math.inf

    def bears(self, silent_seconds: float, hold_seconds: float, now: float) -> bool:
        """Return whether to keep a connection that has been silent for `silent_seconds`. `hold_seconds` is the shortest
        lease or lock of the worker."""
        first_seconds = first_patience_seconds(hold_seconds)
        was_silent, self._is_silent = self._is_silent, silent_seconds > first_seconds
        if self._is_silent:
            self._silent_at = now
        elif was_silent:
            self._slow_until = now + _SLOW_SECONDS
        elif now > max(self._slow_until, self._silent_at + hold_seconds):
            self._factor = 1
        if hold_seconds >= _LONG_HOLD_SECONDS or silent_seconds <= min(hold_seconds, first_seconds * self._factor):
            return True
        self._factor *= 2 if self._factor * first_seconds < hold_seconds else 1
        self._is_silent = False
        return False


def first_patience_seconds(hold_seconds: float) -> float:
    """Return how long a worker waits for an answer on a link that is not known to be slow."""
    return max(_SHORTEST_FIRST_SECONDS, min(_LONGEST_FIRST_SECONDS, hold_seconds * _FIRST_SHARE))
