"""The settlements of a worker, from the program's call to the broker's answer. No I/O, no clock.

Settlements that the program makes while a message is unanswered are collected in the next message. So a message carries
more settlements as the load grows. A delivery refers to its settlement, and finds its outcome there.

If the broker refuses an ack or an output of a message with outputs, it refuses the whole message. If it refuses acks
because deliveries are lost, the worker sends the other deliveries again without them. If it refuses an output, the
worker sends half of the deliveries, and halves them further, until it has found the delivery with this output. This
delivery is nacked.

The lock of the outbox guards everything that a worker holds, because the threads of a synchronous worker settle while
the event loop receives.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

import msgspec

from logbroker.client.runtime.thread_locks import ThreadLock, taken_here
from logbroker.client.transport.metadata import DEFAULT_MAX_REQUEST_BYTES
from logbroker.client.transport.status import error_of_item
from logbroker.client.worker.delivery_batch import HELD, LOST, OVER, SAID, DeliveryBatch, ranges
from logbroker.client.worker.leases import Leases
from logbroker.client.worker.sent_records import (
    MAX_OUTPUT_BYTES,
    MAX_OUTPUT_HEADERS,
    RECORDS_AT_ONCE,
    OutputRoutes,
    SentRecord,
    SentRecords,
)
from logbroker.errors import (
    AlreadySettledError,
    BatchExpandsTooFarError,
    BrokerUnavailableError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    LeaseLostError,
    LogbrokerError,
    RecordTooLargeError,
    StaleSessionError,
    StateTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logbroker.v1 import queues_pb2
from logbroker.v1.common_pb2 import Status

_log = logging.getLogger(__name__)

_SEND_AT_ONCE: Final = 1000
"""This many deliveries are sent even while an earlier settlement is unanswered."""
_MAX_DELIVERIES: Final = 5000
"""Maximum number of deliveries in one settlement. Each may need a receipt range of its own."""
_MAX_UNANSWERED: Final = 8
_REQUEST_BYTES: Final = 32
"""Upper bound of the size of a request without its settlement."""
NO_TOPICS: Final[frozenset[str]] = frozenset()
_FAULTS_OF_OUTPUTS: Final = (
    UnknownTopicError
    | UnknownPartitionError
    | InvalidRequestError
    | InvalidRecordError
    | InvalidTimestampError
    | RecordTooLargeError
    | CorruptBatchError
    | BatchExpandsTooFarError
)
"""Errors with which the broker would refuse the outputs at every attempt. After a temporary error, such as a full disk
or an offline partition, the ack waits and is sent again."""
_LOSSES: Final = AlreadySettledError | LeaseLostError | StaleSessionError | StateTooLargeError
_MAX_UNTOLD: Final = 10
"""Maximum number of refused settlements that are kept until the program is told of them. They keep their records in
memory."""
REASON_CHARACTERS: Final = 256
_IN_DOUBT: Final = (
    "the connection broke before the answer: it is not known whether the record is settled; if not, it comes again"
)

_BEHIND: Final = (
    "the outputs of a record were refused, and the record was nacked: it comes again, and so do the records behind it;"
    " open the session again to read the stored state"
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
    outputs: SentRecords | None
    """Records that are sent if the delivery is acked."""


class _Outcome(enum.Enum):
    """The outcome of a message, and the next step."""

    DONE = "done"
    WAIT = "wait"
    """The broker had no room and did nothing: send the message again later."""
    REPEAT = "repeat"
    """Send the remaining settlements now."""


class SettlementBatch:
    """Several deliveries, and how the program settled them."""

    __slots__ = (
        "answered",
        "deliveries",
        "error",
        "failures",
        "is_broken",
        "is_routed",
        "nacked",
        "output_bytes",
        "output_headers",
        "output_records",
        "part",
        "refusal",
        "state",
        "states",
        "uncertain",
        "waiters",
    )

    def __init__(self) -> None:
        self.deliveries: list[Settled] = []
        """The settled deliveries that are not answered yet. Each holds its own `word`."""
        self.output_bytes = 0
        self.output_headers = 0
        self.output_records = 0
        self.part = 0
        """Number of deliveries in the next message, after the broker refused an output or the message was too large;
        0: all."""
        self.refusal: LogbrokerError | None = None
        """Why the broker had no room for the message."""
        self.is_routed = False
        """Whether the latest message has records that the worker has routed itself."""
        self.state: bytes | None = None
        """The new state of the session. The broker stores it together with the acks."""
        self.states: dict[Settled, bytes] = {}
        """The states that the program set before an ack, by the acked delivery."""
        self.is_broken = False
        """Whether the session cannot go on, because the program's state includes records that are delivered again."""
        self.uncertain = False
        """Whether the settlement was sent and not answered, so that the broker may have carried it out."""
        self.answered = False
        self.nacked: set[Settled] = set()
        """Acked deliveries that became nacks, because the broker refused their outputs."""
        self.failures: dict[Settled, LogbrokerError] = {}
        self.error: LogbrokerError | None = None
        """The error with which the broker refused the state or the whole settlement."""
        self.waiters: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self.deliveries) + (self.state is not None)

    def message(self, correlation_id: int, routes: OutputRoutes) -> queues_pb2.Settle:
        """Return the settlement as an API message with the current receipts, without the state."""
        acks: list[int] = []
        releases: list[int] = []
        nacks: dict[tuple[str, int | None], list[int]] = {}
        outputs: list[SentRecord] = []
        for delivery in self._sent():
            receipt = delivery.batch.receipt(delivery.index)
            word = delivery.word
            if word is ACK:
                acks.append(receipt)
                if delivery.outputs:
                    outputs += delivery.outputs
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
        self.is_routed = False
        if outputs:
            packed, self.is_routed = routes.pack(outputs)
            message.outputs.extend(packed)
        return message

    def takes(self, outputs: SentRecords) -> bool:
        """Return whether there is room for the outputs of another delivery."""
        return (
            self.output_records + len(outputs) <= RECORDS_AT_ONCE
            and self.output_bytes + outputs.size_bytes <= outputs.max_bytes
            and self.output_headers + outputs.headers <= MAX_OUTPUT_HEADERS
        )

    def halve(self) -> bool:
        """Put only half of the deliveries into the next message. Return False if it has at most one delivery."""
        count = len(self._sent())
        self.part = count // 2 or self.part
        return count > 1

    def sent_state(self) -> bytes | None:
        """Return the state to send with the deliveries of `_sent`."""
        if not self.part or not self.deliveries:
            return self.state
        states = (self.states.get(delivery) for delivery in reversed(self._sent()) if delivery.word is ACK)
        return next((state for state in states if state is not None), None)

    def _sent(self) -> list[Settled]:
        """Return the deliveries of the message that is being built or was sent last."""
        return self.deliveries[: self.part] if self.part else self.deliveries

    def take_answer(
        self, failures: Sequence[queues_pb2.SettleFailure], routes: OutputRoutes, *, in_session: bool
    ) -> _Outcome:
        """Apply the broker's answer: everything in the message except the failures is synced."""
        sent = self._sent()
        refusal = self._whole_refusal(failures)
        if refusal is not None and any(delivery.outputs and delivery.word is ACK for delivery in sent):
            if not isinstance(refusal, _FAULTS_OF_OUTPUTS | _LOSSES):
                # A broker that stops may have stored the settlement, and append its outputs after the next start.
                self.uncertain = self.uncertain or isinstance(refusal, BrokerUnavailableError)
                self.refusal = refusal
                return _Outcome.WAIT
            lost = self._named(sent, failures)
            if self.is_routed and not lost:
                # The worker may have routed by outdated facts. Send the records unrouted: the broker knows the topics.
                routes.forget(each.topic for delivery in sent for each in delivery.outputs or ())
                return _Outcome.REPEAT
            return self._go_on_without(refusal, lost, in_session=in_session)
        if not self._take_failures(sent, failures):
            return _Outcome.WAIT
        if self.part:
            self._settled_part(sent)
            return _Outcome.REPEAT if len(self) else _Outcome.DONE
        return _Outcome.DONE

    def _settled_part(self, sent: Sequence[Settled]) -> None:
        """Go on after the broker has carried out a message with some of the deliveries, or with the state alone."""
        if self.sent_state() is self.state:
            self.state = None
        _over(sent)
        self.deliveries = self.deliveries[len(sent) :]
        self.part *= 2

    def _go_on_without(
        self, refusal: LogbrokerError, lost: Mapping[Settled, LogbrokerError], *, in_session: bool
    ) -> _Outcome:
        """Go on after the broker refused a message with outputs: without the lost deliveries, or with half of the
        deliveries, until the one whose outputs are refused is found. It is nacked, so that its record is tried
        again."""
        if lost and in_session:
            # The state of later acks builds on the lost ones.
            first = min(self.deliveries.index(delivery) for delivery in lost)
            self._fail_from(first, refusal)
            self.failures.update(lost)
            self.part = len(self.deliveries) or 1
        elif lost:
            self.failures.update(lost)
            self.deliveries = [delivery for delivery in self.deliveries if delivery not in lost]
        elif len(self._sent()) == 1:
            self.part = 1
            at_fault = self.deliveries[0]
            if in_session:
                self._fail_from(1, LeaseLostError(_BEHIND))
            self.failures[at_fault] = refusal
            self.nacked.add(at_fault)
            at_fault.word = NackWord(f"its outputs were refused: {refusal.message}"[:REASON_CHARACTERS], None)
        else:
            self.halve()
        return _Outcome.REPEAT if len(self) else _Outcome.DONE

    def _fail_from(self, first: int, error: LogbrokerError) -> None:
        """Fail the deliveries of a session from index `first` on, and the state. These records are delivered again."""
        self.failures.update(dict.fromkeys(self.deliveries[first:], error))
        self.deliveries = self.deliveries[:first]
        self.state, self.is_broken = None, True

    def _whole_refusal(self, failures: Sequence[queues_pb2.SettleFailure]) -> LogbrokerError | None:
        """Return the error with which the broker refused the whole message. None: it carried out the message, now or
        before the connection broke."""
        for failure in failures:
            if not failure.first_receipt and not failure.last_receipt:
                error = error_of_item(failure.status) or LogbrokerError("refused without a reason")
                return None if self.uncertain and isinstance(error, AlreadySettledError) else error
        return None

    def _named(
        self, sent: Sequence[Settled], failures: Sequence[queues_pb2.SettleFailure]
    ) -> dict[Settled, LogbrokerError]:
        """Return the deliveries that the failures name."""
        by_receipt = {delivery.batch.receipt(delivery.index): delivery for delivery in sent}
        named: dict[Settled, LogbrokerError] = {}
        for failure in failures:
            if failure.first_receipt or failure.last_receipt:
                error = error_of_item(failure.status) or LogbrokerError("refused without a reason")
                for receipt in range(failure.first_receipt, failure.last_receipt + 1):
                    if receipt in by_receipt:
                        named[by_receipt[receipt]] = error
        return named

    def _take_failures(self, sent: Sequence[Settled], failures: Sequence[queues_pb2.SettleFailure]) -> bool:
        """Apply the failures of a message. Return False if the broker had no room and did nothing."""
        if failures:
            by_receipt = {delivery.batch.receipt(delivery.index): delivery for delivery in sent}
            for failure in failures:
                error = error_of_item(failure.status) or LogbrokerError("refused without a reason")
                if self.uncertain and isinstance(error, AlreadySettledError):
                    # This settlement was carried out when it was sent before, but that answer was lost.
                    continue
                if not failure.first_receipt and not failure.last_receipt:
                    if error.retriable:
                        self.refusal = error
                        return False
                    self.error = error
                    self.failures.update(dict.fromkeys(by_receipt.values(), error))
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
        _over(self.deliveries)
        self.deliveries = []
        self.answered = True
        waiters, self.waiters = self.waiters, []
        for tell in waiters:
            tell()

    def first_failure(self) -> LogbrokerError | None:
        """Return one of the refusals, or None. Refusals of deliveries that the program never saw do not count."""
        seen = (error for delivery, error in self.failures.items() if delivery.settlement is not None)
        return self.error or next(seen, None)

    def untold_failures(self) -> list[LogbrokerError]:
        """Return the refusals that a flush tells of. Refusals of outputs are left out: they were logged, and the
        records are tried again."""
        if self.error is not None:
            return [self.error]
        return [
            error
            for delivery, error in self.failures.items()
            if delivery.settlement is not None and delivery not in self.nacked
        ]


