"""All partitions of this broker, opened: the one place that makes and drops them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from logbroker.broker.local_engine.catalog import PARTITIONS, partition_row_key, unknown_topic_id
from logbroker.broker.local_engine.failure import Failure
from logbroker.broker.local_engine.io_pool import IoPool
from logbroker.broker.local_engine.partition import Partition
from logbroker.engine import Topic
from logbroker.errors import CorruptLogError, PartitionOfflineError, UnknownPartitionError
from logbroker.storage.data_dir import DataDir
from logbroker.storage.files import Files
from logbroker.storage.handles import HandleCache
from logbroker.storage.metadata_store import MetadataStore, Write
from logbroker.storage.partition_log import PartitionCheckpoint, PartitionLog
from logbroker.storage.removal import remove_set_aside, set_aside
from logbroker.types import PartitionKey, TopicId

_log = logging.getLogger(__name__)


class PartitionTable:
    """Partitions by topic id and number. A damaged one keeps its place and answers PARTITION_OFFLINE."""

    def __init__(
        self,
        data_dir: DataDir,
        store: MetadataStore,
        files: Files,
        handles: HandleCache,
        pool: IoPool,
        failure: Failure,
        unsynced_bound_bytes: int,
    ) -> None:
        self._data_dir = data_dir
        self._store = store
        self._files = files
        self._handles = handles
        self._pool = pool
        self._failure = failure
        self._unsynced_bound_bytes = unsynced_bound_bytes
        self._by_topic: dict[TopicId, list[Partition | PartitionOfflineError]] = {}

    def get(self, topic_id: TopicId, partition: int) -> Partition:
        """Raises UnknownTopicError, UnknownPartitionError or PartitionOfflineError."""
        partitions = self._by_topic.get(topic_id)
        if partitions is None:
            raise unknown_topic_id(topic_id)
        if not 0 <= partition < len(partitions):
            raise UnknownPartitionError(f"there is no partition {partition}; the topic has 0 to {len(partitions) - 1}")
        found = partitions[partition]
        if isinstance(found, PartitionOfflineError):
            raise found
        return found

    def of_topic(self, topic_id: TopicId) -> list[Partition]:
        """The partitions of a topic that are not offline."""
        return [found for found in self._by_topic.get(topic_id, []) if isinstance(found, Partition)]

    def __iter__(self) -> Iterator[Partition]:
        for topic_id in list(self._by_topic):
            yield from self.of_topic(topic_id)

    def make_directories(self, topic: Topic, first: int) -> None:
        """Make the directories of a topic's partitions from number `first` on. Blocks; any thread."""
        for number in range(first, topic.partitions):
            PartitionLog.create(self._data_dir.partition_dir(topic.name, number), topic.id, self._files)

    def set_aside(self, topic: Topic) -> None:
        """Take the directories of a deleted topic out of the way. Blocks; any thread."""
        directories = [self._data_dir.partition_dir(topic.name, number) for number in range(topic.partitions)]
        set_aside(directories, topic.id, self._files, self._handles)

    def remove_set_aside(self) -> None:
        """Remove what was set aside, now or before a crash. Blocks; any thread."""
        remove_set_aside(self._data_dir.path, self._files, self._handles)

    def open(
        self, topic: Topic, first: int = 0, *, stopped_cleanly: bool = False
    ) -> tuple[list[Partition | PartitionOfflineError], list[Write]]:
        """Open a topic's partitions from number `first` on, with recovery. Blocks; any thread.

        Returns them, for `put`, and their recovery points where these differ from what is stored: to be committed
        before the first append.
        """
        stored = dict(self._store.scan(PARTITIONS, topic.id))
        opened: list[Partition | PartitionOfflineError] = []
        rows: list[Write] = []
        for number in range(first, topic.partitions):
            key = partition_row_key(topic.id, number)
            before = stored.get(key)
            partition = self._open_one(topic, number, before, stopped_cleanly)
            opened.append(partition)
            if isinstance(partition, Partition):
                row = msgspec.msgpack.encode(partition.log.checkpoint())
                if row != before:
                    rows.append((PARTITIONS, key, row))
        return opened, rows

    def put(self, topic_id: TopicId, opened: list[Partition | PartitionOfflineError]) -> None:
        """Add what `open` returned behind the topic's other partitions: appends and reads find it from now on."""
        self._by_topic.setdefault(topic_id, []).extend(opened)

    def take(self, topic_id: TopicId) -> list[Partition]:
        """Take a topic's partitions out, for the caller to settle and close: nothing is appended there any more."""
        partitions = self.of_topic(topic_id)
        self._by_topic.pop(topic_id, None)
        return partitions

    def close(self) -> None:
        """Close all partitions, which are settled."""
        for partition in self:
            partition.close()

    def _open_one(
        self, topic: Topic, number: int, stored: bytes | None, stopped_cleanly: bool
    ) -> Partition | PartitionOfflineError:
        try:
            log = PartitionLog.open(
                self._data_dir.partition_dir(topic.name, number),
                topic.id,
                topic.config,
                files=self._files,
                handles=self._handles,
                checkpoint=msgspec.msgpack.decode(stored, type=PartitionCheckpoint) if stored is not None else None,
                stopped_cleanly=stopped_cleanly,
            )
        except CorruptLogError as error:
            _log.error("partition %s-%d is offline: %s", topic.name, number, error)
            return PartitionOfflineError(f"partition {topic.name}-{number} is offline: {error}")
        log.unsynced_bound_bytes = self._unsynced_bound_bytes
        name = f"{topic.name}-{number}"
        return Partition(PartitionKey(topic.id, number), name, log, self._pool, self._failure)
