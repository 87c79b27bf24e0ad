"""Metrics that experiments read out of times: order, idle workers, percentiles, the strips, the shares of keys."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from logbroker.errors import InvalidRequestError
from logbroker.queues.model.second_key import SecondKey, SplitBy
from logbroker.queues.model.splits import Split
from logbroker.tools.experiments import keys
from logbroker.tools.experiments.lane_strip import Strip, StripMetrics, StripPlan
from logbroker.tools.experiments.lane_words import conclusions
from logbroker.tools.experiments.metrics import Finish, busy_shares, pauses, percentile, violations

SEED = 20261121


def finish(position: int, begun: float, finished: float, worker: int = 0) -> Finish:
    return Finish(0, position, begun, finished, worker)


def test_a_violation_is_a_record_finished_after_a_later_one_of_its_key() -> None:
    of_keys = [0, 1, 0, 1, 0]
    assert violations([0, 1, 2, 3, 4], of_keys) == {}
    assert violations([1, 0, 3, 2, 4], of_keys) == {}, "keys may overtake each other"
    assert violations([2, 0, 1, 3, 4], of_keys) == {0: 1}
    assert violations([4, 2, 0, 3, 1], of_keys) == {0: 2, 1: 1}


def test_violations_are_those_that_counting_pair_by_pair_finds() -> None:
    draw = random.Random(SEED)
    for _ in range(50):
        of_keys = [draw.randrange(3) for _ in range(20)]
        order = draw.sample(range(20), 20)
        slow = Counter(
            of_keys[late]
            for place, late in enumerate(order)
            if any(of_keys[early] == of_keys[late] and early > late for early in order[:place])
        )
        assert violations(order, of_keys) == dict(slow)


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([5, 1, 4, 2, 3], 0.5) == 3
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile([7], 0.01) == 7
    assert math.isnan(percentile([], 0.5))


def test_only_the_time_in_the_window_makes_a_worker_busy() -> None:
    finishes = [finish(0, 0.0, 2.0), finish(1, 2.0, 3.0), finish(2, 9.0, 12.0, worker=1)]
    assert busy_shares(finishes, 3, 1.0, 11.0) == [0.2, 0.2, 0.0]


def test_pauses_are_between_neighbours_of_one_group() -> None:
    finishes = [finish(0, 0, 1), finish(1, 5, 6), finish(2, 2, 3), finish(3, 9, 10)]
    assert sorted(pauses(finishes, [0, 0, 0, -1])) == [1, 2]
    assert pauses(finishes, [0, 1, 2, 3]) == []


def strip_of(positions: int, workers: int = 2) -> Strip:
    return Strip(StripPlan(name="t", ordering="none", workers=workers, keys=[0] * positions, key_count=1))


def test_a_strip_puts_lists_of_several_workers_in_order() -> None:
    strip = strip_of(4)
    strip.add([finish(0, 0.0, 0.1), finish(2, 0.1, 0.3)])
    strip.add([finish(1, 0.0, 0.2, worker=1)])
    strip.look(0.35)
    assert strip.finishes == [], "another worker may still tell of something earlier"
    strip.look(10.0)
    assert [each.offset for each in strip.finishes] == [0, 1, 2]
    assert (strip.violations, strip.head, strip.waiting(5)) == (0, 3, [3])


def test_a_strip_with_a_split_key_checks_order_within_second_keys() -> None:
    plan = StripPlan(
        name="t", ordering="key", workers=1, keys=[1, 2, 1, 3], key_count=4, sent_keys=[0, 0, 0, 3], split_into=8
    )
    strip = Strip(plan)
    strip.add([finish(position, place, place + 1) for place, position in enumerate([1, 2, 0, 3])])
    strip.look(100.0)
    found = strip.settle()
    assert found.violations == strip.violations == 1, "2 was finished before 0; 1 has another second key"
    assert (found.hottest_key_share, found.split_into) == (0.75, 8)


def test_long_work_shows_who_is_busy_though_it_is_known_only_when_it_ends() -> None:
    strip = strip_of(4, workers=1)
    strip.add([finish(position, 2.0 * position, 2.0 * position + 2) for position in range(3)])
    strip.look(6.9)
    assert strip.recent_busy(6.9) == [pytest.approx(6.0 / 6.6)], "the fourth is under way for 0.6 s"
    assert strip.recent_rate(6.9) == pytest.approx(3 / 6.6)


def test_a_strip_tells_what_it_was() -> None:
    strip = strip_of(4)
    strip.begun = 1.0
    for position, (begun, finished, worker) in enumerate([(1.0, 2.0, 0), (1.0, 3.0, 1), (3.0, 4.0, 0), (3.0, 3.5, 1)]):
        strip.add([finish(position, begun, finished, worker)])
    strip.add([finish(0, 4.0, 4.5)])
    strip.look(100.0)
    assert strip.is_done
    found = strip.settle()
    assert (found.violations, found.violated_keys, found.repeats) == (1, 1, 1), "3 was finished before 2"
    assert (found.seconds, found.records_per_second) == (3.0, 4 / 3)
    assert found.mean_busy_workers == pytest.approx(4.5 / 3)
    assert found.idle_share == pytest.approx(0.25)
    assert (found.wait_ms_p50, found.wait_ms_p99, found.finish_ms_p99) == (0.0, 2000.0, 3000.0)


@pytest.mark.parametrize("skew", keys.SKEWS)
def test_shares_add_up_and_are_drawn(skew: str) -> None:
    shares = keys.key_shares(skew, 100)
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    drawn = Counter(keys.draw_keys(shares, 20_000, SEED))
    assert Counter(keys.draw_keys([0.68, 0.32], 10, SEED)) == {0: 7, 1: 3}
    assert drawn.total() == 20_000
    assert all(abs(drawn[key] - 20_000 * share) <= 1 for key, share in enumerate(shares))
    assert keys.draw_keys(shares, 100, SEED) == keys.draw_keys(shares, 100, SEED)
    assert sum(keys.partition_shares(shares, 8)) == pytest.approx(1)


def test_second_keys_go_to_sub_lanes_as_the_queue_group_puts_them() -> None:
    split = Split(b"k", SecondKey(SplitBy.HEADER, "second"), 8, since_ms=0)
    lanes = Counter(split.number_of(0, b"k", (("second", keys.second_key(record)),)) for record in range(1_000))
    assert keys.sub_lane_shares(8) == pytest.approx([lanes[lane] / 1_000 for lane in range(8)])


def test_skews_are_what_they_are_called() -> None:
    assert keys.key_shares("uniform", 4) == [0.25] * 4
    zipf = keys.key_shares("zipf", 100)
    assert zipf[0] / zipf[1] == pytest.approx(2**1.1)
    assert keys.key_shares("hot", 5) == pytest.approx([0.8, 0.05, 0.05, 0.05, 0.05])
    assert keys.key_shares("hot", 1) == [1.0]
    with pytest.raises(InvalidRequestError, match="uniform, zipf, hot"):
        keys.key_shares("steep", 4)


def test_words_say_what_each_strip_gained_and_cost() -> None:
    """Drawn from metrics: six strips as they should come out, and one that must not."""

    def metrics(
        name: str, ordering: str, rate: float, violations: int, busy: float, hottest: float = 0.02, split_into: int = 0
    ) -> StripMetrics:
        return StripMetrics(
            name=name,
            ordering=ordering,
            keys=100,
            hottest_key_share=hottest,
            split_into=split_into,
            workers=8,
            records=1000,
            seconds=1000 / rate,
            records_per_second=rate,
            violations=violations,
            violated_keys=min(violations, 100),
            idle_share=1 - busy / 8,
            mean_busy_workers=busy,
            work_ms_mean=2.1,
            wait_ms_p50=1.0,
            wait_ms_p99=1.0,
            finish_ms_p50=1.0,
            finish_ms_p99=1.0,
            repeats=0,
        )

    strips = [metrics("none", "none", 900, 12, 7.5), metrics("single", "single", 100, 0, 0.9)]
    hot = [metrics("hot key", "key", 120, 0, 1.0, 0.8), metrics("split into 8", "key", 480, 0, 5.0, 0.8, 8)]
    none, single, key, whole, split = conclusions([*strips, metrics("key of 100", "key", 800, 0, 6.0), *hot])
    assert none.startswith("none: 9.0 times as fast as single; 7.5 of 8 workers at work on average; 12 records")
    assert single.startswith("single: all records in order; 0.9 of 8 workers at work")
    assert key.startswith("key of 100: every key in order, 8.0 times as fast as single; 6.0 of 8 workers at work")
    assert key.endswith("at most one per key.")
    assert whole.endswith("at most one per key, and one key has 80% of the records.")
    assert split.startswith("split into 8: every second key in order, 4.8 times as fast as single, and 4.0 times as")
    assert split.endswith("5.0 of 8 workers at work on average, at most one per sub-lane.")
    (*_, wrong) = conclusions([*strips, metrics("key of 4", "key", 800, 3, 6.0)])
    assert "3 records OUT OF ORDER, which must not happen" in wrong
