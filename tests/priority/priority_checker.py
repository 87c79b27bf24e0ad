"""What the history of a queue group with priorities proves wrong about its order. Pure: no broker, no clock, no files.

The rule: no record is handed out while a more urgent one waited that had been answered as synced before the receive
began. Each receive has credit for one record.

Receipts grow in the order in which records are handed out, so whether X went before Y needs no guess about times. What
times decide is always taken for the broker: a record waits only from when everybody had to know it, and what was handed
out is as urgent as it may have been. So a record *waits*

- from the answer to its append, or from the end of its last delivery: the answer to a nack or a release (and the delay
  asked for), or the moment at which the lease must have ended;
- as the head of its ordering key, when the acknowledgement of the record before it is answered;
- until its next receipt.

A lane counts as urgent as the most urgent of its records that had been answered; one that is handed out, as the most
urgent of those that had been sent.

A record may be handed out to somebody whose program never sees it: the process was killed, the answer did not come, the
client gave it back. But receipts have no gaps: one that nobody noted stands for one such record. So while n of them may
still be out, n records may be, and only more than n overtaken ones prove anything.
"""

from __future__ import annotations

import enum
import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

import msgspec

from tests.priority.priority_history import (
    Appended,
    BrokerBack,
    BrokerKilled,
    Event,
    Kept,
    ReceiveBegun,
    Sent,
)
from tests.queue_storm.queue_checker import LIFE_BITS
from tests.queue_storm.queue_history import Delivery, How, Place, SettleBegun, SettleEnded, Taken

_LEVELS: Final = 10
_NEVER_AGAIN: Final = 1 << 64
"""Above all receipts."""


class Kind(enum.Enum):
    """The anomalies. Each has a test that shows it in a small history."""

    INVERSION = "a record handed out though a more urgent one waited"
    WRONG_BAND = "a record of another band than the worker serves"
    UNKNOWN = "a delivery of a record that nobody sent"


class Anomaly(NamedTuple):
    """One thing that must not be."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the queue group that its order depends on."""

    by_key: bool = False
    """Ordering `key`."""
    rank_by_lane: bool = True
    """The priority_rank `lane`; else `head`."""
    age_seconds: float = 0.0
    """Of `ageing`; 0: strict."""
    grace_seconds: float = 0.5
    lease_seconds: float = 1.0
    """After the end of a lease there is no backoff: it would begin when the broker takes note."""

    def rank(self, level: int, sent: Sent) -> tuple[float, ...]:
        """The less, the more urgent."""
        last = (sent.timestamp_ms, sent.place.partition, sent.place.offset)
        if self.age_seconds:
            return (sent.timestamp_ms - level * self.age_seconds * 1000, -level, *last)
        return (-level, *last)


class Report(msgspec.Struct):
    """What was found, and how much there was to look at."""

    anomalies: list[Anomaly]
    checked: int = 0
    """Records handed out while others waited."""
    excused: int = 0
    """Of these, how many overtook others that may have been out."""


class _Given(msgspec.Struct, eq=False):
    """A delivery. `begun_at` is when its receive began; -inf: a worker has it anew after a restart."""

    receipt: int
    place: Place
    worker: str
    begun_at: float
    seen_at: float
    priorities: tuple[int, int]
    free_at: float
    """From when on the record waits again for certain; inf: that cannot be known."""
    acked_at: float = inf
    """When the acknowledgement was answered."""


class _Waiting(NamedTuple):
    """The record `sent` waits at this level for certain, from a moment until a receipt. Sorts as in its level."""

    timestamp_ms: int
    place: Place
    since: float
    until: int
    level: int
    sent: Sent


