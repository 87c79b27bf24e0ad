"""Three batches above the recovery point, and what may become of their bytes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import google_crc32c
import msgspec
import pytest

from logbroker.errors import CorruptLogError
from logbroker.record.codec import decode_batch, split_batches
from logbroker.record.compression import Codec
from logbroker.record.header import PREFIX_BYTES, check_new_batch
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_log import PartitionCheckpoint, PartitionLog
from logbroker.types import new_topic_id
from tests.faults.crash_disk import MemoryFiles, disk_with
from tests.storage.partition import NOW_MS, SMALL, batch_of

DIRECTORY: Final = Path("/data/t-0")
LOG: Final = f"{DIRECTORY}/{0:020d}.log"
VALUES: Final = (b"first", b"second", b"third")
_CONFIG: Final = msgspec.structs.replace(SMALL, segment_bytes=1 << 30)


class Tail:
    """Three batches that were written and not synced, above a recovery point of 0."""

    def __init__(self, values: Sequence[bytes] = VALUES, codec: Codec = Codec.NONE) -> None:
        self.values = list(values)
        self.topic_id = new_topic_id()
        files = MemoryFiles()
        PartitionLog.create(DIRECTORY, self.topic_id, files)
        self.checkpoint = PartitionCheckpoint(recovery_point=0, log_start_offset=0, segments=[], producers=[])
        self.checkpoint = self._open(files).checkpoint()
        log = self._open(files)
        self.ends = [0]
        for value in values:
            batch = batch_of(value, codec=codec)
            log.stage(batch, check_new_batch(batch), NOW_MS)
            group = log.take_staged()
            assert group is not None
            log.write(group)
            log.wrote(group, synced=False)
            self.ends.append(log.size_bytes)
        self.ops = files.ops
        self.content = bytes(files.contents[files.names[LOG]])

    def _open(self, files: MemoryFiles) -> PartitionLog:
        handles = HandleCache(files, 4)
        return PartitionLog.open(
            DIRECTORY, self.topic_id, _CONFIG, files=files, handles=handles, checkpoint=self.checkpoint
        )

    def opened_with(self, content: bytes, *, rebooted: bool) -> list[bytes | None]:
        """Open the partition with this for its log; returns the values that are left."""
        files = disk_with(self.ops)
        files.contents[files.names[LOG]][:] = content
        before = self.checkpoint
        if rebooted:
            self.checkpoint = msgspec.structs.replace(before, boot_id="an earlier boot")
        try:
            log = self._open(files)
        finally:
            self.checkpoint = before
        batches = log.read(0, 1 << 20, nowait=False).batches
        records = [record for _, batch in split_batches(batches) for record in decode_batch(batch)]
        assert [record.offset for record in records] == list(range(log.log_end_offset))
        assert log.high_watermark == log.log_end_offset
        # What is not served is not lost either.
        cut = b"".join(bytes(files.contents[inode]) for name, inode in sorted(files.names.items()) if ".cut-" in name)
        kept = bytes(files.contents[files.names[LOG]]) if LOG in files.names else b""
        assert kept + cut == content
        return [record.value for record in records]

    def intact(self, content: bytes) -> list[bytes]:
        """The values in front of the first batch that is not as it was written."""
        good = (content[:end] == self.content[:end] for end in self.ends[1:])
        return [value for value, _ in zip(self.values, itertools.takewhile(bool, good), strict=False)]

    def batch_at(self, position: int) -> int:
        """The number of the batch that this byte belongs to."""
        return next(number for number, end in enumerate(self.ends[1:]) if position < end)


def check_cut(tail: Tail, end: int) -> None:
    """The file ends too early."""
    content = tail.content[:end]
    for rebooted in (False, True):
        assert tail.opened_with(content, rebooted=rebooted) == tail.intact(content)


def earlier_epoch(tail: Tail) -> bytes:
    """Batches of the same sizes and offsets, from before a cut: what a reused block may hold."""
    content = bytearray(tail.content)
    for start, end in itertools.pairwise(tail.ends):
        content[start + 15] ^= 1  # the leader epoch, which no CRC covers
        content[end - 2] ^= 1
        content[start + 17 : start + 21] = google_crc32c.value(bytes(content[start + 21 : end])).to_bytes(4, "big")
    return bytes(content)


FILLERS: Final[dict[str, Callable[[Tail, int], bytes]]] = {
    "zeros": lambda tail, start: bytes(len(tail.content) - start),
    "garbage": lambda tail, start: random.Random(start).randbytes(len(tail.content) - start),
    "stale": lambda tail, start: (tail.content[: tail.ends[1]] * 4)[: len(tail.content) - start],
    "earlier epoch": lambda tail, start: earlier_epoch(tail)[start:],
}


def check_overwritten(tail: Tail, filler: str, start: int) -> None:
    """From `start` on there is something else."""
    into = start - max(end for end in tail.ends if end <= start)
    if filler == "earlier epoch" and into in (PREFIX_BYTES, PREFIX_BYTES + 1):
        # The new epoch and all of the old CRC's bytes: a good batch. No disk tears just there, in mid-sector.
        return
    content = tail.content[:start] + FILLERS[filler](tail, start)
    assert tail.opened_with(content, rebooted=True) == tail.intact(content)
    try:
        found = tail.opened_with(content, rebooted=False)
    except CorruptLogError:
        # Good batches of another place or time behind a torn one are no work of a killed process.
        assert filler not in ("zeros", "garbage")
    else:
        assert found == tail.intact(content)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def check_flip(tail: Tail, bit: int) -> None:
    """One bit of the file is another."""
    content = flipped(tail.content, bit)
    batch = tail.batch_at(bit // 8)
    assert tail.opened_with(content, rebooted=True) == tail.values[:batch]
    if batch == 2:
        # Nothing follows, so it may have been a torn write; but one that left a whole batch at another offset was not.
        with suppress(CorruptLogError):
            assert tail.opened_with(content, rebooted=False) == tail.values[:batch]
        return
    with pytest.raises(CorruptLogError, match=f"{LOG}: the batch at byte {tail.ends[batch]} "):
        tail.opened_with(content, rebooted=False)
