"""Repairs of whole partitions: what is missing, damaged or strange is shown, cut off or accepted, and kept."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import logbroker
from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.errors import CorruptLogError, DataDirError, LogTruncatedError
from logbroker.record.header import parse_header
from logbroker.storage.data_dir import DataDir
from logbroker.storage.files import RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.metadata.metadata_store import MetadataReader, MetadataStore
from logbroker.storage.partition_checkpoint import (
    SegmentCheckpoint,
    decode_checkpoint,
    decode_partition,
    decode_producers,
    encode_checkpoint,
)
from logbroker.storage.partition_log import PartitionLog
from logbroker.tools.segments import mend, partition_repair
from logbroker.tools.segments.locate import PartitionFiles, locate
from logbroker.tools.segments.metadata import checkpoint_key
from logbroker.tools.segments.partition_repair import PartitionPlan, plan_repair, survey
from tests.storage.partition import batch_of
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

VALUES = [b"value %03d" % number for number in range(BATCHES * RECORDS)]
END = len(VALUES)
BOTH = pytest.mark.parametrize("accept_gaps", [False, True], ids=["cut", "accept"])


def nothing(_bytes: int) -> None:
    pass


def partition_of(directory: Path) -> PartitionFiles:
    if not directory.exists():
        return PartitionFiles(directory=directory, segments=(), whole=True)
    (partition,) = locate([directory]).partitions
    return partition


def plan_of(directory: Path, *, accept_gaps: bool) -> PartitionPlan | None:
    return plan_repair(survey(partition_of(directory), nothing), accept_gaps=accept_gaps)


def repaired(directory: Path, *, accept_gaps: bool) -> PartitionPlan:
    plan = plan_of(directory, accept_gaps=accept_gaps)
    assert plan is not None
    partition_repair.repair(plan)
    return plan


def opened(stopped: StoppedPartition, *, stopped_cleanly: bool = False) -> PartitionLog:
    """Open the partition by its row in the metadata store, as the next start does."""
    key = checkpoint_key(stopped.disk.topic_id, 0)
    reader = MetadataReader.open(stopped.data_dir / "meta")
    row = reader.get("partitions", key)
    assert row is not None
    producers = decode_producers(reader.scan("producers")).get(key, ())
    reader.close()
    checkpoint, _ = decode_checkpoint(key, row, producers)
    disk = stopped.disk
    disk.handles = HandleCache(RealFiles(), 4)
    disk.log = PartitionLog.open(
        disk.directory,
        disk.topic_id,
        disk.config,
        files=RealFiles(),
        handles=disk.handles,
        checkpoint=checkpoint,
        stopped_cleanly=stopped_cleanly,
    )
    return disk.log


def bytes_in(directory: Path) -> int:
    """Size of all log files and side files: a repair throws nothing away."""
    return sum(path.stat().st_size for path in directory.glob("*.log*") if path.is_file())


# --- ways to damage three segments of some twenty batches of two records ---


def first_missing(stopped: StoppedPartition) -> None:
    stopped.logs()[0].unlink()


def middle_missing(stopped: StoppedPartition) -> None:
    stopped.logs()[1].unlink()


def last_missing(stopped: StoppedPartition) -> None:
    stopped.logs()[-1].unlink()


def all_missing(stopped: StoppedPartition) -> None:
    shutil.rmtree(stopped.directory)


def damaged_in_the_middle(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    for number in (3, 4, 9):
        overwrite(log, batch_positions(log)[number] + 65, b"!")


def damaged_at_the_start(stopped: StoppedPartition) -> None:
    overwrite(stopped.logs()[0], 65, b"!")
    overwrite(stopped.logs()[2], 65, b"!")


def no_first_header(stopped: StoppedPartition) -> None:
    """The rest of the segment does not tell which batch it was."""
    overwrite(stopped.logs()[1], 0, bytes(61))


def damaged_at_the_end(stopped: StoppedPartition) -> None:
    for log in stopped.logs():
        overwrite(log, batch_positions(log)[-1] + 65, b"!")


def cut_short(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    log.write_bytes(log.read_bytes()[:1000])


def flipped_offset(stopped: StoppedPartition) -> None:
    """No CRC covers it."""
    log = stopped.logs()[1]
    overwrite(log, batch_positions(log)[5] + 2, b"\x01")


def flipped_epoch(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    overwrite(log, batch_positions(log)[5] + 15, b"\x01")


def longer(stopped: StoppedPartition) -> None:
    with stopped.logs()[0].open("ab") as file:
        file.write(batch_of(b"strange"))


def grown(stopped: StoppedPartition) -> None:
    """Its last batches, whole, lie beyond the size that it was closed with."""
    log = stopped.logs()[1]
    content, position = log.read_bytes(), batch_positions(log)[3] + 65
    log.write_bytes(content[:position] + bytes(300) + content[position:])


def zeros_everywhere(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    log.write_bytes(bytes(log.stat().st_size))


def a_directory_instead(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    log.unlink()
    log.mkdir()


def a_fifo_instead(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    log.unlink()
    os.mkfifo(log)


def another_segment_instead(stopped: StoppedPartition) -> None:
    """With a first batch that is sound, but was never written there."""
    log = stopped.logs()[1]
    size = log.stat().st_size
    other = bytearray(batch_of(bytes(size - 100)))
    other[:8] = int(log.stem).to_bytes(8, "big")
    other[12:16] = bytes(4)  # The leader epoch.
    log.write_bytes(other)


def another_segment_beside_a_side_file(stopped: StoppedPartition) -> None:
    """An earlier repair may have left that file, and may have died while it wrote it."""
    another_segment_instead(stopped)
    log = stopped.logs()[1]
    log.with_name(f"{log.name}.cut-0").write_bytes(b"")


def another_size_in_the_store(stopped: StoppedPartition) -> None:
    """As where the file was put back from a backup after a repair had cut something out of it."""
    key = checkpoint_key(stopped.disk.topic_id, 0)
    store = MetadataStore.open(stopped.data_dir / "meta", on_failure=print)
    row = store.get("partitions", key)
    assert row is not None
    checkpoint = decode_partition(key, row)
    first, *others = checkpoint.segments
    smaller = SegmentCheckpoint(first.base_offset, first.size_bytes - 100, first.max_timestamp_ms, first.first_crc)
    store.submit(encode_checkpoint(key, replace(checkpoint, segments=[smaller, *others]))).result(20)
    store.close()


def a_stray(stopped: StoppedPartition) -> None:
    shutil.copy(stopped.logs()[1], stopped.directory / f"{7:020d}.log")


def no_epochs(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").unlink()


def an_epoch_too_many(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {END // 2}\n")


def an_epoch_above_the_end(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {END + 5}\n")


def an_epoch_at_the_highest_offset(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {2**63 - 1}\n")


def an_epoch_beyond_all_offsets(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {2**63}\n")


def bad_epochs(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").write_text("0\n1\n7 3\n")


def flipped_digit_of_an_epoch(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").write_text("0\n1\n4 0\n")


def no_metadata(stopped: StoppedPartition) -> None:
    (stopped.directory / "partition.metadata").unlink()


Damage = Callable[[StoppedPartition], None]
LOSING: list[Damage] = [
    first_missing,
    middle_missing,
    last_missing,
    all_missing,
    damaged_in_the_middle,
    damaged_at_the_start,
    no_first_header,
    damaged_at_the_end,
    cut_short,
    grown,
    flipped_offset,
    flipped_epoch,
    zeros_everywhere,
    a_directory_instead,
    a_fifo_instead,
    another_segment_instead,
    another_segment_beside_a_side_file,
]
BELOW_THE_RECOVERY_POINT = (
    damaged_in_the_middle,
    damaged_at_the_start,
    no_first_header,
    damaged_at_the_end,
    flipped_offset,
    flipped_epoch,
    zeros_everywhere,
    another_segment_instead,
    another_segment_beside_a_side_file,
)
"""Damage of which a start reads nothing: readers meet it."""
LOSSLESS: list[Damage] = [
    longer,
    another_size_in_the_store,
    a_stray,
    no_epochs,
    bad_epochs,
    an_epoch_too_many,
    an_epoch_above_the_end,
    an_epoch_at_the_highest_offset,
    an_epoch_beyond_all_offsets,
    flipped_digit_of_an_epoch,
    no_metadata,
]


def check(stopped: StoppedPartition, *, accept_gaps: bool, good: dict[int, bytes]) -> None:
    """Compare what is served after a repair with what was good before it."""
    log = opened(stopped)
    records = {record.offset: record.value for record in stopped.disk.records()}
    if accept_gaps:
        assert records == good
        assert log.log_end_offset == END
    else:
        # Up to the first thing that is wrong, and not one record less.
        first_bad = next((offset for offset in range(END) if offset not in good), END)
        assert records == {offset: good[offset] for offset in range(min(first_bad, log.log_end_offset))}
        assert log.log_end_offset <= first_bad
    # Who has read further learns that it is gone; all others go on.
    log.check_leader_epoch(0, log.log_end_offset)
    with pytest.raises(LogTruncatedError):
        log.check_leader_epoch(0, log.log_end_offset + 1)
    end = log.log_end_offset
    stopped.disk.append(batch_of(b"next"))
    found = [(record.offset, record.value) for record in stopped.disk.records()]
    assert found == [*records.items(), (end, b"next")]
    assert log.damage == ""
    stopped.disk.kill()


@pytest.mark.prove(keep=3)
@BOTH
@pytest.mark.parametrize("damage", LOSING + LOSSLESS, ids=lambda damage: damage.__name__)
def test_a_partition_is_whole_again(stopped: StoppedPartition, damage: Damage, accept_gaps: bool) -> None:
    damage(stopped)
    found = survey(partition_of(stopped.directory), nothing)
    assert found.problems
    assert all(str(stopped.directory) in problem.path for problem in found.problems)
    if damage not in BELOW_THE_RECOVERY_POINT:
        with pytest.raises(CorruptLogError):
            opened(stopped)
        stopped.disk.kill()
    kept_bytes = bytes_in(stopped.directory) if stopped.directory.exists() else 0
    plan = plan_repair(found, accept_gaps=accept_gaps)
    assert plan is not None
    lost = {offset for first, behind in plan.lost for offset in range(first, behind)}
    partition_repair.repair(plan)
    good = {offset: value for offset, value in enumerate(VALUES) if offset not in lost}
    assert bytes_in(stopped.directory) >= kept_bytes, "a repair throws nothing away"
    assert wrong(report_of(stopped.data_dir)) == []
    logs = {path.stem for path in stopped.logs()}
    assert {path.stem for path in stopped.directory.glob("*index")} <= logs, "an index without a log is left"
    assert plan_of(stopped.directory, accept_gaps=accept_gaps) is None, "the repair left something to do"
    if damage in LOSSLESS:
        assert not lost or (not accept_gaps and damage is longer)
    if accept_gaps:
        assert len(lost) < END or damage is all_missing
    check(stopped, accept_gaps=accept_gaps, good=good)
    if damage is all_missing:
        return
    # What is told to be lost is what is damaged, and no more.
    exact = (damaged_in_the_middle, damaged_at_the_start, no_first_header, damaged_at_the_end, flipped_epoch, grown)
    if accept_gaps and damage in exact:
        assert len(lost) == {damaged_in_the_middle: 6, damaged_at_the_start: 4, damaged_at_the_end: 6}.get(damage, 2)


def test_a_sound_partition_is_left_alone(stopped: StoppedPartition) -> None:
    for accept_gaps in (False, True):
        assert plan_of(stopped.directory, accept_gaps=accept_gaps) is None


def test_what_is_above_the_recovery_point_is_kept_too(tmp_path: Path) -> None:
    """A broker that was killed: its last recovery point is old, and what follows has a damaged batch in it."""
    for accept_gaps in (False, True):
        partition = StoppedPartition(tmp_path / f"data-{accept_gaps}")
        partition.disk.store_checkpoint()
        partition.store_metadata()
        sent = [batch_of(b"%d" % n, producer_id=7, epoch=0, sequence=n) for n in range(6)]
        partition.disk.append(*sent)
        partition.kill()
        log, bad = next(
            (path, position)
            for path in partition.logs()
            for position in batch_positions(path)
            if parse_header(path.read_bytes(), position).base_offset == END + 1
        )
        overwrite(log, bad + 65, b"!")
        with pytest.raises(CorruptLogError, match="a good one follows"):
            opened(partition)
        repaired(partition.directory, accept_gaps=accept_gaps)
        log_now = opened(partition)
        assert log_now.log_end_offset == (END + 6 if accept_gaps else END + 1)
        values = [b"0", b"2", b"3", b"4", b"5"] if accept_gaps else [b"0"]
        assert partition.disk.values() == [*VALUES, *values]
        # Producers go on where the log does.
        partition.disk.append(batch_of(b"next", producer_id=7, epoch=0, sequence=6 if accept_gaps else 1))
        assert partition.disk.values() == [*VALUES, *values, b"next"]
        partition.disk.kill()


def nothing_else(stopped: StoppedPartition) -> None:
    pass


@pytest.mark.prove(keep=4)
@BOTH
@pytest.mark.parametrize("base_offset", [END + 5, 2**62, 2**63 - 1, 10**20 - 1])
@pytest.mark.parametrize(
    "damage", [nothing_else, no_metadata, damaged_at_the_end, last_missing], ids=lambda damage: damage.__name__
)
def test_a_segment_that_was_never_written_does_not_tell_where_the_log_ends(
    stopped: StoppedPartition, damage: Damage, base_offset: int, accept_gaps: bool
) -> None:
    """A start removes it, so a repair does not take it for the end either."""
    damage(stopped)
    (stopped.directory / f"{base_offset:020d}.log").write_bytes(b"")
    plan = plan_of(stopped.directory, accept_gaps=accept_gaps)
    if damage is nothing_else:
        assert plan is None
    else:
        assert plan is not None
        partition_repair.repair(plan)
    assert wrong(report_of(stopped.data_dir)) == []
    assert plan_of(stopped.directory, accept_gaps=accept_gaps) is None
    log, end = opened(stopped), END if plan is None else plan.end_offset
    assert log.log_end_offset == end <= END
    assert end == END or not accept_gaps
    values = stopped.disk.values()
    stopped.disk.append(batch_of(b"next"))
    assert stopped.disk.values() == [*values, b"next"]
    stopped.disk.kill()


def test_files_of_another_partition_are_refused(stopped: StoppedPartition) -> None:
    path = stopped.directory / "partition.metadata"
    path.write_bytes(path.read_bytes().replace(b"partition: 0", b"partition: 3"))
    found = survey(partition_of(stopped.directory), nothing)
    assert "belong to partition 3 of the topic, not to 0" in found.problems[0].message
    for accept_gaps in (False, True):
        with pytest.raises(CorruptLogError, match="move the directory away"):
            plan_repair(found, accept_gaps=accept_gaps)


def test_a_linked_directory_is_refused(stopped: StoppedPartition) -> None:
    stopped.directory.rename(stopped.data_dir.parent / "elsewhere")
    stopped.directory.symlink_to(stopped.data_dir.parent / "elsewhere")
    with pytest.raises(CorruptLogError, match="symbolic link"):
        survey(partition_of(stopped.directory), nothing)
    (finding,) = wrong(report_of(stopped.directory))
    assert "symbolic link" in finding.message


def test_a_log_of_kafka_keeps_its_gaps_and_loses_what_is_damaged(tmp_path: Path) -> None:
    directory = kafka_partition(tmp_path / "t-0")
    for accept_gaps in (False, True):
        assert plan_of(directory, accept_gaps=accept_gaps) is None
    log = directory / f"{0:020d}.log"
    content = log.read_bytes()
    positions = batch_positions(log)
    overwrite(log, positions[1] + 65, b"!")
    plan = repaired(directory, accept_gaps=True)
    assert plan.checkpoint is None
    assert log.read_bytes() == content[: positions[1]] + content[positions[2] :]
    assert (directory / f"{0:020d}.log.cut-{positions[1]}").stat().st_size == positions[2] - positions[1]
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n2 20\n5 95\n"
    assert (directory / f"{90:020d}.log").exists()
    assert plan_of(directory, accept_gaps=True) is None


def test_beside_a_broker_nothing_is_repaired(stopped: StoppedPartition) -> None:
    middle_missing(stopped)
    held = DataDir.open(stopped.data_dir)
    try:
        with pytest.raises(DataDirError, match="in use"), mend.exclusive(partition_of(stopped.directory)):
            pass
    finally:
        held.close()


class _Killed(BaseException):
    pass


@pytest.mark.prove
@BOTH
@pytest.mark.parametrize(
    "damage",
    [
        middle_missing,
        last_missing,
        damaged_in_the_middle,
        damaged_at_the_start,
        no_first_header,
        damaged_at_the_end,
        a_stray,
    ],
)
def test_a_repair_that_dies_at_any_step_can_be_run_again(
    stopped: StoppedPartition, tmp_path: Path, damage: Damage, accept_gaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(stopped)
    start = tmp_path / "start"
    shutil.copytree(stopped.data_dir, start)
    steps = _steps(stopped, monkeypatch, accept_gaps=accept_gaps, die_at=-1)
    assert steps > 5
    expected = opened(stopped)
    end, records = expected.log_end_offset, stopped.disk.records()
    stopped.disk.kill()
    for step in range(steps):
        shutil.rmtree(stopped.data_dir)
        shutil.copytree(start, stopped.data_dir)
        _steps(stopped, monkeypatch, accept_gaps=accept_gaps, die_at=step)
        # A start in between refuses it, or finds nothing less.
        again = plan_of(stopped.directory, accept_gaps=accept_gaps)
        if again is not None:
            partition_repair.repair(again)
        log = opened(stopped)
        assert (log.log_end_offset, stopped.disk.records()) == (end, records), f"died at step {step}"
        stopped.disk.kill()
        assert wrong(report_of(stopped.data_dir)) == []


def _steps(stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch, *, accept_gaps: bool, die_at: int) -> int:
    """Repair, and die before a step that changes something on the disk; return how many there were."""
    count = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **fields: object) -> object:
            nonlocal count
            if count == die_at:
                raise _Killed
            count += 1
            return function(*arguments, **fields)

        return call

    plan = plan_of(stopped.directory, accept_gaps=accept_gaps)
    assert plan is not None
    with monkeypatch.context() as patch:
        for name in ("copy_out", "drop_indexes", "put", "_write_pieces", "store_checkpoint"):
            patch.setattr(partition_repair, name, counted(getattr(partition_repair, name)))
        for name in ("rename", "truncate", "sync_directory", "make_directory"):
            patch.setattr(RealFiles, name, counted(getattr(RealFiles, name)))
        try:
            partition_repair.repair(plan)
        except _Killed:
            assert die_at >= 0
    return count


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_is_repaired(stopped: StoppedPartition, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        log = chance.choice(stopped.logs())
        size = log.stat().st_size
        match chance.randrange(6):
            case 0:
                overwrite(log, chance.randrange(size), chance.randbytes(chance.choice([1, 10, 300])))
            case 1:
                log.write_bytes(log.read_bytes()[: chance.randrange(size)])
            case 2:
                log.unlink()
                if not stopped.logs():
                    log.write_bytes(b"")
            case 3:
                content = log.read_bytes()
                at, length = chance.randrange(size), chance.randrange(1, 500)
                log.write_bytes(content[:at] + content[at + length :])
            case 4:
                content, at = log.read_bytes(), chance.randrange(size)
                log.write_bytes(content[:at] + chance.randbytes(chance.randrange(1, 500)) + content[at:])
            case _:
                content = log.read_bytes()
                log.write_bytes(content + content[chance.choice(batch_positions(stopped.logs()[0])) :])
        if not all(path.stat().st_size for path in stopped.logs()):
            break
    accept_gaps = chance.random() < 0.6
    plan = plan_of(stopped.directory, accept_gaps=accept_gaps)
    if plan is None:
        assert wrong(report_of(stopped.data_dir)) == []
        return
    partition_repair.repair(plan)
    assert plan_of(stopped.directory, accept_gaps=accept_gaps) is None
    assert wrong(report_of(stopped.data_dir)) == []
    served = opened(stopped)
    records = stopped.disk.records()
    assert all(record.value == VALUES[record.offset] for record in records)
    lost = {offset for first, behind in plan.lost for offset in range(first, behind)}
    expected = [n for n in range(served.log_start_offset, served.log_end_offset) if n not in lost]
    assert [record.offset for record in records] == expected
    assert served.damage == ""
    stopped.disk.append(batch_of(b"next"))
    assert stopped.disk.values()[-1] == b"next"


def _served(stopped: StoppedPartition) -> set[int] | None:
    """Return the offsets that the next start serves, or None if it refuses the partition or a reader meets damage."""
    try:
        opened(stopped)
        return {record.offset for record in stopped.disk.records()}
    except CorruptLogError:
        return None
    finally:
        stopped.disk.kill()


def _damage_at_random(chance: random.Random, original: dict[Path, bytes]) -> None:
    """Lose, shorten or damage a segment, or put back what an earlier step took from it."""
    log = chance.choice(list(original))
    content = log.read_bytes() if log.exists() else b""
    match chance.randrange(5) if content else 0:
        case 0:
            log.write_bytes(original[log])
        case 1:
            log.unlink()
        case 2:
            log.write_bytes(content[: chance.choice(batch_positions(log))])
        case 3:
            log.write_bytes(content[: chance.randrange(len(content))])
        case _:
            overwrite(log, chance.choice(batch_positions(log)) + 65, b"!")


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(8, 60))])
def test_a_repair_and_a_start_judge_alike_whatever_was_accepted_before(stopped: StoppedPartition, seed: int) -> None:
    """A repair mends what a start refuses, and names each record that is gone since the repair before."""
    opened(stopped)
    for number in range(60):
        stopped.disk.append(batch_of(b"more %03d" % number))
    stopped.stop()
    # The first file is never taken back, so it stays.
    original = {log: log.read_bytes() for log in stopped.logs()[1:]}
    assert len(original) > 4
    batches = {
        (log, header.base_offset, header.next_offset): content[position : position + header.size_bytes]
        for log, content in original.items()
        for position in batch_positions(log)
        for header in [parse_header(content, position)]
    }
    before = _served(stopped)
    assert before is not None
    first = {offset for offset in before if offset < int(min(original).stem)}
    chance = random.Random(seed)
    for _ in range(4):
        for _ in range(chance.randint(1, 3)):
            _damage_at_random(chance, original)
        now = {log: log.read_bytes() if log.exists() else b"" for log in original}
        sound = {key: batch for key, batch in batches.items() if batch in now[key[0]]}
        held = {log for log, base, _ in batches if base in before}
        # A file that was given up as a whole is taken back only if all of it is sound.
        sizes = {log: sum(len(batch) for key, batch in sound.items() if key[0] == log) for log in now}
        taken = {log for log, content in now.items() if log in held or len(content) == sizes[log]}
        there = first | {n for log, base, behind in sound if log in taken for n in range(base, behind)}
        served = _served(stopped)
        accept_gaps = chance.random() < 0.8
        plan = plan_of(stopped.directory, accept_gaps=accept_gaps)
        if plan is None:
            assert served == before == there
            assert wrong(report_of(stopped.data_dir)) == []
            continue
        lost = {offset for start, behind in plan.lost for offset in range(start, behind)}
        partition_repair.repair(plan)
        assert plan_of(stopped.directory, accept_gaps=accept_gaps) is None
        after = _served(stopped)
        assert after is not None
        assert before - after <= lost
        assert not lost & after
        assert wrong(report_of(stopped.data_dir)) == []
        if not accept_gaps:
            assert after == {offset for offset in there if offset < min(lost, default=plan.end_offset)}
            return
        assert after == there
        before = after


@pytest.mark.prove
@BOTH
def test_a_broker_serves_what_a_repair_left_and_tells_who_read_further(accept_gaps: bool) -> None:
    with logbroker.embedded() as broker:
        with Admin(broker.address) as admin, Producer(broker.address) as producer:
            admin.create_topic("t", 1, {"segment.bytes": "1024"})
            for number in range(60):
                producer.send("t", b"%0100d" % number)
                if number % 3 == 2:
                    producer.flush()
            producer.flush()
        with Consumer(broker.address, group="readers") as consumer:
            consumer.subscribe("t")
            assert sum(map(len, consumer.batches(until_end=True))) == 60
        broker.stop()
        directory = Path(broker.data_dir) / "t-0"
        logs = sorted(directory.glob("*.log"))
        missing = logs[len(logs) // 2]
        first, behind = int(missing.stem), int(logs[len(logs) // 2 + 1].stem)
        missing.unlink()
        broker.start()
        with Admin(broker.address) as admin:
            offline = admin.describe_topic("t").partitions[0]
            assert f"segment repair {directory}" in str(offline), offline
        with pytest.raises(DataDirError, match="in use"), mend.exclusive(partition_of(directory)):
            pass
        broker.stop()
        with mend.exclusive(partition_of(directory)):
            repaired(directory, accept_gaps=accept_gaps)
        broker.start()
        left = [n for n in range(60) if not first <= n < behind] if accept_gaps else list(range(first))
        end = 60 if accept_gaps else first
        with Consumer(broker.address) as consumer:
            consumer.assign("t", "earliest")
            records = [record for batch in consumer.batches(until_end=True) for record in batch]
        assert [(record.offset, int(record.value or b"")) for record in records] == [(n, n) for n in left]
        with Admin(broker.address) as admin:
            [lag] = admin.group_lag("readers")
            assert lag.committed is not None
            assert lag.committed.offset == end, "an offset lies behind the log's end"
        with Producer(broker.address) as producer:
            producer.send("t", b"next")
            producer.flush()
        with Consumer(broker.address, group="readers") as consumer:
            consumer.subscribe("t")
            [batch] = [batch for batch in consumer.batches(until_end=True) if batch]
            assert [(record.offset, record.value) for record in batch] == [(end, b"next")]


@BOTH
def test_damage_in_deleted_records_costs_no_others(stopped: StoppedPartition, accept_gaps: bool) -> None:
    """Their bytes stay until their whole segment can go."""
    _delete_below(stopped, 11)
    log = stopped.logs()[0]
    for number in (0, 2, 3):
        overwrite(log, batch_positions(log)[number] + 65, b"!")
    plan = repaired(stopped.directory, accept_gaps=accept_gaps)
    assert plan.lost == []
    assert any("offsets 4 to 7 had been deleted" in problem.message for problem in plan.survey.problems)
    assert plan_of(stopped.directory, accept_gaps=accept_gaps) is None
    assert wrong(report_of(stopped.data_dir)) == []
    served = opened(stopped)
    assert (served.log_start_offset, served.log_end_offset) == (11, END)
    assert [record.value for record in stopped.disk.records() if record.offset >= 11] == VALUES[11:]


def test_a_log_is_cut_where_damage_reaches_beyond_the_deleted_records(stopped: StoppedPartition) -> None:
    _delete_below(stopped, 11)
    log = stopped.logs()[0]
    for number in (2, 5):
        overwrite(log, batch_positions(log)[number] + 65, b"!")
    plan = repaired(stopped.directory, accept_gaps=False)
    assert plan.lost == [(11, END)]
    served = opened(stopped)
    assert (served.log_start_offset, served.log_end_offset) == (11, 11)


def _delete_below(stopped: StoppedPartition, offset: int) -> None:
    """Delete records, whose segment stays."""
    checkpoint = decode_partition(b"", stopped.disk.stored or b"")
    stopped.disk.stored = msgspec.msgpack.encode(replace(checkpoint, log_start_offset=offset))
    stopped.store_metadata()


def two_missing(stopped: StoppedPartition) -> None:
    for log in stopped.logs()[1:]:
        log.unlink()


def damaged_in_the_newest(stopped: StoppedPartition) -> None:
    log = stopped.logs()[-1]
    overwrite(log, batch_positions(log)[4] + 65, b"!")


@BOTH
@pytest.mark.parametrize("has_grown", [False, True], ids=["at once", "after further records"])
@pytest.mark.parametrize(
    "damage",
    [
        middle_missing,
        last_missing,
        two_missing,
        damaged_in_the_middle,
        damaged_at_the_start,
        damaged_in_the_newest,
        no_first_header,
        damaged_at_the_end,
        cut_short,
        flipped_offset,
        zeros_everywhere,
    ],
    ids=lambda damage: damage.__name__,
)
def test_files_that_are_found_after_a_repair_are_taken_back(
    stopped: StoppedPartition, damage: Damage, has_grown: bool, accept_gaps: bool
) -> None:
    """Whichever of the two ways is named for the second repair."""
    if has_grown and damage in (damaged_at_the_start, damaged_in_the_newest, damaged_at_the_end):
        pytest.skip("the newest file has further records now")
    originals = {log: log.read_bytes() for log in stopped.logs()}
    damage(stopped)
    assert repaired(stopped.directory, accept_gaps=True).lost
    left = {log: log.stat().st_size for log in stopped.logs()}
    expected = dict(enumerate(VALUES))
    if has_grown:
        opened(stopped)
        for number in range(30):
            stopped.disk.append(batch_of(b"later %d" % number))
            expected[END + number] = b"later %d" % number
        stopped.stop()
    for log, content in originals.items():
        if not log.exists() or log.stat().st_size == left[log]:
            log.write_bytes(content)
    with pytest.raises(CorruptLogError, match="segment repair"):
        opened(stopped)
    plan = repaired(stopped.directory, accept_gaps=accept_gaps)
    assert plan.lost == []
    assert not any(os.path.getsize(path) for _, path in plan.set_aside)
    assert plan_of(stopped.directory, accept_gaps=True) is None
    opened(stopped)
    assert {record.offset: record.value for record in stopped.disk.records()} == expected
    assert wrong(report_of(stopped.data_dir)) == []


def _damaged(content: bytes) -> bytes:
    return content[:200] + b"!" + content[201:]


def _of_another_epoch(content: bytes) -> bytes:
    """No CRC covers the epoch."""
    return content[:15] + b"\x07" + content[16:]


def _too_long(content: bytes) -> bytes:
    further = bytearray(batch_of(b"further"))
    further[:8] = (84).to_bytes(8, "big")
    further[12:16] = bytes(4)
    return content + further


def _of_another_partition(content: bytes) -> bytes:
    """It has the offsets and sizes of the right one."""
    other = bytearray()
    while len(other) < len(content):
        batch = bytearray(batch_of(*[b"another 1"] * RECORDS))
        batch[:8] = content[len(other) : len(other) + 8]
        batch[12:16] = bytes(4)  # The leader epoch.
        other += batch
    assert len(other) == len(content)
    return bytes(other)


@pytest.mark.parametrize("other", [_damaged, _of_another_epoch, _too_long, _of_another_partition])
@pytest.mark.parametrize("has_grown", [False, True], ids=["at once", "after further records"])
def test_a_file_that_does_not_fit_the_gap_is_not_taken_back(
    stopped: StoppedPartition, other: Callable[[bytes], bytes], has_grown: bool
) -> None:
    original = stopped.logs()[1].read_bytes()
    middle_missing(stopped)
    repaired(stopped.directory, accept_gaps=True)
    expected = [value for offset, value in enumerate(VALUES) if not 42 <= offset < 84]
    if has_grown:
        opened(stopped)
        stopped.disk.append(batch_of(b"later"))
        expected.append(b"later")
        stopped.stop()
    content = other(original)
    first = int.from_bytes(content[:8], "big")
    (stopped.directory / f"{first:020d}.log").write_bytes(content)
    plan = repaired(stopped.directory, accept_gaps=True)
    assert len(plan.set_aside) == 1
    assert Path(plan.set_aside[0][1]).read_bytes() == content
    opened(stopped)
    assert stopped.disk.values() == expected


def test_a_file_of_which_nothing_is_known_is_taken_back_only_if_the_operator_says_so(stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    original = log.read_bytes()
    middle_missing(stopped)
    repaired(stopped.directory, accept_gaps=True)
    key = checkpoint_key(stopped.disk.topic_id, 0)
    store = MetadataStore.open(stopped.data_dir / "meta", on_failure=print)
    checkpoint = decode_partition(key, store.get("partitions", key) or b"")
    assert [entry.base_offset for entry in checkpoint.given_up] == [int(log.stem)]
    # An earlier version did not store it.
    store.submit(encode_checkpoint(key, replace(checkpoint, given_up=[]))).result(20)
    store.close()
    log.write_bytes(original)
    found = survey(partition_of(stopped.directory), nothing)
    assert found.strays == [str(log)]
    assert "--take-back" in found.problems[0].message
    for accept_gaps in (False, True):  # It stays where it is, so that --take-back finds it.
        with pytest.raises(CorruptLogError, match="take it back with --take-back, else move it away"):
            plan_repair(found, accept_gaps=accept_gaps)
    found = survey(partition_of(stopped.directory), nothing, take_back=True)
    assert (found.strays, found.returned) == ([], [(42, 84)])
    plan = plan_repair(found, accept_gaps=True)
    assert plan is not None
    partition_repair.repair(plan)
    opened(stopped)
    assert stopped.disk.values() == VALUES


def test_a_cut_below_an_accepted_gap_forgets_the_gap(stopped: StoppedPartition) -> None:
    middle_missing(stopped)
    repaired(stopped.directory, accept_gaps=True)
    log = stopped.logs()[0]
    overwrite(log, batch_positions(log)[3] + 65, b"!")
    (partition,) = locate([log]).partitions
    plan = mend.plan_repair(partition, nothing)
    assert plan is not None
    mend.repair(plan)
    served = opened(stopped)
    assert (served.log_end_offset, served.gaps_below, served.checkpoint().given_up) == (6, 6, [])


@pytest.mark.parametrize("log_start", [0, 84], ids=["all", "deleted"])
def test_a_partition_remembers_what_a_repair_gave_up_until_it_is_deleted(
    stopped: StoppedPartition, log_start: int
) -> None:
    middle_missing(stopped)
    repaired(stopped.directory, accept_gaps=True)
    log = opened(stopped)
    log.remove_files(log.advance_log_start(log_start))
    checkpoint = log.checkpoint()
    assert [entry.base_offset for entry in checkpoint.given_up] == ([] if log_start else [42])
    stopped.disk.kill()
