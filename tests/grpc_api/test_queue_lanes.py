"""An operator's view of lanes, and decisions about them."""

from __future__ import annotations

import grpc
import pytest

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import Header, Record, StoredRecord
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import QueueGroup, Worker
from tests.grpc_api.test_queues import keyed, status_of


@pytest.fixture
def group(api: Api) -> QueueGroup:
    """Keys a (3 records), b (2) and c (1); a record that fails once is exhausted."""
    found = QueueGroup(api, max_attempts=1, grace_seconds=30.0)
    api.produce(found.topic, keyed(b"a", b"b", b"c", b"a", b"b", b"a"))
    return found


def fail(worker: Worker, number: int = 1) -> None:
    for delivery in worker.take(number):
        nack = pb.Nack(first_receipt=delivery.receipt, last_receipt=delivery.receipt, reason=f"bad {delivery.offset}")
        assert worker.settle(nacks=[nack]) == {}


def test_the_hottest_lanes(group: QueueGroup) -> None:
    worker = group.worker()
    [held] = worker.take()
    lanes = group.lanes()
    assert [(lane.key, lane.waiting, lane.offset) for lane in lanes] == [(b"a", 3, 0), (b"b", 2, 1), (b"c", 1, 2)]
    assert [lane.state for lane in lanes] == ["in flight", "ready", "ready"]
    assert lanes[0].worker_id == worker.worker_id
    assert 0 < lanes[0].due_in_ms <= 30_000
    assert [lane.oldest_timestamp_ms for lane in lanes] == [1000, 1001, 1002]
    assert [lane.key for lane in group.lanes(top=1)] == [b"a"]
    worker.ack([held])


def test_the_oldest_lanes(api: Api) -> None:
    group = QueueGroup(api, partitions=2)
    api.produce(group.topic, keyed(b"a", b"b", b"c"), 1)
    api.produce(group.topic, keyed(b"d"), 0)
    worker = group.worker()
    taken = worker.take(4)
    assert [lane.key for lane in group.lanes("OLDEST", top=3)][2] == b"b"
    assert [lane.oldest_timestamp_ms for lane in group.lanes("OLDEST")] == [1000, 1000, 1001, 1002]
    worker.ack([delivery for delivery in taken if delivery.value == b"0"])
    assert [lane.key for lane in group.lanes("OLDEST")] == [b"b", b"c"]


@pytest.mark.prove
def test_the_oldest_lanes_of_many_partitions(api: Api) -> None:
    group = QueueGroup(api, partitions=60)
    for partition in range(60):
        if partition != 7:
            records = [NewRecord(b"v", b"%d-%d" % (partition, number), timestamp_ms=5000) for number in range(3)]
            api.produce(group.topic, encode_batch(records), partition)
    early = [b"early-%d" % number for number in range(40)]
    api.produce(group.topic, keyed(*early), 7)
    assert [lane.key for lane in group.lanes("OLDEST", top=40)] == early
    assert {lane.oldest_timestamp_ms for lane in group.lanes("OLDEST", top=99)[40:]} == {5000}


@pytest.mark.parametrize("order", ["HOTTEST", "OLDEST"])
def test_each_lane_of_a_long_list_has_the_time_of_its_first_record(api: Api, order: str) -> None:
    count = 1_500
    group = QueueGroup(api)
    api.produce(group.topic, keyed(*(b"%d" % number for number in range(count))))
    lanes = group.lanes(order, top=count)
    assert [lane.oldest_timestamp_ms for lane in lanes] == [1000 + number for number in range(count)]


