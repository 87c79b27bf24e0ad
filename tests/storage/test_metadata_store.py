"""The metadata store: atomic, grouped, checked."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

from logbroker.errors import CorruptLogError, DataDirError, OverloadedError, StorageFailedError
from logbroker.storage.metadata import metadata_store
from logbroker.storage.metadata.metadata_store import MetadataStore, Write
from tests.fast_directory import fast_directory


def unexpected(error: StorageFailedError) -> None:
    raise AssertionError(error)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    opened = MetadataStore.open(tmp_path / "meta", on_failure=unexpected)
    yield opened
    opened.close()


def wait(future: Future[None]) -> None:
    future.result(timeout=30)


def test_values_last(tmp_path: Path) -> None:
    path = tmp_path / "meta"
    store = MetadataStore.open(path, on_failure=unexpected)
    wait(store.submit([("topics", b"a", b"1"), ("state", b"a", b""), ("topics", b"b", b"2")]))
    # What is waiting when it is closed is stored.
    store.submit([("topics", b"b", None), ("topics", b"c", b"3")])
    store.close()
    store = MetadataStore.open(path, on_failure=unexpected)
    assert store.get("topics", b"a") == b"1"
    assert store.get("topics", b"b") is None
    assert store.get("state", b"a") == b""
    assert store.scan("topics") == [(b"a", b"1"), (b"c", b"3")]
    store.close()


def test_scan_stays_within_its_prefix(store: MetadataStore) -> None:
    wait(store.submit([("state", key, key) for key in (b"a", b"b", b"b1", b"b\xff", b"c")]))
    assert [key for key, _ in store.scan("state", b"b")] == [b"b", b"b1", b"b\xff"]
    assert store.scan("state", b"d") == []
    assert len(store.scan("state")) == 5


def test_what_waits_is_committed_together_and_in_order(store: MetadataStore) -> None:
    before = store._environment.info()["last_txnid"]
    with store._environment.begin(write=True):  # keeps the writer waiting
        futures = [store.submit([("state", b"k", b"%d" % number)]) for number in range(100)]
    for future in futures:
        wait(future)
    assert store.get("state", b"k") == b"99"
    # One for ours, one for what the writer had taken by then, one for all others.
    assert store._environment.info()["last_txnid"] - before <= 3


def test_a_full_map_grows(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path / "meta", on_failure=unexpected, map_bytes=1 << 18)
    for number in range(64):
        wait(store.submit([("state", b"%d" % number, bytes(32_768))]))
    assert len(store.scan("state")) == 64
    store.close()


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "meta"
    store = MetadataStore.open(path, on_failure=unexpected)
    wait(store.submit([("state", b"key", b"a value that is easily found")]))
    store.close()
    content = (path / "data.mdb").read_bytes()
    assert b"easily found" in content
    (path / "data.mdb").write_bytes(content.replace(b"easily found", b"easily f0und"))
    store = MetadataStore.open(path, on_failure=unexpected)
    with pytest.raises(CorruptLogError, match=f"{b'key'.hex()} in table state is damaged"):
        store.get("state", b"key")
    with pytest.raises(CorruptLogError):
        store.scan("state")
    store.close()


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta"
    store = MetadataStore.open(path, on_failure=unexpected)
    wait(store.submit([("broker", b"format", b"2")]))
    store.close()
    with pytest.raises(DataDirError, match="format version 2"):
        MetadataStore.open(path, on_failure=unexpected)


def test_a_file_that_is_no_lmdb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptLogError, match="meta page 0 is none of LMDB"):
        MetadataStore.open(tmp_path, on_failure=unexpected)


def test_a_failed_commit_fails_all_that_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[StorageFailedError] = []
    store = MetadataStore.open(tmp_path / "meta", on_failure=failures.append)

    def fail(*_: object) -> None:
        raise lmdb.DiskError("mdb_txn_commit: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_store", fail)
        with pytest.raises(StorageFailedError, match="Input/output error"):
            wait(store.submit([("state", b"a", b"1")]))
    with pytest.raises(StorageFailedError):
        wait(store.submit([("state", b"b", b"1")]))
    assert len(failures) == 1
    assert store.scan("state") == []
    store.close()


@pytest.mark.parametrize(
    ("free_blocks", "told"),
    [(1, "No space left on device; free some space"), (10_000, "Input/output error; check the disk")],
)
def test_a_write_that_a_full_disk_cut_short_is_told_from_a_broken_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_blocks: int, told: str
) -> None:
    """LMDB calls both an input/output error."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_blocks, f_frsize=4096))
    path, failures = tmp_path / "meta", list[StorageFailedError]()

    def fail(*_: object, **__: object) -> None:
        raise lmdb.DiskError("mdb_txn_commit: Input/output error")

    store = MetadataStore.open(path, on_failure=failures.append)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_store", fail)
        with pytest.raises(StorageFailedError, match=told) as failed:
            wait(store.submit([("state", b"a", b"1")]))
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(lmdb, "open", fail)
        with pytest.raises(DataDirError, match=told) as refused:
            MetadataStore.open(path, on_failure=unexpected)
    for error in (failed.value, refused.value):
        assert ("restore" in error.message) == (free_blocks > 1)


