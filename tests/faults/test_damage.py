"""A tail that is cut, overwritten or flipped at every place; indexes and metadata with every bit flipped."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import lmdb
import msgspec
import pytest

from logbroker.errors import CorruptLogError
from logbroker.record.header import HEADER_BYTES
from logbroker.storage.metadata.metadata_store import MetadataStore
from tests.faults.damaged_tail import FILLERS, Tail, check_cut, check_flip, check_overwritten, flipped
from tests.storage.partition import NOW_MS, PartitionOnDisk, batch_of


@pytest.fixture(scope="module")
def tail() -> Tail:
    return Tail()


def test_cut_at_every_byte(tail: Tail) -> None:
    for end in range(len(tail.content) + 1):
        check_cut(tail, end)


@pytest.mark.parametrize("filler", FILLERS)
def test_overwritten_from_every_byte(tail: Tail, filler: str) -> None:
    for start in range(len(tail.content) + 1):
        check_overwritten(tail, filler, start)


@pytest.mark.parametrize("batch", range(3))
def test_every_flipped_bit_of_a_header_is_noticed(tail: Tail, batch: int) -> None:
    for bit in range(HEADER_BYTES * 8):
        check_flip(tail, tail.ends[batch] * 8 + bit)


def test_a_thousand_flipped_bits_of_records_are_noticed(tail: Tail) -> None:
    chance = random.Random(4711)
    for _ in range(1000):
        batch = chance.randrange(3)
        position = chance.randrange(tail.ends[batch] + HEADER_BYTES, tail.ends[batch + 1])
        check_flip(tail, position * 8 + chance.randrange(8))


@pytest.mark.prove
def test_every_flipped_bit_of_an_index_costs_time_only(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0")
    for number in range(24):
        partition.append(batch_of(b"%d" % number, bytes(100), timestamp_ms=NOW_MS + number))
    partition.stop()
    paths = sorted(partition.directory.glob("*index"))
    assert len(paths) >= 4
    checked = 0
    for path in (*paths[:2], *paths[-2:]):
        sound = path.read_bytes()
        for bit in range(len(sound) * 8):
            path.write_bytes(flipped(sound, bit))
            partition.open()
            base = int(path.stem)
            for offset in range(base, min(base + 14, 48), 2):
                assert partition.log.read(offset, 1, nowait=False).next_offset == offset + 2
                assert partition.log.offset_for_time(NOW_MS + offset // 2).offset == offset
            partition.kill()
            path.write_bytes(sound)
            checked += 1
    assert checked > 400


def test_every_flipped_bit_of_a_stored_value_is_noticed(tmp_path: Path) -> None:
    def unexpected(error: Exception) -> None:
        raise error

    store = MetadataStore.open(tmp_path / "meta", on_failure=unexpected)
    value = msgspec.msgpack.encode(Tail().checkpoint)
    store.submit([("partitions", b"key", value)]).result(20)
    environment, table = store._environment, store._tables["partitions"]
    with environment.begin() as transaction:
        stored = transaction.get(b"key", db=table)
    assert isinstance(stored, bytes)
    for bit in range(len(stored) * 8):
        with suppress(lmdb.Error), environment.begin(write=True) as transaction:
            transaction.put(b"key", flipped(stored, bit), db=table)
        with pytest.raises(CorruptLogError, match="key 6b6579 in table partitions is damaged"):
            store.get("partitions", b"key")
    store.close()
