"""A queue group with priorities: worked examples, and what happens when it is altered, rewound or started again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from logbroker.errors import InvalidRequestError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority, PriorityRank
from logbroker.record.bands import DEFAULT_BANDS, parse_bands
from tests.queues.groups import ack, at, commit, nack, new_queue, receipts, record_ids, restart
from tests.queues.sessions import opened

Record = tuple[bytes | None, int, int]
"""Key, priority, timestamp."""

HOT, WARM, COLD = DEFAULT_BANDS
EXAMPLE: list[Record] = [(b"a", 2, 1), (b"b", 5, 2), (b"a", 9, 3), (None, 4, 4), (b"c", 5, 5), (b"b", 1, 6)]
"""The example of docs/QUEUES.md."""


def ranked_queue(priority: Priority = Priority.STRICT, partitions: int = 1, **settings: object) -> Queue:
    return new_queue(partitions, priority=priority, **settings)


def admit(queue: Queue, records: Sequence[Record], *, start: int = 0, partition: int = 0) -> None:
    keys = [key for key, _, _ in records] if queue.settings.ordering is Ordering.KEY else []
    queue.admit(
        partition,
        1,
        range(start, start + len(records)),
        start + len(records),
        keys,
        (),
        at(0),
        0,
        bytes(priority for _, priority, _ in records),
        [time for _, _, time in records],
    )


def one_by_one(queue: Queue) -> list[int]:
    order: list[int] = []
    while granted := queue.take("w", 1, at(0)):
        order += record_ids(granted)
        ack(queue, granted)
    return order


@pytest.mark.parametrize(
    ("rank", "order"), [(PriorityRank.LANE, [0, 2, 1, 4, 3, 5]), (PriorityRank.HEAD, [1, 4, 3, 0, 2, 5])]
)
def test_the_worked_example_of_the_docs(rank: PriorityRank, order: list[int]) -> None:
    queue = ranked_queue(priority_rank=rank)
    admit(queue, EXAMPLE)
    assert one_by_one(queue) == order


def test_an_urgent_record_goes_before_all_that_wait_wherever_it_lies() -> None:
    queue = ranked_queue(ordering=Ordering.NONE, partitions=2)
    admit(queue, [(None, 0, 1)] * 1_000)
    granted = queue.take("w", 3, at(0))
    admit(queue, [(None, 9, 500)], partition=1)
    assert record_ids(queue.take("w", 2, at(0))) == [record_id_of(1, 0), 3]
    ack(queue, granted)


def test_a_hot_record_raises_its_key_while_that_waits_and_when_it_comes_back() -> None:
    queue = ranked_queue()
    admit(queue, [(b"a", 1, 1), (b"b", 5, 2), (b"c", 6, 3)])
    granted = queue.take("w", 1, at(0))
    assert record_ids(granted) == [2]
    admit(queue, [(b"a", 9, 4), (b"c", 8, 5)], start=3)
    assert record_ids(queue.take("w", 1, at(0))) == [0], "it waits: at once"
    nack(queue, granted, delay_seconds=0)
    queue.tick(at(1))
    assert record_ids(queue.take("w", 2, at(1))) == [2, 1], "it was in flight: when it comes back"


def test_what_comes_back_takes_the_place_of_its_rank() -> None:
    queue = ranked_queue(ordering=Ordering.NONE)
    admit(queue, [(None, 5, 1), (None, 5, 2), (None, 7, 3)])
    granted = queue.take("w", 2, at(0))
    assert record_ids(granted) == [2, 0]
    queue.lifecycle.goodbye("w", at(0))
    admit(queue, [(None, 9, 4), (None, 5, 0)], start=3)
    assert record_ids(queue.take("w", 5, at(0))) == [3, 2, 4, 0, 1]


def test_bands_are_served_apart_and_counted_apart() -> None:
    queue = ranked_queue(ordering=Ordering.NONE)
    admit(queue, [(None, priority, 1) for priority in range(10)])
    assert [queue.ready_records(band) for band in (HOT, WARM, COLD, None)] == [3, 3, 4, 10]
    assert record_ids(queue.take("w", 2, at(0), WARM)) == [6, 5]
    assert record_ids(queue.take("w", 10, at(0), WARM)) == [4]
    assert queue.take("w", 10, at(0), WARM) == []
    assert record_ids(queue.take("w", 10, at(0), COLD)) == [3, 2, 1, 0]
    assert record_ids(queue.take("w", 10, at(0))) == [9, 8, 7]


def test_bands_of_the_topic_decide_over_shares() -> None:
    queue = ranked_queue(Priority.WEIGHTED, ordering=Ordering.NONE, weights={"top": 3, "rest": 1}, max_in_flight=100)
    queue.alteration.bands = parse_bands("top=9:1,rest=0-8:1")
    admit(queue, [(None, 9, 1), (None, 8, 1)] * 40)
    assert sum(record_id % 2 for record_id in record_ids(queue.take("w", 40, at(0)))) == 10


def test_sessions_open_the_most_urgent_key_and_keep_it() -> None:
    queue = ranked_queue()
    admit(queue, [(None, 9, 1), (b"a", 3, 1), (b"b", 7, 2), (b"c", 5, 1)])
    session = opened(queue, None, prefetch=1)
    assert session.key == b"b"
    admit(queue, [(b"c", 9, 5), (b"b", 0, 6)], start=4)
    granted = queue.sessions.take(session, at(0))
    assert record_ids(granted) == [2]
    ack(queue, granted)
    assert record_ids(queue.sessions.take(session, at(0))) == [5], "what is more urgent takes no session away"
    assert opened(queue, None, prefetch=1, worker="v").key == b"c"


def test_what_a_session_gives_back_has_its_rank_again() -> None:
    queue = ranked_queue()
    admit(queue, [(b"a", 9, 1), (b"a", 2, 2), (b"a", 4, 3), (b"b", 3, 4)])
    session = opened(queue, b"a", prefetch=3)
    granted = queue.sessions.take(session, at(0))
    first = granted[0].first_receipt
    assert queue.deliveries.in_flight == 3
    ack(queue, [msgspec.structs.replace(granted[0], record_ids=[0])])
    queue.sessions.close("w", b"a", session.token, at(0))
    assert first in receipts(granted)
    assert one_by_one(queue) == [1, 2, 3], "as urgent as offset 2, which waits in it"


def test_priorities_begin_while_records_wait() -> None:
    queue = new_queue(ordering=Ordering.NONE)
    admit(queue, [(None, 1, 1), (None, 9, 2), (None, 5, 3)])
    granted = queue.take("w", 1, at(0))
    assert record_ids(granted) == [0]
    queue.alter(msgspec.structs.replace(queue.settings, priority=Priority.STRICT))
    assert queue.take("w", 9, at(0)) == [], "the line is made anew: what is in flight is settled first"
    nack(queue, granted, delay_seconds=0)
    assert queue.take_outputs().rescan
    queue.begin_generation(1, ())
    admit(queue, [(None, 1, 1), (None, 9, 2), (None, 5, 3)])
    queue.tick(at(1))
    assert one_by_one(queue) == [1, 2, 0]


def test_what_is_chosen_between_levels_changes_at_once() -> None:
    queue = ranked_queue(ordering=Ordering.NONE)
    admit(queue, [(None, 1, 1), (None, 9, 100_000), (None, 9, 100_001)])
    granted = queue.take("w", 1, at(0))
    assert record_ids(granted) == [1]
    queue.alter(msgspec.structs.replace(queue.settings, priority=Priority.AGEING, age_seconds=1.0))
    assert not queue.draining
    assert record_ids(queue.take("w", 1, at(0))) == [0]


def test_parked_lanes_stay_when_ranks_change_and_refuse_another_ordering() -> None:
    queue = ranked_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    admit(queue, [(b"a", 5, 1), (b"a", 9, 2), (b"b", 3, 3)])
    nack(queue, queue.take("w", 1, at(0)))
    with pytest.raises(InvalidRequestError, match="parked"):
        queue.alter(msgspec.structs.replace(queue.settings, ordering=Ordering.NONE))
    queue.alter(msgspec.structs.replace(queue.settings, priority_rank=PriorityRank.HEAD))
    assert queue.take_outputs().rescan
    queue.begin_generation(1, ())
    admit(queue, [(b"a", 5, 1), (b"a", 9, 2), (b"b", 3, 3)])
    assert one_by_one(queue) == [2]
    assert set(queue.stalled.parked) == {b"a"}


def test_after_a_restart_the_order_is_the_same() -> None:
    records: list[Record] = [(None, number * 7 % 10, number * 13 % 40) for number in range(40)]
    queue = ranked_queue(ordering=Ordering.NONE)
    rows = commit(queue, {})
    admit(queue, records)
    handed = queue.take("w", 15, at(0))
    ack(queue, handed)
    left = record_ids(queue.take("w", 40, at(0)))
    after = restart(commit(queue, rows), 40)
    admit(after, records)
    assert record_ids(after.take("w", 40, at(0))) == left


def test_a_rewind_keeps_the_order() -> None:
    queue = ranked_queue(ordering=Ordering.NONE)
    admit(queue, EXAMPLE)
    assert one_by_one(queue) == [2, 1, 4, 3, 0, 5]
    queue.take_outputs()
    queue.rewind({0: 1}, at(0))
    assert queue.take_outputs().rescan
    queue.begin_generation(1, ())
    admit(queue, EXAMPLE[1:], start=1)
    assert one_by_one(queue) == [2, 1, 4, 3, 5]


def test_a_group_with_priorities_scans_on_however_much_is_ready() -> None:
    queue = ranked_queue(ordering=Ordering.NONE, max_ready_records=2)
    admit(queue, [(None, 1, 1)] * 5)
    assert queue.wants_more


def test_records_of_unknown_rank_count_as_of_the_default_priority() -> None:
    queue = ranked_queue(ordering=Ordering.NONE)
    admit(queue, [(None, 3, 1), (None, 5, 1)])
    queue.admit(0, 1, range(2, 3), 3, (), (), at(0), 7)
    assert one_by_one(queue) == [1, 2, 0]
