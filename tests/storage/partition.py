"""A partition on a real disk, driven the way the engine drives it, and batches for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from logbroker.config import TopicConfig
from logbroker.record.codec import LogRecord, NewRecord, decode_batch, encode_batch, split_batches
from logbroker.record.compression import Codec
from logbroker.record.header import check_new_batch
from logbroker.storage.files import Files, RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_log import PartitionCheckpoint, PartitionLog, Staged, WriteGroup
from logbroker.types import TopicId, new_topic_id

NOW_MS = 1_700_000_000_000
SMALL = TopicConfig(segment_bytes=2000, index_interval_bytes=150)


def batch_of(
    *values: bytes,
    timestamp_ms: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch as a producer sends it; all its records bear one timestamp."""
    records = [NewRecord(value, timestamp_ms=timestamp_ms) for value in values]
    return encode_batch(records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def decoded(batches: bytes) -> Iterator[LogRecord]:
    for _header, batch in split_batches(batches):
        yield from decode_batch(batch)


class PartitionOnDisk:
    """One partition directory and the log that is open on it at the moment."""

    def __init__(
        self, directory: Path, config: TopicConfig = SMALL, files: Files | None = None, max_open: int = 4
    ) -> None:
        self.directory = directory
        self.config = config
        self.files = files or RealFiles()
        self.topic_id: TopicId = new_topic_id()
        self.stored: bytes | None = None
        """The checkpoint as the metadata store has it."""
        self.max_open = max_open
        self.unsynced_bound_bytes = -1
        PartitionLog.create(directory, self.topic_id, self.files)
        self.open()

    def open(self, *, stopped_cleanly: bool = False) -> None:
        self.handles = HandleCache(self.files, self.max_open)
        self.log = PartitionLog.open(
            self.directory,
            self.topic_id,
            self.config,
            files=self.files,
            handles=self.handles,
            checkpoint=self.stored_checkpoint(),
            stopped_cleanly=stopped_cleanly,
        )
        self.log.unsynced_bound_bytes = self.unsynced_bound_bytes

    def stored_checkpoint(self) -> PartitionCheckpoint | None:
        return None if self.stored is None else msgspec.msgpack.decode(self.stored, type=PartitionCheckpoint)

    def store_checkpoint(self) -> None:
        self.log.flush_indexes()
        self.stored = msgspec.msgpack.encode(self.log.checkpoint())

    def stop(self) -> None:
        """Stop as a broker does that is asked to."""
        self.log.sync(self.log.begin_sync())
        self.log.mark_synced(self.log.written_end)
        self.store_checkpoint()
        self.log.close()
        self.handles.close()

    def kill(self) -> None:
        """Stop as a killed process does: nothing is said to anyone."""
        self.handles.close()

    def after_power_cut(self) -> None:
        """Let the stored checkpoint be of an earlier boot of the machine."""
        checkpoint = self.stored_checkpoint()
        if checkpoint is not None:
            checkpoint.boot_id = "an earlier boot"
            self.stored = msgspec.msgpack.encode(checkpoint)

    def stage(self, batch: bytes, now_ms: int = NOW_MS) -> Staged:
        return self.log.stage(batch, check_new_batch(batch), now_ms)

    def write(self, *, sync: bool = True) -> WriteGroup | None:
        """Write what is staged."""
        group = self.log.take_staged()
        if group is not None:
            self.log.write(group)
            if sync:
                self.log.sync(self.log.begin_sync())
            self.log.wrote(group, synced=sync)
        return group

    def append(self, *batches: bytes, sync: bool = True, now_ms: int = NOW_MS) -> list[Staged]:
        """Stage these batches and write them as one group."""
        staged = [self.stage(batch, now_ms) for batch in batches]
        self.write(sync=sync)
        return staged

    def records(self, max_bytes: int = 1000) -> list[LogRecord]:
        """Everything readable, read in chunks."""
        found: list[LogRecord] = []
        offset = self.log.log_start_offset
        while True:
            chunk = self.log.read(offset, max_bytes, nowait=False)
            if not chunk.batches:
                return found
            found += decoded(chunk.batches)
            offset = chunk.next_offset

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))
