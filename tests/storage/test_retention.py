"""Segments that go, and those that stay for somebody who still needs their records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.config import MAX_INT64, TopicConfig
from logbroker.storage.retention import ExpiredOffsets, SyncedSegment, expired_offsets

NOW_MS = 1_000_000
TEN = [SyncedSegment(offset, 100, NOW_MS) for offset in range(10, 101, 10)]
"""Ten records and 100 bytes each."""


def asked(needed_from: int, hold_bytes: int, *, keep_bytes: int = 300, log_start_offset: int = 0) -> ExpiredOffsets:
    config = TopicConfig(retention_bytes=keep_bytes, retention_hold_bytes=hold_bytes)
    return expired_offsets(TEN, log_start_offset, 1000, config, NOW_MS, needed_from)


@pytest.mark.parametrize(
    ("needed_from", "hold_bytes", "start_offset", "wanted_offset"),
    [
        (MAX_INT64, 0, 70, 70),  # nobody needs anything
        (70, 0, 70, 70),
        (100, 0, 70, 70),
        (69, 0, 60, 70),
        (69, 99, 60, 70),
        (69, 100, 60, 60),  # one segment is kept for it
        (0, 0, 0, 70),
        (0, 250, 0, 50),
        (9, 600, 0, 10),
        (9, 700, 0, 0),
        (0, -1, 0, 0),
        (20, 250, 20, 50),
    ],
)
def test_what_is_needed_stays_up_to_a_bound(
    needed_from: int, hold_bytes: int, start_offset: int, wanted_offset: int
) -> None:
    assert asked(needed_from, hold_bytes) == (start_offset, wanted_offset)


def test_nothing_is_asked_where_nothing_expires() -> None:
    assert asked(0, 0, keep_bytes=-1) == (0, 0)
    assert asked(0, 0, keep_bytes=-1, log_start_offset=5) == (5, 5)


def test_the_log_never_begins_anew_before_its_start() -> None:
    assert asked(0, 0, keep_bytes=950, log_start_offset=15) == (15, 15)
    assert asked(0, 500, log_start_offset=15) == (15, 20)


@given(
    sizes=st.lists(st.integers(1, 50), max_size=12),
    keep_bytes=st.integers(-1, 300),
    hold_bytes=st.integers(-1, 300),
    needed_from=st.integers(0, 130),
    active_bytes=st.integers(1, 50),
)
def test_what_stays_is_what_it_must_be(
    sizes: list[int], keep_bytes: int, hold_bytes: int, needed_from: int, active_bytes: int
) -> None:
    sealed = [SyncedSegment((number + 1) * 10, size, NOW_MS) for number, size in enumerate(sizes)]
    size_bytes = sum(sizes) + active_bytes
    config = TopicConfig(retention_bytes=keep_bytes, retention_hold_bytes=hold_bytes)
    free = expired_offsets(sealed, 0, size_bytes, config, NOW_MS, MAX_INT64)
    assert free.start_offset == free.wanted_offset
    start, wanted = expired_offsets(sealed, 0, size_bytes, config, NOW_MS, needed_from)
    assert start <= needed_from or start == 0
    assert start <= wanted <= free.start_offset
    held = [segment.size_bytes for segment in sealed if start < segment.next_offset <= free.start_offset]
    kept = [segment.size_bytes for segment in sealed if wanted < segment.next_offset <= free.start_offset]
    if hold_bytes < 0:
        assert wanted == start
    else:
        assert sum(kept) <= hold_bytes
        assert wanted == start or sum(held[-len(kept) - 1 :]) > hold_bytes, "less would have been enough"
    # Whoever lets go as it is asked to has asked for enough.
    assert expired_offsets(sealed, 0, size_bytes, config, NOW_MS, max(needed_from, wanted)) == ExpiredOffsets(
        max(start, wanted), max(start, wanted)
    )
