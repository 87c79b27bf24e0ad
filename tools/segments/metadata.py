"""The metadata store's knowledge of partitions. Read only; docs/FORMAT.md describes the rows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from logbroker.errors import CorruptLogError, DataDirError, unreadable_row
from logbroker.storage.data_dir import LOCK_NAME, META_NAME
from logbroker.storage.metadata.metadata_store import MetadataReader
from logbroker.storage.partition_checkpoint import (
    BROKER,
    CLEAN_STOP,
    PARTITIONS,
    PRODUCERS,
    PartitionCheckpoint,
    decode_checkpoint,
    decode_partition,
    decode_producers,
    is_of_this_boot,
)
from logbroker.tools.segments.locate import PartitionFiles, has_store
from logbroker.types import TopicId

_LOCKS_PATH: Final = Path("/proc/locks")


class TopicRow(msgspec.Struct):
    """The needed fields of a row of the table `topics`."""

    name: str
    partitions: int
    deleted: bool = False


class Metadata:
    """The metadata store of one data directory, opened for reading; `close` it."""

    def __init__(self, data_dir: Path) -> None:
        """Raises DataDirError and CorruptLogError."""
        self.path = data_dir / META_NAME
        self._reader = MetadataReader.open(self.path)
        self.topics: dict[str, tuple[TopicId, TopicRow]] = {}
        """The live topics, by name."""
        try:
            for key, value in self._reader.scan("topics"):
                try:
                    row = msgspec.msgpack.decode(value, type=TopicRow)
                except msgspec.MsgspecError as error:
                    raise unreadable_row("topics", key, error) from None
                if not row.deleted:
                    self.topics[row.name] = (TopicId(key), row)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._reader.close()

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the last run of the broker synced everything before it stopped."""
        return self._reader.get(BROKER, CLEAN_STOP) is not None

    def has_topic(self, topic_id: TopicId) -> bool:
        """Whether the topic still exists: a broker may have deleted it since the store was opened.

        Raises DataDirError and CorruptLogError.
        """
        value = self._reader.get("topics", topic_id)
        if value is None:
            return False
        try:
            return not msgspec.msgpack.decode(value, type=TopicRow).deleted
        except msgspec.MsgspecError as error:
            raise unreadable_row("topics", topic_id, error) from None

    def checkpoint(
        self, topic_id: TopicId, partition: int, *, with_producers: bool = False
    ) -> PartitionCheckpoint | None:
        """Raises DataDirError and CorruptLogError."""
        key = checkpoint_key(topic_id, partition)
        value = self._reader.get(PARTITIONS, key)
        if value is None or not with_producers:
            return None if value is None else decode_partition(key, value)
        rows = [row for row in self._reader.scan(PRODUCERS) if row[0].startswith(key)]
        return decode_checkpoint(key, value, decode_producers(rows).get(key, ()))[0]


class Knowledge(msgspec.Struct, kw_only=True):
    """The metadata store's knowledge of a partition."""

    topic_id: TopicId | None = None
    checkpoint: PartitionCheckpoint | None = None
    live: bool = False
    stopped_cleanly: bool = False
    """Whether the broker synced everything before it stopped. If so, a crash does not explain damage."""
    trouble: str = ""
    """The reason why the store knows nothing."""

    @property
    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing: another program wrote the log, or some of it."""
        return self.topic_id is None or (self.checkpoint is not None and self.checkpoint.gaps_below > 0)

    @property
    def power_cut(self) -> bool:
        """Whether the computer has restarted since the last checkpoint, and nothing else is known to have happened."""
        checkpoint = self.checkpoint
        same_boot = checkpoint is not None and is_of_this_boot(checkpoint)
        return checkpoint is not None and not same_boot and not checkpoint.history_unknown


def open_metadata(data_dir: Path) -> tuple[Metadata | None, str]:
    """Open the metadata store of a data directory, or return why it cannot be read."""
    if not has_store(data_dir):
        return None, "there is no metadata store"
    try:
        return Metadata(data_dir), ""
    except (DataDirError, CorruptLogError) as error:
        return None, error.message


def knowledge_of(
    partition: PartitionFiles, metadata: Metadata | None, *, live: bool, trouble: str, with_producers: bool = False
) -> Knowledge:
    """Look up a partition in the metadata store. `trouble` says why there is no metadata."""
    found = partition.topic_partition
    if metadata is None or found is None or found[0] not in metadata.topics:
        if metadata is not None:
            trouble = "the metadata store has no topic of this name"
        return Knowledge(live=live, trouble=trouble)
    topic_id, row = metadata.topics[found[0]]
    if found[1] >= row.partitions:
        return Knowledge(live=live, trouble="the metadata store has no partition of this number")
    try:
        checkpoint = metadata.checkpoint(topic_id, found[1], with_producers=with_producers)
        stopped_cleanly = not live and metadata.stopped_cleanly
        return Knowledge(topic_id=topic_id, checkpoint=checkpoint, live=live, stopped_cleanly=stopped_cleanly)
    except (CorruptLogError, DataDirError) as error:
        return Knowledge(topic_id=topic_id, live=live, trouble=error.message)


def checkpoint_key(topic_id: TopicId, partition: int) -> bytes:
    return topic_id + partition.to_bytes(4, "big")


def is_held(data_dir: Path) -> bool:
    """Whether a broker of this computer holds the data directory.

    This reads the kernel's list of locks. An attempt to take the lock would keep out a broker that starts at this
    moment.
    """
    held = set()
    with suppress(OSError):
        locks = _LOCKS_PATH.read_text(encoding="ascii")
        held = {word for line in locks.splitlines() if "FLOCK" in line for word in line.split()}
    return any(_device_of(path) in held for path in (data_dir, data_dir / LOCK_NAME))


def is_live(partition: PartitionFiles) -> bool:
    """Whether a broker of this computer holds the data directory of a partition."""
    return partition.data_dir is not None and is_held(partition.data_dir)


def _device_of(path: Path) -> str:
    """Return the name of a file in the kernel's list of locks."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
