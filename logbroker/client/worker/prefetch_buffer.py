"""Deliveries that wait until the program takes them."""

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
"""The broker is granted more credit when one part in this many of the buffer is neither used nor granted. More frequent
messages would cost more than the delay."""

D = TypeVar("D", bound=LeasedRecord)


class PrefetchBuffer(Generic[D]):
    """Deliveries of one session, or all deliveries outside of sessions, in the order of their arrival. The lock of the
    outbox guards them."""

    def __init__(self, make: Callable[..., D], window: ReceiveWindow, granted_bytes: int) -> None:
        """`window` limits the buffered bytes, as received; the last message may exceed it. `granted_bytes` is the
        number of bytes that the broker may send at first."""
        self.open = False
        """Whether deliveries may be handed out: the stream is open, and the session's lock has not expired."""
        self.waiters: deque[Callable[[], None]] = deque()
        """Callbacks. Each is called once, when there may be a delivery to take."""
        self._make = make
        self._batches: deque[DeliveryBatch[Settlements]] = deque()
        self._batch: DeliveryBatch[Settlements] | None = None
        """The open batch. Its records are decoded as they are taken."""
        self._records: Iterator[D] = iter(())
        self._index = 0
        """Index of the next record of the open batch."""
        self._count = 0
        """Number of records of the open batch."""
        self._kept: deque[D] = deque()
        """Deliveries that are decoded and not handed out yet."""
        self.on_the_way: list[D] = []
        """Deliveries that were taken in the program's main thread and have not reached the program yet. A signal
        handler may raise an exception in between. The caller empties the list in the same step that hands the
        deliveries on."""
        self.spoilt: DeliveryBatch[Settlements] | None = None
        """The batch that an exception from a signal handler (such as Ctrl-C) made unusable, because it interrupted
        the decoder or lost a decoded record. The rest of the batch is given back in a thread that no signal can
        interrupt."""
        self._window = window
        self._unread_bytes = 0
        """Bytes of the batches that still have records to take."""
        self._granted_bytes = granted_bytes
        """Bytes that the broker may still send. Negative if its last message exceeded the credit."""
        self.grant_due = False
        """Whether enough room is free to grant the broker more credit."""

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
        """Grant the broker more credit, and return how many bytes more it may send."""
        self.grant_due = False
        missing = max(0, self._window.part_bytes - self._unread_bytes - self._granted_bytes)
        self._granted_bytes += missing
        return missing

    @property
    def uses_window(self) -> bool:
        """Whether at most half of the buffer's part of the window is still granted to the broker."""
        return 2 * self._granted_bytes <= self._window.part_bytes

    def look_at_room(self) -> None:
        """Note whether enough room is free to grant the broker more credit."""
        size_bytes = self._window.part_bytes
        missing = size_bytes - self._unread_bytes - self._granted_bytes
        self.grant_due = missing > 0 and missing * _GRANT_SHARE >= size_bytes

    def tell(self, count: int) -> None:
        """Wake this many waiters, the longest waiting first."""
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
        """Whether `take` may return a delivery."""
        return self.open and self.spoilt is None and not self.is_empty

    @property
    def is_empty(self) -> bool:
        return not (self._batches or self._batch is not None or self._kept)

    def waiting(self) -> dict[DeliveryBatch[Settlements], int]:
        """Return the batches with deliveries that the program has not taken, each with the index of the first one."""
        firsts = dict.fromkeys(self._batches, 0)
        if self._batch is not None:
            firsts[self._batch] = self._index
        for each in self._kept:
            firsts[each.batch] = min(each.index, firsts.get(each.batch, each.index))
        return firsts

    def take(self, now: float, *, keeps: bool = False) -> D | None:
        """Return the next delivery that the worker still holds, or None if there is none now.

        With `keeps`, the delivery is put into `on_the_way`.
        """
        while self.open and self.spoilt is None and (delivery := self._next(keeps)) is not None:
            batch, index = delivery.batch, delivery.index
            if batch.states[index] != HELD:
                continue
            if now <= (batch.ends_at(index) if batch.until_by_hand else batch.until):
                return delivery
            if batch.settlements.is_session:
                # A session skips no record, and only the broker knows whether the session is over. So the delivery is
                # kept, and nothing is handed out until the broker has renewed the lock.
                self._kept.appendleft(delivery)
                self.open = False
                return None
            # The broker may not have noticed the end of the lease yet. Without the release, it would then count a
            # failed attempt.
            batch.settlements.outbox.put_down(delivery, RELEASE)
        self.look_at_room()
        return None

    def take_back(self) -> None:
        """Put deliveries from `on_the_way` back to the front, because the caller was interrupted before it received
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
        # No signal handler runs between these two assignments: Python runs handlers only at calls and jumps.
        self._kept, self.on_the_way = again, []

    def _next(self, keeps: bool) -> D | None:
        """Return the next record, whatever the state of its delivery, or None if there is no record."""
        if self._kept:
            delivery = self._kept[0]
            if keeps:
                self.on_the_way.append(delivery)
            self._kept.popleft()
            return delivery
        # Runs for each record, so it uses stored lengths.
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
        # A signal handler can raise only at a call (see `take_back`), and none stands between the assignment and
        # `popleft`. So a batch is either opened and removed, or neither.
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
        partition, offset = batch.record_id(self._index)
        _log.error(
            "%s-%d, offset %d: the rest of the batch cannot be decoded: %s. Its deliveries are nacked with this reason"
            " and come again; when a record has used up its attempts, on_exhausted of the queue group says whether it"
            " is blocked, parked or sent to the dead-letter topic. To look into it, use `logbroker segment dump`",
            batch.topic,
            partition,
            offset,
            error.message.rstrip("."),
        )
        self._put_down(batch, NackWord(reason_of(error)[:REASON_CHARACTERS], None))

    def mend(self) -> None:
        """Release the rest of the spoilt batch, so that it is delivered again. Called in the thread of the event
        loop."""
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
        """Return a delivery without its record's contents."""
        return self._make(batch, batch.record_id(index)[1], -1, None, None, (), index)

    def take_unread(self) -> Iterator[tuple[DeliveryBatch[Settlements], int]]:
        """Remove all waiting deliveries and yield them without their records. Yield nothing while the buffer is not
        open."""
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