class _History:
    """The events, put together."""

    def __init__(self, events: Iterable[Event], rules: Rules) -> None:
        self.rules = rules
        self.sent: dict[Place, tuple[Sent, float, float]] = {}
        """When each was sent and answered."""
        self.given: dict[int, _Given] = {}
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
                self.sent |= {sent.place: (sent, event.begun_at, event.at) for sent in event.records}
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
        self.given[delivery.receipt] = _Given(
            delivery.receipt,
            delivery.place,
            worker,
            begun.at if begun else -inf,
            at,
            (begun.lowest_priority, begun.highest_priority) if begun else (0, _LEVELS - 1),
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
        later = _NEVER_AGAIN
        for receipt in sorted(self.given, reverse=True):
            if receipt >> LIFE_BITS != later >> LIFE_BITS:
                self._unseen_between(later >> LIFE_BITS << LIFE_BITS, later, seen_at)
                seen_at = inf
            else:
                self._unseen_between(receipt + 1, later, seen_at)
            # It was handed out before any later one was seen.
            seen_at = min(seen_at, self.given[receipt].seen_at)
            later = receipt
        if later != _NEVER_AGAIN:
            self._unseen_between(later >> LIFE_BITS << LIFE_BITS, later, seen_at)

    def _unseen_between(self, first: int, end: int, seen_at: float) -> None:
        if end != _NEVER_AGAIN:
            self.unseen += ((receipt, self._free_at(seen_at)) for receipt in range(first, end))

    def free_again(self, given: _Given) -> float:
        """When a delivered record waits again. After a restart, workers may have what they held for another lease."""
        free_at = given.free_at
        for killed, back in zip(self.kills, self.returns, strict=True):
            if given.seen_at <= killed < free_at < inf:
                free_at = self._free_at(back + self.rules.grace_seconds)
        return free_at


def check(events: Iterable[Event], rules: Rules) -> Report:
    """Return all that is wrong with a history of events in the order of their times."""
    history = _History(events, rules)
    report = Report([])
    handed_out: list[_Given] = []
    for given in sorted(history.given.values(), key=lambda each: each.receipt):
        if given.place not in history.sent:
            report.anomalies.append(Anomaly(Kind.UNKNOWN, _name(given)))
        else:
            handed_out.append(given)
    lanes = _lanes_of(history)
    waiting = sorted(_all_waiting(history, handed_out, lanes), key=lambda each: each.since)
    _sweep(history, handed_out, lanes, waiting, report)
    return report


# --- what waits, and how urgent it is --------------------------------------------------------------------------------


def _lanes_of(history: _History) -> dict[Place, list[Sent]]:
    """By its record, each lane from there on. Without an order a lane is one record."""
    by_key: dict[object, list[Sent]] = defaultdict(list)
    for place, (sent, _, _) in history.sent.items():
        by_key[sent.key if history.rules.by_key and sent.key else place].append(sent)
    lanes: dict[Place, list[Sent]] = {}
    for lane in by_key.values():
        lane.sort(key=lambda sent: sent.place)
        lanes |= {sent.place: lane[index:] for index, sent in enumerate(lane)}
    return lanes


def _all_waiting(history: _History, handed_out: Sequence[_Given], lanes: dict[Place, list[Sent]]) -> Iterator[_Waiting]:
    deliveries: dict[Place, list[_Given]] = defaultdict(list)
    for given in handed_out:
        deliveries[given.place].append(given)
    head_since: dict[Place, float] = {}
    for lane in lanes.values():
        # Each lane is here once from each of its records on.
        if len(lane) > 1:
            head, successor = lane[:2]
            head_since[successor.place] = min((each.acked_at for each in deliveries[head.place]), default=inf)
    for place, (sent, _, answered_at) in history.sent.items():
        since = max(answered_at, head_since.get(place, 0.0))
        for given in deliveries[place]:
            yield from _levels(history, lanes[place], sent, since, given.receipt)
            since = history.free_again(given)
        yield from _levels(history, lanes[place], sent, since, _NEVER_AGAIN)


def _levels(history: _History, lane: Sequence[Sent], head: Sent, since: float, until: int) -> Iterator[_Waiting]:
    """A head that waits, at all levels that it comes to while its successors arrive."""
    if since == inf:
        return
    place = head.place
    risen = [(since, head.priority)]
    if history.rules.rank_by_lane:
        risen += [(max(since, history.sent[sent.place][2]), sent.priority) for sent in lane[1:]]
    highest = -1
    for moment, level in sorted(risen, key=lambda each: (each[0], -each[1])):
        if level > highest:
            highest = level
            yield _Waiting(head.timestamp_ms, place, moment, until, level, head)


def _highest_level(history: _History, lane: Sequence[Sent], given: _Given) -> int:
    """As urgent as a lane may have been when its head was handed out."""
    levels = [lane[0].priority]
    if history.rules.rank_by_lane:
        levels += [sent.priority for sent in lane if history.sent[sent.place][1] < given.seen_at]
    return max(levels)


# --- what was overtaken ----------------------------------------------------------------------------------------------


def _sweep(
    history: _History,
    handed_out: Sequence[_Given],
    lanes: dict[Place, list[Sent]],
    waiting: Sequence[_Waiting],
    report: Report,
) -> None:
    """Go through what was handed out, in its order, beside what waits."""
    heaps: list[list[_Waiting]] = [[] for _ in range(_LEVELS)]
    entered = 0
    latest = -inf
    for given in handed_out:
        latest = max(latest, given.begun_at)
        while entered < len(waiting) and waiting[entered].since < latest:
            heapq.heappush(heaps[waiting[entered].level], waiting[entered])
            entered += 1
        for heap in heaps:
            while heap and heap[0].until <= given.receipt:
                heapq.heappop(heap)
        if _began_before_a_kill(history, given):
            continue
        report.checked += any(heaps)
        lowest, highest = given.priorities
        sent = history.sent[given.place][0]
        level = _highest_level(history, lanes[given.place], given)
        if level < lowest or sent.priority > highest:
            report.anomalies.append(Anomaly(Kind.WRONG_BAND, f"{_name(given)}, priority {sent.priority}"))
        rank = history.rules.rank(level, sent)
        unseen = sum(
            receipt < given.receipt and given.begun_at < end and receipt >> LIFE_BITS == given.receipt >> LIFE_BITS
            for receipt, end in history.unseen
        )
        overtaken: dict[Place, _Waiting] = {}
        for heap in heaps[lowest : highest + 1]:
            for each in _more_urgent(heap, given, rank, history.rules):
                # A lane that may have come above the band is not this worker's.
                if highest == _LEVELS - 1 or _highest_level(history, lanes[each.place], given) <= highest:
                    overtaken[each.place] = each
                if len(overtaken) > unseen:
                    break
        if len(overtaken) > unseen:
            first = min(overtaken.values(), key=lambda each: history.rules.rank(each.level, each.sent))
            report.anomalies.append(Anomaly(Kind.INVERSION, _inversion(given, sent, level, first)))
        elif overtaken:
            report.excused += 1


def _began_before_a_kill(history: _History, given: _Given) -> bool:
    """Whether the broker was killed between the receive and its end: then the worker had the record before, and kept
    it, so that its new receipt tells nothing."""
    return given.begun_at == -inf or bisect_right(history.kills, given.begun_at) < bisect_right(
        history.kills, given.seen_at
    )


def _more_urgent(heap: list[_Waiting], given: _Given, rank: tuple[float, ...], rules: Rules) -> Iterator[_Waiting]:
    """Of one level, what waited when the receive began and goes before a rank, the most urgent first."""
    passed: list[_Waiting] = []
    try:
        while heap and rules.rank(heap[0].level, heap[0].sent) < rank:
            each = heapq.heappop(heap)
            if each.until <= given.receipt:
                continue
            passed.append(each)
            if each.since < given.begun_at:
                yield each
    finally:
        for each in passed:
            heapq.heappush(heap, each)


def _name(given: _Given) -> str:
    return f"{given.place.partition}:{given.place.offset} (receipt {given.receipt}, worker {given.worker})"


def _inversion(given: _Given, sent: Sent, level: int, first: _Waiting) -> str:
    return (
        f"{_name(given)} of priority {sent.priority}, level {level}, timestamp {sent.timestamp_ms}, received from"
        f" {given.begun_at:.6f} to {given.seen_at:.6f}; {first.place.partition}:{first.place.offset} of level"
        f" {first.level}, timestamp {first.timestamp_ms} waited from {first.since:.6f} to receipt {first.until}"
    )
