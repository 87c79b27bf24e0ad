"""What the broker's metadata store says of partitions. Read only; the rows are described in docs/FORMAT.md."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from logbroker.errors import CorruptLogError, DataDirError
from logbroker.storage.data_dir import LOCK_NAME, META_NAME
from logbroker.storage.metadata_store import MetadataReader
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.types import TopicId

_LOCKS_PATH: Final = Path("/proc/locks")

_Row = TypeVar("_Row")


class TopicRow(msgspec.Struct):
    """What is wanted of a row of the table `topics`."""

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
        """The live ones, by name."""
        try:
            for key, value in self._reader.scan("topics"):
                row = self._decoded(value, TopicRow, "a topic")
                if not row.deleted:
                    self.topics[row.name] = (TopicId(key), row)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._reader.close()

    def checkpoint(self, topic_id: TopicId, partition: int) -> PartitionCheckpoint | None:
        """Raises DataDirError and CorruptLogError."""
        value = self._reader.get("partitions", checkpoint_key(topic_id, partition))
        return None if value is None else self._decoded(value, PartitionCheckpoint, "a partition")

    def _decoded(self, value: bytes, kind: type[_Row], what: str) -> _Row:
        try:
            return msgspec.msgpack.decode(value, type=kind)
        except msgspec.MsgspecError as error:
            raise CorruptLogError(f"{self.path}: the row of {what} cannot be read: {error}") from None


def open_metadata(data_dir: Path) -> tuple[Metadata | None, str]:
    """Open the metadata store of a data directory, if there is one that can be read; else say why not."""
    if not (data_dir / META_NAME / "data.mdb").exists():
        return None, "there is no metadata store"
    try:
        return Metadata(data_dir), ""
    except (DataDirError, CorruptLogError) as error:
        return None, error.message


def checkpoint_key(topic_id: TopicId, partition: int) -> bytes:
    return topic_id + partition.to_bytes(4, "big")


def is_held(data_dir: Path) -> bool:
    """Whether a broker of this machine holds the data directory.

    Looked up in the kernel's list: to try the lock would keep a broker out that starts at this moment.
    """
    try:
        status = os.stat(data_dir / LOCK_NAME)
        locks = _LOCKS_PATH.read_text(encoding="ascii")
    except OSError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any("FLOCK" in line and device in line.split() for line in locks.splitlines())
