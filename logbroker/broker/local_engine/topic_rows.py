"""The rows of topics and partitions in the metadata store."""

from __future__ import annotations

import msgspec

from logbroker.broker.topics import check_topic_name
from logbroker.config import TopicConfig, stored_texts, topic_config
from logbroker.engine import LogGeneration, Topic
from logbroker.errors import InvalidRequestError, unreadable_row
from logbroker.storage.partition_checkpoint import PARTITIONS as PARTITIONS
from logbroker.types import TopicId

TOPICS = "topics"
TOPIC_ID_BYTES = 16


class _TopicRow(msgspec.Struct):
    """The value under a topic id in the table `topics`; docs/FORMAT.md."""

    name: str
    partitions: int
    overrides: dict[str, str]
    generations: list[LogGeneration]
    created_at_ms: int
    deleted: bool = False
    """Whether the topic is deleted; some of its files may remain."""


def partition_row_key(topic_id: TopicId, partition: int) -> bytes:
    """Return the key of a partition in the table `partitions`: topic id, then the number, big-endian."""
    return topic_id + partition.to_bytes(4, "big")


def encode_topic(topic: Topic, *, deleted: bool = False) -> bytes:
    row = _TopicRow(
        name=topic.name,
        partitions=topic.partitions,
        overrides=topic.overrides,
        generations=list(topic.generations),
        created_at_ms=topic.created_at_ms,
        deleted=deleted,
    )
    return msgspec.msgpack.encode(row)


def decode_topic(topic_id: TopicId, value: bytes, defaults: TopicConfig) -> tuple[Topic, bool]:
    """Return the topic and whether it is deleted. Raises CorruptLogError."""
    try:
        row = msgspec.msgpack.decode(value, type=_TopicRow)
        check_topic_name(row.name)
        overrides = stored_texts(row.overrides)
        config = topic_config(overrides, defaults)
        if len(topic_id) != TOPIC_ID_BYTES or row.partitions < 1 or not row.generations:
            raise InvalidRequestError(
                "the length of its id or its number of partitions is not possible, or it has no generation"
            )
    except (msgspec.MsgspecError, InvalidRequestError) as error:
        raise unreadable_row(TOPICS, topic_id, error) from None
    topic = Topic(
        name=row.name,
        id=topic_id,
        partitions=row.partitions,
        config=config,
        overrides=overrides,
        generations=tuple(row.generations),
        created_at_ms=row.created_at_ms,
    )
    return topic, row.deleted
