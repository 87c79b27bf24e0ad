"""Deliveries on the wire, put together around their batches without copying these more than once: see `framing`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from logbroker.grpc_api.plain_records import decoding, stored_record
from logbroker.grpc_api.wire_format import BYTES, encode_varint
from logbroker.queues.packing import Delivered
from logbroker.record.codec import LogRecord, decode_batch, split_batches
from logbroker.v1 import queues_pb2 as pb


def _tag(field_number: int) -> bytes:
    return encode_varint(field_number << 3 | BYTES)


_BATCHES_TAG: Final = _tag(pb.Deliveries.BATCHES_FIELD_NUMBER)
_STREAM_TAG: Final = _tag(pb.WorkerResponse.DELIVERIES_FIELD_NUMBER)
_RECEIVE_TAG: Final = _tag(pb.ReceiveResponse.DELIVERIES_FIELD_NUMBER)


def worker_response(delivered: Delivered, lease_ms: int) -> bytes:
    """Return a serialized WorkerResponse of these deliveries."""
    return b"".join(_framed(_STREAM_TAG, delivered, lease_ms))


def receive_response(deliveries: Iterable[Delivered], lease_ms: int) -> bytes:
    """Return a serialized ReceiveResponse."""
    return b"".join(part for delivered in deliveries for part in _framed(_RECEIVE_TAG, delivered, lease_ms))


def _framed(tag: bytes, delivered: Delivered, lease_ms: int) -> tuple[bytes, ...]:
    head = columns(delivered, lease_ms).SerializeToString()
    batches = delivered.batches
    frame = _BATCHES_TAG + encode_varint(len(batches))
    return tag, encode_varint(len(head) + len(frame) + len(batches)), head, frame, batches


def columns(delivered: Delivered, lease_ms: int) -> pb.Deliveries:
    """Return all of the deliveries but their batches."""
    message = pb.Deliveries(
        first_receipt=delivered.first_receipt,
        count=delivered.count,
        partitions=delivered.partitions,
        offsets=delivered.offsets,
        attempts=delivered.attempts,
        redelivered=delivered.redelivered,
        lease_ms=lease_ms,
    )
    if delivered.session is not None:
        message.session_token, message.session_key = delivered.session
    return message


async def plain_deliveries(
    delivered: Delivered, lease_ms: int, room_bytes: int, decoders: asyncio.Semaphore
) -> pb.Deliveries:
    """Return deliveries as records instead of batches: the first one, and of the others those that there is room for.

    Raises what decoding raises: CorruptBatchError and its like.
    """
    records = await decoding(delivered.batches, decoders, lambda: _records_in(delivered))
    partitions, offsets = delivered.partitions, delivered.offsets
    if len(offsets) < len(records):
        partitions, offsets = partitions * len(records), [record.offset for record in records]
    message = columns(delivered, lease_ms)
    for record, offset in zip(records, offsets, strict=True):
        stored = stored_record(record)
        stored.offset = offset
        room_bytes -= stored.ByteSize()
        if room_bytes < 0 and message.records:
            break
        message.records.append(stored)
    message.count = count = len(message.records)
    message.partitions[:] = partitions[:count]
    message.offsets[:] = offsets[:count]
    message.attempts[:] = message.attempts[:count]
    message.redelivered[:] = message.redelivered[:count]
    return message


def _records_in(delivered: Delivered) -> list[LogRecord]:
    """Batches as they lie in the log may hold other records, too, before and after these."""
    records = [record for _, batch in split_batches(delivered.batches) for record in decode_batch(batch)]
    if len(records) != delivered.count:
        records = [record for record in records if record.offset >= delivered.offsets[0]][: delivered.count]
    return records
