"""How the records of a topic find their partition."""

from __future__ import annotations

import random
from collections.abc import Callable

from logbroker.client.delivery import Batch
from logbroker.client.metadata import TopicInfo
from logbroker.client.partition_queue import PartitionQueue
from logbroker.record.partitioner import PartitionCache


class TopicRoute:
    """How records of one topic find their partition, and the batches that take them."""

    __slots__ = (
        "generation",
        "name",
        "open",
        "partition_of",
        "partitions",
        "queues",
        "stale",
        "sticky",
        "topic_id",
        "when_fresh",
    )

    def __init__(self, info: TopicInfo) -> None:
        self.name = info.name
        self.topic_id = info.id
        self.partitions = 0
        self.open: list[Batch | None] = []
        self.queues: list[PartitionQueue] = []
        self.stale = False
        """The topic has a newer generation: nothing new goes until it was described and routed again."""
        self.when_fresh: list[Callable[[], None]] = []
        """Told when it is no longer stale, or the topic is gone."""
        self.grow(info)
        self.sticky = random.randrange(self.partitions)
        """The partition of records without a key, until its batch is closed."""

    def grow(self, info: TopicInfo) -> None:
        """Take over a newer generation."""
        for partition in range(self.partitions, info.partitions):
            self.open.append(None)
            self.queues.append(PartitionQueue(info.name, info.id, partition))
        self.partitions = info.partitions
        self.generation = info.generation
        self.partition_of = PartitionCache(info.partitions)
        self.refreshed()

    def refreshed(self) -> None:
        """Say that nothing newer is to be awaited."""
        self.stale = False
        waiters, self.when_fresh = self.when_fresh, []
        for tell in waiters:
            tell()

    def next_sticky(self) -> None:
        """Choose another partition for records without a key."""
        if self.partitions > 1:
            self.sticky = (self.sticky + 1 + random.randrange(self.partitions - 1)) % self.partitions
