"""Reads the outputs of a settlement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logbroker.engine import LogEngine
from logbroker.errors import InvalidRequestError, UnknownTopicError
from logbroker.grpc_api.log.produce import headers_of
from logbroker.grpc_api.refs import find_changeable_topic
from logbroker.pacing import Pace
from logbroker.queues.model.messages import AskedOutput
from logbroker.record.codec import NewRecord, check_timestamp
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import Record

MAX_OUTPUTS: Final = 1_000
"""Maximum number of outputs of one settlement."""
MAX_OUTPUT_RECORDS: Final = 10_000
"""Maximum number of records in the outputs of one settlement, batches not counted."""
_OWN_BYTES: Final = 20
"""Upper bound of the size of a small record's message without its key, value and headers."""
_RECORDS_AT_ONCE: Final = 200
"""Number of records that are read between two steps of a `Pace`."""
_RECORD_STEPS: Final = 4
_OUTPUT_STEPS: Final = 15


async def read_outputs(engine: LogEngine, outputs: Sequence[pb.Output], pace: Pace) -> list[AskedOutput]:
    """Read the outputs of a settlement. Raises InvalidRequestError, InvalidTimestampError or UnknownTopicError."""
    records = sum(len(output.records.records) for output in outputs)
    if len(outputs) > MAX_OUTPUTS or records > MAX_OUTPUT_RECORDS:
        raise InvalidRequestError(
            f"the settlement has {len(outputs):,} outputs with {records:,} records: at most {MAX_OUTPUTS:,} outputs and"
            f" {MAX_OUTPUT_RECORDS:,} records are taken, settle fewer deliveries at once or send batches"
        )
    asked: list[AskedOutput] = []
    for output in outputs:
        generation = output.generation
        try:
            topic = find_changeable_topic(engine, output.topic, output.topic_id)
        except UnknownTopicError:
            if not (output.topic and output.topic_id):
                raise
            topic = find_changeable_topic(engine, output.topic, b"")
            generation = -1 if generation else 0
        partition = output.partition if output.HasField("partition") else None
        batch = output.batch if output.WhichOneof("data") == "batch" else None
        plain, new = output.records.records, list[NewRecord]()
        for start in range(0, len(plain), _RECORDS_AT_ONCE):
            part = plain[start : start + _RECORDS_AT_ONCE]
            new += map(_new_record, part)
            await pace.step(_RECORD_STEPS * len(part))
        size_bytes = len(batch) if batch is not None else output.ByteSize() - _OWN_BYTES * len(plain)
        ordering_key = output.ordering_key if output.HasField("ordering_key") else None
        asked.append(AskedOutput(topic.id, partition, generation, batch, new, size_bytes, ordering_key))
        await pace.step(_OUTPUT_STEPS)
    return asked


def _new_record(record: Record) -> NewRecord:
    timestamp_ms = record.timestamp_ms if record.HasField("timestamp_ms") else None
    check_timestamp(timestamp_ms)
    return NewRecord(
        record.value if record.HasField("value") else None,
        record.key if record.HasField("key") else None,
        headers_of(record),
        timestamp_ms,
    )
