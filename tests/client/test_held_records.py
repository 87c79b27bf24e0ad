"""The records and the sessions that a worker holds. No I/O, no clock."""

from __future__ import annotations

import pytest

from logbroker.errors import (
    LeaseLostError,
    StaleSessionError,
    StateTooLargeError,
)
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.header import stored_prefix
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import LEASE_SECONDS, NOW, Worker, acks, deliveries, releases


@pytest.fixture
def worker() -> Worker:
    return Worker()


# --- records -------------------------------------------------------------------------------------------------------


def test_records_come_as_they_lie_in_the_log() -> None:
    """From the midst of a batch to the midst of another one."""
    worker = Worker()

    def stored(base_offset: int, count: int) -> bytes:
        batch = encode_batch([NewRecord(b"%d" % (base_offset + index)) for index in range(count)])
        return stored_prefix(base_offset, len(batch) - 12, 3) + batch[16:]

    message = deliveries(1, range(7))
    del message.partitions[1:]
    del message.offsets[:]
    message.offsets.append(43)
    message.batches = stored(40, 5) + stored(45, 8)
    worker.in_flight.received(message, NOW)
    taken = worker.take(7)
    assert [delivery.offset for delivery in taken] == list(range(43, 50))
    assert [delivery.value for delivery in taken] == [b"%d" % offset for offset in range(43, 50)]
    one = deliveries(8, [47])
    one.batches = stored(45, 8)
    worker.in_flight.received(one, NOW)
    (delivery,) = worker.take(1)
    assert (delivery.offset, delivery.value) == (47, b"47")
    assert [*worker.in_flight.held_records().offsets] == [*range(43, 50), 47]


def test_what_cannot_be_decoded_fails_alone(worker: Worker) -> None:
    message = deliveries(1, range(3))
    good = encode_batch([NewRecord(b"0"), NewRecord(b"1")])
    bad = bytearray(encode_batch([NewRecord(b"2")]))
    bad[-1] ^= 1
    message.batches = good + bytes(bad)
    worker.in_flight.received(message, NOW)
    assert [delivery.value for delivery in worker.take(2)] == [b"0", b"1"]
    settle = worker.sent()
    assert [(nack.first_receipt, nack.last_receipt) for nack in settle.nacks] == [(3, 3)]
    assert "CRC" in settle.nacks[0].reason
    assert worker.in_flight.in_hand == 2


# --- sessions ------------------------------------------------------------------------------------------------------


def test_a_state_moves_with_the_next_ack_and_not_before(worker: Worker) -> None:
    session = worker.open_session()
    assert session.state == b"before"
    worker.receive(1, range(2), session=session)
    first, second = worker.take(2, buffer=session.buffer)
    session.set_state(b"after")
    assert worker.sends_nothing()
    first.ack()
    settle = worker.sent()
    assert [(state.key, state.token, state.state) for state in settle.states] == [(b"k", 7, b"after")]
    assert acks(settle) == [(1, 1)]
    second.ack()
    assert worker.sends_nothing()
    worker.answer(settle)
    assert not worker.sent().states
    assert worker.in_flight.in_hand == 0
    with pytest.raises(StateTooLargeError):
        session.set_state(b"x" * (256 * 1024 + 1))


def test_after_a_nack_nothing_of_the_session_is_taken_before_that_record_comes_again(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, range(3), session=session)
    worker.in_flight.received(deliveries(4, [3], session), NOW)
    first, second, *behind = worker.take(4, buffer=session.buffer)
    first.ack()
    second.nack()
    for delivery in behind:
        with pytest.raises(LeaseLostError, match="comes again after it"):
            delivery.ack()
    # This one was on its way when the broker heard of the nack.
    worker.receive(5, [4], session=session)
    worker.take(0, buffer=session.buffer)
    settle = worker.sent()
    assert releases(settle) == [(5, 5)]
    worker.receive(6, [1, 2, 3, 4], session=session)
    assert [delivery.offset for delivery in worker.take(4, buffer=session.buffer)] == [1, 2, 3, 4]


def test_after_the_answer_to_a_nack_whatever_comes_is_taken(worker: Worker) -> None:
    """The record itself may have gone to the dead letters."""
    session = worker.open_session()
    worker.receive(1, [0, 1], session=session)
    first, _ = worker.take(2, buffer=session.buffer)
    first.nack()
    worker.answer(worker.sent())
    worker.receive(3, [1, 2], session=session)
    assert [delivery.offset for delivery in worker.take(2, buffer=session.buffer)] == [1, 2]


def test_a_session_that_is_lost_takes_its_deliveries_along(worker: Worker) -> None:
    session = worker.open_session()
    other = worker.open_session(b"other", 8)
    worker.receive(1, [0, 1, 2], session=session)
    worker.receive(4, [9], session=other)
    first, second, _ = worker.take(3, buffer=session.buffer)
    first.ack()
    worker.in_flight.sessions.lost(7, b"k", StaleSessionError("another has it"))
    for use in (session.check, second.ack, lambda: session.set_state(b"")):
        with pytest.raises(StaleSessionError, match="another has it"):
            use()
    assert worker.in_flight.outbox.take_untold() is None, "the session has told of it"
    (kept,) = worker.take(1, buffer=other.buffer)
    kept.ack()
    assert acks(worker.sent()) == [(4, 4)]


def test_the_loss_of_a_session_that_nobody_asked_is_told_by_the_next_flush(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, [0], session=session)
    (delivery,) = worker.take(1, buffer=session.buffer)
    delivery.ack()
    worker.in_flight.sessions.lost(7, b"k", StaleSessionError("another has it"))
    assert isinstance(worker.in_flight.outbox.take_untold(), StaleSessionError)


def test_locks_are_renewed_in_time_and_sessions_that_did_not_outlive_a_break_are_lost(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, [0], session=session)
    assert worker.in_flight.sessions.renewals(NOW + 3) == []
    assert worker.in_flight.sessions.renewals(NOW + 5) == [session]
    session.renewal_id, session.renewal_at = 77, NOW + 5
    assert worker.in_flight.sessions.renewals(NOW + 5) == []
    answer = queues_pb2.SessionAnswer(correlation_id=77, lock_ms=round(LEASE_SECONDS * 1000))
    assert worker.in_flight.sessions.answered(answer, None)
    assert worker.in_flight.sessions.renewals(NOW + 8) == []
    worker.take(1, NOW + 14, session.buffer)
    worker.in_flight.broken()
    worker.in_flight.welcomed(queues_pb2.Welcome(resumed=True, lease_ms=10_000, topic="t"), NOW, NOW)
    with pytest.raises(StaleSessionError):
        session.check()


def test_a_dead_letter_lets_the_next_record_of_the_session_come_before_the_answer(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, [0, 1], session=session)
    first, _ = worker.take(2, buffer=session.buffer)
    first.nack()
    worker.receive(3, [1, 2], session=session)
    assert [delivery.offset for delivery in worker.take(2, buffer=session.buffer)] == [1, 2]
