"""The ownership deadline: the time until which a consumer may hand out records."""

from __future__ import annotations

import math
from time import monotonic
from typing import Final

import msgspec

NOT_NOW: Final = -math.inf
FOR_EVER: Final = math.inf


class OwnershipDeadline(msgspec.Struct, eq=False):
    """A time that is compared with the clock before each record is handed out.

    A flag would not be enough: after a freeze, a process continues with the next record before any other code can run.
    """

    until: float = FOR_EVER
    """Monotonic seconds. NOT_NOW means that something else has to be done first."""

    def lasts(self) -> bool:
        """Whether records may be handed out now."""
        return monotonic() <= self.until

    def lapsed(self) -> bool:
        """Whether the deadline is over only because time has passed. An answer to a heartbeat then moves it.

        A waiting consumer does not need such an answer until records arrive. Otherwise idle members would send
        heartbeats all the time.
        """
        return NOT_NOW < self.until < monotonic()
