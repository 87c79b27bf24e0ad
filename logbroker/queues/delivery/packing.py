"""Packing of deliveries for a worker: record batches as bytes, and columns of attempts and receipts beside them.

Consecutive records of a group without order are sent as stored batches, undecoded. A batch qualifies if the worker gets
at least a quarter of its records, and more than one of them unless it has only one. All other records are encoded in
new batches, in the order of their receipts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat
from typing import Final, NamedTuple

import msgspec

from logbroker.errors import LogbrokerError
from logbroker.queues.model.messages import Delivered, Granted, Session
from logbroker.queues.model.record_id import offset_of, partition_of
from logbroker.queues.records.batch_cache import Found
from logbroker.queues.records.decoder import in_decoder_if
from logbroker.queues.records.fetch import INLINE_RECORDS, LATER, NO_BOUND, Records
from logbroker.record.codec import BatchBuilder, LogRecord, check_crc
from logbroker.record.compression import Codec
from logbroker.record.stored_batch import StoredBatch

MAX_BATCHES_BYTES: Final = 1024 * 1024
"""Maximum size of the batches in one message. A larger record or stored batch is sent alone."""

MAX_PLAIN_BYTES: Final = 4 * 1024 * 1024
"""A larger record is compressed, because uncompressed it may exceed the message size that clients accept. A client that
refuses a message would get its record again and again, and no other record."""
_WHOLE_SHARE: Final = 4
"""A stored batch may be sent whole if at least one in this many of its records is granted: dropping the others in the
worker costs less than decoding and encoding here."""
_NO_TIMESTAMP: Final = -1


class Unreadable(msgspec.Struct, gc=False):
    """A delivery whose record is gone from the log, or cannot be read or decoded."""

    receipt: int
    record_id: int
    error: LogbrokerError


class Packed(NamedTuple):
    """The outcome of packing; the two lists together have all granted deliveries."""

    delivered: list[Delivered]
    """Messages, in the order of their receipts."""
    unreadable: list[Unreadable]

    @property
    def leaves_out(self) -> bool:
        """Whether the last deliveries were left out, with the error `LATER`."""
        return bool(self.unreadable) and self.unreadable[-1].error is LATER


async def pack(
    records: Records,
    granted: Granted,
    *,
    session: Session | None = None,
    replacements: Mapping[int, LogRecord] | None = None,
    max_bytes: int = NO_BOUND,
    credit_bytes: int = NO_BOUND,
    max_stored_bytes: int = NO_BOUND,
) -> Packed:
    """Fetch granted records, and pack them into messages.

    `replacements` are sent instead of the records with their ids. The last records are left out if they would take more
    memory than about `max_bytes`, if their values exceed `credit_bytes`, or if they follow an unreadable record in a
    session: they are unreadable with the error `fetch.LATER`. Stored batches of several records and more than
    `max_stored_bytes` are not sent whole: the worker did not ask for so much at a time.
    """
    packed = Packed([], [])
    if not isinstance(granted.record_ids, range):
        await _pack_anew(records, granted, session, replacements or {}, max_bytes, credit_bytes, packed)
        return packed
    run: list[Found] = []
    run_bytes = begun = index = taken_bytes = 0

    def hand_on() -> None:
        if run:
            packed.delivered.append(_as_in_log(_part(granted, begun, index), run))
            run.clear()

    for record_ids, found in await records.find(granted.record_ids, max_bytes):
        batch = found.batch
        # Cached batches were not read, so only this bound applies to them.
        if batch is LATER or packed.leaves_out or taken_bytes >= max_bytes:
            hand_on()
            receipts = range(granted.first_receipt + index, granted.first_receipt + index + len(record_ids))
            packed.unreadable.extend(map(Unreadable, receipts, record_ids, repeat(LATER)))
        elif isinstance(batch, StoredBatch) and _goes_whole(batch, len(record_ids), max_stored_bytes):
            if run_bytes + len(batch.raw) > MAX_BATCHES_BYTES:
                hand_on()
            if not run:
                begun, run_bytes = index, 0
            run.append(found)
            run_bytes += len(batch.raw)
            taken_bytes += len(batch.raw)
        else:
            hand_on()
            part = _part(granted, index, index + len(record_ids))
            before = len(packed.delivered)
            left_bytes, credit_left_bytes = max_bytes - taken_bytes, credit_bytes - taken_bytes
            await _pack_anew(records, part, session, replacements or {}, left_bytes, credit_left_bytes, packed)
            taken_bytes += sum(len(each.batches) for each in packed.delivered[before:])
        index += len(record_ids)
    hand_on()
    return packed


def _part(granted: Granted, start: int, end: int) -> Granted:
    return Granted(
        granted.first_receipt + start,
        granted.record_ids[start:end],
        granted.attempts[start:end],
        granted.redelivered[start:end],
    )


def _goes_whole(batch: StoredBatch, count: int, max_bytes: int) -> bool:
    """Return whether a batch is sent as stored if `count` of its records are granted."""
    record_count = batch.header.record_count
    # For one granted record, the message would look like one with a new batch: both have one offset.
    if count == 1 < record_count or _WHOLE_SHARE * count < record_count:
        return False
    if len(batch.raw) > max_bytes and record_count > 1:
        return False
    try:
        check_crc(batch.header, batch.raw)
    except LogbrokerError:
        return False  # Its records will be reported as unreadable.
    return True


def _as_in_log(granted: Granted, run: Sequence[Found]) -> Delivered:
    first = granted.record_ids[0]
    return Delivered(
        granted.first_receipt,
        len(granted),
        b"".join(found.batch.raw for found in run if isinstance(found.batch, StoredBatch)),
        [partition_of(first)],
        [offset_of(first)],
        granted.attempts,
        granted.redelivered,
    )


async def _pack_anew(
    records: Records,
    granted: Granted,
    session: Session | None,
    replacements: Mapping[int, LogRecord],
    max_bytes: int,
    credit_bytes: int,
    packed: Packed,
) -> None:
    fetched = await records.fetch(granted.record_ids, max_bytes)
    if replacements:
        fetched = [
            replacements.get(record_id, record) for record_id, record in zip(granted.record_ids, fetched, strict=True)
        ]
    for index, record in enumerate(fetched):
        if record is LATER or (session is not None and not isinstance(record, LogRecord)):
            fetched[index + 1 :] = [LATER] * (len(fetched) - index - 1)
            break
    sizes_bytes = [len(record.value or b"") if isinstance(record, LogRecord) else 0 for record in fetched]
    size_bytes = sum(sizes_bytes)
    if size_bytes > credit_bytes:
        end = max(1, bisect_right(list(accumulate(sizes_bytes)), credit_bytes))
        fetched[end:] = [LATER] * (len(fetched) - end)
    is_heavy = len(fetched) > INLINE_RECORDS or size_bytes > MAX_BATCHES_BYTES
    await in_decoder_if(is_heavy, lambda: _encode(granted, fetched, session, packed))


def _encode(
    granted: Granted, records: Sequence[LogRecord | LogbrokerError], session: Session | None, packed: Packed
) -> None:
    builder: BatchBuilder | None = None
    begun, stamped = 0, True

    def close(end: int) -> None:
        if builder is not None:
            part = _part(granted, begun, end)
            packed.delivered.append(
                Delivered(
                    part.first_receipt,
                    len(part),
                    builder.build(),
                    part.partitions(),
                    part.offsets(),
                    part.attempts,
                    part.redelivered,
                    session,
                )
            )

    for index, record in enumerate(records):
        if not isinstance(record, LogRecord):
            close(index)
            builder = None
            packed.unreadable.append(Unreadable(granted.first_receipt + index, granted.record_ids[index], record))
            continue
        stamp, headers = record.timestamp_ms, list(record.headers)
        # The codec does not mix records with and without a timestamp in a batch.
        if builder is not None and (
            (stamp != _NO_TIMESTAMP) is not stamped
            or builder.append(index - begun, stamp, record.key, record.value, headers) is None
        ):
            close(index)
            builder = None
        if builder is None:
            builder = BatchBuilder(MAX_BATCHES_BYTES, Codec.ZSTD if _is_large(record) else Codec.NONE)
            begun, stamped = index, stamp != _NO_TIMESTAMP
            builder.append(0, stamp, record.key, record.value, headers)
    close(len(records))


def _is_large(record: LogRecord) -> bool:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers > MAX_PLAIN_BYTES
