"""The cost of a read, counted in calls: it must not depend on where in a partition it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from logbroker.config import TopicConfig
from logbroker.record.header import check_new_batch
from tests.storage.faulty_files import FaultyFiles
from tests.storage.partition import NOW_MS, PartitionOnDisk, batch_of

BATCHES = 40_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> PartitionOnDisk:
    """40,000 batches in one segment, index saved, opened anew."""
    directory: Path = tmp_path_factory.mktemp("large") / "t-0"
    partition = PartitionOnDisk(directory, TopicConfig(index_interval_bytes=400), FaultyFiles())
    batch = batch_of(b"some value")
    header = check_new_batch(batch)
    for number in range(BATCHES):
        partition.log.stage(batch, header, NOW_MS)
        if number % 1000 == 999:
            partition.write()
    partition.stop()
    partition.open()
    partition.log.read(0, 1, nowait=False)
    return partition


def test_a_read_anywhere_costs_a_few_calls(large: PartitionOnDisk) -> None:
    files = large.files
    assert isinstance(files, FaultyFiles)
    costs = []
    for offset in range(17, BATCHES - 2000, 997):
        files.calls.clear()
        files.bytes_read = 0
        chunk = large.log.read(offset, 50_000, nowait=False)
        assert 40_000 < len(chunk.batches) <= 50_000
        costs.append((files.calls["pread"], files.bytes_read - len(chunk.batches)))
    # Two searches over some 5,000 entries, two short walks of headers, four headers before the second, the chunk.
    assert max(calls for calls, _ in costs) <= 20
    assert max(extra_bytes for _, extra_bytes in costs) < 20_000


def test_a_reader_that_goes_on_needs_no_search_for_its_place(large: PartitionOnDisk) -> None:
    files = large.files
    assert isinstance(files, FaultyFiles)
    offset = large.log.read(12_345, 50_000, nowait=False).next_offset
    files.calls.clear()
    large.log.read(offset, 50_000, nowait=False)
    followed = files.calls["pread"]
    files.calls.clear()
    large.log.read(offset + 1, 50_000, nowait=False)
    assert followed < files.calls["pread"]


def test_a_read_to_the_end_needs_no_walk(large: PartitionOnDisk) -> None:
    files = large.files
    assert isinstance(files, FaultyFiles)
    offset = large.log.read(BATCHES - 500, 10_000, nowait=False).next_offset
    files.calls.clear()
    assert large.log.read(offset, 1 << 20, nowait=False).next_offset == BATCHES
    assert files.calls["pread"] == 1


def test_the_index_in_memory_does_not_grow_with_the_log(large: PartitionOnDisk) -> None:
    batch = batch_of(b"x")
    header = check_new_batch(batch)
    largest = 0
    for _ in range(20):
        for _ in range(500):
            large.log.stage(batch, header, NOW_MS)
        large.write()
        largest = max(largest, large.log._view.segments[-1].unsaved_index_bytes)
    assert 0 < largest <= 8192
