"""What a worker says of its deliveries, from the program's word to the broker's answer. No I/O, no clock.

What is said while a settlement has no answer is gathered into the next one, so that the more there is to say, the fewer
messages it takes. A delivery knows the settlement that names it; its outcome is found there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logbroker.client.transport.status import error_of_item
from logbroker.client.worker.delivery_batch import LOST, OVER, SAID
from logbroker.errors import AlreadySettledError, LeaseLostError, LogbrokerError
from logbroker.v1 import queues_pb2

if TYPE_CHECKING:
    from logbroker.client.worker.held_session import HeldSession
    from logbroker.client.worker.in_flight import InFlight
    from logbroker.client.worker.leased_record import LeasedRecord

_SEND_AT_ONCE: Final = 1000
"""So many deliveries are sent even if a settlement before them has no answer."""
_MAX_DELIVERIES: Final = 5000
"""Of one settlement; each may be a range of its own."""
_MAX_UNANSWERED: Final = 8
REASON_CHARACTERS: Final = 256
_IN_DOUBT: Final = "the connection broke before the answer: whether it was settled is not known; if not, it comes again"


class NackWord(msgspec.Struct, gc=False):
    """Why, and when to try again; None: the group's backoff."""

    reason: str
    delay_ms: int | None


ACK: Final = None
RELEASE: Final = "release"

Word = NackWord | str | None
"""What is said of a delivery: ACK, RELEASE or a Nack."""


class SettlementBatch:
    """Several deliveries, and how the program settled them."""

    __slots__ = ("answered", "deliveries", "error", "failures", "ledger", "state", "uncertain", "waiters")

    def __init__(self, ledger: SettlementLedger) -> None:
        self.ledger = ledger
        self.deliveries: list[LeasedRecord] = []
        """Each knows the word that was said of it."""
        self.state: bytes | None = None
        """Of the session; it moves with the acks."""
        self.uncertain = False
        """It was sent, and there was no answer to that: the broker may have carried it out."""
        self.answered = False
        self.failures: dict[LeasedRecord, LogbrokerError] = {}
        self.error: LogbrokerError | None = None
        """The state was refused, or all of it."""
        self.waiters: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self.deliveries) + (self.state is not None)

    def message(self, correlation_id: int) -> queues_pb2.Settle:
        """Return it as the API has it, under the receipts of now."""
        acks: list[int] = []
        releases: list[int] = []
        nacks: dict[tuple[str, int | None], list[int]] = {}
        for delivery in self.deliveries:
            receipt = delivery.lot.receipt(delivery.index)
            word = delivery.word
            if word is ACK:
                acks.append(receipt)
            elif isinstance(word, NackWord):
                nacks.setdefault((word.reason, word.delay_ms), []).append(receipt)
            else:
                releases.append(receipt)
        message = queues_pb2.Settle(correlation_id=correlation_id)
        for receipts, columns in ((acks, message.acks), (releases, message.releases)):
            for first, last in ranges(receipts):
                columns.firsts.append(first)
                columns.lasts.append(last)
        for (reason, delay_ms), receipts in nacks.items():
            for first, last in ranges(receipts):
                message.nacks.add(first_receipt=first, last_receipt=last, reason=reason, delay_ms=delay_ms)
        session = self.ledger.session
        if self.state is not None and session is not None:
            message.states.add(key=session.key, token=session.token, state=self.state)
        return message

    def answer(self, failures: Sequence[queues_pb2.SettleFailure]) -> bool:
        """The broker has answered: all but the failures is synced. False: it had no room, and did nothing of it."""
        if failures:
            by_receipt = {delivery.lot.receipt(delivery.index): delivery for delivery in self.deliveries}
            for failure in failures:
                error = error_of_item(failure.status) or LogbrokerError("refused without a reason")
                if self.uncertain and isinstance(error, AlreadySettledError):
                    # By this very settlement, whose first answer was lost.
                    continue
                if not failure.first_receipt and not failure.last_receipt:
                    if error.retriable:
                        return False
                    self.error = error
                    self.failures = dict.fromkeys(by_receipt.values(), error)
                    if self.state is not None and self.ledger.session is not None:
                        self.ledger.session.state_failed(error)
                else:
                    for receipt in range(failure.first_receipt, failure.last_receipt + 1):
                        if receipt in by_receipt:
                            self.failures[by_receipt[receipt]] = error
        self._finish()
        return True

    def drop_lost(self) -> None:
        """Forget the deliveries that are lost, whose failure this is."""
        if self.state is not None:
            self._drop_state()
        kept: list[LeasedRecord] = []
        for delivery in self.deliveries:
            lot = delivery.lot
            if lot.states[delivery.index] != LOST:
                kept.append(delivery)
            elif lot.lost is not None:
                self.failures[delivery] = LeaseLostError(_IN_DOUBT) if self.uncertain else lot.lost
        self.deliveries = kept
        if not len(self):
            self._finish()

    def _drop_state(self) -> None:
        """A state is not written without all the acks that it moves with: where one of them is lost, all are."""
        acked = [delivery for delivery in self.deliveries if delivery.word is ACK]
        lost = next((delivery.lot.lost for delivery in acked if delivery.lot.states[delivery.index] == LOST), None)
        if lost is not None:
            self.state = None
            for delivery in acked:
                delivery.lot.lose(delivery.index, lost)
            if self.ledger.session is not None:
                self.ledger.session.state_failed(LeaseLostError(_IN_DOUBT) if self.uncertain else lost)

    def fail(self, error: LogbrokerError) -> None:
        """There will be no answer."""
        self.error = error
        self.failures.update(dict.fromkeys(self.deliveries, error))
        self._finish()

    def _finish(self) -> None:
        for delivery, error in self.failures.items():
            delivery.lot.lose(delivery.index, error)
        for delivery in self.deliveries:
            lot = delivery.lot
            if lot.states[delivery.index] == SAID:
                lot.states[delivery.index] = OVER
                lot.left -= 1
        self.deliveries = []
        self.answered = True
        waiters, self.waiters = self.waiters, []
        for tell in waiters:
            tell()

    def first_failure(self) -> LogbrokerError | None:
        """Return any of the refusals, but for deliveries that the program never saw."""
        seen = (error for delivery, error in self.failures.items() if delivery.settlement is not None)
        return self.error or next(seen, None)


