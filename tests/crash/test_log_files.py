"""The reader of a data directory's files: sees what a crash may leave, and refuses what no crash leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from logbroker.record.codec import NewRecord, encode_batch
from tests.crash.checker import FinalRead, Log
from tests.crash.log_files import BrokenFilesError, LogFiles

LOG = Log("orders", 0)


def batch(base_offset: int, *values: bytes) -> bytes:
    return base_offset.to_bytes(8, "big") + encode_batch([NewRecord(value) for value in values])[8:]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / "partition.metadata").write_text("version: 0\ntopic_id: abc\n", encoding="ascii")
    return path


def write(directory: Path, base_offset: int, content: bytes) -> Path:
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(content)
    return path


def test_it_follows_a_log_that_grows_rolls_and_loses_its_beginning(directory: Path) -> None:
    files = LogFiles(directory.parent)
    first = write(directory, 0, batch(0, b"a", b"b"))
    files.read(power_cut=False)
    assert files.final() == {LOG: FinalRead(0, [(0, b"a"), (1, b"b")])}
    write(directory, 0, batch(0, b"a", b"b") + batch(2, b"c"))
    write(directory, 3, batch(3, b"d"))
    files.read(power_cut=False)
    assert files.final() == {LOG: FinalRead(0, list(enumerate([b"a", b"b", b"c", b"d"])))}
    first.unlink()
    files.read(power_cut=False)
    assert files.final() == {LOG: FinalRead(3, [(3, b"d")])}


def test_a_torn_end_is_told_apart_and_forgotten_once_it_is_cut(directory: Path) -> None:
    files = LogFiles(directory.parent)
    good, torn = batch(0, b"a"), batch(1, b"b")[:-1]
    path = write(directory, 0, good + torn)
    for _ in range(2):
        files.read(power_cut=False)
        tail = files.logs[LOG].torn
        assert tail is not None
        assert (tail.position, tail.content) == (len(good), torn)
        assert tail.side_path.name == f"{path.name}.cut-{len(good)}"
    write(directory, 0, good + batch(1, b"c"))
    files.read(power_cut=False)
    assert files.logs[LOG].torn is None
    assert files.final() == {LOG: FinalRead(0, [(0, b"a"), (1, b"c")])}


def test_a_good_batch_behind_a_bad_one_is_left_by_a_power_cut_only(directory: Path) -> None:
    good = batch(0, b"a")
    write(directory, 0, good + bytes(70) + batch(1, b"b"))
    LogFiles(directory.parent).read(power_cut=True)
    with pytest.raises(BrokenFilesError, match=f"a good batch at byte {len(good) + 70}"):
        LogFiles(directory.parent).read(power_cut=False)


def test_a_segment_behind_a_gap_is_left_by_a_power_cut_only(directory: Path) -> None:
    write(directory, 0, batch(0, b"a"))
    write(directory, 2, batch(2, b"c"))
    files = LogFiles(directory.parent)
    files.read(power_cut=True)
    assert files.final() == {LOG: FinalRead(0, [(0, b"a")])}
    with pytest.raises(BrokenFilesError, match="follows offset 1"):
        LogFiles(directory.parent).read(power_cut=False)


def test_a_segment_may_have_been_made_before_what_comes_before_it_was_written(directory: Path) -> None:
    write(directory, 0, batch(0, b"a"))
    write(directory, 2, b"")
    files = LogFiles(directory.parent)
    files.read(power_cut=False)
    assert files.logs[LOG].end_offset == 1


def test_good_bytes_must_not_go(directory: Path) -> None:
    files = LogFiles(directory.parent)
    write(directory, 0, batch(0, b"a"))
    files.read(power_cut=False)
    write(directory, 0, b"")
    with pytest.raises(BrokenFilesError, match="good bytes"):
        files.read(power_cut=True)


def test_incarnations_are_told_apart_by_the_topic_id(directory: Path) -> None:
    write(directory, 0, batch(0, b"a"))
    files = LogFiles(directory.parent, incarnated=frozenset({"orders"}))
    files.read(power_cut=False)
    assert list(files.logs) == [Log("orders", 0, "abc")]
