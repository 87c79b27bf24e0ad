"""The settlements of a worker, from the program's call to the broker's answer. No I/O, no clock.

Settlements that the program makes while a message is unanswered are collected in the next message. So messages become
fewer as the load grows. A delivery refers to its settlement, and finds its outcome there.

The lock of the outbox guards everything that a worker holds, because the threads of a synchronous worker settle while
the event loop receives.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, Protocol

import msgspec

from logbroker.client.runtime.thread_locks import ThreadLock, taken_here
from logbroker.client.transport.status import error_of_item
from logbroker.client.worker.delivery_batch import HELD, LOST, OVER, SAID, DeliveryBatch, ranges
from logbroker.client.worker.leases import Leases
from logbroker.errors import AlreadySettledError, LeaseLostError, LogbrokerError
from logbroker.v1 import queues_pb2

_log = logging.getLogger(__name__)

_SEND_AT_ONCE: Final = 1000
"""This many deliveries are sent even while an earlier settlement is unanswered."""
_MAX_DELIVERIES: Final = 5000
"""Maximum number of deliveries in one settlement. Each may need a receipt range of its own."""
_MAX_UNANSWERED: Final = 8
_MAX_UNTOLD: Final = 10
"""Maximum number of refused settlements that are kept until the program is told of them. They keep their records in
memory."""
REASON_CHARACTERS: Final = 256
_IN_DOUBT: Final = (
    "the connection broke before the answer: it is not known whether the record is settled; if not, it comes again"
)


class NackWord(msgspec.Struct, gc=False):
    """The reason and delay of a nack. A delay of None means the group's backoff."""

    reason: str
    delay_ms: int | None


ACK: Final = None
RELEASE: Final = "release"

Word = NackWord | str | None
"""How the program settles a delivery: ACK, RELEASE or a NackWord."""


class Settled(Protocol):
    """A settled delivery, with or without its record."""

    batch: DeliveryBatch[Settlements]
    index: int
    settlement: SettlementBatch | None
    word: Word


class SettlementBatch:
    """Several deliveries, and how the program settled them."""

    __slots__ = ("answered", "deliveries", "error", "failures", "state", "uncertain", "waiters")

    def __init__(self) -> None:
        self.deliveries: list[Settled] = []
        """The settled deliveries. Each holds its own `word`."""
        self.state: bytes | None = None
        """The new state of the session. The broker stores it together with the acks."""
        self.uncertain = False
        """Whether the settlement was sent and not answered, so that the broker may have carried it out."""
        self.answered = False
        self.failures: dict[Settled, LogbrokerError] = {}
        self.error: LogbrokerError | None = None
        """The error with which the broker refused the state or the whole settlement."""
        self.waiters: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self.deliveries) + (self.state is not None)

    def message(self, correlation_id: int) -> queues_pb2.Settle:
        """Return the settlement as an API message with the present receipts, without the state."""
        acks: list[int] = []
        releases: list[int] = []
        nacks: dict[tuple[str, int | None], list[int]] = {}
        for delivery in self.deliveries:
            receipt = delivery.batch.receipt(delivery.index)
            word = delivery.word
            if word is ACK:
                acks.append(receipt)
            elif isinstance(word, NackWord):
                nacks.setdefault((word.reason, word.delay_ms), []).append(receipt)
            else:
                releases.append(receipt)
        message = queues_pb2.Settle(correlation_id=correlation_id)
        for receipts, columns in ((acks, message.acks), (releases, message.releases)):
            for first, last in ranges(receipts) if receipts else ():
                columns.firsts.append(first)
                columns.lasts.append(last)
        for (reason, delay_ms), receipts in nacks.items():
            for first, last in ranges(receipts):
                message.nacks.add(first_receipt=first, last_receipt=last, reason=reason, delay_ms=delay_ms)
        return message

    def take_failures(self, failures: Sequence[queues_pb2.SettleFailure]) -> bool:
        """Apply the broker's answer: everything except the failures is synced. Return False if the broker had no room
        and did nothing."""
        if failures:
            by_receipt = {delivery.batch.receipt(delivery.index): delivery for delivery in self.deliveries}
            for failure in failures:
                error = error_of_item(failure.status) or LogbrokerError("refused without a reason")
                if self.uncertain and isinstance(error, AlreadySettledError):
                    # This same settlement has settled it already, but the first answer was lost.
                    continue
                if not failure.first_receipt and not failure.last_receipt:
                    if error.retriable:
                        return False
                    self.error = error
                    self.failures = dict.fromkeys(by_receipt.values(), error)
                else:
                    for receipt in range(failure.first_receipt, failure.last_receipt + 1):
                        if receipt in by_receipt:
                            self.failures[by_receipt[receipt]] = error
        return True

    def drop_lost(self) -> None:
        """Remove the lost deliveries from the settlement and note their failures."""
        kept: list[Settled] = []
        for delivery in self.deliveries:
            batch = delivery.batch
            if batch.states[delivery.index] != LOST:
                kept.append(delivery)
            elif batch.lost is not None:
                self.failures[delivery] = LeaseLostError(_IN_DOUBT) if self.uncertain else batch.lost
        self.deliveries = kept
        if not len(self):
            self.finish()

    def drop_state(self) -> LogbrokerError | None:
        """Drop the state if one of its acks is lost, because a state is written only together with all its acks. The
        other acks are lost, too. Return the error, or None."""
        acked = [delivery for delivery in self.deliveries if delivery.word is ACK]
        lost = next((delivery.batch.lost for delivery in acked if delivery.batch.states[delivery.index] == LOST), None)
        if lost is not None:
            self.state = None
            for delivery in acked:
                delivery.batch.lose(delivery.index, lost)
            return LeaseLostError(_IN_DOUBT) if self.uncertain else lost
        return None

    def fail(self, error: LogbrokerError) -> None:
        """Fail the settlement, because no answer will come."""
        self.error = error
        self.failures.update(dict.fromkeys(self.deliveries, error))
        self.finish()

    def finish(self) -> None:
        """Record the outcome, and wake the waiters."""
        for delivery, error in self.failures.items():
            delivery.batch.lose(delivery.index, error)
        for delivery in self.deliveries:
            batch = delivery.batch
            if batch.states[delivery.index] == SAID:
                batch.states[delivery.index] = OVER
                batch.left -= 1
        self.deliveries = []
        self.answered = True
        waiters, self.waiters = self.waiters, []
        for tell in waiters:
            tell()

    def first_failure(self) -> LogbrokerError | None:
        """Return one of the refusals, except for deliveries that the program never saw."""
        seen = (error for delivery, error in self.failures.items() if delivery.settlement is not None)
        return self.error or next(seen, None)


