"""Backups of the metadata store: whole or not there, checked to the last bit, and put in place whole or not at all."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from logbroker.broker.local_engine.state_store import state_key
from logbroker.broker.local_engine.topic_rows import decode_topic
from logbroker.cli.main import run
from logbroker.config import TopicConfig
from logbroker.errors import CorruptLogError, DataDirError, StorageFailedError
from logbroker.group_runtime.group_store import GROUPS_SCOPE
from logbroker.record.codec import decode_batch, split_batches
from logbroker.storage.files import RealFiles
from logbroker.storage.metadata import metadata_store
from logbroker.storage.metadata.metadata_store import MetadataReader, MetadataStore
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.storage.partition_files import Owner, encode_metadata
from logbroker.tools import metadata_backup
from logbroker.tools.metadata_backup import Backup, back_up, read_backup
from logbroker.tools.metadata_restore import RestorePlan, extracted, plan_restore, restore
from logbroker.tools.segments.metadata import checkpoint_key
from logbroker.types import TopicId, new_topic_id
from tests.storage.partition import NOW_MS, batch_of
from tests.tools.segment_files import BATCHES, RECORDS, StoppedPartition, batch_positions, flip_bit


@pytest.fixture
def made(stopped: StoppedPartition, tmp_path: Path) -> Backup:
    return back_up(stopped.data_dir, tmp_path / "one.backup")[0]


def state_of(data_dir: Path) -> dict[tuple[str, bytes], bytes]:
    """Return the contents of the store, but for the mark of partitions that a restore leaves."""
    reader = MetadataReader.open(data_dir / "meta")
    try:
        found = {(table, key): value for table in ("topics", "state") for key, value in reader.scan(table)}
        for key, value in reader.scan("partitions"):
            checkpoint = msgspec.msgpack.decode(value, type=PartitionCheckpoint)
            checkpoint.history_unknown = False
            found["partitions", key] = msgspec.msgpack.encode(checkpoint)
        return found
    finally:
        reader.close()


def _stored_row(data_dir: Path) -> bytes:
    reader = MetadataReader.open(data_dir / "meta")
    try:
        [(_, row)] = reader.scan("partitions")
        return row
    finally:
        reader.close()


def put(data_dir: Path, key: bytes, value: bytes) -> None:
    store = MetadataStore.open(data_dir / "meta", on_failure=print)
    store.submit([("state", key, value)]).result(20)
    store.close()


def restored(backup: Backup, data_dir: Path) -> Path | None:
    with extracted(read_backup(Path(backup.path)), data_dir) as store:
        return restore(plan_restore(backup, store, data_dir), store, data_dir)


def test_a_backup_has_what_the_store_has(stopped: StoppedPartition, made: Backup, tmp_path: Path) -> None:
    before = state_of(stopped.data_dir)
    put(stopped.data_dir, b"later", b"1")
    replaced = restored(made, stopped.data_dir)
    assert state_of(stopped.data_dir) == before
    assert replaced is not None
    os.replace(replaced, stopped.data_dir / "meta" / "data.mdb")
    assert ("state", b"later") in state_of(stopped.data_dir)


def test_a_store_on_a_file_system_of_its_own_is_restored(stopped: StoppedPartition, made: Backup) -> None:
    before = state_of(stopped.data_dir)
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir() or shared_memory.stat().st_dev == stopped.data_dir.stat().st_dev:
        pytest.skip("needs a second file system")
    with tempfile.TemporaryDirectory(dir=shared_memory) as elsewhere:
        meta = Path(shutil.move(stopped.data_dir / "meta", elsewhere))
        (stopped.data_dir / "meta").symlink_to(meta)
        put(stopped.data_dir, b"later", b"1")
        replaced = restored(made, stopped.data_dir)
        assert state_of(stopped.data_dir) == before
        assert replaced is not None
        assert listing(meta) == ["data.mdb", replaced.name]


def test_the_owner_restores_a_store_in_a_directory_of_another_group(
    stopped: StoppedPartition, made: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(stopped.data_dir)

    def refused(path: str, _uid: int, _gid: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(os, "chown", refused)
    assert restored(made, stopped.data_dir) is not None
    assert state_of(stopped.data_dir) == before


def test_a_store_that_is_gone_with_its_directory_is_restored(stopped: StoppedPartition, made: Backup) -> None:
    before = state_of(stopped.data_dir)
    for path in (stopped.data_dir / "meta").iterdir():
        path.unlink()
    (stopped.data_dir / "meta").rmdir()
    assert restored(made, stopped.data_dir) is None
    assert state_of(stopped.data_dir) == before


def test_what_was_true_at_the_backup_only_is_not_believed(stopped: StoppedPartition, tmp_path: Path) -> None:
    """A later run may have ended in a crash, and has handed out producer ids."""
    store = MetadataStore.open(stopped.data_dir / "meta", on_failure=print)
    store.submit([("broker", b"clean-stop", b"1"), ("producers", b"next-id", (1001).to_bytes(8, "big"))]).result(20)
    store.close()
    made, _ = back_up(stopped.data_dir, tmp_path / "one.backup")
    next_ids = [1001]
    for _ in range(3):
        restored(made, stopped.data_dir)
        reader = MetadataReader.open(stopped.data_dir / "meta")
        assert reader.get("broker", b"clean-stop") is None
        next_ids.append(int.from_bytes(reader.get("producers", b"next-id") or b"", "big"))
        reader.close()
    assert next_ids == sorted(set(next_ids))
    assert next_ids[-1] < 1 << 62


@pytest.mark.parametrize("appended", [0, 1, 60])
def test_a_partition_that_a_repair_has_cut_since_the_backup_keeps_what_it_had_then_and_got_since(
    stopped: StoppedPartition, made: Backup, appended: int
) -> None:
    """The backup knows other bytes after the cut."""
    disk = stopped.disk
    os.truncate(stopped.logs()[1], 500)
    assert run(["segment", "repair", str(stopped.directory), "--cut", "--yes"]) == 0
    disk.stored = _stored_row(stopped.data_dir)
    disk.open(stopped_cleanly=True)
    for number in range(appended):
        disk.append(batch_of(b"later %d" % number, timestamp_ms=NOW_MS))
    readable = _values_of(stopped)
    stopped.stop()
    with extracted(made, stopped.data_dir) as store:
        plan = plan_restore(made, store, stopped.data_dir)
        restore(plan, store, stopped.data_dir)
    assert (plan.notes, plan.offline) == ([], [])
    disk.stored = _stored_row(stopped.data_dir)
    disk.open()
    assert _values_of(stopped) == readable


def test_a_segment_that_was_never_written_does_not_tell_where_a_partition_ended_when_its_topic_grew(
    stopped: StoppedPartition, made: Backup
) -> None:
    shutil.copytree(stopped.directory, stopped.data_dir / "flights-1")
    owner = Owner(stopped.disk.topic_id, 1)
    (stopped.data_dir / "flights-1" / "partition.metadata").write_bytes(encode_metadata(owner))
    for base_offset in (2**62, 2**63 - 1):
        (stopped.directory / f"{base_offset:020d}.log").write_bytes(b"")
    assert restored(made, stopped.data_dir) is not None
    (row,) = (row for (table, _), row in state_of(stopped.data_dir).items() if table == "topics")
    topic, _ = decode_topic(stopped.disk.topic_id, row, TopicConfig())
    assert (topic.partitions, topic.generations[-1].start_offsets) == (2, (BATCHES * RECORDS,))


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_restore_says_of_a_newer_topic_that_its_growth_is_not_known(
    stopped: StoppedPartition, made: Backup, partitions: int
) -> None:
    topic_id = new_topic_id()
    for number in range(partitions):
        directory = stopped.data_dir / f"newer-{number}"
        shutil.copytree(stopped.directory, directory)
        (directory / "partition.metadata").write_bytes(encode_metadata(Owner(topic_id, number)))
    with extracted(read_backup(Path(made.path)), stopped.data_dir) as store:
        (note,) = plan_restore(made, store, stopped.data_dir).notes
    assert note.startswith(f"newer: is not in the backup (newer, or deleted before it); it has {partitions} partitions")
    assert ("out of order" in note) == (partitions > 1)


class Grown(NamedTuple):
    """A topic of four partitions, of which the backup knows none (`newer`) or the first one (`flights`)."""

    name: str
    topic_id: TopicId
    first_new: int

    def plan(self, made: Backup, data_dir: Path) -> RestorePlan:
        with extracted(read_backup(Path(made.path)), data_dir) as store:
            return plan_restore(made, store, data_dir)

    def partitions(self, plan: RestorePlan) -> int:
        """Return the number of the topic's partitions that a plan stores."""
        (row,) = (row for table, key, row in plan.writes if table == "topics" and key == self.topic_id and row)
        return decode_topic(self.topic_id, row, TopicConfig())[0].partitions

    def rows(self, plan: RestorePlan) -> set[int]:
        """Return the numbers of the partitions that a plan stores rows of."""
        keys = {checkpoint_key(self.topic_id, number): number for number in range(4)}
        return {keys[key] for table, key, _ in plan.writes if table == "partitions" and key in keys}


