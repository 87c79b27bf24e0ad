"""A log in memory, of one topic: does what a real one does only now and then, at a word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import google_crc32c

from logbroker.config import TopicConfig
from logbroker.engine import LogEngine, LogGeneration, PartitionFacts, Read, ReadResult, Topic
from logbroker.errors import LogbrokerError, OffsetOutOfRangeError, UnknownPartitionError, UnknownTopicError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.header import CONTROL_FLAG, CRC_START, parse_header, stored_prefix
from logbroker.types import PartitionKey, TopicId
from tests.queues.groups import TOPIC_ID


class FakePartition:
    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = 0
        self.end = 0
        self.error: LogbrokerError | None = None
        """The error that a read answers with."""


class FakeLog:
    """The part of `LogEngine` that reads. `engine` is it as one."""

    is_sole_writer = True
    partitions_per_read = 3
    """More than one, as on a cluster."""
    waits_for_holders = True
    durability = ""

    async def learn_ends(self, topic_id: object, partitions: object) -> dict[int, LogbrokerError]:
        return {}

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = [FakePartition() for _ in range(partitions)]
        self.generations = [LogGeneration(1, partitions, ())]
        self.deleted = False
        self.reads: list[Read] = []
        self.calls_of_read = 0
        self.before_read: Callable[[], Awaitable[None]] | None = None
        """Runs in each read, before it looks at what is readable."""
        self.watches: set[FakeWatch] = set()
        self._topic: Topic | None = None

    @property
    def engine(self) -> LogEngine:
        return cast(LogEngine, self)

    # --- what tests do -----------------------------------------------------------------------------------------------

    def append(self, *records: NewRecord, partition: int = 0, **fields: object) -> int:
        """Append one batch; return its base offset."""
        return self.append_batch(encode_batch(records, **fields), partition)  # type: ignore[arg-type]

    def append_batch(self, batch: bytes, partition: int = 0) -> int:
        log = self.partitions[partition]
        header = parse_header(batch)
        log.batches.append(stored_prefix(log.end, header.length, 0) + batch[16:])
        base, log.end = log.end, log.end + header.last_offset_delta + 1
        for watch in self.watches:
            watch.notify(PartitionKey(TopicId(TOPIC_ID), partition))
        return base

    def append_values(self, *values: bytes, partition: int = 0) -> int:
        """Append records with these values, which are their keys too."""
        return self.append(*(NewRecord(value, value) for value in values), partition=partition)

    def append_control_batch(self, partition: int = 0) -> None:
        batch = bytearray(encode_batch([NewRecord(b"\0\0\0\0", b"\0\0\0\1")]))
        batch[22] |= CONTROL_FLAG
        self.append_batch(with_crc(batch), partition)

    def leave_gap(self, records: int, partition: int = 0) -> None:
        self.partitions[partition].end += records

    def drop_below(self, offset: int, partition: int = 0) -> None:
        """Let retention take all batches that end before an offset."""
        log = self.partitions[partition]
        log.batches = [batch for batch in log.batches if parse_header(batch).next_offset > offset]
        log.start = offset

    def grow(self, partitions: int) -> None:
        ends = tuple(log.end for log in self.partitions)
        self.partitions += [FakePartition() for _ in range(partitions - len(self.partitions))]
        self.generations.append(LogGeneration(len(self.generations) + 1, partitions, ends))
        self._topic = None

    boot_id = "this boot"

    # --- LogEngine ---------------------------------------------------------------------------------------------------

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        if self.deleted:
            raise UnknownTopicError("deleted")
        if self._topic is None:
            self._topic = Topic(
                name="t",
                id=topic_id,
                partitions=len(self.partitions),
                config=TopicConfig(),
                overrides={},
                generations=tuple(self.generations),
                created_at_ms=0,
            )
        return self._topic

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        if self.deleted or partition >= len(self.partitions):
            raise UnknownPartitionError("no such partition")
        log = self.partitions[partition]
        return PartitionFacts(
            log_start_offset=log.start,
            high_watermark=log.end,
            log_end_offset=log.end,
            leader_epoch=0,
            size_bytes=sum(map(len, log.batches)),
            segments=1,
        )

    async def read(self, reads: Sequence[Read]) -> list[ReadResult | LogbrokerError]:
        self.reads += reads
        self.calls_of_read += 1
        if self.before_read is not None:
            await self.before_read()
        return [self._read(wish) for wish in reads]

    def _read(self, wish: Read) -> ReadResult | LogbrokerError:
        log = self.partitions[wish.partition]
        if log.error is not None:
            return log.error
        if not log.start <= wish.offset <= log.end:
            return OffsetOutOfRangeError(f"{log.start} to {log.end}, not {wish.offset}")
        chunk, next_offset = b"", wish.offset
        for batch in log.batches:
            header = parse_header(batch)
            if header.next_offset <= wish.offset:
                continue
            if chunk and len(chunk) + len(batch) > wish.max_bytes:
                break
            chunk += batch
            next_offset = header.next_offset
        return ReadResult(chunk, next_offset, log.end, log.start, 0)

    def watch(self, wake: Callable[[], None]) -> FakeWatch:
        watch = FakeWatch(self, wake)
        self.watches.add(watch)
        return watch


class FakeWatch:
    def __init__(self, log: FakeLog, wake: Callable[[], None]) -> None:
        self._log = log
        self._wake = wake
        self._keys: set[PartitionKey] = set()
        self._moved: set[PartitionKey] = set()

    def add(self, key: PartitionKey) -> None:
        self._keys.add(key)

    def remove(self, key: PartitionKey) -> None:
        self._keys.discard(key)

    def moved(self) -> set[PartitionKey]:
        moved, self._moved = self._moved, set()
        return moved

    def close(self) -> None:
        self._log.watches.discard(self)

    def notify(self, key: PartitionKey) -> None:
        if key in self._keys:
            self._moved.add(key)
            self._wake()


def with_crc(batch: bytearray) -> bytes:
    """Return a batch with its CRC set anew."""
    batch[17:21] = google_crc32c.value(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


def undecodable_batch(*values: bytes) -> bytes:
    """A batch whose header and CRC are right, and whose records are not."""
    batch = bytearray(encode_batch([NewRecord(value) for value in values]))
    batch[61] = 0x7F
    return with_crc(batch)


def unopened_queue(topic_id: bytes = TOPIC_ID, **settings: Any) -> Queue:
    """A queue whose partitions the scan is to open."""
    return Queue(topic_id, QueueGroupSettings(**settings), random=lambda: 0.0, route=lambda key: 0)
