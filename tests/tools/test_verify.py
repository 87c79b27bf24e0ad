"""`verify` finds every kind of damage, says where it is, and finds none in what is sound."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.client.sync import Admin, Producer
from logbroker.embedded_broker import embedded
from logbroker.record.header import HEADER_BYTES
from logbroker.storage.data_dir import DataDir
from logbroker.storage.files import read_regular
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.storage.partition_checkpoint import BROKER, CLEAN_STOP, PartitionCheckpoint, SegmentCheckpoint
from logbroker.storage.partition_files import Owner, encode_metadata
from logbroker.storage.segment import Segment
from logbroker.tools.segments.findings import PartitionReport, Severity
from logbroker.tools.segments.locate import SegmentFile, locate, segments_in
from logbroker.tools.segments.metadata import Metadata
from logbroker.tools.segments.verify import verify
from tests.storage.partition import NOW_MS, batch_of
from tests.tools.segment_files import (
    BATCHES,
    RECORDS,
    StoppedPartition,
    batch_positions,
    flip_bit,
    kafka_partition,
    overwrite,
    report_of,
    stored_batch,
    wrong,
)


def test_a_stopped_partition_is_sound(stopped: StoppedPartition) -> None:
    report = report_of(stopped.data_dir)
    assert report.findings == []
    assert len(report.segments) == len(stopped.logs()) > 2
    assert sum(facts.records for facts in report.segments) == BATCHES * RECORDS
    assert sum(facts.batches for facts in report.segments) == BATCHES
    assert [facts.next_offset for facts in report.segments[:-1]] == [facts.base_offset for facts in report.segments[1:]]
    assert report.segments[0].min_timestamp_ms == NOW_MS
    assert report.segments[-1].max_timestamp_ms == NOW_MS + BATCHES - 1


def test_the_last_segment_is_found_without_a_look_at_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {100 * number: 1 for number in range(200)} | {20_000: 0}
    for base_offset, size_bytes in sizes.items():
        (tmp_path / f"{base_offset:020d}.log").write_bytes(bytes(size_bytes))
    [partition] = locate([tmp_path]).partitions
    stat, looks = os.stat, 0

    def counted(*arguments: Any, **named: Any) -> os.stat_result:
        nonlocal looks
        looks += 1
        return stat(*arguments, **named)

    monkeypatch.setattr(os, "stat", counted)
    found = [segment.base_offset for segment in partition.listed() if partition.is_last(segment)]
    monkeypatch.undo()
    assert found == [19_900, 20_000]
    assert looks <= 2 * len(sizes)


def test_nothing_is_written(stopped: StoppedPartition) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        paths = [stopped.data_dir, *stopped.data_dir.rglob("*")]
        # A reader of the metadata store puts itself on LMDB's list of readers, which is no data.
        kept = [path for path in paths if path.name != "lock.mdb"]
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in kept}

    before = state()
    report_of(stopped.data_dir)
    assert state() == before


@pytest.mark.prove
def test_each_bit_of_a_header_counts(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    position = batch_positions(log)[3]
    for bit in range(8 * HEADER_BYTES):
        flip_bit(log, 8 * position + bit)
        found = wrong(report_of(stopped.data_dir))
        # The leader epoch lies outside the CRC: a higher one is noticed where it goes back, and by its checkpoint.
        assert found, bit
        if not 12 <= bit // 8 < 16:
            assert (found[0].severity, found[0].path, found[0].position) == (Severity.ERROR, str(log), position), bit
        flip_bit(log, 8 * position + bit)


@pytest.mark.parametrize("field", ["payload", "zeros", "length 0", "length -1", "length 2^31-1", "magic 1"])
def test_damage_inside_is_named_and_passed_over(stopped: StoppedPartition, field: str) -> None:
    log = stopped.logs()[1]
    positions = batch_positions(log)
    at, content = {
        "payload": (70, b"!"),
        "zeros": (0, bytes(positions[3] - positions[2])),
        "length 0": (8, bytes(4)),
        "length -1": (8, b"\xff" * 4),
        "length 2^31-1": (8, b"\x7f\xff\xff\xff"),
        "magic 1": (16, b"\x01"),
    }[field]
    overwrite(log, positions[2] + at, content)
    (finding,) = wrong(report_of(stopped.data_dir))
    assert (finding.severity, finding.path) == (Severity.ERROR, str(log))
    assert (finding.position, finding.end) == (positions[2], positions[3])
    assert "below the recovery point" in finding.message


def test_a_batch_with_a_right_crc_may_still_contradict_itself(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    good = stored_batch(0, [b"x"])
    for bad in (
        stored_batch(1, [b"x"], deltas=-1),
        stored_batch(1, [b"x", b"y"], deltas=0),
        stored_batch(1, [b"x"], attributes=5),
    ):
        path.write_bytes(good + bad + stored_batch(2, [b"z"]))
        (finding,) = wrong(report_of(path))
        assert (finding.position, finding.end) == (len(good), len(good + bad))


def test_missing_offsets_are_wrong_only_where_no_gap_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    first = stored_batch(0, [b"x"])
    path.write_bytes(first + stored_batch(5, [b"y"]))
    assert wrong(report_of(path)) == []
    (finding,) = wrong(report_of(path, gaps=False))
    assert finding.position == len(first)
    assert "1 to 4 are missing" in finding.message


def test_a_leader_epoch_that_goes_back_is_noticed_without_its_checkpoint(tmp_path: Path) -> None:
    first, second = tmp_path / f"{0:020d}.log", tmp_path / f"{2:020d}.log"
    epochs = [stored_batch(offset, [b"x"], leader_epoch=epoch) for offset, epoch in enumerate((3, 4, 3, 3))]
    first.write_bytes(b"".join(epochs[:2]))
    second.write_bytes(b"".join(epochs[2:]))
    (finding,) = wrong(report_of(tmp_path))
    assert (finding.path, finding.position) == (str(second), 0)


def test_swapped_batches_are_noticed_with_gaps_too(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    content = log.read_bytes()
    a, b, c, *_ = batch_positions(log)[2:]
    log.write_bytes(content[:a] + content[b:c] + content[a:b] + content[c:])
    for gaps in (None, True):
        found = wrong(report_of(stopped.data_dir, gaps=gaps))
        assert any(finding.path == str(log) and "goes back" in finding.message for finding in found)


def test_swapped_segments_are_noticed_with_gaps_too(stopped: StoppedPartition) -> None:
    one, other, *_ = stopped.logs()
    content = one.read_bytes()
    assert len(content) == other.stat().st_size
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    for gaps in (None, True):
        found = wrong(report_of(stopped.data_dir, gaps=gaps))
        assert {finding.path for finding in found} >= {str(one if gaps is None else other), str(other)}


def test_a_partition_of_kafka_that_a_broker_has_taken_over_is_sound(stopped: StoppedPartition) -> None:
    for path in stopped.directory.glob("0*"):
        path.unlink()
    (stopped.directory / "leader-epoch-checkpoint").unlink()
    kafka_partition(stopped.directory)
    (stopped.directory / "partition.metadata").unlink()
    stopped.disk.stored = None
    stopped.disk.open()
    stopped.disk.append(batch_of(b"ours"))
    stopped.stop()
    report = report_of(stopped.data_dir)
    assert wrong(report) == []
    assert sum(facts.missing_offsets for facts in report.segments) == 3 + 29 + 10
    assert wrong(report_of(stopped.data_dir, gaps=False)) != []


def test_a_file_that_lost_its_end_or_is_gone(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    size_bytes = log.stat().st_size
    log.write_bytes(log.read_bytes()[: batch_positions(log)[-1]])
    messages = [finding.message for finding in wrong(report_of(stopped.data_dir)) if finding.path == str(log)]
    assert any(f"had {size_bytes} when synced" in message for message in messages)
    log.unlink()
    assert any("missing" in finding.message for finding in wrong(report_of(stopped.data_dir)))


def test_a_directory_that_is_gone(stopped: StoppedPartition) -> None:
    stopped.directory.rename(stopped.data_dir.parent / "elsewhere")
    (finding,) = wrong(report_of(stopped.data_dir))
    assert "directory is missing" in finding.message


@pytest.mark.prove
def test_every_torn_last_write_is_told_from_corruption(tmp_path: Path) -> None:
    partition = StoppedPartition(tmp_path / "data")
    partition.disk.store_checkpoint()
    partition.store_metadata()
    start = partition.logs()[-1].stat().st_size
    partition.disk.append(batch_of(b"the last"), sync=False)
    partition.kill()
    log = partition.logs()[-1]
    whole = log.read_bytes()
    if log.stat().st_size < start:
        start = 0  # It went to a new segment.
    assert wrong(report_of(partition.data_dir)) == []
    for torn in [whole[:end] for end in range(start + 1, len(whole), 7)] + [
        whole[: start + 61] + bytes(len(whole) - start - 61),
        whole[:start] + bytes(len(whole) - start),
        whole + bytes(100),
    ]:
        log.write_bytes(torn)
        (finding,) = wrong(report_of(partition.data_dir))
        assert finding.severity is Severity.TORN_TAIL
        assert finding.position == (start if len(torn) <= len(whole) else len(whole))
    # The same below the recovery point is no torn write.
    checkpoint = partition.disk.stored_checkpoint()
    assert checkpoint is not None
    log = partition.logs()[-1] if start else partition.logs()[-2]
    size_bytes = checkpoint.segments[-1].size_bytes
    log.write_bytes(log.read_bytes()[: size_bytes - 5])
    if not start:
        partition.logs()[-1].write_bytes(b"")
    assert {finding.severity for finding in wrong(report_of(partition.data_dir))} == {Severity.ERROR}


def test_a_good_batch_behind_a_bad_one_is_no_torn_tail_unless_the_power_was_cut(tmp_path: Path) -> None:
    partition = StoppedPartition(tmp_path / "data")
    partition.disk.store_checkpoint()
    for number in range(3):
        partition.disk.append(batch_of(b"unsynced %d" % number), sync=False)
    partition.kill()
    partition.store_metadata()
    log = partition.logs()[-1]
    position = batch_positions(log)[-2]
    overwrite(log, position + 65, b"!")
    (finding,) = wrong(report_of(partition.data_dir))
    assert finding.severity is Severity.ERROR
    assert "a good batch follows" in finding.message
    partition.disk.after_power_cut()
    partition.store_metadata()
    assert [finding.severity for finding in wrong(report_of(partition.data_dir))] == [Severity.TORN_TAIL]


def test_a_recovery_point_that_the_log_does_not_have(stopped: StoppedPartition) -> None:
    checkpoint = stopped.disk.stored_checkpoint()
    assert checkpoint is not None
    *before, last = checkpoint.segments
    shorter = msgspec.structs.replace(last, size_bytes=last.size_bytes - 1)
    for damaged in (
        msgspec.structs.replace(checkpoint, recovery_point=checkpoint.recovery_point + 1),
        msgspec.structs.replace(checkpoint, segments=[*before, shorter]),
    ):
        stopped.disk.stored = msgspec.msgpack.encode(damaged)
        stopped.store_metadata()
        found = wrong(report_of(stopped.data_dir))
        assert [finding.path for finding in found] == [str(stopped.logs()[-1])]
        assert "recovery point" in found[0].message


# --- indexes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize(("suffix", "layout"), [(".index", ">ii"), (".timeindex", ">qi")])
def test_an_index_entry_off_by_one(stopped: StoppedPartition, suffix: str, layout: str, column: int, by: int) -> None:
    log = stopped.logs()[1]
    path = log.with_suffix(suffix)
    entry = struct.Struct(layout)
    assert path.stat().st_size >= 3 * entry.size
    numbers = list(entry.unpack_from(path.read_bytes(), entry.size))
    numbers[column] += by
    overwrite(path, entry.size, entry.pack(*numbers))
    found = wrong(report_of(stopped.data_dir))
    # A time entry's offset may be any of the batch's: it leads to the same place.
    if suffix == ".timeindex" and column == 1 and by == -1:
        assert found == []
    else:
        assert {finding.path for finding in found} == {str(path)}
        assert found[0].position == entry.size


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_cut_short_or_too_long_or_gone(stopped: StoppedPartition, suffix: str) -> None:
    path = stopped.logs()[1].with_suffix(suffix)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    report = report_of(stopped.data_dir)
    assert str(path) in {finding.path for finding in wrong(report)}
    (note,) = (finding.message for finding in report.findings if finding.severity is Severity.NOTE)
    assert f"`logbroker segment rebuild-index {path.with_suffix('.log')}` makes it anew" in note
    path.write_bytes(content + struct.pack(">iii", 1, 2**30, 2**30))
    assert str(path) in {finding.path for finding in wrong(report_of(stopped.data_dir))}
    path.write_bytes(content[::-1])
    assert str(path) in {finding.path for finding in wrong(report_of(stopped.data_dir))}
    path.unlink()
    report = report_of(stopped.data_dir)
    assert report.sound
    assert [finding.path for finding in report.findings] == [str(path)]


@pytest.mark.parametrize(
    ("index", "with_store", "says", "advice"),
    [
        (1, True, "records are missing", ""),
        (1, False, "records are missing", ""),
        (-1, True, "records are missing", ""),
        (-1, False, "records are missing, if the index is not damaged", "if no record is missing: "),
    ],
)
def test_indexes_that_know_of_lost_records_say_so_in_one_line_each(
    stopped: StoppedPartition, index: int, with_store: bool, says: str, advice: str
) -> None:
    """A rebuilt index brings no record back."""
    log = stopped.logs()[index]
    indexes = [log.with_suffix(suffix) for suffix in (".index", ".timeindex")]
    highest = [struct.unpack(">i", path.read_bytes()[at:][:4])[0] for path, at in zip(indexes, (-8, -4), strict=True)]
    log.write_bytes(log.read_bytes()[: batch_positions(log)[1]])
    if not with_store:
        shutil.rmtree(stopped.data_dir / "meta")
    report = report_of(stopped.directory)
    base_offset = int(log.stem)
    end = f"but the log ends at offset {base_offset + RECORDS}: {says}"
    if index == -1 and with_store:
        ended = f"ends at offset {base_offset + RECORDS}, but it had records up to offset {BATCHES * RECORDS - 1}"
        assert [ended in finding.message for finding in wrong(report)].count(True) == 1
    for path, last in zip(indexes, highest, strict=True):
        assert last > 2 * RECORDS
        errors: list[str] = []
        notes: list[str] = []
        for finding in report.findings:
            if finding.path == str(path):
                (notes if finding.severity is Severity.NOTE else errors).append(finding.message)
        assert errors == [f"it has records up to offset {base_offset + last}, {end}"]
        assert [note.startswith(f"{advice}with") for note in notes] == [True] * bool(advice)


@pytest.mark.parametrize("index", [1, -1])
def test_an_index_with_more_than_its_whole_log_loses_no_record(stopped: StoppedPartition, index: int) -> None:
    store = MetadataStore.open(stopped.data_dir / "meta", on_failure=print)
    store.submit([(BROKER, CLEAN_STOP, b"1")]).result(20)
    store.close()
    path = stopped.logs()[index].with_suffix(".index")
    path.write_bytes(path.read_bytes() + struct.pack(">iiii", 2**20, 2**20, 2**30, 2**30))
    report = report_of(stopped.data_dir)
    (error,) = wrong(report)
    assert f"up to offset {int(path.stem) + 2**30}, but the log ends at" in error.message
    assert "missing" not in error.message
    (note,) = (finding.message for finding in report.findings if finding.severity is Severity.NOTE)
    assert note.startswith("no record is lost: ")


# --- small files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("partition.metadata", b"version: 0\ntopic_id: PyNAxPtbSIqTSRdyGmbyYw\n", "it belongs to topic"),
        ("partition.metadata", b"version: 1\n", "version 0"),
        ("partition.metadata", b"", "version 0"),
        ("leader-epoch-checkpoint", b"0\n1\n0 1\n", "begins at 1"),
        ("leader-epoch-checkpoint", b"0\n1\n1 0\n", "epoch 0 of offset 0 is missing"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n1 1000\n", "the log ends at 120"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "count"),
        ("leader-epoch-checkpoint", b"\0" * 8, "not a leader-epoch-checkpoint"),
    ],
)
def test_small_files(stopped: StoppedPartition, name: str, content: bytes, complaint: str) -> None:
    path = stopped.directory / name
    path.write_bytes(content)
    (finding,) = wrong(report_of(stopped.data_dir))
    assert finding.path == str(path)
    assert complaint in finding.message


@pytest.mark.parametrize("content", [None, b"", bytes(57)])
def test_metadata_that_a_power_cut_took_from_a_partition_without_records_is_no_damage(
    stopped: StoppedPartition, content: bytes | None
) -> None:
    """It is synced with the first record; the next start writes it anew."""
    for path in stopped.directory.iterdir():
        if path.name != "partition.metadata" or content is None:
            path.unlink()
    if content is not None:
        (stopped.directory / "partition.metadata").write_bytes(content)
    else:
        (stopped.directory / f"{0:020d}.log").touch()
    checkpoint = PartitionCheckpoint(recovery_point=0, log_start_offset=0, segments=[], boot_id="an earlier boot")
    stopped.disk.stored = msgspec.msgpack.encode(checkpoint)
    stopped.store_metadata()
    report = report_of(stopped.data_dir)
    assert report.sound
    assert any(finding.message.endswith("; the next start writes it anew") for finding in report.findings)
    held = DataDir.open(stopped.data_dir)
    try:
        assert not report_of(stopped.data_dir).sound
    finally:
        held.close()
    stopped.disk.open()
    stopped.disk.kill()
    found = (stopped.directory / "partition.metadata").read_bytes()
    assert found == encode_metadata(Owner(stopped.disk.topic_id, 0))


def test_damaged_metadata_is_told_and_the_rest_verified(stopped: StoppedPartition) -> None:
    (stopped.data_dir / "meta" / "data.mdb").write_bytes(b"nonsense" * 1000)
    flip_bit(stopped.logs()[1], 8 * 100)
    store, report = verify(locate([stopped.data_dir]), lambda _bytes: None)
    [finding] = wrong(store)
    assert "meta page 0 is none of LMDB" in finding.message
    assert "recovery point is not known" in report.findings[0].message
    assert [finding.path for finding in wrong(report)] == [str(stopped.logs()[1])]


# --- other people's directories ------------------------------------------------------------------------------------


def test_a_compacted_partition_of_kafka_is_sound(tmp_path: Path) -> None:
    report = report_of(kafka_partition(tmp_path / "t-0"))
    assert wrong(report) == []
    assert [facts.missing_offsets for facts in report.segments] == [3 + 29, 10]
    assert any("Kafka before 4.0" in finding.message for finding in report.findings)
    notes = [finding.message for finding in report.findings if finding.severity is Severity.NOTE]
    assert "10 offsets are missing, as compaction or `logbroker segment repair --accept-gaps` leaves them" in notes
    assert wrong(report_of(tmp_path / "t-0", gaps=False)) != []


def test_a_whole_directory_of_kafka_is_found(tmp_path: Path) -> None:
    kafka_partition(tmp_path / "t-0")
    kafka_partition(tmp_path / "t-10")
    kafka_partition(tmp_path / "t-2")
    (tmp_path / "some-0").mkdir()
    assert [partition.name for partition in locate([tmp_path]).partitions] == ["t-0", "t-2", "t-10"]


def test_an_old_message_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(struct.pack(">qiIb", 0, 60, 0, 1) + bytes(60))
    (finding,) = wrong(report_of(path))
    assert finding.position == 0


@pytest.mark.parametrize("moment", ["before the indexes are complete", "in the middle of an entry"])
def test_a_broker_that_has_yet_to_complete_an_index_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A group that begins a new segment is in the log first; the index of the one before is completed then."""
    partition = StoppedPartition(tmp_path / "data")
    partition.disk.store_checkpoint()
    partition.store_metadata()
    save = Segment.save_indexes
    reports = []

    def verify_first(self: Segment) -> None:
        path = Path(self.time_index.path)
        with path.open("ab") as file:
            file.write(b"" if "before" in moment else bytes(5))
        reports.append(report_of(partition.data_dir))
        os.truncate(path, path.stat().st_size - (0 if "before" in moment else 5))
        save(self)

    monkeypatch.setattr(Segment, "save_indexes", verify_first)
    held = DataDir.open(partition.data_dir)
    try:
        for number in range(40):
            partition.disk.append(batch_of(bytes(200), timestamp_ms=NOW_MS + BATCHES + number), sync=False)
    finally:
        held.close()
    partition.disk.kill()
    assert len(reports) >= 4
    for report in reports:
        assert report.live
        assert wrong(report) == []


