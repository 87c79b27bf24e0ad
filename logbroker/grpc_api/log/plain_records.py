"""Fetched batches as plain records, for clients that have no codec.

Records are serialized one by one as they are decoded: a message of all of them would hold each a second and a third
time. What comes of it counts in the read budget, as it may be a thousand times what was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from logbroker.errors import LogbrokerError
from logbroker.grpc_api.log.budget import ReadBudget
from logbroker.grpc_api.status import item_status
from logbroker.grpc_api.wire_format import bytes_tag, encode_varint
from logbroker.record.codec import LogRecord, check_crc, decode_batch, split_batches
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.v1.common_pb2 import Header, StoredRecord
from logbroker.v1.log_pb2 import FetchResult

INLINE_BYTES: Final = 16 * 1024
"""Up to so many bytes are decoded on the loop; more, and what is compressed, go to a thread."""
_LARGE_BYTES: Final = 256 * 1024
"""Of a value, a key or a header: what has more is not copied into a message."""


_RECORDS_TAG: Final = bytes_tag(FetchResult.RECORDS_FIELD_NUMBER)
_KEY_TAG: Final = bytes_tag(StoredRecord.KEY_FIELD_NUMBER)
_VALUE_TAG: Final = bytes_tag(StoredRecord.VALUE_FIELD_NUMBER)
_HEADERS_TAG: Final = bytes_tag(StoredRecord.HEADERS_FIELD_NUMBER)
_HEADER_VALUE_TAG: Final = bytes_tag(Header.VALUE_FIELD_NUMBER)

T = TypeVar("T")

# One thread, of its own: readers do not wait for the producers whose records are encoded.
_decoder: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plain decoder")


async def plain_records(
    result: FetchResult, batches: bytes, offset: int, max_bytes: int, budget: ReadBudget, held_bytes: int
) -> list[bytes]:
    """Decode `batches` from `offset` on, about `max_bytes` at most, and set `result.next_offset`.

    Returns the field `records` of the result as it goes on the wire, in parts. `held_bytes`: what the caller holds of
    the budget already. A batch that cannot be decoded fails the item where it comes first, and ends it where records
    come before it. Raises OverloadedError.
    """
    return await decoding(batches, budget, held_bytes, lambda: _decode(result, batches, offset, max_bytes))


async def decoding(batches: bytes, budget: ReadBudget, held_bytes: int, decode: Callable[[], T]) -> T:
    """Decode batches on the loop where that is done soon, else in a thread, one after the other. Raises
    OverloadedError where the readers' memory is not free in time."""
    if len(batches) <= INLINE_BYTES and not _is_compressed(batches):
        return decode()
    await budget.acquire_decoder(held_bytes)
    task = asyncio.create_task(_in_decoder(decode))
    # The thread goes on, and holds its memory, where the caller goes away.
    decoded = asyncio.shield(task)
    # After the callback of the shield: the caller counts what came of it before the next one looks for free memory.
    task.add_done_callback(lambda _: budget.decoder.release())
    return await decoded


async def _in_decoder(decode: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_decoder, decode)


def framed_record(tag: bytes, record: LogRecord) -> tuple[Sequence[bytes], int]:
    """Return a field with this tag that holds the record as a StoredRecord, in parts, and its size in bytes."""
    stored = [_serialized(record)] if _is_small(record) else _parts(record)
    size_bytes = sum(map(len, stored))
    head = tag + encode_varint(size_bytes)
    return (head, *stored), len(head) + size_bytes


def _serialized(record: LogRecord) -> bytes:
    return StoredRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=[Header(key=key, value=value) for key, value in record.headers],
    ).SerializeToString()


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
    """Whether any batch may expand; also where the bytes are not whole batches, which is found out later."""
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
            status.message += f"; fetch batches from offset {result.next_offset} to look at it, or go on behind it"
            result.status.CopyFrom(status)
    return records
