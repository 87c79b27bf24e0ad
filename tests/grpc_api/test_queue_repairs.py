"""An operator's repairs of records that failed: dead letters sent back, groups rewound, heads replaced."""

from __future__ import annotations

import time

import grpc
import pytest

from logbroker.record.codec import LogRecord, NewRecord, decode_batch, encode_batch, split_batches
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import Header, Record
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import QueueGroup, Worker, receipts
from tests.grpc_api.test_queue_lanes import fail
from tests.grpc_api.test_queues import keyed, status_of

DEADLINE_SECONDS = 20


@pytest.fixture
def group(api: Api) -> QueueGroup:
    """A record that fails once goes to the dead-letter topic."""
    found = QueueGroup(api, max_attempts=1, on_exhausted="dead-letter")
    api.produce(found.topic, keyed(b"a", b"b", b"a", b"a"))
    return found


def fail_all(group: QueueGroup, worker: Worker, number: int) -> None:
    """Fail so many records, and wait until they are sent."""
    before = group.describe().counts.dead_lettered
    for _ in range(number):
        fail(worker)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while group.describe().counts.dead_lettered < before + number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_dead_letters_are_sent_back_once(group: QueueGroup) -> None:
    worker = group.worker()
    fail_all(group, worker, 4)
    assert group.describe().settings.dead_letter_topic == f"{group.id}.dead-letters"
    assert len(group.api.values(f"{group.id}.dead-letters")) == 4
    assert group.redrive(dry_run=True) == (4, 2, False)
    assert group.redrive(key=b"b") == (1, 1, False)
    assert group.redrive(max_records=2)[0] == 2
    assert group.redrive() == (1, 1, False)
    assert group.redrive() == (0, 0, False)
    again = []
    for _ in range(4):
        taken = worker.take(1)
        worker.ack(taken)
        again += taken
    assert {(delivery.key, delivery.offset) for delivery in again} == {(b"b", 4), (b"a", 5), (b"a", 6), (b"a", 7)}
    assert [delivery.value for delivery in again if delivery.key == b"a"] == [b"0", b"2", b"3"], "in their order"


def test_what_cannot_be_redriven(group: QueueGroup) -> None:
    for number in (0, -1, 2**31 - 1):
        assert status_of(lambda number=number: group.redrive(max_records=number))[0] is (  # type: ignore[misc]
            grpc.StatusCode.INVALID_ARGUMENT
        )
    other = QueueGroup(group.api)
    assert status_of(other.redrive)[0] is not grpc.StatusCode.INTERNAL


def test_a_redrive_is_bounded_by_the_ends_of_its_first_call(group: QueueGroup) -> None:
    worker = group.worker()
    fail_all(group, worker, 4)
    first = group.calls.Redrive(pb.RedriveRequest(group_id=group.id, max_records=3))
    assert (first.records, first.more, first.until.offsets) == (3, True, [4])
    fail_all(group, worker, 3)
    second = group.calls.Redrive(pb.RedriveRequest(group_id=group.id, until=first.until))
    assert (second.records, second.more, second.until) == (1, False, first.until)
    assert group.redrive(dry_run=True)[0] == 3, "those that were made meanwhile"


def test_a_dry_run_names_the_letters_that_are_left(group: QueueGroup) -> None:
    fail_all(group, group.worker(), 4)
    dry = pb.RedriveRequest(group_id=group.id, dry_run=True)
    [until] = group.calls.Redrive(dry).until.offsets
    assert [place.offset for place in group.calls.Redrive(dry).letters] == list(range(until)) == [0, 1, 2, 3]
    assert not group.calls.Redrive(pb.RedriveRequest(group_id=group.id, max_records=1)).letters
    assert [place.offset for place in group.calls.Redrive(dry).letters] == [1, 2, 3]
    dry.max_records = 2
    assert [place.offset for place in group.calls.Redrive(dry).letters] == [1, 2]


@pytest.mark.parametrize("offsets", [[-1], [4, 4], [0] * ((1 << 15) + 1)])
def test_ends_that_no_topic_has_are_refused(group: QueueGroup, offsets: list[int]) -> None:
    fail_all(group, group.worker(), 4)
    ends = group.calls.Redrive(pb.RedriveRequest(group_id=group.id, dry_run=True)).until
    wrong = pb.LetterEnds(topic_id=ends.topic_id, offsets=offsets)
    assert status_of(lambda: group.redrive(until=wrong))[0] is grpc.StatusCode.INVALID_ARGUMENT
    unknown = pb.LetterEnds(topic_id=b"another", offsets=ends.offsets)
    assert status_of(lambda: group.redrive(until=unknown))[0] is grpc.StatusCode.NOT_FOUND
    assert group.redrive(dry_run=True)[0] == 4


def test_a_group_is_rewound(api: Api) -> None:
    group = QueueGroup(api, partitions=2, grace_seconds=30.0)
    for partition in range(2):
        api.produce(group.topic, keyed(b"a%d" % partition, b"b%d" % partition, b"c%d" % partition), partition)
    worker = group.worker()
    taken = worker.take(6)
    last = [delivery for delivery in taken if (delivery.partition, delivery.offset) == (1, 2)]
    worker.ack([delivery for delivery in taken if delivery not in last])
    request = pb.RewindRequest(group_id=group.id, to=pb.StartAt(offset=1), partitions=[1, 7, 1])
    rewound, unknown = group.calls.Rewind(request).partitions
    assert (rewound.partition, rewound.floor_before, rewound.floor) == (1, 2, 1)
    assert (unknown.partition, unknown.status.reason, unknown.floor) == (7, "UNKNOWN_PARTITION", -1)
    assert set(worker.settle(acks=receipts(last)).values()) == {"LEASE_LOST"}, "all receipts are void"
    assert [(delivery.partition, delivery.offset) for delivery in worker.take(2)] == [(1, 1), (1, 2)]


