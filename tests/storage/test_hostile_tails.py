"""A damaged tail full of what looks like batches: what a search reads there is in proportion to the tail."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from logbroker.config import MIB
from logbroker.errors import CorruptLogError
from logbroker.tools.segments.log_file import LogFile
from logbroker.tools.segments.scan import LogScan
from tests.storage.faulty_files import FaultyFiles
from tests.storage.partition import PartitionOnDisk, batch_of

TAIL_BYTES = 4 * MIB
MOST_BYTES = 64 * MIB + 20 * TAIL_BYTES


class Measured(FaultyFiles):
    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        assert self.bytes_read < 2 * MOST_BYTES, "far too much is read"
        return super().pread(fd, size_bytes, position)


def lures(size_bytes: int) -> bytes:
    """Headers back to back, each of a batch that reaches to the end, and whose CRC is wrong."""
    parts = []
    for position in range(0, size_bytes - 61, 61):
        length = size_bytes - position - 12
        parts.append(struct.pack(">qiibIhiqqqhii", 1000, length, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1))
    return b"".join(parts).ljust(size_bytes, b"\0")


def killed_with(path: Path, tail: bytes) -> tuple[PartitionOnDisk, Measured]:
    """A partition whose process was killed, with this behind its one batch."""
    files = Measured()
    partition = PartitionOnDisk(path / "t-0", files=files)
    partition.append(batch_of(b"a"))
    partition.kill()
    with partition.logs()[0].open("ab") as file:
        file.write(tail)
    files.bytes_read = 0
    partition.store_checkpoint()
    return partition, files


def test_what_a_start_reads_grows_with_the_tail_not_with_its_square(tmp_path: Path) -> None:
    partition, files = killed_with(tmp_path, lures(TAIL_BYTES))
    before = partition.logs()[0].read_bytes()
    with pytest.raises(
        CorruptLogError, match=r"look like batches .* explains it; .* see what `logbroker segment repair"
    ):
        partition.open()
    assert TAIL_BYTES < files.bytes_read < MOST_BYTES
    assert partition.logs()[0].read_bytes() == before


def test_a_good_batch_among_a_few_lures_is_found(tmp_path: Path) -> None:
    good = bytearray(batch_of(b"good"))
    good[:8] = (5).to_bytes(8, "big")
    tail = lures(6100) + good
    partition, _ = killed_with(tmp_path, tail)
    at = partition.logs()[0].stat().st_size - len(good)
    with pytest.raises(CorruptLogError, match=f"a good one follows at byte {at}"):
        partition.open()


def test_a_few_lures_with_nothing_good_behind_them_are_cut_off(tmp_path: Path) -> None:
    partition, _ = killed_with(tmp_path, lures(61_000))
    partition.open()
    assert partition.values() == [b"a"]


def test_what_the_tools_read_grows_with_the_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch_of(b"a") + bytes(61) + lures(TAIL_BYTES))
    read = 0
    batch_crc = LogFile.batch_crc

    def counted(log: LogFile, position: int, size_bytes: int) -> int:
        nonlocal read
        read += size_bytes
        assert read < 2 * MOST_BYTES, "far too much is read"
        return batch_crc(log, position, size_bytes)

    monkeypatch.setattr(LogFile, "batch_crc", counted)
    with LogFile(str(path)) as log:
        scan = LogScan(log, 0, resume=True)
        assert len(list(scan.batches())) == 1
    assert "look like batches" in scan.faults[-1].reason
    assert TAIL_BYTES < read < MOST_BYTES
