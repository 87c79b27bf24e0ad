"""A tail that is cut, overwritten or flipped at every place; indexes and metadata with every bit flipped."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import lmdb
import msgspec
import pytest

from logbroker.errors import CorruptLogError
from logbroker.record.codec import decode_batch, split_batches
from logbroker.record.header import HEADER_BYTES, check_new_batch
from logbroker.storage.handles import HandleCache
from logbroker.storage.metadata_store import MetadataStore
from logbroker.storage.partition_log import PartitionCheckpoint, PartitionLog
from logbroker.types import new_topic_id
from tests.faults.crash_disk import MemoryFiles, disk_with
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of

DIRECTORY = Path("/data/t-0")
LOG = f"{DIRECTORY}/{0:020d}.log"
VALUES = [b"first", b"second", b"third"]


class Tail:
    """Three batches that were written and not synced, above a recovery point of 0."""

    def __init__(self) -> None:
        self.topic_id = new_topic_id()
        files = MemoryFiles()
        PartitionLog.create(DIRECTORY, self.topic_id, files)
        self.checkpoint = PartitionCheckpoint(recovery_point=0, log_start_offset=0, segments=[], producers=[])
        self.checkpoint = self._open(files).checkpoint()
        log = self._open(files)
        self.ends = [0]
        for value in VALUES:
            batch = batch_of(value)
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
            DIRECTORY, self.topic_id, SMALL, files=files, handles=handles, checkpoint=self.checkpoint
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


@pytest.fixture(scope="module")
def tail() -> Tail:
    return Tail()


def intact(tail: Tail, content: bytes) -> list[bytes]:
    """The values in front of the first batch that is not as it was written."""
    good = (content[:end] == tail.content[:end] for end in tail.ends[1:])
    return [value for value, _ in zip(VALUES, itertools.takewhile(bool, good), strict=False)]


@pytest.mark.parametrize("rebooted", [False, True])
def test_cut_at_every_byte(tail: Tail, rebooted: bool) -> None:
    for end in range(len(tail.content) + 1):
        content = tail.content[:end]
        assert tail.opened_with(content, rebooted=rebooted) == intact(tail, content)


FILLERS: dict[str, Callable[[Tail, int], bytes]] = {
    "zeros": lambda tail, start: bytes(len(tail.content) - start),
    "garbage": lambda tail, start: random.Random(start).randbytes(len(tail.content) - start),
    "stale": lambda tail, start: (tail.content[: tail.ends[1]] * 4)[: len(tail.content) - start],
}


@pytest.mark.parametrize("filler", FILLERS)
def test_overwritten_from_every_byte(tail: Tail, filler: str) -> None:
    for start in range(len(tail.content) + 1):
        content = tail.content[:start] + FILLERS[filler](tail, start)
        assert tail.opened_with(content, rebooted=True) == intact(tail, content)
        if filler != "stale":  # older batches behind a torn one are no work of a killed process
            assert tail.opened_with(content, rebooted=False) == intact(tail, content)


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("batch", range(3))
def test_every_flipped_bit_of_a_header_is_noticed(tail: Tail, batch: int) -> None:
    start = tail.ends[batch]
    for bit in range(HEADER_BYTES * 8):
        check_flip(tail, batch, flipped(tail.content, start * 8 + bit))


def test_a_thousand_flipped_bits_of_records_are_noticed(tail: Tail) -> None:
    chance = random.Random(4711)
    for _ in range(1000):
        batch = chance.randrange(3)
        position = chance.randrange(tail.ends[batch] + HEADER_BYTES, tail.ends[batch + 1])
        check_flip(tail, batch, flipped(tail.content, position * 8 + chance.randrange(8)))


def check_flip(tail: Tail, batch: int, content: bytes) -> None:
    assert tail.opened_with(content, rebooted=True) == VALUES[:batch]
    if batch == 2:
        # Nothing follows, so it may have been a torn write; but one that left a whole batch at another offset was not.
        with suppress(CorruptLogError):
            assert tail.opened_with(content, rebooted=False) == VALUES[:batch]
        return
    with pytest.raises(CorruptLogError, match=f"{LOG}: the batch at byte {tail.ends[batch]} "):
        tail.opened_with(content, rebooted=False)


def test_every_flipped_bit_of_an_index_costs_time_only(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0")
    for number in range(24):
        partition.append(batch_of(b"%d" % number, bytes(100), timestamp_ms=NOW_MS + number))
    partition.stop()
    paths = sorted(partition.directory.glob("*index"))
    assert len(paths) >= 4
    checked = 0
    for path in (*paths[:2], *paths[-2:]):
        sound = path.read_bytes()
        for bit in range(len(sound) * 8):
            path.write_bytes(flipped(sound, bit))
            partition.open()
            base = int(path.stem)
            for offset in range(base, min(base + 14, 48), 2):
                assert partition.log.read(offset, 1, nowait=False).next_offset == offset + 2
                assert partition.log.offset_for_time(NOW_MS + offset // 2).offset == offset
            partition.kill()
            path.write_bytes(sound)
            checked += 1
    assert checked > 400


def test_every_flipped_bit_of_a_stored_value_is_noticed(tmp_path: Path) -> None:
    def unexpected(error: Exception) -> None:
        raise error

    store = MetadataStore.open(tmp_path / "meta", on_failure=unexpected)
    value = msgspec.msgpack.encode(Tail().checkpoint)
    store.submit([("partitions", b"key", value)]).result(20)
    environment, table = store._environment, store._tables["partitions"]
    with environment.begin() as transaction:
        stored = transaction.get(b"key", db=table)
    assert isinstance(stored, bytes)
    for bit in range(len(stored) * 8):
        with suppress(lmdb.Error), environment.begin(write=True) as transaction:
            transaction.put(b"key", flipped(stored, bit), db=table)
        with pytest.raises(CorruptLogError, match="key 6b6579 in table partitions is damaged"):
            store.get("partitions", b"key")
    store.close()
