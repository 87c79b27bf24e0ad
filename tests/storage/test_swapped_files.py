"""Files of another partition with the same layout, in the place of a partition's own: none of them is served."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from logbroker.config import TopicConfig
from logbroker.errors import CorruptLogError
from logbroker.types import TimestampType
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of, decoded

BATCHES = 60
APPEND_TIME = msgspec.structs.replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME)


def _pair(tmp_path: Path, config: TopicConfig = SMALL) -> tuple[PartitionOnDisk, PartitionOnDisk]:
    """Two partitions of one topic: the same offsets, sizes and times, but other records."""
    one, other = (PartitionOnDisk(tmp_path / f"t-{number}", config) for number in range(2))
    other.topic_id = one.topic_id
    shutil.copyfile(one.directory / "partition.metadata", other.directory / "partition.metadata")
    _number(other.directory, "1")
    for disk, letter in ((one, b"a"), (other, b"b")):
        for number in range(BATCHES):
            disk.append(batch_of(letter * 50, b"%d" % number, timestamp_ms=NOW_MS + number))
        disk.stop()
    assert [path.stat().st_size for path in one.logs()] == [path.stat().st_size for path in other.logs()]
    assert len(one.logs()) > 3
    return one, other


def _number(directory: Path, number: str | None) -> None:
    path = directory / "partition.metadata"
    lines = path.read_text().splitlines()[:2]
    path.write_text("\n".join([*lines, *([] if number is None else [f"partition: {number}"])]) + "\n")


def _swap(names: Iterable[str], one: PartitionOnDisk, other: PartitionOnDisk) -> None:
    for name in names:
        content = (one.directory / name).read_bytes()
        (one.directory / name).write_bytes((other.directory / name).read_bytes())
        (other.directory / name).write_bytes(content)


def _read(disk: PartitionOnDisk) -> tuple[list[bytes | None], str]:
    """All values up to where nothing more is given, and why."""
    values: list[bytes | None] = []
    offset = 0
    try:
        while (chunk := disk.log.read(offset, 500, nowait=False)).batches:
            values += [record.value for record in decoded(chunk.batches)]
            offset = chunk.next_offset
    except CorruptLogError as error:
        return values, error.message
    return values, ""


@pytest.mark.parametrize("config", [SMALL, APPEND_TIME], ids=["create time", "append time"])
@pytest.mark.parametrize("with_indexes", [False, True])
def test_a_segment_of_another_partition_is_not_served(tmp_path: Path, config: TopicConfig, with_indexes: bool) -> None:
    one, other = _pair(tmp_path, config)
    for path in one.logs():
        names = [path.name] + [path.with_suffix(suffix).name for suffix in (".index", ".timeindex") if with_indexes]
        _swap(names, one, other)
        for disk, letter in ((one, b"a"), (other, b"b")):
            disk.open()
            values, why = _read(disk)
            assert set(values[::2]) <= {letter * 50}
            assert len(values) == int(path.stem)
            assert f"{disk.directory / path.name}: the batch at byte 0," in why
            with pytest.raises(CorruptLogError, match=r"byte 0,"):
                disk.log.read(int(path.stem) + 1, 500, nowait=False)
            disk.kill()
        _swap(names, one, other)
    one.open()
    assert _read(one)[1] == ""
    one.kill()


def test_nothing_is_appended_to_a_segment_of_another_partition(tmp_path: Path) -> None:
    one, other = _pair(tmp_path)
    path = one.logs()[-1]
    _swap([path.name], one, other)
    content = path.read_bytes()
    one.open()
    [appended] = one.append(batch_of(b"new"))
    assert path.read_bytes() == content
    with pytest.raises(CorruptLogError, match=r"byte 0,"):
        one.log.read(int(path.stem), 500, nowait=False)
    assert [record.value for record in decoded(one.log.read(appended.base_offset, 500, nowait=False).batches)] == [
        b"new"
    ]


def test_a_segment_of_another_partition_is_noticed_after_a_crash_too(tmp_path: Path) -> None:
    one, other = _pair(tmp_path)
    for disk in (one, other):
        disk.open()
        disk.append(batch_of(b"above the recovery point", timestamp_ms=NOW_MS + BATCHES))
        disk.kill()
    path = one.logs()[-1]
    _swap([path.name], one, other)
    with pytest.raises(CorruptLogError, match=path.name):
        one.open()


def test_the_directory_of_another_partition_is_refused(tmp_path: Path) -> None:
    one, other = _pair(tmp_path)
    one.directory.rename(tmp_path / "aside")
    other.directory.rename(one.directory)
    (tmp_path / "aside").rename(other.directory)
    for disk, found in ((one, 1), (other, 0)):
        with pytest.raises(CorruptLogError, match=f"belong to partition {found} of the topic"):
            disk.open()


def test_a_directory_without_a_number_gets_it_at_the_next_start(tmp_path: Path) -> None:
    one, _ = _pair(tmp_path)
    _number(one.directory, None)
    one.open()
    assert (one.directory / "partition.metadata").read_text().splitlines()[2:] == ["partition: 0"]
    assert len(one.values()) == 2 * BATCHES
    one.kill()
    for damaged in ("", "x", "-1", "٣"):
        _number(one.directory, damaged)
        with pytest.raises(CorruptLogError, match="is no partition number"):
            one.open()


def test_segments_that_an_older_broker_stored_are_learned(tmp_path: Path) -> None:
    """Its rows say nothing of first batches: the first one that is found there counts from then on."""
    one, other = _pair(tmp_path)
    stored = one.stored_checkpoint()
    assert stored is not None
    for entry in stored.segments:
        entry.first_crc = -1
    one.stored = msgspec.msgpack.encode(stored)
    one.open()
    assert _read(one)[1] == ""
    one.stop()
    path = one.logs()[1]
    _swap([path.name], one, other)
    one.open()
    assert f"{path}: the batch at byte 0," in _read(one)[1]
