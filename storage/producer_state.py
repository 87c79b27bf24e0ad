"""A partition's memory of idempotent producers, and the checks of their batches.

Pure: no files, no clock. A partition remembers the producers that appended last. It forgets no producer because of its
age: otherwise, after a jump of the clock, it could store a retry twice. The rules are Kafka's (ProducerAppendInfo), but
two are stricter. A producer id that the partition does not know must begin at sequence 0, so that a client notices if
its records were cut off. And if the partition may have forgotten an id for lack of room, it accepts no batch of it,
because the batch may be a retry. Ids ascend, so one number is enough: all forgotten ids are below it.

From a Kafka client, a batch of a forgotten producer is accepted if it begins at sequence 0. To refuse it would prevent
no repeat: the client keeps the id, raises its epoch for all partitions, and sends the batch again from sequence 0 on
(KIP-360). So it may store a batch twice if the answer was lost, and the partition forgot the producer before the retry;
in Kafka, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from logbroker.engine import ProducerFacts
from logbroker.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerForgottenError,
    UnknownProducerIdError,
)
from logbroker.record.header import MAX_SEQUENCE, BatchHeader

REMEMBERED_BATCHES: Final = 5
"""Number of batches that are remembered for each producer: a Kafka client has no more in flight."""
MAX_PRODUCERS: Final = 10_000
"""Maximum number of producers that a partition remembers. It forgets the producer that appended longest ago first."""
FOREIGN_IDS: Final = 7 << 60
"""Brokers give out producer ids below this number: a broker that begins its ids at the wall clock's value begins at
2^62 at most. Ids from this number on that are found in a log come from other programs, and raise neither `ids_end` nor
`forgotten_below`."""


class ProducerBatch(msgspec.Struct, gc=False, array_like=True):
    """A batch that was appended."""

    epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int
    timestamp_ms: int = -1
    """Largest timestamp of its records; -1: none, or an older broker stored the batch. For descriptions only."""


class ProducerSnapshot(msgspec.Struct, gc=False, array_like=True):
    """State of one producer at one offset of the log: up to five batches of its latest epoch, oldest first."""

    producer_id: int
    batches: tuple[ProducerBatch, ...]


class ProducerCount:
    """Number of producers that all partitions of a broker remember together. A producer in two partitions counts
    twice."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


def common_level(counts: Iterable[int], most: int) -> int:
    """Return the largest level so that the sum of all counts, each cut to the level, is at most `most`."""
    descending = sorted(counts, reverse=True)
    rest = sum(descending)
    for index, count in enumerate(descending):
        # Try this count as the level: the earlier, larger counts are cut to it.
        if index * count + rest <= most:
            return (most - rest) // index if index else count
        rest -= count
    return most // len(descending) if descending else most


