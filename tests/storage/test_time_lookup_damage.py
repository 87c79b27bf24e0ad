"""Lookups by time in a damaged log: the answer is that of the sound log, or CORRUPT_LOG with file and byte.

Fault model: one bit of a batch, or of a time index, is another, with the indexes that were written, or with those that
are built again from the damaged log.
"""

from __future__ import annotations

import logging
import random
import re
from pathlib import Path
from typing import Final

import msgspec
import pytest

from logbroker.errors import CorruptLogError
from logbroker.record.codec import split_batches
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of

BATCHES: Final = 60
LATEST: Final = -3
"""Stands for the largest time."""
_MAX_TIMESTAMP_AT: Final = 35


class Filled:
    """Batches of two records with times in disorder, in several segments, closed; with all lookups answered."""

    def __init__(self, directory: Path) -> None:
        chance = random.Random(7)
        self.disk = PartitionOnDisk(directory, msgspec.structs.replace(SMALL, index_interval_bytes=300))
        self.stamps = [NOW_MS + 10 * number + chance.randrange(200) for number in range(BATCHES)]
        for number, stamp in enumerate(self.stamps):
            self.disk.append(batch_of(b"%d" % number, bytes(100), timestamp_ms=stamp))
        self.disk.stop()
        self.asked = sorted({stamp + delta for stamp in self.stamps for delta in (0, 1)} | {0, NOW_MS, LATEST})
        self.answers = self.looked_up()
        self.places: list[tuple[Path, int, int]] = []
        for path in self.disk.logs():
            position = 0
            for _, batch in split_batches(path.read_bytes()):
                self.places.append((path, position, len(batch)))
                position += len(batch)

    def looked_up(self) -> dict[int, int]:
        self.disk.open()
        try:
            return {stamp: self.look_up(stamp) for stamp in self.asked}
        finally:
            self.disk.kill()

    def look_up(self, stamp: int) -> int:
        log = self.disk.log
        return (log.offset_for_latest_time() if stamp == LATEST else log.offset_for_time(stamp)).offset

    def check(self, path: Path, position: int, chance: random.Random) -> int:
        """Look all times up in a damaged log; returns how many lookups were refused."""
        refusals: list[str] = []
        self.disk.open()
        for stamp in chance.sample(self.asked, len(self.asked)):
            try:
                found = self.look_up(stamp)
            except CorruptLogError as error:
                refusals.append(error.message)
            else:
                assert found == self.answers[stamp], stamp
        for message in refusals:
            assert re.search(rf"{re.escape(str(path))}: .*byte {position}\b", message)
            assert self.disk.log.damage == message
        self.disk.kill()
        return len(refusals)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("filled") / "t-0")


def _flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("indexes", ["as written", "built again"])
@pytest.mark.parametrize("where", ["largest timestamp", "anywhere that the CRC covers"])
def test_no_lookup_passes_over_a_record_by_what_is_not_checked(filled: Filled, where: str, indexes: str) -> None:
    seed = random.randrange(1 << 30)
    logging.getLogger(__name__).info("seed %d", seed)
    chance = random.Random(seed)
    refused = 0
    kept = {path: path.read_bytes() for path in filled.disk.directory.glob("*index")}
    for _ in range(12):
        path, position, size_bytes = chance.choice(filled.places)
        if where == "largest timestamp":
            bit = 8 * (position + _MAX_TIMESTAMP_AT) + chance.randrange(40, 64)
        else:
            bit = 8 * position + chance.randrange(8 * 17, 8 * size_bytes)
        _flip(path, bit)
        if indexes == "built again":
            for index in kept:
                index.unlink()
        try:
            refused += filled.check(path, position, chance)
        finally:
            _flip(path, bit)
            for index, content in kept.items():
                index.write_bytes(content)
    assert refused, seed


def test_any_flipped_bit_of_a_time_index_costs_time_only(filled: Filled) -> None:
    chance = random.Random(3)
    for path in chance.sample(sorted(filled.disk.directory.glob("*.timeindex")), 3):
        sound = path.read_bytes()
        for bit in chance.sample(range(8 * len(sound)), 20):
            _flip(path, bit)
            assert filled.looked_up() == filled.answers, (path, bit)
            path.write_bytes(sound)
