"""The position of a consumer: splits the received chunks into batches and records, and knows the next offset of each
partition.

It does no I/O: the asynchronous and the synchronous consumer pass the chunks in. `records` belongs to the open batch
and keeps its position, so that a loop over records can be left and continued at the next record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from logbroker.client.consumer.fetcher import Assigned, Chunk
from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    CorruptLogError,
    LogbrokerError,
    UnsupportedCompressionError,
)
from logbroker.record.codec import Headers, check_crc, decode_records, split_batches
from logbroker.record.compression import Codec
from logbroker.record.header import BatchHeader
from logbroker.record.message_headers import priority_of
from logbroker.record.serializers import Decoding
from logbroker.types import TopicId, TopicPartition

_UNKNOWN_BYTES: Final = 1 << 62
_OF_CODEC: Final = (BatchExpandsTooFarError, CorruptBatchError, UnsupportedCompressionError)
"""Errors of a single batch. Their messages do not say where the batch is."""


class Record(Decoding, msgspec.Struct, gc=False):
    """A record of the log. `timestamp_ms` is in milliseconds since 1970, by the producer's clock or the broker's.

    `text()`, `json()`, `msgpack()` and `decode(function)` turn the value into an object; `header(name)` finds a header.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic_id: TopicId = TopicId(b"")
    """The id of the topic. A topic that is deleted and created again has another one."""

    @property
    def priority(self) -> int:
        """The priority: 0 to 9, where 9 is the most urgent; 4 if the headers contain none."""
        return priority_of(self.headers)


class MergedRecord(Record, gc=False):
    """A record of `Consumer.merged`: a `Record` that may be late."""

    late: bool = False
    """Whether a record with a higher sequence was handed out before."""


def _maker(
    record_type: type[Record], assigned: Assigned
) -> Callable[[int, int, bytes | None, bytes | None, Headers], Record]:
    """Return a function that makes records of a partition. It costs less per record than `functools.partial` with a
    keyword."""
    (topic, partition), topic_id = assigned.partition, assigned.topic_id
    return lambda offset, timestamp_ms, key, value, headers: record_type(
        topic, partition, offset, timestamp_ms, key, value, headers, topic_id
    )


def _nothing() -> Generator[Record, None, None]:
    yield from ()


def _from_offset(records: Iterator[Record], first: int) -> Generator[Record, None, None]:
    for record in records:
        if record.offset >= first:
            yield record


def _before(record: Record, rest: Iterator[Record]) -> Generator[Record, None, None]:
    yield record
    # `yield from` is not used, because closing this generator would then close `rest`, too.
    for each in rest:  # noqa: UP028
        yield each


def _check_continues(chunk: Chunk, first: int, end: int = 0) -> None:
    """Raise CorruptLogError if a batch from `first` to before `end`, or the end of a chunk, does not continue at the
    position. Only the first batch after a move may begin before the position.

    The broker checks this before it sends batches. The check here makes sure that no record is skipped silently.
    """
    assigned, position = chunk.assigned, chunk.assigned.position
    if first == position or (first < position < end and assigned.continued != assigned.version):
        return
    if chunk.gaps_below is None or position < first < chunk.gaps_below:
        return
    raise CorruptLogError(
        f"{chunk.assigned.partition}: the broker sent offset {first} where {position} comes next; nothing is delivered"
        " from there on. Check the broker's files with `logbroker segment verify`"
    )


def _is_past(chunk: Chunk, end: int) -> bool:
    """Whether all records before `end` were delivered before. This happens if the fetcher moves back to the beginning
    of an open batch, because another generation has to be read. The program then receives the rest of the open batch,
    and the same batch arrives again."""
    assigned = chunk.assigned
    return chunk.gaps_below is not None and end <= assigned.position and assigned.continued != assigned.version


def _check_intact(chunk: Chunk, header: BatchHeader, batch: bytes) -> None:
    """Raise CorruptLogError if a batch differs from the one that the producer sent."""
    try:
        check_crc(header, batch)
    except CorruptBatchError:
        raise CorruptLogError(
            f"{chunk.assigned.partition}: the CRC-32C of the batch at offset {header.base_offset} does not match its"
            " bytes; nothing is delivered from there on. Check the broker's files with `logbroker segment verify`"
        ) from None