def test_the_queue_is_bounded(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_store, "_MAX_WAITING", 3)
    write = ("state", b"k", b"v")
    with store._environment.begin(write=True):
        # The writer may have taken one already.
        futures = [store.submit([write]) for _ in range(3)]
        with pytest.raises(OverloadedError):
            _submit_twice(store, write)
    for future in futures:
        wait(future)
    wait(store.submit([("state", b"k", b"w")]))


def _submit_twice(store: MetadataStore, write: Write) -> None:
    store.submit([write])
    store.submit([write])


@pytest.mark.parametrize("key", [b"", b"x" * 512])
def test_keys_have_bounds(store: MetadataStore, key: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 511"):
        store.submit([("state", key, b"v")])


def test_reads_run_beside_a_growing_map(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path / "meta", on_failure=unexpected, map_bytes=1 << 18)
    wait(store.submit([("state", b"k", b"v")]))
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            if store.get("state", b"k") != b"v":
                wrong.append("k")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(40):
        wait(store.submit([("topics", b"%d" % number, bytes(30_000))]))
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    store.close()


def test_a_map_that_cannot_grow_refuses_and_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MetadataStore.open(tmp_path / "meta", on_failure=unexpected, map_bytes=1 << 18)
    wait(store.submit([("state", b"kept", b"v")]))
    monkeypatch.setattr(metadata_store, "_has_room_for", lambda _bytes: False)
    for _ in range(3):
        with pytest.raises(OverloadedError, match=r"is full at 262144 bytes.*ulimit -v"):
            wait(store.submit([("state", b"large", bytes(1 << 18))]))
        # Who asks before is refused before; not for ever, as others may have made room.
        with pytest.raises(OverloadedError, match="delete topics or groups"):
            store.check_full()
    with monkeypatch.context() as patch:
        later = time.monotonic() + 10
        patch.setattr(metadata_store, "time", SimpleNamespace(monotonic=lambda: later))
        store.check_full()
    assert store.scan("state") == [(b"kept", b"v")]
    wait(store.submit([("state", b"small", b"w")]))
    store.check_full()
    monkeypatch.undo()
    wait(store.submit([("state", b"large", bytes(1 << 18))]))
    assert [key for key, _ in store.scan("state")] == [b"kept", b"large", b"small"]
    store.close()


_LIMITED = """
import resource, sys
from pathlib import Path
from logbroker.errors import OverloadedError, StorageFailedError
from logbroker.storage.metadata.metadata_store import MetadataStore

failures = []
store = MetadataStore.open(Path(sys.argv[1]), on_failure=failures.append, map_bytes=1 << 20)
stored = 0
limit, room = getattr(resource, sys.argv[2]), int(sys.argv[3])
before = resource.getrlimit(limit)
pages = int(Path("/proc/self/statm").read_text().split()[0]) if limit == resource.RLIMIT_AS else 0
resource.setrlimit(limit, (pages * resource.getpagesize() + room, before[1]))
try:
    while True:
        store.submit([("state", b"%06d" % stored, bytes(200_000))]).result(30)
        stored += 1
except (OverloadedError, StorageFailedError) as error:
    resource.setrlimit(limit, before)
    assert len(store.scan("state")) == stored, "what was not acknowledged is there, or what was is not"
    print(stored, type(error).__name__, len(failures), error)
store.close()
"""


@pytest.mark.parametrize(
    ("limit", "size", "kind", "words"),
    [
        ("RLIMIT_AS", 48 << 20, "OverloadedError 0", "ulimit -v"),
        ("RLIMIT_FSIZE", 10 << 20, "StorageFailedError 1", "data.mdb: File too large; raise the limit on the size"),
    ],
)
def test_a_limit_of_the_process_loses_nothing(tmp_path: Path, limit: str, size: int, kind: str, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path / "meta"), limit, str(size)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, _, told = done.stdout.partition(" ")
    assert told.startswith(kind), told
    assert words in told
    store = MetadataStore.open(tmp_path / "meta", on_failure=unexpected)
    assert len(store.scan("state")) == int(count) > 10
    wait(store.submit([("state", b"more", b"v")]))
    store.close()


@pytest.mark.parametrize(
    "error",
    [
        lmdb.CorruptedError("mdb_cursor_get: MDB_CORRUPTED: Located page was wrong type"),
        lmdb.PageNotFoundError("mdb_get: MDB_PAGE_NOTFOUND: Requested page not found"),
        lmdb.BadTxnError("mdb_get: MDB_BAD_TXN: Transaction must abort"),
        lmdb.Error("mdb_txn_begin: Input/output error"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_lmdb_says_of_a_read_is_told_with_file_and_remedy(
    store: MetadataStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: lmdb.Error
) -> None:
    class Failing:
        def __init__(self, environment: lmdb.Environment) -> None:
            self.environment = environment

        def __getattr__(self, name: str) -> object:
            return getattr(self.environment, name)

        def begin(self, **_: object) -> object:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(store, "_environment", Failing(store._environment))
        kind = DataDirError if type(error) is lmdb.Error else CorruptLogError
        told = f"table topics of the metadata store {tmp_path}/meta/data.mdb.*meta restore"
        with pytest.raises(kind, match=told):
            store.get("topics", b"k")
        with pytest.raises(kind, match=told):
            store.scan("topics")


def test_an_error_of_any_kind_ends_no_writer_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[StorageFailedError] = []
    store = MetadataStore.open(tmp_path / "meta", on_failure=failures.append)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(store, "_store", fail)
    with pytest.raises(StorageFailedError, match="MemoryError"):
        wait(store.submit([("state", b"a", b"1")]))
    assert len(failures) == 1
    store.close()


_READER = """
import sys
from pathlib import Path
from logbroker.storage.metadata.metadata_store import MetadataReader, copy_store

path = Path(sys.argv[1])
for number in range(8):
    reader = MetadataReader.open(path)
    assert len(reader.scan("topics")) == 50
    reader.scan("state")
    reader.close()
    with (path.parent / "copy").open("wb") as copy:
        copy_store(path, copy.fileno())
    reader = MetadataReader.open(path.parent / "copy")
    assert len(reader.scan("topics")) == 50
    reader.close()
"""


def test_readers_of_other_processes_see_whole_snapshots_beside_a_busy_writer() -> None:
    rng = random.Random(3)
    with fast_directory() as directory:
        store = MetadataStore.open(directory / "meta", on_failure=unexpected)
        wait(store.submit([("topics", b"%d" % number, bytes(500)) for number in range(50)]))
        command = [sys.executable, "-c", _READER, str(directory / "meta")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as reader:
            while reader.poll() is None:
                count = rng.choice((1, 5, 50))
                sizes = [rng.choice((None, 50, 3000, 9000)) for _ in range(count)]
                keys = [b"%05d" % rng.randrange(3000) for _ in range(count)]
                writes: list[Write] = [
                    ("state", key, None if size is None else bytes(size)) for key, size in zip(keys, sizes, strict=True)
                ]
                wait(store.submit([*writes, ("topics", b"%d" % rng.randrange(50), bytes(500))]))
            assert reader.stderr is not None
            assert reader.returncode == 0, f"exit code {reader.returncode}: {reader.stderr.read()}"
        store.close()
