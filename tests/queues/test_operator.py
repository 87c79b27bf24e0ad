"""An operator's view of a queue group, and decisions."""

from __future__ import annotations

import pytest

from logbroker.errors import LaneNotHeldError, OverloadedError, RecordTooLargeError, UnknownLaneError
from logbroker.queues.machine.inspect import AlarmKind, Inspector
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Extension, Settlement
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import OnExhausted, Ordering
from logbroker.queues.records.ages import MAX_SAMPLES, Ages
from logbroker.record.codec import LogRecord
from tests.queues.groups import ack, admit, at, commit, keep, nack, new_queue, record_ids, restart


def test_explain_says_why_a_key_stands_still() -> None:
    queue = new_queue(max_attempts=2, backoff_initial_seconds=5.0)
    inspector = Inspector(queue)
    admit(queue, [b"k", b"k", b"k"])
    facts = inspector.explain(inspector.lane(b"k"), at(0))
    assert (facts.state, facts.waiting, facts.attempt, facts.worker_id) == ("ready", 3, 1, "")
    granted = queue.take("w", 1, at(0))
    facts = inspector.explain(inspector.lane(b"k"), at(10))
    assert (facts.state, facts.worker_id, facts.due_in_seconds, facts.held_seconds) == ("in flight", "w", 20.0, 10.0)
    receipt = granted[0].first_receipt
    queue.settle("w", Settlement(extensions=[Extension(receipt, receipt, 30.0)]), at(10))
    facts = inspector.explain(inspector.lane(b"k"), at(10))
    assert (facts.due_in_seconds, facts.held_seconds) == (30.0, 10.0)
    nack(queue, granted, 10)
    facts = inspector.explain(inspector.lane(b"k"), at(11))
    assert (facts.state, facts.due_in_seconds, facts.attempt, facts.held_seconds) == ("waiting", 4.0, 2, 0.0)
    assert facts.failure is not None
    assert facts.failure.reasons == ("broken",)
    nack(queue, queue.take("w", 1, at(15)), 15)
    assert inspector.explain(inspector.lane(b"k"), at(20)).state == "blocked"
    assert inspector.counts().held_lanes == 1


def test_only_held_lanes_can_be_moved() -> None:
    queue = new_queue()
    inspector = Inspector(queue)
    with pytest.raises(UnknownLaneError, match=r"the queue group has no waiting records of key 'k'$"):
        inspector.lane(b"k")
    with pytest.raises(UnknownLaneError, match="not the first record"):
        inspector.lane_of_record(0)
    admit(queue, [b"k"])
    with pytest.raises(LaneNotHeldError, match="the lane is ready"):
        inspector.resume(inspector.lane(b"k"))
    queue.take("w", 1, at(0))
    with pytest.raises(LaneNotHeldError, match="in flight"):
        inspector.drop(inspector.lane(b"k"))


@pytest.mark.parametrize("policy", [OnExhausted.BLOCK, OnExhausted.PARK])
@pytest.mark.parametrize("restarted", [False, True])
def test_resume_skip_and_drop(policy: OnExhausted, restarted: bool) -> None:
    for how, left in (("resume", [0, 1, 2]), ("skip", [1, 2]), ("drop", [])):
        queue = new_queue(max_attempts=1, on_exhausted=policy)
        admit(queue, [b"k", b"k", b"k"])
        nack(queue, queue.take("w", 1, at(0)))
        rows = commit(queue, {})
        if restarted:
            queue = restart(rows, 3)
            admit(queue, [b"k", b"k", b"k"])
        inspector = Inspector(queue)
        (lane,) = inspector.held()
        if how == "resume":
            inspector.resume(lane)
        elif how == "skip":
            inspector.skip(lane, at(0))
        else:
            assert inspector.drop(lane) == 3
        assert inspector.held() == []
        seen = []
        while granted := queue.take("w", 1, at(1)):
            assert granted[0].attempts in ([], [1])
            seen += record_ids(granted)
            ack(queue, granted, 1)
        assert seen == left
        commit(queue, rows)
        assert queue.done.floor(0) == 3
        assert not [key for key in rows if key[:1] in b"ak"]


def test_a_record_without_a_key_is_found_by_its_record_id() -> None:
    queue = new_queue(max_attempts=1, ordering=Ordering.NONE, on_exhausted=OnExhausted.PARK)
    inspector = Inspector(queue)
    queue.admit(0, 1, range(3), 3, (), (), at(0))
    nack(queue, queue.take("w", 1, at(0)))
    assert inspector.counts().parked == 1
    inspector.resume(inspector.lane_of_record(0))
    assert sorted(record_ids(queue.take("w", 5, at(0)))) == [0, 1, 2]


