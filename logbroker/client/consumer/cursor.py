"""The position of a consumer: splits the received chunks into batches and records, and knows the next offset of each
partition.

No I/O: the asynchronous and the synchronous consumer bring the chunks. `records` belongs to the open batch and keeps
its place, so that a loop over records may be left and begun again at the next one.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Mapping
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
from logbroker.types import TopicPartition

_UNKNOWN_BYTES: Final = 1 << 62
_OF_CODEC: Final = (BatchExpandsTooFarError, CorruptBatchError, UnsupportedCompressionError)
"""Errors of one batch, which do not know where it lies."""


class Record(Decoding, msgspec.Struct, gc=False):
    """A record of the log. `timestamp_ms` counts from 1970, by the producer's clock or the broker's.

    `text()`, `json()`, `msgpack()` and `decode(function)` make objects of its value, `header(name)` finds a header.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def priority(self) -> int:
        """The priority: 0 to 9, where 9 is the most urgent; 4 if the headers state none."""
        return priority_of(self.headers)


def _nothing() -> Generator[Record, None, None]:
    yield from ()


def _from_offset(records: Iterator[Record], first: int) -> Generator[Record, None, None]:
    for record in records:
        if record.offset >= first:
            yield record


def _before(record: Record, rest: Iterator[Record]) -> Generator[Record, None, None]:
    yield record
    # Not `yield from`: that would close the rest with this one.
    for each in rest:  # noqa: UP028
        yield each


def _check_continues(chunk: Chunk, first: int, end: int = 0) -> None:
    """Raise CorruptLogError where a batch from `first` to before `end`, or the end of a chunk, does not go on at the
    position: only the first one behind a move may begin before it.

    The broker checks that before it sends them. Records that were passed over in silence would be lost to the program.
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
    """Whether everything before `end` was delivered before the chunk came. This happens to a batch that was open when
    the reader was moved back to its beginning (since another generation of the topic is to be read) and that was then
    delivered whole."""
    assigned = chunk.assigned
    return chunk.gaps_below is not None and end <= assigned.position and assigned.continued != assigned.version


def _check_intact(chunk: Chunk, header: BatchHeader, batch: bytes) -> None:
    """Raise CorruptLogError for a batch that differs from what the producer sent."""
    try:
        check_crc(header, batch)
    except CorruptBatchError:
        raise CorruptLogError(
            f"{chunk.assigned.partition}: the CRC-32C of the batch at offset {header.base_offset} does not match its"
            " bytes; nothing is delivered from there on. Check the broker's files with `logbroker segment verify`"
        ) from None


class Cursor:
    """The place of one consumer in the chunks it was given."""

    def __init__(self, max_expanded_bytes: int) -> None:
        self.records: Generator[Record, None, None] = _nothing()
        """The records of the open batch that were not delivered yet."""
        self.last: Record | None = None
        """The last delivered record of the open batch. The deliverer sets it."""
        self.assigned: Assigned | None = None
        """The partition to which the open batch belongs, or else the chunk."""
        self.open_bytes = 0
        """A bound on the decoded size of the open batch's records. Until the first of them is decoded, it is higher
        than any limit."""
        self._source: Iterator[Record] = self.records
        """The iterator that decodes the records of the open batch. A record that was put back does not come from it."""
        self._unfinished: dict[Assigned, int] = {}
        """The first offset of each partition that was handed out since the program asked last, where `last` does not
        tell."""
        self._header: BatchHeader | None = None
        self._version = 0
        """The partition's version when the open batch was opened."""
        self._chunk: Chunk | None = None
        self._batches: Iterator[tuple[BatchHeader, bytes]] = iter(())
        self._max_expanded_bytes = max_expanded_bytes

    def take(self, chunk: Chunk) -> None:
        """Begin with a chunk; the one before must be at its end."""
        self._chunk = chunk
        self.assigned = chunk.assigned
        self._batches = split_batches(chunk.batches)

    def advance(self, ends: Mapping[TopicPartition, int] | None = None) -> bool:
        """Leave the open batch, all of whose records were delivered, and open the next; False where a chunk is needed.

        With `ends`, batches from these offsets on are left out, and those of partitions that are not in it. Raises what
        makes a batch unreadable, and then has not moved.
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
                    assigned.continued = -1 if chunk.gaps_below is None else assigned.version
                    # Where the log was cut, all that comes since is from below the cut on.
                    assigned.cut_offset = None
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
        make = functools.partial(Record, assigned.partition.topic, assigned.partition.partition)
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
            # Where the partition was moved meanwhile, what comes behind the move may begin before this.
            self.assigned.continued = self._version
        self._header = self.last = None
        self.records = self._source = _nothing()

    def put_back(self, record: Record) -> None:
        """Put back the record that was taken last from the open batch, to be delivered later."""
        self.records = _before(record, self._source)

    def undecodable(self, error: LogbrokerError) -> LogbrokerError:
        """Return the error of a batch that cannot be decoded with its place and a way on; any other error as it is."""
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
        """Note that the program asks for more, and so has finished all that it was given."""
        self._unfinished.clear()

    def hand_out(self, records: list[Record], first: int) -> None:
        """Note that `records[first:]`, the next ones of the open batch, are given to the program as part of a list."""
        assert self.assigned is not None
        # In this order: see `finished`.
        self._unfinished.setdefault(self.assigned, records[first].offset)
        self.last = records[-1]

    def finished(self, assigned: Assigned) -> int:
        """Return the offset up to which the program has finished: never too high, perhaps one record too low.

        Another thread may be handing out records meanwhile, so the order of reading matters: what moves `last` and the
        position forward has put down before what is unfinished.
        """
        last = self.last
        offset = assigned.position
        if last is not None and (last.topic, last.partition) == assigned.partition:
            # It was handed out last; only the next question tells that it is finished.
            offset = last.offset
        return min(offset, self._unfinished.get(assigned, offset))

    def settle(self) -> None:
        """Set the position of the open batch's partition to the record after the last one delivered."""
        if self._header is not None and self.assigned is not None and self.last is not None:
            self.assigned.position = self.last.offset + 1

    def stop(self) -> None:
        """Deliver no more records of the open batch. May be called from another thread than the loop over records; a
        batch that is being decoded at that moment goes on."""
        with suppress(ValueError):
            self.records.close()

    def drop(self) -> None:
        """Forget the open batch and its chunk. The position says which records were delivered."""
        if self.last is not None and self.assigned is not None:
            self._unfinished.setdefault(self.assigned, self.last.offset)
        self.settle()
        if self.assigned is not None:
            self.assigned.continued = -1
        self.records.close()
        self._header = self.last = self._chunk = self.assigned = None
        self.records = self._source = _nothing()
