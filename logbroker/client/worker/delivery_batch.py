"""Deliveries as a worker received them. The deliveries of one message form a batch, with consecutive receipts and one
lease."""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from logbroker.errors import AlreadySettledError, CorruptBatchError, LeaseLostError, LogbrokerError
from logbroker.record.codec import check_crc, decode_records, split_batches
from logbroker.v1 import queues_pb2


class _HasOffset(Protocol):
    offset: int
    index: int


L = TypeVar("L")
R = TypeVar("R", bound=_HasOffset)

HELD: Final = 0
"""The worker holds the delivery, and the program has not settled it."""
SAID: Final = 1
"""The program has settled the delivery, and the broker has not answered yet."""
OVER: Final = 2
"""The program has settled the delivery, and the broker has answered."""
LOST: Final = 3
"""The delivery is lost, or its settlement was refused."""


class DeliveryBatch(Generic[L]):
    """The deliveries of one message. A delivery is identified by its index in the batch, and `states` holds its state
    at this index. `L` is the type of `settlements`, which the batch only stores."""

    __slots__ = (
        "_begun_at",
        "_count",
        "_first_receipt",
        "_in_log_from",
        "_moved",
        "_waited",
        "attempts",
        "batches",
        "left",
        "lost",
        "offsets",
        "partitions",
        "redelivered",
        "settlements",
        "size_bytes",
        "states",
        "topic",
        "until",
        "until_by_hand",
    )

    def __init__(self, message: queues_pb2.Deliveries, topic: str, settlements: L) -> None:
        count = message.count
        partitions, offsets = list(message.partitions), list(message.offsets)
        if count < 1 or len(offsets) not in (1, count) or len(partitions) != len(offsets):
            raise LogbrokerError(f"the broker sent {count} deliveries with {len(offsets)} offsets")
        self._first_receipt = message.first_receipt
        self._count = count
        self._moved: dict[int, int] = {}
        """Receipts that replaced the original ones, by index."""
        self.topic = topic
        self.settlements = settlements
        """The settlements of the batch's session or, outside of sessions, of the worker."""
        self.batches = message.batches
        self.size_bytes = len(message.batches)
        self._in_log_from = offsets[0] if len(offsets) < count else -1
        """The first offset, if the message gives only this one, because the records are consecutive and `batches` are
        batches of the log. Otherwise -1: the message gives all offsets."""
        self.partitions = partitions
        self.offsets = offsets
        self.attempts = list(message.attempts)
        self.redelivered = list(message.redelivered)
        self.states = bytearray(count)
        self.left = count
        """Number of deliveries that are neither over nor lost."""
        self.lost: LogbrokerError | None = None
        """The error of the deliveries that were lost most recently."""
        self.until = 0.0
        """The end of the lease unless it is extended, in monotonic seconds."""
        self._begun_at: dict[int, float] = {}
        """When the program began to work on a delivery, by index, if the program reports this; infinite if it has not
        begun yet. The limit of the lease's extension counts from this time."""
        self.until_by_hand: dict[int, float] = {}
        """The ends of the leases that the program requested for single deliveries, by index. They replace `until`."""
        self._waited: list[tuple[int, float]] = []
        """Pairs of an index and a time, by ascending index. The time is the last known moment at which the program had
        taken all deliveries before this index, and not the one at it."""

    def __len__(self) -> int:
        return self._count

    def ends_at(self, index: int) -> float:
        """Return the end of a delivery's lease unless it is extended."""
        return self.until_by_hand.get(index, self.until)

    def receipt(self, index: int) -> int:
        return self._moved.get(index, self._first_receipt + index) if self._moved else self._first_receipt + index

    def record_id(self, index: int) -> tuple[int, int]:
        """Return the partition and the offset of a record."""
        if len(self.offsets) == self._count:
            return self.partitions[index], self.offsets[index]
        # If only the first offset is given, the offsets are consecutive.
        return self.partitions[0], self.offsets[0] + index

    def attempt(self, index: int) -> int:
        """Return the number of failures so far plus 1, as the broker counts them."""
        return self.attempts[index] if self.attempts else 1

    def held(self) -> Iterator[int]:
        """Return the deliveries that the program has not settled."""
        return (index for index, state in enumerate(self.states) if state == HELD)

    def kept(self) -> Iterator[int]:
        """Return the deliveries that are neither over nor lost."""
        return (index for index, state in enumerate(self.states) if state < OVER)

    def waits(self, first: int, now: float) -> None:
        """Note that the program has not taken the deliveries from index `first` on."""
        while self._waited and self._waited[-1][0] >= first:
            self._waited.pop()
        self._waited.append((first, now))

    def begins(self, index: int, now: float) -> None:
        """Note that the program begins to work on a delivery that it has taken already."""
        self._begun_at[index] = now

    def waits_in_program(self, index: int) -> None:
        """Note that the program has taken a delivery, and has not begun to work on it."""
        self._begun_at[index] = math.inf

    def taken_since(self, index: int) -> float:
        """Return the latest time at which a delivery was known to wait for the program, or the time at which the
        program said that it began."""
        begun_at = self._begun_at.get(index)
        if begun_at is not None:
            return begun_at
        return self._waited[bisect_right(self._waited, (index, math.inf)) - 1][1]

    def reclaim(self, index: int, receipt: int) -> None:
        """Give a delivery its new receipt."""
        self._moved[index] = receipt

    def lose(self, index: int, error: LogbrokerError) -> None:
        """Mark a delivery as lost."""
        if self.states[index] < OVER:
            self.left -= 1
        self.states[index] = LOST
        self.lost = error

    def check_held(self, index: int) -> None:
        """Raise an error if a delivery cannot be settled."""
        state = self.states[index]
        if state == LOST:
            lost = self.lost or LeaseLostError("the delivery is not this worker's any more")
            # Raise a new error each time: each raise adds its traceback to the error.
            raise type(lost)(lost.message)
        if state != HELD:
            raise AlreadySettledError("the delivery was settled before: settle each once")

    def records(self, make: Callable[..., R]) -> Iterator[R]:
        """Yield `make(batch, offset, timestamp_ms, key, value, headers)` for each record, in the order of the receipts,
        and set the record's index and its offset in the log. May be called once.

        Raises the errors of `decode_records`, and CorruptBatchError if there are fewer records than deliveries.
        """
        batches, self.batches = self.batches, b""
        bound = functools.partial(make, self)
        count, index = self._count, 0
        in_log = len(self.offsets) < count
        first = self._in_log_from
        for header, batch in split_batches(batches):
            if header.is_control:
                continue
            check_crc(header, batch)
            if count == 1 and header.base_offset <= self.offsets[0] < header.next_offset:
                # A single delivery may arrive in a batch of the log, or in a batch of its own, which begins at 0.
                first = self.offsets[0]
            for record in decode_records(batch, bound):
                if record.offset >= first:
                    record.index = index
                    if not in_log:
                        record.offset = self.offsets[index]
                    yield record
                    index += 1
                    if index == count:
                        return
        raise CorruptBatchError(f"the broker sent {index} records for {count} deliveries")


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield distinct numbers as ranges, each as a pair of its first and its last number."""
    ordered = sorted(numbers)
    if not ordered:
        return
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        yield ordered[0], ordered[-1]
        return
    first = last = ordered[0]
    for number in ordered:
        if number > last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
