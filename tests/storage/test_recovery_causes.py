"""Opening a partition: which damage a crash explains, and which is corruption; what makes names durable."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from logbroker.config import MAX_INT32, MAX_INT64, TopicConfig
from logbroker.errors import (
    CorruptLogError,
    DiskFullError,
    InvalidTopicNameError,
    LogTruncatedError,
    StorageFailedError,
)
from logbroker.storage.partition_log import PartitionCheckpoint
from logbroker.types import Durability
from tests.storage.faulty_files import FaultyFiles
from tests.storage.partition import SMALL, PartitionOnDisk, batch_of

WRITTEN = msgspec.structs.replace(SMALL, durability=Durability.WRITTEN)


def flip(path: Path, position: int, bit: int = 6) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_segment_that_was_made_for_a_batch_never_written_is_removed(
    partition: PartitionOnDisk, rebooted: bool
) -> None:
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    partition.stage(batch_of(bytes(1500)))
    partition.stage(batch_of(bytes(1500)))  # makes the next segment while the first batch is still in memory
    assert len(partition.logs()) == 2
    partition.kill()
    if rebooted:
        partition.after_power_cut()
    partition.open()
    assert partition.values() == [b"a"]
    assert len(partition.logs()) == 1
    partition.append(batch_of(bytes(1500)), batch_of(b"b"))
    assert partition.values() == [b"a", bytes(1500), b"b"]


def test_a_write_torn_before_an_empty_segment_is_no_corruption(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    partition.stage(batch_of(bytes(1500)))
    partition.stage(batch_of(bytes(1500)))
    group = partition.log.take_staged()
    assert group is not None
    partition.kill()
    torn = b"".join(group.runs[0][2])[:700]
    with partition.logs()[0].open("ab") as file:
        file.write(torn)
    partition.open()
    assert partition.values() == [b"a"]
    assert [path.stat().st_size for path in partition.directory.glob("*.cut-*")] == [700]


def test_a_flipped_leader_epoch_is_noticed_though_no_crc_covers_it(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    start = partition.log.size_bytes
    partition.append(batch_of(b"b"), batch_of(b"c"), sync=False)
    partition.kill()
    flip(partition.logs()[0], start + 12)
    with pytest.raises(CorruptLogError, match=f"the batch at byte {start}"):
        partition.open()


def test_after_a_power_cut_no_more_is_cut_than_can_have_been_unsynced(partition: PartitionOnDisk) -> None:
    size = len(batch_of(b"x"))
    partition.unsynced_bound_bytes = 2 * size
    partition.open()
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    for value in (b"b", b"c", b"d"):
        partition.append(batch_of(value))
    partition.kill()
    partition.after_power_cut()
    (path,) = partition.logs()
    sound = path.read_bytes()
    flip(path, size + 65)
    with pytest.raises(CorruptLogError, match=f"{path.name}: the batch at byte {size} .* {3 * size} bytes follow"):
        partition.open()
    path.write_bytes(sound)
    flip(path, 2 * size + 65)
    partition.open()
    assert partition.values() == [b"a", b"b"]


def test_the_bound_counts_the_segments_that_follow(partition: PartitionOnDisk) -> None:
    partition.unsynced_bound_bytes = 2000
    partition.open()
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    for _ in range(2):
        partition.append(batch_of(bytes(1500)))
    partition.kill()
    partition.after_power_cut()
    flip(partition.logs()[0], 300)
    with pytest.raises(CorruptLogError, match="at most 2000 were not synced"):
        partition.open()


def test_a_topic_that_was_made_written_has_no_bound(partition: PartitionOnDisk) -> None:
    partition.unsynced_bound_bytes = 10
    partition.open()
    partition.store_checkpoint()
    partition.append(batch_of(b"a"), sync=False)
    partition.append(batch_of(b"b"), sync=False)
    partition.kill()
    partition.after_power_cut()
    flip(partition.logs()[0], 65)
    with pytest.raises(CorruptLogError, match="at most 10"):
        partition.open()
    partition.config = WRITTEN
    partition.open()
    assert partition.values() == []
    partition.store_checkpoint()
    checkpoint = partition.stored_checkpoint()
    assert checkpoint is not None
    assert checkpoint.unsynced_bound_bytes == -1


def test_after_a_clean_stop_a_reboot_is_no_power_cut(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0", WRITTEN)
    partition.append(batch_of(b"a"))
    partition.stop()
    partition.after_power_cut()
    partition.open(stopped_cleanly=True)
    assert partition.log.leader_epoch == 0
    partition.stop()
    partition.after_power_cut()
    partition.open()
    assert partition.log.leader_epoch == 1


def test_after_a_clean_stop_nothing_is_torn(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.stop()
    (path,) = partition.logs()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"?")
    with pytest.raises(CorruptLogError, match=f"{path.name}: the batch at byte {size} .* stopped cleanly"):
        partition.open(stopped_cleanly=True)
    partition.open()
    assert partition.values() == [b"a"]


def test_every_flipped_bit_of_the_epoch_checkpoint_is_corruption(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.append(batch_of(b"b"), sync=False)
    partition.kill()
    (log,) = partition.logs()
    log.write_bytes(log.read_bytes()[:-1])
    partition.open()
    partition.append(batch_of(b"c"))
    partition.stop()
    path = partition.directory / "leader-epoch-checkpoint"
    sound = path.read_bytes()
    assert sound == b"0\n2\n0 0\n1 1\n"
    unnoticed = []
    for position in range(len(sound)):
        for bit in range(8):
            flip(path, position, bit)
            with suppress(CorruptLogError):
                partition.open()
                partition.kill()
                unnoticed.append((position, bit))
            path.write_bytes(sound)
    # A line feed for another white space: the same numbers.
    assert all(sound[position : position + 1].isspace() for position, _bit in unnoticed)
    path.unlink()
    with pytest.raises(CorruptLogError, match=r"it began with '0\\n2"):
        partition.open()


def test_what_was_never_synced_gets_durable_names_when_it_is_kept(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    partition.store_checkpoint()
    partition.append(batch_of(b"a"), sync=False)
    partition.kill()
    files.journal.clear()
    partition.open()
    assert {
        ("fdatasync", f"{0:020d}.log"),
        ("fdatasync", "partition.metadata"),
        ("sync_directory", "t-0"),
        ("sync_directory", tmp_path.name),
    } <= set(files.journal)


def test_metadata_that_a_power_cut_took_before_the_first_sync_is_written_again(partition: PartitionOnDisk) -> None:
    partition.store_checkpoint()
    partition.append(batch_of(b"a"), sync=False)
    partition.kill()
    path = partition.directory / "partition.metadata"
    sound = path.read_bytes()
    path.write_bytes(bytes(len(sound)))
    with pytest.raises(CorruptLogError, match=path.name):
        partition.open()
    partition.after_power_cut()
    partition.open()
    assert path.read_bytes() == sound
    assert partition.values() == [b"a"]


def test_a_checkpoint_of_an_empty_partition_makes_recovery_strict(partition: PartitionOnDisk) -> None:
    """Without one, a gap would pass for what compaction leaves in a directory of Kafka's."""
    partition.store_checkpoint()
    partition.append(batch_of(b"a"), batch_of(b"b"), sync=False)
    partition.kill()
    flip(partition.logs()[0], 3)
    with pytest.raises(CorruptLogError, match="is whole, but of another offset"):
        partition.open()


