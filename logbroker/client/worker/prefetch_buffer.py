"""Deliveries that wait for the program to take them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from logbroker.client.worker.delivery_batch import HELD, DeliveryBatch
from logbroker.client.worker.leased_record import LeasedRecord, reason_of
from logbroker.client.worker.receive_window import ReceiveWindow
from logbroker.client.worker.settlements import REASON_CHARACTERS, RELEASE, NackWord, Settlements, Word
from logbroker.errors import LogbrokerError

_log = logging.getLogger(__name__)

_GRANT_SHARE: Final = 4
"""The broker is granted more when this fraction (1/4) of the buffer is free: a message costs more than the delay."""

D = TypeVar("D", bound=LeasedRecord)


class PrefetchBuffer(Generic[D]):
    """Deliveries of one session, or those outside of sessions, in the order of arrival. Guarded by the lock of the
    outbox."""

    def __init__(self, make: Callable[..., D], window: ReceiveWindow, granted_bytes: int) -> None:
        """`window` bounds the buffered bytes, as received. The bound is exceeded by less than one message.
        `granted_bytes` is what the broker may send at first."""
        self.open = False
        """Whether deliveries may be handed out: the stream is up, and the session's lock has not expired."""
        self.waiters: deque[Callable[[], None]] = deque()
        """Callbacks, each called once when there may be something to take."""
        self._make = make
        self._batches: deque[DeliveryBatch[Settlements]] = deque()
        self._batch: DeliveryBatch[Settlements] | None = None
        """The open batch: its records are decoded as they are taken."""
        self._records: Iterator[D] = iter(())
        self._index = 0
        """Index of the next record of the open batch."""
        self._count = 0
        """Number of records of the open batch."""
        self._kept: deque[D] = deque()
        """Deliveries that are decoded and not handed out."""
        self.on_the_way: list[D] = []
        """Deliveries that were taken in the program's main thread and have not reached it yet: an exception from a
        signal handler may come between. The caller empties the list in the step that hands them on."""
        self.spoilt: DeliveryBatch[Settlements] | None = None
        """The batch that an exception from a signal handler (such as Ctrl-C) left unusable: it ended the decoder in the
        middle, or took a record that was decoded already. The rest of the batch is given back where no signal can
        interrupt."""
        self._window = window
        self._unread_bytes = 0
        """Bytes of the batches with records still to be taken."""
        self._granted_bytes = granted_bytes
        """Bytes that the broker may still send. Below 0 by the excess of its last message."""
        self.grant_due = False
        """Whether enough was taken that the broker is to be granted more."""

    def put(self, batch: DeliveryBatch[Settlements]) -> None:
        self._batches.append(batch)
        self._unread_bytes += batch.size_bytes
        self._granted_bytes -= batch.size_bytes
        self.tell(len(batch))

    def begin_stream(self) -> int:
        """Return the credit in bytes with which a new stream begins."""
        self._granted_bytes = max(0, self._window.part_bytes - self._unread_bytes)
        self.grant_due = False
        return self._granted_bytes

    def grant(self) -> int:
        """Return how many bytes more the broker may send."""
        self.grant_due = False
        missing = max(0, self._window.part_bytes - self._unread_bytes - self._granted_bytes)
        self._granted_bytes += missing
        return missing

    @property
    def uses_window(self) -> bool:
        """Whether a good part of the window is used up."""
        return 2 * self._granted_bytes <= self._window.part_bytes

    def look_at_room(self) -> None:
        """Note whether enough is free that the broker is to be granted more."""
        size_bytes = self._window.part_bytes
        missing = size_bytes - self._unread_bytes - self._granted_bytes
        self.grant_due = missing > 0 and missing * _GRANT_SHARE >= size_bytes

    def tell(self, count: int) -> None:
        """Wake this many waiters, those that have waited longest first."""
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
        return self.open and self.spoilt is None and not self.is_empty

    @property
    def is_empty(self) -> bool:
        return not (self._batches or self._batch is not None or self._kept)

    def take(self, now: float, *, keeps: bool = False) -> D | None:
        """Return the next delivery that is still the worker's, or None if there is none at the moment.

        `keeps`: it is `on_the_way` then.
        """
        while self.open and self.spoilt is None and (delivery := self._next(keeps)) is not None:
            batch, index = delivery.batch, delivery.index
            if batch.states[index] != HELD:
                continue
            if now <= (batch.ends_at(index) if batch.until_by_hand else batch.until):
                return delivery
            if batch.settlements.is_session:
                # Nothing is left out of a session, and only the broker knows whether it is over: it is asked.
                self._kept.appendleft(delivery)
                self.open = False
                return None
            # The broker may not have noticed yet: it would count a failed attempt when it does.
            batch.settlements.outbox.put_down(delivery, RELEASE)
        self.look_at_room()
        return None

    def take_back(self) -> None:
        """Let deliveries on their way be taken once more, first of all: the caller was interrupted before it had
        them."""
        if not self.on_the_way:
            return
        again = deque(self.on_the_way)
        again.extend(each for each in self._kept if each not in self.on_the_way)
        for each in self.on_the_way:
            if each.batch is self._batch:
                self._index = max(self._index, each.index + 1)
        if self._batch is not None and self._index == self._count:
            self._close_batch(self._batch)
        # Nothing comes between these two: Python handles signals at calls and jumps only.
        self._kept, self.on_the_way = again, []

    def _next(self, keeps: bool) -> D | None:
        """Return the next record, whatever the state of its delivery, or None if there is none."""
        if self._kept:
            delivery = self._kept[0]
            if keeps:
                self.on_the_way.append(delivery)
            self._kept.popleft()
            return delivery
        # For each record: no length is asked for that is known.
        while (batch := self._open_batch() if self._batch is None else self._batch) is not None:
            try:
                record = next(self._records)
            except LogbrokerError as error:
                self._refuse(batch, error)
                self._close_batch(batch)
                continue
            except StopIteration:
                self.spoilt = batch
                return None
            if record.index != self._index:
                self.spoilt = batch
                return None
            if keeps:
                self.on_the_way.append(record)
            self._index += 1
            if self._index == self._count:
                self._close_batch(batch)
            return record
        return None

    def _open_batch(self) -> DeliveryBatch[Settlements] | None:
        # What moves is moved without a call in between: there a signal handler may raise, see `take_back`.
        while self._batches:
            batch = self._batches[0]
            if HELD in batch.states:
                records, count = batch.records(self._make), len(batch)
                self._batch, self._records, self._index, self._count = batch, records, 0, count
                self._batches.popleft()
                return batch
            self._unread_bytes -= batch.size_bytes
            self._batches.popleft()
        return None

    def _close_batch(self, batch: DeliveryBatch[Settlements]) -> None:
        none: Iterator[D] = iter(())
        self._unread_bytes -= batch.size_bytes
        self._batch, self._records = None, none
        self.look_at_room()

    def _refuse(self, batch: DeliveryBatch[Settlements], error: LogbrokerError) -> None:
        """Nack the rest of a batch that cannot be decoded."""
        _log.error(
            "deliveries of %s from %s on cannot be decoded: %s", batch.topic, batch.record_id(self._index), error
        )
        self._put_down(batch, NackWord(reason_of(error)[:REASON_CHARACTERS], None))

    def mend(self) -> None:
        """Have the rest of the spoilt batch delivered again. Called in the thread of the event loop."""
        batch, self.spoilt = self.spoilt, None
        if batch is not None and batch is self._batch:
            self._put_down(batch, RELEASE)
            self._close_batch(batch)
            self.tell_all()

    def _put_down(self, batch: DeliveryBatch[Settlements], word: Word) -> None:
        for unread in range(self._index, len(batch)):
            if batch.states[unread] == HELD:
                batch.settlements.outbox.put_down(self.bare_record(batch, unread), word)

    def bare_record(self, batch: DeliveryBatch[Settlements], index: int) -> D:
        """Return a delivery without its record."""
        return self._make(batch, batch.record_id(index)[1], -1, None, None, (), index)

    def take_unread(self) -> Iterator[tuple[DeliveryBatch[Settlements], int]]:
        """Yield the waiting deliveries without their records, and leave none. Yield nothing if nothing may be handed
        out."""
        if not self.open:
            return
        kept, self._kept = self._kept, deque()
        unread = [(each.batch, each.index, each.index + 1) for each in kept]
        if self._batch is not None:
            unread.append((self._batch, self._index, self._count))
            self._close_batch(self._batch)
        while self._batches:
            batch = self._batches[0]
            self._unread_bytes -= batch.size_bytes
            self._batches.popleft()
            unread.append((batch, 0, len(batch)))
        self.look_at_room()
        for batch, first, end in unread:
            for index in range(first, end):
                if batch.states[index] == HELD:
                    yield batch, index
