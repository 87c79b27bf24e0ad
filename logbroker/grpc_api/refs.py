"""References to topics in requests, and the limit for all lists."""

from __future__ import annotations

from typing import Final, Protocol

from logbroker.broker.topics import MAX_ITEMS, internal_topic_error
from logbroker.engine import LogEngine, Topic
from logbroker.errors import InvalidRequestError
from logbroker.types import INTERNAL_PREFIX, MAX_TOPIC_CHARACTERS, TopicId
from logbroker.v1.log_pb2 import Isolation

_TOPIC_ID_BYTES: Final = 16


class NamesTopic(Protocol):
    """A message with the fields `topic` and `topic_id`."""

    topic: str
    topic_id: bytes


def echoed_name(name: str) -> str:
    """Return a name for an answer, cut to the maximum length of a topic name."""
    return name[:MAX_TOPIC_CHARACTERS]


def echoed_id(topic_id: bytes) -> bytes:
    """Return an id for an answer, cut to the length of a topic id."""
    return topic_id[:_TOPIC_ID_BYTES]


def find_topic(engine: LogEngine, name: str, topic_id: bytes) -> Topic:
    """Return the topic with this id or, without one, with this name. Raises UnknownTopicError or
    InvalidRequestError."""
    if topic_id:
        return engine.topic_by_id(TopicId(topic_id))
    if name:
        return engine.topic(name)
    raise InvalidRequestError("the item names no topic: its name is empty, and no id of a topic is given")


def find_changeable_topic(engine: LogEngine, name: str, topic_id: bytes) -> Topic:
    """Do as `find_topic`, before a change of the topic or a write to it. Also raises InvalidRequestError for an
    internal topic."""
    topic = find_topic(engine, name, topic_id)
    if topic.name.startswith(INTERNAL_PREFIX):
        raise internal_topic_error()
    return topic


def topic_of(engine: LogEngine, item: NamesTopic) -> Topic:
    return find_topic(engine, item.topic, item.topic_id)


def check_isolation(isolation: int) -> None:
    if isolation not in Isolation.values():
        raise InvalidRequestError(f"isolation {isolation} is unknown; leave it out or use a value of log.proto")


def check_item_count(count: int) -> None:
    if count > MAX_ITEMS:
        raise InvalidRequestError(f"the request lists {count} items; split it, at most {MAX_ITEMS} are taken")
