"""Opening a partition: what is trusted, what is cut off, what is refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import google_crc32c
import msgspec
import pytest

from logbroker.errors import CorruptLogError
from logbroker.record.header import HEADER, parse_header, stored_prefix
from logbroker.storage.files import RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_log import PartitionLog
from logbroker.types import Durability, new_topic_id, topic_id_text
from tests.storage.faulty_files import FaultyFiles
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of


def filled(partition: PartitionOnDisk, batches: int = 12) -> PartitionOnDisk:
    for number in range(batches):
        partition.append(batch_of(b"%d" % number, bytes(400), timestamp_ms=NOW_MS + number))
    return partition


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def test_a_clean_start_opens_no_segment(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = filled(PartitionOnDisk(tmp_path / "t-0", files=files))
    partition.stop()
    files.calls.clear()
    partition.open()
    assert partition.log.log_end_offset == 24
    assert files.calls["open"] == 2  # partition.metadata and leader-epoch-checkpoint
    assert len(partition.handles) == 0


def test_a_kill_reads_only_what_lies_above_the_recovery_point(tmp_path: Path) -> None:
    files = FaultyFiles()
    config = msgspec.structs.replace(SMALL, segment_bytes=1 << 30, index_interval_bytes=4096)
    partition = PartitionOnDisk(tmp_path / "t-0", config, files)
    for _ in range(300):
        partition.append(batch_of(bytes(10_000)), sync=False)
    partition.log.sync(partition.log.begin_sync())
    partition.log.mark_synced(partition.log.written_end)
    partition.store_checkpoint()
    partition.append(batch_of(b"last"), sync=False)
    partition.kill()
    files.bytes_read = 0
    partition.open()
    assert partition.log.log_end_offset == 301
    assert files.bytes_read < 100_000


def test_what_is_cut_off_is_kept_in_a_side_file_and_named(
    partition: PartitionOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    partition.append(batch_of(b"a"))
    end = partition.log.size_bytes
    partition.append(batch_of(b"bbbb"), sync=False)
    partition.kill()
    (path,) = partition.logs()
    torn = path.read_bytes()[:-2]
    path.write_bytes(torn)
    partition.open()
    assert path.read_bytes() == torn[:end]
    assert (partition.directory / f"{path.name}.cut-{end}").read_bytes() == torn[end:]
    assert f"{path.name}: cut at byte {end}" in caplog.text
    assert partition.values() == [b"a"]
    assert (partition.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 1\n"


def test_the_kept_tail_is_written_again_and_synced(tmp_path: Path) -> None:
    files = FaultyFiles()
    partition = PartitionOnDisk(tmp_path / "t-0", files=files)
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    recovery_point_at = partition.log.size_bytes
    partition.append(batch_of(b"b"), sync=False)
    partition.kill()
    files.writes.clear()
    files.journal.clear()
    partition.open()
    name = f"{0:020d}.log"
    assert (name, recovery_point_at) in files.writes
    assert ("fdatasync", name) in files.journal
    assert partition.log.synced_offset == 2


def test_after_a_kill_a_good_batch_behind_a_bad_one_is_corruption(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    start = partition.log.size_bytes
    partition.append(batch_of(b"b"), sync=False)
    partition.append(batch_of(b"c"), sync=False)
    partition.kill()
    (path,) = partition.logs()
    flip(path, start + 65)
    damaged = path.read_bytes()
    with pytest.raises(CorruptLogError, match=rf"{path.name}: the batch at byte {start} .* follows at byte"):
        partition.open()
    assert path.read_bytes() == damaged
    partition.after_power_cut()
    partition.open()
    assert partition.values() == [b"a"]
    assert partition.log.leader_epoch == 1


@pytest.mark.parametrize("byte", [7, 15], ids=["offset", "leader epoch"])
def test_after_a_kill_a_batch_that_belongs_elsewhere_is_corruption(partition: PartitionOnDisk, byte: int) -> None:
    """No CRC covers its offset and its leader epoch, so the batch itself is good."""
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    start = partition.log.size_bytes
    partition.append(batch_of(b"b"), sync=False)
    partition.append(batch_of(b"c"), sync=False)
    partition.kill()
    (path,) = partition.logs()
    flip(path, start + byte)
    told = rf"{path.name}: the batch at byte {start} \(offset 1\) is whole, but of another offset or leader epoch"
    with pytest.raises(CorruptLogError, match=told):
        partition.open()


def test_after_a_kill_a_segment_behind_a_bad_batch_is_corruption(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    partition.append(batch_of(bytes(1500)), batch_of(bytes(1500)), sync=False)
    partition.kill()
    flip(partition.logs()[0], 300)
    with pytest.raises(CorruptLogError, match=f"{1 + 1:020d}.log follows"):
        partition.open()


def test_segments_behind_a_cut_are_set_aside(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    partition.append(batch_of(bytes(1500)), batch_of(bytes(1500)), sync=False)
    partition.kill()
    partition.after_power_cut()
    flip(partition.logs()[0], 300)
    partition.open()
    assert partition.values() == [b"a"]
    assert (partition.directory / f"{2:020d}.log.cut-0").stat().st_size > 1500
    assert not (partition.directory / f"{2:020d}.index").exists()
    partition.append(batch_of(b"new"))
    assert partition.values() == [b"a", b"new"]


@pytest.mark.parametrize("damage", ["missing", "short", "long"])
def test_a_sealed_segment_that_is_not_as_it_was_is_corruption(partition: PartitionOnDisk, damage: str) -> None:
    filled(partition)
    partition.stop()
    path = partition.logs()[1]
    if damage == "missing":
        path.unlink()
    else:
        size = path.stat().st_size
        os.truncate(path, size - 1 if damage == "short" else size + 1)
    with pytest.raises(CorruptLogError, match=path.name):
        partition.open()


def test_an_active_segment_shorter_than_its_recovery_point_is_corruption(partition: PartitionOnDisk) -> None:
    filled(partition)
    partition.stop()
    path = partition.logs()[-1]
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CorruptLogError, match="synced"):
        partition.open()


def test_a_missing_directory_is_corruption_unless_it_was_empty(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0")
    partition.stop()
    (partition.directory / "partition.metadata").unlink()
    partition.directory.rmdir()
    partition.open()
    partition.append(batch_of(b"a"))
    partition.stop()
    partition.directory.rename(tmp_path / "elsewhere")
    with pytest.raises(CorruptLogError, match="directory is missing"):
        partition.open()


def test_the_files_of_another_topic_are_refused(partition: PartitionOnDisk) -> None:
    filled(partition)
    partition.stop()
    old = topic_id_text(partition.topic_id)
    partition.topic_id = new_topic_id()
    with pytest.raises(CorruptLogError, match=f"belong to topic {old}"):
        partition.open()


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_a_damaged_small_file_is_corruption(partition: PartitionOnDisk, name: str) -> None:
    filled(partition)
    partition.stop()
    (partition.directory / name).write_bytes(b"0\xff\n")
    with pytest.raises(CorruptLogError, match=name):
        partition.open()


def test_a_power_cut_raises_the_epoch_where_written_records_may_be_gone(tmp_path: Path) -> None:
    for durability, epoch in ((Durability.SYNCED, 0), (Durability.WRITTEN, 1)):
        partition = PartitionOnDisk(tmp_path / durability.value, msgspec.structs.replace(SMALL, durability=durability))
        filled(partition)
        partition.stop()
        partition.after_power_cut()
        partition.open()
        assert partition.log.leader_epoch == epoch


def test_indexes_are_built_again_where_they_are_missing_or_damaged(partition: PartitionOnDisk) -> None:
    filled(partition, 40)
    partition.stop()
    for number, path in enumerate(sorted(partition.directory.glob("*index"))):
        if number % 3 == 0:
            path.unlink()
        elif number % 3 == 1:
            path.write_bytes(os.urandom(path.stat().st_size))
        else:
            path.write_bytes(bytes(path.stat().st_size + 5))
    partition.open()
    for offset in range(80):
        chunk = partition.log.read(offset, 1, nowait=False)
        assert chunk.next_offset == offset // 2 * 2 + 2
    for number in range(40):
        assert partition.log.offset_for_time(NOW_MS + number).offset == 2 * number


@pytest.mark.parametrize("damage", ["random", "cut"])
def test_a_damaged_index_is_replaced_by_a_sound_one(tmp_path: Path, damage: str) -> None:
    config = msgspec.structs.replace(SMALL, segment_bytes=20_000, index_interval_bytes=4096)
    partition = filled(PartitionOnDisk(tmp_path / "t-0", config), 60)
    partition.stop()
    index = partition.directory / f"{0:020d}.index"
    sound = index.read_bytes()
    assert len(sound) >= 16
    if damage == "random":
        # Entries that ascend, so that only following them shows what they are.
        index.write_bytes(b"".join(struct.pack(">ii", 2 * n + 1, 100 * n + 7) for n in range(1, 3)))
    else:
        index.write_bytes(sound[:-3])
    partition.open()
    for offset in (37, 9, 21):
        assert partition.log.read(offset, 1, nowait=False).next_offset == offset + 1
    if damage == "random":
        assert index.read_bytes() == sound
    else:
        assert index.read_bytes() == sound[:-8]


def test_a_stale_index_does_not_reach_a_recovered_segment(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"a"))
    partition.store_checkpoint()
    partition.append(*(batch_of(bytes(100)) for _ in range(15)), sync=False)
    partition.kill()
    for suffix in ("index", "timeindex"):
        (partition.directory / f"{int(partition.logs()[-1].stem):020d}.{suffix}").write_bytes(b"\x7f" * 240)
    partition.open()
    partition.stop()
    assert all(path.stat().st_size < 240 for path in partition.directory.glob("*index"))


def test_a_kafka_directory_with_gaps_and_control_batches_is_read(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    control = bytearray(batch_of(b"commit marker"))
    control[22] |= 0x20
    batches = [
        (1000, batch_of(b"a", b"b", timestamp_ms=NOW_MS)),
        (1010, _with_crc(control)),
        (1020, batch_of(b"c", timestamp_ms=NOW_MS + 5)),
    ]
    _write_log(directory, 1000, batches)
    _write_log(directory, 2000, [(2005, batch_of(b"d", timestamp_ms=NOW_MS + 9))])
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n4 1000\n")
    log = PartitionLog.open(
        directory, new_topic_id(), SMALL, files=RealFiles(), handles=HandleCache(RealFiles(), 4), checkpoint=None
    )
    assert (log.log_start_offset, log.high_watermark, log.leader_epoch, log.segment_count) == (1000, 2006, 4, 2)
    found = []
    offset = 1000
    while (chunk := log.read(offset, 1, nowait=False)).batches:
        found.append(parse_header(chunk.batches).base_offset)
        offset = chunk.next_offset
    assert found == [1000, 1010, 1020, 2005]
    for offset, expected in ((1003, 1010), (1015, 1020), (1500, 2005), (2001, 2005)):
        assert parse_header(log.read(offset, 1, nowait=False).batches).base_offset == expected
    assert log.offset_for_time(NOW_MS + 1).offset == 1020
    assert log.offset_for_time(NOW_MS + 6).offset == 2005


@pytest.mark.parametrize("base_offset", [2**63 - 2**31, 2**63 - 1, 2**63, 10**20 - 1])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_name_beyond_all_offsets_is_not_that_of_a_segment(tmp_path: Path, is_known: bool, base_offset: int) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0")
    partition.append(batch_of(b"a"))
    if is_known:
        partition.store_checkpoint()
    partition.kill()
    (log,) = partition.logs()
    stray = partition.directory / f"{base_offset:020d}.log"
    stray.write_bytes(log.read_bytes())
    partition.open()
    assert partition.log.log_end_offset == 1
    partition.append(batch_of(b"b"))
    partition.stop()
    partition.open(stopped_cleanly=True)
    assert partition.values() == [b"a", b"b"]
    assert stray.read_bytes()


def _write_log(directory: Path, base_offset: int, batches: list[tuple[int, bytes]]) -> None:
    content = b"".join(stored_prefix(offset, len(batch) - 12, 4) + batch[16:] for offset, batch in batches)
    (directory / f"{base_offset:020d}.log").write_bytes(content)


def _with_crc(batch: bytearray) -> bytes:
    fields = list(HEADER.unpack_from(batch))
    fields[4] = google_crc32c.value(bytes(batch[21:]))
    return HEADER.pack(*fields) + bytes(batch[HEADER.size :])


def test_what_earlier_cuts_kept_is_kept(partition: PartitionOnDisk) -> None:
    """Cut at the same places again and again: side files are never replaced."""
    partition.append(batch_of(b"kept"))
    partition.store_checkpoint()
    end = partition.logs()[0].stat().st_size
    torn = []
    for number in range(3):
        partition.append(batch_of(b"torn %d" % number, bytes(1500)), batch_of(bytes(1500)), sync=False)
        partition.kill()
        first, *later = partition.logs()
        with first.open("r+b") as log:
            log.seek(end + 70)
            log.write(b"!")
        torn.append(first.read_bytes()[end:])
        torn += [path.read_bytes() for path in later]
        partition.after_power_cut()
        partition.open()
        partition.store_checkpoint()
    sides = [path.read_bytes() for path in partition.directory.glob("*.cut-*")]
    assert sorted(sides) == sorted(torn)
    assert len(torn) > 3
    assert partition.values() == [b"kept"]


def test_a_cut_that_was_begun_goes_on_in_its_side_file(partition: PartitionOnDisk) -> None:
    partition.append(batch_of(b"kept"))
    partition.append(batch_of(b"torn"), sync=False)
    partition.kill()
    (log,) = partition.logs()
    content = log.read_bytes()[:-1]
    log.write_bytes(content)
    partition.open()
    (side,) = partition.directory.glob("*.cut-*")
    kept = side.read_bytes()
    partition.kill()
    side.write_bytes(kept[:10])
    log.write_bytes(content)
    partition.open()
    assert [path.read_bytes() for path in partition.directory.glob("*.cut-*")] == [kept]
