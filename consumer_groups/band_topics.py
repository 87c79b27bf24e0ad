"""The topics that assignors see. Each band of a topic becomes a topic of its own, called a *part* of that topic.

So assignors do not need to know about bands: a subscription to a band is a subscription to its part. A part has the
name of its topic with the number of its band, such as `orders:0`, and an id made in the same way. No topic has such a
name or id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.types import PartitionKey, TopicId

_ID_BYTES: Final = 16


class BandTopics:
    """The parts of some topics. A topic without bands is its own part."""

    def __init__(self, topics: Iterable[AssignableTopic]) -> None:
        self._topics = {topic.name: topic for topic in topics}
        self._bands = {topic.topic_id: topic.bands for topic in self._topics.values() if topic.bands}

    def named(self, topics: Iterable[str], bands: Collection[str]) -> Iterator[AssignableTopic]:
        """Yield the parts of these topics for these bands. Without `bands`, yield all parts."""
        for name in topics:
            topic = self._topics[name]
            if not topic.bands:
                yield topic
            for number, band in enumerate(topic.bands):
                if not bands or band.name in bands:
                    yield AssignableTopic(f"{name}:{number}", _part_id(topic.topic_id, number), band.partitions)

    def into(self, held: Mapping[str, Collection[PartitionKey]]) -> Mapping[str, Collection[PartitionKey]]:
        """Return the partitions held, each translated from its topic to its part."""
        if not self._bands:
            return held
        return {key: [self._in_part(partition) for partition in partitions] for key, partitions in held.items()}

    def out_of(self, held: Mapping[str, Collection[PartitionKey]]) -> dict[str, frozenset[PartitionKey]]:
        """Return the partitions held, each translated from its part to its topic."""
        if not self._bands:
            return {key: frozenset(partitions) for key, partitions in held.items()}
        return {key: frozenset(map(self._in_topic, partitions)) for key, partitions in held.items()}

    def _in_part(self, partition: PartitionKey) -> PartitionKey:
        for number, band in enumerate(self._bands.get(partition.topic_id, ())):
            place = partition.partition - band.first_partition
            if 0 <= place < band.partitions:
                return PartitionKey(_part_id(partition.topic_id, number), place)
        return partition

    def _in_topic(self, partition: PartitionKey) -> PartitionKey:
        topic_id = TopicId(partition.topic_id[:_ID_BYTES])
        if topic_id == partition.topic_id:
            return partition
        band = self._bands[topic_id][partition.topic_id[_ID_BYTES]]
        return PartitionKey(topic_id, band.first_partition + partition.partition)


def _part_id(topic_id: TopicId, number: int) -> TopicId:
    return TopicId(topic_id + bytes([number]))
