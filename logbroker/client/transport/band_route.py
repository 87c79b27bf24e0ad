"""The choice of a partition for a record, as Kafka's clients make it, within the bands of its topic."""

from __future__ import annotations

import random

from logbroker.client.transport.metadata import TopicInfo
from logbroker.record.bands import Band, band_of, one_band
from logbroker.record.message_headers import MAX_PRIORITY
from logbroker.record.partitioner import PartitionCache


class BandRoute:
    """The routing of records within one band. A topic without bands is one band."""

    __slots__ = ("_partitions", "partition_of", "sticky")

    def __init__(self, band: Band) -> None:
        self._partitions = band.partition_range
        self.partition_of = PartitionCache(band.partitions, first=band.first_partition)
        self.sticky = random.choice(self._partitions)
        """The partition of records without a key, until its batch is closed."""

    def next_sticky(self) -> None:
        """Choose another partition for records without a key."""
        partitions = self._partitions
        if len(partitions) > 1:
            step = 1 + random.randrange(len(partitions) - 1)
            self.sticky = partitions[(partitions.index(self.sticky) + step) % len(partitions)]


def ways_of(info: TopicInfo) -> list[BandRoute]:
    """Return the route of the records of each priority, from 0 on. All priorities of a band share one."""
    bands = info.routing_bands or (one_band(info.partitions),)
    routes = {band: BandRoute(band) for band in bands}
    return [routes[band_of(bands, priority)] for priority in range(MAX_PRIORITY + 1)]
