"""The text that says which offsets are done beyond a committed one."""

from __future__ import annotations

import random

import pytest

from logbroker.client.convoy.done_offsets import (
    MAX_BITMAP_OFFSETS,
    MAX_TEXT_BYTES,
    DoneOffsets,
    decode,
    encode,
    may_fit,
)

BASE = 1_000_000_007
HIGHEST = (1 << 63) - 1


def drawn(rng: random.Random, count: int, span: int) -> DoneOffsets:
    """Return so many ranges within a span, if they have room there."""
    edges = sorted(rng.sample(range(1, span + 1), min(2 * count, span // 2 * 2)))
    ranges = [(BASE + first, BASE + end) for first, end in zip(edges[::2], edges[1::2], strict=True)]
    return DoneOffsets(BASE, rng.randrange(-1, 1000), tuple(ranges))


def test_what_is_written_is_read_again() -> None:
    rng = random.Random(1)
    for _ in range(300):
        span = rng.choice([10, 200, 5_000, MAX_BITMAP_OFFSETS, 3_000_000])
        count = rng.randint(1, 400)
        done = drawn(rng, count, span)
        if not may_fit(len(done.ranges), span):
            continue
        text = encode(done)
        assert len(text.encode()) <= MAX_TEXT_BYTES
        assert decode(text, BASE) == done


@pytest.mark.parametrize("base", [0, HIGHEST - MAX_BITMAP_OFFSETS - 2])
@pytest.mark.parametrize("epoch", [-1, 0, 2**31 - 1])
def test_the_worst_cases_have_room(base: int, epoch: int) -> None:
    # Every other offset of the longest span that is always allowed.
    ends = range(base + 1, base + MAX_BITMAP_OFFSETS, 2)
    done = DoneOffsets(base, epoch, tuple((offset, offset + 1) for offset in ends))
    assert may_fit(len(done.ranges), MAX_BITMAP_OFFSETS)
    assert decode(encode(done), base) == done
    # As many ranges as are allowed in a long span, of lengths that take the most bytes.
    for length in (130, 16_400):
        count = next(count for count in range(2_000, 0, -1) if may_fit(count, 2 * count * length))
        done = DoneOffsets(
            0, epoch, tuple(((2 * place + 1) * length, (2 * place + 2) * length) for place in range(count))
        )
        text = encode(done)
        assert len(text) <= MAX_TEXT_BYTES
        assert decode(text, 0) == done


def test_nothing_done_is_no_text() -> None:
    assert encode(DoneOffsets(5, 0, ())) == ""


def test_one_blocked_record_takes_few_bytes_however_much_is_done_behind_it() -> None:
    assert len(encode(DoneOffsets(5, 3, ((6, 50_000_000),)))) < 40


def test_what_does_not_fit_is_refused_and_not_cut_off() -> None:
    ranges = tuple((offset, offset + 1) for offset in range(1, 4 * MAX_BITMAP_OFFSETS, 20))
    assert not may_fit(len(ranges), ranges[-1][1])
    with pytest.raises(ValueError, match="do not fit"):
        encode(DoneOffsets(0, 0, ranges))


def test_a_text_counts_only_for_its_offset() -> None:
    text = encode(DoneOffsets(10, 0, ((12, 15),)))
    assert decode(text, 10) is not None
    assert decode(text, 9) is None
    assert decode(text, 12) is None


@pytest.mark.parametrize(
    "text", ["", "convoy:", "convoy:!!!!", "convoy:AAAA", "somebody else's", "convoy:" + "A" * 5000]
)
def test_a_foreign_text_counts_as_none(text: str) -> None:
    assert decode(text, 0) is None


def test_a_damaged_text_counts_as_none() -> None:
    rng = random.Random(2)
    text = encode(drawn(rng, 50, 4000))
    for length in range(len(text)):
        assert decode(text[:length], BASE) is None
    for _ in range(500):
        place = rng.randrange(len("convoy:"), len(text))
        damaged = text[:place] + rng.choice("ABCDwxyz0189+/=é") + text[place + 1 :]
        assert damaged == text or decode(damaged, BASE) is None
