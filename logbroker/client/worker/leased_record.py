"""The records that a worker holds, single or in lists, and the methods that settle them."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Generator, Iterable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from logbroker.client.runtime.arguments import check_one, check_wait
from logbroker.client.runtime.handlers import is_own
from logbroker.client.runtime.sync_loop import Latch, wait_for
from logbroker.client.runtime.tasks import waiter
from logbroker.client.worker.delivery_batch import HELD, LOST, DeliveryBatch
from logbroker.client.worker.sent_records import SentRecords, sent_record
from logbroker.client.worker.settlements import (
    ACK,
    REASON_CHARACTERS,
    RELEASE,
    NackWord,
    SettlementBatch,
    Settlements,
    Word,
)
from logbroker.config import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, MIN_LEASE_SECONDS
from logbroker.errors import InvalidRequestError, RecordTooLargeError, RequestTimeoutError
from logbroker.record.codec import Headers
from logbroker.record.message_headers import priority_of
from logbroker.record.serializers import Decoding
from logbroker.texts import words_of

D = TypeVar("D", bound="LeasedRecord")


class LeasedRecord(Decoding, msgspec.Struct, eq=False):
    """A record under a lease. `timestamp_ms` counts from 1970, by the producer's clock or the broker's.

    Every delivery is settled once, by `ack`, `nack` or `release`. These return at once; the worker sends the
    settlements later, in few messages. All three raise AlreadySettledError if the delivery is settled already, and
    LeaseLostError (StaleSessionError if its session is lost) if it is known to be lost: its record is delivered again,
    to this worker or another.

    `text()`, `json()`, `msgpack()` and `decode(function)` turn the value into an object; `header(name)` finds a header.
    A value that cannot be decoded raises DeserializationError. If this error leaves a handler or the block of the
    delivery, the delivery is nacked with the error as the reason.

    `batch`, `index`, `settlement`, `word` and `outputs` are private to the client.
    """

    batch: DeliveryBatch[Settlements]
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    index: int = 0
    settlement: SettlementBatch | None = None
    word: Word = ACK
    """How the program settled this record. Valid once it has a settlement."""
    outputs: SentRecords | None = None
    """Records that are sent if the delivery is acked; None: there are none."""

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return self.batch.topic

    @property
    def partition(self) -> int:
        """The partition of the record."""
        partitions = self.batch.partitions
        return partitions[self.index] if len(partitions) > 1 else partitions[0]

    @property
    def attempt(self) -> int:
        """The number of failures so far plus 1, as the broker counts them."""
        return self.batch.attempt(self.index)

    @property
    def redelivered(self) -> bool:
        """Whether the record may have been delivered before."""
        redelivered = self.batch.redelivered
        return redelivered[self.index] if redelivered else False

    @property
    def priority(self) -> int:
        """The priority of the record: 0 to 9, where 9 is the most urgent; 4 if the producer gave none."""
        return priority_of(self.headers)

    @property
    def lost(self) -> bool:
        """Whether the delivery is known to be lost, or its lease has ended by this computer's clock."""
        state = self.batch.states[self.index]
        return state == LOST or (state == HELD and monotonic() > self.batch.ends_at(self.index))

    @property
    def settled(self) -> bool:
        """Whether `ack`, `nack` or `release` was called."""
        return self.settlement is not None

    @property
    def in_doubt(self) -> bool:
        """Whether the settlement failed although the broker may have carried it out, because the connection or the
        session ended before the answer. If the broker did not carry it out, the record is delivered again."""
        return self.settlement is not None and self.settlement.uncertain and self in self.settlement.failures

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        sub_key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        ordering_key: bytes | None = None,
        priority: int | None = None,
    ) -> Self:
        """Send a record to a topic together with the ack of this delivery: both happen, once, or neither. Call it
        before `ack`. A delivery that is nacked or released sends nothing.

        The arguments are those of `Producer.send`; a worker has no serializers. The outputs of a delivery may have up
        to 1 MiB in 10,000 records with 50,000 headers. If the broker refuses them, because the topic does not exist or
        does not take the record, the delivery is nacked with this reason, and whoever waits for the ack gets the error.

        Raises AlreadySettledError, LeaseLostError (in a session, StaleSessionError), RecordTooLargeError,
        InvalidRecordError, InvalidTimestampError, UnknownTopicError or UnknownPartitionError for a topic name or a
        partition number that cannot exist, InvalidRequestError for a priority out of range or a sub-key without a key,
        or TypeError.
        """
        sent = sent_record(topic, value, key, sub_key, headers, partition, timestamp_ms, ordering_key, priority)
        with self.batch.settlements.outbox.lock.free():
            if self.batch.states[self.index] != HELD:
                self.batch.check_held(self.index)
            if self.outputs is None:
                self.outputs = SentRecords(self.batch.settlements.outbox.max_output_bytes)
            self.outputs.add(sent)
        return self

    def ack(self) -> Self:
        """Settle the delivery as done, and send its outputs."""
        self.batch.settlements.outbox.say(self, ACK)
        return self

    def nack(self, *, delay_seconds: float | None = None, reason: str = "") -> Self:
        """Settle the delivery as failed. It is delivered again after the delay or, without one, after the group's
        backoff, unless its attempts are used up. The first 256 characters of the reason are kept.
        """
        self.batch.settlements.outbox.say(self, _nack_word(delay_seconds, reason))
        return self

    def release(self) -> Self:
        """Give the delivery back unprocessed. It is delivered again at once, and no attempt is counted."""
        self.batch.settlements.outbox.say(self, RELEASE)
        return self

    def extend(self, lease_seconds: float | None = None) -> None:
        """Let the lease end this many seconds from now; None takes the length of the group's lease. The worker extends
        leases by itself for up to `max_extension_seconds`. Call this in time if the work takes longer."""
        _check_seconds("extend()", "lease_seconds", lease_seconds)
        if lease_seconds is not None and not MIN_LEASE_SECONDS <= lease_seconds <= MAX_LEASE_SECONDS:
            raise InvalidRequestError(f"a lease of {lease_seconds} s cannot be had: ask for 0.1 s to 12 hours")
        self.batch.settlements.outbox.extend(self, lease_seconds)

    def _end(self, error: BaseException | None, *, is_failure: bool) -> None:
        """Settle the delivery when the program leaves its block. If `is_failure` is false, the block was cancelled or
        interrupted, and the record is not at fault."""
        if error is None:
            if self.settlement is None:
                try:
                    self.ack()
                except RecordTooLargeError as refusal:  # The session adds its outputs to those of the delivery.
                    self.nack(reason=reason_of(refusal))
                    raise
        elif self.settlement is None and not self.lost:
            if is_failure:
                self.nack(reason=reason_of(error))
            else:
                self.release()

    def __repr__(self) -> str:
        record_id = f"topic={self.topic!r}, partition={self.partition}, offset={self.offset}"
        return f"{type(self).__name__}({record_id}, key={self.key!r}, value={self.value!r}, attempt={self.attempt})"


