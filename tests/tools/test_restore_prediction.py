"""A restore names exactly the partitions that the next start refuses, whatever happened since the backup, and what it
advises loses no record."""

from __future__ import annotations

import logging
import os
import random
import shutil
from pathlib import Path

import pytest

from logbroker.cli.main import run
from logbroker.errors import CorruptLogError
from logbroker.storage.metadata.metadata_store import MetadataReader
from logbroker.tools.metadata_backup import back_up
from logbroker.tools.metadata_restore import extracted, plan_restore, restore
from tests.storage.partition import NOW_MS, batch_of
from tests.tools.segment_files import StoppedPartition, batch_positions, overwrite

SEEDS = [69, 123, 65, 3, 193, 321, 391, *range(200, 236)]
ADVICE = "; if `segment repair` has accepted"


class _Life:
    """The life of a partition before and after its backup, by a seed."""

    def __init__(self, stopped: StoppedPartition, target: Path, seed: int) -> None:
        self.stopped = stopped
        self.chance = random.Random(seed)
        for _ in range(self.chance.randrange(3)):
            self._step()
        self.backup, _ = back_up(stopped.data_dir, target)
        for _ in range(self.chance.randrange(1, 6)):
            self._step()

    def _step(self) -> None:
        step = self.chance.choice([self._run, self._run, self._repair, self._repair, self._repair, self._damage])
        step()

    def take_row(self) -> None:
        """Let the partition open with what the metadata store has."""
        reader = MetadataReader.open(self.stopped.data_dir / "meta")
        [(_, self.stopped.disk.stored)] = reader.scan("partitions")
        reader.close()

    def readable(self) -> set[tuple[int, bytes | None]] | None:
        """Return the records that a broker serves with their offsets, None if it refuses the partition."""
        disk = self.stopped.disk
        self.take_row()
        try:
            disk.open()
        except CorruptLogError:
            return None
        records = {(record.offset, record.value) for record in disk.records()}
        disk.kill()
        return records

    def _run(self) -> None:
        """Run the broker for a while, unless it refuses the partition."""
        chance, disk = self.chance, self.stopped.disk
        self.take_row()
        try:
            disk.open(stopped_cleanly=chance.random() < 0.3)
        except CorruptLogError:
            return
        disk.store_checkpoint()
        for number in range(chance.choice([0, 1, 5, 40])):
            disk.append(batch_of(b"later %d" % number, timestamp_ms=NOW_MS))
            if chance.random() < 0.1:
                disk.store_checkpoint()
        if chance.random() < 0.2:
            taken = disk.log.advance_log_start(chance.randint(disk.log.log_start_offset, disk.log.synced_offset))
            disk.store_checkpoint()
            disk.log.remove_files(taken)
        if chance.random() < 0.5:
            disk.stop()
        else:
            disk.kill()
        self.stopped.store_metadata()

    def _damage(self) -> None:
        chance, directory = self.chance, self.stopped.directory
        logs = [path for path in self.stopped.logs() if path.stat().st_size]
        match chance.randrange(9):
            case 0:
                (directory / "partition.metadata").unlink(missing_ok=True)
            case 1:
                (directory / "leader-epoch-checkpoint").unlink(missing_ok=True)
            case _ if not logs:
                pass
            case 2:
                chance.choice(logs).unlink()
            case 3:
                logs[-1].unlink()
            case 4:
                log = chance.choice(logs)
                os.truncate(log, chance.randrange(log.stat().st_size))
            case _:
                log = chance.choice(logs)
                overwrite(log, chance.choice(batch_positions(log)) + chance.choice([3, 15, 65]), b"!")

    def _repair(self) -> None:
        self._damage()
        how = "--accept-gaps" if self.chance.random() < 0.7 else "--cut"
        run(["segment", "repair", str(self.stopped.directory), how, "--yes"])


@pytest.mark.prove(keep=8)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_restore_names_what_the_start_refuses(
    stopped: StoppedPartition, tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    life = _Life(stopped, tmp_path / "one.backup", seed)
    backup = life.backup
    before = {path: path.read_bytes() for path in stopped.directory.iterdir()}
    caplog.clear()
    with extracted(backup, stopped.data_dir) as store:
        plan = plan_restore(backup, store, stopped.data_dir)
        assert {path: path.read_bytes() for path in stopped.directory.iterdir()} == before, "the plan changes nothing"
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        restore(plan, store, stopped.data_dir)
    refused = ""
    life.take_row()
    try:
        stopped.disk.open()
    except CorruptLogError as error:
        refused = str(error)
    notes = [note for note in plan.notes if "will be offline" in note]
    assert [note.partition(ADVICE)[0] for note in notes] == [f"flights-0: will be offline: {refused}"] * bool(refused)
    assert plan.offline == ["flights-0"] * bool(refused)


@pytest.mark.prove(keep=4)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_restore_and_the_repair_that_it_names_lose_nothing(
    stopped: StoppedPartition, tmp_path: Path, seed: int
) -> None:
    life = _Life(stopped, tmp_path / "one.backup", seed)
    data_dir = stopped.data_dir
    is_sound = not run(["segment", "verify", str(stopped.directory)])
    shutil.copytree(data_dir, tmp_path / "copy")
    before = life.readable() if is_sound else None
    if before is None:
        return
    shutil.rmtree(data_dir)
    (tmp_path / "copy").rename(data_dir)
    with extracted(life.backup, data_dir) as store:
        plan = plan_restore(life.backup, store, data_dir)
        restore(plan, store, data_dir)
    if plan.offline:
        if not any(ADVICE in note for note in plan.notes):
            return
        assert not run(["segment", "repair", str(stopped.directory), "--accept-gaps", "--yes"])
    after = life.readable()
    assert after is not None
    assert before <= after
