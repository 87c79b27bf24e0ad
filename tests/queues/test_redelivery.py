"""Whether a record is marked as one that may have been handed out before: never too seldom, nor for ever in memory."""

from __future__ import annotations

import pytest

from logbroker.queues.messages import Settlement
from logbroker.queues.queue import Queue
from logbroker.queues.restart import load_queue
from logbroker.queues.settings import Ordering
from tests.queues.groups import ack, admit, at, commit, keep, nack, new_queue, places, receipts


def start(rows: dict[bytes, bytes], ends: dict[int, int]) -> Queue:
    """A start with the ends of those logs that can be looked at."""
    queue = load_queue(rows, ends, random=lambda: 0.0, route=lambda key: 0)
    queue.begin_generation(1, ())
    return queue


def stop(queue: Queue, rows: dict[bytes, bytes]) -> None:
    keep(queue.take_outputs(), rows)
    for event in queue.stop_events():
        if event.value is None:
            rows.pop(event.key, None)
        else:
            rows[event.key] = event.value


@pytest.mark.parametrize("crashes", [1, 2])
def test_what_was_handed_out_before_a_crash_is_marked_also_where_its_log_comes_back_lives_later(crashes: int) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(2)
    admit(queue, [b"a", b"b"], partition=0)
    assert len(places(queue.take("w", 2, at(0)))) == 2
    commit(queue, rows)
    for _ in range(crashes):
        queue = start(rows, {1: 0})
        commit(queue, rows)
    stop(start(rows, {1: 0}), rows)
    queue = start(rows, {0: 3, 1: 0})
    assert not queue.after_crash
    admit(queue, [b"a", b"b", b"c"], partition=0)
    [granted] = queue.take("w", 3, at(0))
    assert granted.redelivered[:2] == [True, True]


def test_a_log_that_comes_back_after_a_clean_stop_has_the_marks_that_it_had() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue(2)
    admit(queue, [b"a", b"b"], partition=0)
    queue.take("w", 1, at(0))
    stop(queue, rows)
    stop(start(rows, {1: 0}), rows)
    queue = start(rows, {0: 2, 1: 0})
    admit(queue, [b"a", b"b"], partition=0)
    [granted] = queue.take("w", 2, at(0))
    assert granted.redelivered == [True, False]


def test_what_came_back_is_not_known_one_by_one_once_all_before_it_is_marked() -> None:
    queue = new_queue(ordering=Ordering.NONE)
    queue.admit(0, 1, range(100), 100, (), (), at(0))
    nack(queue, queue.take("w", 10, at(0)), delay_seconds=0)
    queue.settle(
        "w", Settlement(releases=[(receipt, receipt) for receipt in receipts(queue.take("w", 99, at(0)))]), at(0)
    )
    assert queue.redelivery.returned
    queue.rewind({0: 5}, at(0))
    queue.take_outputs()
    queue.begin_generation(1, ())
    queue.admit(0, 1, range(100), 100, (), (), at(0))
    granted = queue.take("w", 100, at(0))
    flags = {
        place: flag
        for piece in granted
        for place, flag in zip(piece.places, piece.redelivered or [False] * len(piece), strict=True)
    }
    assert all(flags[place] for place in range(5, 10))
    ack(queue, granted)
    assert queue.redelivery.returned == set()