@pytest.fixture(params=["newer", "flights"])
def grown(request: pytest.FixtureRequest, stopped: StoppedPartition) -> Grown:
    is_known = request.param == "flights"
    topic = Grown(request.param, stopped.disk.topic_id if is_known else new_topic_id(), int(is_known))
    for number in range(topic.first_new, 4):
        directory = stopped.data_dir / f"{topic.name}-{number}"
        shutil.copytree(stopped.directory, directory)
        (directory / "partition.metadata").write_bytes(encode_metadata(Owner(topic.topic_id, number)))
    return topic


def _zeroed(metadata: Path) -> None:
    metadata.write_bytes(bytes(metadata.stat().st_size))


@pytest.mark.parametrize(
    "damage", [_zeroed, partial(flip_bit, bit=0), Path.unlink, partial(Path.write_bytes, data=b"")]
)
def test_a_partition_whose_metadata_cannot_be_read_is_taken_for_that_of_its_name(
    stopped: StoppedPartition, made: Backup, grown: Grown, damage: Callable[[Path], object]
) -> None:
    for number in (2, 3):
        damage(stopped.data_dir / f"{grown.name}-{number}" / "partition.metadata")
    plan = grown.plan(made, stopped.data_dir)
    assert grown.partitions(plan) == 4
    assert grown.rows(plan) == {0, 1, 2, 3}
    names = f"{grown.name}-2, {grown.name}-3"
    assert f"{grown.name}: partition.metadata of 2 of 4 partitions is missing or damaged ({names})" in plan.notes[-1]
    assert plan.offline == []


