"""The room that a dead-letter topic has for the letters of a queue group, where the broker made the topic.

Such a topic takes whatever the group's topic may hold, with what a letter tells of it, and follows when that topic is
to take more. Once an operator has set another limit, that one holds.

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
    """What the broker set."""

    topic_id: bytes
    """Of the dead-letter topic."""
    sizes: tuple[int, ...]
    """Its max.message.bytes: the last one, and one that a crash may have kept it from."""

    def grown(self, dead_topic: Topic, topic: Topic) -> LetterSizeLimit | None:
        """Return what is to be set as the last of the sizes; None: nothing, as it has the room or is an operator's."""
        size_bytes = room_for(topic)
        is_ours = dead_topic.id == self.topic_id and dead_topic.config.max_message_bytes in self.sizes
        if not is_ours or size_bytes <= dead_topic.config.max_message_bytes:
            return None
        return LetterSizeLimit(self.topic_id, (dead_topic.config.max_message_bytes, size_bytes))


def room_for(topic: Topic) -> int:
    """How large a batch of one letter of this topic may be."""
    return min(MAX_STORED_BATCH_BYTES, topic.config.max_message_bytes + OWN_BYTES)


def made_for(dead_topic: Topic, topic: Topic) -> LetterSizeLimit | None:
    """The room of a dead-letter topic that looks as the broker makes one for a topic; None: somebody else made it."""
    size_bytes = room_for(topic)
    if dead_topic.overrides == {MAX_MESSAGE_BYTES: str(size_bytes)}:
        return LetterSizeLimit(dead_topic.id, (size_bytes,))
    return None


def stored_room(rows: Mapping[bytes, bytes]) -> LetterSizeLimit | None:
    """Raises CorruptLogError."""
    return decode(ROOM_ROW, rows[ROOM_ROW], LetterSizeLimit) if ROOM_ROW in rows else None
