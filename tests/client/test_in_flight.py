"""Records that a worker holds, settles and loses, whatever its stream and its program do. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from logbroker.client.worker.leased_record import WorkerDelivery
from logbroker.config import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, MIB, MIN_LEASE_SECONDS
from logbroker.errors import (
    AlreadySettledError,
    DiskFullError,
    InvalidRequestError,
    LeaseLostError,
    OverloadedError,
    StaleSessionError,
    UnknownTopicError,
)
from logbroker.record.codec import with_producer
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import LEASE_SECONDS, NOW, Worker, acks, deliveries, extensions, releases


@pytest.fixture
def worker() -> Worker:
    return Worker()


# --- settlements ---------------------------------------------------------------------------------------------------


def test_what_is_said_travels_as_ranges(worker: Worker) -> None:
    worker.receive(50, range(10))
    taken = worker.take(10)
    assert [int(delivery.value or b"") for delivery in taken] == list(range(10))
    for index in (2, 0, 1, 5):
        taken[index].ack()
    taken[6].release()
    for index in (3, 4, 8):
        taken[index].nack(reason="no", delay_seconds=1.5)
    taken[9].nack(reason="never")
    settle = worker.sent()
    assert acks(settle) == [(50, 52), (55, 55)]
    assert releases(settle) == [(56, 56)]
    nacks = [(nack.first_receipt, nack.last_receipt, nack.reason, nack.delay_ms) for nack in settle.nacks]
    assert nacks == [(53, 54, "no", 1500), (58, 58, "no", 1500), (59, 59, "never", 0)]
    assert not settle.nacks[2].HasField("delay_ms")
    assert worker.in_flight.in_hand == 1
    assert [*worker.in_flight.held_records().offsets] == list(range(10))
    worker.answer(settle)
    assert [*worker.in_flight.held_records().offsets] == [7]


def test_a_batch_that_cannot_be_decoded_is_nacked_and_the_log_says_where_it_lies_and_what_follows(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    message = deliveries(50, range(10, 14))
    damaged = bytearray(message.batches)
    damaged[damaged.rindex(b"13") - 1] = 0x7E  # the length of the last value
    message.batches = with_producer(bytes(damaged), -1, -1, -1)  # with the CRC of these bytes
    worker.in_flight.received(message, NOW)
    assert [delivery.offset for delivery in worker.take(3)] == [10, 11, 12]
    (nack,) = worker.sent().nacks
    assert (nack.first_receipt, nack.last_receipt) == (53, 53)
    (line,) = caplog.messages
    assert line.startswith("t-0, offset 13: the rest of the batch cannot be decoded: ")
    assert nack.reason.partition(": ")[2] in line
    assert "nacked" in line
    assert "dead-letter topic" in line
    assert "`logbroker segment dump`" in line


def test_while_one_is_unanswered_the_next_is_gathered(worker: Worker) -> None:
    worker.receive(1, range(10))
    taken = worker.take(10)
    taken[0].ack()
    first = worker.sent()
    for delivery in taken[1:]:
        delivery.ack()
        assert worker.sends_nothing()
    worker.answer(first)
    assert acks(worker.sent()) == [(2, 10)]


def test_much_is_sent_even_while_one_is_unanswered(worker: Worker) -> None:
    worker.receive(1, range(3000))
    taken = worker.take(3000)
    taken[0].ack()
    worker.sent()
    for delivery in taken[1:2000]:
        delivery.ack()
    assert acks(worker.sent()) == [(2, 2000)]
    for delivery in taken[2000:2500]:
        delivery.ack()
    assert worker.sends_nothing()


def test_each_is_settled_once(worker: Worker) -> None:
    worker.receive(1, [0])
    (delivery,) = worker.take(1)
    delivery.ack()
    for settle in (delivery.ack, delivery.nack, delivery.release):
        with pytest.raises(AlreadySettledError):
            settle()
    worker.answer(worker.sent())
    with pytest.raises(AlreadySettledError):
        delivery.ack()
    assert worker.sends_nothing()


@pytest.mark.parametrize(
    "asked",
    [
        lambda delivery: delivery.extend(MAX_LEASE_SECONDS + 1),
        lambda delivery: delivery.extend(MIN_LEASE_SECONDS / 2),
        lambda delivery: delivery.extend(math.nan),
        lambda delivery: delivery.nack(delay_seconds=MAX_DELAY_SECONDS + 1),
        lambda delivery: delivery.nack(delay_seconds=-1),
        lambda delivery: delivery.nack(delay_seconds=math.inf),
    ],
)
def test_what_the_broker_would_refuse_is_refused_at_once_and_the_delivery_stays(
    worker: Worker, asked: Callable[[WorkerDelivery], object]
) -> None:
    worker.receive(1, [0])
    (delivery,) = worker.take(1)
    with pytest.raises(InvalidRequestError, match="cannot be had"):
        asked(delivery)
    assert worker.sends_nothing()
    delivery.extend(MAX_LEASE_SECONDS)
    worker.sent()
    delivery.nack(delay_seconds=MAX_DELAY_SECONDS)
    assert len(worker.sent().nacks) == 1


async def test_a_refusal_is_told_to_who_waits_or_to_the_next_flush(worker: Worker) -> None:
    worker.receive(1, range(3))
    taken = worker.take(3)
    for delivery in taken:
        delivery.ack()
    worker.answer(worker.sent(), [(2, 2, LeaseLostError("too late"))])
    await taken[0]
    assert isinstance(worker.in_flight.outbox.take_untold(), LeaseLostError)
    assert worker.in_flight.outbox.take_untold() is None
    with pytest.raises(LeaseLostError, match="too late"):
        await taken[1]
    assert taken[1].lost
    assert not taken[2].lost


async def test_a_refusal_that_somebody_heard_of_is_not_told_again(worker: Worker) -> None:
    worker.receive(1, [0])
    (delivery,) = worker.take(1)
    delivery.ack()
    worker.answer(worker.sent(), [(1, 1, LeaseLostError("too late"))])
    with pytest.raises(LeaseLostError):
        await delivery
    assert worker.in_flight.outbox.take_untold() is None


def test_refused_outputs_beside_a_loss_are_told_by_no_flush(worker: Worker) -> None:
    """They were logged, and the record is tried again. A flush may leave out losses, too."""
    worker.receive(1, range(2))
    for delivery in worker.take(2):
        delivery.send("nowhere", b"")
        delivery.ack()
    refused, lost = UnknownTopicError("there is no topic nowhere"), LeaseLostError("too late")
    worker.answer(worker.sent(), [(0, 0, refused)])
    worker.answer(worker.sent(), [(0, 0, refused)])
    nack = worker.sent()
    assert len(nack.nacks) == 1
    worker.answer(nack)
    worker.answer(worker.sent(), [(0, 0, lost), (2, 2, lost)])
    assert worker.sends_nothing()
    assert worker.in_flight.outbox.take_untold(with_losses=False) is None


def test_what_the_broker_had_no_room_for_is_sent_again(worker: Worker) -> None:
    worker.receive(1, range(3))
    for delivery in worker.take(3):
        delivery.ack()
    worker.answer(worker.sent(), [(0, 0, OverloadedError("later"))])
    again = worker.sent()
    assert acks(again) == [(1, 3)]
    worker.answer(again)
    assert worker.sends_nothing()
    assert worker.in_flight.outbox.take_untold() is None


def test_no_more_is_requested_while_much_waits_for_room_at_the_broker(worker: Worker) -> None:
    worker.receive(1, range(20))
    for delivery in worker.take(20):
        delivery.send("out", bytes(MIB - 1000))
        delivery.ack()
    may_take_more = []
    for _ in range(20):
        worker.answer(worker.sent(), [(0, 0, DiskFullError("the disk is full"))])
        may_take_more.append(worker.in_flight.missing(100) > 0)
        worker.answer(worker.sent())
    assert may_take_more == [False] * 4 + [True] * 16, "16 MiB may wait"
    assert worker.sends_nothing()


def test_what_waits_for_room_at_the_broker_counts_as_unsettled(worker: Worker) -> None:
    """Otherwise a worker would go on without any ack, and all that it has done would come again if it died."""
    worker.receive(1, range(20))
    for delivery in worker.take(20):
        delivery.ack()
    assert worker.in_flight.missing(20) == 20
    refused = worker.sent()
    worker.answer(refused, [(0, 0, OverloadedError("later"))])
    assert worker.in_flight.missing(20) == 0
    assert worker.in_flight.missing(30) == 10
    worker.receive(21, range(20, 25))
    worker.take(5)[0].ack()
    assert worker.in_flight.missing(30) == 6
    worker.answer(worker.sent())
    assert worker.in_flight.missing(30) == 26


@pytest.mark.parametrize("end", ["answered", "broken", "lost"])
def test_more_is_requested_again_when_nothing_waits_for_room(worker: Worker, end: str) -> None:
    worker.receive(1, range(20))
    for delivery in worker.take(20):
        delivery.send("out", bytes(MIB - 1000))
        delivery.ack()
    worker.answer(worker.sent(), [(0, 0, DiskFullError("the disk is full"))])
    assert worker.in_flight.missing(100) == 0
    if end == "answered":
        worker.answer(worker.sent())
    else:
        worker.in_flight.broken()
        if end == "lost":
            worker.welcome(resumed=False)
    assert worker.in_flight.missing(100) == 100


# --- breaks --------------------------------------------------------------------------------------------------------


def test_nothing_is_handed_out_between_streams(worker: Worker) -> None:
    worker.receive(1, range(3))
    worker.in_flight.broken()
    worker.take(0)
    assert worker.welcome(resumed=True) == (0, 0)
    worker.take(3)


def test_who_comes_back_in_time_says_again_what_has_no_answer(worker: Worker) -> None:
    worker.receive(1, range(4))
    taken = worker.take(4)
    taken[0].ack()
    taken[1].nack()
    worker.sent()
    taken[2].ack()
    worker.in_flight.broken()
    assert [*worker.in_flight.held_records().offsets] == [0, 1, 2, 3]
    worker.welcome(resumed=True)
    again = worker.sent()
    assert acks(again) == [(1, 1)]
    assert [nack.first_receipt for nack in again.nacks] == [2]
    # The broker had carried it out: that is no failure.
    worker.answer(again, [(1, 2, AlreadySettledError("settled before"))])
    assert worker.in_flight.outbox.take_untold() is None
    rest = worker.sent()
    assert acks(rest) == [(3, 3)]
    worker.answer(rest, [(3, 3, AlreadySettledError("settled before"))])
    assert isinstance(worker.in_flight.outbox.take_untold(), AlreadySettledError)


def test_who_comes_too_late_has_lost_everything(worker: Worker) -> None:
    worker.receive(1, range(4))
    first, second, *_ = [worker.in_flight.take(worker.in_flight.buffer, NOW) for _ in range(2)]
    assert first is not None
    assert second is not None
    second.ack()
    worker.sent()
    worker.in_flight.broken()
    assert worker.welcome() == (4, 0)
    worker.take(0)
    assert first.lost
    with pytest.raises(LeaseLostError):
        first.ack()
    assert worker.sends_nothing()
    assert worker.in_flight.in_hand == 0
    assert isinstance(worker.in_flight.outbox.take_untold(), LeaseLostError)
    assert not worker.in_flight.held_records().offsets


def test_after_a_crash_what_is_reclaimed_goes_on_under_new_receipts(worker: Worker) -> None:
    worker.receive(1, range(6))
    taken = [worker.in_flight.take(worker.in_flight.buffer, NOW) for _ in range(4)]
    settled, working, lost, done = (delivery for delivery in taken if delivery is not None)
    settled.ack()
    done.ack()
    worker.sent()
    worker.in_flight.broken()
    reclaimed = [
        queues_pb2.Deliveries(first_receipt=900, count=2, partitions=[0, 0], offsets=[0, 1]),
        queues_pb2.Deliveries(first_receipt=950, count=1, partitions=[0], offsets=[5]),
    ]
    assert worker.welcome(reclaimed=reclaimed) == (3, 0)
    working.ack()
    again = worker.sent()
    assert acks(again) == [(900, 900)]
    worker.answer(again)
    rest = worker.sent()
    assert acks(rest) == [(901, 901)]
    assert lost.lost
    (waiting,) = worker.take(1)
    assert waiting.offset == 5
    waiting.ack()
    worker.answer(rest)
    assert acks(worker.sent()) == [(950, 950)]
    # Whether that ack took effect is not known; the program is told.
    assert isinstance(worker.in_flight.outbox.take_untold(), LeaseLostError)


# --- leases --------------------------------------------------------------------------------------------------------


def test_what_waited_for_longer_than_its_lease_is_not_handed_out(worker: Worker) -> None:
    worker.receive(1, range(2), now=NOW)
    worker.receive(3, range(2, 4), now=NOW + 5)
    assert [delivery.offset for delivery in worker.take(2, now=NOW + LEASE_SECONDS + 1)] == [2, 3]
    assert worker.in_flight.in_hand == 2


def test_leases_are_prolonged_while_the_program_works(worker: Worker) -> None:
    worker.receive(1, range(5))
    taken = worker.take(5)
    taken[2].ack()
    worker.answer(worker.sent())
    assert worker.in_flight.extensions(NOW + 3) is None
    message = worker.in_flight.extensions(NOW + 5)
    assert extensions(message) == [(1, 2), (4, 5)]
    assert message is not None
    worker.answer(message)
    assert worker.in_flight.extensions(NOW + 8) is None
    assert extensions(worker.in_flight.extensions(NOW + 10)) == [(1, 2), (4, 5)]


def test_a_lease_is_not_prolonged_for_ever() -> None:
    worker = Worker(max_extension_seconds=12)
    worker.receive(1, [0])
    worker.take(1)
    message = worker.in_flight.extensions(NOW + 9)
    assert message is not None
    worker.answer(message)
    message = worker.in_flight.extensions(NOW + 18)
    assert message is None or not message.extensions


@pytest.mark.parametrize("max_extension_seconds", [0, 12])
def test_a_lease_is_prolonged_for_as_long_after_the_program_took_the_delivery(max_extension_seconds: float) -> None:
    """A delivery that waits is prolonged while the program takes others, however long that lasts."""
    worker = Worker(max_extension_seconds=max_extension_seconds)
    worker.receive(1, range(4))
    worker.receive(5, [4])
    buffer = worker.in_flight.buffer
    held_until: dict[int, float] = dict.fromkeys(range(1, 6), NOW + LEASE_SECONDS)
    taken_at: dict[int, float] = {}
    for second in range(200):
        now = NOW + second
        if second % 30 == 29:  # The broker has sent no more by then than a program takes that is not slow.
            delivery = worker.in_flight.take(buffer, now)
            assert delivery is not None
            receipt = delivery.batch.receipt(delivery.index)
            taken_at[receipt] = now
            assert held_until[receipt] >= now
            if len(taken_at) == 5:
                break
        message = worker.in_flight.extensions(now)
        if message is not None:
            worker.answer(message)
            for first, last in extensions(message):
                held_until.update(dict.fromkeys(range(first, last + 1), now + LEASE_SECONDS))
    for receipt, seconds in list(taken_at.items())[:-1]:
        held_seconds = held_until[receipt] - seconds
        assert max_extension_seconds <= held_seconds <= max_extension_seconds + LEASE_SECONDS


def test_a_lease_is_prolonged_from_the_begin_of_the_work_if_the_program_names_it() -> None:
    """A program that keeps deliveries in a queue of its own: those that wait are kept, however long."""
    worker = Worker(max_extension_seconds=12)
    worker.receive(1, range(3))
    begun, waiting, other = worker.take(3)
    waiting.batch.waits_in_program(waiting.index)
    begun.batch.waits_in_program(begun.index)
    held_until = dict.fromkeys((1, 2, 3), NOW + LEASE_SECONDS)
    for second in range(100):
        if second == 50:
            begun.batch.begins(begun.index, NOW + second)
        message = worker.in_flight.extensions(NOW + second)
        if message is not None:
            worker.answer(message)
            for first, last in extensions(message):
                held_until.update(dict.fromkeys(range(first, last + 1), NOW + second + LEASE_SECONDS))
    assert 12 <= held_until[3] - NOW <= 12 + LEASE_SECONDS
    assert 62 <= held_until[1] - NOW <= 62 + LEASE_SECONDS
    assert held_until[2] > NOW + 100
    # Nothing is held for longer than the broker was asked for.
    batch = waiting.batch
    assert [batch.ends_at(delivery.index) for delivery in (begun, waiting, other)] == [
        held_until[receipt] for receipt in (1, 2, 3)
    ]


def test_a_lease_that_the_program_asked_for_is_not_cut_by_the_next_extension(worker: Worker) -> None:
    worker.receive(1, range(2))
    taken = worker.take(2)
    taken[0].extend(60)
    asked = worker.sent()
    assert [(extension.first_receipt, extension.lease_ms) for extension in asked.extensions] == [(1, 60_000)]
    worker.answer(asked)
    assert extensions(worker.in_flight.extensions(NOW + 5)) == [(2, 2)]
    assert extensions(worker.in_flight.extensions(NOW + 55)) == [(1, 2)]


def test_a_refused_extension_is_a_loss(worker: Worker) -> None:
    worker.receive(1, range(3))
    taken = worker.take(3)
    message = worker.in_flight.extensions(NOW + 5)
    assert message is not None
    worker.answer(message, [(2, 2, LeaseLostError("too late"))])
    assert [delivery.lost for delivery in taken] == [True, True, True]  # by the real clock, which is far ahead
    with pytest.raises(LeaseLostError, match="too late"):
        taken[1].ack()
    taken[0].ack()
    assert worker.in_flight.in_hand == 1


def test_a_delivery_that_may_have_lain_unread_beyond_its_lease_is_given_back_unseen(worker: Worker) -> None:
    worker.receive_late(1, [0, 1], NOW + LEASE_SECONDS + 1)
    worker.take(0, NOW + LEASE_SECONDS + 1)
    assert releases(worker.sent()) == [(1, 2)]
    assert worker.in_flight.in_hand == 0


def test_a_lease_counts_from_the_sending_of_the_newest_request_that_was_answered(worker: Worker) -> None:
    worker.receive_late(1, [0], NOW + 4)
    [first] = worker.take(1, NOW + LEASE_SECONDS)
    first.ack()
    acked = worker.in_flight.next_settle(NOW + 6)
    assert acked is not None
    worker.receive_late(2, [1], NOW + 7)  # Sent before the answer, perhaps before the ack.
    worker.answer(acked)
    worker.receive_late(3, [2], NOW + 8)
    assert [delivery.offset for delivery in worker.take(1, NOW + LEASE_SECONDS + 1)] == [2]
    worker.receive_late(4, [3], NOW + 8)
    worker.take(0, NOW + 6.1 + LEASE_SECONDS)


def test_a_worker_that_hears_nothing_asks_the_broker_for_an_answer_in_time(worker: Worker) -> None:
    assert worker.in_flight.extensions(NOW + LEASE_SECONDS * 0.3) is None
    asked = worker.in_flight.extensions(NOW + LEASE_SECONDS * 0.4)
    assert asked is not None
    assert not asked.extensions
    assert worker.in_flight.extensions(NOW + LEASE_SECONDS * 0.8) is None, "one question at a time"
    worker.answer(asked)
    assert worker.in_flight.extensions(NOW + LEASE_SECONDS * 0.7) is None
    assert worker.in_flight.extensions(NOW + LEASE_SECONDS * 0.8) is not None


def test_sessions_share_the_window_from_when_they_are_asked_for(worker: Worker) -> None:
    """Many are asked for at a time, and the records of all may come at once."""
    sessions, window = worker.in_flight.sessions, worker.in_flight.window
    whole_bytes = window.part_bytes
    for _ in range(3):
        sessions.ask_for(1)
    assert window.part_bytes == whole_bytes // 4
    opened = [worker.open_session(b"k%d" % token, token) for token in range(1, 4)]
    sessions.ask_for(-3)
    assert window.part_bytes == whole_bytes // 4
    for session in opened:
        sessions.lost(session.token, session.key, StaleSessionError("closed"))
    assert window.part_bytes == whole_bytes


def test_late_records_of_a_session_that_is_over_narrow_the_window_too(worker: Worker) -> None:
    """They delay what the worker still wants, as much as others do."""
    in_flight = worker.in_flight
    session = worker.open_session()
    message = deliveries(1, range(3), session)
    in_flight.sessions.lost(session.token, session.key, StaleSessionError("given up"))
    before_bytes = in_flight.window.part_bytes
    in_flight.received(message, NOW + LEASE_SECONDS)
    assert in_flight.window.part_bytes == before_bytes // 2


def test_the_lock_of_a_session_counts_from_when_it_was_asked_for(worker: Worker) -> None:
    session = worker.open_session(now=NOW + LEASE_SECONDS - 1)
    worker.receive_late(1, [0, 1], NOW + LEASE_SECONDS - 1, session)
    worker.take(0, NOW + LEASE_SECONDS + 0.1, session.buffer)
    assert worker.in_flight.sessions.renewals(NOW + LEASE_SECONDS + 0.1) == [session]
