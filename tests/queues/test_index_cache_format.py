"""The bytes of what a queue group keeps of its index: read as they were written, and never where they are damaged."""

from __future__ import annotations

import random
from array import array
from typing import Any

import msgspec
import pytest

from logbroker.queues.records.columns import Columns
from logbroker.queues.scan.index_cache.format import Checkpoint, GatheredBlock, StoredBlock, decode, encode


def gathered(draw: random.Random, *, has_gaps: bool, has_keys: bool) -> tuple[GatheredBlock, Columns]:
    """Some columns in pieces, and as a whole from the position on at which the first piece counts."""
    offsets: list[int] = []
    for _ in range(200):
        offsets.append((offsets[-1] if offsets else 99) + (draw.choice((1, 1, 5)) if has_gaps else 1))
    keys: list[bytes | None] = [draw.choice((b"a", b"", b"b" * 300, None)) if has_keys else None for _ in offsets]
    whole = Columns(
        offsets,
        offsets[-1] + 1 + (3 if has_gaps else 0),
        keys if has_keys else [],
        [(offset, draw.randrange(1 << 50)) for offset in offsets if draw.random() < 0.1],
        bytes(draw.randrange(10) for _ in offsets),
        array("q", (draw.randrange(-1, 1 << 50) for _ in offsets)),
        [],
    )
    start = 10
    found = GatheredBlock.begin(1, offsets[start])
    position = offsets[start]
    for first, end in ((0, 70), (70, 71), (71, 200)):
        following = offsets[end] if end < 200 else whole.next_offset
        piece = Columns(
            offsets[first:end],
            following,
            whole.keys[first:end],
            [due for due in whole.not_before if offsets[first] <= due[0] < following],
            whole.priorities[first:end],
            whole.times[first:end],
            [],
        )
        found.add(position, piece)
        position = following
    rest = Columns(
        offsets[start:],
        whole.next_offset,
        whole.keys[start:],
        [due for due in whole.not_before if due[0] >= offsets[start]],
        whole.priorities[start:],
        whole.times[start:],
        [],
    )
    return found, rest


@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_block_is_read_as_it_was_gathered(has_gaps: bool, has_keys: bool) -> None:
    found, columns = gathered(random.Random(1), has_gaps=has_gaps, has_keys=has_keys)
    block = decode(encode(found.block(7)), StoredBlock)
    assert block is not None
    read = block.columns()
    assert list(read.offsets) == list(columns.offsets)
    assert msgspec.structs.replace(read, offsets=()) == msgspec.structs.replace(columns, offsets=())
    assert isinstance(read.offsets, range) is not has_gaps
    summary = found.summary(7, 3, 1, 0, 1)
    assert block.is_of(summary)
    for priority in range(10):
        records = zip(columns.times, columns.offsets, columns.priorities, strict=True)
        of_priority = [(time, offset) for time, offset, each in records if each == priority]
        assert summary.counts[priority] == len(of_priority)
        assert summary.heads[priority] == min(of_priority, default=(0, 0))
    assert summary.due_ms == max(due_ms for _, due_ms in columns.not_before)


@pytest.mark.parametrize("kind", [StoredBlock, Checkpoint])
def test_no_damage_is_taken_for_what_was_written(kind: type[Any]) -> None:
    found, _ = gathered(random.Random(2), has_gaps=True, has_keys=True)
    value: Any = found.block(7)
    if kind is Checkpoint:
        value = Checkpoint(1, "boot", b"t" * 16, "key", "", [found.summary(7, 3, 1, 0, 1)])
    data = encode(value)
    assert decode(data, kind) == value
    for index in range(len(data)):
        flipped = bytearray(data)
        flipped[index] ^= 1 << index % 8
        assert decode(bytes(flipped), kind) is None
        assert decode(data[:index], kind) is None
    assert decode(data + b"\0", kind) is None
