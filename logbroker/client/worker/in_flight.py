"""Everything that one worker holds: its deliveries, their leases, its sessions. No I/O; callers pass in the time.

Why the program gets no delivery that is known to belong to another worker:
- A delivery is handed out only while the stream is open and the lease has not ended by this computer's clock.
- The worker measures a lease from the moment when the newest answered request was sent, not from the arrival of the
  delivery. The delivery may have been in buffers for a long time while the process was frozen, its event loop blocked
  or the network stalled.
- After a break, deliveries that the broker does not confirm are lost at once. Deliveries whose settlement or extension
  the broker refuses are lost, too. A program that is still working on a lost delivery can check `lost`, and its
  settlement fails.

The lock of the outbox guards all of it, because the threads of a synchronous worker settle while the event loop
receives.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from logbroker.client.runtime.thread_locks import taken_here
from logbroker.client.transport.metadata import DEFAULT_MAX_REQUEST_BYTES
from logbroker.client.worker.delivery_batch import HELD, DeliveryBatch
from logbroker.client.worker.held_session import HeldSession
from logbroker.client.worker.held_sessions import HeldSessions
from logbroker.client.worker.leased_record import LeasedRecord
from logbroker.client.worker.leases import Leases
from logbroker.client.worker.patience import first_patience_seconds
from logbroker.client.worker.prefetch_buffer import PrefetchBuffer
from logbroker.client.worker.receive_window import ReceiveWindow
from logbroker.client.worker.settlements import RELEASE, SettlementBatch, SettlementOutbox, Settlements, Stall
from logbroker.errors import LeaseLostError, LogbrokerError, StaleSessionError
from logbroker.v1 import queues_pb2

_log = logging.getLogger(__name__)

D = TypeVar("D", bound=LeasedRecord)

DEFAULT_PREFETCH_BYTES: Final = 16 * 1024 * 1024
_UNASKED_SHARE: Final = 0.4
_UNHEARD_SHARE: Final = 1 / 3
"""The share of a lease or session lock after which a silent broker is asked for an answer."""
_LOST_IN_BREAK: Final = "the connection was broken for too long: the record comes again, to this worker or another"
_REPEATED_IN_SESSION: Final = "the broker was started again: the session goes on, and the record comes again in it"


class InFlight(Generic[D]):
    """The deliveries and sessions of one incarnation of a worker, across all its streams."""

    def __init__(
        self,
        make: Callable[..., D],
        *,
        wake: Callable[[], None],
        max_extension_seconds: float,
        prefetch_bytes: int = DEFAULT_PREFETCH_BYTES,
    ) -> None:
        """`make` makes a delivery from (batch, offset, timestamp_ms, key, value, headers). `wake` is called, in any
        thread, when there is something to send. `prefetch_bytes` limits the bytes that wait for the program outside of
        sessions, and in each session; on a slow link fewer bytes are buffered."""
        self._prefetch_bytes = prefetch_bytes
        self._leases = Leases(max_extension_seconds)
        self.outbox = SettlementOutbox(self._leases, wake)
        self.lock = self.outbox.lock
        self.window = ReceiveWindow(prefetch_bytes)
        self.buffer = PrefetchBuffer(make, self.window, self.window.part_bytes)
        """Deliveries received outside of sessions, which wait for the program."""
        self.sessions = HeldSessions(self.outbox, make, self.window)
        self.group_epoch = 0
        """The queue group's epoch, as the latest stream reported it."""
        self.wanted = True
        """Whether the program takes deliveries outside of sessions. If not, none is requested."""
        self.question_due = False
        """Whether to send an empty settlement in order to get an answer. The window, and the wait for the next record
        of a session, need recent answers, and the program may have nothing to settle."""
        self._asked_at = 0.0
        self._batches: dict[DeliveryBatch[Settlements], None] = {}
        """Unfinished batches outside of sessions."""
        self._settlements = Settlements(self.outbox)
        self._correlation_id = 0
        self._sent_at: dict[int, float] = {}
        """The time when each unanswered settlement was sent, by correlation id."""
        self._question_id = 0
        """The correlation id of the latest empty settlement, which asks for an answer only."""

    @property
    def in_hand(self) -> int:
        """Number of deliveries outside of sessions that the program has not settled."""
        return self.outbox.in_hand

    def missing(self, prefetch: int) -> int:
        """Return how many more deliveries outside of sessions the worker wants, to have `prefetch` of them. Deliveries
        whose settlements wait for room at the broker count among them. If their bytes reach `prefetch_bytes`, it wants
        no more."""
        if not self.wanted:
            return 0
        with self.lock.free():
            stalls = self._settlements.stalls()
        if sum(stall.size_bytes for stall in stalls) >= self._prefetch_bytes:
            return 0
        return prefetch - self.outbox.in_hand - sum(stall.deliveries for stall in stalls)

    def stalls(self) -> list[Stall]:
        """Return the stalls of settlements that wait for room at the broker, in sessions as well."""
        outbox = self.outbox
        if not outbox.may_be_stalled:
            return []
        with self.lock.free():
            found = [stall for settlements in (self._settlements, *self.sessions) for stall in settlements.stalls()]
        outbox.may_be_stalled = bool(found)
        return found

    # --- what the program does --------------------------------------------------------------------------------------

    def take(self, buffer: PrefetchBuffer[D], now: float, *, keeps: bool = False) -> D | None:
        """Return the next delivery of a buffer, or None if there is none now. See `PrefetchBuffer.take`."""
        lock = self.lock
        if lock.is_mine():
            raise taken_here()
        with lock.lock:
            delivery = buffer.take(now, keeps=keeps)
        if buffer.grant_due or buffer.spoilt is not None:
            self.outbox.wake()
        if buffer is self.buffer:
            self._asked_at = now
            if not self.wanted:
                self.wanted = True
                self.outbox.wake()
        return delivery

    def take_more(self, taken: list[D], max_records: int, room_bytes: int, now: float, *, keeps: bool) -> int:
        """Add up to `max_records` deliveries that wait outside of sessions. Stop after the delivery that brings their
        decoded size to `room_bytes`. Return the rest of `room_bytes`, or 0 if no delivery is left."""
        buffer = self.buffer
        with self.lock.free():
            for _ in range(max_records):
                delivery = buffer.take(now, keeps=keeps)
                if delivery is None:
                    room_bytes = 0
                    break
                taken.append(delivery)
                room_bytes -= delivery.size_bytes
                if room_bytes <= 0:
                    break
        if buffer.grant_due or buffer.spoilt is not None:
            self.outbox.wake()
        return room_bytes

    def take_back(self, buffer: PrefetchBuffer[D]) -> None:
        """See `PrefetchBuffer.take_back`."""
        with self.lock.free():
            buffer.take_back()

    def want(self, now: float) -> None:
        """Note that the program begins to take deliveries outside of sessions."""
        self._asked_at = now
        self.wanted = True

    def save_state(self, session: HeldSession[D]) -> None:
        """Send the state of a session, even if no ack follows."""
        with self.lock.free():
            session.save_state()
        self.outbox.wake()

    def give_back_unwanted(self, now: float, *, at_once: bool = False) -> None:
        """Give back the waiting deliveries if the program has not asked for a delivery for a good part of a lease,
        because other workers may be free. With `at_once`, give them back in any case. Request no more until the program
        asks again."""
        with self.lock.free():
            asks = self.buffer.waiters or now < self._asked_at + self._leases.lease_seconds * _UNASKED_SHARE
            if at_once or not asks:
                self.wanted = False
                for batch, index in self.buffer.take_unread():
                    self.outbox.put_down(self.buffer.bare_record(batch, index), RELEASE)

    def tell_all(self) -> None:
        """Wake all waiters for a delivery, so that they check whether they still have to wait."""
        with self.lock.free():
            self.buffer.tell_all()
            for session in self.sessions:
                session.buffer.tell_all()

    def unfinished(self) -> list[SettlementBatch]:
        """Return all unanswered settlements."""
        with self.lock.free():
            return [settlement for settlements in self._all_settlements() for settlement in settlements.unfinished()]

    # --- what goes out ----------------------------------------------------------------------------------------------

    def next_settle(self, now: float) -> queues_pb2.Settle | None:
        """Return the next message to send, or None if there is none: extensions that the program requested come first,
        then settlements."""
        lock = self.lock
        if lock.is_mine():
            raise taken_here()
        with lock.lock:
            while self.outbox.dropped:
                self.outbox.put_down(self.buffer.bare_record(*self.outbox.dropped.popleft()), RELEASE)
            if self.buffer.spoilt is not None:
                self.buffer.mend()
            for session in self.sessions.held.values():
                session.buffer.mend()
            correlation_id = self._correlation_id = self._correlation_id + 1
            if self._leases.asked and (message := self._leases.asked_for(correlation_id, now)) is not None:
                self._sent_at[correlation_id] = now
                return message
            for settlements in (self._settlements, *self.sessions.held.values()):
                if (message := settlements.next_message(correlation_id)) is not None:
                    self._sent_at[correlation_id] = now
                    return message
            return None

    def next_question(self, now: float) -> queues_pb2.Settle | None:
        """Return an empty settlement if the broker has to be asked for an answer and no other message is unanswered."""
        with self.lock.free():
            if not self.question_due or self._sent_at:
                return None
            self._correlation_id += 1
            self.question_due = False
            self._sent_at[self._correlation_id] = now
            return self._question()

    def next_grant(self) -> queues_pb2.Credit | None:
        """Return the next credit in bytes for the broker, or None if none is due."""
        with self.lock.free():
            # Records that have arrived since may have used up the room. Then `grant` returns 0: no credit is due.
            if self.buffer.grant_due and (size_bytes := self.buffer.grant()):
                return queues_pb2.Credit(bytes=size_bytes)
            for session in self.sessions.held.values():
                if session.buffer.grant_due and (size_bytes := session.buffer.grant()):
                    return queues_pb2.Credit(bytes=size_bytes, session_token=session.token)
            return None

    def extensions(self, now: float) -> queues_pb2.Settle | None:
        """Return the extensions that are due. If none is due, but the broker was silent for so long that the age of a
        new delivery would be unknown, return an empty settlement to get an answer."""
        with self.lock.free():
            self._correlation_id += 1
            message = self._leases.due(self._batches, self.buffer.waiting(), self._correlation_id, now)
            unheard_until = self.outbox.heard_at + self.shortest_hold_seconds() * _UNHEARD_SHARE
            if message is None and not self._sent_at and now >= unheard_until:
                message = self._question()
            if message is not None:
                self._sent_at[self._correlation_id] = now
            return message

    def _question(self) -> queues_pb2.Settle:
        self._question_id = self._correlation_id
        return queues_pb2.Settle(correlation_id=self._question_id)

    def shortest_hold_seconds(self) -> float:
        """Return the shortest time after which a lease or lock ends unless it is extended."""
        locks = (session.lock_seconds for session in self.sessions)
        return min(self._leases.lease_seconds, *locks, math.inf)

    def silent_since(self, now: float) -> float:
        """Return how long the oldest unanswered extension has waited, in seconds. An empty settlement may wait for one
        lease more, because no lease depends on its answer. Other settlements may wait for any time, because they are
        synced before they are answered."""
        asked_at = self._sent_at.get(self._question_id, now)
        return max(self._leases.silent_since(now), now - asked_at - self.shortest_hold_seconds())

    def held_records(self) -> queues_pb2.Places:
        """Return all records that the worker holds."""
        held = [
            (*batch.record_id(index), batch.attempt(index)) for batch in self._all_batches() for index in batch.kept()
        ]
        return queues_pb2.Places(
            partitions=[partition for partition, _, _ in held],
            offsets=[offset for _, offset, _ in held],
            attempts=[attempt for _, _, attempt in held],
        )

    # --- what comes in ----------------------------------------------------------------------------------------------

    def received(self, message: queues_pb2.Deliveries, now: float) -> int:
        """Store received deliveries. Return how many of them used up credit."""
        with self.lock.free():
            session = self.sessions.find(message.session_token, message.session_key) if message.session_token else None
            batch = DeliveryBatch(message, self.outbox.topic, self._settlements if session is None else session)
            if session is not None:
                batch.until = session.until
                session.sweep()
                session.received(batch)
                self._fit_window(session.buffer, session.lock_seconds, now)
                return 0
            batch.waits(0, now)
            self._batches[batch] = None
            self.outbox.in_hand += len(batch)
            # The group's lease may have been altered since the stream began.
            self._leases.lease_seconds = message.lease_ms / 1000
            self._leases.begin(batch, self._leases.lease_seconds, self.outbox.heard_at, now)
            if message.session_token:
                # The session was closed in the meantime, and the broker has taken its deliveries back. How long they
                # took still tells how fast the link is.
                self._fit_window(None, self._leases.lease_seconds, now)
                self._lose(batch, StaleSessionError("the session was closed"))
                return 0
            if batch.until < now:
                _log.warning(
                    "%d deliveries of topic %s are given back: they may have come %.1f s late, after their lease."
                    " Something blocked the event loop or froze the process, or the link needs longer for a record"
                    " than its lease lasts: then use a longer lease",
                    *(len(batch), self.outbox.topic, now - self.outbox.heard_at),
                )
            self.buffer.put(batch)
            self._fit_window(self.buffer, self._leases.lease_seconds, now)
            return len(batch)

    def _fit_window(self, buffer: PrefetchBuffer[D] | None, lease_seconds: float, now: float) -> None:
        """Fit the window to the link after a message with deliveries. `buffer` is None if no buffer took them."""
        if self.window.received(
            heard_at=self.outbox.heard_at,
            asked_at=next(iter(self._sent_at.values()), now),
            now=now,
            lease_seconds=lease_seconds,
            patience_seconds=first_patience_seconds(self.shortest_hold_seconds()),
            is_used=buffer is not None and buffer.uses_window,
        ):
            self.question_due = True
            if buffer is not None:
                buffer.look_at_room()

    def answered(self, answer: queues_pb2.SettleAnswer) -> Settlements | None:
        """Apply the answer to one message. If the broker had no room for the settlements, return them; the caller calls
        `again` a little later."""
        lock = self.lock
        if lock.is_mine():
            raise taken_here()
        with lock.lock:
            sent_at = self._sent_at.pop(answer.correlation_id, 0.0)
            if sent_at > self.outbox.heard_at:
                self.outbox.heard_at = sent_at
            lost = self._leases.answered(answer) if self._leases.sent else None
            if lost is not None:
                for batch, index, error in lost:
                    if batch.states[index] == HELD:
                        batch.settlements.lose_delivery(batch, index, error)
                return None
            for settlements in self._all_settlements():
                done = settlements.answered(answer)
                if done is not None:
                    if not done:
                        return settlements
                    break
            for batch in [batch for batch in self._batches if not batch.left]:
                del self._batches[batch]
            return None

    def again(self, settlements: Settlements) -> None:
        """Send settlements again, together with later settlements."""
        with self.lock.free():
            settlements.go_on()
        self.outbox.wake()

    def _lose(self, batch: DeliveryBatch[Settlements], error: LogbrokerError) -> None:
        for index in list(batch.kept()):
            batch.settlements.lose_delivery(batch, index, error)

    def broken(self) -> None:
        """Handle the end of the stream. Nothing is handed out until the next stream has begun."""
        with self.lock.free():
            self._leases.broken()
            self._sent_at.clear()
            self.buffer.set_open(False)
            self.sessions.broken()
            self._settlements.broken()

    def welcomed(self, welcome: queues_pb2.Welcome, hello_at: float, now: float) -> tuple[int, int]:
        """Handle the start of a stream whose Hello was sent at `hello_at`. Return the number of deliveries and sessions
        that were lost in the break, and the number of deliveries that come again in the sessions that go on."""
        with self.lock.free():
            self.outbox.heard_at = hello_at
            self.outbox.topic, self.group_epoch = welcome.topic, welcome.life
            self.outbox.max_request_bytes = welcome.max_request_bytes or DEFAULT_MAX_REQUEST_BYTES
            self._leases.bound(self.outbox.max_request_bytes)
            self._leases.lease_seconds = welcome.lease_ms / 1000
            lost_sessions = self.sessions.welcomed(welcome.sessions)
            lost, repeated = (0, 0) if welcome.resumed else self._reclaim(welcome.reclaimed, now)
            for settlements in self._all_settlements():
                settlements.drop_lost()
            self._batches = {batch: None for batch in self._batches if batch.left}
            self.buffer.set_open(True)
        self.outbox.wake()
        return lost_sessions + lost, repeated

    def _reclaim(self, reclaimed: Iterable[queues_pb2.Deliveries], now: float) -> tuple[int, int]:
        receipts = {
            (record_id, message.attempts[index] if message.attempts else 1): message.first_receipt + index
            for message in reclaimed
            for index, record_id in enumerate(zip(message.partitions, message.offsets, strict=True))
        }
        error = LeaseLostError(_LOST_IN_BREAK)
        lost = 0
        for batch in self._batches:
            self._leases.begin(batch, self._leases.lease_seconds, self.outbox.heard_at, now)
            for index in list(batch.kept()):
                receipt = receipts.pop((batch.record_id(index), batch.attempt(index)), None)
                if receipt is not None:
                    batch.reclaim(index, receipt)
                else:
                    batch.settlements.lose_delivery(batch, index, error)
                    lost += 1
        again = LeaseLostError(_REPEATED_IN_SESSION)
        return lost, sum(session.repeat(again) for session in self.sessions)

    def fail(self, error: LogbrokerError) -> None:
        """Drop everything that the worker holds."""
        with self.lock.free():
            self.sessions.fail(error)
            for batch in self._batches:
                self._lose(batch, error)
            self._batches.clear()
            self._settlements.fail(error)
            self.buffer.tell_all()

    def _all_settlements(self) -> Iterator[Settlements]:
        yield self._settlements
        yield from self.sessions

    def _all_batches(self) -> Iterator[DeliveryBatch[Settlements]]:
        yield from self._batches
        for session in self.sessions:
            yield from session.batches
