"""The rules by which batches continue each other, without files."""

from __future__ import annotations

import random

import pytest

from logbroker.record.header import parse_header, stored_prefix
from logbroker.storage.continuity import Continuity
from logbroker.storage.partition_files import EpochStart
from tests.storage.partition import batch_of


def test_epochs_are_those_of_the_log() -> None:
    rules = Continuity([EpochStart(2, 0), EpochStart(5, 10)])
    assert [rules.epoch_at(offset) for offset in (0, 9, 10, 11)] == [2, 2, 5, 5]
    batch = batch_of(b"x")

    def fault(base_offset: int, epoch: int) -> str:
        return rules.fault(
            parse_header(stored_prefix(base_offset, len(batch) - 12, epoch) + batch[16:]), base_offset, -1
        )

    assert not fault(9, 2)
    assert not fault(10, 5)
    assert "leader epoch 2, not 5" in fault(10, 2)
    assert "leader epoch 5, not 2" in fault(9, 5)


@pytest.mark.prove
def test_what_is_followed_closely_and_plainly_is_the_same() -> None:
    """A log without gaps is followed by a shorter loop, which must agree with the one that explains."""
    chance = random.Random(seed := random.randrange(1 << 30))
    strict = Continuity([EpochStart(0, 0), EpochStart(3, 12)])
    for _ in range(3000):
        offset, content, ends = 0, b"", [0]
        for _ in range(chance.randrange(1, 9)):
            batch = batch_of(*[b"v"] * chance.randrange(1, 4), bytes(chance.randrange(80)))
            header = parse_header(batch)
            content += stored_prefix(offset, header.length, strict.epoch_at(offset)) + batch[16:]
            offset += header.last_offset_delta + 1
            ends.append(len(content))
        max_bytes = chance.choice([*ends[1:], chance.randrange(1, len(content) + 1)])
        damaged = bytearray(content)
        if chance.random() < 0.8:
            start = chance.choice(ends[:-1])
            damaged[start + chance.randrange(27)] ^= 1 << chance.randrange(8)
        buffer = bytes(damaged[: max_bytes + 61])
        plain, closely = (
            follow(buffer, 0, max_bytes=max_bytes, limit_bytes=len(content), end_offset=offset, exact=True)
            for follow in (strict.follow, strict._follow_closely)
        )
        assert plain == closely, (seed, bytes(damaged), max_bytes)
        assert plain.size_bytes in ends
