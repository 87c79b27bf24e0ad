"""A recovery point stores sizes and times of one moment: what is not synced yet is in neither."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path

import msgspec
import pytest

from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.types import Durability
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of, decoded
from tests.tools.segment_files import StoppedPartition, report_of, wrong


def _stored(disk: PartitionOnDisk) -> PartitionCheckpoint:
    disk.store_checkpoint()
    stored = disk.stored_checkpoint()
    assert stored is not None
    return stored


def _youngest(path: Path, size_bytes: int) -> int:
    return max((record.timestamp_ms for record in decoded(path.read_bytes()[:size_bytes])), default=-1)


@pytest.mark.parametrize("durability", list(Durability))
def test_times_and_sizes_of_a_checkpoint_are_of_one_moment(tmp_path: Path, durability: Durability) -> None:
    seed = random.randrange(1 << 30)
    logging.getLogger(__name__).info("seed %d", seed)
    chance = random.Random(seed)
    disk = PartitionOnDisk(tmp_path / "t-0", msgspec.structs.replace(SMALL, durability=durability))
    for number in range(120):
        disk.append(
            batch_of(bytes(200), timestamp_ms=NOW_MS + number + chance.randrange(1000)), sync=chance.random() < 0.4
        )
        if chance.random() < 0.05:
            disk.stop()
            disk.open()
        for entry in _stored(disk).segments:
            path = disk.directory / f"{entry.base_offset:020d}.log"
            assert entry.max_timestamp_ms == _youngest(path, entry.size_bytes), (seed, number)


def test_what_crashes_took_is_in_no_index(tmp_path: Path) -> None:
    """Power cuts take young records that were written, and a recovery point is stored while they are."""
    partition = StoppedPartition(tmp_path / "data")
    disk = partition.disk
    for life in range(4):
        stored = _stored(disk)
        disk.append(batch_of(b"lost", timestamp_ms=NOW_MS + 10**6 * (life + 1)), sync=False)
        stored = _stored(disk)
        disk.kill()
        path = disk.directory / f"{stored.segments[-1].base_offset:020d}.log"
        os.truncate(path, stored.segments[-1].size_bytes)
        disk.after_power_cut()
        disk.open()
        assert disk.log.offset_for_time(NOW_MS + 10**6).offset == -1
        disk.append(batch_of(b"kept", bytes(300), timestamp_ms=NOW_MS + 1000 + life))
        disk.stop()
        disk.open()
    partition.stop()
    assert wrong(report_of(partition.directory)) == []
