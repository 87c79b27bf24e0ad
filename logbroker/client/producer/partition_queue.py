"""The unfinished batches of one partition: their order and their sequence numbers.

A state machine without I/O. Batches go `waiting` -> `in_flight` -> done. A batch whose outcome is not final yet goes
`in_flight` -> `retry`, and then the queue recovers: it sends no new batch until every batch in flight is answered,
corrects the sequence numbers, and continues with `retry`, oldest first. So batches never overtake each other.

Idempotence works as in Kafka (KIP-98, KIP-360). The broker accepts a batch only if its sequence follows the last
appended one:
- A batch that was refused before it was appended gives its numbers back, and the batches behind it move up. If only
  some of its records were at fault, the others are sent again in new batches. These take its place and are numbered
  first.
- If a connection broke and the broker may have appended a batch, the batch keeps its numbers, and the broker recognises
  a repeat.
- If the right numbers are unknown, the producer's epoch is raised and the numbers start again at 0.
- If the broker had no room to remember the producer of a partition, nobody can find out whether a batch of unknown
  outcome was appended, so it fails. Batches that were certainly not appended are sent under a new producer id. (Kafka's
  client sends all of them again, and so may store some twice.)
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from logbroker.client.producer.delivery import Batch
from logbroker.client.transport.connection import backoff_seconds
from logbroker.errors import (
    Code,
    LogbrokerError,
    OutOfOrderSequenceError,
    ProducerForgottenError,
    StaleGenerationError,
)
from logbroker.record.codec import with_producer
from logbroker.record.header import MAX_SEQUENCE, NO_PRODUCER_ID, parse_header
from logbroker.types import TopicId

MAX_IN_FLIGHT: Final = 5
"""Maximum number of batches in flight per partition. The broker remembers this many batches of a producer, and does not
recognise repeats of older ones."""

_NOTHING_APPENDED: Final = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.FAILED_PRECONDITION,
        Code.RESOURCE_EXHAUSTED,
        Code.UNIMPLEMENTED,
        Code.OUT_OF_RANGE,
    }
)


class ProducerIdentity(msgspec.Struct, frozen=True):
    """The id and epoch to which sequence numbers belong."""

    id: int
    epoch: int


ANONYMOUS: Final = ProducerIdentity(NO_PRODUCER_ID, -1)
"""Identity of a producer that is not idempotent. Its batches carry no sequence numbers."""


class PartitionQueue:
    """All unfinished batches of one partition."""

    def __init__(
        self, topic: str, topic_id: TopicId, partition: int, used_before: ProducerIdentity | None = None
    ) -> None:
        """`used_before` is an identity under which another queue may have sent to this partition."""
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.waiting: deque[Batch] = deque()
        """Closed batches that were never sent."""
        self.in_flight: list[Batch] = []
        self.retry: list[Batch] = []
        """Batches that were sent before and will be sent again, in the order of their ranks."""
        self.resume_at = 0.0
        """Nothing is sent before this time (monotonic seconds)."""
        self.needs_epoch: ProducerIdentity | None = None
        """The identity that must be replaced before this queue can go on."""
        self.needs_new_id = False
        """Whether a new producer id is needed because a higher epoch is not enough."""
        self._used_before = used_before
        self._identity: ProducerIdentity | None = None
        self._next_sequence = 0
        self._recovering = False
        self._sent = 0
        self.refusals = 0
        """Number of refusals in a row."""
        self._given_back: Batch | None = None
        """The batch of the lowest rank among those that gave back their sequence numbers since the last correction."""
        self._broken = False
        """Whether the next sequence that the broker accepts is unknown."""

    def idle(self) -> bool:
        return not (self.waiting or self.in_flight or self.retry)

    def idle_but_for_flight(self) -> bool:
        """Whether nothing waits to be sent."""
        return not (self.waiting or self.retry)

    def has_unknown(self) -> bool:
        """Whether the outcome of any batch can only be learned from the broker."""
        return bool(self.in_flight) or any(batch.uncertain for batch in self.retry)

    def can_take(self, now: float, identity: ProducerIdentity) -> bool:
        """Whether a waiting batch could be sent now."""
        limit = 1 if self._recovering or identity is ANONYMOUS else MAX_IN_FLIGHT
        # The window begins at the oldest unanswered batch, because answers may overtake each other.
        window = self._sent - self.in_flight[0].sent_as if self.in_flight else 0
        return window < limit and now >= self.resume_at

    def take(self, now: float, identity: ProducerIdentity, *, new: bool = True) -> Batch | None:
        """Encode and return the next batch to send, and count it as in flight. Return None if nothing may be sent now.

        `identity` is the producer's newest. If `new` is false, only batches of unknown outcome are sent.
        """
        if not self.can_take(now, identity):
            return None
        if self._recovering:
            # Batches of unknown outcome are sent one at a time, with their old numbers: the answers show which of them
            # the broker has.
            for batch in self.retry:
                if batch.uncertain:
                    self.retry.remove(batch)
                    return self._send(batch)
            if not new or not self._recover(identity):
                return None
        if not new or not (self.retry or self.waiting):
            return None
        if self.retry:
            batch = self.retry.pop(0)
        else:
            if self._identity != identity and not self.in_flight:
                if identity == self._used_before:
                    # The broker may remember sequence numbers from 0 on, and would take these batches for repeats.
                    self.needs_epoch = identity
                    return None
                self._identity, self._next_sequence = identity, 0
            batch = self.waiting.popleft()
            self._encode(batch)
        return self._send(batch)

    def answered(self, batch: Batch, error: LogbrokerError | None, now: float) -> bool:
        """Apply the broker's answer. Return whether the batch is done, so that the caller finishes it."""
        self.in_flight.remove(batch)
        if error is None:
            self.refusals = 0
            return True
        self._recovering = True
        batch.last_error = error
        # A refusal for lack of room says nothing about an earlier attempt. Any other refusal comes after the duplicate
        # check.
        batch.uncertain = error.code not in _NOTHING_APPENDED or (batch.was_uncertain and error.retriable)
        is_lost = False
        if isinstance(error, ProducerForgottenError):
            self._broken = self.needs_new_id = True
            is_lost = batch.was_uncertain
        batch.was_uncertain = batch.was_uncertain or batch.uncertain
        if is_lost:
            return True
        if error.retriable or isinstance(error, OutOfOrderSequenceError | StaleGenerationError):
            self._put_back([batch])
            self.resume_at = now + backoff_seconds(self.refusals)
            self.refusals += 1
            return False
        self.give_back(batch)
        return True

    def put_parts(self, parts: list[Batch]) -> None:
        """Add the parts of a split batch, to be sent in its place. They get the numbers that the batch gave back."""
        self._put_back(parts)

    def lost(self, error: LogbrokerError) -> None:
        """Handle a broken connection. The outcome of every batch in flight is unknown."""
        lost, self.in_flight = self.in_flight, []
        for batch in lost:
            batch.uncertain = batch.was_uncertain = True
            batch.last_error = error
        if lost:
            self._recovering = True
            self._put_back(lost)

    def expired(self, now: float) -> list[Batch]:
        """Remove and return the batches that are past their deadline and not in flight."""
        late = []
        while self.retry and self.retry[0].deadline <= now:
            batch = self.retry.pop(0)
            late.append(batch)
            self.give_back(batch)
        for batch in [batch for batch in self.waiting if batch.deadline <= now]:
            self.waiting.remove(batch)
            late.append(batch)
        return late

    def give_back(self, batch: Batch) -> None:
        """Note that a numbered batch will not be sent again, so that the batches behind it move up."""
        if batch.was_uncertain:
            # The batch may have been appended after all, and its numbers are used then.
            self._broken = True
        elif self._given_back is None or batch.rank < self._given_back.rank:
            self._given_back = batch
        self._recovering = True

    def take_routed(self) -> list[Batch]:
        """Remove and return the batches whose partition the caller did not choose, oldest first. Call it only when
        every outcome is known."""
        taken = [batch for batch in (*self.retry, *self.waiting) if not batch.by_hand]
        for batch in taken:
            if batch.base_sequence >= 0:
                self.give_back(batch)
        self.retry = [batch for batch in self.retry if batch.by_hand]
        self.waiting = deque(batch for batch in self.waiting if batch.by_hand)
        return taken

    def take_all(self) -> list[Batch]:
        """Remove and return all batches that are not in flight, oldest first."""
        taken = [*self.retry, *self.waiting]
        self.retry.clear()
        self.waiting.clear()
        return taken

    def _put_back(self, batches: list[Batch]) -> None:
        self.retry += batches
        self.retry.sort(key=lambda batch: batch.rank)

    def _recover(self, identity: ProducerIdentity) -> bool:
        """Correct the sequence numbers, now that every outcome is known. Return False if this needs a new epoch
        first."""
        if identity is not ANONYMOUS and not self._renumber(identity):
            self.needs_epoch = identity
            return False
        self.needs_epoch = self._given_back = None
        self._recovering = self._broken = self.needs_new_id = False
        return True

    def _renumber(self, identity: ProducerIdentity) -> bool:
        gap = self._given_back
        if self.retry and isinstance(self.retry[0].last_error, OutOfOrderSequenceError):
            # The broker expects other numbers than those of this batch. That is explained if a batch before it gave
            # back its numbers. Otherwise the right numbers are unknown.
            self._broken = self._broken or gap is None or gap.rank > self.retry[0].rank
        if self._broken:
            if identity == self._identity:
                return False
            self._identity = identity
            moved, sequence = self.retry, 0
        elif gap is not None:
            moved, sequence = [batch for batch in self.retry if batch.rank > gap.rank], gap.base_sequence
        else:
            return True
        assert self._identity is not None
        for batch in moved:
            batch.base_sequence = sequence
            batch.payload = with_producer(batch.payload, self._identity.id, self._identity.epoch, sequence)
            batch.was_uncertain = False
            batch.last_error = None
            sequence = (sequence + batch.count) & MAX_SEQUENCE
        self._next_sequence = sequence
        return True

    def _send(self, batch: Batch) -> Batch:
        batch.sent_as = self._sent
        self._sent += 1
        self.in_flight.append(batch)
        return batch

    def _encode(self, batch: Batch) -> None:
        assert batch.builder is not None
        identity = self._identity or ANONYMOUS
        if identity is ANONYMOUS:
            batch.base_sequence = 0
            batch.payload = batch.builder.build()
        else:
            batch.base_sequence = self._next_sequence
            batch.payload = batch.builder.build(identity.id, identity.epoch, self._next_sequence)
        if batch.appending:
            batch.count = parse_header(batch.payload).record_count
            batch.appending = False
        if identity is not ANONYMOUS:
            self._next_sequence = (self._next_sequence + batch.count) & MAX_SEQUENCE
        batch.builder = None
