"""Conversions between mappings by partition and the API's messages, which have lists of partitions and offsets for each
topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from logbroker.client.consumer.membership import AssignedPartitions, GrantedPartitions
from logbroker.client.transport.status import error_of_item
from logbroker.errors import LogbrokerError
from logbroker.types import TopicId, TopicPartition
from logbroker.v1 import groups_pb2

Offsets = Mapping[TopicPartition, tuple[TopicId, int]]
"""Offsets to commit. An empty topic id means the current topic of that name."""

_NO_TEXTS: Final[Mapping[TopicPartition, str]] = {}

Positions = Mapping[TopicPartition, tuple[TopicId, int, groups_pb2.ReadingState]]
"""The position of a member: the topic's id, the offset up to which it has finished, and its reading state."""


def assignment_of(message: groups_pb2.Assignment) -> AssignedPartitions:
    """Read an assignment that the broker pushed. Leaves out deleted topics, which have no name."""
    return AssignedPartitions(
        message.epoch,
        {
            TopicPartition(topic.topic, partition): GrantedPartitions(TopicId(topic.topic_id), offset)
            for topic in message.topics
            if topic.topic
            for partition, offset in zip(topic.partitions, topic.offsets, strict=True)
        },
    )


def generations_of(
    topics: Iterable[groups_pb2.AssignedTopic | groups_pb2.TopicGenerationToRead],
) -> dict[TopicId, int]:
    """Read which generation of each topic the member has to read."""
    return {TopicId(topic.topic_id): topic.generation for topic in topics}


def topic_positions(positions: Positions) -> list[groups_pb2.TopicPositions]:
    """Return a member's positions as messages, one per topic."""
    columns: dict[str, groups_pb2.TopicPositions] = {}
    for (topic, partition), (topic_id, offset, state) in positions.items():
        if topic not in columns:
            columns[topic] = groups_pb2.TopicPositions(topic=topic, topic_id=topic_id)
        columns[topic].partitions.append(partition)
        columns[topic].offsets.append(offset)
        columns[topic].states.append(state)
    return list(columns.values())


def topic_partitions(partitions: Mapping[TopicPartition, TopicId]) -> list[groups_pb2.TopicPartitions]:
    """Return partitions as messages, one per topic."""
    columns: dict[str, groups_pb2.TopicPartitions] = {}
    for (topic, partition), topic_id in partitions.items():
        if topic not in columns:
            columns[topic] = groups_pb2.TopicPartitions(topic=topic, topic_id=topic_id)
        columns[topic].partitions.append(partition)
    return list(columns.values())


def topic_offsets(offsets: Offsets, texts: Mapping[TopicPartition, str] = _NO_TEXTS) -> list[groups_pb2.TopicOffsets]:
    """Return offsets to commit as messages, one per topic. `texts` are stored beside the offsets."""
    columns: dict[str, groups_pb2.TopicOffsets] = {}
    for (topic, partition), (topic_id, offset) in offsets.items():
        if topic not in columns:
            columns[topic] = groups_pb2.TopicOffsets(topic=topic, topic_id=topic_id)
        columns[topic].partitions.append(partition)
        columns[topic].offsets.append(offset)
        if texts:
            columns[topic].metadata.append(texts.get(TopicPartition(topic, partition), ""))
    return list(columns.values())


def failures_of(
    offsets: Offsets, answer: groups_pb2.CommitAnswer | groups_pb2.CommitOffsetsResponse
) -> dict[TopicPartition, LogbrokerError]:
    """Return the refused partitions of the commit that `topic_offsets` built, each with its error."""
    failures: dict[TopicPartition, LogbrokerError] = {}
    for topic, result in zip(dict.fromkeys(partition.topic for partition in offsets), answer.topics, strict=True):
        error = error_of_item(result.status)
        if error is not None:
            failures |= {partition: error for partition in offsets if partition.topic == topic}
        for failure in result.failures:
            error = error_of_item(failure.status)
            if error is not None:
                failures[TopicPartition(topic, failure.partition)] = error
    return failures