def _over(deliveries: Iterable[Settled]) -> None:
    """Mark deliveries as answered, except those that are lost."""
    for delivery in deliveries:
        batch = delivery.batch
        if batch.states[delivery.index] == SAID:
            batch.states[delivery.index] = OVER
            batch.left -= 1


class Stall(NamedTuple):
    """Settlements that wait because the broker had no room at the last attempt."""

    deliveries: int
    size_bytes: int
    """Bytes of the records and outputs."""
    why: LogbrokerError


class _Queue:
    """Settlements that are sent in order, and wait for no settlement of another queue."""

    def __init__(self) -> None:
        self.open = SettlementBatch()
        self.waiting: deque[SettlementBatch] = deque()
        """Settlements that are full or will be sent again."""
        self.unanswered: dict[int, SettlementBatch] = {}
        self.max_unanswered = _MAX_UNANSWERED
        self.is_paused = False
        """Whether the broker had no room. If so, nothing is sent for a moment."""
        self.stall: Stall | None = None

    def settlement(self, outputs: SentRecords | None) -> SettlementBatch:
        """Return the settlement that takes the next delivery, with these outputs."""
        before = self.open
        if len(before.deliveries) >= _MAX_DELIVERIES or (outputs and before.deliveries and not before.takes(outputs)):
            settlement = SettlementBatch()
            self.waiting += (before,)
            self.open = settlement
        if outputs:
            self.open.output_bytes += outputs.size_bytes
            self.open.output_headers += outputs.headers
            self.open.output_records += len(outputs)
        return self.open

    def next(self) -> SettlementBatch | None:
        """Take the settlement that is to be sent now, if there is one."""
        if self.is_paused or len(self.unanswered) >= self.max_unanswered:
            return None
        if self.waiting:
            return self.waiting.popleft()
        if len(self.open) and (not self.unanswered or len(self.open) >= _SEND_AT_ONCE):
            settlement, self.open = self.open, SettlementBatch()
            return settlement
        return None

    def unfinished(self) -> list[SettlementBatch]:
        """Return all unanswered settlements, including the open settlement."""
        return [*self.unanswered.values(), *self.waiting, *([self.open] if len(self.open) else [])]

    def look_for_stall(self, why: LogbrokerError) -> None:
        """Note all unanswered deliveries as stalled, because the broker has no room."""
        deliveries = [each for settlement in self.unfinished() for each in settlement.deliveries]
        size_bytes = sum(
            each.batch.size_bytes // len(each.batch) + (each.outputs.size_bytes if each.outputs else 0)
            for each in deliveries
        )
        self.stall = Stall(len(deliveries), size_bytes, why) if deliveries else None

    def broken(self) -> None:
        """Handle a broken stream. Unanswered settlements are sent again on the next stream."""
        for settlement in self.unanswered.values():
            settlement.uncertain = True
        self.waiting.extendleft(reversed(self.unanswered.values()))
        self.unanswered.clear()
        self.is_paused = False
        self.stall = None