def test_a_leader_epoch_too_many_below_the_recovery_point_is_noticed(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"), batch_of(b"b"), batch_of(b"c"))
    partition.stop()
    path = partition.directory / "leader-epoch-checkpoint"
    sound = path.read_bytes()
    assert sound == b"0\n1\n0 0\n"
    for content in ("0\n2\n0 0\n1 0\n", "0\n2\n0 0\n1 2\n", "0\n3\n0 0\n1 1\n2 3\n"):
        path.write_text(content)
        with pytest.raises(
            CorruptLogError, match=r"leader-epoch-checkpoint: the file is damaged; restore it, it began"
        ):
            partition.open()
    # A recovery may have begun one at the end, and died before its checkpoint was stored.
    path.write_text("0\n2\n0 0\n1 3\n")
    partition.open()
    assert partition.values() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("has_tail", [False, True])
@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("end", ["stopped cleanly", "killed", "power cut"])
@pytest.mark.parametrize("config", [SMALL, WRITTEN], ids=["synced", "written"])
def test_a_leader_epoch_above_the_end_of_the_log_is_noticed(
    tmp_path: Path, config: TopicConfig, end: str, has_checkpoint: bool, has_tail: bool
) -> None:
    """Records appended below its beginning could not be read."""
    partition = PartitionOnDisk(tmp_path / "t-0", config)
    partition.append(batch_of(b"a"))
    if has_checkpoint:
        partition.store_checkpoint()
    if has_tail or not has_checkpoint:
        partition.append(batch_of(b"b"))
    values = partition.values()
    partition.kill()
    if end == "power cut":
        partition.after_power_cut()
    path = partition.directory / "leader-epoch-checkpoint"
    sound = path.read_bytes()
    for epoch, offset in ((1, len(values) + 1), (1, 5000), (7, MAX_INT64)):
        damaged = f"0\n2\n0 0\n{epoch} {offset}\n"
        path.write_text(damaged)
        with pytest.raises(
            CorruptLogError, match=f"{path}: leader epoch {epoch} begins at {offset}, but the log ends at {len(values)}"
        ):
            partition.open(stopped_cleanly=end == "stopped cleanly")
        assert path.read_text() == damaged
    path.write_bytes(sound)
    partition.open(stopped_cleanly=end == "stopped cleanly")
    assert partition.values() == values
    partition.append(batch_of(b"next"))
    assert partition.values() == [*values, b"next"]


@pytest.mark.parametrize("entry", [f"1 {MAX_INT64 + 1}", "1 -1", "-1 0", f"{MAX_INT32} 1"])
def test_a_leader_epoch_out_of_range_is_noticed(partition: PartitionOnDisk, entry: str) -> None:
    partition.append(batch_of(b"a"))
    partition.kill()
    first = "" if entry.startswith("-") else "0 0\n"
    path = partition.directory / "leader-epoch-checkpoint"
    path.write_text(f"0\n{1 + bool(first)}\n{first}{entry}\n")
    with pytest.raises(CorruptLogError, match=f"{path}: version, count, order or range"):
        partition.open()


def test_a_checkpoint_of_an_older_broker_is_read() -> None:
    row = msgspec.msgpack.encode({"recovery_point": 0, "log_start_offset": 0, "segments": [], "producers": []})
    checkpoint = msgspec.msgpack.decode(row, type=PartitionCheckpoint)
    assert (checkpoint.epochs, checkpoint.unsynced_bound_bytes) == ([], -1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_that_shows_before_a_byte_is_written_is_a_refusal(tmp_path: Path, number: int) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    files.fail("open", number)
    with pytest.raises(DiskFullError):
        partition.stage(batch_of(b"a"))
    partition.append(batch_of(b"a"))
    assert partition.values() == [b"a"]
    for operation in ("make_directory", "open", "pwritev"):
        files.fail(operation, number)
        with pytest.raises(DiskFullError):
            PartitionOnDisk(tmp_path / "t-1", files=files)
    files.fail("open", errno.EIO)
    with pytest.raises(StorageFailedError):
        PartitionOnDisk(tmp_path / "t-1", files=files)


def test_a_name_that_is_too_long_only_when_it_is_made_is_a_refusal(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.fail("make_directory", errno.ENAMETOOLONG)
    with pytest.raises(InvalidTopicNameError, match="does not take a path as long"):
        PartitionOnDisk(tmp_path / "t-0", files=files)


def test_a_disk_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    partition.append(batch_of(b"a"))
    files.fail("pread", errno.EIO)
    with pytest.raises(CorruptLogError, match=f"{0:020d}.log: cannot be read: {os.strerror(errno.EIO)}"):
        partition.log.read(0, 1000, nowait=False)
    assert partition.values() == [b"a"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_read_that_fails_in_a_recovery_concerns_the_partition_only(tmp_path: Path, damaged: bool) -> None:
    """Whichever of the reads it is: the error is not that of a failed write, which ends the broker."""
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    partition.append(batch_of(b"b"), batch_of(b"c"))
    partition.kill()
    partition.after_power_cut()
    path = partition.logs()[0]
    if damaged:
        flip(path, len(batch_of(b"x")) + 65)
    content = path.read_bytes()
    # Where nothing is damaged, recovery makes no file, so that each "open" is that of a read.
    for call in ("pread", "list_directory", "list_others", *(() if damaged else ("open",))):
        refusals = 0
        for nth in range(100):
            path.write_bytes(content)
            files.failures = {call: [*[0] * nth, errno.EIO]}
            # A failed read of an index is no refusal.
            with suppress(CorruptLogError):
                partition.open()
                refusals -= 1
            refusals += 1
            partition.kill()
            if files.failures[call]:
                break
        assert refusals
    files.failures = {}
    path.write_bytes(content)
    partition.open()
    assert partition.values() == ([b"a"] if damaged else [b"a", b"b", b"c"])


KILLED_HALFWAY = """
import os, sys
from pathlib import Path
from logbroker.storage.files import RealFiles
from tests.storage.partition import *

class Torn(RealFiles):
    def pwritev(self, fd, buffers, position):
        if sys.argv[2] == "write" and os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            super().pwritev(fd, [b"".join(buffers)[:100]], position)
            os.kill(os.getpid(), 9)
        return super().pwritev(fd, buffers, position)

    def fdatasync(self, fd):
        if sys.argv[2] == "sync":
            os.kill(os.getpid(), 9)
        super().fdatasync(fd)

partition = PartitionOnDisk(Path(sys.argv[1]), files=Torn())
print(partition.topic_id.hex(), flush=True)
partition.append(batch_of(b"a"), batch_of(bytes(1900)), batch_of(bytes(1900)))
"""


@pytest.mark.parametrize("where", ["write", "sync"])
def test_a_process_killed_in_its_first_append_leaves_a_partition_that_opens(tmp_path: Path, where: str) -> None:
    directory = tmp_path / "t-0"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_HALFWAY, str(directory), where],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == -9, ended.stderr
    partition = PartitionOnDisk(tmp_path / "other-0")
    partition.store_checkpoint()
    partition.kill()
    partition.directory, partition.topic_id = directory, type(partition.topic_id)(bytes.fromhex(ended.stdout.decode()))
    partition.open()
    assert partition.values() == ([b"a"] if where == "write" else [b"a", bytes(1900), bytes(1900)])


def test_a_power_cut_that_takes_all_there_was_raises_the_epoch(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0", WRITTEN)
    partition.store_checkpoint()
    partition.append(batch_of(b"seen"), sync=False)
    partition.kill()
    for path in partition.directory.iterdir():
        path.unlink()
    partition.after_power_cut()
    partition.open()
    partition.append(batch_of(b"other"), batch_of(b"records"))
    with pytest.raises(LogTruncatedError):
        partition.log.check_leader_epoch(0, 1)
