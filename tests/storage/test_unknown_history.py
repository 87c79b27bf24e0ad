"""Recovery where nobody knows which crashes there were: the metadata are from a backup, or another program wrote the
files. What was synced is never cut off for damage of another kind: only what has nothing good behind it may be a torn
write.
"""

from __future__ import annotations

import logging
import os
import random
import re
from pathlib import Path

import msgspec
import pytest

from logbroker.errors import CorruptLogError
from logbroker.storage.partition_checkpoint import PartitionCheckpoint, SegmentCheckpoint
from tests.storage.partition import NOW_MS, PartitionOnDisk, batch_of

BOUND_BYTES = 1 << 26
HISTORIES = ["adopted", "restored", "imported"]
OFFSET_BYTES, EPOCH_AT, MAGIC_AT = 8, 12, 16
"""In a batch's header."""
DAMAGES = ["bit", "page", "hole", "short", "segment short", "segment missing"]


class Unknown:
    """Some forty synced batches in several segments, and metadata that know little of them."""

    def __init__(self, directory: Path, history: str) -> None:
        self.disk = disk = PartitionOnDisk(directory)
        disk.unsynced_bound_bytes = BOUND_BYTES
        disk.open()
        self.values: list[bytes] = []
        self._append(7)
        disk.store_checkpoint()
        before = disk.stored_checkpoint()
        assert before is not None
        # A cut in between: the epochs differ, as they do in a log that has lived.
        self._append(1, sync=False)
        disk.kill()
        self.values.pop()
        os.truncate(disk.logs()[-1], disk.logs()[-1].stat().st_size - 1)
        disk.open()
        assert disk.log.leader_epoch == 1
        for path in disk.directory.glob("*.cut-*"):
            path.unlink()
        self._append(30)
        disk.stop()
        if history == "imported":
            disk.stored = None
        else:
            checkpoint = PartitionCheckpoint(
                recovery_point=0,
                log_start_offset=0,
                segments=[SegmentCheckpoint(0, 0, -1)],
                unsynced_bound_bytes=BOUND_BYTES,
            )
            if history == "restored":
                checkpoint = msgspec.structs.replace(before, boot_id="an earlier boot")
            checkpoint.history_unknown = True
            disk.stored = msgspec.msgpack.encode(checkpoint)
        known = before.segments[-1] if history == "restored" else SegmentCheckpoint(0, 0, -1)
        self.places = [
            (path, position, size_bytes)
            for path in disk.logs()
            for position, size_bytes in _batches(path.read_bytes())
            if (int(path.stem), position) >= (known.base_offset, known.size_bytes)
        ]

    def _append(self, count: int, *, sync: bool = True) -> None:
        for _ in range(count):
            value = b"%03d" % len(self.values) + bytes(300)
            self.disk.append(batch_of(value, timestamp_ms=NOW_MS + len(self.values)), sync=sync)
            self.values.append(value)

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.disk.directory.glob("*.log*")}

    def damage(self, kind: str, chance: random.Random) -> tuple[Path, int]:
        """Damage what has good batches behind it; returns which file is at fault, and where."""
        path, position, size_bytes = chance.choice(self.places[:-2])  # a page may reach into the next one
        logs = self.disk.logs()
        if kind == "bit":
            bits = range(position * 8, (position + size_bytes) * 8)
            if self.disk.stored is None:
                # Nobody knows the leader epochs of another program: whatever stands there, nothing is cut off.
                bits = range(bits.start, bits.start + EPOCH_AT * 8) if chance.random() < 0.5 else bits[MAGIC_AT * 8 :]
            bit = chance.choice(bits)
            _overwrite(path, bit // 8, bytes([path.read_bytes()[bit // 8] ^ 1 << bit % 8]))
            if self.disk.stored is None and bit // 8 - position < OFFSET_BYTES:
                position = -1  # It may be a gap that another program left; then what follows is at fault.
        elif kind == "page":
            _overwrite(path, position + chance.randrange(size_bytes), chance.randbytes(1 + size_bytes // 2))
            position = -1
        elif kind == "hole":
            _overwrite(path, position, bytes(size_bytes))
        else:
            path, position, _ = chance.choice([place for place in self.places if place[0] != logs[-1]])
            if kind == "short":
                os.truncate(path, position + 100)
            elif kind == "segment short":
                os.truncate(path, position)
                path, position = logs[logs.index(path) + 1], -1
            else:
                path = chance.choice([log for log in logs[1:-1] if log > path] or [logs[-2]])
                path.unlink()
                path, position = logs[logs.index(path) + 1], -1
        return path, position


def _batches(content: bytes) -> list[tuple[int, int]]:
    found = []
    position = 0
    while position < len(content):
        size_bytes = 12 + int.from_bytes(content[position + 8 : position + 12], "big")
        found.append((position, size_bytes))
        position += size_bytes
    return found


def _overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content[: path.stat().st_size - position])


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("history", HISTORIES)
def test_what_good_batches_follow_is_not_cut_off(tmp_path: Path, history: str, kind: str) -> None:
    if history == "imported" and kind.startswith("segment"):
        pytest.skip("another program may have left the gap")
    seed = random.randrange(1 << 30)
    logging.getLogger(__name__).info("seed %d", seed)
    chance = random.Random(seed)
    for number in range(2):
        unknown = Unknown(tmp_path / f"t-{number}", history)
        path, position = unknown.damage(kind, chance)
        damaged = unknown.contents()
        named = unknown.disk.directory if kind == "bit" and position < 0 else f"{path}: "
        for _ in range(2):  # and nothing changes by trying again
            with pytest.raises(CorruptLogError, match=re.escape(str(named))) as raised:
                unknown.disk.open()
            if position >= 0 and kind != "short":
                assert f"byte {position} " in raised.value.message
            # A repair of one file would drop what is good in the others.
            assert f"`logbroker segment repair {unknown.disk.directory}`" in raised.value.message
            unknown.disk.kill()
        assert unknown.contents() == damaged, (seed, number)


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("bit", range(8 * OFFSET_BYTES))
def test_an_offset_that_no_program_wrote_there_ends_no_start(tmp_path: Path, bit: int) -> None:
    """Where gaps are allowed, a batch may lie at any offset, but no further than its segment reaches."""
    unknown = Unknown(tmp_path / "t-0", "imported")
    path, position, _ = unknown.places[len(unknown.places) // 2]
    at = position + bit // 8
    _overwrite(path, at, bytes([path.read_bytes()[at] ^ 0x80 >> bit % 8]))
    damaged = unknown.contents()
    with pytest.raises(CorruptLogError):
        unknown.disk.open()
    assert unknown.contents() == damaged


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("kind", ["torn", "garbage", "zeros", "whole"])
def test_a_tail_with_nothing_good_behind_is_cut_off_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, history: str, kind: str
) -> None:
    unknown = Unknown(tmp_path / "t-0", history)
    caplog.clear()
    path, position, size_bytes = unknown.places[-1]
    kept, cut_bytes = len(unknown.values), 0
    if kind == "torn":
        os.truncate(path, position + size_bytes - 1)
        kept, cut_bytes = kept - 1, size_bytes - 1
    elif kind != "whole":
        cut_bytes = 9000
        with path.open("ab") as file:
            file.write(bytes(cut_bytes) if kind == "zeros" else random.Random(1).randbytes(cut_bytes))
    unknown.disk.open()
    assert unknown.disk.values() == unknown.values[:kept]
    assert unknown.disk.log.cut_bytes == cut_bytes
    assert ("cut at byte" in caplog.text) == (kind != "whole")
    unknown.disk.stop()
    stored = unknown.disk.stored_checkpoint()
    assert stored is not None
    assert not stored.history_unknown
