"""Queue groups over the API: creation, change, description, deletion; deliveries to simple programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.v1 import admin_pb2, groups_pb2
from logbroker.v1 import queues_pb2 as pb
from tests.grpc_api.api import Api, Service
from tests.grpc_api.queue_workers import Delivery, QueueGroup, receipts

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def status_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details() or ""


def keyed(*keys: bytes | None, **fields: Any) -> bytes:
    """One batch with these keys, and values 0, 1, 2, ..."""
    records = [NewRecord(b"%d" % number, key, timestamp_ms=1000 + number) for number, key in enumerate(keys)]
    return encode_batch(records, **fields)


# --- administration ------------------------------------------------------------------------------------------------


def test_a_queue_group_is_created_once_and_described(api: Api) -> None:
    group = QueueGroup(api, partitions=2, create=False)
    api.produce(group.topic, keyed(*[b"k%d" % number for number in range(6)]), 1)
    settings: dict[str, Any] = {"lease_seconds": 5.0, "max_attempts": 7, "on_exhausted": "park", "backoff_jitter": 0.0}
    assert group.create(**settings).created
    again = group.create(**settings)
    assert not again.created
    taken = group.receive(3, max_wait_ms=5000)
    found = group.describe()
    assert (found.group_id, found.topic, found.topic_id) == (group.id, group.topic, group.topic_id)
    for name, value in settings.items():
        assert getattr(found.settings, name) == value
    assert found.settings.ordering == "key"
    told = {field.name for field, _ in found.settings.ListFields()}
    assert told == set(pb.QueueSettings.DESCRIPTOR.fields_by_name) - {"weights"}
    assert (found.counts.open, found.counts.ready, found.counts.in_flight) == (6, 3, 3)
    assert (found.counts.lanes, found.counts.delivered) == (6, 3)
    assert [(each.partition, each.floor, each.scanned, each.end) for each in found.partitions] == [
        (0, 0, 0, 0),
        (1, 0, 6, 6),
    ]
    assert found.state == "serving"
    assert group.settle(acks=receipts(taken)) == {}
    assert group.describe().counts.acked == 3


@pytest.mark.parametrize("settings", [{"max_attempts": 8}, {"ordering": "none"}, {"key_header": "h"}])
def test_the_same_name_with_other_settings_is_refused(api: Api, settings: dict[str, Any]) -> None:
    group = QueueGroup(api)
    code, told = status_of(lambda: group.create(**settings))
    assert code is grpc.StatusCode.ALREADY_EXISTS
    assert group.id in told
    other = QueueGroup(api, create=False)
    other.id = group.id
    assert status_of(other.create)[0] is grpc.StatusCode.ALREADY_EXISTS, "over another topic"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ordering": "kex"}, "none or key or single"),
        ({"on_exhausted": "drop"}, "dead-letter"),
        ({"on_undecodable": ""}, "stop"),
        ({"lease_seconds": 0.0}, "lease_seconds"),
        ({"lease_seconds": 365 * 86_400.0}, "lease_seconds"),
        ({"lease_seconds": float("nan")}, "lease_seconds"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": 2**31 - 1}, "max_attempts"),
        ({"backoff_initial_seconds": 1e300}, "backoff_initial_seconds"),
        ({"backoff_initial_seconds": 400.0}, "backoff_cap_seconds"),
        ({"backoff_jitter": -0.1}, "backoff_jitter"),
        ({"grace_seconds": float("inf")}, "grace_seconds"),
        ({"max_in_flight": 2**62}, "max_in_flight"),
        ({"key_header": "h", "ordering": "none"}, "key_header"),
        ({"key_header": "h" * 256}, "key_header"),
        ({"dead_letter_topic": "dead"}, "dead_letter_topic"),
        ({"on_exhausted": "dead-letter", "dead_letter_topic": "a/b"}, "a/b"),
        ({"ordering": "single"}, "one partition"),
    ],
)
def test_settings_out_of_bounds(api: Api, settings: dict[str, Any], told: str) -> None:
    group = QueueGroup(api, partitions=2, create=False)
    code, details = status_of(lambda: group.create(**settings))
    assert code is INVALID
    assert told in details
    assert status_of(lambda: group.receive())[0] is grpc.StatusCode.NOT_FOUND
    group.create()
    code, details = status_of(lambda: group.alter(**settings))
    assert code is INVALID
    assert told in details


@pytest.mark.parametrize("group_id", ["", "x" * 201, "a/b", "ä", "a b"])
def test_illegal_group_ids(api: Api, group_id: str) -> None:
    group = QueueGroup(api, create=False)
    group.id = group_id
    for call in (group.create, group.alter, group.receive, group.settle, group.lanes, group.explain, group.decide):
        code, details = status_of(call)
        assert code is INVALID
        assert "group id" in details or "setting" in details
    [described] = group.calls.DescribeQueues(pb.DescribeQueuesRequest(group_ids=[group_id])).queues
    [deleted] = group.calls.DeleteQueues(pb.DeleteQueuesRequest(group_ids=[group_id])).results
    assert described.status.reason == deleted.reason == "INVALID_GROUP_ID"


def test_a_topic_that_is_not_there(api: Api) -> None:
    group = QueueGroup(api, create=False)
    group.topic = "no-such-topic"
    assert status_of(group.create)[0] is grpc.StatusCode.NOT_FOUND
    group.topic = ""
    assert status_of(group.create)[0] is INVALID
    request = pb.CreateQueueRequest(group_id=group.id, topic_id=b"x")
    assert status_of(lambda: group.calls.CreateQueue(request))[0] is grpc.StatusCode.NOT_FOUND
    request = pb.CreateQueueRequest(group_id=group.id, topic_id=group.topic_id)
    assert group.calls.CreateQueue(request).created


def test_settings_are_altered_while_it_runs(api: Api) -> None:
    group = QueueGroup(api)
    assert group.alter(max_attempts=9, lease_seconds=7).queue.settings.max_attempts == 9
    found = group.describe().settings
    assert (found.max_attempts, found.lease_seconds, found.ordering) == (9, 7.0, "key")
    assert status_of(group.alter)[0] is INVALID


def test_another_ordering_waits_for_what_is_in_flight(api: Api) -> None:
    group = QueueGroup(api, ordering="single")
    api.produce(group.topic, keyed(b"a", b"b", b"c"))
    [held] = group.receive(3, max_wait_ms=5000)
    altered = group.alter(ordering="key")
    assert altered.draining
    assert (altered.queue.settings.ordering, altered.queue.state) == ("key", "draining")
    assert group.receive(3) == []
    group.settle(acks=receipts([held]))
    assert {delivery.key for delivery in group.receive(3, max_wait_ms=5000)} == {b"b", b"c"}
    assert group.describe().state == "serving"


def test_a_queue_group_begins_where_it_is_told(api: Api) -> None:
    starts = [
        (None, 0),
        (pb.StartAt(earliest=True), 0),
        (pb.StartAt(timestamp_ms=1002), 2),
        (pb.StartAt(timestamp_ms=5000), 4),
        (pb.StartAt(latest=True), 4),
    ]
    for start, offset in starts:
        group = QueueGroup(api, create=False)
        api.produce(group.topic, keyed(b"a", b"b", b"c", b"d"))
        assert group.create(start).queue.partitions[0].floor == offset
        api.produce(group.topic, keyed(b"e"))
        assert group.receive(1, max_wait_ms=5000)[0].offset == offset
    for start in (pb.StartAt(timestamp_ms=-1), pb.StartAt(offset=0)):
        group = QueueGroup(api, create=False)
        assert status_of(lambda group=group, start=start: group.create(start))[0] is INVALID  # type: ignore[misc]


def test_deletion_is_told_item_by_item(api: Api) -> None:
    group, other = QueueGroup(api), QueueGroup(api)
    request = pb.DeleteQueuesRequest(group_ids=[group.id, "no-such-group", other.id, group.id])
    reasons = [result.reason for result in group.calls.DeleteQueues(request).results]
    assert reasons == ["", "UNKNOWN_GROUP", "", "UNKNOWN_GROUP"]
    assert group.create(max_attempts=2).created, "nothing of it is left"


def test_a_group_has_one_type(api: Api) -> None:
    group = QueueGroup(api)
    groups = Service(api.channel, groups_pb2.DESCRIPTOR.services_by_name["Groups"])
    [described] = groups.DescribeGroups(groups_pb2.DescribeGroupsRequest(group_ids=[group.id])).groups
    [deleted] = groups.DeleteGroups(groups_pb2.DeleteGroupsRequest(group_ids=[group.id])).results
    for status in (described.status, deleted):
        assert status.reason == "WRONG_GROUP_TYPE"
        assert "service Queues" in status.message
    item = groups_pb2.TopicOffsets(topic=group.topic, partitions=[0], offsets=[0])
    commit = groups_pb2.CommitOffsetsRequest(group_id=group.id, topics=[item])
    assert status_of(lambda: groups.CommitOffsets(commit))[0] is grpc.StatusCode.FAILED_PRECONDITION
    commit.group_id = f"{group.id}-consumers"
    groups.CommitOffsets(commit)
    consumers = QueueGroup(api, create=False)
    consumers.id = commit.group_id
    assert status_of(consumers.create)[0] is grpc.StatusCode.FAILED_PRECONDITION
    [described_queue] = group.calls.DescribeQueues(pb.DescribeQueuesRequest(group_ids=[consumers.id])).queues
    assert described_queue.status.reason == "WRONG_GROUP_TYPE"


def test_groups_of_both_types_are_listed_together(api: Api) -> None:
    group = QueueGroup(api)
    groups = Service(api.channel, groups_pb2.DESCRIPTOR.services_by_name["Groups"])
    item = groups_pb2.TopicOffsets(topic=group.topic, partitions=[0], offsets=[0])
    groups.CommitOffsets(groups_pb2.CommitOffsetsRequest(group_id=f"{group.id}-c", topics=[item]))
    worker = group.worker()
    found: list[tuple[str, str, str, int]] = []
    token = ""
    while True:
        page = groups.ListGroups(groups_pb2.ListGroupsRequest(page_size=1, page_token=token))
        found += [(each.group_id, each.type, each.state, each.members) for each in page.groups]
        token = page.next_page_token
        if not token:
            break
    assert found == sorted(found)
    assert (group.id, "queue", "serving", 1) in found
    assert (f"{group.id}-c", "consumer", "empty", 0) in found
    worker.goodbye()


# --- simple programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("ordering", ["none", "key", "single"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_come_as_they_were_sent(api: Api, plain: bool, ordering: str, codec: Codec) -> None:
    group = QueueGroup(api, ordering=ordering)
    keys = [b"", None, b"a", b"k" * 1000, b"\xff\x00"]
    api.produce(group.topic, keyed(*keys, codec=codec))
    found: list[Delivery] = []
    while len(found) < len(keys):
        taken = group.receive(3, max_wait_ms=5000, plain_records=plain)
        assert group.settle(acks=receipts(taken)) == {}
        found += taken
    assert [(each.offset, each.key, each.value) for each in found] == [
        (number, key, b"%d" % number) for number, key in enumerate(keys)
    ]
    assert {(each.partition, each.attempt, each.redelivered) for each in found} == {(0, 1, False)}
    assert group.describe().partitions[0].floor == len(keys)


def test_a_key_is_received_one_by_one(api: Api) -> None:
    group = QueueGroup(api)
    api.produce(group.topic, keyed(b"a", b"a", b"b"))
    first, other = group.receive(10, max_wait_ms=5000)
    assert (first.offset, other.offset) == (0, 2)
    assert group.receive(10) == []
    nack = pb.Nack(first_receipt=first.receipt, last_receipt=first.receipt, reason="broken", delay_ms=0)
    assert group.settle(nacks=[nack]) == {}
    [again] = group.receive(10, max_wait_ms=5000)
    assert (again.offset, again.attempt, again.redelivered) == (0, 2, True)
    assert group.settle(acks=receipts([again, other])) == {}
    [last] = group.receive(10, max_wait_ms=5000)
    assert (last.offset, last.attempt, last.redelivered) == (1, 1, False)


def test_programs_of_other_names_cannot_settle(api: Api) -> None:
    group = QueueGroup(api)
    api.produce(group.topic, keyed(b"a", b"b"))
    mine, theirs = group.receive(2, worker_id="me", max_wait_ms=5000)
    assert set(group.settle(worker_id="you", acks=receipts([mine])).values()) == {"NOT_HOLDER"}
    assert group.settle(worker_id="me", acks=receipts([mine])) == {}
    assert set(group.settle(worker_id="me", acks=receipts([mine])).values()) == {"ALREADY_SETTLED"}
    assert group.settle(worker_id="me", releases=receipts([theirs])) == {}
    assert set(group.settle(worker_id="me", acks=receipts([theirs])).values()) == {"ALREADY_SETTLED"}
    assert group.receive(2, worker_id="you", max_wait_ms=5000)[0].offset == theirs.offset


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plain", [False, True])
def test_an_answer_has_a_bound_and_the_rest_stays(api: Api, plain: bool) -> None:
    group = QueueGroup(api, ordering="none")
    for _ in range(10):
        api.produce(group.topic, encode_batch([NewRecord(bytes(100_000))] * 50, codec=Codec.GZIP))
    request = pb.ReceiveRequest(group_id=group.id, max_records=500, max_wait_ms=5000, plain_records=plain)
    response = group.calls.Receive(request)
    assert response.ByteSize() < 4 * 1024 * 1024
    taken = sum(message.count for message in response.deliveries)
    assert taken == group.describe().counts.in_flight
    if plain:
        assert [record.offset for message in response.deliveries for record in message.records] == list(range(taken))
        assert 30 < taken < 42


@pytest.mark.parametrize(
    "fields", [{"max_records": 0}, {"max_records": -1}, {"max_records": 2**31 - 1}, {"max_wait_ms": -1}]
)
def test_what_cannot_be_received(api: Api, fields: dict[str, int]) -> None:
    group = QueueGroup(api)
    request = pb.ReceiveRequest(group_id=group.id, **fields)  # type: ignore[arg-type]
    code, details = status_of(lambda: group.calls.Receive(request))
    assert code is INVALID
    assert next(iter(fields)) in details


def test_a_group_ends_with_its_topic(api: Api) -> None:
    group = QueueGroup(api)
    api.produce(group.topic, keyed(b"a", b"b"))
    worker = group.worker()
    held = worker.take(1)
    ref = admin_pb2.TopicRef(name=group.topic)
    api.admin.DeleteTopics(admin_pb2.DeleteTopicsRequest(topics=[ref]))
    code, details = worker.refused()
    assert code is grpc.StatusCode.NOT_FOUND
    assert "topic" in details
    assert status_of(lambda: group.settle(acks=receipts(held)))[0] is grpc.StatusCode.NOT_FOUND
    assert status_of(lambda: group.receive())[0] is grpc.StatusCode.NOT_FOUND
    api.create(group.topic)
    assert group.create(max_attempts=3).created, "the topic of the same name is another"


def test_a_redrive_where_nothing_is_dead_lettered_is_told_so(api: Api) -> None:
    group = QueueGroup(api, create=False)
    group.create(on_exhausted="block", on_undecodable="stop")
    code, told = status_of(lambda: group.calls.Redrive(pb.RedriveRequest(group_id=group.id, max_records=1)))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "dead-letters nothing (on_exhausted block, on_undecodable stop)" in told
    assert "create" not in told