class Settlements:
    """Settlements that the broker carries out in order: all settlements outside of sessions or, in the subclass, the
    settlements of one session.

    Outside of sessions, an ack with outputs waits only for acks with outputs for the same set of topics. So a topic
    that takes nothing for a while holds up no other acks."""

    is_session: ClassVar[bool] = False

    def __init__(self, outbox: SettlementOutbox) -> None:
        self.outbox = outbox
        self._plain = _Queue()
        """Settlements without outputs, and all those of a session."""
        self._queues: dict[frozenset[str], _Queue] = {NO_TOPICS: self._plain}
        """Queues by the topics of the outputs."""
        self.is_loss_told = False
        """Whether the program was told that the session is lost or cannot go on. Its settlements failed with it."""

    def say(self, delivery: Settled, word: Word) -> None:
        """Add a held delivery to a settlement. `word` says how it is settled.

        A signal handler may raise an exception at any call. There is no call between the first assignment and the
        append at the end, so either all of it happens or nothing.
        """
        settlement = self._plain.open  # Usually there are no outputs, and there is room.
        if delivery.outputs or len(settlement.deliveries) >= _MAX_DELIVERIES:
            settlement = self._settlement(delivery.outputs if word is ACK else None)
        delivery.word = word
        delivery.settlement = settlement
        delivery.batch.states[delivery.index] = SAID
        self.outbox.in_hand -= 1
        settlement.deliveries.append(delivery)

    def _settlement(self, outputs: SentRecords | None) -> SettlementBatch:
        """Return the settlement that takes the next delivery, with these outputs."""
        if not outputs:
            return self._plain.settlement(None)
        if self.is_session:
            # If the broker refused one message, it must not carry out the next one.
            self._plain.max_unanswered = 1
            return self._plain.settlement(outputs)
        topics = frozenset(sent.topic for sent in outputs)
        queue = self._queues.get(topics)
        if queue is None:
            queue = self._queues[topics] = _Queue()
        return queue.settlement(outputs)

    def lose_delivery(self, batch: DeliveryBatch[Settlements], index: int, error: LogbrokerError) -> None:
        """Mark a delivery as lost."""
        if batch.states[index] == HELD:
            self.outbox.in_hand -= 1
        batch.lose(index, error)

    def add_state(self, message: queues_pb2.Settle, state: bytes) -> None:
        """Add the session's state to a message. Outside of sessions there is none."""

    def state_failed(self, error: LogbrokerError) -> None:
        """Note that the state of the session was not written."""

    def given_back(self, delivery: Settled, settlement: SettlementBatch) -> None:
        """Note that a delivery of a session is nacked because of its outputs. The deliveries behind it are repeated,
        too."""

    def next_message(self, correlation_id: int) -> queues_pb2.Settle | None:
        """Return the next message, under this correlation id, or None if nothing is to be sent now."""
        most = self.outbox.max_request_bytes - _REQUEST_BYTES
        for queue in list(self._queues.values()):
            while (settlement := queue.next()) is not None:
                queue.unanswered[correlation_id] = settlement
                message = settlement.message(correlation_id, self.outbox.routes)
                if (state := settlement.sent_state()) is not None:
                    self.add_state(message, state)
                if (size_bytes := message.ByteSize()) <= most:
                    return message
                self._is_too_large(queue, correlation_id, size_bytes, most)
        return None

    def _is_too_large(self, queue: _Queue, correlation_id: int, size_bytes: int, most: int) -> None:
        """Handle a message that the broker would not read: it would end the stream, again and again."""
        settlement = queue.unanswered[correlation_id]
        if settlement.halve():
            queue.waiting.appendleft(queue.unanswered.pop(correlation_id))
            if self.is_session:
                queue.max_unanswered = 1  # The other half must not be overtaken.
            return
        settlement.is_routed = False  # Other routes would not make it smaller.
        error = RecordTooLargeError(
            f"the settlement has {size_bytes:,} bytes; the broker reads {most:,} at once (max_request_bytes)"
        )
        status = Status(code=error.code, reason=error.reason, message=error.message)
        failures = [queues_pb2.SettleFailure(status=status)]
        self.answered(queues_pb2.SettleAnswer(correlation_id=correlation_id, failures=failures))

    def answered(self, answer: queues_pb2.SettleAnswer) -> bool | None:
        """Apply the answer to a settlement. Return None if the answer belongs to none of these settlements. Return
        False if the broker had no room; the settlement is then the first to be sent again, after `go_on`."""
        topics = next((each for each, queue in self._queues.items() if answer.correlation_id in queue.unanswered), None)
        if topics is None:
            return None
        queue = self._queues[topics]
        settlement = queue.unanswered.pop(answer.correlation_id)
        outcome = settlement.take_answer(answer.failures, self.outbox.routes, in_session=self.is_session)
        queue.stall = None
        if outcome is not _Outcome.DONE:
            queue.waiting.appendleft(settlement)
            queue.is_paused = outcome is _Outcome.WAIT
            if queue.is_paused and settlement.refusal is not None:
                queue.look_for_stall(settlement.refusal)
                self.outbox.may_be_stalled = True
            self._look_for_break(settlement)
            return not queue.is_paused
        self._look_for_break(settlement)
        if settlement.error is not None:
            self.state_failed(settlement.error)
        settlement.finish()
        self.outbox.finished(settlement)
        if topics and not queue.unfinished():
            del self._queues[topics]
        return True

    def _look_for_break(self, settlement: SettlementBatch) -> None:
        """End a session for the program if the program's state includes records that are delivered again."""
        if settlement.is_broken:
            settlement.is_broken = False
            if settlement.deliveries and settlement.deliveries[0].word is not ACK:
                self.given_back(settlement.deliveries[0], settlement)
            self.state_failed(LeaseLostError(_BEHIND))

    def go_on(self) -> None:
        """Send settlements again after a pause."""
        for queue in self._queues.values():
            queue.is_paused = False

    def broken(self) -> None:
        """Handle a broken stream. Unanswered settlements are sent again on the next stream."""
        for queue in self._queues.values():
            queue.broken()

    def drop_lost(self) -> None:
        """Remove the lost deliveries from the settlements, and forget settlements that become empty."""
        for settlement in self.unfinished():
            if settlement.state is not None and (error := settlement.drop_state()) is not None:
                self.state_failed(error)
            settlement.drop_lost()
            if settlement.answered:
                self.outbox.finished(settlement)
        for queue in self._queues.values():
            queue.waiting = deque(settlement for settlement in queue.waiting if not settlement.answered)
            if queue.open.answered:
                queue.open = SettlementBatch()
            if queue.stall is not None:
                queue.look_for_stall(queue.stall.why)

    def stalls(self) -> list[Stall]:
        """Return the stalls of settlements that wait for room at the broker, one for each set of topics of outputs."""
        return [queue.stall for queue in self._queues.values() if queue.stall is not None]

    def unfinished(self) -> list[SettlementBatch]:
        """Return all unanswered settlements, including the open settlement."""
        return [settlement for queue in self._queues.values() for settlement in queue.unfinished()]

    def fail(self, error: LogbrokerError) -> None:
        """Fail all settlements, because no answer will come any more."""
        failed = self.unfinished()
        for queue in self._queues.values():
            for settlement in queue.unanswered.values():
                settlement.uncertain = True
        self._plain = _Queue()
        self._queues = {NO_TOPICS: self._plain}
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
        self.max_request_bytes = DEFAULT_MAX_REQUEST_BYTES
        """The largest message that the broker reads."""
        self.routes = OutputRoutes()
        self.in_hand = 0
        """Number of deliveries outside of sessions that the program has not settled."""
        self.may_be_stalled = False
        """Whether settlements may wait for room at the broker; `InFlight.stalls` finds out."""
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

    @property
    def max_output_bytes(self) -> int:
        """Maximum bytes of the records that are sent with one delivery."""
        return min(MAX_OUTPUT_BYTES, self.max_request_bytes)

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
        """Settle for the program those deliveries that are not settled. Then raise the error of the first delivery that
        could not be settled, if there is one."""
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
        if error is None:
            return
        failed = settlement.failures
        if not settlement.error and settlement.nacked.issuperset(failed):
            # This is handled like an exception in a handler: it is logged, and the record is tried again.
            _log.warning("%d acks of topic %s became nacks: outputs were refused: %s", len(failed), self.topic, error)
            return
        _log.warning("%d deliveries of topic %s were not settled: %s", len(failed), self.topic, error)
        if len(self._untold) < _MAX_UNTOLD:
            self._untold.append(settlement)

    def take_untold(self, *, with_losses: bool = True) -> LogbrokerError | None:
        """Return the first refusal that was not reported to the program, and count all as reported. Without
        `with_losses`, refusals because a delivery was lost do not count."""
        with self.lock.free():
            untold, self._untold = self._untold, []
        for settlement in untold:
            if any(delivery.batch.settlements.is_loss_told for delivery in settlement.failures):
                continue
            for error in settlement.untold_failures():
                if with_losses or not isinstance(error, LeaseLostError | StaleSessionError):
                    return error
        return None

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
