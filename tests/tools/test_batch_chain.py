"""Sound batches behind a batch with a wrong offset stay in the log that a repair leaves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from logbroker.record.header import BatchHeader, parse_header
from logbroker.tools.segments import partition_repair
from logbroker.tools.segments.locate import SegmentFile, locate
from logbroker.tools.segments.partition_repair import plan_repair, survey
from logbroker.tools.segments.reading import SegmentReading
from tests.tools.segment_files import batch_positions, stored_batch

PAGE = 1024
Found = list[tuple[int, BatchHeader]]


def nothing(_bytes: int) -> None:
    pass


def log_of(directory: Path, batches: int) -> Path:
    directory.mkdir()
    log = directory / f"{0:020d}.log"
    log.write_bytes(b"".join(stored_batch(n, [b"x" * (20 + n * 7 % 90)]) for n in range(batches)))
    return log


def sound(content: bytes) -> Found:
    """Find each sound batch, wherever it lies."""
    found, position = [], 0
    while position + 61 <= len(content):
        header = parse_header(content, position)
        end = position + header.size_bytes
        is_whole = header.magic == 2 and 61 <= header.size_bytes <= len(content) - position
        if is_whole and google_crc32c.value(content[position + 21 : end]) == header.crc:
            found.append((position, header))
            position = end
        else:
            position += 1
    return found


def best_weight(found: Found) -> int:
    """Weigh the best chain by comparing each batch with all before it."""
    weights = weights_of(found)
    best: list[int] = []
    for number, (_, header) in enumerate(found):
        before = [
            best[other]
            for other in range(number)
            if found[other][1].next_offset <= header.base_offset and found[other][1].leader_epoch <= header.leader_epoch
        ]
        best.append(max(before, default=0) + weights[number])
    return max(best, default=0)


def weights_of(found: Found) -> list[int]:
    def joined(first: int, second: int) -> bool:
        if first < 0 or second >= len(found):
            return False
        one, other = found[first][1], found[second][1]
        return (one.next_offset, one.leader_epoch) == (other.base_offset, other.leader_epoch)

    return [
        header.size_bytes if joined(number - 1, number) or joined(number, number + 1) else 1
        for number, (_, header) in enumerate(found)
    ]


def kept_after_repair(log: Path) -> Found:
    """Repair the log, and return the batches that are left in it."""
    (partition,) = locate([log.parent]).partitions
    plan = plan_repair(survey(partition, nothing), accept_gaps=True)
    if plan is not None:
        partition_repair.repair(plan)
    content = log.read_bytes()
    assert b"".join(content[at : at + header.size_bytes] for at, header in sound(content)) == content
    return sound(content)


def flip(content: bytearray, positions: list[int], batch: int, byte: int, bit: int) -> None:
    content[positions[batch] + byte] ^= bit
    content[positions[batch + 1] + 65] ^= 1


def copy_page(content: bytearray, source: int, target: int) -> None:
    content[target * PAGE : (target + 1) * PAGE] = content[source * PAGE : (source + 1) * PAGE]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content, positions: flip(content, positions, 300, 0, 0x40),
        lambda content, positions: flip(content, positions, 300, 5, 1),
        lambda content, positions: flip(content, positions, 300, 6, 1),
        lambda content, positions: flip(content, positions, 300, 13, 1),
        lambda content, _: copy_page(content, 60, 20),
        lambda content, _: copy_page(content, 20, 60),
    ],
    ids=["flip of 2^62", "flip of 2^16", "flip of 2^8", "flip in the epoch", "page from above", "page from below"],
)
def test_all_batches_that_are_sound_in_place_stay(
    tmp_path: Path, damage: Callable[[bytearray, list[int]], None]
) -> None:
    log = log_of(tmp_path / "t-0", 600)
    before = log.read_bytes()
    positions = batch_positions(log)
    content = bytearray(before)
    damage(content, positions)
    log.write_bytes(content)
    in_place = {
        number
        for number, (start, end) in enumerate(zip(positions, [*positions[1:], len(before)], strict=True))
        if content[start:end] == before[start:end]
    }
    assert len(in_place) > 550
    seen = SegmentReading(SegmentFile(path=str(log), base_offset=0), nothing)
    assert in_place <= {batch.header.base_offset for batch in seen.batches()}, "the other tools see less"
    assert seen.faults
    assert [header.base_offset for _, header in kept_after_repair(log)] == sorted(in_place)


def test_a_damaged_length_that_leads_to_a_later_batch_hides_none_between(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = directory / f"{0:020d}.log"
    size = len(stored_batch(0, [b""]))
    log.write_bytes(b"".join(stored_batch(n, [b"x" * (128 - size)]) for n in range(200)))
    content, positions = bytearray(log.read_bytes()), batch_positions(log)
    step = positions[1]
    length = int.from_bytes(content[positions[20] + 8 : positions[20] + 12], "big") + 64 * step
    content[positions[20] + 8 : positions[20] + 12] = length.to_bytes(4, "big")
    log.write_bytes(content)
    assert [header.base_offset for _, header in kept_after_repair(log)] == [n for n in range(200) if n != 20]


def test_many_batches_with_wrong_offsets_do_not_end_the_search(tmp_path: Path) -> None:
    log = log_of(tmp_path / "t-0", 600)
    content, positions = bytearray(log.read_bytes()), batch_positions(log)
    flipped = range(10, 490, 4)
    for number in flipped:
        content[positions[number] + 5] ^= 1
    log.write_bytes(content)
    assert [header.base_offset for _, header in kept_after_repair(log)] == [n for n in range(600) if n not in flipped]


@pytest.mark.parametrize("number", range(10))
def test_random_damage_costs_no_more_than_the_best_chain_does(tmp_path: Path, number: int) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    log = log_of(tmp_path / "t-0", 200)
    content, positions = bytearray(log.read_bytes()), batch_positions(log)
    pages = len(content) // PAGE
    for _ in range(chance.randint(1, 6)):
        first, second = chance.randrange(pages), chance.randrange(pages)
        match chance.randrange(5):
            case 0:
                content[positions[chance.randrange(200)] + chance.choice([5, 6, 7])] ^= 1 << chance.randrange(8)
            case 1:
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            case 2:
                copy_page(content, first, second)
            case 3:
                at = chance.randrange(len(content))
                end = min(at + chance.randrange(1, 600), len(content))
                content[at:end] = bytes(end - at)
            case _:
                other = content[second * PAGE : (second + 1) * PAGE]
                copy_page(content, first, second)
                content[first * PAGE : (first + 1) * PAGE] = other
    log.write_bytes(content)
    found = [each for each in sound(bytes(content)) if each[1].next_offset <= 2**31]
    weight_of = {
        (header.base_offset, header.crc, header.leader_epoch): weight
        for (_, header), weight in sorted(zip(found, weights_of(found), strict=True), key=lambda pair: pair[1])
    }
    kept = [header for _, header in kept_after_repair(log)]
    assert all(one.next_offset <= other.base_offset for one, other in itertools.pairwise(kept)), f"{seed=}"
    weight = sum(weight_of[header.base_offset, header.crc, header.leader_epoch] for header in kept)
    assert weight >= best_weight(found) - 1, f"{seed=}: only a last batch whose offset nothing confirms may be left out"
