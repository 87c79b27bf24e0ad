"""A session that a worker holds: its lock, its state and the order of its deliveries. No I/O.

Several consecutive records of a session may be in flight. If the program nacks or releases a record, the broker
delivers it again, and all records after it. The earlier deliveries of these later records are void, whether the worker
has them or they are still on their way. Receipts do not tell a void delivery from a redelivery. So the worker gives
back each delivery of the session that arrives, without showing it to the program, until a record that it gave back
before arrives again, or the broker has answered the nack or release.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Generic, TypeVar

from logbroker.client.runtime.arguments import as_bytes, fits
from logbroker.client.worker.delivery_batch import HELD, SAID, DeliveryBatch
from logbroker.client.worker.leased_record import LeasedRecord
from logbroker.client.worker.prefetch_buffer import PrefetchBuffer
from logbroker.client.worker.sent_records import SentRecord, SentRecords, joined
from logbroker.client.worker.settlements import (
    ACK,
    RELEASE,
    Settled,
    SettlementBatch,
    SettlementOutbox,
    Settlements,
    Word,
)
from logbroker.errors import LeaseLostError, LogbrokerError, StateTooLargeError, quoted
from logbroker.v1 import queues_pb2

D = TypeVar("D", bound=LeasedRecord)
_Place = tuple[DeliveryBatch[Settlements], int]
"""A delivery by its batch and its index."""

MAX_STATE_BYTES: Final = 256 * 1024
_LOOK_SECONDS: Final = 0.05
"""The time between two checks for the answer that shows that a session is idle."""
_FIRST_SECONDS: Final = 5.0
"""Maximum time to wait for the first record that the broker announced. Retention may remove that record before it is
sent."""


class IdleWait:
    """One wait for the next record of a session. It ends when the session is idle: no record has come for
    `idle_seconds`, and the broker has answered a request that was sent after the wait began. The answer proves that no
    record is on its way behind others on a slow link. Without an answer, the wait ends one session lock later."""

    def __init__(self, session: HeldSession[Any], idle_seconds: float | None, now: float) -> None:
        """With `idle_seconds` None, wait for ever. With 0, end at once if no record is at hand."""
        self._heard_by = now
        self._has_asked = False
        patience_seconds = session.patience_seconds(idle_seconds, now)
        self._is_sure = patience_seconds == 0
        self.until = math.inf if patience_seconds is None else now + patience_seconds
        """The time of the next check whether the session is idle, in monotonic seconds."""
        self._last_until = self.until + session.lock_seconds

    def is_over(self, heard_at: float, now: float) -> bool:
        """Return whether the session is idle. If not, the caller asks the broker for an answer, and calls this again at
        `until`. `heard_at` is the time when the newest answered request was sent."""
        if self._is_sure or heard_at >= self._heard_by or now >= self._last_until:
            return True
        if not self._has_asked:
            # An earlier request may have been answered before the broker got the credit that the next record needs.
            self._has_asked, self._heard_by = True, now
        self.until = now + _LOOK_SECONDS
        return False


class HeldSession(Settlements, Generic[D]):
    """One session, from its opening to its end. It includes the settlements of its deliveries, because the state is
    stored together with them."""

    is_session: ClassVar[bool] = True

    def __init__(
        self,
        outbox: SettlementOutbox,
        buffer: PrefetchBuffer[D],
        *,
        key: bytes,
        token: int,
        prefetch: int,
        state: bytes,
    ) -> None:
        super().__init__(outbox)
        self.key = key
        self.token = token
        self.prefetch = prefetch
        self.state = state
        """The state as the program sees it."""
        self.buffer = buffer
        self.batches: dict[DeliveryBatch[Settlements], None] = {}
        self.lock_seconds = 0.0
        self.until = 0.0
        """The end of the session's lock unless it is renewed, in monotonic seconds."""
        self._first_until = 0.0
        """Callers wait for the announced first record until this time (monotonic seconds), even if the program's
        timeout is shorter. 0 if no first record is awaited."""
        self.renewal_id = 0
        """Id of the unanswered renewal; 0 if there is none."""
        self.renewal_at = 0.0
        self.lost: LogbrokerError | None = None
        self._failed: LogbrokerError | None = None
        """The error because of which the state of the program may differ from the state of the broker."""
        self.unsaved = False
        """Whether the program set the state and no settlement contains it yet."""
        self._before: list[tuple[_Place, bytes, bool]] = []
        """For each delivery during which the program set the unsaved state: `state` and `unsaved` before."""
        self._taken: list[_Place] = []
        """The deliveries that the program received and may not have settled yet, in order. The last one stays in the
        list when it is settled. The deliveries themselves are not kept: the program may drop them."""
        self._repeated: LogbrokerError | None = None
        """The error of the delivery on which the program works, if it comes again after a start of the broker. A state
        that is set for it, and records that are sent for it, would count twice."""
        self._unsent: list[tuple[_Place | None, SentRecords]] = []
        """Records to be sent together with the next ack. Each comes with the delivery on which the program was working
        when it sent the record; None if it had no unsettled delivery."""
        self._returned: set[tuple[int, int]] = set()
        """Ids of the records that were given back. Kept until one of them arrives again, or the broker has answered."""
        self._returned_first: tuple[int, tuple[int, int]] = 0, (0, 0)
        """Receipt and record id of the first record in `_returned`."""
        self._returned_by: SettlementBatch | None = None
        self._given_back: tuple[Settled, SettlementBatch] | None = None
        """The delivery that was nacked or released, with its settlement. Kept until the deliveries behind it are taken
        back."""

    def expect_records(self, now: float) -> None:
        """Note that the broker announced records."""
        self._first_until = now + _FIRST_SECONDS

    def patience_seconds(self, idle_seconds: float | None, now: float) -> float | None:
        """Return how long a caller with this `idle_seconds` has to wait for the next record. It always waits for an
        announced first record. Otherwise a short `idle_seconds` might end each session before its first record."""
        return None if idle_seconds is None else max(idle_seconds, self._first_until - now)

    def handed_out(self, delivery: Settled) -> None:
        """Note that the program received a delivery of the session."""
        self._first_until = 0.0
        self._taken = [*filter(_is_held, self._taken), (delivery.batch, delivery.index)]
        self._repeated = None

    def set_state(self, state: bytes) -> None:
        """Set the state. The next ack stores it. Raises StateTooLargeError, or the error of a lost session or of a
        delivery that comes again."""
        self.check()
        if not fits(state, bytes):
            raise TypeError(f"state must be bytes, not {type(state).__name__} {quoted(state)}: encode it")
        state = as_bytes("state", state)
        if len(state) > MAX_STATE_BYTES:
            raise StateTooLargeError(f"a state of {len(state)} bytes; a session keeps up to {MAX_STATE_BYTES}")
        with self.outbox.lock.free():
            self._check_in_hand()
            during = self._in_hand()
            if during is not None and (not self._before or self._before[-1][0] != during):
                self._before.append((during, self.state, self.unsaved))
            self.state, self.unsaved = state, True

    def last_taken(self) -> D | None:
        """Return the delivery that the program received last, settled or not, without its record's contents."""
        return self.buffer.bare_record(*self._taken[-1]) if self._taken else None

    def first_in_hand(self) -> D | None:
        """Return the first delivery that the program received and has not settled, without its record's contents."""
        return next((self.buffer.bare_record(*place) for place in self._taken if _is_held(place)), None)

    def drop_unstored(self) -> None:
        """Drop the state and the records that no ack has stored or sent."""
        self.unsaved, self._before, self._unsent = False, [], []

    def _in_hand(self) -> _Place | None:
        """Return the delivery on which the program works: the last one that it received and has not settled."""
        return next(filter(_is_held, reversed(self._taken)), None)

    def send(self, sent: SentRecord) -> None:
        """Send a record together with the next ack. Raises RecordTooLargeError, or the error of a lost session or of a
        delivery that comes again."""
        with self.outbox.lock.free():
            self._check_in_hand()
            during = self._in_hand()
            if not self._unsent or self._unsent[-1][0] != during:
                self._unsent.append((during, SentRecords(self.outbox.max_output_bytes)))
            self._unsent[-1][1].add(sent)

    @property
    def has_sent_behind_ack(self) -> bool:
        """Whether the program sent records while it had no unsettled delivery. They wait for the next ack."""
        return any(during is None for during, _ in self._unsent)

    def check(self) -> None:
        """Raise the error because of which the session is lost or cannot go on, if there is one."""
        error = self.lost or self._failed
        if error is not None:
            self.is_loss_told = True
            raise type(error)(error.message)

    def _check_in_hand(self) -> None:
        self.check()
        if self._repeated is not None:
            raise type(self._repeated)(self._repeated.message)

    def say(self, delivery: Settled, word: Word) -> None:
        """See `Settlements.say`. The state is stored, and records of the session are sent, with the next ack. If the
        delivery is nacked or released, the records that the program sent while it worked on this delivery or a later
        one are dropped, and so is the state that it set, because these deliveries are repeated. Raises
        RecordTooLargeError."""
        self._mend()
        outputs, unsent = delivery.outputs, self._unsent
        state, unsaved, before = self.state, self.unsaved, self._before
        if word is ACK:
            before = []
            if unsent:
                outputs, unsent = joined(outputs, *(records for _, records in unsent)), []
        elif unsent or before:
            receipt = delivery.batch.receipt(delivery.index)
            unsent = [each for each in unsent if each[0] is None or each[0][0].receipt(each[0][1]) < receipt]
            kept = [each for each in before if each[0][0].receipt(each[0][1]) < receipt]
            if len(kept) < len(before):
                _, state, unsaved = before[len(kept)]
                before = kept
        settlement = self._settlement(outputs if word is ACK else None)
        delivery.outputs, self._unsent = outputs, unsent
        self.state, self.unsaved, self._before = state, unsaved, before
        delivery.word = word
        delivery.settlement = settlement
        delivery.batch.states[delivery.index] = SAID
        if word is not ACK:
            self._given_back = delivery, settlement
        elif self.unsaved:
            settlement.state, self.unsaved = self.state, False
            settlement.states[delivery] = self.state
        settlement.deliveries.append(delivery)
        if self._given_back is not None:
            self._mend()

    def given_back(self, delivery: Settled, settlement: SettlementBatch) -> None:
        """See `Settlements.given_back`."""
        self._given_back = delivery, settlement
        self._mend()

    def save_state(self) -> None:
        """Put a changed state into the settlement that is sent next. A state that was set during an unsettled delivery
        waits for the next ack instead. With `has_sent_behind_ack`, any state does, as the records do."""
        if self.has_sent_behind_ack:
            return
        if not self._before:
            if self.unsaved:
                self._plain.open.state, self.unsaved = self.state, False
            return
        during, state, unsaved = self._before[0]
        if unsaved:
            self._plain.open.state, self._before[0] = state, (during, state, False)

    def add_state(self, message: queues_pb2.Settle, state: bytes) -> None:
        """Add the state to a message."""
        message.states.add(key=self.key, token=self.token, state=state)

    def next_message(self, correlation_id: int) -> queues_pb2.Settle | None:
        """See `Settlements.next_message`."""
        self._mend()
        return super().next_message(correlation_id)

    def lose_delivery(self, batch: DeliveryBatch[Settlements], index: int, error: LogbrokerError) -> None:
        """Mark a delivery as lost."""
        batch.lose(index, error)

    def received(self, batch: DeliveryBatch[Settlements]) -> None:
        """Keep received records. Give them back if they arrive before a record that has to be delivered again."""
        if self._failed is not None:
            return  # The records are delivered again when the session is closed.
        self._mend()
        self.batches[batch] = None
        if self._returned_by is not None:
            # A message that was sent before the broker read the settlement is void as a whole.
            if batch.record_id(0) in self._returned or self._returned_by.answered:
                self._returned.clear()
                self._returned_by = None
            else:
                self.outbox.put_down(self.buffer.bare_record(batch, 0), RELEASE)
                self._mend()
        self.buffer.put(batch)

    def _mend(self) -> None:
        """Take back the deliveries behind a delivery that the program nacked or released. Repeats a step that a signal
        handler may have interrupted; a repeat is harmless."""
        if self._given_back is not None:
            self._take_back_behind(*self._given_back)
            self._given_back = None

    def _take_back_behind(self, delivery: Settled, settlement: SettlementBatch) -> None:
        batch = delivery.batch
        receipt = batch.receipt(delivery.index)
        if self._returned_by is None or receipt < self._returned_first[0]:
            self._returned_first = receipt, batch.record_id(delivery.index)
        self._returned_by = settlement
        self._returned.add(batch.record_id(delivery.index))
        error = LeaseLostError("an earlier record of the session was given back: this record comes again after it")
        for later in self.batches:
            for index in list(later.held()):
                if later.receipt(index) > receipt:
                    self._returned.add(later.record_id(index))
                    later.lose(index, error)

    def broken(self) -> None:
        """Handle the end of the stream. The next Hello does not list the deliveries that were taken back, so the broker
        sends their records again before it reads the repeated release. Only the redelivery of the first released record
        proves that the broker processed the release."""
        super().broken()
        self.buffer.set_open(False)
        self.renewal_id = 0
        if self._returned_by is not None:
            self._returned = {self._returned_first[1]}

    def repeat(self, error: LogbrokerError) -> int:
        """Lose all unsettled deliveries, because the broker sends them again in this session. Drop the state that the
        program set and the records that it sent while it worked on them. Return how many there were."""
        self._mend()
        if self._before:
            _, self.state, self.unsaved = self._before[0]
            self._before = []
        self._unsent = [each for each in self._unsent if each[0] is None]
        if self._in_hand() is not None:
            self._repeated = error
        lost = [(batch, index) for batch in self.batches for index in batch.kept()]
        for batch, index in lost:
            batch.lose(index, error)
        return len(lost)

    def state_failed(self, error: LogbrokerError) -> None:
        """Handle a state that was not, or perhaps not, stored with its acks. If the program went on, its state might
        include the acked records twice. It has to open the session again, and then gets the stored state."""
        self._failed = error
        self.unsaved = False
        self._lose_unsettled(error)

    def leave(self, error: LogbrokerError) -> None:
        """End the session for the program. Deliveries that it has not settled are lost."""
        self.lost = error
        self._lose_unsettled(error)

    def _lose_unsettled(self, error: LogbrokerError) -> None:
        for batch in self.batches:
            for index in list(batch.held()):
                batch.lose(index, error)
        self.buffer.tell_all()

    def lose(self, error: LogbrokerError) -> None:
        """End the session. Its deliveries are lost, and their settlements fail."""
        self.lost = error
        for batch in self.batches:
            for index in list(batch.kept()):
                batch.lose(index, error)
        self.batches.clear()
        self.buffer.tell_all()
        self.fail(error)

    def locked(self, since: float, lock_seconds: float) -> None:
        """Note that the lock lasts `lock_seconds` from `since`."""
        self.lock_seconds = lock_seconds
        self.until = since + lock_seconds
        for batch in self.batches:
            batch.until = self.until
        if not self.buffer.open:
            self.buffer.set_open(True)

    def sweep(self) -> None:
        """Forget the batches whose deliveries are all over or lost."""
        for batch in [batch for batch in self.batches if not batch.left]:
            del self.batches[batch]


def _is_held(place: _Place) -> bool:
    batch, index = place
    return batch.states[index] == HELD
