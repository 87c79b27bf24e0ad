"""The committed offsets of a group, for programs that are not members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from logbroker.client.consumer.group_messages import failures_of, topic_offsets, topic_partitions
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.metadata import find_topic
from logbroker.client.transport.status import error_of_item
from logbroker.errors import LogbrokerError, OverloadedError
from logbroker.types import TopicId, TopicPartition
from logbroker.v1 import groups_pb2

_BY_NAME = TopicId(b"")


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The committed offset of a group in one partition."""

    offset: int
    """The offset of the next record to read."""
    leader_epoch: int
    """Leader epoch of the last record read; -1 if it is unknown."""
    metadata: str
    commit_time_ms: int


async def fetch_offsets(
    connection: Connection, group: str, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, TopicId] | None
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets in these partitions; with None, in all. Partitions without a committed offset are
    left out.

    A mapping also gives the ids of the topics. Raises the first error, such as UnknownTopicError.
    """
    if partitions is not None and not partitions:
        return {}
    named = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions or (), _BY_NAME)
    asked = list(topic_partitions(named))
    found: dict[TopicPartition, CommittedOffset] = {}
    while True:
        request = groups_pb2.FetchOffsetsRequest(group_id=group, topics=asked)
        response = await connection.unary("FetchOffsets", request)
        left: list[groups_pb2.TopicPartitions] = []
        for index, topic in enumerate(response.topics):
            error = error_of_item(topic.status)
            if isinstance(error, OverloadedError):
                # The answer was full: ask again for this topic.
                left.append(asked[index] if asked else _whole(topic))
            elif error is not None:
                raise error
            else:
                _take(topic, found)
        if len(left) == len(response.topics) and left:
            left = [part for item in left for part in await _halves(connection, item)]
        if not left:
            return found
        asked = left


def _whole(topic: groups_pb2.CommittedTopic) -> groups_pb2.TopicPartitions:
    return groups_pb2.TopicPartitions(topic=topic.topic, topic_id=topic.topic_id)


def _take(topic: groups_pb2.CommittedTopic, found: dict[TopicPartition, CommittedOffset]) -> None:
    for place, partition in enumerate(topic.partitions):
        if topic.offsets[place] >= 0:
            found[TopicPartition(topic.topic, partition)] = CommittedOffset(
                offset=topic.offsets[place],
                leader_epoch=topic.leader_epochs[place],
                metadata=topic.metadata[place],
                commit_time_ms=topic.commit_times_ms[place],
            )


async def _halves(connection: Connection, item: groups_pb2.TopicPartitions) -> list[groups_pb2.TopicPartitions]:
    """Split a request whose answer is too large into halves. Raises OverloadedError for a single partition."""
    numbers: Sequence[int] = item.partitions
    if not numbers:
        numbers = range((await find_topic(connection, item.topic)).partitions)
    if len(numbers) < 2:
        raise OverloadedError(f"the committed offset of {item.topic} takes more than an answer of the broker may hold")
    middle = len(numbers) // 2
    return [
        groups_pb2.TopicPartitions(topic=item.topic, topic_id=item.topic_id, partitions=part)
        for part in (numbers[:middle], numbers[middle:])
    ]


async def commit_offsets(
    connection: Connection, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LogbrokerError | None]:
    """Set offsets of a group that has no members. Return the error of each partition, or None.

    Raises GroupNotEmptyError if the group has members.
    """
    if not offsets:
        return {}
    named = {partition: (_BY_NAME, offset) for partition, offset in offsets.items()}
    request = groups_pb2.CommitOffsetsRequest(group_id=group, topics=topic_offsets(named))
    failures = failures_of(named, await connection.unary("CommitOffsets", request))
    return {partition: failures.get(partition) for partition in offsets}
