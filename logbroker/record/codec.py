"""Encoding of records into batches, and decoding.

The compiled codec of aiokafka does the work per record. This module adds names, the header, limits on the expanded size
of a batch, and one error for damaged bytes, CorruptBatchError. Format: Kafka's documentation, "Record Batch";
docs/FORMAT.md shows it.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import google_crc32c
import msgspec

from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    InvalidTimestampError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)
from logbroker.record.compression import Codec, compress, decompress
from logbroker.record.header import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAX_CODEC,
    MAX_EXPANDED_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    parse_header,
)
from logbroker.record.windows import MAX_HEADERS, windows

if TYPE_CHECKING:
    from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers in their order; a name may come twice."""
NO_HEADERS: Final[Headers] = ()
MAX_STAMP_MS: Final = (1 << 62) - 1
"""The last time that a record can carry, in milliseconds since 1970."""

MAX_LENGTH_BYTES: Final = 0x7FFF_FFFF
"""The largest length that a batch can state, for callers without a limit of their own."""

_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhi")
_LENGTH_AT: Final = 8
_CRC_AT: Final = 17
_PRODUCER_AT: Final = 43

T = TypeVar("T")


class NewRecord(msgspec.Struct, gc=False):
    """A record to be written. None as key or value is Kafka's null; no `timestamp_ms` means now."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class LogRecord(msgspec.Struct, gc=False):
    """A record of the log. `timestamp_ms` is -1 if it was written without one."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@functools.cache
def compiled_codec() -> tuple[type[DefaultRecordBatchBuilder], type[DefaultRecordBatch]]:
    """Return the compiled codec's builder and reader of batches."""
    # Imported late: the import loads all of aiokafka (0.1 s, 18 MB), which a broker that never decodes does not need.
    from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder, DefaultRecordBatch


class BatchBuilder:
    """One batch, encoded record by record.

    `append(index, timestamp_ms, key, value, headers)` is the compiled codec's own method, since it is called for every
    record. `index` counts up from 0; `timestamp_ms` None means now; `headers` must be a list. The result is an object
    with `.size` (bytes) and `.timestamp`, or None if the record was not added, because the batch would reach
    `batch_bytes` with it. The first record is always added. A call that raises TypeError has added nothing.
    """

    __slots__ = ("_builder", "_codec", "append", "size_bytes")

    def __init__(self, batch_bytes: int, codec: Codec = Codec.NONE) -> None:
        builder_class, _ = compiled_codec()
        self._builder = builder_class(MAGIC, 0, 0, NO_PRODUCER_ID, -1, -1, batch_bytes)
        self._codec = codec
        self.append: Callable[..., Any] = self._builder.append
        self.size_bytes: Callable[[], int] = self._builder.size
        """The bytes so far, before compression."""

    def build(self, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = -1, base_sequence: int = -1) -> bytes:
        """Finish the batch, and return it, compressed if that makes it smaller. Call it once."""
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
        batch = self._builder.build()
        if self._codec is Codec.NONE:
            return bytes(batch)
        packed = compress(self._codec, bytes(batch[HEADER_BYTES:]))
        if HEADER_BYTES + len(packed) >= len(batch):
            return bytes(batch)
        batch[HEADER_BYTES:] = packed
        struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - LENGTH_OVERHEAD_BYTES)
        _ATTRIBUTES.pack_into(batch, CRC_START, self._codec)
        return _with_crc(batch)