def test_a_partition_whose_metadata_cannot_be_read_and_that_had_records_before_is_named_as_offline(
    stopped: StoppedPartition, made: Backup, grown: Grown
) -> None:
    """Retention has removed its first segments since, so its metadata was synced, and no power cut explains this."""
    directory = stopped.data_dir / f"{grown.name}-3"
    (directory / f"{0:020d}.log").unlink()
    _zeroed(directory / "partition.metadata")
    plan = grown.plan(made, stopped.data_dir)
    assert grown.partitions(plan) == 4
    assert plan.offline == [f"{grown.name}-3"]
    (note,) = (note for note in plan.notes if "offline" in note)
    assert note.startswith(f"{grown.name}-3: will be offline: {directory}/partition.metadata: ")


def test_a_partition_of_another_topic_is_named_and_does_not_hide_the_others(
    stopped: StoppedPartition, made: Backup, grown: Grown
) -> None:
    """A flipped bit may also make another topic id, or another number."""
    for number, owner in ((1, Owner(new_topic_id(), 1)), (2, Owner(grown.topic_id, 7)), (3, Owner(new_topic_id(), 3))):
        (stopped.data_dir / f"{grown.name}-{number}" / "partition.metadata").write_bytes(encode_metadata(owner))
    if grown.name == "newer":
        # Most directories state one id.
        for number in (4, 5):
            shutil.copytree(stopped.directory, stopped.data_dir / f"newer-{number}")
            owner = Owner(grown.topic_id, number)
            (stopped.data_dir / f"newer-{number}" / "partition.metadata").write_bytes(encode_metadata(owner))
        plan = grown.plan(made, stopped.data_dir)
        assert grown.partitions(plan) == 6
        assert plan.offline == ["newer-1", "newer-2", "newer-3"]
    else:
        plan = grown.plan(made, stopped.data_dir)
        assert not [write for write in plan.writes if write[0] == "topics"]
        for number in (1, 2, 3):
            (note,) = (note for note in plan.notes if note.startswith(f"flights-{number}: its files are of "))
            assert note.endswith("; its files stay, but are not served")


def test_partitions_of_which_there_are_no_files_are_named(
    stopped: StoppedPartition, made: Backup, grown: Grown
) -> None:
    """They may never have had a record, but the next start makes them anew in any case."""
    numbers = range(grown.first_new, 3)
    for number in numbers:
        shutil.rmtree(stopped.data_dir / f"{grown.name}-{number}")
    (stopped.data_dir / f"{grown.name}-2").mkdir()
    plan = grown.plan(made, stopped.data_dir)
    assert grown.partitions(plan) == 4
    names = ", ".join(f"{grown.name}-{number}" for number in numbers)
    assert (
        f"{grown.name}: the files of {len(numbers)} of 4 partitions are missing ({names}); these will be empty, "
        "and their offsets begin at 0. If they had records, put their files back before the next start"
    ) in plan.notes
    assert plan.offline == []


