"""The metadata store's pages: no damage reaches LMDB, which would end the process; what is sound is not refused."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from logbroker.errors import CorruptLogError
from logbroker.storage.metadata import store_pages
from logbroker.storage.metadata.metadata_store import TABLES, MetadataReader, MetadataStore
from logbroker.storage.metadata.store_pages import check_pages
from tests.fast_directory import fast_directory

ROOT = Path(__file__).resolve().parents[2]
CASES = 60
META_BYTES = 152
"""Size of a meta page: its header, two trees and two numbers, of which the transaction is the last."""


@pytest.fixture(scope="module")
def good() -> Iterator[Path]:
    """A store with all that pages may be: branches, large values, free pages."""
    with fast_directory() as directory:
        rng = random.Random(1)
        store = MetadataStore.open(directory / "meta", on_failure=print)
        for number in range(300):
            size = 9000 if number % 50 == 0 else 60
            store.submit(
                [("state", b"key%05d" % number, rng.randbytes(size)), ("topics", b"t%04d" % number, bytes(99))]
            )
        store.submit([("partitions", b"p", b"1"), ("producers", b"p", b"1")]).result(30)
        for number in range(0, 300, 3):
            store.submit([("state", b"key%05d" % number, None)]).result(30)
        store.close()
        yield directory / "meta"


@pytest.mark.prove
def test_damage_is_told_and_ends_no_process(good: Path) -> None:
    seed = random.randrange(1 << 32)
    with fast_directory() as work:
        command = [sys.executable, "-m", "tests.storage.damaged_stores", str(good), str(work), str(seed), str(CASES)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        case = (work / "case").read_text(encoding="utf-8")
    assert done.returncode == 0, f"seed {seed}: exit code {done.returncode} at: {case}\n{done.stderr}"


def test_a_file_that_was_cut_says_where(good: Path, tmp_path: Path) -> None:
    content = (good / "data.mdb").read_bytes()
    file = tmp_path / "data.mdb"
    end = len(content) // 8192 * 4096
    file.write_bytes(content[:end])
    with pytest.raises(CorruptLogError, match=f"{file} is damaged: .*ends at byte {end}.*meta restore"):
        check_pages(file, TABLES)


def test_an_old_snapshot_is_not_taken_for_the_newest(good: Path, tmp_path: Path) -> None:
    content = bytearray((good / "data.mdb").read_bytes())
    # Both meta pages name their transaction in their last eight bytes; LMDB goes by the higher one.
    transactions = [int.from_bytes(content[page + 144 : page + 152], sys.byteorder) for page in (0, 4096)]
    newest = 4096 * transactions.index(max(transactions))
    content[newest + 144 : newest + 152] = bytes(8)
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(CorruptLogError, match="meta pages"):
        check_pages(tmp_path / "data.mdb", TABLES)


def test_a_page_in_use_that_is_listed_as_free_would_be_written_over(good: Path, tmp_path: Path) -> None:
    content = bytearray((good / "data.mdb").read_bytes())

    def number_at(position: int, size_bytes: int = 8) -> int:
        return int.from_bytes(content[position : position + size_bytes], sys.byteorder)

    newest = max((0, 4096), key=lambda page: number_at(page + 144))
    # The roots of the two trees are the last numbers of their descriptions, of 48 bytes each.
    free_root, main_root = number_at(newest + 40 + 40), number_at(newest + 40 + 48 + 40)
    leaf = 4096 * free_root
    node = leaf + number_at(leaf + 16, 2)
    pages = node + 8 + number_at(node + 6, 2)
    count = number_at(pages)
    assert count
    # They descend.
    content[pages + 8 * count : pages + 8 * count + 8] = main_root.to_bytes(8, sys.byteorder)
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(CorruptLogError, match=f"page {main_root}"):
        check_pages(tmp_path / "data.mdb", TABLES)


@pytest.mark.prove
def test_no_flipped_bit_in_the_header_of_a_page_takes_rows_away(good: Path, tmp_path: Path) -> None:
    """A page says in bytes 12 and 13 how many entries it has, and LMDB believes it."""
    content = (good / "data.mdb").read_bytes()
    file = tmp_path / "data.mdb"
    file.write_bytes(content)
    whole = rows(tmp_path)
    refused = 0
    for page in range(2 * 4096, len(content), 4096):
        for bit in range(16):
            damaged = bytearray(content)
            damaged[page + 12 + bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            try:
                assert rows(tmp_path) == whole, f"bit {bit} of the header at byte {page}"
            except CorruptLogError:
                refused += 1
    assert refused


def rows(directory: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    reader = MetadataReader.open(directory)
    try:
        return {table: reader.scan(table) for table in TABLES}
    finally:
        reader.close()


def test_a_table_of_another_name_is_damage(good: Path, tmp_path: Path) -> None:
    """LMDB would make the missing one anew, and empty."""
    content = (good / "data.mdb").read_bytes()
    assert b"partitions" in content
    (tmp_path / "data.mdb").write_bytes(content.replace(b"partitions", b"qartitions"))
    with pytest.raises(CorruptLogError, match=r"qartitions|not in order"):
        check_pages(tmp_path / "data.mdb", TABLES)


def test_whatever_lmdb_writes_is_sound() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where it fails.
    rng = random.Random(seed)
    with fast_directory() as directory:
        environment = lmdb.open(str(directory), map_size=1 << 30, max_dbs=3)
        tables = [environment.open_db(name) for name in (b"a", b"b", b"c")]
        readers: list[lmdb.Transaction] = []
        for number in range(120):
            if rng.random() < 0.2:
                readers.append(environment.begin())  # its pages may not be used again
            if readers and rng.random() < 0.2:
                readers.pop(rng.randrange(len(readers))).abort()
            with environment.begin(write=True) as transaction:
                for _ in range(rng.choice((1, 5, 60, 300))):
                    key = (b"%d" % rng.randrange(rng.choice((50, 3000)))) * rng.choice((1, 1, 20))
                    table = rng.choice(tables)
                    if rng.random() < 0.4:
                        transaction.delete(key, db=table)
                    else:
                        transaction.put(key, bytes(rng.choice((0, 3, 40, 500, 1990, 2100, 5000, 30_000))), db=table)
                if rng.random() < 0.05:
                    transaction.drop(rng.choice(tables), delete=False)
            check_pages(directory / "data.mdb", "abc", live=number % 2 == 0)
        copy = directory / "copy"
        for compact in (False, True):
            with copy.open("wb") as file:
                environment.copyfd(file.fileno(), compact=compact)
            check_pages(copy, "abc")
        for reader in readers:
            reader.abort()
        environment.close()


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    file = tmp_path / "data.mdb"
    file.touch()
    check_pages(file, TABLES)
    lmdb.open(str(tmp_path), max_dbs=1).close()
    assert os.stat(file).st_size
    check_pages(file, TABLES)


def test_a_file_that_grows_while_it_is_read_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in the reading the commit falls that makes it longer."""
    with fast_directory() as directory:
        store = MetadataStore.open(directory / "meta", on_failure=print)
        file = directory / "meta" / "data.mdb"
        steps = 0

        def grow_at(chosen: int) -> None:
            nonlocal steps
            if steps == chosen:
                long_before = file.stat().st_size
                while file.stat().st_size == long_before:
                    store.submit([("state", b"%d" % file.stat().st_size, bytes(200_000))]).result(30)
            steps += 1

        def read_beside_growth(chosen: int) -> None:
            def read(fd: int, size: int, position: int) -> bytes:
                grow_at(chosen)
                return os.pread(fd, size, position)

            monkeypatch.setattr(store_pages, "pread", read)
            check_pages(file, TABLES, live=True)

        read_beside_growth(-1)
        for chosen in range(steps):
            steps = 0
            read_beside_growth(chosen)
        assert chosen > 5
        store.close()


