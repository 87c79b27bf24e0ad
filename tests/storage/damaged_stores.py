"""Opens damaged metadata stores, one after the other: `python -m tests.storage.damaged_stores GOOD WORK SEED CASES`.

A process of its own, since what LMDB does with some damage ends one. The case at hand is in WORK/case meanwhile.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from logbroker.errors import CorruptLogError, DataDirError
from logbroker.storage.metadata.metadata_store import TABLES, MetadataReader, MetadataStore, copy_store

PAGE_BYTES = 4096
HEADER_BYTES = 64


def damages(content: bytes, rng: random.Random, cases: int) -> Iterator[tuple[str, bytes]]:
    """Yield what a disk or a person may have made of a file."""
    pages = len(content) // PAGE_BYTES
    for page in range(pages):
        yield f"cut before page {page}", content[: page * PAGE_BYTES]
        yield f"page {page} zeroed", _with(content, page * PAGE_BYTES, bytes(PAGE_BYTES))
    for _ in range(cases):
        at, bit = rng.randrange(pages) * PAGE_BYTES, rng.randrange(8)
        where = at + rng.randrange(rng.choice((HEADER_BYTES, PAGE_BYTES)))
        yield f"bit {bit} of byte {where} flipped", _with(content, where, bytes([content[where] ^ 1 << bit]))
        yield f"noise at {at}", _with(content, at, rng.randbytes(PAGE_BYTES))
        other = rng.randrange(pages) * PAGE_BYTES
        yield f"page at {other} copied to {at}", _with(content, at, content[other : other + PAGE_BYTES])
        yield f"cut at {where}", content[:where]


def _with(content: bytes, position: int, part: bytes) -> bytes:
    return content[:position] + part + content[position + len(part) :]


def use(directory: Path) -> None:
    """Do with a store what a broker and the tools do."""
    reader = MetadataReader.open(directory)
    try:
        for table in TABLES:
            reader.scan(table)
    finally:
        reader.close()
    with (directory / "copy").open("wb") as copy:
        copy_store(directory, copy.fileno())

    def fail(error: Exception) -> None:
        raise AssertionError("a store that could be opened takes no commit") from error

    store = MetadataStore.open(directory, on_failure=fail)
    try:
        for table in TABLES:
            for key, _ in store.scan(table)[:3]:
                store.get(table, key)
        for number in range(10):
            writes = [("state", b"new %d" % number, bytes(size)) for size in (50, 3000, 20_000)]
            store.submit([*writes, ("topics", b"t%04d" % number, None)]).result(30)
    finally:
        store.close()


def main(good: Path, work: Path, seed: int, cases: int) -> None:
    content = (good / "data.mdb").read_bytes()
    for name, damaged in damages(content, random.Random(seed), cases):
        (work / "case").write_text(name, encoding="utf-8")
        directory = work / "store"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / "data.mdb").write_bytes(damaged)
        try:
            use(directory)
        except (CorruptLogError, DataDirError) as error:
            text = str(error)
            assert str(directory) in text, text
            assert "\n" not in text, text
            assert not damaged or "meta restore" in text, text


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
