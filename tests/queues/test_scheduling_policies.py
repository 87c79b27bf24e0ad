"""Between levels: strict, shares by band, ageing; and why the order within a level is a tuple."""

from __future__ import annotations

import random
from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.queues.model.lane import Lane
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.priority.policy import (
    ALL_LEVELS,
    AgeingPolicy,
    StrictPolicy,
    StridePolicy,
    default_weights,
    levels_of,
)
from logbroker.queues.priority.ready_queue import PriorityLine
from logbroker.record.bands import DEFAULT_BANDS, Band

NOTHING: list[list[tuple[int]]] = [[] for _ in range(10)]


def admit(line: PriorityLine, records: list[tuple[int, int]], partition: int = 0, first: int = 0) -> None:
    """Records of these priorities and timestamps."""
    priorities, times = bytes(priority for priority, _ in records), array("q", [time for _, time in records])
    line.admit(record_id_of(partition, 0), range(first, first + len(records)), priorities, times)


def taken(line: PriorityLine, credit: int = 1_000, levels: int = ALL_LEVELS) -> list[int]:
    return [lane.head for lane in line.take(credit, levels)]


# --- shares ----------------------------------------------------------------------------------------------------------


def test_weighted_shares_are_exact_where_all_bands_have_something() -> None:
    policy = StridePolicy(DEFAULT_BANDS, [6, 3, 1])
    served = Counter(policy.choose(ALL_LEVELS, ALL_LEVELS, NOTHING) for _ in range(10_000))
    assert served == {9: 6_000, 6: 3_000, 3: 1_000}


@given(
    st.lists(st.integers(1, 50), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 400)), min_size=1, max_size=20),
)
def test_weighted_shares_hold_whatever_bands_come_and_go(weights: list[int], absences: list[tuple[int, int]]) -> None:
    """Bands are away in turn, and then all are back: nobody catches up on what was missed, nobody pays for it."""
    policy = StridePolicy(DEFAULT_BANDS, weights)
    band_levels = [levels_of(band) for band in DEFAULT_BANDS]
    for present, deliveries in absences:
        active = sum(levels for index, levels in enumerate(band_levels) if present >> index & 1)
        for _ in range(deliveries if active else 0):
            assert 1 << policy.choose(active, ALL_LEVELS, NOTHING) & active
    served = Counter(policy.choose(ALL_LEVELS, ALL_LEVELS, NOTHING) for _ in range(10_000))
    for band, weight in zip(DEFAULT_BANDS, weights, strict=True):
        share = served[band.highest_priority] / 10_000
        assert abs(share - weight / sum(weights)) < 0.005, (weights, absences)


def test_a_worker_that_serves_one_band_changes_no_shares_of_the_others() -> None:
    policy = StridePolicy(DEFAULT_BANDS, [6, 3, 1])
    hot = levels_of(DEFAULT_BANDS[0])
    served = Counter[int]()
    for _ in range(10_000):
        assert policy.choose(ALL_LEVELS, hot, NOTHING) == 9
        served[policy.choose(ALL_LEVELS, ALL_LEVELS, NOTHING)] += 1
    assert served == {9: 6_000, 6: 3_000, 3: 1_000}


def test_a_band_of_weight_0_is_served_when_no_other_can_be() -> None:
    policy = StridePolicy(DEFAULT_BANDS, [0, 3, 0])
    assert [policy.choose(0b10_0001_0001, ALL_LEVELS, NOTHING) for _ in range(100)] == [4] * 100
    assert policy.choose(0b10_0000_0001, ALL_LEVELS, NOTHING) == 9
    assert policy.choose(0b10_0001_0001, levels_of(DEFAULT_BANDS[2]), NOTHING) == 0


def test_inside_a_band_the_most_urgent_goes_first() -> None:
    line = PriorityLine(StridePolicy(DEFAULT_BANDS, [1, 1, 1]), by_head=False)
    admit(line, [(7, 1), (9, 5), (8, 3), (4, 2), (6, 9), (0, 1)])
    assert taken(line) == [1, 4, 5, 2, 3, 0]


def test_weights_where_none_are_set() -> None:
    assert default_weights(DEFAULT_BANDS) == {"hot": 6, "warm": 3, "cold": 1}
    assert default_weights([Band("a", 5, 9), Band("b", 0, 4)]) == {"a": 2, "b": 1}
    assert default_weights([Band(name, 0, 0) for name in "abcd"]) == {"a": 8, "b": 4, "c": 2, "d": 1}