def test_a_store_that_is_written_between_any_two_reads_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several commits between the reads of the two meta pages, while pages of the snapshot are written over."""
    rng = random.Random(11)
    with fast_directory() as directory:
        store = MetadataStore.open(directory / "meta", on_failure=print)
        file = directory / "meta" / "data.mdb"

        def commit() -> None:
            keys = rng.sample(range(3000), 50)
            store.submit([("state", b"%05d" % key, bytes(rng.choice((10, 900, 9000)))) for key in keys]).result(30)

        for _ in range(60):
            commit()

        def read(fd: int, size: int, position: int) -> bytes:
            for _ in range(rng.choice((0, 0, 0, 0, 4))):
                commit()
            return os.pread(fd, size, position)

        monkeypatch.setattr(store_pages, "pread", read)
        for _ in range(10):
            check_pages(file, TABLES, live=True)
        store.close()


def test_a_meta_page_that_is_read_while_it_is_written_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may get what was there up to some byte and what is written from there on; here, the end alone is new."""
    with fast_directory() as directory:
        store = MetadataStore.open(directory / "meta", on_failure=print)
        file = directory / "meta" / "data.mdb"
        metas = []
        for number in range(8):
            store.submit([("state", b"key%05d" % each, bytes([number]) * 900) for each in range(300)]).result(30)
            metas.append(file.read_bytes()[:8192])
        store.close()
        newest = max((0, 4096), key=lambda at: metas[-1][at + META_BYTES - 8 : at + META_BYTES])
        old = next(meta for meta in metas if meta[newest + META_BYTES - 8] != metas[-1][newest + META_BYTES - 8])
        torn = old[newest : newest + META_BYTES - 8] + metas[-1][newest + META_BYTES - 8 : newest + META_BYTES]
        reads: list[int] = []

        def read(fd: int, size: int, position: int) -> bytes:
            reads.append(position)
            is_first = position == newest and reads.count(newest) == 1
            return torn if is_first else os.pread(fd, size, position)

        monkeypatch.setattr(store_pages, "pread", read)
        check_pages(file, TABLES, live=True)
        # Read once more, and the first one twice again after the second.
        assert reads.count(newest) == (3 if newest else 5)
