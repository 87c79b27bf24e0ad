"""Conversion of fetched batches to plain records, for clients without a codec.

Each record is serialized as soon as it is decoded: one message with all records would hold each record two more times.
The read budget counts the result, because it may be a thousand times as large as the bytes read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from logbroker.broker.read_budget import ReadBudget
from logbroker.errors import LogbrokerError
from logbroker.grpc_api.status import item_status
from logbroker.grpc_api.wire_format import bytes_tag, encode_varint
from logbroker.record.codec import LogRecord, check_crc, decode_batch, split_batches
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.v1.common_pb2 import Header, StoredRecord
from logbroker.v1.log_pb2 import FetchResult

INLINE_BYTES: Final = 16 * 1024
"""Maximum bytes that are decoded on the event loop. Larger or compressed batches go to a thread."""
_LARGE_BYTES: Final = 256 * 1024
"""Size above which a value, key or header is not copied into a message."""


_RECORDS_TAG: Final = bytes_tag(FetchResult.RECORDS_FIELD_NUMBER)
_KEY_TAG: Final = bytes_tag(StoredRecord.KEY_FIELD_NUMBER)
_VALUE_TAG: Final = bytes_tag(StoredRecord.VALUE_FIELD_NUMBER)
_HEADERS_TAG: Final = bytes_tag(StoredRecord.HEADERS_FIELD_NUMBER)
_HEADER_VALUE_TAG: Final = bytes_tag(Header.VALUE_FIELD_NUMBER)

T = TypeVar("T")

# A separate thread: readers do not wait for producers whose records are being encoded.
_decoder: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plain decoder")


async def plain_records(
    result: FetchResult, batches: bytes, offset: int, max_bytes: int, budget: ReadBudget, held_bytes: int
) -> list[bytes]:
    """Decode `batches` from `offset` on, at most about `max_bytes`, and set `result.next_offset`.

    Return the field `records` of the result in wire format, in parts. `held_bytes` are the bytes of the budget that the
    caller already holds. If the first batch cannot be decoded, the item fails; if a later batch cannot, the item ends
    before it. Raises OverloadedError.
    """
    return await decoding(batches, budget, held_bytes, lambda: _decode(result, batches, offset, max_bytes))


async def decoding(batches: bytes, budget: ReadBudget, held_bytes: int, decode: Callable[[], T]) -> T:
    """Decode small uncompressed batches on the event loop, and other batches in a thread, one call after the other.
    Raises OverloadedError if the memory for readers is not free in time."""
    if len(batches) <= INLINE_BYTES and not _is_compressed(batches):
        return decode()
    await budget.acquire_decoder(held_bytes)
    task = asyncio.create_task(_in_decoder(decode))
    # The thread goes on, and holds its memory, even if the caller is cancelled.
    decoded = asyncio.shield(task)
    # This runs after the shield's callback: the caller counts the result before the next caller looks for free memory.
    task.add_done_callback(lambda _: budget.decoder.release())
    return await decoded


async def _in_decoder(decode: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_decoder, decode)


def framed_record(tag: bytes, record: LogRecord) -> tuple[Sequence[bytes], int]:
    """Return a field with this tag and the record as a StoredRecord, in parts, and its size in bytes."""
    stored = [stored_record(record).SerializeToString()] if _is_small(record) else _parts(record)
    size_bytes = sum(map(len, stored))
    head = tag + encode_varint(size_bytes)
    return (head, *stored), len(head) + size_bytes


def stored_record(record: LogRecord) -> StoredRecord:
    """Return a record as a message."""
    return StoredRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=[Header(key=key, value=value) for key, value in record.headers],
    )


def _is_small(record: LogRecord) -> bool:
    contents = (record.key, record.value, *(value for _, value in record.headers))
    return all(content is None or len(content) <= _LARGE_BYTES for content in contents)


def _parts(record: LogRecord) -> list[bytes]:
    parts = [StoredRecord(offset=record.offset, timestamp_ms=record.timestamp_ms).SerializeToString()]
    for tag, content in ((_KEY_TAG, record.key), (_VALUE_TAG, record.value)):
        if content is not None:
            parts += (tag + encode_varint(len(content)), content)
    for name, value in record.headers:
        header, content = Header(key=name).SerializeToString(), b""
        if value is not None:
            header, content = header + _HEADER_VALUE_TAG + encode_varint(len(value)), value
        parts += (_HEADERS_TAG + encode_varint(len(header) + len(content)) + header, content)
    return parts


def _is_compressed(batches: bytes) -> bool:
    """Return whether any batch is compressed. True also for bytes that are not whole batches: decoding then reports the
    error."""
    try:
        return any(header.codec for header, _ in split_batches(batches))
    except LogbrokerError:
        return True


def _decode(result: FetchResult, batches: bytes, offset: int, max_bytes: int) -> list[bytes]:
    records: list[bytes] = []
    size_bytes = 0
    result.next_offset = offset
    try:
        for header, batch in split_batches(batches):
            if header.is_control:
                result.next_offset = header.next_offset
                continue
            check_crc(header, batch)
            for record in decode_batch(batch, max_expanded_bytes=MAX_EXPANDED_BYTES):
                if record.offset < offset:
                    continue
                parts, record_bytes = framed_record(_RECORDS_TAG, record)
                size_bytes += record_bytes
                if size_bytes > max_bytes and records:
                    return records
                records += parts
                result.next_offset = record.offset + 1
            result.next_offset = header.next_offset
    except LogbrokerError as error:
        if not records:
            status = item_status(error)
            status.message += f"; fetch batches from offset {result.next_offset} to look at it, or go on after it"
            result.status.CopyFrom(status)
    return records
