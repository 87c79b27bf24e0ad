"""The events of a history, put together: what was sent, what was handed out, and when each of it came back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

import msgspec

from tests.priority.priority_history import Appended, BrokerBack, BrokerKilled, Event, Kept, ReceiveBegun, Sent
from tests.queue_storm.queue_checker import EPOCH_BITS
from tests.queue_storm.queue_history import Delivery, How, RecordId, SettleBegun, SettleEnded, Taken

LEVELS: Final = 10
NEVER_AGAIN: Final = 1 << 64
"""Above all receipts."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the queue group that its order depends on."""

    by_key: bool = False
    """Ordering `key`."""
    rank_by_lane: bool = True
    """The priority_rank `lane`; else `head`."""
    age_seconds: float = 0.0
    """Setting of `ageing`; 0: strict."""
    grace_seconds: float = 0.5
    lease_seconds: float = 1.0
    """After the end of a lease there is no backoff: it would begin when the broker takes note."""

    def rank(self, level: int, sent: Sent) -> tuple[float, ...]:
        """The less, the more urgent."""
        last = (sent.timestamp_ms, sent.record_id.partition, sent.record_id.offset)
        if self.age_seconds:
            return (sent.timestamp_ms - level * self.age_seconds * 1000, -level, *last)
        return (-level, *last)


class Given(msgspec.Struct, eq=False):
    """A delivery. `begun_at` is when its receive began; -inf: a worker has it anew after a restart."""

    receipt: int
    record_id: RecordId
    worker: str
    begun_at: float
    seen_at: float
    priorities: tuple[int, int]
    free_at: float
    """From when on the record waits again for certain; inf: that cannot be known."""
    acked_at: float = inf
    """When the acknowledgement was answered."""


class History:
    """The events, put together."""

    def __init__(self, events: Iterable[Event], rules: Rules) -> None:
        self.rules = rules
        self.sent: dict[RecordId, tuple[Sent, float, float]] = {}
        """When each was sent and answered."""
        self.given: dict[int, Given] = {}
        self.unseen: list[tuple[int, float]] = []
        """The receipts that nobody has noted, and when each has surely come back."""
        self.kills: list[float] = []
        self.returns: list[float] = []
        self._open: dict[str, ReceiveBegun] = {}
        self._settling: dict[tuple[str, int], SettleBegun] = {}
        for event in events:
            self._read(event)
        for settling in self._settling.values():
            self._settled(settling, inf, answered=False)
        self.returns += [inf] * (len(self.kills) - len(self.returns))
        self._find_unseen()

    def _read(self, event: Event) -> None:
        match event:
            case Appended():
                self.sent |= {sent.record_id: (sent, event.begun_at, event.at) for sent in event.records}
            case ReceiveBegun():
                self._open[event.process] = event
            case Taken():
                self._take(event)
            case Kept():
                self._give(event.delivery, event.process, event.at, None)
            case SettleBegun():
                self._settling[event.process, event.number] = event
            case SettleEnded():
                begun_settlement = self._settling.pop((event.process, event.number))
                if not event.refused:
                    self._settled(begun_settlement, event.at, answered=event.answered)
            case BrokerKilled():
                self.kills.append(event.at)
            case BrokerBack():
                self.returns.append(event.at)

    def _take(self, taken: Taken) -> None:
        begun = self._open.pop(taken.process, None)
        for delivery in taken.deliveries:
            self._give(delivery, taken.process, taken.at, begun)

    def _give(self, delivery: Delivery, worker: str, at: float, begun: ReceiveBegun | None) -> None:
        self.given[delivery.receipt] = Given(
            delivery.receipt,
            delivery.record_id,
            worker,
            begun.at if begun else -inf,
            at,
            (begun.lowest_priority, begun.highest_priority) if begun else (0, LEVELS - 1),
            self._free_at(at),
        )

    def _free_at(self, seen_at: float) -> float:
        return seen_at + self.rules.lease_seconds

    def _settled(self, settlement: SettleBegun, at: float, *, answered: bool) -> None:
        for receipt in settlement.receipts:
            given = self.given[receipt]
            if settlement.how is How.ACK:
                given.free_at = inf
                given.acked_at = at if answered else inf
            elif answered:
                given.free_at = at + settlement.delay_seconds
            else:
                given.free_at = max(given.free_at, at + settlement.delay_seconds)

    def _find_unseen(self) -> None:
        seen_at = inf
        later = NEVER_AGAIN
        for receipt in sorted(self.given, reverse=True):
            if receipt >> EPOCH_BITS != later >> EPOCH_BITS:
                self._unseen_between(later >> EPOCH_BITS << EPOCH_BITS, later, seen_at)
                seen_at = inf
            else:
                self._unseen_between(receipt + 1, later, seen_at)
            # It was handed out before any later one was seen.
            seen_at = min(seen_at, self.given[receipt].seen_at)
            later = receipt
        if later != NEVER_AGAIN:
            self._unseen_between(later >> EPOCH_BITS << EPOCH_BITS, later, seen_at)

    def _unseen_between(self, first: int, end: int, seen_at: float) -> None:
        if end != NEVER_AGAIN:
            self.unseen += ((receipt, self._free_at(seen_at)) for receipt in range(first, end))

    def free_again(self, given: Given) -> float:
        """When a delivered record waits again. After a restart, workers may have what they held for another lease."""
        free_at = given.free_at
        for killed, back in zip(self.kills, self.returns, strict=True):
            if given.seen_at <= killed < free_at < inf:
                free_at = self._free_at(back + self.rules.grace_seconds)
        return free_at
