"""Timestamps of the oldest records that queue groups have not done. They are read from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from logbroker.client.admin.groups import first_timestamps
from logbroker.client.admin.queue_descriptions import QueueDescription, QueuePartition
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.offsets import ListedOffset, list_offsets
from logbroker.types import TopicPartition


async def with_oldest(connection: Connection, queues: Sequence[QueueDescription]) -> list[QueueDescription]:
    """Return the descriptions with `QueuePartition.oldest_timestamp_ms`."""
    behind = {
        TopicPartition(queue.topic, each.partition)
        for queue in queues
        for each in queue.partitions
        if queue.topic and 0 <= each.floor < each.end  # A deleted topic has no name.
    }
    partitions = sorted(behind)
    listed = await list_offsets(connection, [(partition, "earliest") for partition in partitions])
    starts = {
        partition: start.offset
        for partition, start in zip(partitions, listed, strict=True)
        if isinstance(start, ListedOffset)
    }
    places = {place for queue in queues for each in queue.partitions if (place := _place(queue, each, starts))}
    times = await first_timestamps(connection, places)

    def dated(queue: QueueDescription, each: QueuePartition) -> QueuePartition:
        place = _place(queue, each, starts)
        return each if place is None else msgspec.structs.replace(each, oldest_timestamp_ms=times.get(place))

    return [
        msgspec.structs.replace(queue, partitions=tuple(dated(queue, each) for each in queue.partitions))
        for queue in queues
    ]


def _place(
    queue: QueueDescription, each: QueuePartition, starts: Mapping[TopicPartition, int]
) -> tuple[TopicPartition, int] | None:
    """Return where to read the oldest record of a partition that is not done; None: nowhere."""
    partition = TopicPartition(queue.topic, each.partition)
    if partition not in starts or not 0 <= each.floor < each.end:
        return None
    return partition, max(each.floor, starts[partition])
