"""Queue groups as a program has them that knows nothing but the .proto files."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final

import grpc
import msgspec

from logbroker.record.codec import LogRecord, decode_batch, split_batches
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import StoredRecord
from tests.grpc_api.api import Api, Service

DEADLINE_SECONDS: Final = 20

_incarnations = count(1)
_numbers = count()


class Delivery(msgspec.Struct):
    """One delivery, taken out of its message."""

    receipt: int
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    attempt: int
    redelivered: bool


def unpacked(message: pb.Deliveries) -> list[Delivery]:
    """The deliveries of a message, by the rules of queues.proto."""
    number = message.count
    if message.records:
        records = [plain(record) for record in message.records]
    else:
        records = [record for _, batch in split_batches(message.batches) for record in decode_batch(batch)]
        if len(records) != number:
            records = [record for record in records if record.offset >= message.offsets[0]][:number]
    partitions, offsets = list(message.partitions), list(message.offsets)
    if len(offsets) < number:
        partitions, offsets = partitions * number, list(range(offsets[0], offsets[0] + number))
    return [
        Delivery(
            message.first_receipt + index,
            partitions[index],
            offsets[index],
            record.key,
            record.value,
            message.attempts[index] if message.attempts else 1,
            message.redelivered[index] if message.redelivered else False,
        )
        for index, record in enumerate(records)
    ]


def plain(record: StoredRecord) -> LogRecord:
    return LogRecord(
        record.offset,
        record.timestamp_ms,
        record.key if record.HasField("key") else None,
        record.value if record.HasField("value") else None,
        [(header.key, header.value if header.HasField("value") else None) for header in record.headers],
    )


def receipts(deliveries: Iterable[Delivery]) -> pb.Receipts:
    """Ranges of one receipt each."""
    numbers = [delivery.receipt for delivery in deliveries]
    return pb.Receipts(firsts=numbers, lasts=numbers)


class Worker:
    """One stream. Everything that waits has a deadline."""

    def __init__(
        self, channel: grpc.Channel, group_id: str, worker_id: str = "", *, incarnation: int = 0, **fields: Any
    ) -> None:
        self._requests: queue.SimpleQueue[pb.WorkerRequest | None] = queue.SimpleQueue()
        stub = channel.stream_stream(
            "/logbroker.v1.Queues/Work",
            request_serializer=pb.WorkerRequest.SerializeToString,
            response_deserializer=pb.WorkerResponse.FromString,
        )
        self.call: Any = stub(iter(self._requests.get, None), timeout=DEADLINE_SECONDS)
        self.worker_id = worker_id or f"worker-{next(_numbers)}"
        self.incarnation = incarnation or next(_incarnations)
        self._correlation_ids = count(1)
        hello = pb.Hello(group_id=group_id, worker_id=self.worker_id, incarnation=self.incarnation, **fields)
        self.send(hello=hello)

    def send(self, **fields: Any) -> None:
        self._requests.put(pb.WorkerRequest(**fields))

    def next(self) -> pb.WorkerResponse:
        """The next message, whatever it is; raises StopIteration at the end of the stream, and grpc.RpcError."""
        response: pb.WorkerResponse = next(self.call)
        return response

    def expect(self, kind: str) -> Any:
        """The next message, which is of this kind."""
        response = self.next()
        assert response.WhichOneof("response") == kind, response
        return getattr(response, kind)

    def welcome(self) -> pb.Welcome:
        found: pb.Welcome = self.expect("welcome")
        return found

    def credit(self, records: int) -> None:
        self.send(credit=pb.Credit(records=records))

    def deliveries(self, number: int = 1) -> list[Delivery]:
        """Wait for this many deliveries."""
        found: list[Delivery] = []
        while len(found) < number:
            found += unpacked(self.expect("deliveries"))
        assert len(found) == number
        return found

    def take(self, number: int = 1) -> list[Delivery]:
        """Give credit for this many, and wait for them."""
        self.credit(number)
        return self.deliveries(number)

    def settle(self, **fields: Any) -> dict[tuple[int, int], str]:
        """Settle, wait for the answer, and return the reasons by what was refused."""
        correlation_id = self.send_settle(**fields)
        answer = self.expect("settled")
        assert answer.correlation_id == correlation_id
        return refused_in(answer)

    def send_settle(self, **fields: Any) -> int:
        correlation_id = next(self._correlation_ids)
        self.send(settle=pb.Settle(correlation_id=correlation_id, **fields))
        return correlation_id

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        assert self.settle(acks=receipts(deliveries)) == {}

    def goodbye(self) -> None:
        """Say goodbye and wait until that is done."""
        self.send(goodbye=pb.Goodbye())
        self.ends()

    def ends(self) -> None:
        """The stream ends without an error."""
        assert list(self.call) == []
        assert self.call.code() == grpc.StatusCode.OK
        self._requests.put(None)

    def refused(self) -> tuple[grpc.StatusCode, str]:
        """The status with which the stream ends."""
        try:
            while True:
                self.next()
        except grpc.RpcError:
            return self.call.code(), self.call.details()
        finally:
            self._requests.put(None)

    def half_close(self) -> None:
        """No more requests come."""
        self._requests.put(None)

    def break_(self) -> None:
        """Break the stream without a word."""
        self.call.cancel()
        self._requests.put(None)


def refused_in(answer: pb.SettleAnswer) -> dict[tuple[int, int], str]:
    return {(failure.first_receipt, failure.last_receipt): failure.status.reason for failure in answer.failures}


class QueueGroup:
    """A queue group and its topic, on one broker."""

    def __init__(self, api: Api, *, partitions: int = 1, create: bool = True, bands: str = "", **settings: Any) -> None:
        assert create or not settings, "settings go to create()"
        number = next(_numbers)
        self.id = f"queue-{number}"
        self.topic = f"queued-{number}"
        configs = {"priority_bands": bands} if bands else {}
        self.topic_id = api.create(self.topic, partitions, **configs).id
        self.connect(api)
        if create:
            self.create(**settings)

    def connect(self, api: Api) -> None:
        """Go on over another connection."""
        self.api = api
        self.calls = Service(api.channel, pb.DESCRIPTOR.services_by_name["Queues"])

    def create(self, start: pb.StartAt | None = None, **settings: Any) -> pb.CreateQueueResponse:
        request = pb.CreateQueueRequest(
            group_id=self.id, topic=self.topic, settings=pb.QueueSettings(**settings), start=start
        )
        response: pb.CreateQueueResponse = self.calls.CreateQueue(request)
        return response

    def alter(self, **settings: Any) -> pb.AlterQueueResponse:
        request = pb.AlterQueueRequest(group_id=self.id, settings=pb.QueueSettings(**settings))
        response: pb.AlterQueueResponse = self.calls.AlterQueue(request)
        return response

    def describe(self) -> pb.DescribedQueue:
        [found] = self.calls.DescribeQueues(pb.DescribeQueuesRequest(group_ids=[self.id])).queues
        assert not found.status.code, found.status
        described: pb.DescribedQueue = found
        return described

    def worker(self, worker_id: str = "", **fields: Any) -> Worker:
        """A stream that is welcome."""
        worker = self.joining(worker_id, **fields)
        worker.welcome()
        return worker

    def joining(self, worker_id: str = "", **fields: Any) -> Worker:
        """A stream that has sent its Hello."""
        return Worker(self.api.channel, self.id, worker_id, **fields)

    def receive(self, max_records: int = 1, *, worker_id: str = "", **fields: Any) -> list[Delivery]:
        request = pb.ReceiveRequest(group_id=self.id, worker_id=worker_id, max_records=max_records, **fields)
        response = self.calls.Receive(request)
        return [delivery for message in response.deliveries for delivery in unpacked(message)]

    def settle(self, *, worker_id: str = "", **fields: Any) -> dict[tuple[int, int], str]:
        request = pb.SettleRequest(group_id=self.id, worker_id=worker_id, settle=pb.Settle(**fields))
        return refused_in(self.calls.Settle(request).answer)

    def lanes(self, order: str = "HOTTEST", **fields: Any) -> Sequence[pb.Lane]:
        request = pb.ListLanesRequest(group_id=self.id, order=f"LANE_ORDER_{order}", **fields)
        found: Sequence[pb.Lane] = self.calls.ListLanes(request).lanes
        return found

    def explain(self, *keys: bytes, records: bool = False) -> Sequence[pb.Lane]:
        request = pb.ExplainLanesRequest(group_id=self.id, keys=keys, records=records)
        found: Sequence[pb.Lane] = self.calls.ExplainLanes(request).lanes
        return found

    def decide(self, *decisions: pb.LaneDecision) -> list[tuple[str, int]]:
        """Reasons of what was refused, and how many records are done."""
        request = pb.DecideLanesRequest(group_id=self.id, decisions=decisions)
        return [(each.status.reason, each.records_done) for each in self.calls.DecideLanes(request).results]

    def redrive(self, **fields: Any) -> tuple[int, int, bool]:
        response = self.calls.Redrive(pb.RedriveRequest(group_id=self.id, **fields))
        return response.records, response.keys, response.more
