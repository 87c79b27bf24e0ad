"""The catalog: the topics of a broker, by name and by id."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logbroker.engine import Topic
from logbroker.errors import UnknownTopicError, quoted
from logbroker.types import TopicId, topic_id_text


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
        for listener in list(self.listeners):
            listener(topic)

    def has(self, name: str) -> bool:
        return name in self._by_name

    def has_id(self, topic_id: TopicId) -> bool:
        return topic_id in self._by_id

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