class Settlements:
    """Settlements that the broker carries out in order: all settlements outside of sessions or, in the subclass, the
    settlements of one session."""

    is_session: ClassVar[bool] = False

    def __init__(self, outbox: SettlementOutbox) -> None:
        self.outbox = outbox
        self._open = SettlementBatch()
        self._waiting: deque[SettlementBatch] = deque()
        """Settlements that are full or will be sent again."""
        self._unanswered: dict[int, SettlementBatch] = {}
        self._paused = False
        """Whether the broker had no room. If so, nothing is sent for a moment."""

    def say(self, delivery: Settled, word: Word) -> None:
        """Add a held delivery to a settlement. `word` says how it is settled.

        A signal handler may raise an exception at any call. There is no call between the first assignment and the
        append at the end, so either all of it happens or nothing.
        """
        settlement = self._settlement()
        delivery.word = word
        delivery.settlement = settlement
        delivery.batch.states[delivery.index] = SAID
        self.outbox.in_hand -= 1
        settlement.deliveries.append(delivery)

    def _settlement(self) -> SettlementBatch:
        """Return the settlement that takes the next delivery."""
        if len(self._open.deliveries) >= _MAX_DELIVERIES:
            settlement = SettlementBatch()
            self._waiting += (self._open,)
            self._open = settlement
        return self._open

    def lose_delivery(self, batch: DeliveryBatch[Settlements], index: int, error: LogbrokerError) -> None:
        """Mark a delivery as lost."""
        if batch.states[index] == HELD:
            self.outbox.in_hand -= 1
        batch.lose(index, error)

    def add_state(self, message: queues_pb2.Settle, state: bytes) -> None:
        """Add the session's state to a message. Outside of sessions there is none."""

    def state_failed(self, error: LogbrokerError) -> None:
        """Note that the state of the session was not written."""

    def next_message(self, correlation_id: int) -> queues_pb2.Settle | None:
        """Return the next message, under this correlation id, or None if nothing is to be sent now."""
        if self._paused:
            return None
        if self._waiting and len(self._unanswered) < _MAX_UNANSWERED:
            settlement = self._waiting.popleft()
        elif len(self._open) and (not self._unanswered or len(self._open) >= _SEND_AT_ONCE) and self._has_room():
            settlement, self._open = self._open, SettlementBatch()
        else:
            return None
        self._unanswered[correlation_id] = settlement
        message = settlement.message(correlation_id)
        if settlement.state is not None:
            self.add_state(message, settlement.state)
        return message

    def _has_room(self) -> bool:
        return len(self._unanswered) < _MAX_UNANSWERED

    def answered(self, answer: queues_pb2.SettleAnswer) -> bool | None:
        """Apply the answer to a settlement. Return None if the answer belongs to none of these settlements. Return
        False if the broker had no room; the settlement is then the first to be sent again, after `go_on`."""
        settlement = self._unanswered.pop(answer.correlation_id, None)
        if settlement is None:
            return None
        if not settlement.take_failures(answer.failures):
            self._waiting.appendleft(settlement)
            self._paused = True
            return False
        if settlement.error is not None and settlement.state is not None:
            self.state_failed(settlement.error)
        settlement.finish()
        self.outbox.finished(settlement)
        return True

    def go_on(self) -> None:
        """Send settlements again after a pause."""
        self._paused = False

    def broken(self) -> None:
        """Handle a broken stream. Unanswered settlements are sent again on the next stream."""
        for settlement in self._unanswered.values():
            settlement.uncertain = True
        self._waiting.extendleft(reversed(self._unanswered.values()))
        self._unanswered.clear()
        self._paused = False

    def drop_lost(self) -> None:
        """Remove the lost deliveries from the settlements, and forget settlements that become empty."""
        for settlement in self.unfinished():
            if settlement.state is not None and (error := settlement.drop_state()) is not None:
                self.state_failed(error)
            settlement.drop_lost()
            if settlement.answered:
                self.outbox.finished(settlement)
        self._waiting = deque(settlement for settlement in self._waiting if not settlement.answered)
        if self._open.answered:
            self._open = SettlementBatch()

    def unfinished(self) -> list[SettlementBatch]:
        """Return all unanswered settlements, including the open settlement."""
        return [*self._unanswered.values(), *self._waiting, *([self._open] if len(self._open) else [])]

    def fail(self, error: LogbrokerError) -> None:
        """Fail all settlements, because no answer will come any more."""
        for settlement in self._unanswered.values():
            settlement.uncertain = True
        failed = self.unfinished()
        self._open = SettlementBatch()
        self._waiting.clear()
        self._unanswered.clear()
        for settlement in failed:
            settlement.fail(error)
            self.outbox.finished(settlement)


