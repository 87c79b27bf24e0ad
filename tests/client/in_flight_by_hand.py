"""A worker's records in flight, with a broker by hand: the test says what comes, and sees what goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logbroker.client.worker.held_session import HeldSession
from logbroker.client.worker.in_flight import InFlight
from logbroker.client.worker.leased_record import WorkerDelivery
from logbroker.client.worker.prefetch_buffer import PrefetchBuffer
from logbroker.errors import (
    LogbrokerError,
)
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import common_pb2, queues_pb2

LEASE_SECONDS = 10.0
NOW = 100.0


class Worker:
    """A worker's records in flight, with a broker by hand: the test says what comes, and sees what goes."""

    def __init__(self, max_extension_seconds: float = 1000.0, max_request_bytes: int = 0) -> None:
        self._max_request_bytes = max_request_bytes
        self.in_flight = InFlight(WorkerDelivery, wake=lambda: None, max_extension_seconds=max_extension_seconds)
        self.welcome()

    def welcome(self, *, resumed: bool = False, reclaimed: Iterable[queues_pb2.Deliveries] = ()) -> tuple[int, int]:
        sessions = [queues_pb2.SessionRef(key=session.key, token=session.token) for session in self.in_flight.sessions]
        welcome = queues_pb2.Welcome(
            resumed=resumed,
            lease_ms=round(LEASE_SECONDS * 1000),
            topic="t",
            reclaimed=reclaimed,
            sessions=sessions,
            max_request_bytes=self._max_request_bytes,
        )
        return self.in_flight.welcomed(welcome, NOW, NOW)

    def receive(
        self, receipt: int, offsets: Sequence[int], now: float = NOW, session: HeldSession[WorkerDelivery] | None = None
    ) -> None:
        self.in_flight.outbox.heard_at = max(self.in_flight.outbox.heard_at, now)
        self.receive_late(receipt, offsets, now, session)

    def receive_late(
        self, receipt: int, offsets: Sequence[int], now: float, session: HeldSession[WorkerDelivery] | None = None
    ) -> None:
        """Receive deliveries that may have been sent long ago: nothing that was asked of late is answered."""
        self.in_flight.received(deliveries(receipt, offsets, session), now)

    def take(
        self, count: int, now: float = NOW, buffer: PrefetchBuffer[WorkerDelivery] | None = None
    ) -> list[WorkerDelivery]:
        """Take so many, and no more are there."""
        taken = []
        while (delivery := self.in_flight.take(buffer or self.in_flight.buffer, now)) is not None:
            taken.append(delivery)
        assert len(taken) == count
        return taken

    def sent(self) -> queues_pb2.Settle:
        message = self.in_flight.next_settle(NOW)
        assert message is not None
        return message

    def sends_nothing(self) -> bool:
        return self.in_flight.next_settle(NOW) is None

    def answer(self, settle: queues_pb2.Settle, failures: Iterable[tuple[int, int, LogbrokerError]] = ()) -> None:
        again = self.in_flight.answered(
            queues_pb2.SettleAnswer(
                correlation_id=settle.correlation_id,
                failures=[
                    queues_pb2.SettleFailure(first_receipt=first, last_receipt=last, status=status(error))
                    for first, last, error in failures
                ],
            )
        )
        if again is not None:
            self.in_flight.again(again)

    def open_session(self, key: bytes = b"k", token: int = 7, now: float = NOW) -> HeldSession[WorkerDelivery]:
        answer = queues_pb2.SessionAnswer(key=key, token=token, state=b"before", lock_ms=round(LEASE_SECONDS * 1000))
        return self.in_flight.sessions.opened(answer, 10, 1 << 20, NOW, now)


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
