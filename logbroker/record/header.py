"""The 61-byte header of a RecordBatch (Kafka's magic 2): read, check, patch.

The broker's log path reads only the header of a batch, and checks the CRC. What follows the header is stored and sent
as opaque bytes. Format: Kafka's documentation, "Record Batch"; the table is in docs/FORMAT.md. All integers are
big-endian.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c
import msgspec

from logbroker.errors import (
    CorruptBatchError,
    InvalidRecordError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
"""61."""

LENGTH_OVERHEAD_BYTES: Final = 12
"""Bytes that `length` does not count: the base offset and `length` itself."""
CRC_START: Final = 21
"""The first byte that the CRC covers (attributes)."""
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DEFINED_ATTRIBUTES: Final = CODEC_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
"""Kafka defines one more attribute, bit 6, which its compaction uses for the removal of tombstones. No producer sets
it."""
MAX_CODEC: Final = 4
"""none 0, gzip 1, snappy 2, lz4 3, zstd 4."""

MIN_RECORD_BYTES: Final = 7
"""Size of an encoded record without key, value and headers."""
MAX_EXPANDED_BYTES: Final = 64 * 1024 * 1024
"""Maximum expanded size of a compressed batch: four times the highest max.message.bytes that users may set."""

NO_PRODUCER_ID: Final = -1
MAX_SEQUENCE: Final = 0x7FFF_FFFF

_PREFIX = struct.Struct(">qii")
PREFIX_BYTES: Final = _PREFIX.size
"""16: base offset, length and leader epoch. The broker replaces these fields; the CRC does not cover them."""
_MAX_TIMESTAMP_AT: Final = 35
_ATTRIBUTES_AT: Final = 21
_CRC_AT: Final = 17


class BatchHeader(msgspec.Struct, gc=False):
    """The fields of a header, in the order in which they lie in the file."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + LENGTH_OVERHEAD_BYTES

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, modulo 2^31."""
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the header that begins at `position`. Checks only that 61 bytes are there (struct.error)."""
    return BatchHeader(*HEADER.unpack_from(buffer, position))


def check_new_batch(batch: bytes | memoryview) -> BatchHeader:
    """Check one batch as a producer sent it and return its header.

    Raises CorruptBatchError (lengths, counts, CRC), UnsupportedFormatError (magic), InvalidRecordError (a control or
    transactional batch, a batch that a broker stamped, unknown attributes, or a half-filled producer id) or
    UnsupportedCompressionError.
    """
    size_bytes = len(batch)
    if size_bytes < HEADER_BYTES:
        raise CorruptBatchError(f"the batch ends after {size_bytes} bytes, inside its {HEADER_BYTES}-byte header")
    header = BatchHeader(*HEADER.unpack_from(batch))
    codec = header.attributes & CODEC_MASK
    if header.magic != MAGIC:
        raise UnsupportedFormatError(f"the batch has magic {header.magic}; send magic 2 (Kafka 0.11 and later)")
    if header.length != size_bytes - LENGTH_OVERHEAD_BYTES:
        raise CorruptBatchError(
            f"the batch says it has {header.size_bytes} bytes, but {size_bytes} were sent; send exactly one whole batch"
        )
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise CorruptBatchError(
            f"the batch counts {header.record_count} records, but its last offset delta is {header.last_offset_delta}"
        )
    expanded_bytes = MAX_EXPANDED_BYTES if codec else size_bytes - HEADER_BYTES
    if header.record_count > expanded_bytes // MIN_RECORD_BYTES:
        raise CorruptBatchError(f"the batch counts {header.record_count} records, more than fit into its bytes")
    if google_crc32c.value(bytes(batch[CRC_START:])) != header.crc:
        raise CorruptBatchError("the CRC-32C of the batch does not match its bytes; it was damaged on the way")
    if header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG | LOG_APPEND_TIME_FLAG):
        raise InvalidRecordError(
            "the batch is transactional, a control batch or stamped by a broker; send ordinary batches"
        )
    if unknown := header.attributes & ~DEFINED_ATTRIBUTES & 0xFFFF:
        # A later format may give these bits a meaning, which this broker would ignore.
        raise InvalidRecordError(f"the batch has the attribute bits 0x{unknown:04x} set, which have no meaning here")
    if codec > MAX_CODEC:
        raise UnsupportedCompressionError(f"codec {codec} is unknown; use none, gzip, snappy, lz4 or zstd")
    if header.producer_id != NO_PRODUCER_ID and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecordError("a batch with a producer id needs a producer epoch and a base sequence")
    return header


def stored_prefix(base_offset: int, length: int, leader_epoch: int) -> bytes:
    """Return the 16 bytes that replace a new batch's first 16 when it is stored."""
    return _PREFIX.pack(base_offset, length, leader_epoch)


def stamped_with_append_time(batch: bytes | memoryview, timestamp_ms: int) -> bytes:
    """Return the batch with the broker's time as its max timestamp, the LogAppendTime flag set and a new CRC."""
    stamped = bytearray(batch)
    (attributes,) = struct.unpack_from(">h", stamped, _ATTRIBUTES_AT)
    struct.pack_into(">h", stamped, _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_FLAG)
    struct.pack_into(">q", stamped, _MAX_TIMESTAMP_AT, timestamp_ms)
    struct.pack_into(">I", stamped, _CRC_AT, google_crc32c.value(bytes(stamped[CRC_START:])))
    return bytes(stamped)
