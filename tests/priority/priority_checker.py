"""Find what the history of a prioritized queue group proves wrong about its order. Pure: no broker, no clock, no files.

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
client gave it back. But receipts have no gaps: one that nobody noted stands for one such record. So an overtaken record
is excused only by such a receipt of its own, for as long as that may be out.
"""

from __future__ import annotations

import enum
import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from tests.anomalies import Anomaly
from tests.priority.priority_deliveries import LEVELS, NEVER_AGAIN, Given, History, Rules
from tests.priority.priority_history import Event, Sent
from tests.queue_storm.queue_checker import EPOCH_BITS
from tests.queue_storm.queue_history import RecordId


class Kind(enum.Enum):
    """The anomalies. Each has a test that shows it in a small history."""

    INVERSION = "a record handed out though a more urgent one waited"
    WRONG_BAND = "a record of another band than the worker serves"
    UNKNOWN = "a delivery of a record that nobody sent"


class Report(msgspec.Struct):
    """Anomalies found, and how much there was to look at."""

    anomalies: list[Anomaly]
    checked: int = 0
    """Records handed out while others waited."""
    excused: int = 0
    """Records that were overtaken and may have been out. Each took a receipt that nobody noted, so that no other was
    excused by it."""


class _Waiting(NamedTuple):
    """The record `sent` waits at this level for certain, from a moment until a receipt. Sorts as in its level."""

    timestamp_ms: int
    record_id: RecordId
    since: float
    until: int
    level: int
    sent: Sent


class _Overtaken(msgspec.Struct):
    """A record that was overtaken once or more while it waited, though it may have been out."""

    text: str
    """The inversion that this was if it was not out."""
    receipts: set[int]
    """One of these was its own: nobody noted them, and they may have been out at the time."""


def check(events: Iterable[Event], rules: Rules) -> Report:
    """Return all that is wrong with a history of events in the order of their times."""
    history = History(events, rules)
    report = Report([])
    handed_out: list[Given] = []
    for given in sorted(history.given.values(), key=lambda each: each.receipt):
        if given.record_id not in history.sent:
            report.anomalies.append(Anomaly(Kind.UNKNOWN, _name(given)))
        else:
            handed_out.append(given)
    lanes = _lanes_of(history)
    waiting = sorted(_all_waiting(history, handed_out, lanes), key=lambda each: each.since)
    _sweep(history, handed_out, lanes, waiting, report)
    return report


# --- what waits, and how urgent it is --------------------------------------------------------------------------------


def _lanes_of(history: History) -> dict[RecordId, list[Sent]]:
    """Return each lane from a record on, by that record. Without an order a lane is one record."""
    by_key: dict[object, list[Sent]] = defaultdict(list)
    for record_id, (sent, _, _) in history.sent.items():
        by_key[sent.key if history.rules.by_key and sent.key else record_id].append(sent)
    lanes: dict[RecordId, list[Sent]] = {}
    for lane in by_key.values():
        lane.sort(key=lambda sent: sent.record_id)
        lanes |= {sent.record_id: lane[index:] for index, sent in enumerate(lane)}
    return lanes


def _all_waiting(
    history: History, handed_out: Sequence[Given], lanes: dict[RecordId, list[Sent]]
) -> Iterator[_Waiting]:
    deliveries: dict[RecordId, list[Given]] = defaultdict(list)
    for given in handed_out:
        deliveries[given.record_id].append(given)
    head_since: dict[RecordId, float] = {}
    for lane in lanes.values():
        # Each lane is here once from each of its records on.
        if len(lane) > 1:
            head, successor = lane[:2]
            head_since[successor.record_id] = min((each.acked_at for each in deliveries[head.record_id]), default=inf)
    for record_id, (sent, _, answered_at) in history.sent.items():
        since = max(answered_at, head_since.get(record_id, 0.0))
        for given in deliveries[record_id]:
            yield from _levels(history, lanes[record_id], sent, since, given.receipt)
            since = history.free_again(given)
        yield from _levels(history, lanes[record_id], sent, since, NEVER_AGAIN)


def _levels(history: History, lane: Sequence[Sent], head: Sent, since: float, until: int) -> Iterator[_Waiting]:
    """A head that waits, at all levels that it comes to while its successors arrive."""
    if since == inf:
        return
    record_id = head.record_id
    risen = [(since, head.priority)]
    if history.rules.rank_by_lane:
        risen += [(max(since, history.sent[sent.record_id][2]), sent.priority) for sent in lane[1:]]
    highest = -1
    for moment, level in sorted(risen, key=lambda each: (each[0], -each[1])):
        if level > highest:
            highest = level
            yield _Waiting(head.timestamp_ms, record_id, moment, until, level, head)


