"""A batch of the log that is decoded in parts: one field of all its records, or some of its records.

If a reader needs few records of each batch, it would spend most of its time on decoding the other records. So a batch
is kept as bytes, with the position at which each record begins. To decode some records, of one batch or of many, their
bytes are put behind a new header with offset and time 0. The decoded offsets and times are then relative, and the base
offset and base time of each record's batch are added.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from sys import getsizeof
from typing import Any, Final

from logbroker.errors import BatchExpandsTooFarError, CorruptBatchError, OffsetOutOfRangeError
from logbroker.record.codec import (
    LogRecord,
    check_crc,
    compiled_codec,
    decoding_errors,
    expanded_batch,
    split_batches,
)
from logbroker.record.header import (
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    parse_header,
)
from logbroker.record.windows import MAX_HEADERS, WINDOW_BYTES, windows

MAX_RECORDS: Final = 1_000_000
"""Maximum number of records that are read from one batch. A small compressed batch may hold millions of empty records,
which would be hundreds of MB of objects."""

KEPT_EXPANDED_BYTES: Final = 8 * 1024 * 1024
"""Maximum expanded bytes that an idle compressed batch keeps in addition to its compressed bytes."""

_COUNT: Final = struct.Struct(">i")
_JOINED: Final = HEADER.pack(0, 0, 0, MAGIC, 0, 0, 0, 0, 0, NO_PRODUCER_ID, -1, -1, 0)[: -_COUNT.size]
"""The header of records of several batches: offsets and times count from 0."""
_EARLIEST_MS: Final = -(1 << 63)
_LATEST_MS: Final = (1 << 63) - 1


class StoredBatch:
    """One batch as it lies in the log.

    Reading raises CorruptBatchError, UnsupportedFormatError, UnsupportedCompressionError or BatchExpandsTooFarError. If
    the batch is large or compressed, read it in a thread. Thread-safe.
    """

    __slots__ = ("_index", "_plain", "header", "raw")

    def __init__(self, header: BatchHeader, raw: bytes) -> None:
        self.header = header
        self.raw = raw
        self._plain: bytes | bytearray | None = None
        self._index: tuple[Sequence[int], array[int]] | None = None
        """The offsets of the records, and the position of each record in the plain bytes; the last position is the
        end."""

    @property
    def size_bytes(self) -> int:
        """The bytes kept in memory, approximately."""
        size_bytes = len(self.raw)
        if self._plain is not None and self._plain is not self.raw:
            size_bytes += getsizeof(self._plain)
        if self._index is not None:
            size_bytes += 4 * len(self._index[1])
        return size_bytes

    @property
    def is_open(self) -> bool:
        """Whether single records can be read without expanding or indexing the batch first."""
        return self._index is not None and self._plain is not None

    def plain(self) -> bytes | bytearray:
        """Return the uncompressed batch. Its CRC is checked whenever the batch is expanded."""
        plain = self._plain
        if plain is None:
            header = self.header
            if header.record_count > MAX_RECORDS:
                raise BatchExpandsTooFarError(
                    f"the batch at offset {header.base_offset} has {header.record_count} records; at most"
                    f" {MAX_RECORDS} are read"
                )
            check_crc(header, self.raw)
            self._plain = plain = expanded_batch(self.raw)[1]
        return plain

    def let_go(self) -> None:
        """Forget the expanded bytes if they are many. They are expanded again when they are needed."""
        if self._plain is not None and self._plain is not self.raw and len(self._plain) > KEPT_EXPANDED_BYTES:
            self._plain = None

    # --- a column of all records -------------------------------------------------------------------------------------

    def column(self, field: str, *more: str) -> tuple[Sequence[int], list[Any]]:
        """Decode all records, and return their offsets (a range if they have no gaps) and one of their fields: "key",
        "headers", "timestamp" or "offset". With several fields, the values are tuples."""
        fields = (field, *more)
        offsets: list[int] = []
        values: list[Any] = []
        headers_left = MAX_HEADERS
        add, add_value, get = offsets.append, values.append, attrgetter(*fields)
        try:
            for window in windows(self.header, self.plain()):
                begun = len(values)
                for record in compiled_codec()[1](window):
                    add(record.offset)
                    add_value(get(record))
                if "headers" in fields and len(self.plain()) > WINDOW_BYTES:
                    added = values[begun:]
                    lists = added if not more else map(itemgetter(fields.index("headers")), added)
                    headers_left -= sum(map(len, lists))
                    if headers_left < 0:
                        raise _too_many_headers(f"the batch at offset {self.header.base_offset}")
        except decoding_errors() as error:
            raise self._corrupt(error) from None
        return self._checked(offsets), values

    def _checked(self, offsets: list[int]) -> Sequence[int]:
        """Raise CorruptBatchError unless the offsets ascend: readers depend on it, and the broker does not check."""
        header = self.header
        dense = range(header.base_offset, header.next_offset)
        if len(offsets) == len(dense) and offsets == list(dense):
            return dense
        previous = header.base_offset - 1
        for offset in offsets:
            if not previous < offset < header.next_offset:
                raise self._corrupt(f"it holds a record of offset {offset}")
            previous = offset
        return offsets

    # --- some records ------------------------------------------------------------------------------------------------

    def records(self, offsets: Sequence[int]) -> list[LogRecord]:
        """Decode the records at these offsets. Also raises OffsetOutOfRangeError if there is no such record."""
        pieces = Pieces()
        pieces.add(self, offsets)
        try:
            return pieces.records()
        except CorruptBatchError as error:
            raise self._corrupt(error.message) from None

    def index(self) -> tuple[Sequence[int], array[int]]:
        """Return the offsets and the positions of all records, as in `_index`. They are computed once."""
        if self._index is None:
            header = self.header
            if header.record_count == header.last_offset_delta + 1:
                offsets: Sequence[int] = range(header.base_offset, header.next_offset)
            else:
                offsets, _ = self.column("offset")
            self._index = offsets, self._positions(len(offsets))
        return self._index

    def _positions(self, count: int) -> array[int]:
        """Go from record to record by their lengths, which are zigzag varints of at most five bytes."""
        plain = self.plain()
        end = len(plain)
        positions = array("I")
        add = positions.append
        position = HEADER_BYTES
        for _ in range(count):
            if position >= end:
                break
            add(position)
            length = plain[position]
            position += 1
            if length >= 0x80:
                length &= 0x7F
                for shift in (7, 14, 21, 28):
                    # At the end, take 0 for the missing byte: Python code cannot read the NUL that CPython keeps there.
                    byte = plain[position] if position < end else 0
                    position += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
            if length & 1:
                raise self._corrupt(f"a record at byte {positions[-1]} has a negative length")
            position += length >> 1
        if position != end or len(positions) != count:
            raise self._corrupt(f"its bytes do not hold exactly the {count} records that its header counts")
        add(end)
        return positions

    def _corrupt(self, why: object) -> CorruptBatchError:
        return CorruptBatchError(f"the batch at offset {self.header.base_offset} cannot be decoded: {why}")


class Pieces:
    """Records of any number of batches, decoded as one batch: a call of the codec costs as much as ten records."""

    def __init__(self) -> None:
        self._bytes: list[bytes | bytearray | memoryview] = []
        self._offsets: list[int] = []
        self._headers: list[BatchHeader] = []

    def add(self, batch: StoredBatch, offsets: Sequence[int]) -> int:
        """Add the records at these offsets; return how many bytes they take.

        Raises the errors of reading the batch, and OffsetOutOfRangeError if there is no such record.
        """
        plain, (known, positions) = batch.plain(), batch.index()
        begun = len(self._bytes)
        # Slices of a large batch are taken from a view, because copies would double its memory.
        whole: bytes | bytearray | memoryview = plain if len(plain) <= KEPT_EXPANDED_BYTES else memoryview(plain)
        for offset in offsets:
            at = offset - known.start if isinstance(known, range) else bisect_left(known, offset)
            if not 0 <= at < len(known) or known[at] != offset:
                del self._bytes[begun:]
                raise OffsetOutOfRangeError(f"the batch has no record at offset {offset}")
            self._bytes.append(whole[positions[at] : positions[at + 1]])
        self._offsets += offsets
        self._headers += repeat(batch.header, len(offsets))
        return sum(map(len, self._bytes[begun:]))

    def records(self) -> list[LogRecord]:
        """Decode the added records. Raises CorruptBatchError if any cannot be decoded, and BatchExpandsTooFarError if
        they have more than MAX_HEADERS headers."""
        found: list[LogRecord] = []
        headers_left = MAX_HEADERS
        joined = b"".join((_JOINED, _COUNT.pack(len(self._bytes)), *self._bytes))
        try:
            decoded = chain.from_iterable(map(compiled_codec()[1], windows(parse_header(joined), joined)))
            for record, offset, header in zip(decoded, self._offsets, self._headers, strict=True):
                if record.offset != offset - header.base_offset:
                    raise CorruptBatchError("its records have other offsets than its header says")
                stamp, headers = record.timestamp, record.headers
                if header.attributes & LOG_APPEND_TIME_FLAG:
                    stamp = header.max_timestamp_ms
                else:
                    # The codec returns None for a timestamp of -1.
                    stamp = header.first_timestamp_ms + (-1 if stamp is None else stamp)
                    if not _EARLIEST_MS <= stamp <= _LATEST_MS:
                        raise CorruptBatchError(f"its record of offset {offset} has a time that no record can have")
                headers_left -= len(headers)
                if headers_left < 0:
                    raise _too_many_headers("the set of records that are decoded together")
                found.append(LogRecord(offset, stamp, record.key, record.value, tuple(headers) if headers else ()))
        except decoding_errors() as error:
            raise CorruptBatchError(str(error)) from None
        return found


def stored_batches(buffer: bytes) -> Iterator[StoredBatch]:
    """Yield every batch of a buffer of whole batches, control batches included; raises as `split_batches` does."""
    for header, raw in split_batches(buffer):
        yield StoredBatch(header, raw)


def _too_many_headers(where: str) -> BatchExpandsTooFarError:
    return BatchExpandsTooFarError(f"{where} has more than {MAX_HEADERS} headers of records; no more are read")