class SettlementLedger:
    """Settlements that are carried out one after the other: those of a session, or of all that is outside of them."""

    def __init__(self, holdings: InFlight[Any], session: HeldSession[Any] | None = None) -> None:
        self.holdings = holdings
        self.session = session
        self._open = SettlementBatch(self)
        self._waiting: deque[SettlementBatch] = deque()
        """Full, or to be sent again."""
        self._unanswered: dict[int, SettlementBatch] = {}
        self._paused = False
        """The broker had no room: nothing is sent for a moment."""
        self._given_back: tuple[LeasedRecord, SettlementBatch] | None = None
        """Of its session, which has not heard of it yet."""

    def say(self, delivery: LeasedRecord, word: Word) -> None:
        """Put down what is said of a delivery that is held.

        A signal handler may raise wherever something is called. Nothing is called from the first change to the append,
        the last one: so all of it is said, or nothing.
        """
        self.mend()
        session = self.session
        if len(self._open.deliveries) >= _MAX_DELIVERIES:
            settlement = SettlementBatch(self)
            self._waiting += (self._open,)
            self._open = settlement
        settlement = self._open
        delivery.word = word
        delivery.settlement = settlement
        delivery.lot.states[delivery.index] = SAID
        if session is None:
            self.holdings.in_hand -= 1
        elif word is not ACK:
            self._given_back = delivery, settlement
        elif session.unsaved:
            settlement.state, session.unsaved = session.state, False
        settlement.deliveries.append(delivery)
        if self._given_back is not None:
            self.mend()

    def mend(self) -> None:
        """Let the session hear what was given back, where it has not yet: a signal handler raised before it had."""
        if self._given_back is not None and self.session is not None:
            self.session.given_back(*self._given_back)
            self._given_back = None

    def save_state(self) -> None:
        """Put down the state of the session, where it was set since, to move with what is said last."""
        session = self.session
        if session is not None and session.unsaved:
            self._open.state, session.unsaved = session.state, False

    def next_settlement(self, correlation_id: int) -> SettlementBatch | None:
        """Return what is to be sent now under this id, if anything is."""
        self.mend()
        if self._paused:
            return None
        if self._waiting and len(self._unanswered) < _MAX_UNANSWERED:
            settlement = self._waiting.popleft()
        elif len(self._open) and (not self._unanswered or len(self._open) >= _SEND_AT_ONCE) and self._has_room():
            settlement, self._open = self._open, SettlementBatch(self)
        else:
            return None
        self._unanswered[correlation_id] = settlement
        return settlement

    def _has_room(self) -> bool:
        return len(self._unanswered) < _MAX_UNANSWERED

    def answered(self, correlation_id: int) -> SettlementBatch | None:
        """Return the settlement of an answer."""
        return self._unanswered.pop(correlation_id, None)

    def put_off(self, settlement: SettlementBatch) -> None:
        """Send a settlement again, of which nothing was done: first of all, but not before `go_on`."""
        self._waiting.appendleft(settlement)
        self._paused = True

    def go_on(self) -> None:
        """Send again."""
        self._paused = False

    def broken(self) -> None:
        """The stream broke: what has no answer is sent again on the next one."""
        for settlement in self._unanswered.values():
            settlement.uncertain = True
        self._waiting.extendleft(reversed(self._unanswered.values()))
        self._unanswered.clear()
        self._paused = False

    def drop_answered(self) -> None:
        """Forget settlements that were finished without being sent."""
        self._waiting = deque(settlement for settlement in self._waiting if not settlement.answered)
        if self._open.answered:
            self._open = SettlementBatch(self)

    def unfinished(self) -> list[SettlementBatch]:
        """All that has no answer, what is gathered included."""
        return [*self._unanswered.values(), *self._waiting, *([self._open] if len(self._open) else [])]

    def fail(self, error: LogbrokerError) -> list[SettlementBatch]:
        """Nothing more will be answered; return what has failed by that."""
        for settlement in self._unanswered.values():
            settlement.uncertain = True
        failed = self.unfinished()
        self._open = SettlementBatch(self)
        self._waiting.clear()
        self._unanswered.clear()
        for settlement in failed:
            settlement.fail(error)
        return failed


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield numbers, each of which comes once, as ranges: the first and the last of each."""
    ordered = sorted(numbers)
    if not ordered:
        return
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        yield ordered[0], ordered[-1]
        return
    first = last = ordered[0]
    for number in ordered:
        if number > last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
