"""`logbroker segment`: what people and programs see, and exit codes."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record import MemoryRecords

import logbroker
from logbroker.cli.main import run
from logbroker.cli.segment import commands
from logbroker.client.sync import Admin, Producer
from logbroker.record.compression import Codec
from logbroker.storage.data_dir import DataDir
from logbroker.storage.partition_files import METADATA_NAME
from logbroker.tools.segments import mend
from logbroker.tools.segments.locate import Located, locate
from tests.cli.command import failure_of, output_of
from tests.storage.partition import NOW_MS, batch_of
from tests.tools.segment_files import (
    StoppedPartition,
    batch_positions,
    kafka_partition,
    overwrite,
    stored_batch,
)


class Segment:
    """Runs `logbroker segment ...` in this process, which is faster than one each."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.error = ""

    def __call__(self, *arguments: str | Path, exit_code: int = 0) -> str:
        """Return standard output."""
        code = run(["segment", *map(str, arguments)])
        out, self.error = self._capsys.readouterr()
        assert code == exit_code, self.error
        if code == 1:
            assert "logbroker: " in self.error
            assert self.error.count("\n") == 1
        return out

    def json(self, *arguments: str | Path, exit_code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", exit_code=exit_code))

    def json_lines(self, *arguments: str | Path, exit_code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json", exit_code=exit_code).splitlines()]


@pytest.fixture
def segment(capsys: pytest.CaptureFixture[str]) -> Segment:
    return Segment(capsys)


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose bytes never change: two plain batches and a commit marker."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(
        stored_batch(0, [b"one", None], keys=[b"k", b"\xff\x00"])
        + stored_batch(2, [b"three"], leader_epoch=1)
        + stored_batch(3, [bytes(6)], keys=[b"\0\0\0\1"], leader_epoch=1, attributes=0x30)
    )
    monkeypatch.chdir(tmp_path)
    return path


# --- golden outputs ------------------------------------------------------------------------------------------------


def test_dump_as_people_see_it(segment: Segment, golden: Path) -> None:
    assert segment("dump", golden, "--records") == (
        "byte 0  offsets 0-1  records 2  size 81  epoch 0  none  2023-11-14T22:13:20.000Z\n"
        "  offset 0  2023-11-14T22:13:20.000Z  key 'k'  value 'one'\n"
        "  offset 1  2023-11-14T22:13:20.000Z  key base64:/wA=  value null\n"
        "byte 81  offsets 2-2  records 1  size 73  epoch 1  none  2023-11-14T22:13:20.002Z\n"
        "  offset 2  2023-11-14T22:13:20.002Z  key null  value 'three'\n"
        "byte 154  offsets 3-3  records 1  size 78  epoch 1  none  2023-11-14T22:13:20.003Z  transactional  control\n"
        "  offset 3  2023-11-14T22:13:20.003Z  commit\n"
    )
    assert segment("dump", golden, "--from", "2").startswith("byte 81 ")


def test_dump_as_programs_see_it(segment: Segment, golden: Path) -> None:
    batch, one, two, *_ = segment.json_lines("dump", golden, "--records")
    assert {
        key: batch[key] for key in ("kind", "position", "base_offset", "last_offset", "records", "compression")
    } == {
        "kind": "batch",
        "position": 0,
        "base_offset": 0,
        "last_offset": 1,
        "records": 2,
        "compression": "none",
    }
    assert one == {"kind": "record", "offset": 0, "timestamp": NOW_MS, "key": "k", "value": "one", "headers": []}
    assert (two["key"], two["key_encoding"], two["value"]) == ("/wA=", "base64", None)


def test_paths_keep_their_slash_in_the_root_directory(
    segment: Segment, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"  {golden.name}" in segment("find", golden, "--key", "k")
    monkeypatch.chdir("/")
    assert f"  {golden}" in segment("find", golden, "--key", "k")


def test_list_and_verify_of_a_good_file(segment: Segment, golden: Path) -> None:
    (facts,) = segment.json("list", golden)
    assert facts == {
        "path": str(golden),
        "base_offset": 0,
        "next_offset": 4,
        "size_bytes": 232,
        "batches": 3,
        "records": 4,
        "missing_offsets": 0,
        "min_timestamp_ms": NOW_MS,
        "max_timestamp_ms": NOW_MS + 3,
        "damaged_at": None,
    }
    assert segment.json("verify", golden) == {
        "sound": True,
        "partitions": [{"path": str(golden.parent), "live": False, "segments": [facts], "findings": []}],
    }
    text = segment("list", golden)
    for word in ("base offset", golden.name, "232 bytes", "2023-11-14T22:13:20.003Z"):
        assert word in text
    assert segment("verify", golden).startswith("checked 1 partition, 1 segment, 4 records, 232 bytes in ")


# --- each command --------------------------------------------------------------------------------------------------


def test_verify_names_file_and_bytes(segment: Segment, stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    start, end = batch_positions(log)[2:4]
    overwrite(log, start + 70, b"!")
    document = segment.json("verify", stopped.data_dir, exit_code=1)
    assert not document["sound"]
    (found,) = document["partitions"][0]["findings"]
    assert (found["severity"], found["path"], found["position"], found["end"]) == ("error", str(log), start, end)
    text = segment("verify", stopped.data_dir, exit_code=1)
    assert f"{start}-{end - 1}" in text
    assert f"{log} at byte {start}" in segment.error


def test_dump_passes_over_damage_and_says_so(segment: Segment, stopped: StoppedPartition) -> None:
    log = stopped.logs()[1]
    positions = batch_positions(log)
    overwrite(log, positions[2] + 70, b"!")
    batches = segment.json_lines("dump", log, exit_code=1)
    assert [batch["position"] for batch in batches] == positions[:2] + positions[3:]
    assert f"{positions[2]}-{positions[3] - 1}" in segment.error
    assert segment.json("list", log)[0]["batches"] == len(positions)


@pytest.mark.parametrize("codec", list(Codec))
def test_dump_agrees_with_aiokafka(segment: Segment, tmp_path: Path, codec: Codec) -> None:
    path = tmp_path / f"{0:020d}.log"
    values = [b"value %d" % number * 20 for number in range(50)]
    path.write_bytes(batch_of(*values, codec=codec))
    lines = segment.json_lines("dump", path, "--records")
    theirs = []
    records = MemoryRecords(path.read_bytes())
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        theirs += [(record.offset, record.timestamp, record.value.decode()) for record in batch]
    ours = [(line["offset"], line["timestamp"], line["value"]) for line in lines if line["kind"] == "record"]
    assert ours == theirs
    assert len(ours) == 50


def test_stats(segment: Segment, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    keys: list[bytes | None] = [*[b"hot"] * 8, b"\xff", None]
    path.write_bytes(stored_batch(0, [b"v"] * 10, keys=keys) + stored_batch(10, [b""], attributes=0x30))
    document = segment.json("stats", path)
    assert (document["records"], document["records_without_key"], document["keys"]) == (10, 1, 2)
    assert document["top_keys"] == [
        {"key": "hot", "records": 8},
        {"key": "/w==", "records": 1, "key_encoding": "base64"},
    ]
    assert document["control_batches"] == 1
    assert document["codecs"]["none"]["ratio"] == 1
    path.write_bytes(batch_of(*[b"aaaaaaaaaaaaaaaa"] * 500, codec=Codec.ZSTD))
    zstd = segment.json("stats", path)["codecs"]["zstd"]
    assert zstd["ratio"] > 10
    assert zstd["plain_bytes"] == len(batch_of(*[b"aaaaaaaaaaaaaaaa"] * 500))
    assert "records per key" in segment("stats", path)


def test_find(segment: Segment, golden: Path) -> None:
    (found,) = segment.json_lines("find", golden, "--key", "k")
    assert found == {"path": str(golden), "position": 0, "offset": 0, "timestamp": NOW_MS}
    (found,) = segment.json_lines("find", golden, "--key", base64.b64encode(b"\xff\0").decode(), "--base64")
    assert found["offset"] == 1
    (found,) = segment.json_lines("find", golden, "--time", str(NOW_MS + 1))
    assert (found["offset"], found["position"]) == (2, 81)
    assert segment("find", golden, "--time", "2023-11-14T22:13:20.001Z").startswith("offset 2  byte 81 ")
    segment("find", golden, "--key", "nobody", exit_code=1)
    assert "no record" in segment.error
    segment("find", golden, "--time", "2040-01-01T00:00:00Z", exit_code=1)


def test_find_time_in_each_partition(segment: Segment, tmp_path: Path) -> None:
    for name in ("t-0", "t-1"):
        kafka_partition(tmp_path / name)
    found = segment.json_lines("find", tmp_path, "--time", str(NOW_MS + 41))
    assert [(Path(item["path"]).parent.name, item["offset"]) for item in found] == [("t-0", 100), ("t-1", 100)]


def test_rebuild_index(segment: Segment, stopped: StoppedPartition) -> None:
    index = stopped.logs()[0].with_suffix(".index")
    overwrite(index, 3, b"\x63")
    segment("verify", stopped.data_dir, exit_code=1)
    assert "offset entries" in segment("rebuild-index", stopped.directory)
    assert segment("verify", stopped.data_dir).startswith("checked ")


def test_repair_asks_and_keeps(segment: Segment, stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    log = stopped.logs()[-1]
    assert "nothing to repair" in segment("repair", log)
    position = batch_positions(log)[1]
    overwrite(log, position + 70, b"!")
    damaged = log.read_bytes()
    shown = segment("repair", log, "--dry-run")
    assert f"at byte {position}" in shown
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    segment("repair", log, exit_code=1)
    assert "nothing was done" in segment.error
    assert log.read_bytes() == damaged
    assert not list(stopped.directory.glob("*.cut-*"))
    assert f"now ends at byte {position}" in segment("repair", log, "--yes")
    (side,) = stopped.directory.glob("*.cut-*")
    assert log.read_bytes() + side.read_bytes() == damaged
    # The bad batch comes first in there.
    segment("dump", side, exit_code=1)
    [finding] = segment.json("verify", stopped.data_dir)["partitions"][0]["findings"]
    assert (finding["severity"], finding["path"]) == ("note", str(side))


@pytest.mark.parametrize("with_records", [False, True])
@pytest.mark.parametrize("command", [["list"], ["stats"], ["find", "--key", "k"]])
def test_a_topic_that_is_deleted_meanwhile_is_left_out(
    command: list[str],
    with_records: bool,
    segment: Segment,
    stopped: StoppedPartition,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A running broker deletes it while the command reads others."""
    directory = stopped.data_dir / "deleted-0"
    directory.mkdir()
    shutil.copy(stopped.directory / METADATA_NAME, directory)
    if with_records:
        shutil.copy(stopped.logs()[0], directory)

    def locate_and_delete(paths: Iterable[Path]) -> Located:
        located = locate(paths)
        assert len(located.partitions) == 2
        shutil.rmtree(directory)
        return located

    monkeypatch.setattr(commands, "locate", locate_and_delete)
    name, *options = command
    segment(name, stopped.data_dir, *options, exit_code=1 if name == "find" else 0)
    assert segment.error in ("", "logbroker: there is no record with the key 'k'\n")


def test_repair_of_a_partition_shows_what_is_wrong_and_lets_choose(
    segment: Segment, stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, log = stopped.directory, stopped.logs()[1]
    assert "nothing to repair (not checked: indexes, which `segment rebuild-index`" in segment("repair", directory)
    content = log.read_bytes()
    log.unlink()
    first, behind = int(log.stem), int(stopped.logs()[1].stem)
    shown = segment("repair", directory, exit_code=1)
    assert f"offsets {first} to {behind - 1} are missing before it" in shown
    assert f"--cut: the log begins at offset 0 and ends at {first}; offsets {first} to 119 are lost" in shown
    assert f"ends at 120; offsets {first} to {behind - 1} are lost" in shown
    assert "--cut" in segment.error
    assert "--accept-gaps" in segment.error
    names = sorted(directory.iterdir())
    for choice in ("--cut", "--accept-gaps"):
        assert "set the recovery point" in segment("repair", directory, choice, "--dry-run")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"n\n")))
        segment("repair", directory, choice, exit_code=1)
    assert sorted(directory.iterdir()) == names
    log.write_bytes(content)
    assert "nothing to repair" in segment("repair", directory)
    log.unlink()
    assert "is repaired" in segment("repair", directory, "--accept-gaps", "--yes")
    segment("verify", stopped.data_dir)
    assert "nothing to repair" in segment("repair", directory, "--cut", "--yes")
    rest = content[int.from_bytes(content[8:12], "big") + 12 :]
    unknown = directory / f"{int.from_bytes(rest[:8], 'big'):020d}.log"
    unknown.write_bytes(rest)
    for options in ([], ["--accept-gaps", "--yes"], ["--cut", "--yes"]):
        assert "take it back with --take-back" in segment("repair", directory, *options, exit_code=1)
    assert "it is taken back" in segment("repair", directory, "--accept-gaps", "--take-back", "--dry-run")
    looked_at = segment("repair", directory, "--take-back", exit_code=1)
    assert "to take the found files back, use --accept-gaps" in looked_at
    unknown.unlink()
    segment("repair", stopped.logs()[0], "--take-back", exit_code=2)
    segment("repair", directory, "--cut", "--accept-gaps", exit_code=2)
    segment("repair", stopped.logs()[0], "--cut", exit_code=2)
    segment("repair", stopped.data_dir, exit_code=2)
    segment("repair", stopped.data_dir / "nothing-7", exit_code=1)


@pytest.mark.parametrize("choice", [(), ("--accept-gaps", "--dry-run"), ("--cut", "--dry-run")])
def test_repair_names_the_right_names_of_segments_that_were_mixed_up(
    segment: Segment, stopped: StoppedPartition, choice: tuple[str, ...]
) -> None:
    one, other, _ = stopped.logs()
    contents = one.read_bytes(), other.read_bytes()
    for path, content in zip((other, one), contents, strict=True):
        path.write_bytes(content)
    shown = segment("repair", stopped.directory, *choice, exit_code=0 if choice else 1)
    assert f"{one}: its first batch is not the one that was written there" in shown
    for path, right in ((one, other), (other, one)):
        (line,) = (line for line in shown.splitlines() if line.startswith(f"{path}: "))
        assert f"begins with offset {int(right.stem)}: if files were mixed up, rename it to {right.name}" in line
    for path, content in zip((one, other), contents, strict=True):
        path.write_bytes(content)
    assert "nothing to repair" in segment("repair", stopped.directory)


_opened_for_writing: list[str] = []
_WRITES = os.O_WRONLY | os.O_RDWR


def _note_writing(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
        _opened_for_writing.append(str(arguments[0]))


def test_what_only_shows_opens_nothing_for_writing(segment: Segment, stopped: StoppedPartition) -> None:
    """As on a mount that is read-only, or for a user who may only read."""
    log = stopped.logs()[1]
    overwrite(log, 70, b"!")
    sys.addaudithook(_note_writing)  # For the rest of the process; nothing else asks it.
    for arguments, code in (
        (("repair", stopped.directory), 1),
        (("repair", stopped.directory, "--cut", "--dry-run"), 0),
        (("repair", stopped.directory, "--accept-gaps", "--dry-run"), 0),
        (("repair", log, "--dry-run"), 0),
        (("verify", stopped.data_dir), 1),
        (("list", stopped.data_dir), 0),
    ):
        _opened_for_writing.clear()
        assert segment(*arguments, exit_code=code)
        assert [path for path in _opened_for_writing if path.startswith(str(stopped.data_dir))] == []


def test_a_partition_without_its_files_can_be_repaired(segment: Segment, stopped: StoppedPartition) -> None:
    for remains in (True, False):
        shutil.rmtree(stopped.directory)
        if remains:
            stopped.directory.mkdir()
        assert "offsets 0 to 119 are missing" in segment("repair", stopped.directory, exit_code=1)
    assert "begins at offset 120 and ends at 120" in segment("repair", stopped.directory, "--accept-gaps", "--yes")
    segment("verify", stopped.data_dir)


def content_of(directory: Path) -> dict[str, bytes]:
    """Return all files that a repair must keep. Indexes can be built again."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("index")}


@pytest.mark.parametrize("option", [None, "--cut", "--accept-gaps"])
def test_a_repair_on_a_full_disk_names_a_file_leaves_no_copy_and_can_be_run_again(
    segment: Segment, stopped: StoppedPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str | None
) -> None:
    """Each sync of the repair in turn finds the disk full."""
    damaged = stopped.logs()[0]
    for index in (1, 4):
        overwrite(damaged, batch_positions(damaged)[index] + 70, b"!")
    overwrite(stopped.logs()[1], batch_positions(stopped.logs()[1])[2] + 70, b"!")
    syncs_left = 10**6

    def sync(real: Callable[[int], None], fd: int) -> None:
        nonlocal syncs_left
        syncs_left -= 1
        if syncs_left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(sync, getattr(os, name)))

    def repaired(data_dir: Path, exit_code: int) -> dict[str, bytes]:
        directory = data_dir / stopped.directory.name
        arguments = (directory / damaged.name,) if option is None else (directory, option)
        segment("repair", *arguments, "--yes", exit_code=exit_code)
        return content_of(directory)

    before = content_of(stopped.directory)
    whole = repaired(Path(shutil.copytree(stopped.data_dir, tmp_path / "whole")), 0)
    needed = 10**6 - syncs_left
    unchanged = 0
    for nth in range(1, needed + 1):
        data_dir = Path(shutil.copytree(stopped.data_dir, tmp_path / str(nth)))
        syncs_left = nth
        left = repaired(data_dir, 1)
        assert re.search(f"cannot use {data_dir}(/{stopped.directory.name}\\S*)?: No space", segment.error), (
            segment.error
        )
        assert "No space left on device; free some space, then try again" in segment.error
        unchanged += left == before
        assert repaired(data_dir, 0).keys() == whole.keys()
        assert sum(map(len, content_of(data_dir / stopped.directory.name).values())) == sum(map(len, whole.values()))
    assert 0 < unchanged < needed


@pytest.mark.parametrize("arguments", [("repair", "--yes"), ("repair", "--dry-run"), ("rebuild-index",)])
def test_what_writes_refuses_beside_a_broker(
    segment: Segment, stopped: StoppedPartition, arguments: tuple[str, ...]
) -> None:
    held = DataDir.open(stopped.data_dir)
    try:
        overwrite(stopped.logs()[0], 70, b"!")
        before = stopped.logs()[0].read_bytes()
        command, *options = arguments
        segment(command, stopped.logs()[0], *options, exit_code=1)
        assert "broker" in segment.error
        assert stopped.logs()[0].read_bytes() == before
    finally:
        held.close()


@pytest.mark.parametrize("arguments", [("repair", "--yes"), ("rebuild-index",)])
@pytest.mark.parametrize("way", ["link to the directory", "link to the log", "mounted directory", "mounted log"])
def test_what_writes_refuses_beside_a_broker_by_any_way(
    segment: Segment,
    stopped: StoppedPartition,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    way: str,
) -> None:
    log = stopped.logs()[0]
    overwrite(log, 70, b"!")
    before = log.read_bytes()
    aside = tmp_path / "aside"
    aside.mkdir()
    if way == "link to the directory":
        (aside / stopped.directory.name).symlink_to(stopped.directory)
    elif way == "link to the log":
        (aside / stopped.directory.name).mkdir()
        (aside / stopped.directory.name / log.name).symlink_to(log)
    else:
        shutil.copytree(stopped.directory, aside / stopped.directory.name)
    named = aside / stopped.directory.name / log.name
    mounted = named if way == "mounted log" else named.parent
    monkeypatch.setattr(mend, "_mount_points", lambda: {str(mounted)} if way.startswith("mounted") else set())
    held = DataDir.open(stopped.data_dir)
    try:
        command, *options = arguments
        segment(command, named, *options, exit_code=1)
    finally:
        held.close()
    assert "broker" in segment.error
    assert log.read_bytes() == before


@pytest.mark.parametrize("option", ["--cut", "--accept-gaps"])
def test_a_copy_beside_no_store_tells_the_same_losses(
    segment: Segment, stopped: StoppedPartition, tmp_path: Path, option: str
) -> None:
    overwrite(stopped.logs()[0], batch_positions(stopped.logs()[0])[1] + 70, b"!")
    copy = tmp_path / "aside" / stopped.directory.name
    shutil.copytree(stopped.directory, copy)
    told = [
        line.rpartition("; ")[2]
        for directory in (stopped.directory, copy)
        for line in segment("repair", directory, option, "--dry-run").splitlines()
        if "the log" in line and "ends at" in line
    ]
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0].startswith("offsets ")


def test_the_kernel_tells_what_is_mounted() -> None:
    assert "/" in mend._mount_points()
    assert "/proc" in mend._mount_points()


@pytest.mark.parametrize("command", ["list", "dump", "verify", "stats", "find", "rebuild-index", "repair"])
def test_each_command_has_help_with_an_example_and_refuses_what_is_not_there(
    segment: Segment, tmp_path: Path, command: str
) -> None:
    assert f"logbroker segment {command} " in segment(command, "--help")
    segment(command, exit_code=2)
    arguments = ("--key", "k") if command == "find" else ()
    segment(command, tmp_path / "nowhere.log", *arguments, exit_code=1)
    assert "nowhere.log" in segment.error
    if command not in ("dump", "repair"):
        segment(command, tmp_path, *arguments, exit_code=1)
        assert f"{tmp_path} is empty: there is no partition in it" in segment.error
        (tmp_path / "notes.txt").touch()
        segment(command, tmp_path, *arguments, exit_code=1)
        assert "neither a log file" in segment.error


# --- as processes --------------------------------------------------------------------------------------------------


def test_exit_codes_of_the_real_command(stopped: StoppedPartition) -> None:
    assert output_of("segment", "verify", stopped.data_dir).startswith(b"checked 1 partition,")
    overwrite(stopped.logs()[0], 70, b"!")
    assert "1 error;" in failure_of("segment", "verify", stopped.data_dir)


def test_a_live_broker_is_inspected_while_it_writes(segment: Segment) -> None:
    with logbroker.embedded() as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("busy", partitions=2, configs={"segment.bytes": "100000"})
        with Producer(broker.address) as producer:
            for number in range(30):
                for _ in range(200):
                    producer.send("busy", b"x" * 100, key=b"%d" % (number % 7))
                document = segment.json("verify", broker.data_dir)
                assert [report["live"] for report in document["partitions"]] == [True, True]
            producer.flush()
        found = segment.json("list", broker.data_dir)
        assert sum(facts["records"] for facts in found) == 6000
        assert segment.json("stats", broker.data_dir)["keys"] == 7


@pytest.mark.parametrize("wanted", [("--time", str(NOW_MS + 22)), ("--key", "nobody")])
def test_find_names_the_damage_that_it_passes_over(stopped: StoppedPartition, wanted: tuple[str, str]) -> None:
    """Also where only the header is another: a batch of an earlier time than it had."""
    log = stopped.logs()[1]
    position = batch_positions(log)[1]
    overwrite(log, position + 35, bytes(8))
    shown = failure_of("segment", "find", stopped.directory, *wanted)
    assert f"{log}: damaged at bytes {position}-" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("dump", "LOG"),
        ("stats", "DIR"),
        ("list", "DIR"),
        ("find", "DIR", "--key", "k"),
        ("rebuild-index", "DIR"),
    ],
)
def test_a_failed_read_names_the_file(
    segment: Segment, stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    log = stopped.logs()[0]

    def failing(*_: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)
    monkeypatch.setattr(os, "preadv", failing)
    segment(*[{"LOG": log, "DIR": log.parent}.get(each, each) for each in arguments], exit_code=1)
    assert log.parent.name in segment.error
    assert ".log: Input/output error" in segment.error


@pytest.mark.parametrize("arguments", [("list",), ("stats",), ("find", "--key", "k"), ("rebuild-index",)])
@pytest.mark.parametrize("names", ["the partition", "the data directory"])
def test_a_directory_that_may_not_be_listed_is_not_passed_over(
    segment: Segment, stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], names: str
) -> None:
    directory = stopped.logs()[0].parent
    listdir = os.listdir

    def refusing(path: Any = ".") -> Any:
        if Path(os.fspath(path)) == directory:
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refusing)
    command, *options = arguments
    named = directory if names == "the partition" else directory.parent
    segment(command, named, *options, exit_code=1)
    assert f"{directory}: Permission denied" in segment.error
