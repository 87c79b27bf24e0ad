"""A worker's stream: deliveries against credit, settlements, and each way in which it ends."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from logbroker.v1 import queues_pb2 as pb
from tests.grpc_api.api import Api, batch_of
from tests.grpc_api.queue_workers import Delivery, QueueGroup, Worker, receipts, unpacked
from tests.grpc_api.test_queues import keyed
from tests.waiting import until

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def group(api: Api) -> QueueGroup:
    """One key each, ten records."""
    found = QueueGroup(api, grace_seconds=30.0)
    api.produce(found.topic, keyed(*[b"k%d" % number for number in range(10)]))
    return found


# --- deliveries and settlements ------------------------------------------------------------------------------------


def test_a_welcome_says_what_a_worker_needs(group: QueueGroup) -> None:
    welcome = group.joining().welcome()
    assert (welcome.resumed, welcome.lease_ms, welcome.grace_ms) == (False, 30_000, 30_000)
    assert (welcome.ordering, welcome.topic) == ("key", group.topic)
    assert not welcome.reclaimed
    assert not welcome.sessions


def test_no_more_comes_than_there_is_credit_for(group: QueueGroup) -> None:
    worker = group.worker()
    first = worker.take(4)
    worker.ack(first)  # Its answer would come behind further deliveries.
    second = worker.take(6)
    assert [delivery.offset for delivery in (*first, *second)] == list(range(10))
    worker.ack(second)
    worker.credit(5)
    group.api.produce(group.topic, keyed(b"new"))
    assert [delivery.key for delivery in worker.deliveries()] == [b"new"]


def test_credit_comes_with_a_settlement(group: QueueGroup) -> None:
    worker = group.worker()
    first = worker.take(2)
    worker.send(settle=pb.Settle(correlation_id=7, acks=receipts(first)), add_credit=3)
    deliveries: list[Delivery] = []
    answer = None
    while len(deliveries) < 3 or answer is None:
        response = worker.next()
        if response.WhichOneof("response") == "settled":
            answer = response.settled
        else:
            deliveries += unpacked(response.deliveries)
    assert (answer.correlation_id, len(answer.failures)) == (7, 0)
    assert [delivery.offset for delivery in deliveries] == [2, 3, 4]
    assert group.describe().counts.in_flight == 3
    worker.send(settle=pb.Settle(correlation_id=8), add_credit=-1)
    assert worker.refused()[0] is INVALID


def test_no_more_comes_than_there_is_credit_in_bytes_for(group: QueueGroup) -> None:
    worker = group.worker(credit_bytes=1)
    worker.credit(10)
    first = worker.deliveries(1)  # However large it is.
    receipt = first[0].receipt
    assert worker.settle(extensions=[pb.Extension(first_receipt=receipt, last_receipt=receipt)]) == {}
    assert group.describe().counts.in_flight == 1
    worker.send(credit=pb.Credit(bytes=1, session_token=12345))  # Of a session that is over.
    worker.send(credit=pb.Credit(bytes=1 << 40))
    rest = worker.deliveries(9)
    assert [delivery.offset for delivery in (*first, *rest)] == list(range(10))


@pytest.mark.parametrize("credit", [pb.Credit(bytes=-1), pb.Credit(bytes=1 << 60), pb.Credit()])
def test_a_credit_without_sense_is_refused(group: QueueGroup, credit: pb.Credit) -> None:
    worker = group.worker(credit_bytes=1)
    worker.send(credit=credit)
    assert worker.refused()[0] is INVALID
    worker = group.joining(credit_bytes=-1)
    assert worker.refused()[0] is INVALID
    worker = group.worker()
    worker.send(credit=pb.Credit(bytes=1))
    code, message = worker.refused()
    assert code is INVALID
    assert "Hello" in message


def test_ranges_of_receipts_are_settled(group: QueueGroup) -> None:
    worker = group.worker()
    taken = worker.take(10)
    first = taken[0].receipt
    assert [delivery.receipt for delivery in taken] == list(range(first, first + 10))
    refused = worker.settle(
        acks=pb.Receipts(firsts=[first], lasts=[first + 3]),
        nacks=[pb.Nack(first_receipt=first + 4, last_receipt=first + 5, reason="broken", delay_ms=60_000)],
        releases=pb.Receipts(firsts=[first + 6], lasts=[first + 7]),
        extensions=[pb.Extension(first_receipt=first + 8, last_receipt=first + 9, lease_ms=60_000)],
    )
    assert refused == {}
    counts = group.describe().counts
    assert (counts.in_flight, counts.acked, counts.nacked, counts.held_lanes, counts.ready) == (2, 4, 2, 2, 2)
    assert [delivery.offset for delivery in worker.take(2)] == [6, 7]


def test_refusals_come_item_by_item_and_the_stream_goes_on(group: QueueGroup) -> None:
    worker, other = group.worker(), group.worker()
    [mine] = worker.take()
    [theirs] = other.take()
    forged = mine.receipt + 1000
    strange = QueueGroup(group.api)
    group.api.produce(strange.topic, keyed(b"a", b"b", b"c"))
    elsewhere = strange.worker().take(3)[2].receipt
    century_ms = 100 * 365 * 86_400_000
    year_ms = 365 * 86_400_000
    refused = worker.settle(
        acks=pb.Receipts(
            firsts=[mine.receipt, forged, theirs.receipt, elsewhere, 0, 9, 2**64 - 1, mine.receipt],
            lasts=[mine.receipt, forged, theirs.receipt, elsewhere, 0, 8, 2**64 - 1, mine.receipt],
        ),
        nacks=[pb.Nack(first_receipt=theirs.receipt, last_receipt=theirs.receipt + 0, delay_ms=century_ms)],
        extensions=[
            pb.Extension(first_receipt=5, last_receipt=5, lease_ms=0),
            pb.Extension(first_receipt=6, last_receipt=6, lease_ms=year_ms),
            pb.Extension(first_receipt=7, last_receipt=7 + 2**40),
        ],
    )
    assert refused[9, 8] == refused[7, 7 + 2**40] == "INVALID_REQUEST"
    assert refused[5, 5] == refused[6, 6] == "INVALID_REQUEST"
    assert refused[forged, forged] == refused[2**64 - 1, 2**64 - 1] == "UNKNOWN_RECEIPT"
    assert refused[0, 0] == "LEASE_LOST", "of an earlier group epoch"
    assert refused[elsewhere, elsewhere] == "UNKNOWN_RECEIPT"
    assert refused[theirs.receipt, theirs.receipt] in ("NOT_HOLDER", "INVALID_REQUEST")
    assert refused[mine.receipt, mine.receipt] == "ALREADY_SETTLED", "the second time"
    assert group.describe().counts.acked == 1
    other.ack([theirs])


def test_a_settlement_names_so_many_receipts_and_no_more(group: QueueGroup) -> None:
    worker = group.worker()
    assert worker.settle(acks=pb.Receipts(firsts=[0], lasts=[2**64 - 1])) == {(0, 2**64 - 1): "INVALID_REQUEST"}
    number = 20_001
    worker.send_settle(acks=pb.Receipts(firsts=range(number), lasts=range(number)))
    code, details = worker.refused()
    assert code is INVALID
    assert "20000" in details


@pytest.mark.prove
def test_an_answer_with_many_refusals_stays_small(group: QueueGroup) -> None:
    worker = group.worker()
    receipt = worker.take(1)[0].receipt + 10_000
    numbers = range(receipt, receipt + 20_000)
    worker.send_settle(acks=pb.Receipts(firsts=list(numbers)[::-1], lasts=list(numbers)[::-1]))
    answer = worker.expect("settled")
    assert answer.ByteSize() < 4 * 1024 * 1024
    assert {failure.status.reason for failure in answer.failures} == {"UNKNOWN_RECEIPT"}
    told = {failure.first_receipt + index for failure in answer.failures for index in range(20_000)}
    assert told >= set(numbers)


def test_runs_are_handed_on_as_they_lie_in_the_log(api: Api) -> None:
    group = QueueGroup(api, ordering="none")
    batch = keyed(*[b"k"] * 100)
    api.produce(group.topic, batch)
    worker = group.worker()
    worker.credit(100)
    message = worker.expect("deliveries")
    assert (message.count, list(message.partitions), list(message.offsets)) == (100, [0], [0])
    assert len(message.batches) == len(batch)
    first = message.first_receipt
    assert worker.settle(acks=pb.Receipts(firsts=[first], lasts=[first + 99])) == {}
    assert group.describe().partitions[0].floor == 100


def test_a_large_record_comes_alone(api: Api) -> None:
    group = QueueGroup(api)
    value = bytes(1_000_000)
    for key in (b"", b"k" * 40_000, b"x"):
        api.produce(group.topic, batch_of(value, producer_id=-1) if key == b"" else keyed(key))
    worker = group.worker()
    assert sorted(len(delivery.value or b"") for delivery in worker.take(3)) == [1, 1, 1_000_000]


def test_a_worker_that_takes_credit_and_never_answers(api: Api) -> None:
    group = QueueGroup(api, lease_seconds=0.3, max_attempts=1000, backoff_initial_seconds=0.0)
    api.produce(group.topic, keyed(b"a", b"b"))
    silent = group.worker()
    held = silent.take(2)
    other = group.worker()
    again = other.take(2)
    assert {(delivery.offset, delivery.attempt, delivery.redelivered) for delivery in again} == {
        (0, 2, True),
        (1, 2, True),
    }
    assert set(silent.settle(acks=receipts(held)).values()) == {"LEASE_LOST"}
    assert group.describe().counts.leases_lost >= 2


# --- how it ends ---------------------------------------------------------------------------------------------------


def test_a_goodbye_gives_back_at_once(group: QueueGroup) -> None:
    worker, other = group.worker(), group.worker()
    taken = worker.take(10)
    worker.send_settle(acks=receipts(taken[:3]))
    worker.send(goodbye=pb.Goodbye())
    assert worker.expect("settled").correlation_id == 1, "what was asked before is answered"
    worker.ends()
    again = other.take(7)
    assert [delivery.offset for delivery in again] == list(range(3, 10))
    assert {delivery.attempt for delivery in again} == {1}
    assert all(delivery.redelivered for delivery in again)
    assert [found.worker_id for found in group.describe().workers] == [other.worker_id]


def test_a_worker_comes_back_in_time_and_keeps_what_it_listed(group: QueueGroup) -> None:
    worker = group.worker()
    taken = worker.take(4)
    worker.break_()
    kept = taken[:3]
    held = pb.Places(partitions=[0] * 3, offsets=[delivery.offset for delivery in kept])
    back = group.joining(worker.worker_id, incarnation=worker.incarnation, held=held)
    assert back.welcome().resumed
    assert [delivery.offset for delivery in back.take(1)] == [3], "what it did not receive comes anew"
    back.ack(kept)


def test_another_incarnation_of_a_worker(group: QueueGroup) -> None:
    worker = group.worker()
    worker.take(4)
    code, details = group.joining(worker.worker_id).refused()
    assert code is grpc.StatusCode.ALREADY_EXISTS
    assert worker.worker_id in details
    worker.break_()
    until(lambda: not group.describe().workers[0].connected)
    new = group.joining(worker.worker_id)
    assert not new.welcome().resumed


def test_the_same_incarnation_on_another_stream_replaces_the_first(group: QueueGroup) -> None:
    worker = group.worker()
    taken = worker.take(4)
    held = pb.Places(partitions=[0] * 4, offsets=[delivery.offset for delivery in taken])
    back = group.joining(worker.worker_id, incarnation=worker.incarnation, held=held)
    assert back.welcome().resumed
    code, details = worker.refused()
    assert code is grpc.StatusCode.ABORTED
    assert "another stream" in details
    back.ack(taken)


def test_without_grace_a_broken_stream_gives_all_back(api: Api) -> None:
    group = QueueGroup(api, grace_seconds=0, backoff_initial_seconds=0)
    api.produce(group.topic, keyed(b"a", b"b"))
    worker, other = group.worker(), group.worker()
    worker.take(2)
    worker.break_()
    assert [delivery.attempt for delivery in other.take(2)] == [2, 2]


def test_requests_may_end_without_a_goodbye(group: QueueGroup) -> None:
    worker = group.worker()
    worker.send_settle(acks=receipts(worker.take(2)))
    worker.half_close()
    assert worker.expect("settled").correlation_id == 1
    worker.ends()
    assert group.describe().counts.acked == 2


def test_a_deleted_group_ends_its_streams(group: QueueGroup) -> None:
    idle, busy = group.worker(), group.worker()
    busy.take(2)
    busy.credit(5)
    group.calls.DeleteQueues(pb.DeleteQueuesRequest(group_ids=[group.id]))
    for worker in (idle, busy):
        assert worker.refused()[0] is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"credit": pb.Credit(records=0)}, "credit"),
        ({"credit": pb.Credit(records=-1)}, "credit"),
        ({"credit": pb.Credit(records=2**31)}, "credit"),
        ({"credit": pb.Credit(records=2**63 - 1)}, "credit"),
        ({"settle": pb.Settle(outputs=[pb.Output(topic="t")])}, "outputs"),
        ({"settle": pb.Settle(acks=pb.Receipts(firsts=[1]))}, "acks"),
        ({"settle": pb.Settle(releases=pb.Receipts(lasts=[1, 2]))}, "releases"),
        ({"hello": pb.Hello()}, "second Hello"),
        ({}, "Credit"),
    ],
)
def test_what_ends_a_stream(group: QueueGroup, fields: dict[str, Any], told: str) -> None:
    worker = group.worker()
    [held] = worker.take()
    worker.send(**fields)
    code, details = worker.refused()
    assert code is INVALID
    assert told in details
    held_places = pb.Places(partitions=[held.partition], offsets=[held.offset])
    back = group.joining(worker.worker_id, incarnation=worker.incarnation, held=held_places)
    assert back.welcome().resumed
    back.ack([held])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"worker_id": "x" * 201}, "worker_id"),
        ({"client_name": "x" * 256}, "client_name"),
        ({"held": pb.Places(partitions=[0])}, "held"),
        ({"held": pb.Places(partitions=[-1], offsets=[0])}, "partition -1"),
        ({"held": pb.Places(partitions=[2**15], offsets=[0])}, "partition 32768"),
        ({"held": pb.Places(partitions=[0], offsets=[2**48])}, "offset"),
        ({"held": pb.Places(partitions=[0] * 100_001, offsets=[0] * 100_001)}, "100001"),
    ],
)
def test_hellos_out_of_bounds(group: QueueGroup, fields: dict[str, Any], told: str) -> None:
    code, details = group.joining(**fields).refused()
    assert code is INVALID
    assert told in details


def test_streams_that_begin_otherwise(group: QueueGroup) -> None:
    stub: Any = group.api.channel.stream_stream("/logbroker.v1.Queues/Work")
    credit = pb.WorkerRequest(credit=pb.Credit(records=1)).SerializeToString()
    nameless = pb.WorkerRequest(hello=pb.Hello(group_id=group.id, incarnation=1)).SerializeToString()
    lifeless = pb.WorkerRequest(hello=pb.Hello(group_id=group.id, worker_id="w")).SerializeToString()
    messages = ((credit, "Hello"), (b"\xff\xff nonsense", "WorkerRequest"), (b"", "Hello"))
    for message, told in (*messages, (nameless, "worker_id"), (lifeless, "incarnation")):
        call: Any = stub(iter([message]), timeout=20)
        with pytest.raises(grpc.RpcError):
            next(call)
        assert call.code() is INVALID
        assert told in call.details()
    assert Worker(group.api.channel, "no-such-group").refused()[0] is grpc.StatusCode.NOT_FOUND