# --- ageing ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 500)), min_size=1, max_size=80),
    st.integers(1, 60),
    st.integers(1, 5),
)
def test_ageing_bounds_what_goes_before_a_record(records: list[tuple[int, int]], age_ms: int, credit: int) -> None:
    """A record is passed over only by those produced less than (9 - its priority) ages after it. So with arrivals at a
    rate that is worked off it waits 9 ages and what was ready then, at most."""
    line = PriorityLine(AgeingPolicy(age_ms), by_head=False)
    admit(line, records)
    order: list[int] = []
    while len(order) < len(records):
        order += taken(line, credit)
    for position, record_id in enumerate(order):
        priority, time = records[record_id]
        for other in order[:position]:
            other_priority, other_time = records[other]
            assert other_time - time <= (other_priority - priority) * age_ms
            assert other_time - time <= (9 - priority) * age_ms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_ageing_the_longest_wait_is_bounded_under_a_flood_of_urgent_records(seed: int) -> None:
    """One record of priority 0 among urgent ones that come as fast as they are worked off: each tick, one comes and one
    goes. With strict it waits for ever; with ageing, until it is 9 ages old."""
    random_ = random.Random(seed)
    waits = {}
    for name, policy in (("strict", StrictPolicy()), ("ageing", AgeingPolicy(100))):
        line = PriorityLine(policy, by_head=False)
        admit(line, [(0, 0)] + [(9, 0)] * 20)
        first, waits[name] = 21, 0
        for now in range(1, 5_000):
            admit(line, [(random_.randrange(5, 10), now)], first=first)
            first += 1
            if taken(line, 1) == [0]:
                waits[name] = now
                break
    assert waits["strict"] == 0, f"seed {seed}"
    assert 400 <= waits["ageing"] <= 9 * 100 + 21, f"seed {seed}"


# --- within a level --------------------------------------------------------------------------------------------------


def packed(priority: int, timestamp_us: int) -> int:
    """The score that one finds in articles."""
    return (9 - priority) * 10**13 + timestamp_us


def test_a_packed_score_lets_an_old_unimportant_record_overtake_an_urgent_one() -> None:
    """10^13 microseconds are 116 days: what is older by more than that for each level goes before what is urgent."""
    now_us = 1_700_000_000_000_000
    old_us = now_us - 9 * 10**13 - 1
    assert packed(0, old_us) < packed(9, now_us), "the least score is served first: the cold record"
    line = PriorityLine(StrictPolicy(), by_head=False)
    admit(line, [(0, old_us // 1000), (9, now_us // 1000)])
    assert taken(line) == [1, 0]


def test_no_float_holds_a_score_that_would_be_right() -> None:
    """To keep levels apart at all, a level must be worth more than all the time there is, about 10^16 us; then the
    double that sorted sets score by cannot tell two records of the same level apart."""

    def wide(priority: int, timestamp_us: int) -> int:
        return (9 - priority) * 10**16 + timestamp_us

    now_us = 1_700_000_000_000_001
    assert wide(0, now_us) < wide(0, now_us + 1)
    assert float(wide(0, now_us)) == float(wide(0, now_us + 1)), "which is older, nobody can tell"
    line = PriorityLine(StrictPolicy(), by_head=False)
    admit(line, [(0, now_us + 1), (0, now_us)])
    assert taken(line) == [1, 0]


def test_timestamps_of_any_size_are_compared_exactly() -> None:
    line = PriorityLine(StrictPolicy(), by_head=False)
    times = [(1 << 63) - 1, -(1 << 63), 0, -1, (1 << 63) - 2]
    admit(line, [(5, time) for time in times])
    assert taken(line) == sorted(range(len(times)), key=times.__getitem__)


# --- out of order ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["falling", "random", "sawtooth"])
def test_timestamps_in_disorder_cost_few_cursors_and_no_order(shape: str) -> None:
    random_ = random.Random(5)
    count = 3_000
    times = {
        "falling": list(range(count, 0, -1)),
        "random": [random_.randrange(1_000_000) for _ in range(count)],
        "sawtooth": [number % 100 * 1_000 - number for number in range(count)],
    }[shape]
    line = PriorityLine(StrictPolicy(), by_head=False)
    for offset, time in enumerate(times):
        admit(line, [(3, time)], first=offset)
        assert sum(map(len, line._heaps)) < 200
    assert taken(line, count) == sorted(range(count), key=lambda offset: (times[offset], offset))


def test_a_lane_that_rises_many_times_leaves_few_entries_behind() -> None:
    from logbroker.queues.model.lane import READY, RankedLane

    line = PriorityLine(StrictPolicy(), by_head=False)
    lanes: list[Lane] = [RankedLane(b"k", number, READY, priority=4, timestamp_ms=number) for number in range(10)]
    for lane in lanes:
        line.append(lane)
    for _ in range(1_000):
        for lane in lanes:
            line.remove(lane)
            line.append(lane)
    assert sum(map(len, line._heaps)) < 200
    assert taken(line) == list(range(10))
