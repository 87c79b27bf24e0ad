"""The checker finds each anomaly in a small bad history, and nothing in good ones."""

from __future__ import annotations

import enum
import random

import pytest

from tests.priority.ideal_group import IdealGroup
from tests.priority.priority_checker import Kind, check
from tests.priority.priority_deliveries import Rules
from tests.priority.priority_history import (
    Appended,
    BrokerBack,
    BrokerKilled,
    Event,
    ReceiveBegun,
    Sent,
)
from tests.queue_storm.queue_checker import EPOCH_BITS
from tests.queue_storm.queue_history import Delivery, How, RecordId, SettleBegun, SettleEnded, Taken

STRICT = Rules(lease_seconds=1000)
BY_KEY = Rules(lease_seconds=1000, by_key=True)
BY_HEAD = Rules(lease_seconds=1000, by_key=True, rank_by_lane=False)
AGEING = Rules(lease_seconds=1000, age_seconds=1.0)


RESTARTED = 1 << EPOCH_BITS
"""Amount by which receipts are larger after a restart."""


class Story:
    """Events one after the other, a second apart. Records are named by their offset, deliveries by their receipt, which
    begin at 1."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._priorities: list[int] = []

    def _at(self) -> float:
        return float(len(self.events))

    def sent(self, *priorities: int, key: str = "", at_ms: int = 0, begun_at: float | None = None) -> Story:
        """Records of these priorities, answered all at once."""
        records = []
        for priority in priorities:
            records.append(Sent(RecordId(0, len(self._priorities)), key, priority, at_ms))
            self._priorities.append(priority)
        begun = self._at() if begun_at is None else begun_at
        self.events.append(Appended(process="p", at=self._at(), begun_at=begun, records=records))
        return self

    def asked(self, worker: str = "w", low: int = 0, high: int = 9) -> Story:
        self.events.append(ReceiveBegun(process=worker, at=self._at(), lowest_priority=low, highest_priority=high))
        return self

    def given(self, receipt: int, offset: int, worker: str = "w") -> Story:
        delivery = Delivery(RESTARTED + receipt - 1, RecordId(0, offset), "", 1, False)
        self.events.append(Taken(process=worker, at=self._at(), deliveries=[delivery]))
        return self

    def settled(self, receipt: int, how: How = How.ACK, *, delay: float = 0.0, answered: bool = True) -> Story:
        self.events.append(
            SettleBegun(
                process="w",
                at=self._at(),
                number=receipt,
                how=how,
                receipts=[RESTARTED + receipt - 1],
                delay_seconds=delay,
            )
        )
        self.events.append(SettleEnded(process="w", at=self._at(), number=receipt, answered=answered, refused={}))
        return self

    def done(self, receipt: int, offset: int, worker: str = "w") -> Story:
        return self.asked(worker).given(receipt, offset, worker).settled(receipt)

    def then(self, kind: type[BrokerKilled | BrokerBack]) -> Story:
        self.events.append(kind(process="storm", at=self._at()))
        return self

    def kinds(self, rules: Rules = STRICT) -> set[enum.Enum]:
        return {anomaly.kind for anomaly in check(self.events, rules).anomalies}

    def inverted(self, rules: Rules = STRICT) -> bool:
        return self.kinds(rules) == {Kind.INVERSION}


def test_the_most_urgent_first_and_then_the_oldest_is_good() -> None:
    story = Story().sent(4, 9).sent(4, at_ms=-5).done(1, 1).done(2, 2).done(3, 0)
    assert story.kinds() == set()
    assert check(story.events, STRICT).checked == 2  # Beside the last one nothing waits.


def test_a_less_urgent_record_first() -> None:
    assert Story().sent(4, 9).done(1, 0).done(2, 1).inverted()


def test_a_record_that_is_never_handed_out_is_overtaken_too() -> None:
    assert Story().sent(4, 9).done(1, 0).inverted()


def test_a_younger_record_of_the_same_priority_first() -> None:
    assert Story().sent(4, at_ms=2).sent(4, at_ms=1).done(1, 0).done(2, 1).inverted()


def test_a_later_offset_of_the_same_priority_and_time_first() -> None:
    assert Story().sent(4, 4).done(1, 1).done(2, 0).inverted()


def test_what_was_answered_after_the_receive_had_begun_may_be_overtaken() -> None:
    assert Story().sent(4).asked().sent(9).given(1, 0).done(2, 1).kinds() == set()


def test_receipts_say_what_was_handed_out_first_not_when_it_was_noted() -> None:
    story = Story().sent(4, 9).asked("a").asked("b").given(2, 0, "a").given(1, 1, "b")
    assert story.kinds() == set()
    assert Story().sent(4, 9).asked("a").asked("b").given(1, 0, "a").given(2, 1, "b").inverted()


def test_a_record_in_flight_is_not_overtaken() -> None:
    assert Story().sent(4, 9).asked("a").given(1, 1, "a").done(2, 0, "b").kinds() == set()


def test_a_record_that_came_back_is_overtaken() -> None:
    story = Story().sent(4, 9).asked().given(1, 1).settled(1, How.RELEASE)
    assert story.done(2, 0).done(3, 1).inverted()


def test_a_record_that_failed_is_overtaken_when_its_delay_is_over() -> None:
    def story() -> Story:
        return Story().sent(4, 4, 9).asked().given(1, 2).settled(1, How.NACK, delay=3)

    assert story().done(2, 0).done(3, 2).done(4, 1).kinds() == set()
    assert story().done(2, 0).done(3, 1).done(4, 2).inverted()


def test_a_record_waits_again_when_its_lease_has_ended() -> None:
    early = Story().sent(4, 9).asked("a").given(1, 1, "a").done(2, 0, "b")
    assert early.kinds(Rules(lease_seconds=1)) == set()
    late = Story().sent(4, 9).asked("a").given(1, 1, "a").sent().sent().done(2, 0, "b")
    assert late.inverted(Rules(lease_seconds=1))


def test_an_acknowledgement_without_an_answer_may_have_been_carried_out() -> None:
    story = Story().sent(4, 9).asked().given(1, 1).settled(1, answered=False)
    assert story.done(2, 0).kinds() == set()


def test_records_before_a_kill_are_overtaken_after_it() -> None:
    story = Story().sent(4, 9).then(BrokerKilled).then(BrokerBack)
    assert story.done(RESTARTED + 1, 0).done(RESTARTED + 2, 1).inverted()


def test_a_receive_over_a_kill_proves_nothing() -> None:
    story = Story().sent(4, 9).asked().then(BrokerKilled).then(BrokerBack)
    assert story.given(RESTARTED + 1, 0).done(RESTARTED + 2, 1).kinds() == set()


def test_after_a_kill_a_worker_may_have_its_record_for_another_lease() -> None:
    story = Story().sent(4, 9).asked("a").given(1, 1, "a").then(BrokerKilled).then(BrokerBack)
    assert story.done(RESTARTED + 1, 0, "b").kinds(Rules(lease_seconds=3)) == set()


def test_a_receipt_that_nobody_noted_excuses_one_record() -> None:
    assert Story().sent(4, 9).done(2, 0).kinds() == set()
    assert Story().sent(4, 9, 9).done(2, 0).inverted()
    assert Story().sent(4, 9, 4).done(1, 0).done(3, 2).inverted()
    assert check(Story().sent(4, 9).done(2, 0).events, STRICT).excused == 1


def test_a_receipt_that_nobody_noted_excuses_no_other_record_later() -> None:
    def story() -> Story:
        return Story().sent(4, 9).done(2, 0).done(3, 1).sent(4, 9)

    assert story().done(4, 2).done(5, 3).inverted()
    # One that nobody noted lies between them.
    assert story().done(5, 2).done(6, 3).kinds() == set()
    assert check(story().done(5, 2).done(6, 3).events, STRICT).excused == 2


def test_a_record_leaves_its_receipt_to_another_that_has_no_choice() -> None:
    # Record 1 may have had receipt 1 or 3, and record 3 only receipt 3: the first is back when record 4 is asked for.
    story = Story().sent(9, 9, 4).done(2, 0).done(4, 2).done(5, 1).sent(9, 4).done(6, 4).done(7, 3)
    assert story.kinds(Rules(lease_seconds=12)) == set()
    assert check(story.events, Rules(lease_seconds=12)).excused == 2
    assert story.inverted(Rules(lease_seconds=7))


def test_a_record_that_is_overtaken_again_is_excused_once() -> None:
    story = Story().sent(4, 4, 4, 9).done(2, 0).done(3, 1).done(4, 2)
    assert story.kinds() == set()
    assert check(story.events, STRICT).excused == 1


def test_a_receipt_that_nobody_noted_excuses_nothing_for_longer_than_a_lease() -> None:
    story = Story().sent(4, 9, 4, 4).done(2, 0).sent().sent().done(3, 2).sent().done(4, 3)
    assert story.inverted(Rules(lease_seconds=2))


def test_a_receipt_that_nobody_noted_excuses_nothing_after_a_kill() -> None:
    story = Story().sent(9, 9, 4, 4).done(2, 0).then(BrokerKilled).then(BrokerBack)
    assert story.done(RESTARTED + 1, 2).inverted()


def test_a_hot_successor_raises_its_lane() -> None:
    story = Story().sent(4, key="a").sent(0, 9, key="b")
    assert story.done(1, 0).inverted(BY_KEY)
    good = Story().sent(4, key="a").sent(0, 9, key="b").done(1, 1).done(2, 2).done(3, 0)
    assert good.kinds(BY_KEY) == set()


def test_by_its_head_a_lane_is_as_urgent_as_that() -> None:
    story = Story().sent(4, key="a").sent(0, 9, key="b")
    assert story.done(1, 0).done(2, 1).done(3, 2).kinds(BY_HEAD) == set()
    assert Story().sent(4, key="a").sent(0, 9, key="b").done(1, 1).inverted(BY_HEAD)


def test_a_successor_raises_its_lane_from_its_answer_on() -> None:
    story = Story().sent(4, key="a").sent(0, key="b").asked().sent(9, key="b").given(1, 0)
    assert story.kinds(BY_KEY) == set()
    assert story.done(2, 1).done(3, 2).kinds(BY_KEY) == set()


def test_a_lane_may_be_handed_out_for_a_successor_that_was_only_sent() -> None:
    def story() -> Story:
        return Story().sent(4, key="a").sent(0, key="b").asked().given(1, 1)

    assert story().sent(9, key="b", begun_at=2.5).kinds(BY_KEY) == set()
    assert story().sent(9, key="b", begun_at=3.5).inverted(BY_KEY)


def test_a_lane_is_ranked_at_its_level_by_its_head() -> None:
    story = Story().sent(0, key="a", at_ms=2).sent(0, key="b", at_ms=1).sent(9, key="a", at_ms=0).sent(9, key="b")
    assert story.done(1, 1).done(2, 3).done(3, 0).done(4, 2).kinds(BY_KEY) == set()
    assert Story().sent(0, key="a", at_ms=2).sent(0, key="b", at_ms=1).done(1, 0).inverted(BY_KEY)


def test_a_successor_waits_when_the_record_before_it_is_done() -> None:
    def story() -> Story:
        return Story().sent(4, key="a").sent(9, 9, key="b")

    assert story().asked("b").given(1, 1, "b").done(2, 0).kinds(BY_KEY) == set()
    assert story().done(1, 1).done(2, 0).inverted(BY_KEY)


def test_records_without_a_key_are_lanes_of_their_own() -> None:
    assert Story().sent(0, 9).done(1, 0).inverted(BY_KEY)


def test_ageing() -> None:
    def story() -> Story:
        return Story().sent(0, at_ms=0).sent(9, at_ms=8999).sent(9, at_ms=9001)

    assert story().done(1, 1).done(2, 0).done(3, 2).kinds(AGEING) == set()
    assert story().done(1, 1).done(2, 2).done(3, 0).inverted(AGEING)
    assert story().done(1, 0).inverted(AGEING)


def test_a_band_is_blind_for_the_others() -> None:
    story = Story().sent(9, 4, 5).asked(low=4, high=6).given(1, 2)
    assert story.kinds() == set()
    assert Story().sent(9, 4, 5).asked(low=4, high=6).given(1, 1).inverted()


def test_a_record_of_another_band() -> None:
    assert Story().sent(4).asked(low=7).given(1, 0).kinds() == {Kind.WRONG_BAND}
    assert Story().sent(4).asked(high=3).given(1, 0).kinds() == {Kind.WRONG_BAND}


def test_a_lane_that_may_have_risen_above_the_band_is_not_overtaken() -> None:
    story = Story().sent(0, key="a", at_ms=1).sent(0, key="b").asked(high=3).given(1, 0)
    assert story.inverted(BY_KEY)
    assert story.sent(9, key="b", begun_at=2.5).kinds(BY_KEY) == set()


def test_a_record_that_nobody_sent() -> None:
    assert Story().sent(4).done(1, 7).kinds() == {Kind.UNKNOWN}


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "rules",
    [Rules(), Rules(by_key=True), Rules(by_key=True, rank_by_lane=False), Rules(by_key=True, age_seconds=0.3)],
    ids=["no order", "lane", "head", "ageing"],
)
def test_a_perfect_queue_group_is_good_and_a_blind_one_is_not(rules: Rules, seed: int) -> None:
    for blind in (False, True):
        group = IdealGroup(random.Random(seed), rules, blind=blind)
        for _ in range(3000):
            group.step()
        group.end()
        report = check(group.events, rules)
        assert report.checked > 100
        assert report.excused < report.checked / 4
        assert bool(report.anomalies) == blind, report.anomalies
