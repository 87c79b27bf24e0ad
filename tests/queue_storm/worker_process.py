"""A worker of a queue group in a process of its own, that writes down all that it does. It is told what to do by lines.

    leave     stop after what is in hand, say goodbye, and end
    zombie    say something under the token of each session that is not this worker's any more
    heal      nothing fails from now on

It ends at once when whoever holds the other end of its orders is gone. Its leases are not prolonged, so that it loses
them where it takes long over a record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec

from logbroker.client.worker.leased_record import WorkerDelivery
from logbroker.client.worker.worker import Session, Worker
from logbroker.errors import BrokerUnavailableError, LeaseLostError, LogbrokerError, StaleSessionError
from logbroker.v1 import queues_pb2
from tests.history import HistoryFile
from tests.queue_storm.queue_history import (
    OUTPUTS,
    PART,
    Delivery,
    How,
    RecordId,
    SessionBegun,
    SessionEnded,
    SessionOpened,
    SettleBegun,
    SettleEnded,
    Taken,
    lane_name,
)

RECORDS, SESSIONS = MODES = ("records", "sessions")
_CONCURRENCY: Final = 8
_SESSIONS: Final = 4
_IDLE_SECONDS: Final = 0.1
_SESSION_RECORDS: Final = 20
_LOSS_SECONDS: Final = 5.0
"""How long it may take at most until a worker that went on knows which sessions it has lost."""
_LOOK_SECONDS: Final = 0.05


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of a worker process."""

    name: str
    broker: str
    group: str
    history_path: str
    lease_seconds: float
    mode: str = RECORDS
    handle_seconds: float = 0.004
    """How long it takes over a record, on average."""
    nacks: float = 0.05
    releases: float = 0.02
    late: float = 0.002
    """The shares of records that it nacks, gives back, or acks when the lease is over."""
    has_outputs: bool = False
    poison: float = 0.0
    """The share of records that it always nacks, whoever has them."""