@pytest.mark.prove
def test_garbage_behind_a_clean_stop_is_no_torn_write(tmp_path: Path) -> None:
    """As the broker takes it: the partition is offline."""
    with embedded(tmp_path / "data") as broker, Admin(broker.address) as admin, Producer(broker.address) as producer:
        admin.create_topic("t")
        producer.send_and_wait("t", b"a")
    (log,) = (tmp_path / "data").glob("t-0/*.log")
    log.write_bytes(log.read_bytes() + bytes(100))
    (finding,) = wrong(report_of(tmp_path / "data"))
    assert finding.severity is Severity.ERROR
    assert "stopped cleanly" in finding.message
    with embedded(tmp_path / "data") as broker, Admin(broker.address) as admin:
        (partition,) = admin.describe_topic("t").partitions
        assert partition.error is not None
        assert "stopped cleanly" in partition.error.message
        report = report_of(tmp_path / "data")
        (finding,) = wrong(report)
        assert report.live
        assert finding.severity is Severity.ERROR
        assert "no write in progress" in finding.message


@pytest.mark.parametrize("how", ["finished", "cut off", "in two steps"])
def test_a_write_caught_half_done_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    partition = StoppedPartition(tmp_path / "data")
    partition.disk.store_checkpoint()
    partition.store_metadata()
    partition.disk.append(batch_of(b"the last"), sync=False)
    partition.kill()
    log = partition.logs()[-1]
    whole = log.read_bytes()
    start = batch_positions(log)[-1]
    steps = {"finished": [whole], "cut off": [whole[:start]], "in two steps": [whole[: start + 65], whole]}[how]
    log.write_bytes(whole[: start + 20])
    monkeypatch.setattr("logbroker.tools.segments.scan.time.sleep", lambda _seconds: log.write_bytes(steps.pop(0)))
    held = DataDir.open(partition.data_dir)
    try:
        report = report_of(partition.data_dir)
    finally:
        held.close()
    assert report.live
    assert wrong(report) == []
    assert steps == []


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("ending", ["deleted before", "deleted", "made again"])
def test_a_topic_that_is_deleted_meanwhile_is_no_damage(tmp_path: Path, ending: str) -> None:
    data_dir = tmp_path / "data"
    with embedded(data_dir) as broker, Admin(broker.address) as admin, Producer(broker.address) as producer:
        for name in ("a", "z"):
            admin.create_topic(name, 1)
            producer.send_and_wait(name, b"x")
        located = locate([data_dir])
        if ending == "deleted before":
            admin.delete_topic("z")
        reports = verify(located, lambda _bytes: None)
        first = next(reports)
        if ending != "deleted before":
            admin.delete_topic("z")
        if ending == "made again":
            admin.create_topic("z", 1)
        [last] = reports
    assert first.findings == []
    assert last.path == str(data_dir / "z-0")
    assert [(finding.severity, finding.message) for finding in last.findings] == [
        (Severity.NOTE, "its topic was deleted meanwhile")
    ]