def _highest_level(history: History, lane: Sequence[Sent], given: Given) -> int:
    """As urgent as a lane may have been when its head was handed out."""
    levels = [lane[0].priority]
    if history.rules.rank_by_lane:
        levels += [sent.priority for sent in lane if history.sent[sent.record_id][1] < given.seen_at]
    return max(levels)


# --- what was overtaken ----------------------------------------------------------------------------------------------


def _sweep(
    history: History,
    handed_out: Sequence[Given],
    lanes: dict[RecordId, list[Sent]],
    waiting: Sequence[_Waiting],
    report: Report,
) -> None:
    """Go through what was handed out, in its order, beside what waits."""
    heaps: list[list[_Waiting]] = [[] for _ in range(LEVELS)]
    excused: dict[tuple[RecordId, int], _Overtaken] = {}
    """Overtaken records, by record and by the receipt until which it waited."""
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
        sent = history.sent[given.record_id][0]
        level = _highest_level(history, lanes[given.record_id], given)
        if level < lowest or sent.priority > highest:
            report.anomalies.append(Anomaly(Kind.WRONG_BAND, f"{_name(given)}, priority {sent.priority}"))
        rank = history.rules.rank(level, sent)
        unseen = {
            receipt
            for receipt, end in history.unseen
            if receipt < given.receipt and given.begun_at < end and receipt >> EPOCH_BITS == given.receipt >> EPOCH_BITS
        }
        overtaken: dict[RecordId, _Waiting] = {}
        for heap in heaps[lowest : highest + 1]:
            for each in _more_urgent(heap, given, rank, history.rules):
                # A lane that may have come above the band is not this worker's.
                if highest == LEVELS - 1 or _highest_level(history, lanes[each.record_id], given) <= highest:
                    overtaken[each.record_id] = each
                if len(overtaken) > len(unseen):
                    break
        if len(overtaken) > len(unseen):
            first = min(overtaken.values(), key=lambda each: history.rules.rank(each.level, each.sent))
            report.anomalies.append(Anomaly(Kind.INVERSION, _inversion(given, sent, level, first)))
        else:
            for each in overtaken.values():
                text = _inversion(given, sent, level, each)
                excused.setdefault((each.record_id, each.until), _Overtaken(text, set())).receipts |= unseen
    without = _without_receipt(excused.values())
    report.anomalies += [Anomaly(Kind.INVERSION, each.text) for each in without]
    report.excused = len(excused) - len(without)


def _without_receipt(excused: Iterable[_Overtaken]) -> list[_Overtaken]:
    """Return as few of these records as possible, so that each of the others has a receipt of its own."""
    of_receipt: dict[int, _Overtaken] = {}

    def finds_one(record: _Overtaken, tried: set[int]) -> bool:
        """Give a record a receipt of its own, if that of another has to move on to another receipt for it."""
        for receipt in record.receipts:
            if receipt in tried:
                continue
            tried.add(receipt)
            if receipt not in of_receipt or finds_one(of_receipt[receipt], tried):
                of_receipt[receipt] = record
                return True
        return False

    return [record for record in excused if not finds_one(record, set())]


def _began_before_a_kill(history: History, given: Given) -> bool:
    """Whether the broker was killed between the receive and its end: then the worker had the record before, and kept
    it, so that its new receipt tells nothing."""
    return given.begun_at == -inf or bisect_right(history.kills, given.begun_at) < bisect_right(
        history.kills, given.seen_at
    )


def _more_urgent(heap: list[_Waiting], given: Given, rank: tuple[float, ...], rules: Rules) -> Iterator[_Waiting]:
    """Yield those of one level that waited when the receive began and go before a rank, the most urgent first."""
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


def _name(given: Given) -> str:
    return f"{given.record_id.partition}:{given.record_id.offset} (receipt {given.receipt}, worker {given.worker})"


def _inversion(given: Given, sent: Sent, level: int, first: _Waiting) -> str:
    return (
        f"{_name(given)} of priority {sent.priority}, level {level}, timestamp {sent.timestamp_ms}, received from"
        f" {given.begun_at:.6f} to {given.seen_at:.6f}; {first.record_id.partition}:{first.record_id.offset} of level"
        f" {first.level}, timestamp {first.timestamp_ms} waited from {first.since:.6f} to receipt {first.until}"
    )