def run(spec: WorkerSpec, orders: Connection) -> None:
    """Be the worker; what a process of multiprocessing runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for whoever started it
    logging.basicConfig(filename=f"{spec.history_path}.log", level=logging.INFO, force=True)
    asyncio.run(_WorkerProcess(spec, orders.fileno()).run())


def is_poison(value: bytes, share: float) -> bool:
    """Whether a record fails whenever it is tried: decided by its number, so that all workers agree."""
    return random.Random(value).random() < share


class _WorkerProcess:
    def __init__(self, spec: WorkerSpec, orders_fd: int) -> None:
        self._spec = spec
        self._orders_fd = orders_fd
        self._file = HistoryFile(Path(spec.history_path), spec.name)
        self._rng = random.Random(spec.name)
        self._number = 0
        self._worker: Worker | None = None
        self._leaving = False
        self._sessions: dict[bytes, Session] = {}
        self._noted: set[int] = set()
        """The receipts of what is in hand."""
        self._zombies: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        asyncio.get_running_loop().add_reader(self._orders_fd, self._on_order)
        while not self._leaving:
            try:
                async with Worker(self._spec.broker, self._spec.group, max_extension_seconds=0) as self._worker:
                    if self._spec.mode == SESSIONS:
                        await self._worker.sessions(
                            self._session, concurrency=_SESSIONS, prefetch=5, idle_seconds=_IDLE_SECONDS
                        )
                    else:
                        await self._worker.run(self._handle, concurrency=_CONCURRENCY)
            except (BrokerUnavailableError, LeaseLostError, StaleSessionError) as error:
                # The broker was away for longer than a request may take, or refused what nobody waited for.
                logging.info("go on after: %s", error)

    def _on_order(self) -> None:
        received = os.read(self._orders_fd, 1000)
        if not received:
            os._exit(1)
        for order in received.split():
            if order == b"heal":
                self._spec = msgspec.structs.replace(self._spec, poison=0.0, nacks=0.0, late=0.0)
            elif order == b"zombie":
                self._zombies.append(asyncio.create_task(self._be_zombie()))
            else:
                self._leaving = True
                if self._worker is not None:
                    self._worker.stop()

    # --- the program -------------------------------------------------------------------------------------------------

    async def _session(self, session: Session) -> None:
        self._file.write(SessionOpened, key=session.key.decode(), token=session.token, state=session.state.decode())
        done = 0
        self._sessions[session.key] = session
        async for delivery in session:
            await self._handle(delivery, session)
            done += 1
            if done >= _SESSION_RECORDS:
                break
        self._sessions.pop(session.key, None)

    async def _be_zombie(self) -> None:
        """Go on with sessions that were lost while the process stood still, past all that the client knows."""
        assert self._worker is not None
        core = self._worker._core
        held = list(self._sessions.items())
        with contextlib.suppress(TimeoutError):
            # It knows of a loss only after a word with the broker, and some sessions may have been over before.
            async with asyncio.timeout(_LOSS_SECONDS):
                while not all(session.lost or self._sessions.get(key) is not session for key, session in held):
                    await asyncio.sleep(_LOOK_SECONDS)
        for key, session in held:
            if not session.lost or self._sessions.get(key) is not session:
                continue
            del self._sessions[key]
            token = session.token
            number = self._next_number()
            state = f"{token}/{number}"
            settle = queues_pb2.Settle(states=[queues_pb2.SessionState(key=key, token=token, state=state.encode())])
            request = queues_pb2.SettleRequest(
                group_id=self._spec.group, worker_id=core.link._identity.id, settle=settle
            )
            self._file.write(SessionBegun, number=number, key=key.decode(), token=token, state=state)
            answered, reason = False, ""
            with contextlib.suppress(BrokerUnavailableError):
                response = await core.link.connection.unary("Settle", request, retry=False)
                answered = True
                reason = "".join(failure.status.reason for failure in response.answer.failures)
            self._file.write(SessionEnded, number=number, answered=answered, refused=reason)

    async def _handle(self, delivery: WorkerDelivery, session: Session | None = None) -> None:
        spec, rng = self._spec, self._rng
        self._note(delivery, session, redelivered=delivery.redelivered)
        await asyncio.sleep(rng.expovariate(1 / spec.handle_seconds))
        draw = rng.random()
        if is_poison(delivery.value or b"", spec.poison):
            await self._settle(delivery, How.NACK, round(rng.uniform(0, 0.2), 3))
        elif draw < spec.nacks:
            await self._settle(delivery, How.NACK, round(rng.uniform(0, 0.5), 3))
        elif draw < spec.nacks + spec.releases:
            await self._settle(delivery, How.RELEASE)
        else:
            if draw > 1 - spec.late:
                await asyncio.sleep(spec.lease_seconds * rng.uniform(1, 1.5))
            await self._settle(delivery, How.ACK, session=session)

    async def _settle(
        self, delivery: WorkerDelivery, how: How, delay_seconds: float = 0.0, session: Session | None = None
    ) -> None:
        number = self._next_number()
        receipt = receipt_of(delivery)
        if receipt not in self._noted:
            # The broker was killed, and this worker came back in time: it has it anew.
            self._note(delivery, session, redelivered=True)
        self._noted.discard(receipt)
        self._file.write(SettleBegun, number=number, how=how, receipts=[receipt], delay_seconds=delay_seconds)
        state = "" if session is None else f"{session.token}/{number}"
        if session is not None:
            # It moves with the ack.
            self._file.write(SessionBegun, number=number, key=session.key.decode(), token=session.token, state=state)
        answered, reason = False, ""
        try:
            if session is not None:
                session.state = state.encode()
            if how is How.ACK:
                if self._spec.has_outputs:
                    origin = b"%d:%d" % (delivery.partition, delivery.offset)
                    lane = lane_name(delivery.key, dict(delivery.headers).get(PART))
                    delivery.send(OUTPUTS, origin, key=lane.encode() or None)
                await delivery.ack()
            elif how is How.NACK:
                await delivery.nack(delay_seconds=delay_seconds, reason="so it was drawn")
            else:
                await delivery.release()
            answered = True
        except LogbrokerError as error:
            # Where a stream broke before the answer, nobody knows.
            answered = not delivery.in_doubt
            reason = error.reason if answered else ""
            if session is not None:
                raise  # Or the state that was set would be kept without its ack.
        finally:
            refused = {receipt: reason} if reason else {}
            self._file.write(SettleEnded, number=number, answered=answered, refused=refused)
            if session is not None:
                self._file.write(SessionEnded, number=number, answered=answered, refused=reason)

    def _note(self, delivery: WorkerDelivery, session: Session | None, *, redelivered: bool) -> None:
        noted = Delivery(
            receipt=receipt_of(delivery),
            record_id=RecordId(delivery.partition, delivery.offset),
            key=lane_name(delivery.key, dict(delivery.headers).get(PART)),
            attempt=delivery.attempt,
            redelivered=redelivered,
            token=0 if session is None else session.token,
        )
        self._noted.add(noted.receipt)
        self._file.write(Taken, deliveries=[noted])

    def _next_number(self) -> int:
        self._number += 1
        return self._number


def receipt_of(delivery: WorkerDelivery) -> int:
    """Return the receipt, which the client keeps to itself."""
    return delivery.batch.receipt(delivery.index)