@pytest.mark.prove
def test_a_directory_that_somebody_removes_beside_a_broker_is_damage(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with embedded(data_dir) as broker, Admin(broker.address) as admin, Producer(broker.address) as producer:
        admin.create_topic("t", 1)
        producer.send_and_wait("t", b"x")
        located = locate([data_dir])
        (data_dir / "t-0").rename(tmp_path / "elsewhere")
        [report] = verify(located, lambda _bytes: None)
        (tmp_path / "elsewhere").rename(data_dir / "t-0")
    assert not report.sound


@pytest.fixture
def running(stopped: StoppedPartition) -> Iterator[StoppedPartition]:
    """A partition of a running broker, as far as its lock tells. Beside it is a directory of no topic, which is
    verified first."""
    shutil.copytree(stopped.directory, stopped.data_dir / "a-0")
    held = DataDir.open(stopped.data_dir)
    yield stopped
    held.close()


def _reports_after(change: Callable[[], object], data_dir: Path) -> list[PartitionReport]:
    """Verify a data directory. Change it after the store has been opened and the first directory verified."""
    reports = verify(locate([data_dir]), lambda _bytes: None)
    next(reports)
    change()
    return list(reports)


def test_a_directory_that_is_gone_beside_a_broker_is_told(running: StoppedPartition) -> None:
    shutil.rmtree(running.directory)
    (report,) = _reports_after(lambda: None, running.data_dir)
    (finding,) = report.findings
    assert finding.message.startswith("the directory is missing; it held offsets up to ")


def test_a_directory_of_a_topic_that_is_made_or_deleted_beside_a_broker_is_not_missed(
    running: StoppedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = running.directory.rename(running.data_dir.parent / "away")
    assert _reports_after(lambda: away.rename(running.directory), running.data_dir) == []

    def delete() -> None:
        """Delete the topic, whose files are gone a moment later, and its other rows after that."""
        monkeypatch.setattr(Metadata, "has_topic", lambda _self, topic_id: topic_id != running.disk.topic_id)

    running.directory.rename(away)
    assert _reports_after(delete, running.data_dir) == []


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_segment_that_is_gone_beside_a_broker_is_told(running: StoppedPartition, index: int) -> None:
    log = running.logs()[index]
    log.unlink()
    (report,) = _reports_after(lambda: None, running.data_dir)
    assert any("the file is missing" in finding.message for finding in wrong(report) if finding.path == str(log))


@pytest.mark.parametrize("count", [1, 2, None])
def test_segments_that_retention_removes_beside_a_broker_are_not_missed(
    running: StoppedPartition, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new log start is stored before a file is removed. `count` None: all records expire."""
    logs = running.logs()

    def expire(directory: Path) -> tuple[SegmentFile, ...]:
        """Remove segments after the row was read, and before the files are listed."""
        if directory == running.directory and (gone := running.logs()[:count] if running.logs() == logs else []):
            checkpoint = msgspec.msgpack.decode(running.disk.stored or b"", type=PartitionCheckpoint)
            if count is None:
                checkpoint.log_start_offset = checkpoint.recovery_point
                checkpoint.segments = [SegmentCheckpoint(checkpoint.recovery_point, 0, -1)]
                (directory / f"{checkpoint.recovery_point:020d}.log").touch()
            else:
                checkpoint.log_start_offset = checkpoint.segments[count].base_offset
            monkeypatch.setattr(Metadata, "checkpoint", lambda _self, _topic_id, _partition, **_: checkpoint)
            for path in gone:
                path.unlink()
        return segments_in(directory)

    monkeypatch.setattr("logbroker.tools.segments.verify.segments_in", expire)
    (report,) = _reports_after(lambda: None, running.data_dir)
    assert running.logs() != logs
    assert wrong(report) == []


def test_a_topic_that_is_deleted_while_its_log_is_read_is_no_damage(
    running: StoppedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def delete(path: Path) -> Iterator[os.DirEntry[str]]:
        """Delete the topic after the directory was seen, and before it is listed."""
        if path == running.directory:
            running.directory.rename(running.data_dir.parent / "away")
            monkeypatch.setattr(Metadata, "has_topic", lambda _self, topic_id: topic_id != running.disk.topic_id)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", delete)
    (report,) = verify(locate([running.directory]), lambda _bytes: None)
    assert [finding.message for finding in report.findings] == ["its topic was deleted meanwhile"]


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_small_file_that_a_broker_makes_at_this_moment_is_not_missed(
    running: StoppedPartition, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = running.directory / name
    content = path.read_bytes()
    path.unlink()

    def read_before(read: Path) -> bytes:
        try:
            return read_regular(read)
        except FileNotFoundError:
            path.write_bytes(content)
            raise

    monkeypatch.setattr("logbroker.tools.segments.verify.read_regular", read_before)
    assert wrong(report_of(running.directory)) == []
    assert path.exists()
