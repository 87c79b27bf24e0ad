"""Find what the history of a queue group's workers proves wrong about the group. Pure: no broker, no clock, no files.

Receipts grow in the order in which records are handed out. So of two deliveries of one lane the one with the larger
receipt was handed out when the other was over: settled, lost or given back. What follows needs no guess about times:

- If the earlier one was settled *and that was accepted*, it was in flight until then. A program that had the later one
  in hand before it even said so proves that both were in flight, or that a settlement was accepted too late.
- A record that was acknowledged, and that was answered, is handed out under no larger receipt, ever.
- A lane's record is first handed out when those before it are finished: then their acknowledgement was at least begun,
  or they are dead letters. An acknowledgement without an answer may be lost with the group epoch; within one
  nothing comes again once a successor was handed out.

Times only prove that something came too early: a program sees a delivery after it was handed out, so what it saw before
a backoff was over was handed out before that.
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tests.anomalies import Anomaly
from tests.queue_storm.queue_history import (
    Delivery,
    Event,
    How,
    RecordId,
    ResumeBegun,
    SettleBegun,
    SettleEnded,
    Taken,
)

EPOCH_BITS: Final = 20
"""`receipt >> EPOCH_BITS` tells the group epoch in which it was handed out, as no storm hands out a million
records in one."""


class Kind(enum.Enum):
    """The anomalies. Each has a test that shows it in a small history."""

    TWO_IN_FLIGHT = "two records of one lane in flight at once"
    LATE_SETTLEMENT = "a settlement accepted though the record had been handed out again"
    ACK_LOST = "a record handed out again though its acknowledgement was answered"
    OUT_OF_ORDER = "a record handed out before one that comes before it in its lane was finished"
    CAME_AGAIN = "a record handed out again though its successor had been"
    UNMARKED_REPEAT = "a repeat that does not say so"
    ATTEMPTS_FORGOTTEN = "an attempt that counts less failures than were answered"
    TOO_EARLY = "a lane that goes on before the backoff of its head is over"
    LEAKED = "a lane that goes on though it is set aside"
    LOST = "a record that nobody finished"
    DEAD_TWICE = "a record that lies in the dead-letter topic twice"
    DEAD_WRONGLY = "a dead letter that had attempts left, or was acknowledged"
    TOKEN_TWICE = "two sessions of one lane with one fencing token"
    STALE_TOKEN = "a word accepted under a fencing token that a newer one had replaced"
    STATE_LOST = "a session's state that is not the last one that was answered"
    OUTPUT_LOST = "a record that was acknowledged, and has no output"
    OUTPUT_TWICE = "a record with two outputs, or one that was not acknowledged"
    OUTPUT_OUT_OF_ORDER = "outputs of a lane that are not in the order of its records"
    UNKNOWN = "a delivery of a record that is not in the log"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that are known beside the history, once all is quiet."""

    lanes: Mapping[str, Sequence[RecordId]]
    """All records of each ordering key in their order; "": those without, in any order."""
    dead: Mapping[RecordId, Sequence[int]] = msgspec.field(default_factory=dict)
    """The dead letters of each record: what each says of the attempts that failed."""
    outputs: Mapping[str, Sequence[RecordId]] | None = None
    """The records that have an output, by the names of their lanes, in the order of the outputs; None: acks have
    none."""
    max_attempts: int
    set_aside: bool = False
    """Whether a lane whose head is exhausted is blocked or parked, until somebody resumes it."""
    ended: bool = True
    """Whether the group says that all is finished."""


class _Settlement(msgspec.Struct, eq=False):
    how: How
    begun_at: float
    delay_seconds: float
    accepted: bool = False
    refused: bool = False

    @property
    def may_have_happened(self) -> bool:
        return not self.refused