class SettlementOutbox:
    """The outbox into which a worker's threads put their settlements for the event loop to send."""

    def __init__(self, leases: Leases, wake: Callable[[], None]) -> None:
        """`wake` is called, in any thread, when there is something to send."""
        self.lock = ThreadLock()
        self.check_loop: Callable[[], None] = lambda: None
        """Raises an error if an asynchronous program calls from another event loop than the worker's."""
        self.topic = ""
        self.in_hand = 0
        """Number of deliveries outside of sessions that the program has not settled."""
        self.dropped: deque[tuple[DeliveryBatch[Settlements], int]] = deque()
        """Deliveries that the program dropped inside their blocks. They are added without the lock, because it is
        unknown what the thread is doing at that moment."""
        self.heard_at = 0.0
        """The time when the newest answered request was sent, in monotonic seconds. Everything that arrives now was
        sent by the broker after that time."""
        self._leases = leases
        self._wake = wake
        self.awake = False
        """Whether the sender was woken and has not started to look for work since. The sender resets this before it
        looks."""
        self._untold: list[SettlementBatch] = []
        """Refused settlements that were not reported to the program yet."""

    def say(self, delivery: Settled, word: Word) -> None:
        """Settle a delivery for the program. Raises an error if the delivery cannot be settled."""
        batch, lock = delivery.batch, self.lock
        if lock.is_mine():
            raise taken_here()
        try:
            with lock.lock:
                if batch.states[delivery.index] != HELD:
                    batch.check_held(delivery.index)
                batch.settlements.say(delivery, word)
        finally:  # Wake the sender even if a signal handler raised an exception after the settlement.
            if not self.awake:
                self.wake()

    def say_all(self, deliveries: Iterable[Settled], word: Word) -> None:
        """Settle the unsettled ones of several deliveries for the program. Afterwards raise the error of the first
        delivery that could not be settled."""
        try:
            with self.lock.free():
                for delivery in deliveries:
                    batch = delivery.batch
                    if batch.states[delivery.index] == HELD:
                        batch.settlements.say(delivery, word)
        finally:  # Wake the sender even if a signal handler raised an exception after some were settled.
            self.wake()
        for delivery in deliveries:
            if delivery.settlement is None:
                delivery.batch.check_held(delivery.index)

    def put_down(self, delivery: Settled, word: Word) -> None:
        """Settle a delivery that the program never saw."""
        if delivery.batch.states[delivery.index] == HELD:
            delivery.batch.settlements.say(delivery, word)
            delivery.settlement = None  # Nobody asks for its outcome.
            self.wake()

    def extend(self, delivery: Settled, lease_seconds: float | None) -> None:
        """Extend the lease of a delivery for the program."""
        with self.lock.free():
            delivery.batch.check_held(delivery.index)
            self._leases.ask(delivery.batch, delivery.index, lease_seconds)
        self.wake()

    def finished(self, settlement: SettlementBatch) -> None:
        """Note that a settlement has its outcome."""
        error = settlement.first_failure()
        if error is not None:
            _log.warning("%d deliveries of topic %s were not settled: %s", len(settlement.failures), self.topic, error)
            if len(self._untold) < _MAX_UNTOLD:
                self._untold.append(settlement)

    def take_untold(self) -> LogbrokerError | None:
        """Return the first refusal that was not reported to the program, and count all as reported."""
        with self.lock.free():
            untold, self._untold = self._untold, []
        return untold[0].first_failure() if untold else None

    def told(self, settlement: SettlementBatch) -> None:
        """Note that a refusal was reported to the program."""
        with self.lock.free():
            if settlement in self._untold:
                self._untold.remove(settlement)

    def wake(self) -> None:
        """Wake the sender, because there is something to send."""
        self.awake = True
        try:
            self._wake()
        except BaseException:  # A signal handler raised it: perhaps nobody was woken.
            self.awake = False
            raise
