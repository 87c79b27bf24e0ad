"""Bands: their text, the partitions that they get, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.record.bands import Band, band_of, bands_text, parse_bands, partitions_of

TEXT = "hot=7-9:1,warm=4-6:2,cold=0-3:8"


@st.composite
def band_texts(draw: st.DrawFn) -> str:
    """Bands that cut 0 to 9 anywhere, in any order."""
    starts = sorted(draw(st.sets(st.integers(1, 9), max_size=9)) | {0})
    items = []
    for low, high in zip(starts, [*(start - 1 for start in starts[1:]), 9], strict=True):
        priorities = str(low) if low == high and draw(st.booleans()) else f"{low}-{high}"
        items.append(f"band-{low}={priorities}:{draw(st.integers(1, 20))}")
    return ",".join(draw(st.permutations(items)))


def test_partitions_are_numbered_from_the_most_urgent_band_on() -> None:
    bands = parse_bands("cold=0-3:8, hot=7-9:1, warm=4-6:2")
    assert bands == (Band("hot", 7, 9, 0, 1), Band("warm", 4, 6, 1, 2), Band("cold", 0, 3, 3, 8))
    assert [list(band.partition_range) for band in bands] == [[0], [1, 2], [3, 4, 5, 6, 7, 8, 9, 10]]
    assert bands_text(bands) == TEXT


@given(band_texts())
def test_each_priority_is_in_one_band_and_each_partition_too(text: str) -> None:
    bands = parse_bands(text)
    assert parse_bands(bands_text(bands)) == bands
    for priority in range(10):
        assert [band for band in bands if band.lowest_priority <= priority <= band.highest_priority] == [
            band_of(bands, priority)
        ]
    assert [partition for band in bands for partition in band.partition_range] == list(range(partitions_of(bands)))


def test_no_text_is_no_bands() -> None:
    assert parse_bands("") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hot=7-9:1,warm=4-7:2,cold=0-3:8", "do not overlap; hot and warm do"),
        ("hot=7-9:1,cold=0-5:8", "without a gap; priority 6 is in none"),
        ("hot=7-9:1,warm=4-6:2", "for all priorities, 0 to 9"),
        ("hot=7-8:1,cold=0-6:8", "for all priorities, 0 to 9"),
        ("hot=7-9:0,cold=0-6:8", "at least one partition each; hot has none"),
        ("hot=9-7:1,cold=0-6:8", "from low to high, as in 7-9"),
        ("hot=7-9:1,hot=0-6:8", "different names"),
        ("hot=7-10:1,cold=0-6:8", "name=priorities:partitions"),
        ("hot=-1-9:1", "name=priorities:partitions"),
        ("hot=high:1,cold=0-6:8", "name=priorities:partitions"),
        ("hot=7-9,cold=0-6", "name=priorities:partitions"),
        ("hot=7-9:1,,cold=0-6:8", "name=priorities:partitions"),
        ("very hot=0-9:1", "name=priorities:partitions"),
        ("x" * 65 + "=0-9:1", "at most 64 characters"),
    ],
)
def test_what_is_refused_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_bands(text)
