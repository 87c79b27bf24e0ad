"""Counting keys: exact while they fit, sound bounds when they do not."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from logbroker.tools.segments.key_counts import Distribution, KeyCounts

keys_strategy = st.lists(st.one_of(st.none(), st.binary(max_size=2)), max_size=300)


@given(keys_strategy)
def test_few_keys_are_counted_exactly(keys: list[bytes | None]) -> None:
    counts = KeyCounts()
    for key in keys:
        counts.add(key)
    exact = Counter(key for key in keys if key is not None)
    assert not counts.sampled
    assert counts.records == len(keys)
    assert counts.without_key == keys.count(None)
    assert counts.keys() == len(exact)
    assert dict(counts.top(1000)) == exact
    assert [count for _, count in counts.top(1000)] == sorted(exact.values(), reverse=True)
    assert counts.records_per_key().largest == max(exact.values(), default=0)


@given(st.lists(st.integers(0, 40), max_size=400), st.integers(2, 12), st.integers(1, 6))
def test_of_many_keys_the_frequent_ones_are_never_counted_too_high_nor_lost(
    numbers: list[int], max_keys: int, heavy_keys: int
) -> None:
    counts = KeyCounts(max_keys, heavy_keys)
    for number in numbers:
        counts.add(b"%d" % number)
    exact = Counter(b"%d" % number for number in numbers)
    top = dict(counts.top(1000))
    assert all(exact[key] - counts.top_error <= count <= exact[key] for key, count in top.items())
    assert {key for key, count in exact.items() if count > counts.top_error} <= set(top)
    # What is in the sample is counted in full.
    assert counts.records_per_key().count <= max_keys
    assert counts.records_per_key().largest <= max(exact.values(), default=0)


def test_the_number_of_keys_is_estimated() -> None:
    counts = KeyCounts(max_keys=1000, heavy_keys=10)
    for number in range(20_000):
        counts.add(b"key %d" % (number % 10_000))
        counts.add(b"hot")
    assert counts.sampled
    assert 8_000 < counts.keys() < 12_000
    key, count = counts.top(1)[0]
    assert key == b"hot"
    assert 20_000 - counts.top_error <= count <= 20_000
    assert counts.records_per_key().percentiles([50]) == [2]


def test_long_keys_are_told_apart() -> None:
    counts = KeyCounts()
    for end in (b"a", b"b", b"b"):
        counts.add(b"x" * 1000 + end)
    assert counts.keys() == 2
    assert [count for _, count in counts.top(2)] == [2, 1]


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=200), st.integers(1, 100))
def test_percentiles_are_right_to_one_percent(values: list[int], percent: int) -> None:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    exact = sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
    (found,) = distribution.percentiles([percent])
    assert 0.99 * exact <= found <= exact
    assert distribution.largest == max(values)
    assert distribution.total == sum(values)
