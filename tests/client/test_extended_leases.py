"""Leases that the program asked for, across breaks; and settlements for which the broker had no room at first."""

from __future__ import annotations

import pytest

from logbroker.client.worker.in_flight import InFlight
from logbroker.client.worker.leased_record import WorkerDelivery
from logbroker.client.worker.settlements import Settlements
from logbroker.errors import AlreadySettledError, BrokerUnavailableError, OverloadedError, StaleSessionError
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import LEASE_SECONDS, NOW, Worker, acks, extensions, status


def leases_asked_for(settle: queues_pb2.Settle) -> list[tuple[int, int]]:
    return [(extension.first_receipt, extension.lease_ms) for extension in settle.extensions]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_lease_that_was_asked_for_in_vain_is_asked_for_again(worker: Worker) -> None:
    """The stream broke before the answer: the broker may never have heard of it."""
    worker.receive(1, range(2))
    first, second = worker.take(2)
    first.extend(60)
    second.extend(60)
    assert leases_asked_for(worker.sent()) == [(1, 60_000), (2, 60_000)]
    second.extend(90)
    worker.in_flight.broken()
    worker.welcome(resumed=True)
    assert leases_asked_for(worker.sent()) == [(1, 60_000), (2, 90_000)]


def test_a_lease_that_a_crash_made_shorter_is_asked_for_again(worker: Worker) -> None:
    """Leases are in the broker's memory: what is reclaimed has the group's."""
    worker.receive(1, range(3))
    taken = worker.take(3)
    taken[0].extend(60)
    taken[1].extend(LEASE_SECONDS / 2)
    worker.answer(worker.sent())
    worker.in_flight.broken()
    reclaimed = queues_pb2.Deliveries(first_receipt=900, count=3, partitions=[0] * 3, offsets=[0, 1, 2])
    worker.welcome(reclaimed=[reclaimed])
    assert leases_asked_for(worker.sent()) == [(900, 60_000)]
    assert extensions(worker.in_flight.extensions(NOW + 5)) == [(901, 902)]


def test_a_lease_for_which_there_is_no_room_is_prolonged_as_the_others(worker: Worker) -> None:
    worker.receive(1, range(2))
    worker.take(2)[0].extend(60)
    worker.answer(worker.sent(), [(1, 1, OverloadedError("later"))])
    assert worker.sends_nothing()
    assert extensions(worker.in_flight.extensions(NOW + 5)) == [(1, 2)]


def test_what_is_put_off_is_unfinished_and_nothing_overtakes_it(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, range(3), session=session)
    first, second, _ = worker.take(3, buffer=session.buffer)
    session.set_state(b"1")
    first.ack()
    again = refuse(worker.in_flight, worker.sent())
    assert first.settlement in worker.in_flight.unfinished()
    assert session.unfinished() == [first.settlement]
    session.set_state(b"2")
    second.ack()
    assert worker.sends_nothing()
    worker.in_flight.again(again)
    sent = worker.sent()
    assert (acks(sent), [state.state for state in sent.states]) == ([(1, 1)], [b"1"])
    worker.answer(sent)
    assert acks(worker.sent()) == [(2, 2)]


async def test_what_is_put_off_fails_with_the_worker(worker: Worker) -> None:
    worker.receive(1, [0])
    (delivery,) = worker.take(1)
    delivery.ack()
    again = refuse(worker.in_flight, worker.sent())
    worker.in_flight.fail(BrokerUnavailableError("the worker is closed"))
    with pytest.raises(BrokerUnavailableError, match="closed"):
        await delivery
    worker.in_flight.again(again)
    assert worker.sends_nothing()


def test_what_is_put_off_when_the_stream_breaks_goes_on_the_next(worker: Worker) -> None:
    worker.receive(1, [0])
    worker.take(1)[0].ack()
    again = refuse(worker.in_flight, worker.sent())
    worker.in_flight.broken()
    worker.welcome(resumed=True)
    assert acks(worker.sent()) == [(1, 1)]
    worker.in_flight.again(again)
    assert worker.sends_nothing()


def test_all_settled_deliveries_are_extended_until_they_are_answered() -> None:
    """However they wait: refused, behind a refused one, behind one that is stored, or in another queue."""
    worker = Worker(max_extension_seconds=1)
    worker.receive(1, range(9))
    refused, behind, stored, behind_stored, *large, done, held = worker.take(9)
    refused.send("full", b"").ack()
    again = refuse(worker.in_flight, worker.sent())
    behind.send("full", b"").ack()
    stored.send("stuck", b"").ack()
    worker.sent()
    behind_stored.send("stuck", b"").ack()
    for delivery in large:
        delivery.send("stuck", bytes(1 << 20)).ack()
    done.ack()
    worker.answer(worker.sent())
    while not worker.sends_nothing():
        pass  # None of these is answered.
    extended = worker.in_flight.extensions(NOW + 5)
    assert extensions(extended) == [(1, 7)]
    assert extended is not None
    worker.answer(extended, [(3, 3, AlreadySettledError("stored"))])
    worker.in_flight.again(again)
    worker.answer(worker.sent())
    assert extensions(worker.in_flight.extensions(NOW + 12)) == [(2, 7)]
    assert not any(delivery.lost for delivery in (stored, behind, *large))
    assert not held.settled


def test_a_session_that_was_left_is_renewed_until_its_settlements_are_answered() -> None:
    worker = Worker()
    session = worker.open_session()
    worker.receive(1, range(1), session=session)
    [delivery] = worker.take(1, buffer=session.buffer)
    delivery.ack()
    sent = worker.sent()
    sessions = worker.in_flight.sessions
    sessions.leave(session, StaleSessionError("closed"))
    assert sessions.renewals(NOW + 9) == [session]
    worker.answer(sent)
    assert sessions.renewals(NOW + 9) == []


def refuse(in_flight: InFlight[WorkerDelivery], settle: queues_pb2.Settle) -> Settlements:
    """Answer that there was no room; return what is to be sent again."""
    failure = queues_pb2.SettleFailure(status=status(OverloadedError("later")))
    again = in_flight.answered(queues_pb2.SettleAnswer(correlation_id=settle.correlation_id, failures=[failure]))
    assert again is not None
    return again