def encode_batch(
    records: Iterable[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return one batch of these records with offsets from 0.

    Raises ValueError if there are no records, InvalidTimestampError for a negative time, BatchExpandsTooFarError for
    more headers than readers accept, TypeError for a wrong type.
    """
    builder = BatchBuilder(MAX_LENGTH_BYTES, codec)
    index = 0
    for index, record in enumerate(records, 1):
        check_timestamp(record.timestamp_ms)
        if len(record.headers) > MAX_HEADERS:
            raise BatchExpandsTooFarError(f"a record has {len(record.headers)} headers; at most {MAX_HEADERS} are read")
        builder.append(index - 1, record.timestamp_ms, record.key, record.value, list(record.headers))
    if not index:
        raise ValueError("a batch needs at least one record")
    return builder.build(producer_id, producer_epoch, base_sequence)


_FITTING: Final = (Codec.ZSTD, Codec.GZIP)
"""Codecs for records that are too large uncompressed. The other codecs compress less."""


def encode_to_fit(records: Sequence[NewRecord], max_bytes: int) -> bytes:
    """Return one batch of these records, as `encode_batch` does. If it is larger than `max_bytes`, compress it; it may
    still be larger.

    Raises BatchExpandsTooFarError if the compressed batch would be too large, when expanded, for any reader.
    """
    batch = encode_batch(records)
    if len(batch) <= max_bytes:
        return batch
    if len(batch) - HEADER_BYTES > MAX_EXPANDED_BYTES:
        raise BatchExpandsTooFarError(
            f"the records take {len(batch) - HEADER_BYTES:,} bytes; readers expand a compressed batch to no more than"
            f" {MAX_EXPANDED_BYTES:,}"
        )
    for codec in _FITTING:
        batch = min(batch, encode_batch(records, codec=codec), key=len)
        if len(batch) <= max_bytes:
            break
    return batch


def check_timestamp(timestamp_ms: int | None) -> None:
    """Raise InvalidTimestampError for a time that a record cannot carry."""
    if timestamp_ms is not None and not 0 <= timestamp_ms <= MAX_STAMP_MS:
        raise InvalidTimestampError(f"{timestamp_ms} is not a record's time; give milliseconds since 1970, 0 or more")


def with_producer(batch: bytes, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """Return the batch with another producer id, epoch and sequence, and a new CRC."""
    stamped = bytearray(batch)
    _PRODUCER.pack_into(stamped, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    return _with_crc(stamped)


def _with_crc(batch: bytearray) -> bytes:
    _CRC.pack_into(batch, _CRC_AT, google_crc32c.value(bytes(batch[CRC_START:])))
    return bytes(batch)


def split_batches(buffer: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield every batch of a buffer of whole batches with its header, control batches included.

    Raises CorruptBatchError if the bytes are not whole batches, UnsupportedFormatError for another magic than 2.
    """
    position, end = 0, len(buffer)
    while position < end:
        if end - position < HEADER_BYTES:
            raise CorruptBatchError(f"{end - position} bytes are left at byte {position}, too few for a batch header")
        header = parse_header(buffer, position)
        if header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES or header.size_bytes > end - position:
            raise CorruptBatchError(
                f"the batch at byte {position} says it has {header.size_bytes} bytes, {end - position} are there"
            )
        if header.magic != MAGIC:
            raise UnsupportedFormatError(f"the batch at byte {position} has magic {header.magic}; only 2 is read")
        batch = buffer[position : position + header.size_bytes]
        yield header, batch
        position += header.size_bytes


def check_crc(header: BatchHeader, batch: bytes) -> None:
    """Raise CorruptBatchError if the CRC-32C of a batch does not match its bytes."""
    if google_crc32c.value(batch[CRC_START:]) != header.crc:
        raise CorruptBatchError(
            f"the CRC-32C of the batch at offset {header.base_offset} does not match its bytes; it was damaged"
        )


def decode_batch(batch: bytes, *, max_expanded_bytes: int = MAX_EXPANDED_BYTES) -> Iterator[LogRecord]:
    """Yield the records of exactly one batch, one by one.

    Does not check the CRC (`check_crc` does) and yields the records of a control batch, too (`BatchHeader.is_control`
    tells). Raises CorruptBatchError for bytes that are no batch, UnsupportedFormatError for another magic than 2,
    UnsupportedCompressionError for an unknown codec and BatchExpandsTooFarError if the records of a compressed batch
    take more than `max_expanded_bytes`; records before the damage may have been yielded by then.
    """
    return decode_records(batch, LogRecord, max_expanded_bytes=max_expanded_bytes)


def _ignore(size_bytes: int) -> None:
    pass


def decode_records(
    batch: bytes,
    make: Callable[[int, int, bytes | None, bytes | None, Headers], T],
    *,
    max_expanded_bytes: int = MAX_EXPANDED_BYTES,
    on_expanded: Callable[[int], None] = _ignore,
) -> Generator[T, None, None]:
    """Decode as `decode_batch` does, yielding `make(offset, timestamp_ms, key, value, headers)` for each record.

    Before the first record, `on_expanded` is called with the size of the batch without compression, in bytes."""
    header, plain = expanded_batch(batch, max_expanded_bytes)
    on_expanded(len(plain))
    _, batch_class = compiled_codec()
    # Called here, not in the `except` clause: an iterator that is still open when the program ends can import nothing.
    errors = decoding_errors()
    # Offsets must rise within the batch: a reader's position depends on it, and the broker does not look inside.
    previous, last = header.base_offset - 1, header.base_offset + header.last_offset_delta
    try:
        for record in chain.from_iterable(map(batch_class, windows(header, plain))):
            offset = record.offset
            if not previous < offset <= last:
                raise CorruptBatchError(f"the batch at offset {header.base_offset} holds a record of offset {offset}")
            previous = offset
            stamp = record.timestamp
            headers = record.headers
            yield make(
                offset, -1 if stamp is None else stamp, record.key, record.value, tuple(headers) if headers else ()
            )
    except (CorruptBatchError, BatchExpandsTooFarError):
        raise
    except errors as error:
        raise CorruptBatchError(f"the batch at offset {header.base_offset} cannot be decoded: {error}") from None


@functools.cache
def decoding_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that the compiled codec raises for damaged bytes."""
    from aiokafka.errors import CorruptRecordException  # Late for the reason that compiled_codec gives.

    # A length near 2^63 overflows in the compiled codec and comes back as one of the last two.
    return CorruptRecordException, UnicodeDecodeError, OverflowError, MemoryError


def expanded_batch(batch: bytes, max_expanded_bytes: int = MAX_EXPANDED_BYTES) -> tuple[BatchHeader, bytes | bytearray]:
    """Return the header and the uncompressed batch. Raises as `decode_batch` does.

    The result is always a separate buffer: CPython keeps a NUL after it, which ends a varint that runs past the end.
    """
    if len(batch) < HEADER_BYTES:
        raise CorruptBatchError(f"the batch ends after {len(batch)} bytes, inside its {HEADER_BYTES}-byte header")
    header = parse_header(batch)
    if header.magic != MAGIC:
        raise UnsupportedFormatError(f"the batch has magic {header.magic}; only 2 is read")
    if header.size_bytes != len(batch):
        raise CorruptBatchError(f"the batch says it has {header.size_bytes} bytes, {len(batch)} are there")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise CorruptBatchError(f"the batch at offset {header.base_offset} counts {header.record_count} records")
    if header.codec == Codec.NONE:
        return header, bytes(batch)
    if header.codec > MAX_CODEC:
        raise UnsupportedCompressionError(f"codec {header.codec} is unknown; Kafka has no such codec")
    fields = list(msgspec.structs.astuple(header))
    fields[5] = header.attributes & ~CODEC_MASK
    head = HEADER.pack(*fields)
    return header, decompress(Codec(header.codec), batch[HEADER_BYTES:], max_expanded_bytes, head=head)
