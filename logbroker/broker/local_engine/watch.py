"""The watch: waits for new readable records of some partitions."""

from __future__ import annotations

from collections.abc import Callable

from logbroker.broker.local_engine.partition import Partition
from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.types import PartitionKey


class LocalWatch:
    """The `logbroker.engine.Watch` of this engine. Listens to the partitions that were added, and collects those that
    notified it."""

    def __init__(self, partitions: PartitionTable, wake: Callable[[], None]) -> None:
        self._partitions = partitions
        self._wake = wake
        self._watched: dict[PartitionKey, Partition] = {}
        self._moved: set[PartitionKey] = set()

    def add(self, key: PartitionKey) -> None:
        partition = self._partitions.get(key.topic_id, key.partition)
        self._watched[key] = partition
        partition.listeners.add(self)

    def remove(self, key: PartitionKey) -> None:
        partition = self._watched.pop(key, None)
        if partition is not None:
            partition.listeners.discard(self)
            self._moved.discard(key)

    def moved(self) -> set[PartitionKey]:
        moved, self._moved = self._moved, set()
        return moved

    def close(self) -> None:
        for partition in self._watched.values():
            partition.listeners.discard(self)
        self._watched.clear()

    def notify(self, key: PartitionKey) -> None:
        self._moved.add(key)
        self._wake()
