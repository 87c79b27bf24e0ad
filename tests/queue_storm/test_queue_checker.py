"""The checker finds each anomaly in a small bad history, and nothing in good ones."""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec
import pytest

from tests.history import HistoryFile
from tests.queue_storm.queue_checker import EPOCH_BITS, Facts, Kind, check
from tests.queue_storm.queue_history import (
    Delivery,
    Event,
    How,
    RecordId,
    ResumeBegun,
    SettleBegun,
    SettleEnded,
    Taken,
    read_histories,
)

FIRST, SECOND, THIRD = (RecordId(0, offset) for offset in range(3))
RESTART = 1 << EPOCH_BITS


class Story:
    """Events one after the other, a second apart; one lane `k` of three records, and three attempts at each."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._numbers: dict[int, int] = {}

    def _at(self) -> float:
        return float(len(self.events))

    def taken(
        self, receipt: int, record_id: RecordId, *, attempt: int = 1, redelivered: bool = False, token: int = 0
    ) -> Story:
        delivery = Delivery(receipt, record_id, "k", attempt, redelivered, token)
        self.events.append(Taken(process=f"w{receipt}", at=self._at(), deliveries=[delivery]))
        return self

    def begun(self, receipt: int, how: How = How.ACK, *, delay: float = 0.0) -> Story:
        number = self._numbers[receipt] = len(self.events)
        self.events.append(
            SettleBegun(process="w", at=self._at(), number=number, how=how, receipts=[receipt], delay_seconds=delay)
        )
        return self

    def ended(self, receipt: int, *, refused: bool = False, answered: bool = True) -> Story:
        refusals = {receipt: "LEASE_LOST"} if refused else {}
        self.events.append(
            SettleEnded(process="w", at=self._at(), number=self._numbers[receipt], answered=answered, refused=refusals)
        )
        return self

    def settled(self, receipt: int, how: How = How.ACK, *, delay: float = 0.0) -> Story:
        return self.begun(receipt, how, delay=delay).ended(receipt)

    def done(self, receipt: int, record_id: RecordId, **fields: bool) -> Story:
        return self.taken(receipt, record_id, **fields).settled(receipt)

    def resumed(self) -> Story:
        self.events.append(ResumeBegun(process="operator", at=self._at(), key="k"))
        return self

    def kinds(
        self, *, dead: tuple[RecordId, ...] = (), attempts: int = 3, set_aside: bool = False, records: int = 3
    ) -> set[enum.Enum]:
        lane = [RecordId(0, offset) for offset in range(records)]
        letters = {record_id: [attempts] * dead.count(record_id) for record_id in dead}
        facts = Facts(lanes={"k": lane}, dead=letters, max_attempts=3, set_aside=set_aside)
        return {anomaly.kind for anomaly in check(self.events, facts)}


def test_a_lane_worked_off_in_order_is_good() -> None:
    assert Story().done(1, FIRST).done(2, SECOND).done(3, THIRD).kinds() == set()


def test_a_record_that_fails_comes_again_after_its_backoff() -> None:
    story = Story().taken(1, FIRST).settled(1, How.NACK, delay=1.0).taken(2, FIRST, attempt=2).settled(2)
    assert story.done(3, SECOND).done(4, THIRD).kinds() == set()


def test_a_late_acknowledgement_that_is_refused_is_good() -> None:
    story = Story().taken(1, FIRST).taken(2, FIRST, attempt=2).begun(1).ended(1, refused=True).settled(2)
    assert story.done(3, SECOND).done(4, THIRD).kinds() == set()


def test_an_acknowledgement_without_an_answer_may_be_lost_with_the_broker() -> None:
    story = Story().taken(1, FIRST).begun(1).taken(2, SECOND).ended(1, answered=False)
    story.done(RESTART + 1, FIRST, redelivered=True).done(RESTART + 2, SECOND, redelivered=True)
    assert story.done(RESTART + 3, THIRD).kinds() == set()


def test_a_frozen_program_may_see_a_delivery_late() -> None:
    story = Story().taken(2, FIRST, attempt=2).settled(2).taken(1, FIRST).begun(1).ended(1, refused=True)
    assert story.done(3, SECOND).done(4, THIRD).kinds() == set()


def test_a_dead_letter_lets_its_lane_go_on() -> None:
    story = Story()
    for receipt in (1, 2, 3):
        story.taken(receipt, FIRST, attempt=receipt).settled(receipt, How.NACK, delay=0.5)
    assert story.done(4, SECOND).done(5, THIRD).kinds(dead=(FIRST,)) == set()


def test_a_lane_that_is_set_aside_goes_on_when_it_is_resumed() -> None:
    story = Story()
    for receipt in (1, 2, 3):
        story.taken(receipt, FIRST, attempt=receipt).settled(receipt, How.NACK)
    story.resumed().done(4, FIRST, redelivered=True)
    assert story.done(5, SECOND).done(6, THIRD).kinds(set_aside=True) == set()


def test_several_of_one_session_may_be_in_flight() -> None:
    story = Story()
    for receipt, record_id in enumerate((FIRST, SECOND, THIRD), 1):
        story.taken(receipt, record_id, token=7)
    # They are handed out before the one before is finished: such lanes are only looked at for what is in flight.
    assert Kind.TWO_IN_FLIGHT not in story.settled(1).settled(2).settled(3).kinds()


def test_two_in_flight() -> None:
    story = Story().taken(1, FIRST).taken(2, SECOND).settled(1).settled(2).done(3, THIRD)
    assert story.kinds() == {Kind.TWO_IN_FLIGHT, Kind.OUT_OF_ORDER}


def test_late_acknowledgement_accepted() -> None:
    story = Story().taken(1, FIRST).taken(2, FIRST, attempt=2).settled(1).begun(2).ended(2, refused=True)
    assert story.done(3, SECOND).done(4, THIRD).kinds() == {Kind.LATE_SETTLEMENT}


@pytest.mark.parametrize("again", [2, RESTART + 1])
def test_answered_acknowledgement_lost(again: int) -> None:
    story = Story().done(1, FIRST).done(again, FIRST, redelivered=True)
    assert story.done(again + 1, SECOND).done(again + 2, THIRD).kinds() == {Kind.ACK_LOST}


def test_out_of_order() -> None:
    assert Story().done(1, SECOND).done(2, THIRD).done(3, FIRST).kinds() == {Kind.OUT_OF_ORDER, Kind.CAME_AGAIN}


def test_came_again_after_its_successor() -> None:
    story = Story().taken(1, FIRST).begun(1).ended(1, answered=False).done(2, SECOND)
    assert story.done(3, FIRST, redelivered=True).done(4, THIRD).kinds() == {Kind.CAME_AGAIN}


def test_unmarked_repeat() -> None:
    story = Story().taken(1, FIRST).done(2, FIRST)
    assert story.done(3, SECOND).done(4, THIRD).kinds() == {Kind.UNMARKED_REPEAT}


def test_attempts_forgotten() -> None:
    story = Story().taken(1, FIRST).settled(1, How.NACK).done(RESTART + 2, FIRST, redelivered=True)
    assert story.done(RESTART + 3, SECOND).done(RESTART + 4, THIRD).kinds() == {Kind.ATTEMPTS_FORGOTTEN}


def test_too_early() -> None:
    story = Story().taken(1, FIRST).settled(1, How.NACK, delay=9.0).taken(2, FIRST, attempt=2).settled(2)
    assert story.done(3, SECOND).done(4, THIRD).kinds() == {Kind.TOO_EARLY}


def test_a_successor_that_comes_during_the_backoff_is_too_early() -> None:
    story = Story().taken(1, FIRST).settled(1, How.NACK, delay=9.0).done(2, SECOND)
    assert Kind.TOO_EARLY in story.kinds()


def test_leaked() -> None:
    story = Story()
    for receipt in (1, 2, 3):
        story.taken(receipt, FIRST, attempt=receipt).settled(receipt, How.NACK)
    story.done(4, SECOND).resumed().done(5, FIRST, redelivered=True).done(6, THIRD)
    assert Kind.LEAKED in story.kinds(set_aside=True)


def test_lost() -> None:
    assert Story().done(1, FIRST).done(2, SECOND).kinds() == {Kind.LOST}


def test_dead_twice() -> None:
    story = Story()
    for receipt in (1, 2, 3):
        story.taken(receipt, FIRST, attempt=receipt).settled(receipt, How.NACK)
    assert story.done(4, SECOND).done(5, THIRD).kinds(dead=(FIRST, FIRST)) == {Kind.DEAD_TWICE}


@pytest.mark.parametrize(("how", "attempts"), [(How.ACK, 3), (How.NACK, 2)])
def test_dead_wrongly(how: How, attempts: int) -> None:
    story = Story().taken(1, FIRST).settled(1, how).done(2, SECOND).done(3, THIRD)
    assert story.kinds(dead=(FIRST,), attempts=attempts) == {Kind.DEAD_WRONGLY}


def test_unknown() -> None:
    assert Story().done(1, FIRST).done(2, SECOND).kinds(records=1) == {Kind.UNKNOWN}


def test_histories_come_back_in_the_order_of_their_times(tmp_path: Path) -> None:
    story = Story().taken(1, FIRST).settled(1, How.NACK, delay=2.5).resumed()
    files = [HistoryFile(tmp_path / name, name) for name in ("a", "b")]
    for number, event in enumerate(story.events):
        fields = msgspec.structs.asdict(event)
        files[number % 2].write(type(event), **fields)
    assert read_histories(tmp_path.iterdir()) == story.events