class _Given(msgspec.Struct, eq=False):
    """A delivery, and what was said of it."""

    delivery: Delivery
    seen_at: float
    settlements: list[_Settlement]

    def __str__(self) -> str:
        record_id = self.delivery.record_id
        return f"{record_id.partition}:{record_id.offset} (receipt {self.delivery.receipt}, key {self.delivery.key!r})"

    def accepted(self, *how: How) -> _Settlement | None:
        return next((each for each in self.settlements if each.accepted and each.how in how), None)

    def acked_before(self, moment: float) -> bool:
        return any(
            each.how is How.ACK and each.may_have_happened and each.begun_at < moment for each in self.settlements
        )

    @property
    def group_epoch(self) -> int:
        return self.delivery.receipt >> EPOCH_BITS


def check(history: Iterable[Event], facts: Facts) -> list[Anomaly]:
    """Return all that is wrong with a history of events in the order of their times.

    At the end the workers were given the time to finish everything.
    """
    given, resumes = _read(history)
    by_record_id: dict[RecordId, list[_Given]] = defaultdict(list)
    for each in sorted(given.values(), key=lambda one: one.delivery.receipt):
        by_record_id[each.delivery.record_id].append(each)
    anomalies: list[Anomaly] = []
    known: set[RecordId] = set()
    for key, record_ids in facts.lanes.items():
        known.update(record_ids)
        lane = [by_record_id.get(record_id, []) for record_id in record_ids]
        for record_id, deliveries in zip(record_ids, lane, strict=True):
            anomalies += _of_record(record_id, deliveries, facts)
        if facts.outputs is not None and facts.ended:
            anomalies += _outputs(key, record_ids, facts, facts.outputs)
        if key:
            anomalies += _order(lane, record_ids, facts)
            anomalies += _of_lane(lane, resumes.get(key, []), facts)
    anomalies += (
        Anomaly(Kind.UNKNOWN, f"{deliveries[0]}")
        for record_id, deliveries in by_record_id.items()
        if record_id not in known
    )
    return anomalies


def _read(history: Iterable[Event]) -> tuple[dict[int, _Given], dict[str, list[float]]]:
    """Return all deliveries by receipt, and the times of all resumptions by key."""
    given: dict[int, _Given] = {}
    resumes: dict[str, list[float]] = defaultdict(list)
    open_settlements: dict[tuple[str, int], list[tuple[int, _Settlement]]] = {}
    for event in history:
        match event:
            case Taken():
                for delivery in event.deliveries:
                    # A worker that comes back keeps its deliveries; it does not see them anew.
                    given.setdefault(delivery.receipt, _Given(delivery, event.at, []))
            case SettleBegun():
                begun = []
                for receipt in event.receipts:
                    settlement = _Settlement(event.how, event.at, event.delay_seconds)
                    begun.append((receipt, settlement))
                    if receipt in given:
                        given[receipt].settlements.append(settlement)
                open_settlements[event.process, event.number] = begun
            case SettleEnded():
                for receipt, settlement in open_settlements.pop((event.process, event.number), []):
                    settlement.refused = receipt in event.refused
                    settlement.accepted = event.answered and not settlement.refused
            case ResumeBegun():
                resumes[event.key].append(event.at)
    return given, resumes


def _of_record(record_id: RecordId, deliveries: Sequence[_Given], facts: Facts) -> Iterator[Anomaly]:
    """Yield the anomalies in the deliveries of one record, which are in the order of their receipts."""
    failures = 0
    settled: _Given | None = None
    for index, each in enumerate(deliveries):
        delivery = each.delivery
        if index and delivery.attempt == 1 and not delivery.redelivered:
            yield Anomaly(Kind.UNMARKED_REPEAT, f"{each}, after {deliveries[0]}")
        if delivery.attempt <= failures and not facts.set_aside:
            yield Anomaly(Kind.ATTEMPTS_FORGOTTEN, f"{each} is attempt {delivery.attempt}, after {failures} failures")
        if settled is not None and (end := settled.accepted(*How)) is not None:
            if each.seen_at < end.begun_at:
                yield Anomaly(Kind.LATE_SETTLEMENT, f"{end.how.value} of {settled}, after {each}")
            elif end.how is How.ACK:
                yield Anomaly(Kind.ACK_LOST, f"{each}, after {settled}")
        if each.accepted(How.NACK):
            failures += 1
        if each.accepted(*How):
            settled = each
    acked = [each for each in deliveries if each.acked_before(float("inf"))]
    dead = facts.dead.get(record_id, ())
    if facts.ended and not acked and not dead:
        yield Anomaly(Kind.LOST, f"{record_id.partition}:{record_id.offset}, handed out {len(deliveries)} times")
    if len(dead) > 1:
        yield Anomaly(Kind.DEAD_TWICE, f"{record_id.partition}:{record_id.offset}, {len(dead)} times")
    if dead and any(each.accepted(How.ACK) for each in acked):
        yield Anomaly(Kind.DEAD_WRONGLY, f"{record_id.partition}:{record_id.offset} was acknowledged")
    if any(attempts < max(failures, facts.max_attempts) for attempts in dead):
        yield Anomaly(Kind.DEAD_WRONGLY, f"{record_id.partition}:{record_id.offset} was tried {dead} times")


