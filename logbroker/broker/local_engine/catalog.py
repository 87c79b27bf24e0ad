"""The catalog: the topics of this broker, and their rows in the metadata store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from logbroker.broker.topics import check_topic_name
from logbroker.config import TopicConfig, stored_texts, topic_config
from logbroker.engine import LogGeneration, Topic
from logbroker.errors import InvalidRequestError, UnknownTopicError, quoted, unreadable_row
from logbroker.storage.partition_checkpoint import PARTITIONS as PARTITIONS
from logbroker.types import TopicId, topic_id_text

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


def unknown_topic_id(topic_id: TopicId) -> UnknownTopicError:
    text = topic_id_text(topic_id) if len(topic_id) == 16 else quoted(topic_id)
    return UnknownTopicError(f"there is no topic with id {text}; it may have been deleted")


class Catalog:
    """The live topics, by name and by id."""

    def __init__(self) -> None:
        self._by_id: dict[TopicId, Topic] = {}
        self._by_name: dict[str, Topic] = {}
        self._sorted: list[Topic] | None = None
        """Topics sorted by name; None: to be sorted at the next use."""
        self.partition_count = 0
        self.listeners: list[Callable[[Topic], None]] = []
        """Functions that are called after each change, with the changed topic; after a deletion, with the topic as it
        was."""

    def all(self) -> Sequence[Topic]:
        """Return all topics, sorted by name."""
        if self._sorted is None:
            self._sorted = [self._by_name[name] for name in sorted(self._by_name)]
        return self._sorted

    def put(self, topic: Topic) -> None:
        """Add a topic, or replace it if it is there."""
        self._take_out(topic.id)
        self._by_id[topic.id] = self._by_name[topic.name] = topic
        self.partition_count += topic.partitions
        self._sorted = None
        self._notify(topic)

    def remove(self, topic_id: TopicId) -> None:
        topic = self._by_id[topic_id]
        self._take_out(topic_id)
        self._sorted = None
        self._notify(topic)

    def _take_out(self, topic_id: TopicId) -> None:
        old = self._by_id.pop(topic_id, None)
        if old is not None:
            del self._by_name[old.name]
            self.partition_count -= old.partitions

    def _notify(self, topic: Topic) -> None:
        for listener in self.listeners:
            listener(topic)

    def has(self, name: str) -> bool:
        return name in self._by_name

    def by_name(self, name: str) -> Topic:
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownTopicError(
                f"there is no topic {quoted(name)}: check the name (`logbroker topic list`), or create the topic"
                " (`logbroker topic create`)"
            ) from None

    def by_id(self, topic_id: TopicId) -> Topic:
        try:
            return self._by_id[topic_id]
        except KeyError:
            raise unknown_topic_id(topic_id) from None