def test_the_name_is_the_callers_or_tells_the_time(stopped: StoppedPartition, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    made, _ = back_up(stopped.data_dir, tmp_path / "backups")
    [path] = (tmp_path / "backups").iterdir()
    assert str(path) == made.path
    assert path.match("logbroker-meta-*Z.backup")
    before = path.read_bytes()
    with pytest.raises(DataDirError, match="is there already"):
        back_up(stopped.data_dir, path)
    assert path.read_bytes() == before
    with pytest.raises(DataDirError, match="there is no metadata store"):
        back_up(tmp_path / "backups", tmp_path / "two.backup")
    assert [child.name for child in tmp_path.iterdir() if child.is_file()] == []


def test_further_backups_of_a_second_match_the_same_pattern_and_sort_by_age(
    stopped: StoppedPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_backup, "utc_text", lambda _: "20260131T120000Z")
    paths = [back_up(stopped.data_dir, tmp_path)[0].path for _ in range(12)]
    assert len(set(paths)) == 12
    found = list(map(str, tmp_path.glob("logbroker-meta-*.backup")))
    assert sorted(found) == paths
    assert sorted(found, key=lambda path: re.sub(r"\W", "", path)) == paths, "some locales ignore punctuation"
    assert Path(paths[0]).name == "logbroker-meta-20260131T120000Z.backup"
    assert read_backup(Path(paths[-1])).path == paths[-1]


def test_every_flipped_bit_of_a_backup_is_noticed(made: Backup) -> None:
    path = Path(made.path)
    content = path.read_bytes()
    chance = random.Random(4711)
    bits = [chance.randrange(8 * len(content)) for _ in range(300)]
    for bit in [*bits, *range(8 * made.store_bytes, 8 * len(content))]:
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(CorruptLogError):
            read_backup(path)
    for size_bytes in (0, 1, 27, len(content) - 1):
        path.write_bytes(content[:size_bytes])
        with pytest.raises(CorruptLogError, match="is no backup"):
            read_backup(path)
    path.write_bytes(content)
    assert read_backup(path) == made


def test_a_damaged_value_is_named_and_there_is_no_backup(
    stopped: StoppedPartition, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(stopped.data_dir, b"key", b"a value that is easily found")
    store = stopped.data_dir / "meta" / "data.mdb"
    store.write_bytes(store.read_bytes().replace(b"easily found", b"Easily found"))
    assert run(["meta", "backup", str(tmp_path / "one.backup"), "--data-dir", str(stopped.data_dir)]) == 1
    assert "the row of key 6b6579 in table state is damaged" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_backup_that_finds_no_room_names_its_own_file(
    stopped: StoppedPartition, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    target = tmp_path / "one.backup"
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        assert run(["meta", "backup", str(target), "--data-dir", str(stopped.data_dir)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    error = capsys.readouterr().err
    assert f"cannot use {target}.tmp: File too large" in error
    assert str(stopped.data_dir) not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_store_on_a_read_only_file_system_is_copied_without_its_lock_file(
    stopped: StoppedPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = stopped.data_dir / "meta" / "lock.mdb"
    lock.unlink(missing_ok=True)
    opened = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if path == lock and flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    made, _ = back_up(stopped.data_dir, tmp_path / "one.backup")
    assert read_backup(Path(made.path)) == made


def test_a_copy_is_of_one_moment_while_a_broker_commits(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path / "meta", on_failure=print)

    def commit(number: int) -> None:
        store.submit([("state", bytes([key]), bytes([number]) * 300_000) for key in range(20)]).result(20)

    commit(0)
    program = "import sys; from pathlib import Path; from logbroker.storage.metadata.metadata_store import copy_store"
    command = [sys.executable, "-c", f"{program}; copy_store(Path(sys.argv[1]), 1)", str(tmp_path / "meta")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        content = process.stdout.read(1)
        # It waits for us in the middle, and cannot have read much more than LMDB buffers, 2 MiB.
        for number in range(1, 9):
            commit(number)
        content += process.stdout.read()
    store.close()
    assert process.returncode == 0
    (tmp_path / "copy").write_bytes(content)
    reader = MetadataReader.open(tmp_path / "copy")
    assert reader.scan("state") == [(bytes([key]), bytes(300_000)) for key in range(20)]
    reader.close()


def killed_readers(path: Path, count: int) -> None:
    """Leave the marks of programs that were killed while they read the store."""
    program = (
        "import lmdb, os\n"
        f"store = lmdb.open({str(path)!r}, map_size=0, max_dbs=9, readonly=True, max_spare_txns=0)\n"
        "held = []\n"
        "try:\n"
        f"    while len(held) < {count}: held.append(store.begin())\n"
        "except lmdb.ReadersFullError: pass\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9


@pytest.mark.parametrize("map_bytes", [1 << 20, 1 << 30])
def test_pages_that_a_killed_backup_held_are_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, map_bytes: int
) -> None:
    """When the map is full, and long before."""
    if map_bytes > 1 << 20:
        monkeypatch.setattr(metadata_store, "_READERS_SECONDS", 0.0)
    path = tmp_path / "meta"
    store = MetadataStore.open(path, on_failure=print, map_bytes=map_bytes)
    store.submit([("state", b"key", bytes(100_000))]).result(20)
    killed_readers(path, 1)
    for number in range(100):
        store.submit([("state", b"key", bytes([number]) * 100_000)]).result(20)
    store.close()
    assert (path / "data.mdb").stat().st_size < 4 << 20


@pytest.mark.parametrize("reader", ["broker", "program"])
def test_killed_readers_keep_no_others_out(tmp_path: Path, reader: str) -> None:
    """LMDB has 126 slots for readers."""
    path = tmp_path / "meta"
    store = MetadataStore.open(path, on_failure=print)
    store.submit([("state", b"key", b"value")]).result(20)
    if reader == "broker":
        with store._environment.begin():  # Of another thread; the store keeps this slot.
            killed_readers(path, 1000)
            assert store.get("state", b"key") == b"value"
    else:
        killed_readers(path, 1000)
        program = (
            "from pathlib import Path\n"
            "from logbroker.storage.metadata.metadata_store import MetadataReader\n"
            f"print(MetadataReader.open(Path({str(path)!r})).get('state', b'key'))"
        )
        assert subprocess.check_output([sys.executable, "-c", program]) == b"b'value'\n"
    store.close()


@pytest.mark.parametrize("call", ["unlink", "link", "rename", "fsync"])
def test_a_restore_that_dies_leaves_the_old_store_or_the_new(
    stopped: StoppedPartition, made: Backup, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    class KilledError(BaseException):
        pass

    backed_up = state_of(stopped.data_dir)
    put(stopped.data_dir, b"later", b"1")
    now = state_of(stopped.data_dir)
    seen = set()
    real = getattr(os, call)
    for nth in range(1, 10):
        left = nth

        def dies(*arguments: Any, **fields: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                raise KilledError
            return real(*arguments, **fields)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, dies)
            try:
                restored(made, stopped.data_dir)
            except KilledError:
                pass
            else:
                break
        found = state_of(stopped.data_dir)
        seen.add(found == now)
        assert found in (now, backed_up)
    else:
        raise AssertionError("it never came to an end")
    assert state_of(stopped.data_dir) == backed_up
    assert True in seen


def listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("name", ["backups", "backups/", "none/one.backup", "one.backup/"])
def test_a_directory_that_is_not_there_gets_no_file_of_its_name(
    stopped: StoppedPartition, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "into").mkdir()
    assert run(["meta", "backup", "--data-dir", str(stopped.data_dir), f"{tmp_path}/into/{name}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no directory" in line
    assert "create it" in line
    assert listing(tmp_path / "into") == []


def test_backups_in_a_directory_get_names_of_their_own(
    stopped: StoppedPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logbroker.tools.metadata_backup.time.time_ns", lambda: 10**18)
    (tmp_path / "into").mkdir()
    for _ in range(3):
        back_up(stopped.data_dir, tmp_path / "into")
    assert len(listing(tmp_path / "into")) == 3


def test_backups_that_two_commands_make_at_one_moment_get_different_names(
    stopped: StoppedPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name that this command has chosen is taken by another command before it is used."""
    (tmp_path / "into").mkdir()
    taken: dict[str, Path] = {}

    def late(free_path: Callable[[Path], Path], path: Path) -> Path:
        chosen = free_path(path)
        if path.suffix not in taken:
            taken[path.suffix] = chosen
            chosen.touch()
        return chosen

    for name in ("free_path", "free_backup_path"):
        monkeypatch.setattr(metadata_backup, name, partial(late, getattr(metadata_backup, name)))
    made = Path(back_up(stopped.data_dir, tmp_path / "into")[0].path)
    first = taken[".backup"]
    assert read_backup(made).path == str(first.with_name(f"{first.stem}.number-02.backup"))
    assert {".tmp", ".backup"} == taken.keys()
    assert listing(tmp_path / "into") == sorted([made.name, *(path.name for path in taken.values())])
    assert not any(path.read_bytes() for path in taken.values())


def test_nothing_is_overwritten(stopped: StoppedPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a link to nothing, nor what got the name meanwhile, with and without hard links."""
    (tmp_path / "link.backup").symlink_to("nothing")
    with pytest.raises(DataDirError, match="is there already"):
        back_up(stopped.data_dir, tmp_path / "link.backup")
    assert (tmp_path / "link.backup").is_symlink()

    target = tmp_path / "late.backup"

    def no_links(*_: object, **__: object) -> None:
        raise PermissionError("no hard links here")

    for link in (os.link, no_links):
        monkeypatch.setattr(os, "link", link)

        def late(*arguments: Any) -> dict[str, int]:
            target.write_bytes(b"mine")
            return {}

        monkeypatch.setattr("logbroker.tools.metadata_backup.count_values", late)
        with pytest.raises(DataDirError, match="is there already"):
            back_up(stopped.data_dir, target)
        assert target.read_bytes() == b"mine"
        assert [name for name in listing(tmp_path) if "late" in name] == ["late.backup"]
        target.unlink()


def test_without_a_data_directory_nothing_is_restored(made: Backup, tmp_path: Path) -> None:
    with pytest.raises(DataDirError, match="there is no data directory"):
        restored(made, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_restore_says_what_it_keeps_and_until_when(
    stopped: StoppedPartition, made: Backup, capsys: pytest.CaptureFixture[str]
) -> None:
    put(stopped.data_dir, b"newer", b"1")
    assert run(["meta", "restore", made.path, "--data-dir", str(stopped.data_dir), "--yes"]) == 0
    (replaced,) = (stopped.data_dir / "meta").glob("data.mdb.replaced-*")
    told = capsys.readouterr().out
    assert f"is kept as {replaced}: remove it when you no longer need it" in told
    assert ("state", b"newer") not in state_of(stopped.data_dir)
    # The way back is a restore, too: retention may have removed files, and topics may have been made, since.
    [command] = [line for line in told.splitlines() if "stop the broker, then: " in line]
    assert run([*shlex.split(command.partition("then: ")[2])[1:], "--yes"]) == 0
    assert ("state", b"newer") in state_of(stopped.data_dir)


def test_a_restore_asks(
    stopped: StoppedPartition, made: Backup, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stopped.data_dir, b"later", b"1")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(["meta", "restore", made.path, "--data-dir", str(stopped.data_dir)]) == 1
    assert "nothing was done" in capsys.readouterr().err
    assert ("state", b"later") in state_of(stopped.data_dir)
    assert not (stopped.data_dir / "meta" / "restoring").exists()


def _last_batch(stopped: StoppedPartition) -> None:
    log = stopped.logs()[-1]
    os.truncate(log, batch_positions(log)[-1])


def _last_segments(stopped: StoppedPartition) -> None:
    for log in stopped.logs()[-2:]:
        log.unlink()


def _all_segments(stopped: StoppedPartition) -> None:
    for log in stopped.logs():
        log.unlink()


def _directory(stopped: StoppedPartition) -> None:
    shutil.rmtree(stopped.directory)


def _epochs(stopped: StoppedPartition) -> None:
    (stopped.directory / "leader-epoch-checkpoint").unlink()


def _metadata(stopped: StoppedPartition) -> None:
    flip_bit(stopped.directory / "partition.metadata", 0)


def _name_of_metadata(stopped: StoppedPartition) -> None:
    (stopped.directory / "partition.metadata").unlink()


def _place(stopped: StoppedPartition) -> None:
    """Move the directory, and put a link in its place."""
    moved = stopped.directory.rename(stopped.data_dir.parent / "moved")
    stopped.directory.symlink_to(moved)


@pytest.mark.parametrize(
    "lose",
    [
        _last_batch,
        _last_segments,
        _all_segments,
        _directory,
        _epochs,
        _metadata,
        _name_of_metadata,
        _place,
    ],
)
def test_a_restore_names_the_partitions_that_will_be_offline_and_asks(
    stopped: StoppedPartition,
    made: Backup,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[StoppedPartition], None],
) -> None:
    """Their files are older than the backup, and lack what it knows as synced."""
    lose(stopped)
    put(stopped.data_dir, b"later", b"1")
    command = ["meta", "restore", made.path, "--data-dir", str(stopped.data_dir)]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(command) == 1
    out, err = capsys.readouterr()
    assert ("state", b"later") in state_of(stopped.data_dir)
    assert "Restore it, although 1 partition will be offline?" in err
    [note] = [line for line in out.splitlines() if line.startswith("  ")]
    assert note.startswith("  flights")
    assert "will be offline" in note
    assert "will scan 0 bytes" in out
    assert "1 partition will be offline. If the files are older than this backup, restore a backup" in out
    assert run([*command, "--yes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["offline"] == ["flights-0"]
    assert document["notes"] == [note.strip()]
    stopped.disk.stored = _stored_row(stopped.data_dir)
    with pytest.raises(CorruptLogError):
        stopped.disk.open()


def _lose_batch_of_the_backup(logs: list[Path]) -> None:
    """The segment has grown since."""
    flip_bit(logs[0], 8 * (batch_positions(logs[0])[1] + 70))


def _lose_batch(logs: list[Path]) -> None:
    flip_bit(logs[2], 8 * (batch_positions(logs[2])[1] + 70))


def _lose_segment(logs: list[Path]) -> None:
    logs[2].unlink()


def _lose_end(logs: list[Path]) -> None:
    logs[-1].unlink()


@pytest.mark.parametrize("is_known", [True, False], ids=["topic of the backup", "topic found by its files"])
@pytest.mark.parametrize("lose", [_lose_batch_of_the_backup, _lose_batch, _lose_segment, _lose_end])
def test_a_restore_names_the_partition_whose_lost_records_were_accepted_since_the_backup(
    stopped: StoppedPartition,
    made: Backup,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lose: Callable[[list[Path]], None],
    is_known: bool,
) -> None:
    """The backup does not know the gap, so the next start refuses it. Both say which repair accepts it again."""
    if not is_known:
        made = _backup_of_an_empty_store(tmp_path)
    before = len(stopped.logs())
    stopped.disk.open(stopped_cleanly=True)
    for number in range(40):
        stopped.disk.append(batch_of(b"later %d" % number, timestamp_ms=NOW_MS))
    stopped.stop()
    lose(stopped.logs()[before - 1 :])
    repair = ["segment", "repair", str(stopped.directory), "--accept-gaps"]
    assert run([*repair, "--yes"]) == 0
    stopped.disk.stored = _stored_row(stopped.data_dir)
    stopped.disk.open(stopped_cleanly=True)
    readable = _values_of(stopped)
    stopped.disk.kill()
    capsys.readouterr()

    command = ["meta", "restore", made.path, "--data-dir", str(stopped.data_dir)]
    for dry_run in (True, False):
        assert run([*command, "--json", "--dry-run" if dry_run else "--yes"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["offline"] == ["flights-0"]
        [note] = [note for note in document["notes"] if "will be offline" in note]
        assert len(document["notes"]) == (1 if is_known else 2)
        assert note.endswith(f": logbroker {' '.join(repair)}")
    stopped.disk.stored = _stored_row(stopped.data_dir)
    with pytest.raises(CorruptLogError, match=rf"logbroker segment repair {re.escape(str(stopped.directory))}\W"):
        stopped.disk.open()
    assert run([*repair, "--yes"]) == 0
    stopped.disk.stored = _stored_row(stopped.data_dir)
    stopped.disk.open()
    assert _values_of(stopped) == readable


def test_a_restore_does_not_blame_retention_for_records_that_a_repair_has_given_up(
    stopped: StoppedPartition, made: Backup, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped.logs()[0].unlink()
    assert run(["segment", "repair", str(stopped.directory), "--accept-gaps", "--yes"]) == 0
    first = int(stopped.logs()[0].stem)
    assert first > 0
    capsys.readouterr()
    assert run(["meta", "restore", made.path, "--data-dir", str(stopped.data_dir), "--dry-run"]) == 0
    [note] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert note == (
        f"  flights-0: begins at offset {first} now, and at 0 in the backup: retention, `topic delete-records` or"
        " `segment repair` has removed the records between"
    )


def _backup_of_an_empty_store(tmp_path: Path) -> Backup:
    empty = tmp_path / "empty"
    empty.mkdir()
    MetadataStore.open(empty / "meta", on_failure=print).close()
    return back_up(empty, tmp_path / "empty.backup")[0]


def _values_of(stopped: StoppedPartition) -> list[bytes | None]:
    """The values of all records, over gaps."""
    log = stopped.disk.log
    offset, found = log.log_start_offset, list[bytes | None]()
    while batches := (read := log.read(offset, 1 << 20, nowait=False)).batches:
        found += [record.value for _, batch in split_batches(batches) for record in decode_batch(batch)]
        offset = read.next_offset
    return found


def test_a_restore_does_not_advise_to_delete_the_copies_of_a_queue_group(
    stopped: StoppedPartition, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clients may not delete such a topic: it goes with its group."""
    store = MetadataStore.open(stopped.data_dir / "meta", on_failure=print)
    [(key, value)] = store.scan("topics")
    row = msgspec.msgpack.decode(value)
    store.submit([("topics", key, msgspec.msgpack.encode({**row, "name": "__queue.billing"}))]).result(20)
    store.close()
    made = back_up(stopped.data_dir, tmp_path / "one.backup")[0]
    shutil.rmtree(stopped.directory)
    assert run(["meta", "restore", made.path, "--data-dir", str(stopped.data_dir), "--dry-run", "--json"]) == 0
    [note] = json.loads(capsys.readouterr().out)["notes"]
    assert note.startswith("__queue.billing: the files of 1 of 1 partitions are missing")
    assert "logbroker queue delete billing)" in note
    assert "topic delete" not in note


@pytest.mark.parametrize("place", ["meta/restoring", "meta.restoring"])
@pytest.mark.parametrize("kind", ["FIFO", "file", "directory with a backup"])
def test_what_no_restore_has_made_stays_in_the_place_of_its_work(
    stopped: StoppedPartition, made: Backup, capsys: pytest.CaptureFixture[str], place: str, kind: str
) -> None:
    if place == "meta.restoring":
        shutil.rmtree(stopped.data_dir / "meta")
    path = stopped.data_dir / place
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "file":
        path.touch()
    else:
        path.mkdir()
        (path / "kept.backup").write_bytes(b"mine")
    for options in (["--dry-run"], ["--yes"]):
        assert run(["meta", "restore", made.path, "--data-dir", str(stopped.data_dir), *options]) == 1
        line = capsys.readouterr().err
        assert str(path) in line
        assert "move it away" in line
    assert path.exists()
    assert kind in ("FIFO", "file") or (path / "kept.backup").read_bytes() == b"mine"


def test_the_work_of_a_restore_that_was_killed_is_removed(stopped: StoppedPartition, made: Backup) -> None:
    left = stopped.data_dir / "meta" / "restoring"
    left.mkdir()
    (left / "data.mdb").write_bytes(b"half")
    restored(made, stopped.data_dir)
    assert not left.exists()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_restore_that_cannot_be_synced_says_which_store_is_in_place(
    stopped: StoppedPartition, made: Backup, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    put(stopped.data_dir, b"later", b"1")
    calls, real = 0, RealFiles.sync_directory

    def sync(self: RealFiles, path: str) -> None:
        nonlocal calls
        if path in (str(stopped.data_dir / "meta"), str(stopped.data_dir)):
            calls += 1
            if calls == failing:
                raise OSError(errno.EIO, "Input/output error", path)
        real(self, path)

    monkeypatch.setattr(RealFiles, "sync_directory", sync)
    is_in_place = failing > 1
    expected = "the backup is in its place" if is_in_place else "Input/output error"
    with pytest.raises(StorageFailedError if is_in_place else OSError, match=expected):
        restored(made, stopped.data_dir)
    kept = list((stopped.data_dir / "meta").glob("data.mdb.replaced-*"))
    assert len(kept) == is_in_place
    assert (("state", b"later") in state_of(stopped.data_dir)) is not is_in_place


def test_a_dry_run_says_that_the_store_cannot_be_read(
    stopped: StoppedPartition, made: Backup, capsys: pytest.CaptureFixture[str]
) -> None:
    dry_run = ["meta", "restore", made.path, "--data-dir", str(stopped.data_dir), "--dry-run"]
    assert run(dry_run) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["  the topics and partitions are those of the backup"]
    (stopped.data_dir / "meta" / "data.mdb").write_bytes(b"\xff" * 8192)
    assert run(dry_run) == 0
    out = capsys.readouterr().out
    assert "the store that is there cannot be read: " in out
    assert run([*dry_run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["store_error"] in out


def test_a_restore_names_the_groups_that_will_be_gone(
    stopped: StoppedPartition, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(group_id: str, group_type: str) -> None:
        key = state_key(GROUPS_SCOPE, group_id.encode())
        put(stopped.data_dir, key, msgspec.msgpack.encode({"type": group_type}))

    add("billing", "queue")
    add("reports", "consumer")
    made = back_up(stopped.data_dir, tmp_path / "one.backup")[0]
    dry_run = ["meta", "restore", made.path, "--data-dir", str(stopped.data_dir), "--dry-run"]
    assert run(dry_run) == 0
    assert "will be gone" not in capsys.readouterr().out
    for group_id in ("mail", "export"):
        add(group_id, "queue")
    add("audit", "consumer")
    assert run(dry_run) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  the topics and partitions are those of the backup",
        "  2 queue groups not in the backup will be gone: export, mail",
        "  1 consumer group not in the backup will be gone: audit",
    ]
    assert run([*dry_run, "--json"]) == 0
    gone = json.loads(capsys.readouterr().out)["gone_groups"]
    assert gone == {"audit": "consumer", "export": "queue", "mail": "queue"}
    for number in range(100):
        add(f"console-{number:03}", "consumer")
    assert run(dry_run) == 0
    assert capsys.readouterr().out.endswith(", console-098 and 1 more (--json names all)\n")
    (stopped.data_dir / "meta" / "data.mdb").write_bytes(b"\xff" * 8192)
    assert run([*dry_run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gone_groups"] == {}


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_each_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run(["meta", command, "--help"]) == 0
    assert f"logbroker meta {command} " in capsys.readouterr().out
    assert run(["meta", command]) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
@pytest.mark.parametrize("command", ["backup", "repair"])
def test_a_command_of_root_leaves_the_lock_file_to_the_owner_of_the_store(
    stopped: StoppedPartition, tmp_path: Path, command: str
) -> None:
    lock = stopped.data_dir / "meta" / "lock.mdb"
    lock.unlink()
    owner = 12_345
    for path in [stopped.data_dir, *stopped.data_dir.rglob("*")]:
        os.chown(path, owner, owner)
    if command == "backup":
        back_up(stopped.data_dir, tmp_path / "one.backup")
    else:
        stopped.logs()[1].unlink()
        assert run(["segment", "repair", str(stopped.directory), "--cut", "--yes"]) == 0
    assert (lock.stat().st_uid, lock.stat().st_gid, lock.stat().st_mode & 0o777) == (owner, owner, 0o600)