def _outputs(
    key: str, record_ids: Sequence[RecordId], facts: Facts, outputs: Mapping[str, Sequence[RecordId]]
) -> Iterator[Anomaly]:
    """Yield the anomalies in the outputs of one lane. Each of its records was acknowledged once, or is dead."""
    counts = Counter(outputs.get(key, ()))
    for record_id in record_ids:
        wanted = 0 if facts.dead.get(record_id) else 1
        if counts[record_id] != wanted:
            kind = Kind.OUTPUT_LOST if counts[record_id] < wanted else Kind.OUTPUT_TWICE
            text = f"{record_id.partition}:{record_id.offset} of {key!r} has {counts[record_id]} outputs, not {wanted}"
            yield Anomaly(kind, text)
    places = {record_id: place for place, record_id in enumerate(record_ids)}
    order = [places.get(record_id, -1) for record_id in outputs.get(key, ())]
    if key and order != sorted(order):
        yield Anomaly(Kind.OUTPUT_OUT_OF_ORDER, f"lane {key!r}: {order[:50]}")


def _order(lane: Sequence[Sequence[_Given]], record_ids: Sequence[RecordId], facts: Facts) -> Iterator[Anomaly]:
    """Whether each record was first handed out when the one before it was finished."""
    for record_id, before, after in zip(record_ids, lane, lane[1:], strict=False):
        if not after:
            continue
        first = after[0]
        if not facts.dead.get(record_id) and not any(each.acked_before(first.seen_at) for each in before):
            yield Anomaly(Kind.OUT_OF_ORDER, f"{first}, before {record_id.partition}:{record_id.offset} was finished")
        for each in before:
            if each.delivery.receipt > first.delivery.receipt and each.group_epoch == first.group_epoch:
                yield Anomaly(Kind.CAME_AGAIN, f"{each}, after {first}")


def _of_lane(lane: Sequence[Sequence[_Given]], resumes: Sequence[float], facts: Facts) -> Iterator[Anomaly]:
    """Whether deliveries of different records overlap, and whether the lane stands when it has to."""
    line = sorted((each for deliveries in lane for each in deliveries), key=lambda one: one.delivery.receipt)
    for each, following in itertools.pairwise(line):
        end = each.accepted(*How)
        if end is None:
            continue
        # Inside a session several are in flight.
        in_one_session = each.delivery.token and each.delivery.token == following.delivery.token
        other = following.delivery.record_id != each.delivery.record_id
        if other and not in_one_session and following.seen_at < end.begun_at:
            yield Anomaly(Kind.TWO_IN_FLIGHT, f"{following}, before the {end.how.value} of {each}")
        if end.how is not How.NACK:
            continue
        exhausted = each.delivery.attempt >= facts.max_attempts
        resumed = bisect_right(resumes, end.begun_at) < bisect_right(resumes, following.seen_at)
        if exhausted and facts.set_aside and not resumed:
            yield Anomaly(Kind.LEAKED, f"{following}, after {each} was exhausted")
        if not exhausted and following.seen_at < end.begun_at + end.delay_seconds and not in_one_session:
            seconds = following.seen_at - end.begun_at
            yield Anomaly(Kind.TOO_EARLY, f"{following}, {seconds:.3f} s after {each} failed for {end.delay_seconds} s")
