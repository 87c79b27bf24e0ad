"""The size limit of a dead-letter topic that the broker made for a queue group.

The limit allows any record of the group's topic with the headers of a letter, and follows when that topic's limit is
raised. Once an operator has set another limit, that one holds.

    row    key     value
    room   b"l"    msgpack array, the fields of `LetterSizeLimit`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from logbroker.config import MAX_STORED_BATCH_BYTES, OWN_BYTES
from logbroker.engine import Topic
from logbroker.queues.state.rows import ROOM_ROW, decode

MAX_MESSAGE_BYTES: Final = "max.message.bytes"


class LetterSizeLimit(msgspec.Struct, frozen=True, array_like=True):
    """The size limit that the broker set."""

    topic_id: bytes
    """Id of the dead-letter topic."""
    sizes: tuple[int, ...]
    """Values of its max.message.bytes: the last one is the limit; a crash may have kept the topic at the one before
    it."""

    def grown(self, dead_topic: Topic, topic: Topic) -> LetterSizeLimit | None:
        """Return the limit with the new size to set as its last; None where the topic has the room or an operator set
        the limit."""
        size_bytes = room_for(topic)
        is_ours = dead_topic.id == self.topic_id and dead_topic.config.max_message_bytes in self.sizes
        if not is_ours or size_bytes <= dead_topic.config.max_message_bytes:
            return None
        return LetterSizeLimit(self.topic_id, (dead_topic.config.max_message_bytes, size_bytes))


def room_for(topic: Topic) -> int:
    """Return the largest size of a batch with one letter of this topic."""
    return min(MAX_STORED_BATCH_BYTES, topic.config.max_message_bytes + OWN_BYTES)


def made_for(dead_topic: Topic, topic: Topic) -> LetterSizeLimit | None:
    """Return the size limit of a dead-letter topic that looks like one made by the broker for a topic; None: it looks
    like another's."""
    size_bytes = room_for(topic)
    if dead_topic.overrides == {MAX_MESSAGE_BYTES: str(size_bytes)}:
        return LetterSizeLimit(dead_topic.id, (size_bytes,))
    return None


def stored_room(rows: Mapping[bytes, bytes]) -> LetterSizeLimit | None:
    """Return the stored size limit. Raises CorruptLogError."""
    return decode(ROOM_ROW, rows[ROOM_ROW], LetterSizeLimit) if ROOM_ROW in rows else None