def replacement(record_id: int, value: bytes = b"mended") -> LogRecord:
    return LogRecord(record_id, 1000, b"k", value, (("header", b"x"), ("none", None)))


@pytest.mark.parametrize("policy", list(OnExhausted))
@pytest.mark.parametrize("restarted", [False, True])
def test_a_head_is_replaced_until_it_is_done(policy: OnExhausted, restarted: bool) -> None:
    rows: dict[bytes, bytes] = {}
    dead = "dead" if policy is OnExhausted.DEAD_LETTER else ""
    queue = new_queue(max_attempts=2, on_exhausted=policy, dead_letter_topic=dead, backoff_initial_seconds=9.0)
    inspector = Inspector(queue)
    admit(queue, [b"k", b"k"])
    nack(queue, queue.take("w", 1, at(0)))
    inspector.replace_head(inspector.lane(b"k"), replacement(0))
    commit(queue, rows)
    if restarted:
        queue = restart(rows, 2)
        admit(queue, [b"k", b"k"])
    assert queue.replacements.get(0) == replacement(0)
    for _ in range(2):
        (granted,) = queue.take("w", 9, at(100))
        assert (granted.record_ids, granted.redelivered) == ([0], [True])
        nack(queue, [granted], 0, 0.0)
    if policy is OnExhausted.DEAD_LETTER:
        outputs = queue.take_outputs()
        keep(outputs, rows)
        (letter,) = outputs.dead_letters
        assert letter.attempts == 2
        assert queue.replacements.get(letter.record_id) == replacement(0)
        queue.dead_lettered(letter.record_id, at(0))
    else:
        inspector = Inspector(queue)
        inspector.skip(inspector.lane(b"k"), at(0))
    assert record_ids(queue.take("w", 9, at(0))) == [1]
    assert not queue.replacements.records
    assert not [key for key in commit(queue, rows) if key.startswith(b"r")]


def test_without_an_order_a_replaced_record_leaves_its_run() -> None:
    queue = new_queue(ordering=Ordering.NONE, max_attempts=1)
    queue.admit(0, 1, range(3), 3, (), (), at(0))
    nack(queue, queue.take("w", 1, at(0)))
    inspector = Inspector(queue)
    inspector.replace_head(inspector.lane_of_record(0), replacement(0))
    queue = restart(commit(queue, {}), 3)
    queue.admit(0, 1, range(3), 3, (), (), at(0))
    assert [piece.record_ids for piece in queue.take("w", 9, at(0))] == [[0], range(1, 3)]


def test_replacements_are_bounded_and_of_what_the_log_has() -> None:
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    inspector = Inspector(queue)
    admit(queue, [b"k"])
    nack(queue, queue.take("w", 1, at(0)))
    with pytest.raises(RecordTooLargeError, match="skip"):
        inspector.replace_head(inspector.lane(b"k"), replacement(0, bytes(1 << 20)))
    inspector.replace_head(inspector.lane(b"k"), replacement(0))
    with pytest.raises(LaneNotHeldError):
        inspector.replace_head(inspector.lane(b"k"), replacement(0))
    for record_id in range(1, 65):
        queue.replacements.put(record_id, replacement(record_id, bytes((1 << 20) - 100)))
    nack(queue, queue.take("w", 1, at(0)))
    with pytest.raises(OverloadedError):
        inspector.replace_head(inspector.lane(b"k"), replacement(0, bytes((1 << 20) - 100)))
    rows = commit(queue, {})
    queue = restart(rows, 0)
    commit(queue, rows)
    assert not [key for key in rows if key[:1] == b"r"]
    queue = restart({**rows, **commit(park_only(), {})}, 1)
    inspector = Inspector(queue)
    with pytest.raises(UnknownLaneError, match="scanned"):
        inspector.replace_head(inspector.lane(b"k"), replacement(0))


def park_only() -> Queue:
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    admit(queue, [b"k"])
    nack(queue, queue.take("w", 1, at(0)))
    return queue


