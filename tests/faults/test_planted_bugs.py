"""The crash states find bugs: each of these one-line faults, planted into the code, breaks a promise."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from logbroker.broker.local_engine.partition import Partition
from logbroker.errors import CorruptLogError, LogbrokerError, StorageFailedError
from logbroker.record.header import HEADER_BYTES, parse_header
from logbroker.storage import partition_log
from logbroker.storage.log_writer import LogWriter
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.producer_state import ProducerStates
from logbroker.storage.recovery import log_scan
from logbroker.storage.recovery import partition as recovery
from logbroker.storage.recovery import tail as tail_recovery
from logbroker.storage.recovery.tail import TailRecovery
from logbroker.storage.segment import Segment
from tests.faults import test_clean_stop, test_failing_calls
from tests.faults.crash_disk import MemoryFiles
from tests.faults.crash_trace import Trace

Plant = Callable[[pytest.MonkeyPatch], None]


class _AnyCrc:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _other: object) -> bool:
        return True


def no_directory_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryFiles, "sync_directory", lambda self, path: None)


def crc_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("logbroker.storage.recovery.log_scan.google_crc32c.value", lambda _content: _AnyCrc())


def torn_tail_kept(patch: pytest.MonkeyPatch) -> None:
    real = log_scan.good_batch

    def whatever_has_a_header(buffer: bytes, position: int, offset: int, **fields: Any) -> Any:
        found = real(buffer, position, offset, **fields)
        if found is None and len(buffer) - position >= HEADER_BYTES:
            header = parse_header(buffer, position)
            return header if header.base_offset == offset and header.length > 48 else None
        return found

    patch.setattr(tail_recovery, "good_batch", whatever_has_a_header)


def tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TailRecovery, "_cut", lambda *_: None)


def producer_state_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = recovery.recover_partition

    def without_producers(*arguments: Any, **fields: Any) -> Any:
        found = real(*arguments, **fields)
        found.producers = ProducerStates()
        return found

    patch.setattr(partition_log, "recover_partition", without_producers)


def high_watermark_early(patch: pytest.MonkeyPatch) -> None:
    real = PartitionLog.wrote
    patch.setattr(PartitionLog, "wrote", lambda self, group, *, synced: real(self, group, synced=True))


def recovery_point_early(patch: pytest.MonkeyPatch) -> None:
    real = PartitionLog.checkpoint

    def written(self: PartitionLog) -> Any:
        progress = self._progress
        synced, progress.synced = progress.synced, progress.written
        try:
            return real(self)
        finally:
            progress.synced = synced

    patch.setattr(PartitionLog, "checkpoint", written)


def kept_tail_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = recovery.recover_partition

    def unsynced(*arguments: Any, **fields: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryFiles, "fdatasync", lambda self, fd: None)
            return real(*arguments, **fields)

    patch.setattr(partition_log, "recover_partition", unsynced)


def epoch_not_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("logbroker.storage.recovery.partition._Recovery._raise_epoch", lambda *_: None)


def caught() -> str:
    """Try crash states until one breaks a promise; returns which."""
    for seed in range(20):
        try:
            trace = Trace(seed).run(steps=20)
            for state in trace.states(100):
                trace.check(state)
        except (AssertionError, LogbrokerError, OSError, KeyError) as error:
            return f"seed {seed}: {error}"
    return ""


@pytest.mark.parametrize(
    "plant",
    [
        no_directory_sync,
        crc_unchecked,
        torn_tail_kept,
        tail_not_cut,
        producer_state_forgotten,
        high_watermark_early,
        recovery_point_early,
        kept_tail_not_synced,
        epoch_not_raised,
    ],
)
@pytest.mark.prove(keep=1)
def test_the_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert caught()


async def test_a_clean_mark_after_a_failed_sync_is_caught(
    open_at: Any, tmp_path: Any, held_sync: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Partition.checkpoint

    async def failure_ignored(self: Partition) -> Any:
        try:
            return await real(self)
        except StorageFailedError:
            self._failure.error = None
            return self.log.checkpoint()

    monkeypatch.setattr(Partition, "checkpoint", failure_ignored)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await test_clean_stop.test_a_sync_that_fails_at_the_stop_leaves_no_mark(open_at, tmp_path, held_sync)


@pytest.mark.prove
def test_a_failed_sync_that_is_ignored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LogWriter._sync_log

    def ignored(self: LogWriter, segment: Segment) -> None:
        with suppress(OSError):
            real(self, segment)

    monkeypatch.setattr(LogWriter, "_sync_log", ignored)
    monkeypatch.setattr(test_failing_calls, "PER_PAIR", 100)
    with pytest.raises((AssertionError, CorruptLogError)):
        test_failing_calls.test_a_call_that_fails_loses_nothing("fdatasync", errno.EIO)