class WorkerDelivery(LeasedRecord, eq=False):
    """A record handed to a `Worker`.

    async with delivery:            # acks at the end of the block; an exception nacks, with its text as the reason
        ...

    The exception is raised again, so a loop over deliveries ends unless it catches the exception.

    `await delivery.ack()` (or `nack`, `release`) also waits until the broker has synced the settlement, and raises the
    broker's refusal.
    """

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        await _answered([self])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # If the task itself was not cancelled, a CancelledError comes from something that the block awaited. It counts
        # as a failure, because each attempt would probably raise it.
        self._end(error, is_failure=isinstance(error, Exception) or is_own(error))


class SyncWorkerDelivery(LeasedRecord, eq=False):
    """A record handed to a synchronous `Worker`. Leaving `with delivery:` acks it. An exception nacks it and is raised
    again."""

    _is_entered: bool = False
    """Whether the program is or was in the delivery's block."""

    def result(self, timeout_seconds: float | None = None, *, timeout: float | None = None) -> None:
        """Wait until the broker has synced the settlement. Raises the broker's refusal, or RequestTimeoutError.
        `timeout` is another name of `timeout_seconds`."""
        _wait_until_answered([self], timeout if timeout_seconds is None else timeout_seconds)

    def __enter__(self) -> Self:
        self._is_entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # Nobody cancels a thread, so a CancelledError comes from something that the program ran in it.
            self._end(error, is_failure=isinstance(error, Exception | CancelledError))
        except BaseException:
            # Perhaps a signal handler raised this while the delivery was being settled. Nobody else would settle it.
            if self.settlement is None and not self.lost:
                self.release()
            raise

    def __del__(self) -> None:
        # A signal handler raised an exception before `__exit__` began, and the program has dropped the delivery.
        if self._is_entered and self.settlement is None:
            self.batch.settlements.outbox.dropped.append((self.batch, self.index))


class DeliveryList(list[D]):
    """Deliveries that a worker took together. Each may be settled by itself. `ack`, `nack` and `release` of the list
    settle all that are not settled yet.

    These methods return at once. If some deliveries are known to be lost, the methods settle the others and then raise
    LeaseLostError: the lost records are delivered again, to this worker or another.
    """

    __slots__ = ()

    def ack(self) -> Self:
        """Settle the unsettled deliveries as done."""
        return self._say(ACK)

    def nack(self, *, delay_seconds: float | None = None, reason: str = "") -> Self:
        """Settle the unsettled deliveries as failed: see `nack` of a delivery."""
        return self._say(_nack_word(delay_seconds, reason))

    def release(self) -> Self:
        """Give the unsettled deliveries back unprocessed. They are delivered again at once, and no attempt is
        counted."""
        return self._say(RELEASE)

    def _say(self, word: Word) -> Self:
        if self:
            self[0].batch.settlements.outbox.say_all(self, word)
        return self