def test_a_rewind_is_tried_before(api: Api) -> None:
    group = QueueGroup(api)
    api.produce(group.topic, keyed(b"a", b"b", b"c"))
    worker = group.worker()
    worker.ack(worker.take(3))
    ends = [
        (pb.StartAt(earliest=True), 0),
        (pb.StartAt(timestamp_ms=1001), 1),
        (pb.StartAt(latest=True), 3),
        (pb.StartAt(offset=2**60), 3),
    ]
    for to, floor in ends:
        request = pb.RewindRequest(group_id=group.id, to=to, dry_run=True)
        [partition] = group.calls.Rewind(request).partitions
        assert (partition.floor_before, partition.floor) == (3, floor)
    assert group.describe().partitions[0].floor == 3, "nothing happened"
    for to in (pb.StartAt(), pb.StartAt(offset=-1), pb.StartAt(timestamp_ms=-1)):
        request = pb.RewindRequest(group_id=group.id, to=to)
        assert status_of(lambda request=request: group.calls.Rewind(request))[0] is (  # type: ignore[misc]
            grpc.StatusCode.INVALID_ARGUMENT
        )


def test_a_rewind_counts_what_stands_and_drops_it_where_that_is_asked_for(api: Api) -> None:
    group = QueueGroup(api, max_attempts=1, on_exhausted="park")
    api.produce(group.topic, keyed(b"a", b"a", b"b"))
    fail(group.worker())
    request = pb.RewindRequest(group_id=group.id, to=pb.StartAt(latest=True))
    for drop_standing in (False, True):
        request.drop_standing = drop_standing
        for request.dry_run in (True, False):
            [partition] = group.calls.Rewind(request).partitions
            assert (partition.floor, partition.standing_records) == (3, 2)
    assert group.calls.Rewind(request).partitions[0].standing_records == 0


def test_a_head_is_replaced_for_this_group(api: Api) -> None:
    group, other = QueueGroup(api, max_attempts=1), QueueGroup(api, create=False)
    other.topic = group.topic
    other.create()
    api.produce(group.topic, keyed(b"a", b"a", b"b"))
    worker = group.worker()
    fail(worker)
    record = Record(value=b"mended", headers=[Header(key="by", value=b"operator"), Header(key="null")])

    def replaced(key: bytes, record: Record) -> str:
        return group.decide(pb.LaneDecision(key=key, replace_head=record))[0][0]

    assert replaced(b"a", Record(key=b"other", value=b"x")) == "INVALID_REQUEST"
    assert replaced(b"a", Record(value=bytes(2_000_000))) == "RECORD_TOO_LARGE"
    assert replaced(b"b", record) == "LANE_NOT_HELD"
    assert replaced(b"idle", record) == "UNKNOWN_LANE"
    assert replaced(b"a", record) == ""
    worker.credit(2)
    records: list[LogRecord] = []
    while len(records) < 2:
        for _, batch in split_batches(worker.expect("deliveries").batches):
            records += list(decode_batch(batch))
    [mended] = [record for record in records if record.key == b"a"]
    assert (mended.value, mended.timestamp_ms) == (b"mended", 1000)
    assert list(mended.headers) == [("by", b"operator"), ("null", None)]
    assert b"mended" not in [delivery.value for delivery in other.receive(3, max_wait_ms=5000)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], [("tenant", b"t"), ("x", b"y"), ("null", None)]),
        ([("by", b"operator")], [("tenant", b"t"), ("by", b"operator")]),
        ([("by", b"operator"), ("tenant", b"t")], [("by", b"operator"), ("tenant", b"t")]),
    ],
)
def test_a_replacement_keeps_the_headers_of_the_head_unless_it_brings_some(
    api: Api, given: list[tuple[str, bytes]], expected: list[tuple[str, bytes | None]]
) -> None:
    """The ordering key header stays in any case."""
    group = QueueGroup(api, max_attempts=1, key_header="tenant")
    headers = [("tenant", b"t"), ("x", b"y"), ("null", None)]
    api.produce(group.topic, encode_batch([NewRecord(b"v", b"k", headers, 1000)]))
    worker = group.worker()
    fail(worker)
    other = Record(value=b"w", headers=[Header(key="tenant", value=b"u")])
    assert group.decide(pb.LaneDecision(key=b"t", replace_head=other))[0][0] == "INVALID_REQUEST"
    new = Record(value=b"w", headers=[Header(key=name, value=value) for name, value in given])
    assert group.decide(pb.LaneDecision(key=b"t", replace_head=new)) == [("", 0)]
    worker.credit(1)
    [(_, batch)] = split_batches(worker.expect("deliveries").batches)
    [record] = decode_batch(batch)
    assert (record.key, record.value, list(record.headers)) == (b"k", b"w", expected)
