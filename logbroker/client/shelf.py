"""Deliveries that wait for the program to take them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from logbroker.client.leased_record import LeasedRecord, reason_of
from logbroker.client.ledger import REASON_CHARACTERS, Nack
from logbroker.client.lot import HELD, Lot
from logbroker.errors import LeaseLostError, LogbrokerError

_log = logging.getLogger(__name__)

D = TypeVar("D", bound=LeasedRecord)


class Shelf(Generic[D]):
    """Those of a session, or those outside of sessions, as they arrived. Guarded by the lock of the holdings."""

    def __init__(self, make: Callable[..., D]) -> None:
        self.open = False
        """Whether they may be handed out: the stream stands, and the lock of the session has not run out."""
        self.waiters: deque[Callable[[], None]] = deque()
        """Told, each once, when there may be something to take."""
        self._make = make
        self._lots: deque[Lot] = deque()
        self._records: deque[D] = deque()
        """Of the lot that was opened last."""

    def put(self, lot: Lot) -> None:
        self._lots.append(lot)
        self.tell(len(lot))

    def tell(self, count: int) -> None:
        """Let so many look, those who have waited longest first."""
        for _ in range(min(count, len(self.waiters))):
            self.waiters.popleft()()

    def tell_all(self) -> None:
        self.tell(len(self.waiters))

    def set_open(self, is_open: bool) -> None:
        self.open = is_open
        if is_open:
            self.tell_all()

    @property
    def is_ready(self) -> bool:
        """Whether `take` may return something."""
        return self.open and not self.is_empty

    @property
    def is_empty(self) -> bool:
        return not (self._records or self._lots)

    def take(self, now: float) -> D | None:
        """Return the next delivery that is still the worker's; None: there is none at the moment."""
        while self.open:
            while self._records:
                delivery = self._records.popleft()
                lot, index = delivery.lot, delivery.index
                if lot.states[index] != HELD:
                    continue
                if now <= (lot.ends_at(index) if lot.until_by_hand else lot.until):
                    return delivery
                if lot.ledger.session is not None:
                    # Nothing is left out of a session, and only the broker knows whether it is over: it is asked.
                    self._records.appendleft(delivery)
                    self.open = False
                    return None
                lot.ledger.holdings.lose(lot, index, LeaseLostError("the lease ended before it was worked on"))
            if not self._lots:
                return None
            self._unpack(self._lots.popleft())
        return None

    def _unpack(self, lot: Lot) -> None:
        try:
            self._records.extend(lot.records(self._make))
        except LogbrokerError as error:
            # Those before it are there.
            first = len(self._records)
            _log.error("deliveries of %s from %s on cannot be decoded: %s", lot.topic, lot.place(first), error)
            for unread in range(first, len(lot)):
                if lot.states[unread] == HELD:
                    record = self._make(lot, lot.place(unread)[1], -1, None, None, (), unread)
                    lot.ledger.holdings.put_down(record, Nack(reason_of(error)[:REASON_CHARACTERS], None))
