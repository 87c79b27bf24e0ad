"""What a worker holds, says and loses, whatever its stream and its program do. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from logbroker.client.held_session import HeldSession
from logbroker.client.holdings import Holdings
from logbroker.client.leased_record import WorkerDelivery
from logbroker.client.shelf import Shelf
from logbroker.errors import (
    AlreadySettledError,
    LeaseLostError,
    LogbrokerError,
    OverloadedError,
    StaleSessionError,
    StateTooLargeError,
)
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.header import stored_prefix
from logbroker.v1 import common_pb2, queues_pb2

LEASE_SECONDS = 10.0
NOW = 100.0


class Worker:
    """Holdings with a broker by hand: the test says what comes, and sees what goes."""

    def __init__(self, max_extension_seconds: float = 1000.0) -> None:
        self.holdings = Holdings(WorkerDelivery, wake=lambda: None, max_extension_seconds=max_extension_seconds)
        self.welcome()

    def welcome(self, *, resumed: bool = False, reclaimed: Iterable[queues_pb2.Deliveries] = ()) -> int:
        sessions = [queues_pb2.SessionRef(key=session.key, token=session.token) for session in self.holdings.sessions]
        welcome = queues_pb2.Welcome(
            resumed=resumed, lease_ms=round(LEASE_SECONDS * 1000), topic="t", reclaimed=reclaimed, sessions=sessions
        )
        return self.holdings.welcomed(welcome, NOW)

    def receive(
        self, receipt: int, offsets: Sequence[int], now: float = NOW, session: HeldSession[WorkerDelivery] | None = None
    ) -> None:
        self.holdings.received(deliveries(receipt, offsets, session), now)

    def take(self, count: int, now: float = NOW, shelf: Shelf[WorkerDelivery] | None = None) -> list[WorkerDelivery]:
        """Take so many, and no more are there."""
        taken = []
        while (delivery := self.holdings.take(shelf or self.holdings.shelf, now)) is not None:
            taken.append(delivery)
        assert len(taken) == count
        return taken

    def sent(self) -> queues_pb2.Settle:
        message = self.holdings.next_settle(NOW)
        assert message is not None
        return message

    def sends_nothing(self) -> bool:
        return self.holdings.next_settle(NOW) is None

    def answer(self, settle: queues_pb2.Settle, failures: Iterable[tuple[int, int, LogbrokerError]] = ()) -> None:
        again = self.holdings.answered(
            queues_pb2.SettleAnswer(
                correlation_id=settle.correlation_id,
                failures=[
                    queues_pb2.SettleFailure(first_receipt=first, last_receipt=last, status=status(error))
                    for first, last, error in failures
                ],
            )
        )
        if again is not None:
            self.holdings.again(again)

    def open_session(self, key: bytes = b"k", token: int = 7) -> HeldSession[WorkerDelivery]:
        answer = queues_pb2.SessionAnswer(key=key, token=token, state=b"before", lock_ms=round(LEASE_SECONDS * 1000))
        return self.holdings.sessions.opened(answer, 10, NOW)


def deliveries(
    receipt: int, offsets: Sequence[int], session: HeldSession[WorkerDelivery] | None = None
) -> queues_pb2.Deliveries:
    return queues_pb2.Deliveries(
        first_receipt=receipt,
        count=len(offsets),
        batches=encode_batch([NewRecord(b"%d" % offset, b"k") for offset in offsets]),
        partitions=[0] * len(offsets),
        offsets=offsets,
        lease_ms=round(LEASE_SECONDS * 1000),
        session_token=0 if session is None else session.token,
        session_key=b"" if session is None else session.key,
    )


def status(error: LogbrokerError) -> common_pb2.Status:
    return common_pb2.Status(code=error.code, reason=error.reason, message=error.message)


def acks(settle: queues_pb2.Settle) -> list[tuple[int, int]]:
    return list(zip(settle.acks.firsts, settle.acks.lasts, strict=True))


def releases(settle: queues_pb2.Settle) -> list[tuple[int, int]]:
    return list(zip(settle.releases.firsts, settle.releases.lasts, strict=True))


def extensions(settle: queues_pb2.Settle | None) -> list[tuple[int, int]]:
    assert settle is not None
    return [(extension.first_receipt, extension.last_receipt) for extension in settle.extensions]


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
    assert worker.holdings.in_hand == 1
    assert [*worker.holdings.places().offsets] == list(range(10))
    worker.answer(settle)
    assert [*worker.holdings.places().offsets] == [7]


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


async def test_a_refusal_is_told_to_who_waits_or_to_the_next_flush(worker: Worker) -> None:
    worker.receive(1, range(3))
    taken = worker.take(3)
    for delivery in taken:
        delivery.ack()
    worker.answer(worker.sent(), [(2, 2, LeaseLostError("too late"))])
    await taken[0]
    assert isinstance(worker.holdings.take_untold(), LeaseLostError)
    assert worker.holdings.take_untold() is None
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
    assert worker.holdings.take_untold() is None


def test_what_the_broker_had_no_room_for_is_sent_again(worker: Worker) -> None:
    worker.receive(1, range(3))
    for delivery in worker.take(3):
        delivery.ack()
    worker.answer(worker.sent(), [(0, 0, OverloadedError("later"))])
    again = worker.sent()
    assert acks(again) == [(1, 3)]
    worker.answer(again)
    assert worker.sends_nothing()
    assert worker.holdings.take_untold() is None


# --- breaks --------------------------------------------------------------------------------------------------------


def test_nothing_is_handed_out_between_streams(worker: Worker) -> None:
    worker.receive(1, range(3))
    worker.holdings.broken()
    worker.take(0)
    assert worker.welcome(resumed=True) == 0
    worker.take(3)


def test_who_comes_back_in_time_says_again_what_has_no_answer(worker: Worker) -> None:
    worker.receive(1, range(4))
    taken = worker.take(4)
    taken[0].ack()
    taken[1].nack()
    worker.sent()
    taken[2].ack()
    worker.holdings.broken()
    assert [*worker.holdings.places().offsets] == [0, 1, 2, 3]
    worker.welcome(resumed=True)
    again = worker.sent()
    assert acks(again) == [(1, 1)]
    assert [nack.first_receipt for nack in again.nacks] == [2]
    # The broker had carried it out: that is no failure.
    worker.answer(again, [(1, 2, AlreadySettledError("settled before"))])
    rest = worker.sent()
    assert acks(rest) == [(3, 3)]
    worker.answer(rest, [(3, 3, AlreadySettledError("settled before"))])
    assert isinstance(worker.holdings.take_untold(), AlreadySettledError)


def test_who_comes_too_late_has_lost_everything(worker: Worker) -> None:
    worker.receive(1, range(4))
    first, second, *_ = [worker.holdings.take(worker.holdings.shelf, NOW) for _ in range(2)]
    assert first is not None
    assert second is not None
    second.ack()
    worker.sent()
    worker.holdings.broken()
    assert worker.welcome() == 4
    worker.take(0)
    assert first.lost
    with pytest.raises(LeaseLostError):
        first.ack()
    assert worker.sends_nothing()
    assert worker.holdings.in_hand == 0
    assert isinstance(worker.holdings.take_untold(), LeaseLostError)
    assert not worker.holdings.places().offsets


def test_after_a_crash_what_is_reclaimed_goes_on_under_new_receipts(worker: Worker) -> None:
    worker.receive(1, range(6))
    taken = [worker.holdings.take(worker.holdings.shelf, NOW) for _ in range(4)]
    settled, working, lost, done = (delivery for delivery in taken if delivery is not None)
    settled.ack()
    done.ack()
    worker.sent()
    worker.holdings.broken()
    reclaimed = [
        queues_pb2.Deliveries(first_receipt=900, count=2, partitions=[0, 0], offsets=[0, 1]),
        queues_pb2.Deliveries(first_receipt=950, count=1, partitions=[0], offsets=[5]),
    ]
    assert worker.welcome(reclaimed=reclaimed) == 3
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
    assert isinstance(worker.holdings.take_untold(), LeaseLostError)


# --- leases --------------------------------------------------------------------------------------------------------


def test_what_waited_for_longer_than_its_lease_is_not_handed_out(worker: Worker) -> None:
    worker.receive(1, range(2), now=NOW)
    worker.receive(3, range(2, 4), now=NOW + 5)
    assert [delivery.offset for delivery in worker.take(2, now=NOW + LEASE_SECONDS + 1)] == [2, 3]
    assert worker.holdings.in_hand == 2


def test_leases_are_prolonged_while_the_program_works(worker: Worker) -> None:
    worker.receive(1, range(5))
    taken = worker.take(5)
    taken[2].ack()
    assert worker.holdings.extensions(NOW + 3) is None
    message = worker.holdings.extensions(NOW + 5)
    assert extensions(message) == [(1, 2), (4, 5)]
    assert message is not None
    worker.answer(message)
    assert worker.holdings.extensions(NOW + 8) is None
    assert extensions(worker.holdings.extensions(NOW + 10)) == [(1, 2), (4, 5)]


def test_a_lease_is_not_prolonged_for_ever() -> None:
    worker = Worker(max_extension_seconds=12)
    worker.receive(1, [0])
    worker.take(1)
    message = worker.holdings.extensions(NOW + 9)
    assert message is not None
    worker.answer(message)
    assert worker.holdings.extensions(NOW + 18) is None


def test_a_lease_that_the_program_asked_for_is_not_cut_by_the_next_extension(worker: Worker) -> None:
    worker.receive(1, range(2))
    taken = worker.take(2)
    taken[0].extend(60)
    asked = worker.sent()
    assert [(extension.first_receipt, extension.lease_ms) for extension in asked.extensions] == [(1, 60_000)]
    worker.answer(asked)
    assert extensions(worker.holdings.extensions(NOW + 5)) == [(2, 2)]
    assert extensions(worker.holdings.extensions(NOW + 55)) == [(1, 2)]


def test_a_refused_extension_is_a_loss(worker: Worker) -> None:
    worker.receive(1, range(3))
    taken = worker.take(3)
    message = worker.holdings.extensions(NOW + 5)
    assert message is not None
    worker.answer(message, [(2, 2, LeaseLostError("too late"))])
    assert [delivery.lost for delivery in taken] == [True, True, True]  # by the real clock, which is far ahead
    with pytest.raises(LeaseLostError, match="too late"):
        taken[1].ack()
    taken[0].ack()
    assert worker.holdings.in_hand == 1


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
    worker.holdings.received(message, NOW)
    taken = worker.take(7)
    assert [delivery.offset for delivery in taken] == list(range(43, 50))
    assert [delivery.value for delivery in taken] == [b"%d" % offset for offset in range(43, 50)]
    one = deliveries(8, [47])
    one.batches = stored(45, 8)
    worker.holdings.received(one, NOW)
    (delivery,) = worker.take(1)
    assert (delivery.offset, delivery.value) == (47, b"47")
    assert [*worker.holdings.places().offsets] == [*range(43, 50), 47]


def test_what_cannot_be_decoded_fails_alone(worker: Worker) -> None:
    message = deliveries(1, range(3))
    good = encode_batch([NewRecord(b"0"), NewRecord(b"1")])
    bad = bytearray(encode_batch([NewRecord(b"2")]))
    bad[-1] ^= 1
    message.batches = good + bytes(bad)
    worker.holdings.received(message, NOW)
    assert [delivery.value for delivery in worker.take(2)] == [b"0", b"1"]
    settle = worker.sent()
    assert [(nack.first_receipt, nack.last_receipt) for nack in settle.nacks] == [(3, 3)]
    assert "CRC" in settle.nacks[0].reason
    assert worker.holdings.in_hand == 2


# --- sessions ------------------------------------------------------------------------------------------------------


def test_a_state_moves_with_the_next_ack_and_not_before(worker: Worker) -> None:
    session = worker.open_session()
    assert session.state == b"before"
    worker.receive(1, range(2), session=session)
    first, second = worker.take(2, shelf=session.shelf)
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
    assert worker.holdings.in_hand == 0
    with pytest.raises(StateTooLargeError):
        session.set_state(b"x" * (256 * 1024 + 1))


def test_after_a_nack_nothing_of_the_session_is_taken_before_that_record_comes_again(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, range(3), session=session)
    worker.holdings.received(deliveries(4, [3], session), NOW)
    first, second, *behind = worker.take(4, shelf=session.shelf)
    first.ack()
    second.nack()
    for delivery in behind:
        with pytest.raises(LeaseLostError, match="before it"):
            delivery.ack()
    # This one was on its way when the broker heard of the nack.
    worker.receive(5, [4], session=session)
    worker.take(0, shelf=session.shelf)
    settle = worker.sent()
    assert releases(settle) == [(5, 5)]
    worker.receive(6, [1, 2, 3, 4], session=session)
    assert [delivery.offset for delivery in worker.take(4, shelf=session.shelf)] == [1, 2, 3, 4]


def test_after_the_answer_to_a_nack_whatever_comes_is_taken(worker: Worker) -> None:
    """The record itself may have gone to the dead letters."""
    session = worker.open_session()
    worker.receive(1, [0, 1], session=session)
    first, _ = worker.take(2, shelf=session.shelf)
    first.nack()
    worker.answer(worker.sent())
    worker.receive(3, [1, 2], session=session)
    assert [delivery.offset for delivery in worker.take(2, shelf=session.shelf)] == [1, 2]


def test_a_session_that_is_lost_takes_its_deliveries_along(worker: Worker) -> None:
    session = worker.open_session()
    other = worker.open_session(b"other", 8)
    worker.receive(1, [0, 1, 2], session=session)
    worker.receive(4, [9], session=other)
    first, second, _ = worker.take(3, shelf=session.shelf)
    first.ack()
    worker.holdings.sessions.lost(7, b"k", StaleSessionError("another has it"))
    for use in (session.check, second.ack, lambda: session.set_state(b"")):
        with pytest.raises(StaleSessionError, match="another has it"):
            use()
    assert isinstance(worker.holdings.take_untold(), StaleSessionError)
    (kept,) = worker.take(1, shelf=other.shelf)
    kept.ack()
    assert acks(worker.sent()) == [(4, 4)]


def test_locks_are_renewed_in_time_and_sessions_that_did_not_outlive_a_break_are_lost(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, [0], session=session)
    assert worker.holdings.sessions.renewals(NOW + 3) == []
    assert worker.holdings.sessions.renewals(NOW + 5) == [session]
    session.renewal_id, session.renewal_at = 77, NOW + 5
    assert worker.holdings.sessions.renewals(NOW + 5) == []
    answer = queues_pb2.SessionAnswer(correlation_id=77, lock_ms=round(LEASE_SECONDS * 1000))
    assert worker.holdings.sessions.answered(answer, None)
    assert worker.holdings.sessions.renewals(NOW + 8) == []
    worker.take(1, NOW + 14, session.shelf)
    worker.holdings.broken()
    worker.holdings.welcomed(queues_pb2.Welcome(resumed=True, lease_ms=10_000, topic="t"), NOW)
    with pytest.raises(StaleSessionError):
        session.check()


def test_a_dead_letter_lets_the_next_record_of_the_session_come_before_the_answer(worker: Worker) -> None:
    session = worker.open_session()
    worker.receive(1, [0, 1], session=session)
    first, _ = worker.take(2, shelf=session.shelf)
    first.nack()
    worker.receive(3, [1, 2], session=session)
    assert [delivery.offset for delivery in worker.take(2, shelf=session.shelf)] == [1, 2]
