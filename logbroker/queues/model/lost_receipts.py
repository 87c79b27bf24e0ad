"""The last 4,096 ranges of receipts whose deliveries were lost, and the errors for receipts that no worker holds."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import Final

from logbroker.errors import (
    AlreadySettledError,
    LeaseLostError,
    LogbrokerError,
    StaleSessionError,
    UnknownReceiptError,
)

MAX_REMEMBERED: Final = 4096


class Loss(enum.Enum):
    """Why a worker lost a delivery before settling it, or a session, and what to do about it."""

    LEASE_ENDED = "its lease ended; extend it in time"
    WORKER_LOST = "the worker's stream broke, and it did not come back within the grace"
    WORKER_LEFT = "the worker said goodbye"
    CAME_BACK = "an earlier record of its session failed or was given back; it comes again after that record"
    LOCK_ENDED = "its lock ended; renew it in time"
    CLOSED = "it was closed"
    REWOUND = "an operator rewound the queue group"
    REARRANGED = "the queue group has another ordering now, or its index was rebuilt"

    @property
    def of_session(self) -> StaleSessionError:
        """The error for the holder of a session that ended for this reason."""
        return StaleSessionError(f"the session is over: {self.value}; stop working on it, and open another")

    def of_delivery(self, *, session_ended: bool) -> LogbrokerError:
        """Return the error for a worker that settles a delivery that was lost for this reason."""
        if session_ended:
            return StaleSessionError(f"the session of the delivery is over: {self.value}; open another")
        return LeaseLostError(f"the worker no longer holds the delivery: {self.value}")


class LostReceipts:
    """Ranges of lost receipts. Each range has the reason, and whether the session of the deliveries ended."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: dict[int, tuple[int, Loss, bool]] = {}
        """Last receipt, reason, and whether a session ended, by the first receipt of the range."""
        self._order: deque[int] = deque()

    def add(self, first: int, last: int, why: Loss, *, ended: bool) -> None:
        insort(self._firsts, first)
        self._ranges[first] = last, why, ended
        self._order.append(first)
        if len(self._order) > MAX_REMEMBERED:
            oldest = self._order.popleft()
            del self._firsts[bisect_left(self._firsts, oldest)]
            del self._ranges[oldest]

    def _find(self, receipt: int) -> tuple[int, Loss, bool] | None:
        """Return the range that contains the receipt: its last receipt, the reason, and whether a session ended with
        it."""
        index = bisect_right(self._firsts, receipt) - 1
        found = self._ranges[self._firsts[index]] if index >= 0 else None
        return found if found is not None and receipt <= found[0] else None

    def _next(self, receipt: int) -> int | None:
        """Return the first receipt of the next range after this receipt."""
        index = bisect_right(self._firsts, receipt)
        return self._firsts[index] if index < len(self._firsts) else None

    def why(self, receipt: int, end: int, given: range) -> tuple[int, LogbrokerError]:
        """Return the error for `receipt`, which no worker holds, and where this error ends: the first later receipt, at
        most `end`, that may need another error. `given`: the receipts that were given out in this group epoch."""
        if receipt < 0 or receipt >= given.stop:
            return (min(end, 0) if receipt < 0 else end), UnknownReceiptError(
                f"receipt {receipt} was never given out by this queue group: settle with the receipt of the delivery"
            )
        if receipt < given.start:
            return min(end, given.start), LeaseLostError(
                f"receipt {receipt} does not belong to a delivery since the last start of the broker, or since the"
                " queue group was created: an older receipt is no longer valid, and its record is delivered again"
                " unless it was settled"
            )
        end = min(end, given.stop)
        if (lost := self._find(receipt)) is not None:
            last, why, session_ended = lost
            return min(end, last + 1), why.of_delivery(session_ended=session_ended)
        if (following := self._next(receipt)) is not None:
            end = min(end, following)
        return end, AlreadySettledError(f"receipt {receipt} was settled before, or lost long ago")
