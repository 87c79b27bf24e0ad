"""Requests that a worker sends, and in how few messages."""

from __future__ import annotations

from types import SimpleNamespace

from logbroker.client.transport.connection import Connection
from logbroker.client.worker.delivery_batch import HELD
from logbroker.client.worker.leased_record import WorkerDelivery
from logbroker.client.worker.settlements import ACK, Settlements
from logbroker.client.worker.worker_connection import WorkerConnection, WorkerOptions
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import NOW, Worker, acks


def request(link: WorkerConnection[WorkerDelivery]) -> queues_pb2.WorkerRequest | None:
    """The next one, as the stream's writer asks for it."""
    return link._next_request()


async def linked(worker: Worker, prefetch: int) -> WorkerConnection[WorkerDelivery]:
    options = WorkerOptions(group_id="g", worker_id="w", client_name="", band="")
    link: WorkerConnection[WorkerDelivery] = WorkerConnection(
        Connection("127.0.0.1:1", request_timeout_seconds=1.0), options, worker.in_flight
    )
    link._prefetch = prefetch
    return link


def receive(link: WorkerConnection[WorkerDelivery], worker: Worker, receipt: int, count: int) -> None:
    worker.receive(receipt, range(receipt, receipt + count))
    link._credit -= count


async def test_one_at_a_time_is_settled_and_the_next_one_asked_for_in_one_message() -> None:
    worker = Worker()
    link = await linked(worker, 1)
    first = request(link)
    assert first is not None
    assert first.credit.records == 1
    receive(link, worker, 7, 1)
    assert request(link) is None, "it is in hand"
    [delivery] = worker.take(1)
    delivery.ack()
    both = request(link)
    assert both is not None
    assert (acks(both.settle), both.add_credit) == ([(7, 7)], 1)
    assert request(link) is None


async def test_credit_does_not_wait_for_an_answer() -> None:
    worker = Worker()
    link = await linked(worker, 1)
    request(link)
    receive(link, worker, 7, 1)
    worker.take(1)[0].ack()
    request(link)
    receive(link, worker, 8, 1)
    worker.take(1)[0].ack()
    alone = request(link)
    assert alone is not None
    assert alone.WhichOneof("request") == "credit", "the settlement before has no answer: this one waits for it"
    assert alone.credit.records == 1


async def test_a_settlement_brings_credit_only_when_it_is_worth_a_message() -> None:
    worker = Worker()
    link = await linked(worker, 10)
    request(link)
    receive(link, worker, 0, 10)
    taken = worker.take(10)
    taken[0].ack()
    few = request(link)
    assert few is not None
    assert few.WhichOneof("request") == "settle"
    worker.answer(few.settle)
    for delivery in taken[1:]:
        delivery.ack()
    rest = request(link)
    assert rest is not None
    assert few.add_credit + rest.add_credit == 10
    assert worker.in_flight.take(worker.in_flight.buffer, NOW) is None


def test_a_settlement_has_a_bounded_number_of_deliveries() -> None:
    count = 12_000
    settlements = Settlements(SimpleNamespace(in_hand=count))  # type: ignore[arg-type]
    batch = SimpleNamespace(states=[HELD] * count)
    for index in range(count):
        settlements.say(SimpleNamespace(batch=batch, index=index, outputs=None), ACK)
    assert [len(each.deliveries) for each in settlements.unfinished()] == [5000, 5000, 2000]
