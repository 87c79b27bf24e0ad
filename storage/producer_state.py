"""What a partition remembers of idempotent producers, and the decision it takes by that.

Pure: no files, no clock. The rules are Kafka's (ProducerAppendInfo), but for one that is stricter: a producer id that
the partition does not know must begin at sequence 0, so that a client whose records were cut off notices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from logbroker.config import DAY_MS
from logbroker.errors import OutOfOrderSequenceError, ProducerFencedError, UnknownProducerIdError
from logbroker.record.header import MAX_SEQUENCE, BatchHeader

REMEMBERED_BATCHES: Final = 5
"""As many as a Kafka client has in flight at most."""
MAX_PRODUCERS: Final = 10_000
"""Per partition; the one idle for longest is forgotten first."""
MAX_IDLE_MS: Final = 7 * DAY_MS


class ProducerBatch(msgspec.Struct, gc=False, array_like=True):
    """A batch that was appended."""

    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int


class ProducerSnapshot(msgspec.Struct, gc=False, array_like=True):
    """One producer's state at one offset of the log: up to five batches of its latest epoch, oldest first."""

    producer_id: int
    last_append_ms: int
    batches: tuple[ProducerBatch, ...]


class _Producer:
    __slots__ = ("batches", "last_append_ms")

    def __init__(self, batches: Iterable[ProducerBatch], last_append_ms: int) -> None:
        self.batches = deque(batches)
        self.last_append_ms = last_append_ms


class ProducerStates:
    """The producers of one partition, the one that appended last at the end.

    `append` keeps, beyond the last five batches, those that a snapshot at the synced offset still needs, so `snapshot`
    is exact while later batches are in flight.
    """

    __slots__ = ("_producers",)

    def __init__(self, snapshots: Iterable[ProducerSnapshot] = ()) -> None:
        self._producers = {s.producer_id: _Producer(s.batches, s.last_append_ms) for s in snapshots}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """Decide on a batch with a producer id: None to append it, or the original that it repeats.

        Raises ProducerFencedError, OutOfOrderSequenceError or UnknownProducerIdError. Changes nothing.
        """
        producer = self._producers.get(header.producer_id)
        first_sequence = header.base_sequence
        if producer is None:
            if first_sequence:
                raise UnknownProducerIdError(
                    f"producer {header.producer_id} is unknown to this partition, but its batch begins at sequence "
                    f"{first_sequence}; raise the producer's epoch and begin again at 0"
                )
            return None
        batches = producer.batches
        last = batches[-1]
        if header.producer_epoch != last.epoch:
            if header.producer_epoch < last.epoch:
                raise ProducerFencedError(
                    f"producer {header.producer_id} has epoch {last.epoch} by now, the batch has "
                    f"{header.producer_epoch}; another instance took over, stop this one"
                )
            if first_sequence:
                raise OutOfOrderSequenceError(
                    f"the first batch of producer {header.producer_id} in epoch {header.producer_epoch} must begin at "
                    f"sequence 0, not {first_sequence}"
                )
            return None
        expected = (last.last_sequence + 1) & MAX_SEQUENCE
        if first_sequence == expected:
            return None
        last_sequence = header.last_sequence
        for index in range(len(batches) - 1, max(-1, len(batches) - 1 - REMEMBERED_BATCHES), -1):
            batch = batches[index]
            if (
                batch.first_sequence == first_sequence
                and batch.last_sequence == last_sequence
                and batch.epoch == header.producer_epoch
            ):
                return batch
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} sent sequence {first_sequence} where {expected} was expected, and it is "
            f"none of its last {REMEMBERED_BATCHES} batches; raise the producer's epoch and begin again at 0"
        )

    def append(self, header: BatchHeader, base_offset: int, now_ms: int, synced_offset: int) -> None:
        """Remember a batch that `check` let pass, at the offset it got."""
        batch = ProducerBatch(
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            base_offset,
            base_offset + header.last_offset_delta + 1,
        )
        producers = self._producers
        producer = producers.pop(header.producer_id, None)
        if producer is None:
            producer = _Producer((), now_ms)
            self._forget(now_ms)
        producers[header.producer_id] = producer
        producer.last_append_ms = now_ms
        batches = producer.batches
        batches.append(batch)
        # The oldest is needed until five younger ones lie below any snapshot to come.
        while len(batches) > REMEMBERED_BATCHES and batches[REMEMBERED_BATCHES].next_offset <= synced_offset:
            batches.popleft()

    def snapshot(self, offset: int) -> list[ProducerSnapshot]:
        """The state as it was when the log ended at `offset`, which must not lie below the synced offset."""
        snapshots = []
        for producer_id, producer in self._producers.items():
            below = [batch for batch in producer.batches if batch.next_offset <= offset]
            if below:
                epoch = below[-1].epoch
                kept = tuple(batch for batch in below[-REMEMBERED_BATCHES:] if batch.epoch == epoch)
                snapshots.append(ProducerSnapshot(producer_id, producer.last_append_ms, kept))
        return snapshots

    def _forget(self, now_ms: int) -> None:
        """Make room for one more: drop those idle for too long, and the most idle beyond the bound."""
        producers = self._producers
        while producers:
            oldest = next(iter(producers))
            if len(producers) < MAX_PRODUCERS and now_ms - producers[oldest].last_append_ms <= MAX_IDLE_MS:
                return
            del producers[oldest]