class WorkerDeliveries(DeliveryList[WorkerDelivery]):
    """Deliveries that a `Worker` took together.

    async for deliveries in worker.batches():
        await charge_all([delivery.value for delivery in deliveries])
        deliveries.ack()

    `await deliveries.ack()` (or `nack`, `release`) also waits until the broker has synced every settlement, and raises
    the first refusal.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return _answered(self).__await__()


class SyncWorkerDeliveries(DeliveryList[SyncWorkerDelivery]):
    """Deliveries that a synchronous `Worker` took together."""

    __slots__ = ()

    def result(self, timeout_seconds: float | None = None, *, timeout: float | None = None) -> None:
        """Wait until the broker has synced every settlement. Raises the first refusal, or RequestTimeoutError.
        `timeout` is another name of `timeout_seconds`."""
        _wait_until_answered(self, timeout if timeout_seconds is None else timeout_seconds)


async def _answered(deliveries: Sequence[LeasedRecord]) -> None:
    """Wait until the broker has synced these settlements. Raises the first refusal."""
    for settlement in _settlements(deliveries):
        deliveries[0].batch.settlements.outbox.check_loop()
        while not settlement.answered:
            told, tell = waiter()
            settlement.waiters.append(tell)
            await told
    _check_outcomes(deliveries)


def _wait_until_answered(deliveries: Sequence[LeasedRecord], timeout_seconds: float | None) -> None:
    """Wait until the broker has synced these settlements. Raises the first refusal, or RequestTimeoutError."""
    check_wait(timeout_seconds)
    deadline = None if timeout_seconds is None else monotonic() + timeout_seconds
    for settlement in _settlements(deliveries):
        told = Latch()
        settlement.waiters.append(told.set)
        left = None if deadline is None else max(0.0, deadline - monotonic())
        # The answer may have arrived after the check and before the append.
        if not settlement.answered and not wait_for(told, left):
            raise RequestTimeoutError(f"no answer within {timeout_seconds} s; it may still come")
    _check_outcomes(deliveries)


def _settlements(deliveries: Iterable[LeasedRecord]) -> list[SettlementBatch]:
    """Return the settlements of these deliveries. Raises InvalidRequestError if a delivery is not settled."""
    settlements = dict.fromkeys(delivery.settlement for delivery in deliveries)
    if None in settlements:
        raise InvalidRequestError("a delivery is not settled yet: call ack, nack or release first")
    return [settlement for settlement in settlements if settlement is not None]


def _check_outcomes(deliveries: Iterable[LeasedRecord]) -> None:
    """Raise the first refusal of these answered settlements."""
    for delivery in deliveries:
        settlement = delivery.settlement
        error = None if settlement is None else settlement.failures.get(delivery)
        if settlement is not None and error is not None:
            delivery.batch.settlements.outbox.told(settlement)
            raise type(error)(error.message)


def _nack_word(delay_seconds: float | None, reason: str) -> NackWord:
    """Return a nack with its reason and delay. Raises TypeError or InvalidRequestError for invalid arguments."""
    _check_reason(reason)
    _check_seconds("nack()", "delay_seconds", delay_seconds)
    delay_ms = None
    if delay_seconds is not None:
        if not 0 <= delay_seconds <= MAX_DELAY_SECONDS:
            raise InvalidRequestError(f"a delay of {delay_seconds} s cannot be had: give 0 s to 7 days")
        delay_ms = round(delay_seconds * 1000)
    return NackWord(_sayable(reason[:REASON_CHARACTERS]), delay_ms)


def _check_seconds(method: str, name: str, seconds: object) -> None:
    """Raise TypeError unless the value is a number or None. The range checks of the callers refuse NaN."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | None):
        check_one(method, name, seconds, float | None)


def _check_reason(reason: object) -> None:
    """Raise TypeError unless the value is a string. A string that is not valid Unicode is accepted."""
    if not isinstance(reason, str):
        check_one("nack()", "reason", reason, str)


def _sayable(text: str) -> str:
    """Return a text that UTF-8 can encode. Exceptions may name files, whose names may be any bytes."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()[:REASON_CHARACTERS]


def reason_of(error: BaseException) -> str:
    """Return an exception as one line of text."""
    text = " ".join(words_of(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
