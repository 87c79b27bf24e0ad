"""The open partitions of this broker: the one place that makes and drops them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from logbroker.broker.catalog import unknown_topic_id
from logbroker.broker.local_engine.failure import StorageFailure
from logbroker.broker.local_engine.io_pool import IoPool
from logbroker.broker.local_engine.partition import Partition
from logbroker.broker.local_engine.topic_rows import partition_row_key
from logbroker.engine import Topic
from logbroker.errors import CorruptLogError, PartitionOfflineError, UnknownPartitionError
from logbroker.storage.data_dir import DataDir
from logbroker.storage.files import Files
from logbroker.storage.handles import HandleCache
from logbroker.storage.metadata.metadata_store import MetadataStore, Write
from logbroker.storage.partition_checkpoint import (
    PARTITIONS,
    PRODUCERS,
    decode_checkpoint,
    decode_producers,
    encode_checkpoint,
    with_unknown_history,
)
from logbroker.storage.partition_log import PartitionCheckpoint, PartitionLog
from logbroker.storage.producer_state import ProducerCount, ProducerSnapshot, common_level
from logbroker.storage.recovery.partition import probably_has_tail
from logbroker.storage.removal import remove_set_aside, set_aside
from logbroker.types import PartitionKey, TopicId

_log = logging.getLogger(__name__)


class PartitionTable:
    """Partitions by topic id and number. A damaged partition keeps its number; `get` raises PartitionOfflineError for
    it."""

    def __init__(
        self,
        data_dir: DataDir,
        store: MetadataStore,
        files: Files,
        handles: HandleCache,
        pool: IoPool,
        failure: StorageFailure,
        unsynced_bound_bytes: int,
        sync_threads: int,
    ) -> None:
        self._data_dir = data_dir
        self._store = store
        self._files = files
        self._handles = handles
        self._pool = pool
        self._failure = failure
        self._unsynced_bound_bytes = unsynced_bound_bytes
        self._sync_threads = sync_threads
        self._by_topic: dict[TopicId, list[Partition | PartitionOfflineError]] = {}
        self._aside: deque[list[str]] = deque()
        """Lists of paths to remove, one for each deleted topic. Threads add and remove lists."""
        self._must_look = True
        """Whether there may be other paths to remove, for instance from an earlier run. If so, the data directory is
        searched."""
        self.producer_count = ProducerCount()
        """Count of producers of all open partitions."""

    def get(self, topic_id: TopicId, partition: int) -> Partition:
        """Return a partition. Raises UnknownTopicError, UnknownPartitionError or PartitionOfflineError."""
        partitions = self._by_topic.get(topic_id)
        if partitions is None:
            raise unknown_topic_id(topic_id)
        if not 0 <= partition < len(partitions):
            raise UnknownPartitionError(f"there is no partition {partition}; the topic has 0 to {len(partitions) - 1}")
        found = partitions[partition]
        if isinstance(found, PartitionOfflineError):
            raise found.anew()
        return found

    def of_topic(self, topic_id: TopicId) -> list[Partition]:
        """Return the partitions of a topic that are not offline."""
        return [found for found in self._by_topic.get(topic_id, []) if isinstance(found, Partition)]

    def __iter__(self) -> Iterator[Partition]:
        for topic_id in list(self._by_topic):
            yield from self.of_topic(topic_id)

    def make_directories(self, topic: Topic, first: int) -> None:
        """Make the directories of a topic's partitions from number `first` on. Blocks; any thread."""
        for number in range(first, topic.partitions):
            PartitionLog.create(self._data_dir.partition_dir(topic.name, number), topic.id, self._files)

    def set_aside(self, topic: Topic) -> None:
        """Move the directories of a deleted topic out of the way. Blocks; any thread."""
        directories = [self._data_dir.partition_dir(topic.name, number) for number in range(topic.partitions)]
        try:
            self._aside.append(set_aside(directories, topic.id, self._files, self._handles))
        except BaseException:
            self._must_look = True
            raise

    def remove_set_aside(self) -> None:
        """Remove directories that were set aside, in this run or before a crash. Blocks; one thread at a time."""
        paths: list[str] | None = None
        if not self._must_look:
            paths = []
            while self._aside:
                paths += self._aside.popleft()
        # Directories that are set aside from here on are for the next call; a search may find them, too.
        self._must_look = False
        if not remove_set_aside(self._data_dir.path, self._files, self._handles, paths):
            self._must_look = True

    def open_all(self, topics: Sequence[Topic], *, stopped_cleanly: bool) -> list[Write]:
        """Open, recover and add all partitions of these topics, at the start of the broker. Blocks.

        Return the recovery points that differ from the stored ones. They must be committed before the first append.
        """
        wanted = [(topic, number) for topic in topics for number in range(topic.partitions)]
        opened, rows = self._open(wanted, stopped_cleanly=stopped_cleanly)
        for (topic, _number), partition in zip(wanted, opened, strict=True):
            self.put(topic.id, [partition])
        return rows

    def open(self, topic: Topic, first: int = 0) -> tuple[Sequence[Partition | PartitionOfflineError], list[Write]]:
        """Open a topic's new partitions, from number `first` on. Blocks; any thread.

        Return the partitions, for `put`, and recovery points as `open_all` does. Raises CorruptLogError if a partition
        cannot be opened: a new partition is never added as offline.
        """
        wanted = [(topic, number) for number in range(first, topic.partitions)]
        opened, rows = self._open(wanted, stopped_cleanly=False)
        for partition in opened:
            if isinstance(partition, PartitionOfflineError):
                raise CorruptLogError(f"a new partition cannot be opened: {partition.message}")
        return opened, rows

    def put(self, topic_id: TopicId, opened: Sequence[Partition | PartitionOfflineError]) -> None:
        """Add the partitions that `open` returned to the topic's partitions: appends and reads find them from now
        on."""
        self._by_topic.setdefault(topic_id, []).extend(opened)

    def limit_producers(self, max_producers: int) -> None:
        """If the partitions together remember more than `max_producers` idempotent producers, shorten the memory of the
        partitions with the most producers. After that, all partitions together remember at most 31/32 of
        `max_producers`, so that this does not happen at each append."""
        if self.producer_count.value > max_producers:
            partitions = list(self)
            level = common_level([partition.log.producer_count for partition in partitions], max_producers * 31 // 32)
            for partition in partitions:
                partition.log.forget_producers(max(0, partition.log.producer_count - level))

    def producer_ids_end(self) -> int:
        """Return a number above all producer ids that partitions know."""
        return max((partition.log.producer_ids_end for partition in self), default=0)

    def take(self, topic_id: TopicId) -> list[Partition]:
        """Remove a topic's partitions from the table, and return them. They get no more appends; the caller calls
        `settle` (write and sync what is staged) and then closes them."""
        partitions = self.of_topic(topic_id)
        self._by_topic.pop(topic_id, None)
        return partitions

    def close(self) -> None:
        """Close all partitions. Nothing may be staged any more (see `Partition.settle`)."""
        for partition in self:
            partition.close()

    def _open(
        self, wanted: Sequence[tuple[Topic, int]], *, stopped_cleanly: bool
    ) -> tuple[list[Partition | PartitionOfflineError], list[Write]]:
        stored: dict[bytes, bytes] = {}
        producers: dict[bytes, list[ProducerSnapshot]] = {}
        outdated: dict[bytes, list[ProducerSnapshot]] = {}
        for topic_id in {topic.id for topic, _number in wanted}:
            stored.update(self._store.scan(PARTITIONS, topic_id))
            producers.update(decode_producers(self._store.scan(PRODUCERS, topic_id)))
        keys = [partition_row_key(topic.id, number) for topic, number in wanted]
        with ThreadPoolExecutor(self._sync_threads, "logbroker-recovery") as threads:
            opening: list[Callable[[], Partition | PartitionOfflineError]] = []
            for (topic, number), key in zip(wanted, keys, strict=True):
                checkpoint, is_current = None, False
                if (row := stored.get(key)) is not None:
                    checkpoint, is_current = decode_checkpoint(key, row, producers.get(key, ()))
                if not is_current:
                    outdated[key] = producers.get(key, [])
                open_one = partial(self._open_one, topic, number, checkpoint, is_current, stopped_cleanly)
                # Tails are read, written and synced in parallel. Partitions without a tail are opened on this thread:
                # more threads would only compete for the interpreter.
                directory = str(self._data_dir.partition_dir(topic.name, number))
                has_tail = probably_has_tail(directory, self._files, checkpoint)
                opening.append(threads.submit(open_one).result if has_tail else open_one)
            try:
                opened = [open_one() for open_one in opening]
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
        rows: list[Write] = []
        for key, partition in zip(keys, opened, strict=True):
            if isinstance(partition, Partition):
                checkpoint = partition.log.checkpoint()
                checkpoint.forgotten_producers += [producer.producer_id for producer in outdated.get(key, ())]
                writes = encode_checkpoint(key, checkpoint)
                if writes != [(PARTITIONS, key, stored.get(key))]:
                    rows += writes
            elif (row := stored.get(key)) is not None:
                # If the computer restarts before the partition is repaired, recovery must report this damage again, and
                # not take it for unsynced bytes that a power cut took. So the row says that the history is unknown.
                refused = with_unknown_history(row)
                if refused != row:
                    rows.append((PARTITIONS, key, refused))
        return opened, rows

    def _open_one(
        self,
        topic: Topic,
        number: int,
        checkpoint: PartitionCheckpoint | None,
        is_current: bool,
        stopped_cleanly: bool,
    ) -> Partition | PartitionOfflineError:
        try:
            log = PartitionLog.open(
                self._data_dir.partition_dir(topic.name, number),
                topic.id,
                topic.config,
                files=self._files,
                handles=self._handles,
                checkpoint=checkpoint,
                stopped_cleanly=stopped_cleanly,
                producer_count=self.producer_count,
            )
        except CorruptLogError as error:
            told = (
                f"partition {topic.name}-{number} is offline: {error}. Mend it with the broker stopped: the next start"
                " opens the partition again"
            )
            _log.error("%s", told)
            return PartitionOfflineError(told)
        log.unsynced_bound_bytes = self._unsynced_bound_bytes
        if checkpoint is not None and is_current:
            log.stored(checkpoint)
        name = f"{topic.name}-{number}"
        return Partition(PartitionKey(topic.id, number), name, log, self._pool, self._failure)