class ProducerStates:
    """The producers of one partition; the producer that appended last is at the end.

    Besides the last five batches, `append` keeps batches that a snapshot at the synced offset still needs. So
    `snapshot` is exact while later batches are in flight.
    """

    __slots__ = ("_count", "_forgotten", "_producers", "_stored_offset", "forgotten_below")

    def __init__(
        self, snapshots: Iterable[ProducerSnapshot] = (), count: ProducerCount | None = None, forgotten_below: int = 0
    ) -> None:
        """`count` grows by the producers remembered here; see `close`."""
        in_order = sorted(snapshots, key=lambda snapshot: snapshot.batches[-1].next_offset)
        self._producers = {snapshot.producer_id: list(snapshot.batches) for snapshot in in_order}
        self._stored_offset = -1
        self._forgotten: set[int] = set()
        self.forgotten_below = forgotten_below
        """Bound above the ids of all producers that were ever forgotten."""
        self._count = count or ProducerCount()
        self._count.value += len(self._producers)

    def count_in(self, count: ProducerCount) -> None:
        """Count the producers in another `count` from now on."""
        self._count = count
        count.value += len(self._producers)

    def ids_end(self) -> int:
        """Return a number above the ids of all producers that are or were remembered."""
        ids = (producer_id + 1 for producer_id in self._producers if producer_id < FOREIGN_IDS)
        return max(self.forgotten_below, max(ids, default=0))

    def __len__(self) -> int:
        return len(self._producers)

    def close(self) -> None:
        """Forget all producers, and stop counting them."""
        self._count.value -= len(self._producers)
        self._producers = {}

    def check(self, header: BatchHeader, *, may_repeat: bool = False) -> ProducerBatch | None:
        """Decide on a batch with a producer id: None to append it, or the original that it repeats. `may_repeat`: see
        `Append`.

        Changes nothing. Raises ProducerFencedError, OutOfOrderSequenceError,
        UnknownProducerIdError or ProducerForgottenError. All but the last error prove that the batch is not in the log,
        if the batch has the newest epoch of the producer and is one of its last five batches.
        """
        batches = self._producers.get(header.producer_id)
        first_sequence = header.base_sequence
        if batches is None:
            if header.producer_id < self.forgotten_below:
                if may_repeat and not first_sequence:
                    return None
                raise ProducerForgottenError(
                    f"the partition may have forgotten producer {header.producer_id}, since it remembers only those "
                    f"that appended last ({MAX_PRODUCERS:,}, or fewer by max_producers); ask InitProducerId for a new "
                    "id, and begin again at sequence 0"
                )
            if first_sequence:
                raise UnknownProducerIdError(
                    f"producer {header.producer_id} is unknown to this partition, but its batch begins at sequence "
                    f"{first_sequence}; raise the producer's epoch and begin again at 0"
                )
            return None
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
            f"producer {header.producer_id} sent sequence {first_sequence} where {expected} was expected, and the batch"
            f" is none of its last {REMEMBERED_BATCHES}; raise the producer's epoch and begin again at 0"
        )

    def append(self, header: BatchHeader, base_offset: int, synced_offset: int, timestamp_ms: int) -> None:
        """Remember a batch that `check` accepted, at its offset. `timestamp_ms` is the largest of its records."""
        batch = ProducerBatch(
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            base_offset,
            base_offset + header.last_offset_delta + 1,
            timestamp_ms,
        )
        producers = self._producers
        batches = producers.pop(header.producer_id, None)
        if batches is None:
            if len(producers) >= MAX_PRODUCERS:
                self.forget(1)
            batches = []
            self._count.value += 1
        producers[header.producer_id] = batches
        batches.append(batch)
        # The oldest batch is needed until five younger batches are below the offset of every later snapshot.
        excess = 0
        while len(batches) - excess > REMEMBERED_BATCHES and (
            batches[excess + REMEMBERED_BATCHES].next_offset <= synced_offset
        ):
            excess += 1
        if excess:
            del batches[:excess]

    def forget(self, count: int) -> None:
        """Forget the `count` producers that appended longest ago."""
        for producer_id in list(itertools.islice(self._producers, count)):
            del self._producers[producer_id]
            self._forgotten.add(producer_id)
            if self.forgotten_below <= producer_id < FOREIGN_IDS:
                self.forgotten_below = producer_id + 1
            self._count.value -= 1

    def facts(self) -> list[ProducerFacts]:
        """Return what is known of the producers, the one that appended longest ago first."""
        lasts = [(producer_id, batches[-1]) for producer_id, batches in self._producers.items()]
        return [ProducerFacts(each, last.epoch, last.last_sequence, last.timestamp_ms) for each, last in lasts]

    # --- snapshots ---

    def snapshot(self, offset: int) -> list[ProducerSnapshot]:
        """Return the state of the producers that appended since `stored`, as it was when the log ended at `offset`.

        `offset` must not be below the synced offset. The producer that appended last comes first.
        """
        snapshots = []
        for producer_id, batches in reversed(self._producers.items()):
            if batches[-1].next_offset <= self._stored_offset:
                break  # The remaining producers appended even earlier.
            below = [batch for batch in batches if batch.next_offset <= offset]
            if below:
                epoch = below[-1].epoch
                kept = tuple(batch for batch in below[-REMEMBERED_BATCHES:] if batch.epoch == epoch)
                snapshots.append(ProducerSnapshot(producer_id, kept))
        return snapshots

    def forgotten(self) -> list[int]:
        """Return the producers that were forgotten since `stored`; some may have come back."""
        return list(self._forgotten)

    def stored(self, offset: int, forgotten: Sequence[int]) -> None:
        """Note that the state at `offset` is stored, without these producers."""
        self._stored_offset = max(self._stored_offset, offset)
        self._forgotten.difference_update(forgotten)