def test_the_hottest_lanes_and_the_alarms() -> None:
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK, max_parked_records=100, alarm_age_seconds=60.0)
    inspector = Inspector(queue)
    admit(queue, [b"hot"] * 2000 + [b"cold"] * 5)
    assert [lane.key for lane in inspector.hottest(1)] == [b"hot"]
    assert [(alarm.kind, alarm.key) for alarm in inspector.alarms(at(0))] == [(AlarmKind.SHARE, b"hot")]
    nack(queue, queue.take("w", 1, at(0)))
    assert {alarm.kind for alarm in inspector.alarms(at(59))} == {AlarmKind.SHARE, AlarmKind.PARKED}
    assert {alarm.kind for alarm in inspector.alarms(at(61))} == {AlarmKind.SHARE, AlarmKind.PARKED, AlarmKind.AGE}


@pytest.mark.parametrize(("policy", "state"), [(OnExhausted.BLOCK, "blocked"), (OnExhausted.PARK, "parked")])
def test_the_alarm_for_a_large_lane_says_that_it_is_held(policy: OnExhausted, state: str) -> None:
    queue = new_queue(alarm_share=0.0, max_attempts=1, on_exhausted=policy)
    inspector = Inspector(queue)
    admit(queue, [b"hot"] * 520)
    why = "520 of 520 waiting records are of one key"
    assert [alarm.message for alarm in inspector.alarms(at(0))] == [why]
    nack(queue, queue.take("w", 1, at(0)), 0)
    assert [alarm.message for alarm in inspector.alarms(at(0))] == [f"{why}, which is {state}"]


def test_a_lane_of_512_records_raises_no_alarm_by_its_share_and_one_more_does() -> None:
    """As settings, help and docs say: whether the lane grows to it, or shrinks to it."""
    queue = new_queue(alarm_share=0.0)
    inspector = Inspector(queue)
    shares = []
    for offset in range(600):
        admit(queue, [b"hot"], start=offset)
        shares.append([alarm.kind for alarm in inspector.alarms(at(0))])
    assert shares == [[]] * 512 + [[AlarmKind.SHARE]] * 88
    shares.clear()
    for _ in range(200):
        ack(queue, queue.take("w", 1, at(0)))
        shares.append([alarm.kind for alarm in inspector.alarms(at(0))])
    assert shares == [[AlarmKind.SHARE]] * 87 + [[]] * 113


def test_a_record_that_waits_for_too_long_raises_an_alarm() -> None:
    queue = new_queue(partitions=2, alarm_age_seconds=60.0, alarm_share=1.0)
    inspector = Inspector(queue)
    queue.admit(0, 1, range(1000), 1000, [b"slow"] * 1000, (), at(0), 10_000)
    queue.admit(0, 1, range(1000, 1010), 1010, [b"other"] * 10, (), at(0), 20_000)
    queue.admit(1, 1, range(1), 1, [b"delayed"], [(0, 200_000)], at(0), 10_000)
    assert inspector.alarms(at(70)) == []
    causes = [(alarm.kind, alarm.key, alarm.record_id) for alarm in inspector.alarms(at(71))]
    assert causes == [(AlarmKind.AGE, b"slow", -1), (AlarmKind.AGE, None, 0)]
    for _ in range(1000):
        ack(queue, queue.take("w", 1, at(71)), 71)
    assert "offset" in inspector.alarms(at(81))[0].message


def test_ages_take_little_memory_and_stay_about_right() -> None:
    ages = Ages()
    assert ages.timestamp_ms(record_id_of(0, 5)) is None
    for number in range(100_000):
        ages.admit(record_id_of(1, 10 * number), 5000 * number)
    assert len(ages._samples[1].record_ids) <= MAX_SAMPLES
    for offset in (0, 5, 123_456, 999_999):
        timestamp_ms = ages.timestamp_ms(record_id_of(1, offset))
        assert timestamp_ms is not None
        assert 0 <= offset * 500 - timestamp_ms <= 500_000


def test_a_dropped_lane_leaves_nothing_of_the_times_that_its_records_waited_for() -> None:
    queue = new_queue(max_attempts=1, max_delayed_records=2)
    inspector = Inspector(queue)
    queue.admit(0, 1, range(3), 3, [b"k", b"k", b"k"], [(1, 10_000), (2, 10_000)], at(0))
    pauses = [not queue.wants_more]
    nack(queue, queue.take("w", 1, at(0)))
    assert inspector.drop(inspector.lane(b"k")) == 3
    pauses.append(not queue.wants_more)
    assert pauses == [True, False], "the scan waits for records that are done"
    assert not queue.stalled.attention
