"""The routing of a topic's records to partitions."""

from __future__ import annotations

from collections.abc import Callable

from logbroker.client.producer.delivery import Batch
from logbroker.client.producer.partition_queue import PartitionQueue, ProducerIdentity
from logbroker.client.transport.band_route import BandRoute, ways_of
from logbroker.client.transport.metadata import TopicInfo
from logbroker.record.codec import Headers
from logbroker.record.message_headers import DEFAULT_PRIORITY, priority_of


class TopicRoute:
    """The routing of one topic's records to partitions, and the open batches that take the records."""

    __slots__ = (
        "_bands",
        "_used_before",
        "_ways",
        "generation",
        "has_bands",
        "max_batch_bytes",
        "name",
        "open",
        "partitions",
        "queues",
        "stale",
        "topic_id",
        "used_at",
        "way",
        "when_fresh",
    )

    def __init__(self, info: TopicInfo, used_before: ProducerIdentity | None, now: float) -> None:
        """`used_before` is an identity under which an earlier route may have sent batches to this topic."""
        self._used_before = used_before
        self.name = info.name
        self.topic_id = info.id
        self.partitions = 0
        self.used_at = now
        """When the last batch was opened (monotonic seconds), or the route was made."""
        self.open: list[Batch | None] = []
        self.queues: list[PartitionQueue] = []
        self.stale = False
        """Whether the topic has a newer generation. If so, no new batch is sent until the topic was looked up and its
        records were routed again."""
        self.when_fresh: list[Callable[[], None]] = []
        """Callbacks to run when the route is no longer stale or the topic is deleted."""
        self.grow(info)

    def grow(self, info: TopicInfo) -> None:
        """Switch to a newer generation."""
        for partition in range(self.partitions, info.partitions):
            self.open.append(None)
            self.queues.append(PartitionQueue(info.name, info.id, partition, self._used_before))
        self.partitions = info.partitions
        self.generation = info.generation
        self.max_batch_bytes = info.max_message_bytes
        """The largest batch that the topic is known to accept. The limit may change at any time."""
        self._ways = ways_of(info)
        self._bands = set(self._ways)
        self.has_bands = len(self._bands) > 1
        self.way = self._ways[DEFAULT_PRIORITY]
        """The route of records without a priority."""
        self.refreshed()

    def refreshed(self) -> None:
        """Note that the route is no longer stale, and call the callbacks in `when_fresh`."""
        self.stale = False
        waiters, self.when_fresh = self.when_fresh, []
        for tell in waiters:
            tell()

    def is_unused(self, since: float) -> bool:
        """Whether no batch was opened since then, and nobody needs the route: all its batches are done, and it is not
        about to be renewed."""
        return (
            self.used_at <= since
            and not self.stale
            and not self.when_fresh
            and all(batch is None for batch in self.open)
            and all(queue.idle() for queue in self.queues)
        )

    def way_of(self, headers: Headers) -> BandRoute:
        """Return the route of a record with these headers."""
        return self._ways[priority_of(headers)] if self.has_bands else self.way

    def batch_closed(self, partition: int) -> None:
        """Choose another partition for records without a key, if they have gone to this partition."""
        for way in self._bands:
            if way.sticky == partition:
                way.next_sticky()
