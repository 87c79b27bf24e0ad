"""Preparation of outputs: they are checked, routed and encoded before the settlement is carried out. After that, only
trouble with the disk, the topic or a partition can prevent their append."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from logbroker.clock import Clock
from logbroker.engine import LogEngine, Topic
from logbroker.errors import InvalidRequestError, InvalidTimestampError, LogbrokerError, RecordTooLargeError
from logbroker.pacing import Pace
from logbroker.queues.model.messages import OUTPUT_STEPS, AskedOutput, Output
from logbroker.queues.outputs.routing import check_readable, outputs_for, records_of, routed
from logbroker.queues.records.decoder import INLINE_BYTES, in_decoder_if
from logbroker.record.header import check_new_batch
from logbroker.types import TimestampType, TopicId

MAX_OUTPUT_BYTES: Final = 2 * 1024 * 1024
"""Maximum bytes of the outputs of one settlement, as they are sent. Clients allow 1 MiB of keys, values and headers.
The encoding of very many records and headers adds almost as much."""
INLINE_RECORDS: Final = 500
"""Maximum number of records of an output that are routed and encoded on the event loop."""
INLINE_BATCH_BYTES: Final = 8 * 1024
INLINE_BATCH_RECORDS: Final = 100
"""Maximum size of a batch without compression that is decoded on the event loop."""
_BYTES_PER_STEP: Final = 40
"""Bytes of a batch that are decoded in a step of a `Pace`, if its records are as small as they can be."""


@asynccontextmanager
async def prepared(
    engine: LogEngine,
    clock: Clock,
    asked: Sequence[AskedOutput],
    on_refusal: Callable[[TopicId, LogbrokerError], None] = lambda topic_id, error: None,
) -> AsyncIterator[list[Output]]:
    """Yield the outputs of a settlement, in their order. Within the block, the topics neither grow nor change their
    configs. `on_refusal` gets the topic whose output is refused, and the error that is then raised.

    Raises InvalidRequestError, UnknownTopicError, UnknownPartitionError, RecordTooLargeError, InvalidTimestampError,
    PartitionOfflineError or an error of a batch that is not valid: then the whole settlement must be refused.
    """
    size_bytes = sum(output.size_bytes for output in asked)
    if size_bytes > MAX_OUTPUT_BYTES:
        raise InvalidRequestError(
            f"the outputs of the settlement have {size_bytes:,} bytes, over {MAX_OUTPUT_BYTES:,}: settle fewer records"
            " at once, or send a reference to large values"
        )
    pinned: dict[TopicId, Topic] = {}
    try:
        outputs: list[Output] = []
        pace = Pace()
        for each in asked:
            await pace.step(OUTPUT_STEPS + min(len(each.batch or b""), INLINE_BATCH_BYTES) // _BYTES_PER_STEP)
            try:
                if each.topic_id not in pinned:
                    pinned[each.topic_id] = await engine.pin(each.topic_id)
                outputs += await _outputs(engine, pinned[each.topic_id], each, clock.wall_ms())
            except LogbrokerError as error:
                on_refusal(each.topic_id, error)
                raise
        yield outputs
    finally:
        for topic_id in pinned:
            engine.unpin(topic_id)


async def _outputs(engine: LogEngine, topic: Topic, asked: AskedOutput, now_ms: int) -> list[Output]:
    records, partition = asked.records, asked.partition
    generation = topic.generation if partition is None else 0
    if asked.batch is not None:
        header = check_new_batch(asked.batch)
        if partition is None:
            raise InvalidRequestError("a batch needs a partition; only plain records are routed here")
        if header.producer_id >= 0:
            raise InvalidRequestError("a batch of a settlement has no producer id: the broker gives it one")
        _check_timestamp(topic, header.max_timestamp_ms, now_ms)
        batch = asked.batch
        is_heavy = bool(header.codec or len(batch) > INLINE_BATCH_BYTES or header.record_count > INLINE_BATCH_RECORDS)
        if not asked.generation or asked.generation == topic.generation:
            if len(asked.batch) > topic.config.max_message_bytes:
                raise RecordTooLargeError(
                    f"the batch has {len(asked.batch)} bytes; topic {topic.name} takes"
                    f" {topic.config.max_message_bytes} (max.message.bytes)"
                ).with_bound(topic.config.max_message_bytes)
            # Its records may have to be routed anew later, when it is too late to refuse the batch.
            await in_decoder_if(is_heavy, lambda: check_readable(header, batch))
            return outputs_for(engine, topic, [(partition, batch)], asked.generation, asked.ordering_key)
        # The worker did not know yet that the topic has grown.
        records = await in_decoder_if(is_heavy, lambda: records_of(batch))
        partition, generation = None, topic.generation
    if not records:
        raise InvalidRequestError("an output holds neither a batch nor records")
    _check_timestamp(topic, max(record.timestamp_ms or 0 for record in records), now_ms)
    large = asked.batch is not None or asked.size_bytes > INLINE_BYTES or len(records) > INLINE_RECORDS
    batches = await in_decoder_if(large, lambda: routed(topic, records, partition, asked.ordering_key))
    return outputs_for(engine, topic, batches, generation, asked.ordering_key)


def _check_timestamp(topic: Topic, timestamp_ms: int, now_ms: int) -> None:
    config = topic.config
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    if timestamp_ms > latest_ms and config.message_timestamp_type is TimestampType.CREATE_TIME:
        raise InvalidTimestampError(
            f"a record is stamped {timestamp_ms - now_ms} ms ahead of the broker; topic {topic.name} takes"
            f" {config.message_timestamp_after_max_ms} (message.timestamp.after.max.ms)"
        ).with_bound(latest_ms)