def test_blocked_lanes_and_what_is_decided(group: QueueGroup) -> None:
    worker = group.worker()
    fail(worker, 2)
    blocked = group.lanes("HELD")
    assert [(lane.key, lane.state, lane.waiting, lane.attempt) for lane in blocked] == [
        (b"a", "blocked", 3, 2),
        (b"b", "blocked", 2, 2),
    ]
    assert [list(lane.reasons) for lane in blocked] == [["bad 0"], ["bad 1"]]
    assert all(lane.first_failure_ms == lane.last_failure_ms > 0 for lane in blocked)
    counts = group.describe().counts
    assert (counts.held_lanes, counts.blocked_lanes, counts.parked_lanes) == (2, 2, 0)
    assert group.decide(
        pb.LaneDecision(key=b"a", skip_head=True),
        pb.LaneDecision(key=b"b", drop=True),
        pb.LaneDecision(key=b"c", resume=True),
        pb.LaneDecision(key=b"none", resume=True),
        pb.LaneDecision(key=b"a"),
        pb.LaneDecision(drop=True),
        pb.LaneDecision(place=pb.Place(partition=-1), drop=True),
        pb.LaneDecision(place=pb.Place(partition=0, offset=7), drop=True),
    ) == [
        ("", 1),
        ("", 2),
        ("LANE_NOT_HELD", 0),
        ("UNKNOWN_LANE", 0),
        ("INVALID_REQUEST", 0),
        ("INVALID_REQUEST", 0),
        ("INVALID_REQUEST", 0),
        ("UNKNOWN_LANE", 0),
    ]
    assert group.lanes("HELD") == []
    assert [delivery.offset for delivery in worker.take(2)] == [2, 3]


def test_a_lane_is_resumed(group: QueueGroup) -> None:
    worker = group.worker()
    fail(worker)
    assert group.decide(pb.LaneDecision(place=pb.Place(partition=0, offset=0), resume=True)) == [("", 0)]
    taken = worker.take(3)
    assert {(delivery.offset, delivery.attempt, delivery.redelivered) for delivery in taken} == {
        (0, 1, True),
        (1, 1, False),
        (2, 1, False),
    }


def test_parked_lanes(api: Api) -> None:
    group = QueueGroup(api, max_attempts=1, on_exhausted="park")
    api.produce(group.topic, keyed(b"a", b"b"))
    fail(group.worker(), 2)
    api.produce(group.topic, keyed(b"a"))
    worker = group.worker()
    assert [(lane.key, lane.state) for lane in group.lanes("HELD")] == [(b"a", "parked"), (b"b", "parked")]
    counts = group.describe().counts
    assert (counts.parked_lanes, counts.blocked_lanes) == (2, 0)
    assert group.decide(pb.LaneDecision(key=b"a", drop=True), pb.LaneDecision(key=b"b", drop=True))[1] == ("", 1)
    api.produce(group.topic, keyed(b"a"))
    assert worker.take(1)[0].key == b"a"


def test_records_without_a_key_are_found_by_their_place(api: Api) -> None:
    group = QueueGroup(api, max_attempts=1)
    api.produce(group.topic, keyed(None, None))
    fail(group.worker())
    [lane] = group.lanes("HELD")
    assert not lane.HasField("key")
    assert (lane.partition, lane.offset) == (0, 0)
    place = pb.Place(partition=lane.partition, offset=lane.offset)
    assert group.decide(pb.LaneDecision(place=place, skip_head=True)) == [("", 1)]
    assert group.describe().partitions[0].floor == 1


def test_why_keys_stand_still(group: QueueGroup) -> None:
    worker = group.worker()
    fail(worker)
    [held] = worker.take()
    a, b, c, idle = group.explain(b"a", b"b", b"c", b"idle")
    assert (a.state, a.waiting, list(a.reasons), a.oldest_timestamp_ms) == ("blocked", 3, ["bad 0"], 1000)
    assert (b.state, b.worker_id, b.HasField("due_in_ms")) == ("in flight", worker.worker_id, True)
    assert (c.state, c.waiting, c.HasField("due_in_ms")) == ("ready", 1, False)
    assert (idle.key, idle.state, idle.waiting, idle.offset) == (b"idle", "idle", 0, -1)
    worker.ack([held])


