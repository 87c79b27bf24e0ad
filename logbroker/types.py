"""Types that every layer uses: offsets, ids and the durability of a write."""

from __future__ import annotations

import base64
import binascii
import enum
import functools
import os
import re
from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
PartitionId = NewType("PartitionId", int)

TopicId = NewType("TopicId", bytes)
"""16 random bytes. A topic that is deleted and created again has another id."""

MAX_TOPIC_CHARACTERS: Final = 249
"""Longest name of a topic, as in Kafka: with a dash and a partition number it still fits into a file name."""

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

INTERNAL_PREFIX: Final = "__queue."
"""Prefix of the names of internal topics, which only the broker creates, changes and writes. They hold records that
queue groups keep after retention."""


@functools.lru_cache(256)
def is_topic_name(name: str) -> bool:
    """Return whether a topic can have this name, as in Kafka."""
    return len(name) <= MAX_TOPIC_CHARACTERS and name not in (".", "..") and _TOPIC_NAME.fullmatch(name) is not None


class TopicPartition(NamedTuple):
    """One partition, by the name of its topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionKey(NamedTuple):
    """One partition, by the id of its topic. The broker uses it as the key of its state."""

    topic_id: TopicId
    partition: int


class Durability(enum.Enum):
    """The point that a write must reach before it is acknowledged."""

    WRITTEN = "written"
    """`write` has returned: survives a killed process, not a power cut."""
    SYNCED = "synced"
    """`fdatasync` has returned: survives a power cut."""


class TimestampType(enum.Enum):
    """The clock that stamps the records of a topic, under Kafka's names."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class PriorityRouting(enum.Enum):
    """The first criterion for the partition of a record, in a topic that has bands."""

    PRIORITY = "priority"
    """The band of its priority; then, in the band, its key."""
    KEY = "key"
    """Its key alone, as in a topic without bands."""


def new_topic_id() -> TopicId:
    """Return a random topic id (a version 4 UUID, as Kafka's are) whose text never begins with a dash."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        topic_id = TopicId(bytes(raw))
        if not topic_id_text(topic_id).startswith("-"):
            return topic_id


def topic_id_text(topic_id: TopicId) -> str:
    """Write a topic id as Kafka does: base64url without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> TopicId:
    """Parse a text that `topic_id_text` wrote. Raises ValueError."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a topic id: {error}") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a topic id: it holds {len(raw)} bytes, not 16")
    return TopicId(raw)
