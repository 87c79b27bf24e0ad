"""Bytes that the CRC of a batch does not cover, and files in the place of others: no reader skips a record in silence.

Fault model: in files that the recovery point covers, one bit of a header is another, a segment file lies in the place
of another, or a file is cut while the log is open. What is read must be the log from the offset asked for on, record by
record, up to the damage; there CORRUPT_LOG names file and byte, now and from then on. Readers that begin in another
segment read it.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from logbroker.errors import CorruptLogError
from logbroker.record.codec import check_crc, decode_batch, split_batches
from logbroker.record.header import BatchHeader, stored_prefix
from logbroker.storage.files import RealFiles
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_log import PartitionLog
from logbroker.types import Durability
from tests.storage.faulty_files import FaultyFiles
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of

HEADER_FIELDS = {
    "base offset": range(64),
    "length": range(64, 96),
    "leader epoch": range(96, 128),
    "magic": range(128, 136),
}
"""Bits that no CRC covers."""
DELTA_BITS = range(23 * 8, 27 * 8)


class BatchPlace(NamedTuple):
    """Where a batch lies."""

    path: Path
    position: int
    base_offset: int


class Filled:
    """A log of several sealed segments of one size and an active one, in two leader epochs, that was closed."""

    def __init__(self, directory: Path) -> None:
        config = msgspec.structs.replace(SMALL, durability=Durability.WRITTEN, index_interval_bytes=300)
        self.partition = partition = PartitionOnDisk(directory, config)
        partition.store_checkpoint()
        self.written = 0
        self._fill(26)
        partition.stop()
        partition.after_power_cut()
        partition.open()
        assert partition.log.leader_epoch == 1
        self._fill(20)
        partition.stop()
        self.places = [
            BatchPlace(path, position, header.base_offset)
            for path in partition.logs()
            for position, header in _headers(path.read_bytes())
        ]
        self.segments = [list(group) for _, group in itertools.groupby(self.places, key=lambda place: place.path)]
        assert len(self.segments) >= 5
        assert len({path.stat().st_size for path in partition.logs()[:-1]}) == 1

    def _fill(self, batches: int) -> None:
        for _ in range(batches):
            number = self.written
            self.partition.append(
                batch_of(b"%04d" % number, b"%04d" % (number + 1), bytes(300), timestamp_ms=NOW_MS + number)
            )
            self.written += 3

    def sampled(self) -> list[BatchPlace]:
        """The first, a middle and the last batch of the first, a middle and the last segment."""
        chosen = [self.segments[0], self.segments[len(self.segments) // 2], self.segments[-2], self.segments[-1]]
        return [places[at] for places in chosen for at in (0, len(places) // 2, -1)]

    def opened(self, max_bytes: int = 1000) -> Reading:
        self.partition.open()
        return Reading(self.partition.log, max_bytes)


def _headers(content: bytes) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    for header, batch in split_batches(content):
        yield position, header
        position += len(batch)


class Reading:
    """A reader that trusts the broker for what lies before a batch, and the CRC for what lies in it."""

    def __init__(self, log: PartitionLog, max_bytes: int) -> None:
        self._log = log
        self._max_bytes = max_bytes

    def offsets_from(self, offset: int) -> tuple[list[int], CorruptLogError | None]:
        """The offsets of all records that are read from `offset` on, and what the reading ended with."""
        found: list[int] = []
        position = offset
        while True:
            try:
                chunk = self._log.read(position, self._max_bytes, nowait=False)
            except CorruptLogError as error:
                return found, error
            if not chunk.batches:
                return found, None
            for header, batch in split_batches(chunk.batches):
                check_crc(header, batch)
                found += (record.offset for record in decode_batch(batch) if record.offset >= offset)
            assert chunk.next_offset > position
            position = chunk.next_offset


def check_damaged(filled: Filled, places: list[BatchPlace], max_bytes: int, starts: list[int]) -> None:
    """Read from several offsets: nothing is read from a batch at one of `places` to the end of its segment, everything
    else is."""
    places = sorted(places, key=lambda place: place.base_offset)
    reading = filled.opened(max_bytes)
    ends = [segment[0].base_offset for segment in filled.segments[1:]] + [filled.written]
    damaged = [(place, next(end for end in ends if end > place.base_offset)) for place in places]
    try:
        for start in starts:
            found, error = reading.offsets_from(start)
            place = next((place for place, end in damaged if start < end), None)
            end = filled.written if place is None else place.base_offset
            assert found == list(range(start, end)), (start, place)
            assert (error is None) == (place is None)
            if place is not None:
                assert f"{place.path}: " in str(error)
                assert re.search(rf" byte {place.position}\b", str(error))
        met = [place for place, end in damaged if any(start < end for start in starts)]
        assert not met or f"{met[0].path}: " in filled.partition.log.damage
    finally:
        filled.partition.kill()


def starts_of(filled: Filled) -> list[int]:
    """The offsets at which the segments begin, and one in the middle of each."""
    return [places[at].base_offset for places in filled.segments for at in (0, len(places) // 2)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("filled") / "t-0")


def _flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.prove
@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_a_flipped_bit_that_no_crc_covers_ends_the_reading(filled: Filled, field: str) -> None:
    chance = random.Random(seed := random.randrange(1 << 30))
    logging.getLogger(__name__).info("seed %d", seed)
    for place, bit in itertools.product(filled.sampled(), HEADER_FIELDS[field]):
        starts = [0, place.base_offset, chance.randrange(filled.written), *starts_of(filled)]
        _flip(place.path, place.position * 8 + bit)
        try:
            check_damaged(filled, [place], chance.choice([1, 500, 900, 1300, 1 << 20]), starts)
        finally:
            _flip(place.path, place.position * 8 + bit)
    found, error = filled.opened().offsets_from(0)
    assert (found, error) == (list(range(filled.written)), None)
    assert not filled.partition.log.damage
    filled.partition.kill()


@pytest.mark.parametrize("forwards", [True, False])
def test_damage_in_several_segments_ends_the_reading_of_each(filled: Filled, forwards: bool) -> None:
    """The damage of each segment is remembered, whichever a reader meets first."""
    places = [filled.segments[0][2], filled.segments[1][0], filled.segments[3][1], filled.segments[-1][-1]]
    for place in places:
        _flip(place.path, place.position * 8 + 60)
    try:
        starts = [0, *starts_of(filled), filled.written - 1]
        check_damaged(filled, places, 1000, starts if forwards else starts[::-1])
        check_damaged(filled, places, 1 << 20, starts if forwards else starts[::-1])
    finally:
        for place in places:
            _flip(place.path, place.position * 8 + 60)


def test_an_error_says_where_the_log_can_be_read_again(filled: Filled) -> None:
    for places in (filled.segments[1], filled.segments[-1]):
        middle, last = places[len(places) // 2], places[-1]
        _flip(middle.path, middle.position * 8)
        filled.partition.open()
        for offset in (middle.base_offset, last.base_offset + 1):
            for _ in range(2):
                with pytest.raises(CorruptLogError) as caught:
                    filled.partition.log.read(offset, 1000, nowait=False)
                assert caught.value.readable_from == last.base_offset + 3
        filled.partition.kill()
        _flip(middle.path, middle.position * 8)


def test_a_lookup_by_time_finds_records_of_sound_segments_beside_damaged_ones(filled: Filled) -> None:
    """The answer is right if no record of a damaged part may be it, and CORRUPT_LOG if one may."""
    place = filled.segments[1][2]
    _flip(place.path, place.position * 8)
    reading = filled.opened()
    log = filled.partition.log
    try:
        for _ in range(2):
            for batch in filled.places:
                if batch.path == place.path and batch.base_offset >= place.base_offset:
                    with pytest.raises(CorruptLogError, match=re.escape(str(place.path))):
                        log.offset_for_time(NOW_MS + batch.base_offset)
                else:
                    assert log.offset_for_time(NOW_MS + batch.base_offset).offset == batch.base_offset
            assert log.offset_for_latest_time().offset == filled.places[-1].base_offset
            assert reading.offsets_from(0)[1] is not None  # Now the damage is known.
    finally:
        filled.partition.kill()
        _flip(place.path, place.position * 8)


def test_a_log_tells_what_a_reader_has_met(filled: Filled) -> None:
    place = filled.segments[1][2]
    _flip(place.path, place.position * 8)
    reading = filled.opened()
    log = filled.partition.log
    assert not log.damage
    _, error = reading.offsets_from(0)
    assert log.damage == str(error) != "None"
    filled.partition.kill()
    _flip(place.path, place.position * 8)


def test_a_log_tells_of_a_missing_file_until_it_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled = Filled(tmp_path / "t-0")
    reading = filled.opened()
    log = filled.partition.log
    places = filled.segments[2]
    after = filled.segments[3][0].base_offset
    kept = tmp_path / "kept"
    places[0].path.rename(kept)
    message = f"{places[0].path}: the file is missing"
    for place in (places[1], places[0]):
        found, error = reading.offsets_from(place.base_offset)
        assert (found, str(error)) == ([], message)
        assert error is not None
        assert error.readable_from == after
    with pytest.raises(CorruptLogError, match="the file is missing"):
        log.offset_for_time(NOW_MS + places[0].base_offset)
    assert log.damage == message
    assert [record.getMessage() for record in caplog.records] == [
        f"partition t-0 cannot be read at offset {places[1].base_offset}: {message}"
    ]
    rest = list(range(after, filled.written))
    assert reading.offsets_from(after) == (rest, None)
    assert log.damage == message
    kept.rename(places[0].path)
    assert reading.offsets_from(places[-1].base_offset)[1] is None
    assert log.damage == ""
    assert caplog.records[-1].getMessage() == f"partition t-0 can be read at offset {places[1].base_offset} again"
    assert reading.offsets_from(0) == (list(range(filled.written)), None)


def test_a_log_tells_of_an_unreadable_place_until_it_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled = Filled(tmp_path / "t-0")
    filled.partition.files = files = FaultyFiles()
    reading = filled.opened()
    log = filled.partition.log
    first, *_, last = filled.segments[2]
    assert reading.offsets_from(first.base_offset)[1] is None  # The index is loaded.
    files.fail("pread", errno.EIO)
    message = f"{first.path}: cannot be read: Input/output error"
    assert str(reading.offsets_from(last.base_offset)[1]) == message
    assert log.damage == message
    log.read(first.base_offset, 1, nowait=False)
    assert log.damage == message  # Other places tell nothing.
    assert reading.offsets_from(last.base_offset)[1] is None
    assert log.damage == ""
    assert len(caplog.records) == 2


@pytest.mark.prove
def test_a_flipped_bit_of_how_many_offsets_a_batch_has_ends_the_reading(filled: Filled) -> None:
    for place, bit in itertools.product(filled.sampled(), DELTA_BITS):
        _flip(place.path, place.position * 8 + bit)
        try:
            check_damaged(filled, [place], 1000, [0, *starts_of(filled)])
        finally:
            _flip(place.path, place.position * 8 + bit)


@pytest.mark.prove
def test_a_lookup_by_time_does_not_pass_over_damage(filled: Filled) -> None:
    for place, bit in itertools.product(filled.sampled(), itertools.chain(*HEADER_FIELDS.values())):
        _flip(place.path, place.position * 8 + bit)
        filled.partition.open()
        try:
            for number in (place.base_offset, min(place.base_offset + 9, filled.written - 3)):
                with suppress(CorruptLogError):
                    # An index may lead behind the damage.
                    assert filled.partition.log.offset_for_time(NOW_MS + number).offset == number, (place, bit)
        finally:
            filled.partition.kill()
            _flip(place.path, place.position * 8 + bit)


def _swap(one: Path, other: Path) -> None:
    kept = one.with_suffix(".kept")
    one.rename(kept)
    other.rename(one)
    kept.rename(other)


def _copy_over(one: Path, other: Path) -> None:
    shutil.copyfile(one, other)


@pytest.mark.parametrize("with_indexes", [False, True])
@pytest.mark.parametrize("misplace", [_swap, _copy_over])
def test_a_segment_file_in_the_place_of_another_ends_the_reading(
    tmp_path: Path, misplace: Callable[[Path, Path], None], with_indexes: bool
) -> None:
    filled = Filled(tmp_path / "t-0")
    kept = tmp_path / "kept"
    shutil.copytree(filled.partition.directory, kept)
    sealed = filled.segments[:-1]
    for one, other in itertools.permutations([sealed[0], sealed[1], sealed[-1]], 2):
        for suffix in (".log", ".index", ".timeindex") if with_indexes else (".log",):
            misplace(one[0].path.with_suffix(suffix), other[0].path.with_suffix(suffix))
        starts = [0, other[0].base_offset, other[0].base_offset + 4, filled.written - 1, *starts_of(filled)]
        # Whoever begins behind the first of two swapped files meets the second.
        check_damaged(filled, [one[0], other[0]] if misplace is _swap else [other[0]], 1000, starts)
        shutil.copytree(kept, filled.partition.directory, dirs_exist_ok=True)


def test_a_file_that_is_cut_while_the_log_is_open_ends_the_reading(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "t-0")
    for places in (filled.segments[1], filled.segments[-1]):
        path = places[0].path
        content = path.read_bytes()
        for end in {0, 1, *(place.position + by for place in places for by in (-1, 0, 1, 60, 61, 200))}:
            if not 0 <= end < len(content):
                continue
            reading = filled.opened()
            assert reading.offsets_from(0) == (list(range(filled.written)), None)
            os.truncate(path, end)
            damaged = max((place for place in places if place.position <= end), key=lambda place: place.position)
            found, error = reading.offsets_from(0)
            assert found == list(range(damaged.base_offset))
            assert f"{path}: " in str(error)
            filled.partition.kill()
            path.write_bytes(content)


def test_what_retention_takes_is_no_damage_any_more(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "t-0")
    places = [filled.segments[0][1], filled.segments[2][1]]
    for place in places:
        _flip(place.path, place.position * 8)
    reading = filled.opened()
    log = filled.partition.log
    for place in reversed(places):
        assert reading.offsets_from(place.base_offset)[1] is not None
    starts = [filled.segments[segment][0].base_offset for segment in (1, 3)]
    for place, start in zip(places, starts, strict=True):
        assert f"{place.path}: " in log.damage
        log.remove_files(log.advance_log_start(start))
    assert not log.damage
    start = starts[-1]
    assert reading.offsets_from(start) == (list(range(start, filled.written)), None)


@pytest.mark.parametrize("kind", ["header", "CRC", "cut", "index lost"])
def test_records_that_come_after_damage_in_the_active_segment_is_found_are_read(tmp_path: Path, kind: str) -> None:
    filled = Filled(tmp_path / "t-0")
    partition = filled.partition
    partition.open()
    filled._fill(2)
    partition.stop()
    path = partition.logs()[-1]
    sound = path.read_bytes()
    place = [BatchPlace(path, position, header.base_offset) for position, header in _headers(sound)][1]
    if kind != "index lost":
        filled.opened()
    if kind == "cut":
        os.truncate(path, place.position)
    else:
        _flip(path, place.position * 8 + (8 * 70 if kind == "CRC" else 0))
    if kind == "index lost":
        # Nobody reads: the append itself finds the damage, when it makes the index anew.
        path.with_suffix(".index").unlink()
        filled.opened()
    else:
        with pytest.raises(CorruptLogError):
            partition.log.read(place.base_offset, 1000, nowait=False, check_crc=True)
    end, segments = filled.written, len(partition.logs())
    assert partition.log.read(end, 1000, nowait=False).batches == b"", "whoever is past the damage waits for records"
    filled._fill(2)
    assert len(partition.logs()) == segments + 1
    reading = Reading(partition.log, 1000)
    assert reading.offsets_from(end) == (list(range(end, filled.written)), None)
    with pytest.raises(CorruptLogError) as caught:
        partition.log.read(place.base_offset, 1000, nowait=False)
    assert caught.value.readable_from == end
    partition.stop()
    path.write_bytes(sound)
    reading = filled.opened()
    assert reading.offsets_from(0) == (list(range(filled.written)), None)
    filled._fill(1)
    assert len(partition.logs()) == segments + 1


def test_appends_go_on_behind_damage_that_a_reader_has_met(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "t-0")
    places = [filled.segments[1][1], filled.segments[-2][1]]
    for place in places:
        _flip(place.path, place.position * 8)
    reading = filled.opened()
    for place in places:
        assert reading.offsets_from(place.base_offset)[1] is not None
    filled._fill(30)
    new = filled.partition.logs()[len(filled.segments) :]
    assert len(new) > 1
    for path in new:
        assert reading.offsets_from(int(path.stem)) == (list(range(int(path.stem), filled.written)), None)
    found, error = reading.offsets_from(0)
    assert (found, error is not None) == (list(range(places[0].base_offset)), True)
    filled.partition.stop()
    for place in places:
        _flip(place.path, place.position * 8)
    assert filled.opened().offsets_from(0) == (list(range(filled.written)), None)


@pytest.mark.parametrize("bit", [0, 20, 63, 66, 97])
def test_a_restart_with_a_tail_checks_what_leads_to_the_recovery_point(tmp_path: Path, bit: int) -> None:
    filled = Filled(tmp_path / "t-0")
    filled.opened()
    filled.partition.store_checkpoint()
    last = filled.places[-1]
    filled._fill(1)
    filled.partition.kill()
    _flip(last.path, last.position * 8 + bit)
    with pytest.raises(CorruptLogError, match=rf"byte {last.position}\b"):
        filled.partition.open()


# --- a log that another program wrote ---


class Foreign:
    """A directory as compaction leaves it, taken over and then appended to."""

    def __init__(self, directory: Path) -> None:
        self.partition = partition = PartitionOnDisk(directory, SMALL)
        partition.kill()
        bases = [1000, 1003, 1040, 1042, 1100, 2005, 2007, 2100, 2500]
        self.numbers = {base: number for number, base in enumerate(bases)}
        for first, last in ((1000, 1999), (2000, 2999)):
            content = b"".join(
                stored_prefix(base, len(batch) - 12, 4 + base // 1042) + batch[16:]
                for base in bases
                if first <= base <= last
                for batch in (batch_of(b"%d" % self.numbers[base], bytes(100)),)
            )
            (directory / f"{first:020d}.log").write_bytes(content)
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n4 1000\n")
        partition.open()
        for number in range(len(bases), len(bases) + 8):
            partition.append(batch_of(b"%d" % number, bytes(300)))
        partition.stop()
        self.paths = partition.logs()
        self.count = len(bases) + 8

    def values(self) -> tuple[list[int], CorruptLogError | None]:
        """The numbers that are read from the start on, and what the reading ended with."""
        log, found = self.partition.log, list[int]()
        offset = log.log_start_offset
        while True:
            try:
                chunk = log.read(offset, 400, nowait=False)
            except CorruptLogError as error:
                return found, error
            if not chunk.batches:
                return found, None
            for header, batch in split_batches(chunk.batches):
                check_crc(header, batch)
                found.append(int(next(decode_batch(batch)).value or b""))
            offset = chunk.next_offset


def test_a_log_with_gaps_that_was_taken_over_is_read_after_any_number_of_restarts(tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "t-0")
    for _ in range(3):
        foreign.partition.open()
        assert foreign.values() == (list(range(foreign.count)), None)
        assert foreign.partition.log.gaps_below == 2502
        foreign.partition.stop()


@pytest.mark.prove
def test_no_record_of_a_log_with_gaps_is_passed_over(tmp_path: Path) -> None:
    """Within a gap a batch may be moved without a sign; its records come all the same, and in order."""
    foreign = Foreign(tmp_path / "t-0")
    for path in foreign.paths:
        content = path.read_bytes()
        for position, _ in _headers(content):
            for bit in itertools.chain(HEADER_FIELDS["base offset"], HEADER_FIELDS["length"]):
                _flip(path, position * 8 + bit)
                foreign.partition.open()
                found, error = foreign.values()
                assert found == list(range(len(found)))
                assert error is not None or len(found) == foreign.count
                foreign.partition.kill()
                path.write_bytes(content)


def test_a_log_without_gaps_that_was_taken_over_may_have_none(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path / "t-0")
    for number in range(12):
        partition.append(batch_of(b"%d" % number, bytes(400)))
    partition.kill()
    log = PartitionLog.open(
        partition.directory,
        partition.topic_id,
        SMALL,
        files=RealFiles(),
        handles=HandleCache(RealFiles(), 4),
        checkpoint=None,
    )
    assert log.gaps_below == 0
    assert log.checkpoint().gaps_below == 0
