"""Nothing of a session is left out, and its state goes nowhere without its acks. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

import pytest

from logbroker.client.worker.held_session import HeldSession, IdleWait
from logbroker.client.worker.leased_record import WorkerDelivery
from logbroker.client.worker.sent_records import sent_record
from logbroker.errors import LeaseLostError, RecordTooLargeError, StaleSessionError
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import LEASE_SECONDS, NOW, Worker, acks, releases

AFTER_LOCK = NOW + LEASE_SECONDS + 1


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def session(worker: Worker) -> HeldSession[WorkerDelivery]:
    return worker.open_session()


def test_where_the_lock_seems_over_the_program_waits_for_the_broker_to_tell(
    worker: Worker, session: HeldSession[WorkerDelivery]
) -> None:
    """The broker may have prolonged it: then it still counts what waits as delivered."""
    worker.receive(1, [0, 1], session=session)
    worker.take(0, AFTER_LOCK, session.buffer)
    told: list[bool] = []
    session.buffer.waiters.append(lambda: told.append(True))
    assert not session.buffer.is_ready
    worker.receive(3, [2], AFTER_LOCK, session)
    assert worker.in_flight.sessions.renewals(AFTER_LOCK) == [session]
    session.renewal_id, session.renewal_at = 77, AFTER_LOCK
    answer = queues_pb2.SessionAnswer(correlation_id=77, lock_ms=round(LEASE_SECONDS * 1000))
    assert worker.in_flight.sessions.answered(answer, None)
    assert told
    assert [delivery.offset for delivery in worker.take(3, AFTER_LOCK, session.buffer)] == [0, 1, 2]


def test_what_comes_on_the_next_stream_before_it_is_told_of_a_nack_is_given_back(
    worker: Worker, session: HeldSession[WorkerDelivery]
) -> None:
    worker.receive(1, [0, 1, 2], session=session)
    first, _, _ = worker.take(3, buffer=session.buffer)
    first.nack()
    worker.in_flight.broken()
    worker.welcome(resumed=True)
    # Not listed as held, so they were free again; of the nack the broker has not heard.
    worker.receive(4, [1, 2], session=session)
    worker.take(0, buffer=session.buffer)
    worker.receive(6, [0, 1, 2], session=session)
    assert [delivery.offset for delivery in worker.take(3, buffer=session.buffer)] == [0, 1, 2]


def test_of_several_messages_behind_a_nacked_record_none_is_shown_before_it_comes_again(
    worker: Worker, session: HeldSession[WorkerDelivery]
) -> None:
    """All of them were on the link when the broker read of the nack."""
    worker.receive(1, [0, 1, 2], session=session)
    first, _, _ = worker.take(3, buffer=session.buffer)
    first.nack()
    worker.receive(4, [3, 4, 5], session=session)
    worker.receive(7, [6], session=session)
    worker.receive(8, [7, 8], session=session)
    worker.take(0, buffer=session.buffer)
    worker.receive(10, [0, 1], session=session)
    worker.receive(12, [2, 3, 4], session=session)
    assert [delivery.offset for delivery in worker.take(5, buffer=session.buffer)] == [0, 1, 2, 3, 4]


async def test_a_state_is_not_written_where_the_ack_that_it_moves_with_is_lost(
    worker: Worker, session: HeldSession[WorkerDelivery]
) -> None:
    worker.receive(1, [0, 1], session=session)
    first, second = worker.take(2, buffer=session.buffer)
    worker.in_flight.broken()
    session.set_state(b"after both")
    first.ack()
    second.ack()
    worker.welcome()  # By a broker of another life, which gave the session back, and has the records come again.
    assert worker.sends_nothing()
    worker.receive(3, [0, 1], session=session)
    worker.take(0, buffer=session.buffer)
    for use in (session.check, lambda: session.set_state(b"after both again")):
        with pytest.raises(LeaseLostError):
            use()
    session.save_state()
    assert worker.sends_nothing(), "it is to be opened again, for its state"
    for delivery in (first, second):
        with pytest.raises(LeaseLostError):
            await delivery
        assert not delivery.in_doubt


def _working_on(session: HeldSession[WorkerDelivery], *deliveries: WorkerDelivery) -> None:
    """The program receives deliveries in the loop over the session."""
    for delivery in deliveries:
        session.handed_out(delivery)


def _check_counted_once(worker: Worker, session: HeldSession[WorkerDelivery]) -> None:
    """The first delivery comes again, and is acked: its state and its records of before do not count."""
    worker.receive(3, [0, 1], session=session)
    first, _ = worker.take(2, buffer=session.buffer)
    _working_on(session, first)
    session.set_state(session.state + b" and after first")
    first.ack()
    message = worker.sent()
    assert [state.state for state in message.states] == [b"before and after first"]
    assert not message.outputs


def test_the_state_of_a_repeated_delivery_counts_once(worker: Worker, session: HeldSession[WorkerDelivery]) -> None:
    """The broker was started again: the session goes on, and its unsettled deliveries come again in it."""
    worker.receive(1, [0, 1], session=session)
    first, _ = worker.take(2, buffer=session.buffer)
    _working_on(session, first)
    session.set_state(b"after first")
    sends(session, b"of first")
    worker.in_flight.broken()
    assert worker.welcome() == (0, 2)
    assert session.state == b"before"
    with pytest.raises(LeaseLostError, match="started again: the session goes on"):
        first.ack()
    _check_counted_once(worker, session)


def test_no_state_is_set_for_a_delivery_that_comes_again(worker: Worker, session: HeldSession[WorkerDelivery]) -> None:
    """The program does not know yet that the broker was started again while it worked on the delivery."""
    worker.receive(1, [0, 1], session=session)
    first, second = worker.take(2, buffer=session.buffer)
    _working_on(session, first, second)
    worker.in_flight.broken()
    worker.welcome()
    with pytest.raises(LeaseLostError, match="comes again"):
        session.set_state(b"after second")
    with pytest.raises(LeaseLostError, match="comes again"):
        sends(session, b"of second")
    _check_counted_once(worker, session)


async def test_what_was_sent_and_not_answered_is_in_doubt(worker: Worker, session: HeldSession[WorkerDelivery]) -> None:
    """The session ended at the broker after the settlement, or before it."""
    worker.receive(1, [0, 1], session=session)
    first, second = worker.take(2, buffer=session.buffer)
    session.set_state(b"after")
    first.ack()
    assert acks(worker.sent()) == [(1, 1)]
    second.ack()
    worker.in_flight.sessions.lost(session.token, session.key, StaleSessionError("the lock ended"))
    for delivery, is_in_doubt in ((first, True), (second, False)):
        with pytest.raises(StaleSessionError):
            await delivery
        assert delivery.in_doubt is is_in_doubt


async def test_a_state_that_was_sent_before_a_crash_is_in_doubt(
    worker: Worker, session: HeldSession[WorkerDelivery]
) -> None:
    worker.receive(1, [0], session=session)
    (delivery,) = worker.take(1, buffer=session.buffer)
    session.set_state(b"after")
    delivery.ack()
    worker.sent()
    worker.in_flight.broken()
    worker.welcome()
    assert worker.sends_nothing()
    with pytest.raises(LeaseLostError, match="not known"):
        await delivery
    assert delivery.in_doubt


def test_of_what_the_program_never_saw_it_hears_no_refusal(
    worker: Worker, session: HeldSession[WorkerDelivery]
) -> None:
    worker.receive(1, [0], session=session)
    (first,) = worker.take(1, buffer=session.buffer)
    first.nack()
    nacked = worker.sent()
    worker.receive(2, [1], session=session)
    worker.take(0, buffer=session.buffer)
    worker.answer(nacked)
    released = worker.sent()
    assert releases(released) == [(2, 2)]
    worker.answer(released, [(2, 2, LeaseLostError("taken back before"))])
    assert worker.in_flight.outbox.take_untold() is None


@pytest.mark.parametrize("has_records", [False, True])
def test_a_session_hands_out_the_first_of_its_records_before_patience_counts(worker: Worker, has_records: bool) -> None:
    """However small that is: the record may be slow to come, and the session would be opened for it again."""
    answer = queues_pb2.SessionAnswer(key=b"k", token=7, lock_ms=round(LEASE_SECONDS * 1000), has_records=has_records)
    session = worker.in_flight.sessions.opened(answer, 10, 1 << 20, NOW, NOW)
    assert session.patience_seconds(None, NOW) is None
    for idle_seconds in (0, 0.001, 60):
        seconds = session.patience_seconds(idle_seconds, NOW)
        assert seconds is not None
        assert (seconds > 1) == (has_records or idle_seconds == 60)
    # Nor is it waited for without end: something may befall it on its way.
    assert session.patience_seconds(0, NOW + 3600) == 0
    worker.receive(1, [0, 1], session=session)
    session.handed_out(worker.take(2, buffer=session.buffer)[0])
    assert session.patience_seconds(0.5, NOW) == 0.5


def test_a_session_is_idle_once_the_broker_has_answered_after_the_wait_began(worker: Worker) -> None:
    answer = queues_pb2.SessionAnswer(key=b"k", token=7, lock_ms=round(LEASE_SECONDS * 1000))
    session = worker.in_flight.sessions.opened(answer, 10, 1 << 20, NOW, NOW)
    wait = IdleWait(session, 1.0, NOW)
    assert wait.until == NOW + 1
    assert not wait.is_over(NOW - 0.1, NOW + 1), "what the broker sent since may be on its way"
    assert NOW + 1 < wait.until < NOW + 2
    assert not wait.is_over(NOW + 0.5, NOW + 1.1), "a record may follow that the program has given credit for later"
    assert wait.is_over(NOW + 1.0, NOW + 1.2)
    assert IdleWait(session, 1.0, NOW).is_over(NOW, NOW + 1), "the broker has answered meanwhile"
    assert not (wait := IdleWait(session, 1.0, NOW)).is_over(NOW - 0.1, NOW + 1)
    assert wait.is_over(NOW - 0.1, NOW + 1 + LEASE_SECONDS), "the broker may never answer"
    assert IdleWait(session, 0, NOW).is_over(NOW - 0.1, NOW)
    assert IdleWait(session, None, NOW).until == math.inf


def sends(session: HeldSession[WorkerDelivery], *values: bytes) -> None:
    for value in values:
        session.send(sent_record("out", value, None, None, (), None, None, None, None))


def outputs(settle: queues_pb2.Settle) -> list[bytes]:
    return [record.value for output in settle.outputs for record in output.records.records]


async def failing(delivery: WorkerDelivery) -> None:
    with suppress(ValueError):
        async with delivery:
            raise ValueError("bad")


async def cancelled(delivery: WorkerDelivery) -> None:
    with suppress(KeyboardInterrupt):
        async with delivery:
            raise KeyboardInterrupt


async def nacked(delivery: WorkerDelivery) -> None:
    delivery.nack()


async def released(delivery: WorkerDelivery) -> None:
    delivery.release()


def session_now(worker: Worker) -> HeldSession[WorkerDelivery]:
    """Open a session whose lock has not ended by the real clock, which blocks of deliveries look at."""
    worker.in_flight.outbox.heard_at = monotonic()
    return worker.open_session()


@pytest.mark.parametrize("give_back", [nacked, released, failing, cancelled])
async def test_what_a_session_sends_for_a_delivery_goes_with_it(
    worker: Worker, give_back: Callable[[WorkerDelivery], Awaitable[None]]
) -> None:
    session = session_now(worker)
    worker.receive(1, [0, 1, 2, 3], session=session)
    first, second, third, _ = worker.take(4, monotonic(), session.buffer)
    sends(session, b"before")
    session.handed_out(first)
    sends(session, b"first")
    session.handed_out(second)
    sends(session, b"second")
    session.handed_out(third)
    sends(session, b"third", b"third")
    await give_back(second)
    sends(session, b"about the failure")
    first.ack()
    settle = worker.sent()
    assert outputs(settle) == [b"before", b"first", b"about the failure"]
    worker.answer(settle)
    worker.receive(5, [1, 2], session=session)
    for delivery in worker.take(2, monotonic(), session.buffer):
        session.handed_out(delivery)
        sends(session, b"again %d" % delivery.offset)
        async with delivery:
            pass
        settle = worker.sent()
        assert outputs(settle) == [b"again %d" % delivery.offset]
        worker.answer(settle)


async def test_a_block_whose_outputs_are_too_large_together_gives_its_delivery_back(
    worker: Worker,
) -> None:
    session = session_now(worker)
    worker.receive(1, [0], session=session)
    [delivery] = worker.take(1, monotonic(), session.buffer)
    session.handed_out(delivery)
    sends(session, bytes(600_000))
    with pytest.raises(RecordTooLargeError):
        async with delivery:
            delivery.send("out", bytes(600_000))
    settle = worker.sent()
    assert (settle.nacks[0].first_receipt, len(settle.outputs)) == (1, 0)
    assert "the outputs of the delivery would have 1,200,000 bytes" in settle.nacks[0].reason
