"""The size limit of a dead-letter topic that the broker made for a queue group.

The limit allows any record of the group's topic with the headers of a letter. The broker raises it when the limit of
the group's topic is raised, but not once an operator has set another limit.

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
    """Values of the topic's max.message.bytes. The last one is the limit; after a crash, the topic may still have the
    previous value."""

    def grown(self, dead_topic: Topic, topic: Topic) -> LetterSizeLimit | None:
        """Return the limit with the new size to set as the last of `sizes`; None if the topic's limit is high enough or
        an operator set it."""
        size_bytes = room_for(topic)
        is_ours = dead_topic.id == self.topic_id and dead_topic.config.max_message_bytes in self.sizes
        if not is_ours or size_bytes <= dead_topic.config.max_message_bytes:
            return None
        return LetterSizeLimit(self.topic_id, (dead_topic.config.max_message_bytes, size_bytes))


def room_for(topic: Topic) -> int:
    """Return the largest size of a batch with one letter of this topic."""
    return min(MAX_STORED_BATCH_BYTES, topic.config.max_message_bytes + OWN_BYTES)


def configs_for(topic: Topic) -> dict[str, str]:
    """Return the configs with which the broker makes the dead-letter topic of a group on this topic.

    Letters wait for a person, for as long as that takes, so retention removes none.
    """
    return {MAX_MESSAGE_BYTES: str(room_for(topic)), "retention.ms": "-1", "retention.bytes": "-1"}


def made_for(dead_topic: Topic, topic: Topic) -> LetterSizeLimit | None:
    """Return the size limit of a dead-letter topic if it looks like the limit that the broker sets for `topic`; else
    None."""
    size_bytes = room_for(topic)
    # Earlier versions set the limit alone.
    if dead_topic.overrides in (configs_for(topic), {MAX_MESSAGE_BYTES: str(size_bytes)}):
        return LetterSizeLimit(dead_topic.id, (size_bytes,))
    return None


def stored_room(rows: Mapping[bytes, bytes]) -> LetterSizeLimit | None:
    """Return the stored size limit. Raises CorruptLogError."""
    return decode(ROOM_ROW, rows[ROOM_ROW], LetterSizeLimit) if ROOM_ROW in rows else None
