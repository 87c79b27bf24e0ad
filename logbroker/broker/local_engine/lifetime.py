"""Opening and closing of the local engine: its parts, and their order."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from logbroker.broker.catalog import Catalog
from logbroker.broker.local_engine.disk_space import DiskSpace
from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.failure import StorageFailure
from logbroker.broker.local_engine.helpers import Helpers
from logbroker.broker.local_engine.io_pool import IoPool
from logbroker.broker.local_engine.numbers import Issued, ReceiptNumbers
from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.broker.local_engine.producer_ids import ProducerIds
from logbroker.broker.local_engine.record_deletion import RecordDeletion
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.broker.local_engine.topic_changes import TopicChanges
from logbroker.broker.local_engine.topic_rows import TOPICS, decode_topic
from logbroker.broker.local_engine.upkeep import Upkeep
from logbroker.clock import Clock
from logbroker.config import LEAST_OPEN_SEGMENTS, MAX_STORED_BATCH_BYTES, BrokerConfig
from logbroker.engine import Topic
from logbroker.errors import DataDirError
from logbroker.storage.data_dir import META_NAME, DataDir, partition_directories, unnamed_directories
from logbroker.storage.files import RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.metadata.issued_numbers import IssuedNumbers, read_issued, write_issued
from logbroker.storage.metadata.metadata_store import MetadataStore, Write, is_missing
from logbroker.storage.partition_checkpoint import BROKER, CLEAN_STOP
from logbroker.storage.partition_files import METADATA_NAME
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

_MANY_SEGMENTS: Final = 4096
_MAX_NAMES: Final = 5
_OWN_DIRECTORIES: Final = {META_NAME, "lost+found"}
"""Directories in the data directory that are not partitions. The file system makes lost+found."""


@asynccontextmanager
async def open_engine(
    config: BrokerConfig,
    clock: Clock,
    on_failure: Callable[[Exception], None],
    other_directories: Collection[str] = (),
) -> AsyncIterator[tuple[LocalEngine, LocalStateStore]]:
    """Open the data directory, recover its partitions, and yield the engine and the state store.

    `on_failure` is called, on the event loop, when storage fails: nothing more is acknowledged, and the caller must end
    the process. `other_directories` are names that other parts use in the data directory. Raises DataDirError,
    CorruptLogError or InvalidConfigError. Closing order: a topic change ends, upkeep stops, partitions write and sync
    what is staged, their recovery points are stored, the clean stop is marked, threads end, the metadata store commits
    its waiting changes, the lock is released.
    """
    loop = asyncio.get_running_loop()
    failure = StorageFailure(on_failure)

    def failed_elsewhere(error: Exception) -> None:
        loop.call_soon_threadsafe(failure.report, error)

    async with AsyncExitStack() as stack:
        data_dir = DataDir.open(Path(config.data_dir))
        stack.callback(data_dir.close)
        if mode := data_dir.mode_open_to_others():
            # The broker does not change the mode: the owner may share the directory on purpose.
            _log.warning(
                "the data directory %s is open to other users of this machine (mode %04o), who may read or change its"
                " files; close it: chmod -R go-rwx %s",
                data_dir.path,
                mode,
                data_dir.path,
            )
        _check_metadata_is_there(data_dir)
        store = MetadataStore.open(data_dir.meta_path, on_failure=failed_elsewhere)
        stack.callback(store.close)
        store.check_rows()
        pool = IoPool(config.sync_threads)
        stack.callback(pool.close)
        helpers = Helpers()
        stack.callback(helpers.close)
        files = RealFiles()
        data_dir.keep(files)
        handles = HandleCache(files, config.max_open_segments or _default_open_segments())
        catalog = Catalog()
        # Maximum bytes of the batches that a thread writes and syncs together (a write group, see `Partition`).
        unsynced_bound_bytes = config.max_produce_bytes_in_flight + MAX_STORED_BATCH_BYTES
        partitions = PartitionTable(
            data_dir, store, files, handles, pool, failure, unsynced_bound_bytes, config.sync_threads
        )
        disk = DiskSpace(
            data_dir.path,
            config.min_free_disk_bytes,
            lambda: handles.created_files,
            lambda: handles.owed_files,
            data_dir.directory_fd,
        )
        changes = TopicChanges(config, clock, store, catalog, partitions, helpers, failure, disk)
        deleted, recovery_points = _load_topics(store, config, catalog, partitions)
        if recovery_points:
            await asyncio.wrap_future(store.submit(recovery_points))
        partitions.limit_producers(config.max_producers)
        for topic in deleted:
            await changes.finish_deletion(topic)
        await helpers.remove(partitions.remove_set_aside)
        _warn_of_strays(data_dir, catalog, other_directories)

        def write(numbers: IssuedNumbers) -> None:
            write_issued(str(data_dir.path), numbers, files, handles)

        found = read_issued(str(data_dir.path), files)
        issued = Issued(store, found, write, clock, failure, partitions.producer_ids_end())
        upkeep = Upkeep(config, clock, store, partitions, helpers, disk, data_dir.check_in_place)
        deletion = RecordDeletion(upkeep, failure)
        # A refused start does not count as a run. So the mark of the clean stop is removed only when everything is
        # open, but before the first append.
        await asyncio.wrap_future(store.submit([(BROKER, CLEAN_STOP, None)]))
        upkeep_tasks = [
            asyncio.create_task(_supervised(upkeep.run_checkpoints, failure), name="checkpoints"),
            asyncio.create_task(_supervised(upkeep.run_retention, failure), name="retention"),
        ]
        try:
            yield (
                LocalEngine(
                    config,
                    clock,
                    catalog,
                    partitions,
                    changes,
                    ProducerIds(issued),
                    upkeep,
                    deletion,
                    helpers,
                    failure,
                ),
                LocalStateStore(store, helpers, disk, ReceiptNumbers(issued)),
            )
        finally:
            await changes.close()
            await issued.close()
            await deletion.close()
            for task in upkeep_tasks:
                task.cancel()
            await asyncio.wait(upkeep_tasks)
            if failure.error is None:  # after a failure nothing more is written
                await upkeep.checkpoint()
                partitions.close()
            if failure.error is None:
                await asyncio.wrap_future(store.submit([(BROKER, CLEAN_STOP, b"1")]))
            else:
                handles.close()


async def _supervised(run: Callable[[], Awaitable[None]], failure: StorageFailure) -> None:
    try:
        await run()
    except Exception as error:
        failure.report(error)


def _check_metadata_is_there(data_dir: DataDir) -> None:
    """Raise DataDirError if partitions exist without a metadata store: a new, empty store would know none of them."""
    if is_missing(data_dir.meta_path) and (found := partition_directories(data_dir.path)):
        raise DataDirError(
            f"the metadata store {data_dir.meta_path} is missing, but there are partitions ({_some(found)}); restore a "
            "backup of it (logbroker meta restore; docs/PRODUCTION.md says how without one), or move the partitions "
            "out of the data directory"
        )


def _warn_of_strays(data_dir: DataDir, catalog: Catalog, others: Collection[str]) -> None:
    """Log the directories that the broker does not use: one warning of each kind."""
    known = {f"{topic.name}-{number}" for topic in catalog.all() for number in range(topic.partitions)}
    if found := partition_directories(data_dir.path, known):
        _log.warning("%d directories in %s belong to no topic: %s", len(found), data_dir.path, _some(found))
    if found := unnamed_directories(data_dir.path, known | _OWN_DIRECTORIES | set(others)):
        _log.warning(
            "%d directories in %s have no %s, so they are no partitions, and are ignored: %s",
            len(found),
            data_dir.path,
            METADATA_NAME,
            _some(found),
        )


def _some(names: list[str]) -> str:
    return ", ".join([*names[:_MAX_NAMES], *["..."] * (len(names) > _MAX_NAMES)])


def _load_topics(
    store: MetadataStore, config: BrokerConfig, catalog: Catalog, partitions: PartitionTable
) -> tuple[list[Topic], list[Write]]:
    """Open all topics. Return the topics with an unfinished deletion, and the recovery points to store."""
    stopped_cleanly = store.get(BROKER, CLEAN_STOP) is not None
    deleted: list[Topic] = []
    live: list[Topic] = []
    defaults = config.parsed_topic_defaults()
    for key, value in store.scan(TOPICS):
        topic, is_deleted = decode_topic(TopicId(key), value, defaults)
        if is_deleted:
            deleted.append(topic)
        else:
            live.append(topic)
            catalog.put(topic)
    recovery_points = partitions.open_all(live, stopped_cleanly=stopped_cleanly)
    if catalog.partition_count and not stopped_cleanly:
        _log.warning(
            "the last run was not stopped cleanly, or a backup was restored; partitions recovered: %d",
            catalog.partition_count,
        )
    return deleted, recovery_points


def _default_open_segments() -> int:
    """Return half of the descriptors that the process may have, but between LEAST_OPEN_SEGMENTS and _MANY_SEGMENTS; the
    other descriptors are for connections, indexes and the metadata."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MANY_SEGMENTS
    return max(LEAST_OPEN_SEGMENTS, min(soft // 2, _MANY_SEGMENTS))
