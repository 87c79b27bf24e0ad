"""Single stories of a queue group; what must hold in all of them is in `test_queue_stateful`."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from logbroker.errors import CorruptLogError, InvalidRequestError
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Extension, Nack, NoticeKind, Settlement
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import OnExhausted, Ordering, QueueGroupSettings
from logbroker.queues.state.dead_letter_intents import WHOLE_TOPIC
from logbroker.queues.state.rows import HEADER_ROW
from tests.queues.groups import TOPIC_ID, ack, admit, at, commit, keep, nack, new_queue, receipts, record_ids, restart


def test_a_failing_key_holds_only_itself() -> None:
    queue = new_queue(backoff_initial_seconds=5.0)
    admit(queue, [b"bad", b"good", b"bad", b"good"])
    first = queue.take("w", 10, at(0))
    assert record_ids(first) == [0, 1]
    bad, good = receipts(first)
    queue.settle("w", Settlement(acks=[(good, good)], nacks=[Nack(bad, bad, "no")]), at(0))
    assert record_ids(queue.take("w", 10, at(1))) == [3]
    assert queue.deadline() == 5.0
    again = queue.take("w", 10, at(5))
    assert record_ids(again) == [0]
    assert (again[0].attempts, again[0].redelivered) == ([2], [True])
    ack(queue, again, 5)
    assert record_ids(queue.take("w", 10, at(5))) == [2]


def test_a_nack_may_name_its_delay_and_a_century_is_refused() -> None:
    queue = new_queue()
    admit(queue, [b"k"])
    (receipt,) = receipts(queue.take("w", 1, at(0)))
    refusals = queue.settle("w", Settlement(nacks=[Nack(receipt, receipt, "", 3.2e9)]), at(0))
    assert [type(refusal.error) for refusal in refusals] == [InvalidRequestError]
    refusals = queue.settle("w", Settlement(extensions=[Extension(receipt, receipt, 0.0)]), at(0))
    assert [type(refusal.error) for refusal in refusals] == [InvalidRequestError]
    assert queue.settle("w", Settlement(nacks=[Nack(receipt, receipt, "", 60.0)]), at(0)) == []
    assert queue.take("w", 1, at(59)) == []
    assert record_ids(queue.take("w", 1, at(60))) == [0]


@pytest.mark.parametrize("credit", [0, -1])
def test_without_credit_there_is_nothing(credit: int) -> None:
    queue = new_queue()
    admit(queue, [b"k"])
    assert queue.take("w", credit, at(0)) == []


def test_a_worker_that_never_answers_holds_no_more_than_it_may() -> None:
    queue = new_queue(max_in_flight=3)
    admit(queue, [b"%d" % number for number in range(10)])
    assert len(record_ids(queue.take("w", 1 << 31, at(0)))) == 3
    assert queue.take("w", 1 << 31, at(0)) == []
    assert len(record_ids(queue.take("v", 1 << 31, at(0)))) == 3


def test_a_broken_stream_keeps_its_deliveries_for_the_grace_and_a_goodbye_does_not() -> None:
    queue = new_queue(grace_seconds=2.0)
    admit(queue, [b"a", b"b"])
    held = queue.take("w", 1, at(0))
    queue.lifecycle.gone("w", at(1))
    assert record_ids(queue.take("v", 5, at(2))) == [1]
    assert queue.lifecycle.back("w", at(2.5))
    ack(queue, held, 2.5)
    queue.lifecycle.goodbye("v", at(3))
    again = queue.take("w", 5, at(3))
    assert record_ids(again) == [1]
    assert (again[0].attempts, again[0].redelivered) == ([], [True])
    queue.lifecycle.gone("w", at(3))
    queue.tick(at(5))
    assert not queue.lifecycle.back("w", at(5))
    assert queue.failures.count(1) == 1


def test_without_a_grace_takeover_is_instant() -> None:
    queue = new_queue(grace_seconds=0.0, backoff_initial_seconds=0.0)
    admit(queue, [b"a"])
    queue.take("w", 1, at(0))
    queue.lifecycle.gone("w", at(0))
    assert record_ids(queue.take("v", 1, at(0))) == [0]


def test_a_lane_parks_with_what_is_still_to_arrive_also_after_a_start() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    admit(queue, [b"k", b"k", b"other"])
    first = queue.take("w", 1, at(0))
    nack(queue, first)
    outputs = queue.take_outputs()
    keep(outputs, rows)
    assert [(notice.kind, notice.key) for notice in outputs.notices] == [(NoticeKind.PARKED, b"k")]
    admit(queue, [b"k"], start=3)
    commit(queue, rows)
    queue = restart(rows, 4)
    admit(queue, [b"k", b"k", b"other", b"k"])
    assert record_ids(queue.take("w", 10, at(0))) == [2]


def test_a_lane_is_moving_while_its_letter_is_under_way() -> None:
    """Otherwise a group whose only lane sends a letter would look as if it were worked off."""
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="dead")
    inspector = Inspector(queue)
    admit(queue, [b"k", b"k", b"k"])
    nack(queue, queue.take("w", 1, at(0)))
    (letter,) = queue.take_outputs().dead_letters
    counts = inspector.counts()
    assert (counts.open, counts.ready, counts.in_flight, counts.moving_lanes) == (3, 0, 0, 1)
    for partition in (WHOLE_TOPIC, letter.partition):
        queue.dead_letters.trouble(partition, "offline")
        assert inspector.counts().moving_lanes == 0
        queue.dead_letters.trouble(partition, "")
        assert inspector.counts().moving_lanes == 1
    queue.dead_letters.trouble(letter.partition + 1, "offline")
    assert inspector.counts().moving_lanes == 1
    queue.dead_letters.refuse(letter, "too large")
    assert inspector.counts().moving_lanes == 0
    queue.dead_letters.trouble(letter.partition + 1, "")
    assert inspector.counts().moving_lanes == 0


def test_dead_letters_keep_attempts_reasons_and_times() -> None:
    queue = new_queue(max_attempts=2, on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="dead")
    admit(queue, [b"k", b"k"])
    nack(queue, queue.take("w", 1, at(1)), 1, 0.0)
    nack(queue, queue.take("w", 1, at(2)), 2)
    (letter,) = queue.take_outputs().dead_letters
    assert (letter.record_id, letter.sequence, letter.attempts) == (0, 0, 2)
    assert (letter.first_ms, letter.last_ms, letter.reasons) == (1000, 2000, ("broken", "broken"))
    assert queue.take("w", 1, at(3)) == []
    queue.dead_lettered(0, at(3))
    assert record_ids(queue.take("w", 1, at(3))) == [1]


def test_an_ordering_changes_when_what_is_in_flight_is_settled() -> None:
    queue = new_queue(ordering=Ordering.SINGLE)
    queue.admit(0, 1, range(3), 3, (), (), at(0))
    held = queue.take("w", 10, at(0))
    assert record_ids(held) == [0]
    assert queue.wants_more
    queue.alter(QueueGroupSettings(ordering=Ordering.KEY))
    assert queue.take("w", 10, at(0)) == []
    paused = not queue.wants_more
    assert paused
    ack(queue, held)
    assert queue.take_outputs().rescan
    assert queue.position(0) == 1
    queue.begin_generation(1, ())
    queue.admit(0, 1, range(3), 3, [b"a", b"a", b"b"], (), at(0))
    assert record_ids(queue.take("w", 10, at(0))) == [1, 2]


def test_the_scan_goes_forward_only() -> None:
    queue = new_queue(partitions=2)
    admit(queue, [b"k"] * 5)
    with pytest.raises(ValueError, match="goes forward"):
        admit(queue, [b"k"] * 5)
    with pytest.raises(ValueError, match="only reached 0"):
        queue.begin_generation(2, (5, 3))
    admit(queue, [b"k"] * 3, partition=1)
    queue.begin_generation(2, (5, 3))
    with pytest.raises(ValueError, match="generation 1"):
        admit(queue, [b"k"], start=5)


def test_the_scan_pauses_where_enough_is_ready() -> None:
    queue = new_queue(max_ready_records=3, max_held_lanes=2, backoff_initial_seconds=9.0)
    going: list[bool] = []
    admit(queue, [b"a", b"b", b"b"])
    going.append(queue.wants_more)
    admit(queue, [b"c"], start=3)
    going.append(queue.wants_more)
    nack(queue, queue.take("w", 2, at(0)))
    going.append(queue.wants_more)
    queue.tick(at(9))
    ack(queue, queue.take("w", 9, at(9)), 9)
    going.append(queue.wants_more)
    assert going == [True, False, False, True]


def test_offsets_without_records_do_not_hold_the_floor() -> None:
    queue = new_queue()
    queue.admit(0, 1, [3, 7], 12, [b"a", b"b"], (), at(0))
    assert queue.done.floor(0) == 3
    ack(queue, queue.take("w", 2, at(0)))
    assert queue.done.floor(0) == 12


def test_none_hands_out_runs_and_takes_them_back() -> None:
    queue = new_queue(ordering=Ordering.NONE)
    queue.admit(0, 1, range(1000), 1000, (), (), at(0))
    (run,) = queue.take("w", 400, at(0))
    assert run.record_ids == range(400)
    first = run.first_receipt
    queue.settle("w", Settlement(acks=[(first + 100, first + 199)], releases=[(first, first + 99)]), at(0))
    again = queue.take("v", 150, at(0))
    assert [piece.record_ids for piece in again] == [range(100), range(400, 450)]
    assert again[0].redelivered == [True] * 100
    assert again[1].redelivered == []
    queue.lifecycle.goodbye("w", at(0))
    assert queue.take("v", 10, at(0))[0].record_ids == range(200, 210)


def test_what_the_log_lost_is_not_done_any_more_and_has_no_failures() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(max_attempts=1)
    admit(queue, [b"a", b"b", b"c", b"d"])
    granted = queue.take("w", 10, at(0))
    first = granted[0].first_receipt
    queue.settle("w", Settlement(acks=[(first, first + 1)], nacks=[Nack(first + 2, first + 2, "no")]), at(0))
    commit(queue, rows)
    queue = restart(rows, 1)
    commit(queue, rows)
    assert not [key for key in rows if key.startswith(b"a")]
    queue = restart(rows, 4)
    assert queue.position(0) == 1
    queue.admit(0, 1, range(1, 4), 4, [b"x", b"y", b"z"], (), at(0))
    assert record_ids(queue.take("w", 10, at(0))) == [1, 2, 3]


def test_a_lane_whose_failed_record_the_log_lost_is_parked_no_more() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    admit(queue, [b"k", b"k"])
    nack(queue, queue.take("w", 1, at(0)))
    commit(queue, rows)
    queue = restart(rows, 0)
    commit(queue, rows)
    assert not [key for key in rows if key[:1] in b"ak"]
    admit(queue, [b"k"])
    assert record_ids(queue.take("w", 1, at(0))) == [0]


def test_a_parked_lane_can_be_resumed_before_the_scan_has_met_it() -> None:
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    admit(queue, [b"k"])
    nack(queue, queue.take("w", 1, at(0)))
    queue = restart(commit(queue, {}), 1)
    inspector = Inspector(queue)
    inspector.resume(inspector.lane(b"k"))
    admit(queue, [b"k"])
    (granted,) = queue.take("w", 1, at(0))
    assert (granted.record_ids, granted.attempts, granted.redelivered) == ([0], [], [True])


def test_what_a_worker_held_before_a_crash_it_can_have_again() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue()
    admit(queue, [b"a", b"b", b"c"])
    held = queue.take("w", 2, at(0))
    queue = restart(commit(queue, rows), 3)
    admit(queue, [b"a", b"b", b"c"])
    again = queue.reclaim("w", [*record_ids(held), 77], at(1))
    assert record_ids(again) == [0, 1]
    assert set(receipts(again)).isdisjoint(receipts(held))
    assert record_ids(queue.take("v", 9, at(1))) == [2]


def test_after_a_clean_stop_only_what_was_handed_out_is_marked() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue()
    admit(queue, [b"%d" % number for number in range(6)])
    queue.take("w", 2, at(0))
    for event in queue.stop_events():
        assert event.value is not None
        rows[event.key] = event.value
    # The second start is a crash: the first began a group epoch, and did not end it cleanly.
    for after_crash, marked in ((False, 2), (True, 6)):
        queue = restart(rows, 6)
        commit(queue, rows)
        assert queue.after_crash == after_crash
        admit(queue, [b"%d" % number for number in range(6)])
        (granted,) = queue.take("w", 10, at(0))
        assert granted.redelivered == [number < marked for number in range(6)]


def test_an_acknowledgement_of_many_records_of_a_page_is_one_row() -> None:
    queue = new_queue()
    admit(queue, [b"%d" % number for number in range(1000)])
    queue.take_outputs()
    granted = queue.take("w", 1000, at(0))
    queue.settle("w", Settlement(acks=[(granted[0].first_receipt, granted[0].first_receipt + 999)]), at(0))
    assert len(queue.take_outputs().events) == 1


def test_delays_hold_the_lane_or_only_the_record() -> None:
    for ordering, expected in ((Ordering.KEY, [1]), (Ordering.NONE, [1, 2])):
        queue = new_queue(ordering=ordering)
        keys = [b"a", b"b", b"a"] if ordering is Ordering.KEY else []
        queue.admit(0, 1, range(3), 3, keys, [(0, 5_000)], at(0))
        assert record_ids(queue.take("w", 10, at(4))) == expected
        assert 0 in record_ids(queue.take("w", 10, at(5)))


@pytest.mark.parametrize(
    "spoilt",
    [
        {},
        {HEADER_ROW: b"\xc1"},
        {HEADER_ROW: b"\x94\x02\xa5queue\xc4\x00\x01"},
        {b"a" + bytes(12): b"\x90"},
        {b"a": b""},
    ],
    ids=["no header", "no msgpack", "a later layout", "an empty failure", "a short key"],
)
def test_rows_that_cannot_be_read_are_refused(spoilt: dict[bytes, bytes]) -> None:
    rows = commit(new_queue(), {})
    with pytest.raises(CorruptLogError):
        restart({**rows, **spoilt} if spoilt else {}, 1)


def test_two_partitions_do_not_share_a_floor() -> None:
    queue = new_queue(partitions=2)
    admit(queue, [b"a", b"b"])
    admit(queue, [b"c"], partition=1)
    granted = queue.take("w", 10, at(0))
    assert granted[0].partitions() == [0, 0, 1]
    assert granted[0].offsets() == [0, 1, 0]
    queue.settle("w", Settlement(acks=[(granted[0].first_receipt + 2, granted[0].first_receipt + 2)]), at(0))
    assert (queue.done.floor(0), queue.done.floor(1)) == (0, 1)
    assert record_id_of(1, 0) in queue.done


def test_any_number_of_records_that_are_done_behind_a_head_is_passed_over() -> None:
    """Dead letters that were on their way when another ordering made one lane of their records."""
    count = 1_000
    numbers = itertools.count()
    settings = QueueGroupSettings(
        ordering=Ordering.NONE, max_attempts=1, on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="dead"
    )
    queue = Queue(TOPIC_ID, settings, random=lambda: 0.0, route=lambda key: next(numbers))
    queue.open_partition(0, 0)
    queue.begin_generation(1, ())
    admit(queue, [None] * count)
    nack(queue, queue.take("w", count, at(0)))
    assert len(queue.take_outputs().dead_letters) == count
    queue.alter(msgspec.structs.replace(settings, ordering=Ordering.KEY))
    queue.begin_generation(1, ())
    admit(queue, [b"k"] * (count + 1))
    for record_id in reversed(range(count)):
        queue.dead_lettered(record_id, at(0))
    assert queue.open_records == 1
    assert record_ids(queue.take("w", 10, at(0))) == [count]
