"""Retention by age: logs that have expired to their end, and stamps that tell no age."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import google_crc32c
import msgspec
import pytest

from logbroker.config import DAY_MS, TopicConfig
from logbroker.errors import LogTruncatedError, OffsetOutOfRangeError, TooManyOpenFilesError
from logbroker.record.header import CRC_START, check_new_batch
from logbroker.storage.retention import SyncedSegment, expired_offsets
from tests.storage.faulty_files import FaultyFiles
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of

WEEK_MS = 7 * DAY_MS
YEAR_MS = 365 * DAY_MS
CONFIG = msgspec.structs.replace(SMALL, retention_ms=WEEK_MS)


@pytest.fixture
def partition(tmp_path: Path) -> PartitionOnDisk:
    return PartitionOnDisk(tmp_path / "t-0", CONFIG)


def retain(partition: PartitionOnDisk, now_ms: int) -> int:
    """Apply retention as the engine does; return the log start offset."""
    log = partition.log
    start = log.expired_segments(now_ms).start_offset
    if start > log.log_start_offset:
        if start == log.log_end_offset:
            log.begin_segment(now_ms)
            log.sync_directory()
        partition.store_checkpoint()
        checkpoint = partition.stored_checkpoint()
        assert checkpoint is not None
        checkpoint.log_start_offset = start
        partition.stored = msgspec.msgpack.encode(checkpoint)
        log.remove_files(log.advance_log_start(start))
    return log.log_start_offset


def test_a_log_that_has_expired_goes_to_its_end_once(partition: PartitionOnDisk) -> None:
    for number in range(5):
        partition.append(batch_of(b"%d" % number, bytes(900)))
    late = NOW_MS + WEEK_MS + 1
    assert retain(partition, late - 1) == 0
    for _ in range(3):
        assert retain(partition, late) == 10
        assert [path.name for path in sorted(partition.directory.glob("0*"))] == [f"{10:020d}.log"]
    log = partition.log
    assert (log.log_end_offset, log.high_watermark, log.size_bytes, log.segment_count) == (10, 10, 0, 1)
    assert log.read(10, 1000, nowait=False).batches == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.read(9, 1000, nowait=False)
    assert log.offset_for_time(0).offset == -1
    partition.append(batch_of(b"next"), now_ms=late)
    assert partition.values() == [b"next"]
    assert log.offset_for_time(0).offset == 10


@pytest.mark.parametrize("end", ["stop", "kill", "power cut"])
@pytest.mark.parametrize("after", [0, 1])
def test_offsets_epochs_and_producers_go_on(partition: PartitionOnDisk, end: str, after: int) -> None:
    partition.append(batch_of(b"lost"), sync=False)
    partition.kill()
    log_path = partition.logs()[0]
    log_path.write_bytes(log_path.read_bytes()[:-1])
    partition.open()  # in leader epoch 1
    sent = [batch_of(b"%d" % n, producer_id=7, epoch=0, sequence=n) for n in range(8)]
    partition.append(*sent)
    assert retain(partition, NOW_MS + YEAR_MS) == 8
    if after:
        partition.append(batch_of(b"after"))
    if end == "stop":
        partition.stop()
    else:
        partition.kill()
    if end == "power cut":
        partition.after_power_cut()
        if not after:
            partition.logs()[0].unlink()  # its name need not have been synced
    partition.open(stopped_cleanly=end == "stop")
    log = partition.log
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (8, 8 + after, 1)
    retry = log.stage(sent[-1], check_new_batch(sent[-1]), NOW_MS)
    assert (retry.duplicate, retry.base_offset) == (True, 7)
    log.check_leader_epoch(1, 8)
    with pytest.raises(LogTruncatedError):
        log.check_leader_epoch(0, 9)
    partition.append(batch_of(b"next", producer_id=7, epoch=0, sequence=8))
    assert partition.values() == [b"after"] * after + [b"next"]


def test_what_is_not_synced_or_not_written_keeps_the_active_segment(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0", CONFIG)
    partition.append(batch_of(b"a"))
    partition.stage(batch_of(b"b"))
    assert partition.log.expired_segments(NOW_MS + YEAR_MS).start_offset == 0
    partition.write(sync=False)
    assert partition.log.expired_segments(NOW_MS + YEAR_MS).start_offset == 0
    partition.log.sync(partition.log.begin_sync())
    partition.log.mark_synced(partition.log.written_end)
    assert partition.log.expired_segments(NOW_MS + YEAR_MS).start_offset == 2


def test_who_needs_a_record_of_the_active_segment_keeps_it(partition: PartitionOnDisk) -> None:
    for number in range(4):
        partition.append(batch_of(b"%d" % number, bytes(1900)))
    log = partition.log
    assert log.segment_count == 4
    late = NOW_MS + YEAR_MS
    assert log.expired_segments(late, needed_from=7) == (6, 6)
    assert log.expired_segments(late, needed_from=8) == (8, 8)
    log.config = msgspec.structs.replace(CONFIG, retention_hold_bytes=0)
    assert log.expired_segments(late, needed_from=7) == (6, 8)


def test_by_size_the_active_segment_stays() -> None:
    segments = [SyncedSegment(10, 100, NOW_MS), SyncedSegment(20, 500, NOW_MS, is_active=True)]
    config = TopicConfig(retention_bytes=0)
    assert expired_offsets(segments, 0, 600, config, NOW_MS, 20) == (10, 10)


def test_no_descriptor_for_the_next_segment_puts_it_off(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", CONFIG, files)
    partition.append(batch_of(b"a"))
    log, late = partition.log, NOW_MS + YEAR_MS
    for _ in range(10):
        files.fail("open", errno.EMFILE)
    with pytest.raises(TooManyOpenFilesError):
        log.begin_segment(late)
    assert (log.segment_count, log.log_end_offset) == (1, 1)
    files.failures.clear()
    assert retain(partition, late) == 1
    partition.append(batch_of(b"b"))
    assert partition.values() == [b"b"]


AHEAD = [YEAR_MS, WEEK_MS + DAY_MS, 1]


@pytest.mark.parametrize("ahead_ms", AHEAD)
@pytest.mark.parametrize("restart", [False, True])
def test_stamps_ahead_of_the_clock_hold_retention_up_no_longer_than_others(
    partition: PartitionOnDisk, ahead_ms: int, restart: bool
) -> None:
    """The clock of a producer is ahead: records appended a week ago go, their neighbours too."""
    for stamp in (NOW_MS + ahead_ms, NOW_MS):
        partition.append(batch_of(bytes(1900), timestamp_ms=stamp))
    if restart:
        partition.stop()
        for path in partition.logs():
            os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
        partition.open(stopped_cleanly=True)
    assert retain(partition, NOW_MS + WEEK_MS - 1) == 0
    # A stamp that is no longer ahead counts as it is.
    expected = 2 if ahead_ms > WEEK_MS else 0
    assert retain(partition, NOW_MS + WEEK_MS + 1) == expected
    assert retain(partition, NOW_MS + 2 * WEEK_MS) == 2


def without_stamps(batch: bytes) -> bytes:
    """As some clients send it; ours do not."""
    body = batch[CRC_START:27] + (-1).to_bytes(8, "big", signed=True) * 2 + batch[43:]
    crc: int = google_crc32c.value(body)
    return batch[: CRC_START - 4] + crc.to_bytes(4, "big") + body


@pytest.mark.parametrize("restart", [False, True])
def test_records_without_stamps_go_by_when_they_were_appended(partition: PartitionOnDisk, restart: bool) -> None:
    for _ in range(2):
        partition.append(without_stamps(batch_of(bytes(1900))))
    if restart:
        partition.stop()
        for path in partition.logs():
            os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
        partition.open(stopped_cleanly=True)
    assert retain(partition, NOW_MS + WEEK_MS) == 0
    assert retain(partition, NOW_MS + WEEK_MS + 1) == 2


@pytest.mark.parametrize("restarts", [0, 3])
def test_what_a_broker_wrote_whose_clock_was_ahead_goes_from_when_it_is_set_right(
    partition: PartitionOnDisk, restarts: int
) -> None:
    ahead = NOW_MS + YEAR_MS
    for _ in range(2):
        partition.append(batch_of(bytes(1900), timestamp_ms=ahead), now_ms=ahead)
    for path in partition.logs():
        os.utime(path, (ahead / 1000, ahead / 1000))
    for number in range(restarts + 1):
        assert retain(partition, NOW_MS + number * DAY_MS) == 0
        if number < restarts:
            partition.stop()
            partition.open(stopped_cleanly=True)
    assert retain(partition, NOW_MS + WEEK_MS) == 0
    assert retain(partition, NOW_MS + WEEK_MS + 1) == 2


def test_retention_without_an_age_looks_at_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0", msgspec.structs.replace(SMALL, retention_ms=-1))
    for _ in range(3):
        partition.append(without_stamps(batch_of(bytes(1900))))
    partition.stop()
    partition.open(stopped_cleanly=True)
    monkeypatch.setattr(partition.files, "modified_ms", None)
    assert partition.log.expired_segments(NOW_MS + YEAR_MS).start_offset == 0
