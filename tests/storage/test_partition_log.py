"""Appending to a partition: rolling, durability, duplicates, faults of the disk."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest
from aiokafka.record import MemoryRecords

from logbroker.errors import (
    CorruptLogError,
    LogTruncatedError,
    ProducerFencedError,
    StorageFailedError,
    TooManyOpenFilesError,
    UnknownProducerIdError,
)
from logbroker.record.codec import split_batches
from logbroker.record.compression import Codec
from logbroker.record.header import parse_header
from logbroker.storage.files import RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.index_file import OFFSET_ENTRY
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.segment import Segment
from logbroker.types import Durability, TimestampType, new_topic_id
from tests.storage.faulty_files import FaultyFiles
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of, decoded

WRITTEN = msgspec.structs.replace(SMALL, durability=Durability.WRITTEN)


# --- rolling ---


def test_segments_roll_by_bytes_and_bear_their_base_offset(partition: PartitionOnDisk) -> None:
    for _ in range(10):
        partition.append(batch_of(bytes(800)))
    assert [path.name for path in partition.logs()] == [f"{base:020d}.log" for base in (0, 2, 4, 6, 8)]
    assert all(path.stat().st_size <= 2000 for path in partition.logs())


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(partition: PartitionOnDisk) -> None:
    for size in (10, 5000, 10):
        partition.append(batch_of(bytes(size)))
    assert len(partition.logs()) == 3
    assert [len(value or b"") for value in partition.values()] == [10, 5000, 10]


def test_an_empty_segment_takes_any_batch(tmp_path: Path) -> None:
    files = RealFiles()
    segment = Segment(str(tmp_path), 0, files, HandleCache(files, 4))
    segment.create(NOW_MS)
    assert not segment.is_full(0, SMALL.segment_bytes + 1, NOW_MS, NOW_MS, SMALL)
    segment.append(0, 100, NOW_MS, SMALL.index_interval_bytes)
    assert segment.is_full(1, SMALL.segment_bytes, NOW_MS, NOW_MS, SMALL)
    segment.close()


def test_segments_roll_by_the_age_of_their_records(partition: PartitionOnDisk) -> None:
    partition.log.config = msgspec.structs.replace(SMALL, segment_ms=1000)
    for stamp in (0, 1000, 1001, 1500, 2500):
        partition.append(batch_of(b"x", timestamp_ms=stamp))
    assert [int(path.stem) for path in partition.logs()] == [0, 2, 4]


@pytest.mark.parametrize("timestamp_type", list(TimestampType))
@pytest.mark.parametrize("broker_ahead_ms", [0, 10**9])
@pytest.mark.parametrize("restart", [False, True])
def test_a_first_timestamp_ahead_of_the_clock_keeps_no_segment_from_rolling(
    partition: PartitionOnDisk, timestamp_type: TimestampType, broker_ahead_ms: int, restart: bool
) -> None:
    """The clock of the producer, of the broker or of both was ahead when the first record came."""
    partition.config = msgspec.structs.replace(SMALL, segment_ms=1000, message_timestamp_type=timestamp_type)
    partition.log.config = partition.config
    partition.append(batch_of(b"x", timestamp_ms=NOW_MS + 10**9), now_ms=NOW_MS + broker_ahead_ms)
    if restart:
        partition.stop()
        partition.open(stopped_cleanly=True)
    for after_ms in (0, 1000, 1001):
        partition.append(batch_of(b"x", timestamp_ms=NOW_MS + after_ms), now_ms=NOW_MS + after_ms)
    # If the broker stamps the records and its clock was right, the timestamps are, too.
    assert [int(path.stem) for path in partition.logs()] == [0, 3]


def test_one_group_may_span_a_roll(partition: PartitionOnDisk) -> None:
    partition.append(*(batch_of(b"%d" % number, bytes(500)) for number in range(20)))
    assert partition.log.segment_count > 3
    assert partition.values()[::2] == [b"%d" % number for number in range(20)]


def test_a_new_segment_is_rolled_before_relative_offsets_overflow(partition: PartitionOnDisk) -> None:
    batch = batch_of(b"x")
    # As a compacted log may have it: one record, a last offset delta near the end of int32.
    header = parse_header(batch)
    header.last_offset_delta = 2**31 - 2
    partition.log.stage(batch, header, NOW_MS)
    partition.log.stage(batch, header, NOW_MS)
    assert partition.log.segment_count == 2


# --- bytes ---


def test_every_file_is_read_by_aiokafka_with_continuous_offsets(partition: PartitionOnDisk) -> None:
    for codec in Codec:
        partition.append(*(batch_of(b"a", bytes(200), b"c", codec=codec) for _ in range(5)))
    expected = 0
    for path in partition.logs():
        batches = MemoryRecords(path.read_bytes())
        while (batch := batches.next_batch()) is not None:
            assert batch.validate_crc()
            for record in batch:
                assert record.offset == expected
                expected += 1
    assert expected == partition.log.log_end_offset == 75


def test_the_small_files_have_kafkas_form(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"x"))
    lines = (partition.directory / "partition.metadata").read_text().splitlines()
    assert lines[0] == "version: 0"
    assert lines[1].startswith("topic_id: ")
    assert len(lines[1]) == len("topic_id: ") + 22
    assert (partition.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_log_append_time_is_stamped_into_the_batch(partition: PartitionOnDisk) -> None:
    partition.log.config = msgspec.structs.replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    (staged,) = partition.append(batch_of(b"x", timestamp_ms=5), now_ms=NOW_MS + 3)
    assert staged.log_append_time_ms == NOW_MS + 3
    ((header, _),) = split_batches(partition.log.read(0, 1, nowait=False).batches)
    assert header.max_timestamp_ms == NOW_MS + 3
    assert header.is_log_append_time
    assert partition.log.offset_for_time(NOW_MS).timestamp_ms == NOW_MS + 3


def test_short_writes_are_completed(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    files.max_write_bytes = 7
    partition.append(batch_of(b"hello"), batch_of(b"world"))
    assert partition.values() == [b"hello", b"world"]


def test_a_group_of_more_buffers_than_one_call_takes(partition: PartitionOnDisk) -> None:
    partition.log.config = msgspec.structs.replace(SMALL, segment_bytes=1 << 20)
    partition.append(*(batch_of(b"%d" % number) for number in range(1500)))
    assert partition.values() == [b"%d" % number for number in range(1500)]


# --- durability ---


def test_records_show_when_they_are_as_durable_as_promised(partition: PartitionOnDisk) -> None:
    log = partition.log
    partition.append(batch_of(b"a"), sync=False)
    assert (log.high_watermark, log.synced_offset, log.log_end_offset) == (0, 0, 1)
    assert log.read(0, 100, nowait=False).batches == b""
    due, end = log.begin_sync(), log.written_end
    partition.append(batch_of(b"b"), sync=False)
    log.sync(due)
    log.mark_synced(end)
    assert (log.high_watermark, log.synced_offset) == (1, 1)
    log.sync(log.begin_sync())
    log.mark_synced(log.written_end)
    assert partition.values() == [b"a", b"b"]
    log.mark_synced(end)
    assert (log.high_watermark, log.synced_offset) == (2, 2), "what is synced stays so"


def test_written_records_show_at_once(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0", WRITTEN)
    partition.append(batch_of(b"a"), sync=False)
    assert (partition.log.high_watermark, partition.log.synced_offset) == (1, 0)
    assert partition.values() == [b"a"]


def test_the_first_sync_covers_the_new_files_and_their_names(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    assert files.journal == []
    partition.append(batch_of(b"a"))
    log, metadata = "00000000000000000000.log", "partition.metadata"
    synced = {name for operation, name in files.journal if operation == "fdatasync"}
    assert synced >= {log, metadata, "leader-epoch-checkpoint.tmp"}
    assert files.journal[-2:] == [("sync_directory", "t-0"), ("sync_directory", tmp_path.name)]
    files.journal.clear()
    partition.append(batch_of(b"b"))
    assert files.journal == [("fdatasync", log)]


def test_a_roll_syncs_both_segments_the_sealed_index_and_the_directory(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    partition.append(batch_of(bytes(1500)))
    files.journal.clear()
    partition.append(batch_of(bytes(300)), batch_of(bytes(1500)))
    synced = {name for operation, name in files.journal if operation == "fdatasync"}
    old = f"{0:020d}"
    assert synced == {old + ".log", old + ".index", old + ".timeindex", f"{2:020d}.log"}
    assert files.journal[-1] == ("sync_directory", "t-0")


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync", "rename", "sync_directory"])
def test_a_failed_write_or_sync_is_fatal_and_shows_nothing(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    files.fail(operation, errno.EIO)
    with pytest.raises(StorageFailedError, match="check the disk"):
        partition.append(batch_of(b"a"))
    assert partition.log.high_watermark == 0


def test_a_lack_of_descriptors_refuses_and_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    files.fail("open", errno.EMFILE)
    batch = batch_of(b"a", producer_id=1, epoch=0, sequence=0)
    with pytest.raises(TooManyOpenFilesError, match="ulimit"):
        partition.stage(batch)
    assert partition.log.take_staged() is None
    assert partition.log.log_end_offset == 0
    assert [staged.base_offset for staged in partition.append(batch)] == [0]
    assert partition.values() == [b"a"]


def test_a_partition_is_not_created_over_segments_that_are_there(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    with pytest.raises(CorruptLogError, match="another topic"):
        PartitionLog.create(partition.directory, new_topic_id(), RealFiles())


# --- producers ---


def test_producers_are_remembered_across_a_restart_and_a_kill(partition: PartitionOnDisk) -> None:
    batches = [batch_of(b"%d" % n, producer_id=3, epoch=1, sequence=n) for n in range(8)]
    partition.append(*batches[:4])
    partition.stop()
    partition.open()
    partition.append(*batches[4:])
    partition.kill()
    partition.open()
    assert [partition.stage(batch).base_offset for batch in batches[3:]] == [3, 4, 5, 6, 7]
    assert partition.log.take_staged() is None
    assert partition.log.is_retry(parse_header(batches[3]))
    assert not partition.log.is_retry(parse_header(batches[2]))
    with pytest.raises(ProducerFencedError):
        partition.stage(batch_of(b"x", producer_id=3, epoch=0, sequence=8))


def test_a_checkpoint_holds_the_producers_of_its_recovery_point(partition: PartitionOnDisk) -> None:
    batches = [batch_of(b"%d" % n, producer_id=3, epoch=0, sequence=n) for n in range(12)]
    partition.append(*batches[:6])
    partition.append(*batches[6:], sync=False)
    checkpoint = partition.log.checkpoint()
    assert checkpoint.recovery_point == 6
    ((producer_id, found),) = [(snapshot.producer_id, snapshot.batches) for snapshot in checkpoint.producers]
    assert producer_id == 3
    assert [batch.base_offset for batch in found] == [1, 2, 3, 4, 5]


def test_records_that_were_cut_off_take_their_producer_along(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a", producer_id=3, epoch=0, sequence=0), sync=False)
    partition.kill()
    (path,) = partition.logs()
    path.write_bytes(path.read_bytes()[:-1])
    partition.open()
    with pytest.raises(UnknownProducerIdError):
        partition.stage(batch_of(b"b", producer_id=3, epoch=0, sequence=1))


# --- upkeep ---


@pytest.mark.parametrize("position", [-1, -(2**31), 2**31 - 1])
def test_an_index_entry_that_leads_out_of_the_file_costs_time_only(partition: PartitionOnDisk, position: int) -> None:
    partition.append(*[batch_of(b"a", b"b")] * 12)
    log = partition.log
    log.flush_indexes()
    index = next(partition.directory.glob("*.index"))
    index.write_bytes(OFFSET_ENTRY.pack(3, position) * (index.stat().st_size // OFFSET_ENTRY.size))
    assert next(decoded(log.read(15, 1 << 20, nowait=False).batches)).offset == 14


def test_an_unsound_index_of_a_segment_that_is_not_yet_written_to_its_end_is_done_without(
    partition: PartitionOnDisk,
) -> None:
    batch = batch_of(b"a", b"b")
    partition.append(*[batch] * 12)
    log = partition.log
    log.flush_indexes()
    index = next(partition.directory.glob("*.index"))
    index.write_bytes(bytes(index.stat().st_size))
    while log.segment_count == 1:
        partition.stage(batch)
    assert next(decoded(log.read(15, 1 << 20, nowait=False).batches)).offset == 14
    partition.write(sync=True)
    assert len(partition.values()) == log.log_end_offset


def test_retention_by_age_keeps_young_segments(partition: PartitionOnDisk) -> None:
    for age in (50, 10, 40, 0):
        partition.append(batch_of(bytes(1990), timestamp_ms=NOW_MS - age))
    log = partition.log
    log.config = msgspec.structs.replace(SMALL, retention_ms=30)
    assert log.expired_segments(NOW_MS).start_offset == 1
    assert log.expired_segments(NOW_MS + 25).start_offset == 3
    log.remove_files(log.advance_log_start(3))
    assert [path.name for path in sorted(partition.directory.glob("0*"))] == [f"{3:020d}.log"]
    assert log.expired_segments(NOW_MS + 30).start_offset == 3
    assert log.expired_segments(NOW_MS + 31).start_offset == 4


def test_retention_spares_what_is_not_synced(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0", msgspec.structs.replace(WRITTEN, retention_bytes=0))
    for _ in range(4):
        partition.append(batch_of(bytes(1990)), sync=False)
    assert partition.log.expired_segments(NOW_MS).start_offset == 0
    partition.log.sync(partition.log.begin_sync())
    partition.log.mark_synced(partition.log.written_end)
    assert partition.log.expired_segments(NOW_MS).start_offset == 3


def test_deletion_of_expired_segments_is_finished_at_the_next_start(partition: PartitionOnDisk) -> None:
    for _ in range(4):
        partition.append(batch_of(bytes(1990)))
    partition.stop()
    checkpoint = partition.stored_checkpoint()
    assert checkpoint is not None
    checkpoint.log_start_offset = 2
    partition.stored = msgspec.msgpack.encode(checkpoint)
    partition.open()
    assert [int(path.stem) for path in partition.logs()] == [2, 3]
    assert partition.log.log_start_offset == 2


def test_a_reader_of_a_cut_epoch_is_told(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"), sync=True)
    partition.append(batch_of(b"b"), sync=False)
    partition.kill()
    (path,) = partition.logs()
    path.write_bytes(path.read_bytes()[:-1])
    partition.open()
    partition.append(batch_of(b"c"), batch_of(b"d"))
    log = partition.log
    assert log.leader_epoch == 1
    assert [header.leader_epoch for header, _ in split_batches(log.read(0, 1000, nowait=False).batches)] == [0, 1, 1]
    log.check_leader_epoch(0, 1)
    log.check_leader_epoch(1, 3)
    log.check_leader_epoch(-1, 3)
    with pytest.raises(LogTruncatedError, match="go on at 1"):
        log.check_leader_epoch(0, 2)
    with pytest.raises(LogTruncatedError):
        log.check_leader_epoch(2, 2)
    assert [log.end_of_epoch(epoch) for epoch in (-1, 0, 1, 2)] == [None, (0, 1), (1, 3), None]


def test_reads_go_on_while_segments_are_removed(partition: PartitionOnDisk) -> None:
    for number in range(4):
        partition.append(batch_of(b"%d" % number, bytes(1900)))
    log = partition.log
    first = log.read(0, 10, nowait=False)
    assert next(decoded(first.batches)).value == b"0"
    log.remove_files(log.advance_log_start(4))
    assert next(decoded(log.read(4, 10, nowait=False).batches)).value == b"2"
