"""Serializes deliveries so that their batches are copied only once: see `framing`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logbroker.broker.read_budget import ReadBudget
from logbroker.grpc_api.log.plain_records import decoding, framed_record
from logbroker.grpc_api.wire_format import bytes_tag, encode_varint
from logbroker.queues.model.messages import Delivered
from logbroker.record.codec import decode_batch, split_batches
from logbroker.v1 import queues_pb2 as pb

_BATCHES_TAG: Final = bytes_tag(pb.Deliveries.BATCHES_FIELD_NUMBER)
_RECORDS_TAG: Final = bytes_tag(pb.Deliveries.RECORDS_FIELD_NUMBER)
_STREAM_TAG: Final = bytes_tag(pb.WorkerResponse.DELIVERIES_FIELD_NUMBER)
_RECEIVE_TAG: Final = bytes_tag(pb.ReceiveResponse.DELIVERIES_FIELD_NUMBER)


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
    """Return the deliveries as a message without their batches."""
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
    delivered: Delivered, lease_ms: int, room_bytes: int, budget: ReadBudget, held_bytes: int
) -> tuple[list[bytes], int]:
    """Return deliveries with plain records as a serialized field of a ReceiveResponse, in parts, and the number of
    deliveries: the first one, and as many others as fit.

    `held_bytes` are the bytes of the budget that the caller already holds. Raises OverloadedError, and the errors of
    decoding, such as CorruptBatchError.
    """
    records, offsets = await decoding(delivered.batches, budget, held_bytes, lambda: _records_in(delivered, room_bytes))
    count = len(offsets)
    partitions = delivered.partitions
    message = columns(delivered, lease_ms)
    message.count = count
    message.partitions[:] = partitions[:count] if len(partitions) == delivered.count else partitions * count
    message.offsets[:] = offsets
    message.attempts[:] = delivered.attempts[:count]
    message.redelivered[:] = delivered.redelivered[:count]
    head = message.SerializeToString()
    size_bytes = len(head) + sum(map(len, records))
    return [_RECEIVE_TAG, encode_varint(size_bytes), head, *records], count


def _records_in(delivered: Delivered, room_bytes: int) -> tuple[list[bytes], list[int]]:
    """Return the field `records` in parts, and the offsets of these records."""
    batches = list(split_batches(delivered.batches))
    # Stored batches may hold other records before and after the delivered ones.
    first = -1 if sum(header.record_count for header, _ in batches) == delivered.count else delivered.offsets[0]
    is_anew = len(delivered.offsets) == delivered.count
    records: list[bytes] = []
    offsets: list[int] = []
    for _, batch in batches:
        for record in decode_batch(batch):
            if record.offset < first:
                continue
            if is_anew:
                record.offset = delivered.offsets[len(offsets)]
            parts, size_bytes = framed_record(_RECORDS_TAG, record)
            room_bytes -= size_bytes
            if room_bytes < 0 and offsets:
                return records, offsets
            records += parts
            offsets.append(record.offset)
            if len(offsets) == delivered.count:
                return records, offsets
    return records, offsets