class Cursor:
    """The position of one consumer within the chunks that it received."""

    def __init__(self, max_expanded_bytes: int) -> None:
        self.records: Generator[Record, None, None] = _nothing()
        """The undelivered records of the open batch."""
        self.last: Record | None = None
        """The last delivered record of the open batch. The code that delivers records sets it."""
        self.assigned: Assigned | None = None
        """The partition of the open batch, or of the chunk if no batch is open."""
        self.open_bytes = 0
        """An upper bound for the decoded size of the open batch's remaining records. It is higher than any limit until
        the first record is decoded."""
        self.record_type: type[Record] = Record
        """The class of the records."""
        self._source: Iterator[Record] = self.records
        """The iterator that decodes the records of the open batch. A record that was put back does not come from it."""
        self._unfinished: dict[Assigned, int] = {}
        """For each partition, the offset of the first record that the program received since it last asked for records,
        unless `last` shows it."""
        self._header: BatchHeader | None = None
        self._version = 0
        """The partition's version when the open batch was opened."""
        self._chunk: Chunk | None = None
        self._batches: Iterator[tuple[BatchHeader, bytes]] = iter(())
        self._max_expanded_bytes = max_expanded_bytes

    def take(self, chunk: Chunk) -> None:
        """Begin with a chunk. The previous chunk must be at its end."""
        self._chunk = chunk
        self.assigned = chunk.assigned
        self._batches = split_batches(chunk.batches)

    def advance(self, ends: Mapping[TopicPartition, int] | None = None) -> bool:
        """Close the open batch, whose records were all delivered, and open the next one. Return False if a new chunk is
        needed.

        With `ends`, batches from these offsets on are left out, and so are partitions that `ends` does not name. Raises
        the error of an unreadable batch; the position is then unchanged.
        """
        self._leave_batch()
        while self._chunk is not None:
            chunk, assigned = self._chunk, self._chunk.assigned
            wanted = chunk.version == assigned.version and (
                ends is None or assigned.position < ends.get(assigned.partition, 0)
            )
            item = next(self._batches, None) if wanted else None
            if item is None:
                if wanted and not _is_past(chunk, chunk.next_offset + 1):
                    _check_continues(chunk, chunk.next_offset)
                    assigned.position = chunk.next_offset
                    if chunk.gaps_below is None:
                        # The reset policy has moved the position: to the cut, if the log was cut.
                        assigned.continued, assigned.cut_offset = -1, None
                    else:
                        assigned.continued = assigned.version
                self._chunk = self.assigned = None
                continue
            header, batch = item
            _check_intact(chunk, header, batch)
            if _is_past(chunk, header.next_offset):
                continue
            _check_continues(chunk, header.base_offset, header.next_offset)
            if header.is_control:
                assigned.position = header.next_offset
                assigned.continued = assigned.version
                continue
            self._open(assigned, header, batch)
            return True
        return False

    def _open(self, assigned: Assigned, header: BatchHeader, batch: bytes) -> None:
        make = _maker(self.record_type, assigned)
        records = decode_records(batch, make, max_expanded_bytes=self._max_expanded_bytes, on_expanded=self._expanded)
        first = assigned.position
        self._version = assigned.version
        assigned.has_read = True
        self.records = self._source = _from_offset(records, first) if header.base_offset < first else records
        self.open_bytes = header.size_bytes if header.codec == Codec.NONE else _UNKNOWN_BYTES
        self._header = header

    def _expanded(self, size_bytes: int) -> None:
        self.open_bytes = size_bytes

    def _leave_batch(self) -> None:
        if self._header is not None and self.assigned is not None:
            self.assigned.position = self._header.next_offset
            # If the partition was moved while this batch was open, the first batch after the move may begin before this
            # position.
            self.assigned.continued = self._version
        self._header = self.last = None
        self.records = self._source = _nothing()

    def put_back(self, record: Record) -> None:
        """Put back the record that was last taken from the open batch, so that it is delivered later."""
        self.records = _before(record, self._source)

    def undecodable(self, error: LogbrokerError) -> LogbrokerError:
        """Return the error of an undecodable batch with its offset and advice. Return any other error unchanged."""
        if self.assigned is None or self._header is None or not isinstance(error, _OF_CODEC):
            return error
        partition, header = self.assigned.partition, self._header
        self.settle()
        return type(error)(
            f"{partition}, offset {self.assigned.position}: {error.message}. To go on behind this batch, seek to"
            f" {header.next_offset}; to look into it, use `logbroker segment dump`"
        )

    # --- what the program has finished ------------------------------------------------------------------------------

    def asked(self) -> None:
        """Note that the program asks for more, and so has finished all records that it was given."""
        self._unfinished.clear()

    def hand_out(self, records: list[Record], first: int) -> None:
        """Note that `records[first:]`, the next records of the open batch, are handed out as part of a list."""
        assert self.assigned is not None
        # The order matters: see `finished`.
        self._unfinished.setdefault(self.assigned, records[first].offset)
        self.last = records[-1]

    def finished(self, assigned: Assigned) -> int:
        """Return the offset up to which the program has finished. It is never too high, but may be one record too low.

        Another thread may be handing out records at the same time, so the order of the reads matters: code that moves
        `last` or the position forward has stored the unfinished offset before.
        """
        last = self.last
        offset = assigned.position
        if last is not None and (last.topic, last.partition) == assigned.partition:
            # The program has the last record. It counts as finished only when the program asks for the next.
            offset = last.offset
        return min(offset, self._unfinished.get(assigned, offset))

    def handed_out(self, assigned: Assigned) -> int:
        """Return the offset after the last record that the program was given."""
        last = self.last
        if last is not None and self.assigned is assigned:
            return max(last.offset + 1, assigned.position)
        return assigned.position

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the open batch."""
        assert self._header is not None
        return self._header.leader_epoch

    def settle(self) -> None:
        """Set the position of the open batch's partition to the offset after the last delivered record."""
        if self._header is not None and self.assigned is not None and self.last is not None:
            self.assigned.position = self.last.offset + 1

    def stop(self) -> None:
        """Deliver no more records of the open batch. May be called in another thread than the loop over records. A
        batch that is being decoded at that moment is not interrupted."""
        with suppress(ValueError):
            self.records.close()

    def drop(self) -> None:
        """Forget the open batch and its chunk. The position still says which records were delivered."""
        if self.last is not None and self.assigned is not None:
            self._unfinished.setdefault(self.assigned, self.last.offset)
        self.settle()
        if self.assigned is not None:
            self.assigned.continued = -1
        self.records.close()
        self._header = self.last = self._chunk = self.assigned = None
        self.records = self._source = _nothing()