def test_the_first_record_of_a_lane_is_in_its_explanation(group: QueueGroup) -> None:
    worker = group.worker()
    fail(worker)
    [lane] = group.explain(b"a")
    assert not lane.HasField("record")
    lane, idle = group.explain(b"a", b"idle", records=True)
    assert lane.record == StoredRecord(offset=0, timestamp_ms=1000, key=b"a", value=b"0")
    assert (lane.replaced, idle.HasField("record")) == (False, False)
    mended = Record(value=b"mended", headers=[Header(key="by", value=b"me")])
    assert group.decide(pb.LaneDecision(key=b"a", replace_head=mended)) == [("", 0)]
    worker.ack(worker.take(2))
    fail(worker)
    [lane] = group.explain(b"a", records=True)
    assert (lane.state, lane.offset, lane.replaced) == ("blocked", 0, True)
    assert lane.record == StoredRecord(offset=0, timestamp_ms=1000, key=b"a", value=b"mended", headers=mended.headers)
    [listed] = group.lanes("HELD")
    assert (listed.replaced, listed.HasField("record")) == (True, False)


def test_records_that_do_not_fit_into_an_explanation_are_left_out(api: Api) -> None:
    group = QueueGroup(api)
    keys = [b"%d" % number for number in range(6)]
    for key in keys:
        api.produce(group.topic, encode_batch([NewRecord(bytes(900_000), key)]))
    lanes = group.explain(*keys, records=True)
    assert [lane.state for lane in lanes] == ["ready"] * 6
    assert [lane.HasField("record") for lane in lanes] == [True] * 4 + [False] * 2


def test_a_lane_that_waits_for_a_retry(api: Api) -> None:
    group = QueueGroup(api, backoff_initial_seconds=60.0, backoff_jitter=0.0)
    api.produce(group.topic, keyed(b"a", b"a"))
    fail(group.worker())
    [lane] = group.explain(b"a")
    assert (lane.state, lane.attempt, lane.waiting) == ("waiting", 2, 2)
    assert 50_000 < lane.due_in_ms <= 60_000


def test_long_keys_and_empty_ones(api: Api) -> None:
    group = QueueGroup(api, max_attempts=1)
    key = b"k" * 500_000
    api.produce(group.topic, keyed(key, b"", key))
    fail(group.worker(), 2)
    lanes = group.explain(key, b"", key + b"x")
    assert [(lane.state, lane.waiting) for lane in lanes] == [("blocked", 2), ("blocked", 1), ("idle", 0)]
    assert max(len(lane.key) for lane in lanes) < 300
    assert group.decide(pb.LaneDecision(key=key, skip_head=True), pb.LaneDecision(key=b"", drop=True)) == [
        ("", 1),
        ("", 1),
    ]


def test_questions_out_of_bounds(group: QueueGroup) -> None:
    for call in (
        lambda: group.lanes(top=0),
        lambda: group.lanes(top=-1),
        lambda: group.lanes(top=10_001),
        lambda: group.calls.ListLanes(pb.ListLanesRequest(group_id=group.id, order=7)),  # type: ignore[arg-type]
        lambda: group.explain(*[b"k"] * 401),
    ):
        assert status_of(call)[0] is grpc.StatusCode.INVALID_ARGUMENT
    group.id = "no-such-group"
    for call in (group.lanes, group.explain, group.decide):
        assert status_of(call)[0] is grpc.StatusCode.NOT_FOUND


def test_a_list_of_lanes_has_a_bound(api: Api) -> None:
    group = QueueGroup(api, max_attempts=1)
    number = 6000
    for start in range(0, number, 1000):
        api.produce(group.topic, keyed(*[b"%d-" % key + b"k" * 250 for key in range(start, start + 1000)]))
    worker = group.worker()
    reason = "\N{PILE OF POO}" * 256
    for _ in range(0, number, 1000):
        receipts_taken = [delivery.receipt for delivery in worker.take(1000)]
        nack = pb.Nack(first_receipt=receipts_taken[0], last_receipt=receipts_taken[-1], reason=reason)
        assert worker.settle(nacks=[nack]) == {}
    request = pb.ListLanesRequest(group_id=group.id, order=pb.LANE_ORDER_HELD, top=10_000)
    response = group.calls.ListLanes(request)
    assert response.total == number
    assert 2 * 1024 * 1024 < response.ByteSize() < 4 * 1024 * 1024
    keys = [b"%d-" % key + b"k" * 250 for key in range(400)]
    assert len(group.explain(*keys)) == 400
