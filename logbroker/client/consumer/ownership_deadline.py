"""The ownership deadline: until when a consumer may hand out records."""

from __future__ import annotations

import math
from time import monotonic
from typing import Final

import msgspec

NOT_NOW: Final = -math.inf
FOR_EVER: Final = math.inf


class OwnershipDeadline(msgspec.Struct, eq=False):
    """A moment that whoever hands out records compares with the clock: one comparison a record.

    A clock, and not only a flag, because a process that was frozen goes on where it was before anything else runs.
    """

    until: float = FOR_EVER
    """Monotonic seconds. NOT_NOW: something has to be done first."""

    def lasts(self) -> bool:
        """Whether records may be handed out now."""
        return monotonic() <= self.until

    def lapsed(self) -> bool:
        """Whether it is over by the clock alone: an answer to a heartbeat moves it on.

        Who waits for records needs none before some are there: idle members would ask the broker all the time.
        """
        return NOT_NOW < self.until < monotonic()
