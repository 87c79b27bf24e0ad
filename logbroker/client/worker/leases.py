"""The extension of leases while the program works on deliveries. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from logbroker.client.transport.status import error_of_item
from logbroker.client.worker.delivery_batch import HELD, DeliveryBatch, ranges
from logbroker.config import MIN_LEASE_SECONDS
from logbroker.errors import LogbrokerError
from logbroker.v1 import queues_pb2

RENEW_SHARE: Final = 0.6
"""A lease or session lock is extended when less than this share of it is left."""
_MAX_RECEIPTS: Final = 50_000
"""Maximum number of receipts in one message. The next message carries the others."""
_EXTENSION_BYTES: Final = 40
"""Upper bound of the size of an extension in a message."""


_Asked = dict[tuple[DeliveryBatch[Any], int], float | None]
"""Leases that the program requested, in seconds, by batch and index. None means the group's lease."""


class _Sent(msgspec.Struct):
    at: float
    lease_seconds: float
    """The lease in seconds; 0 if the program requested the extensions, each with a lease of its own."""
    by_receipt: dict[int, tuple[DeliveryBatch[Any], int]]
    asked: _Asked


class Leases:
    """The extensions of one worker, except for sessions, which are renewed as a whole."""

    def __init__(self, max_extension_seconds: float) -> None:
        self.lease_seconds = math.inf
        """The lease of the group, in seconds."""
        self._max_extension_seconds = max_extension_seconds
        self.asked: _Asked = {}
        """Extensions that the program requested and that are not sent yet. Read-only for other classes."""
        self.sent: dict[int, _Sent] = {}
        """Unanswered extensions, by correlation id. Read-only for other classes."""
        self._max_receipts = _MAX_RECEIPTS

    def bound(self, max_request_bytes: int) -> None:
        """Limit the receipts in a message to what the broker reads at once."""
        self._max_receipts = max(1, min(_MAX_RECEIPTS, max_request_bytes // _EXTENSION_BYTES - 1))

    def begin(self, batch: DeliveryBatch[Any], lease_seconds: float, since: float, now: float) -> None:
        """Start the lease of a batch that was received, or confirmed under new receipts. The broker started the lease
        no earlier than `since`."""
        batch.until = since + lease_seconds
        for index, until in batch.until_by_hand.items():
            if until > batch.until:
                self.asked.setdefault((batch, index), until - now)
        batch.until_by_hand.clear()

    def ask(self, batch: DeliveryBatch[Any], index: int, lease_seconds: float | None) -> None:
        """Request a lease of this length from now on. None means the group's lease."""
        self.asked[batch, index] = lease_seconds

    def asked_for(self, correlation_id: int, now: float) -> queues_pb2.Settle | None:
        """Return a message with the extensions that the program requested, or None."""
        if not self.asked:
            return None
        message = queues_pb2.Settle(correlation_id=correlation_id)
        by_receipt: dict[int, tuple[DeliveryBatch[Any], int]] = {}
        asked = dict(islice(self.asked.items(), self._max_receipts))
        self.asked = {place: seconds for place, seconds in self.asked.items() if place not in asked}
        for (batch, index), lease_seconds in asked.items():
            if batch.states[index] != HELD:
                continue
            lease_ms = None if lease_seconds is None else max(1, round(lease_seconds * 1000))
            receipt = batch.receipt(index)
            message.extensions.add(first_receipt=receipt, last_receipt=receipt, lease_ms=lease_ms)
            by_receipt[receipt] = (batch, index)
            seconds = self.lease_seconds if lease_seconds is None else lease_seconds
            batch.until_by_hand[index] = now + seconds
        return self._remember(message, now, 0.0, by_receipt, asked)

    def due(
        self,
        batches: Iterable[DeliveryBatch[Any]],
        waiting: Mapping[DeliveryBatch[Any], int],
        correlation_id: int,
        now: float,
    ) -> queues_pb2.Settle | None:
        """Return the extensions of leases that end soon, except for deliveries that the program has had for longer than
        the limit. `waiting` holds the batches with deliveries that the program has not taken, each with the index of
        the first one."""
        for batch, first in waiting.items():
            batch.waits(first, now)
        by_receipt: dict[int, tuple[DeliveryBatch[Any], int]] = {}
        soon = now + self.lease_seconds * RENEW_SHARE
        for batch in batches:
            if batch.until > soon and not batch.until_by_hand:
                continue
            # Settled deliveries are extended without limit: a settlement may wait long for room, or for another one.
            extended = {
                index: None
                for index in batch.kept()
                if batch.states[index] != HELD or now <= batch.taken_since(index) + self._max_extension_seconds
            }
            if by_receipt and len(by_receipt) + len(batch) > self._max_receipts:
                break
            for index in extended:
                if batch.ends_at(index) <= soon:
                    by_receipt[batch.receipt(index)] = (batch, index)
                    batch.until_by_hand.pop(index, None)
            for index in batch.held():
                if index not in extended:
                    batch.until_by_hand.setdefault(index, batch.until)  # The new end of the batch is not its end.
        message = queues_pb2.Settle(correlation_id=correlation_id)
        # State the lease explicitly: the group's lease may have been altered since the worker learned it.
        lease_seconds = max(self.lease_seconds, MIN_LEASE_SECONDS)
        for first, last in ranges(by_receipt):
            message.extensions.add(first_receipt=first, last_receipt=last, lease_ms=round(lease_seconds * 1000))
        return self._remember(message, now, lease_seconds, by_receipt, {})

    def _remember(
        self,
        message: queues_pb2.Settle,
        now: float,
        lease_seconds: float,
        by_receipt: dict[int, tuple[DeliveryBatch[Any], int]],
        asked: _Asked,
    ) -> queues_pb2.Settle | None:
        if not by_receipt:
            return None
        self.sent[message.correlation_id] = _Sent(now, lease_seconds, by_receipt, asked)
        return message

    def answered(
        self, answer: queues_pb2.SettleAnswer
    ) -> Sequence[tuple[DeliveryBatch[Any], int, LogbrokerError]] | None:
        """Return the deliveries lost by an answer to an extension, or None if the answer belongs to another
        settlement."""
        sent = self.sent.pop(answer.correlation_id, None)
        if sent is None:
            return None
        lost: list[tuple[DeliveryBatch[Any], int, LogbrokerError]] = []
        for failure in answer.failures:
            error = error_of_item(failure.status) or LogbrokerError("refused without a reason")
            if error.retriable:
                # Forget the requested leases: the deliveries' leases are now extended in time like all others.
                for batch, index in sent.asked:
                    batch.until_by_hand.pop(index, None)
                return []
            receipts = range(failure.first_receipt, failure.last_receipt + 1)
            lost += [(*sent.by_receipt[receipt], error) for receipt in receipts if receipt in sent.by_receipt]
        if sent.lease_seconds:
            for batch in {batch for batch, _ in sent.by_receipt.values()}:
                batch.until = max(batch.until, sent.at + sent.lease_seconds)
        return lost

    def silent_since(self, now: float) -> float:
        """Return how long the oldest unanswered extension has waited, in seconds."""
        return max((now - sent.at for sent in self.sent.values()), default=0.0)

    def broken(self) -> None:
        """Forget the unanswered extensions, and request again those that the program requested."""
        later, self.asked = self.asked, {}
        for sent in self.sent.values():
            self.asked |= sent.asked
        self.asked |= later
        self.sent.clear()
