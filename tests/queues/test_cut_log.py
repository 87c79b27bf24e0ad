"""State never runs ahead of the log: what is known of records that a cut log has not any more is dropped at the start,
so that the records which take their offsets begin anew."""

from __future__ import annotations

from typing import Any

import pytest

from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.settings import OnExhausted
from logbroker.queues.state.rows import FAILURE_ROW, INTENT_ROW, PARKED_ROW
from tests.queues.groups import ack, admit, at, commit, nack, new_queue, record_ids, restart

KEPT, CUT = b"kept", b"cut"


def failed(rows: dict[bytes, bytes], **settings: Any) -> Queue:
    """Each of three records has failed once: the heads of two lanes, and one without a key."""
    queue = new_queue(**settings)
    admit(queue, [KEPT, CUT, None])
    nack(queue, queue.take("w", 3, at(0)))
    commit(queue, rows)
    return queue


def cut(rows: dict[bytes, bytes], end: int) -> Queue:
    """The log ends there now, and other records come; the first outputs of the new group epoch are kept."""
    queue = restart(rows, end)
    commit(queue, rows)
    return queue


def kinds(rows: dict[bytes, bytes], kind: bytes) -> int:
    return sum(key.startswith(kind) for key in rows)


def test_failures_above_the_end_are_forgotten() -> None:
    rows: dict[bytes, bytes] = {}
    failed(rows)
    assert kinds(rows, FAILURE_ROW) == 3
    queue = cut(rows, 1)
    assert kinds(rows, FAILURE_ROW) == 1
    admit(queue, [KEPT, CUT])
    [granted] = queue.take("w", 9, at(100))
    assert dict(zip(granted.record_ids, granted.attempts, strict=True)) == {0: 2, 1: 1}


def test_lanes_that_a_lost_record_parked_go_on() -> None:
    rows: dict[bytes, bytes] = {}
    failed(rows, on_exhausted=OnExhausted.PARK, max_attempts=1)
    assert kinds(rows, PARKED_ROW) == 2
    queue = cut(rows, 1)
    assert kinds(rows, PARKED_ROW) == 1
    admit(queue, [KEPT, CUT])
    assert record_ids(queue.take("w", 9, at(100))) == [1]
    inspector = Inspector(queue)
    inspector.resume(inspector.lane(KEPT))
    assert record_ids(queue.take("w", 9, at(100))) == [0]


def test_dead_letters_of_lost_records_are_not_sent() -> None:
    rows: dict[bytes, bytes] = {}
    failed(rows, on_exhausted=OnExhausted.DEAD_LETTER, dead_letter_topic="dead", max_attempts=1)
    assert kinds(rows, INTENT_ROW) == 3
    queue = restart(rows, 1)
    assert [letter.record_id for letter in queue.take_outputs().dead_letters] == [0]
    admit(queue, [KEPT, CUT])
    assert record_ids(queue.take("w", 9, at(100))) == [1]


@pytest.mark.parametrize("end", [0, 1, 2])
def test_records_that_take_the_places_of_done_ones_are_handed_out(end: int) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue()
    admit(queue, [None, None, None])
    ack(queue, queue.take("w", 3, at(0)))
    commit(queue, rows)
    queue = cut(rows, end)
    assert queue.position(0) == end
    admit(queue, [None] * (3 - end), start=end)
    assert sorted(record_ids(queue.take("w", 9, at(1)))) == list(range(end, 3))
