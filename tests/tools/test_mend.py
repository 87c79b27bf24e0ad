"""Repairs that write: rebuilt indexes are what the broker writes, and a repaired partition opens again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

import logbroker
from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.errors import CorruptLogError, DataDirError
from logbroker.storage.data_dir import DataDir
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.storage.partition_files import EPOCHS_NAME, EpochStart, encode_epochs
from logbroker.tools.segments import mend
from logbroker.tools.segments.locate import locate
from logbroker.tools.segments.metadata import is_held
from tests.tools.segment_files import (
    BATCHES,
    RECORDS,
    StoppedPartition,
    batch_positions,
    kafka_partition,
    overwrite,
    report_of,
    wrong,
)


def nothing(_bytes: int) -> None:
    pass


def plan_of(log: Path) -> mend.RepairPlan | None:
    (partition,) = locate([log]).partitions
    return mend.plan_repair(partition, nothing)


def test_a_rebuilt_index_is_sound(stopped: StoppedPartition) -> None:
    (partition,) = locate([stopped.directory]).partitions
    for segment in partition.segments:
        Path(segment.index_path).write_bytes(b"nonsense")
        Path(segment.time_index_path).unlink()
        offsets, times = mend.rebuild_index(segment, nothing)
        assert Path(segment.index_path).stat().st_size == 8 * offsets
        assert Path(segment.time_index_path).stat().st_size == 12 * times > 0
    assert report_of(stopped.data_dir).findings == []


def test_no_index_is_built_over_damage(stopped: StoppedPartition) -> None:
    (partition,) = locate([stopped.logs()[0]]).partitions
    before = Path(partition.segments[0].index_path).read_bytes()
    overwrite(stopped.logs()[0], batch_positions(stopped.logs()[0])[1] + 16, b"\x07")
    with pytest.raises(CorruptLogError, match="repair"):
        mend.rebuild_index(partition.segments[0], nothing)
    assert Path(partition.segments[0].index_path).read_bytes() == before


def test_a_sound_segment_is_left_alone(stopped: StoppedPartition) -> None:
    assert [plan_of(log) for log in stopped.logs()] == [None] * len(stopped.logs())


def test_a_segment_before_one_that_was_never_written_is_left_alone(stopped: StoppedPartition) -> None:
    last = stopped.logs()[-1]
    for base_offset in (BATCHES * RECORDS + 5, 2**63 - 1):
        (stopped.directory / f"{base_offset:020d}.log").write_bytes(b"")
    assert plan_of(last) is None


@pytest.mark.parametrize("damage", ["payload", "truncated"])
def test_a_repaired_partition_opens_and_goes_on(stopped: StoppedPartition, damage: str) -> None:
    values = [b"value %03d" % number for number in range(BATCHES * RECORDS)]
    log, *later = stopped.logs()[1:]
    content = log.read_bytes()
    position = batch_positions(log)[4]
    if damage == "payload":
        overwrite(log, position + 70, b"!")
    else:
        log.write_bytes(content[: position + 30])
    damaged = log.read_bytes()
    plan = plan_of(log)
    assert plan is not None
    assert (plan.path, plan.position, plan.removed_bytes) == (str(log), position, len(damaged) - position)
    mend.repair(plan)
    assert log.read_bytes() == content[:position]
    assert Path(plan.side_path).read_bytes() == damaged[position:]
    assert all(path.with_name(path.name + ".cut-0").exists() and not path.exists() for path in later)
    assert wrong(report_of(stopped.data_dir)) == []

    (partition,) = locate([stopped.directory]).partitions
    assert plan.checkpoint is not None
    stopped.disk.stored = msgspec.msgpack.encode(plan.checkpoint)
    stopped.disk.open()
    kept = len(stopped.disk.values())
    assert stopped.disk.values() == values[:kept]
    assert kept == plan.offset
    assert partition.segments[-1].path == str(log)
    # A client that has read further learns that it is gone.
    assert stopped.disk.log.leader_epoch == 1


@pytest.mark.parametrize("where", ["above the cut", "below it, of nobody"])
def test_leader_epochs_that_are_not_of_what_is_left_are_cut_too(stopped: StoppedPartition, where: str) -> None:
    log = stopped.logs()[1]
    begin = int(log.stem)
    assert stopped.disk.stored is not None
    checkpoint = msgspec.msgpack.decode(stopped.disk.stored, type=PartitionCheckpoint)
    epochs = [EpochStart(0, 0), EpochStart(1, begin + 20 if where == "above the cut" else begin - 4)]
    if where == "above the cut":
        stopped.disk.stored = msgspec.msgpack.encode(msgspec.structs.replace(checkpoint, epochs=epochs))
        stopped.store_metadata()
    (stopped.directory / EPOCHS_NAME).write_bytes(encode_epochs(epochs))
    position = batch_positions(log)[4]
    overwrite(log, position + 70, b"!")
    plan = plan_of(log)
    assert plan is not None
    mend.repair(plan)
    assert (stopped.directory / EPOCHS_NAME).read_text() == f"0\n2\n0 0\n2 {plan.offset}\n"
    assert wrong(report_of(stopped.data_dir)) == []
    assert plan.checkpoint is not None
    stopped.disk.stored = msgspec.msgpack.encode(plan.checkpoint)
    stopped.disk.open()
    assert len(stopped.disk.values()) == plan.offset
    assert stopped.disk.log.leader_epoch == 2


def test_a_second_repair_keeps_what_the_first_one_kept(stopped: StoppedPartition) -> None:
    log = stopped.logs()[-1]
    content = log.read_bytes()
    position = batch_positions(log)[1]
    sides = []
    for mark in (b"!", b"?"):
        log.write_bytes(content)
        overwrite(log, position + 70, mark)
        plan = plan_of(log)
        assert plan is not None
        mend.repair(plan)
        sides.append(Path(plan.side_path))
    assert [side.read_bytes()[70:71] for side in sides] == [b"!", b"?"]


def test_a_directory_of_kafka_keeps_its_later_segments(tmp_path: Path) -> None:
    directory = kafka_partition(tmp_path / "t-0")
    log = directory / f"{0:020d}.log"
    position = batch_positions(log)[1]
    overwrite(log, position + 65, b"!")
    plan = plan_of(log)
    assert plan is not None
    mend.repair(plan)
    assert (directory / f"{90:020d}.log").exists()
    assert log.stat().st_size == position
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n2 20\n5 95\n"


@pytest.fixture
def owned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A new file, and one of its owner but of another group; the system refuses to change either."""
    made, like = tmp_path / "made", tmp_path / "like"
    made.touch()
    like.touch()
    if os.geteuid() == 0:
        os.chown(like, 0, 12_345)

    def refused(path: str, _uid: int, _gid: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(os, "chown", refused)
    return made, like


def test_a_repair_by_the_owner_goes_on_if_the_group_of_a_new_file_cannot_be_changed(owned: tuple[Path, Path]) -> None:
    made, like = owned
    mend.give(str(made), str(like))
    assert made.stat().st_uid == like.stat().st_uid == os.geteuid()


def test_a_repair_does_not_leave_the_broker_a_file_of_another_user(
    owned: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker could not open it. So without the right to give files away, a repair of another user's files fails."""
    made, like = owned
    monkeypatch.setattr(os, "geteuid", lambda: like.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="made"):
        mend.give(str(made), str(like))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_repairs_belongs_to_the_user_and_group_of_the_broker(stopped: StoppedPartition) -> None:
    log = stopped.logs()[0]
    os.chown(log, 12_345, 23_456)
    overwrite(log, batch_positions(log)[4] + 70, b"!")
    plan = plan_of(log)
    assert plan is not None
    mend.repair(plan)
    for path in (log, Path(plan.side_path), stopped.directory / EPOCHS_NAME):
        assert (path.stat().st_uid, path.stat().st_gid) == (12_345, 23_456)


def test_a_broker_in_the_data_directory_is_noticed(stopped: StoppedPartition) -> None:
    (partition,) = locate([stopped.directory]).partitions
    assert not is_held(stopped.data_dir)
    held = DataDir.open(stopped.data_dir)
    try:
        assert is_held(stopped.data_dir)
        with pytest.raises(DataDirError, match="in use"), mend.exclusive(partition):
            pass
    finally:
        held.close()
    with mend.exclusive(partition):
        assert is_held(stopped.data_dir)
    assert not is_held(stopped.data_dir)


@pytest.mark.prove
def test_a_broker_serves_what_a_repair_left() -> None:
    with logbroker.embedded() as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=1)
        with Producer(broker.address) as producer:
            for number in range(30):
                producer.send("t", b"%d" % number)
                producer.flush()
        data_dir = Path(broker.data_dir)
        assert report_of(data_dir / "t-0").live
        broker.stop()
        (log,) = (data_dir / "t-0").glob("*.log")
        overwrite(log, batch_positions(log)[20] + 65, b"!")
        plan = plan_of(log)
        assert plan is not None
        with mend.exclusive(locate([log]).partitions[0]):
            mend.repair(plan)
        assert wrong(report_of(data_dir)) == []
        broker.start()
        with Producer(broker.address) as producer:
            producer.send("t", b"after")
            producer.flush()
        with Consumer(broker.address) as consumer:
            consumer.assign("t", start="earliest")
            found = [record.value for batch in consumer.batches(until_end=True) for record in batch]
        assert found == [*(b"%d" % number for number in range(20)), b"after"]
        assert wrong(report_of(data_dir)) == []
