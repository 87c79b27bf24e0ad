"""Fetched batches as plain records, for clients that have no codec."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from logbroker.errors import LogbrokerError
from logbroker.grpc_api.status import item_status
from logbroker.record.codec import LogRecord, decode_batch, split_batches
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.v1.common_pb2 import Header, StoredRecord
from logbroker.v1.log_pb2 import FetchResult

INLINE_BYTES: Final = 16 * 1024
"""Up to so many bytes are decoded on the loop; more, and what is compressed, go to a thread."""

T = TypeVar("T")


async def plain_records(
    result: FetchResult, batches: bytes, offset: int, max_bytes: int, decoders: asyncio.Semaphore
) -> None:
    """Decode `batches` into `result.records` from `offset` on, about `max_bytes` at most, and set `next_offset`.

    A batch that cannot be decoded fails the item where it comes first, and ends it where records come before it.
    """
    await decoding(batches, decoders, lambda: _decode(result, batches, offset, max_bytes))


async def decoding(batches: bytes, decoders: asyncio.Semaphore, decode: Callable[[], T]) -> T:
    """Decode batches on the loop where that is done soon, else in a thread, of which only so many may be busy."""
    if len(batches) <= INLINE_BYTES and not _is_compressed(batches):
        return decode()
    await decoders.acquire()
    task = asyncio.create_task(asyncio.to_thread(decode))
    # The thread goes on, and holds its memory, where the caller goes away.
    task.add_done_callback(lambda _: decoders.release())
    return await asyncio.shield(task)


def stored_record(record: LogRecord) -> StoredRecord:
    return StoredRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=[Header(key=key, value=value) for key, value in record.headers],
    )


def _is_compressed(batches: bytes) -> bool:
    """Whether any batch may expand; also where the bytes are not whole batches, which is found out later."""
    try:
        return any(header.codec for header, _ in split_batches(batches))
    except LogbrokerError:
        return True


def _decode(result: FetchResult, batches: bytes, offset: int, max_bytes: int) -> None:
    size_bytes = 0
    result.next_offset = offset
    try:
        for header, batch in split_batches(batches):
            if header.is_control:
                result.next_offset = header.next_offset
                continue
            for record in decode_batch(batch, max_expanded_bytes=MAX_EXPANDED_BYTES):
                if record.offset < offset:
                    continue
                stored = stored_record(record)
                size_bytes += stored.ByteSize()
                if size_bytes > max_bytes and result.records:
                    return
                result.records.append(stored)
                result.next_offset = record.offset + 1
            result.next_offset = header.next_offset
    except LogbrokerError as error:
        if not result.records:
            status = item_status(error)
            status.message += f"; fetch batches from offset {result.next_offset} to look at it, or go on behind it"
            result.status.CopyFrom(status)
