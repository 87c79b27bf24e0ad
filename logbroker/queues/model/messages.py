"""What goes into a queue group's machine and comes out of it: deliveries, settlements, events."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from logbroker.engine import StateEvent
from logbroker.errors import LogbrokerError
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.record_id import OFFSET_MASK, PARTITION_SHIFT

MAX_REASON_CHARACTERS: Final = 256
"""Of why a delivery failed; more is cut off."""

# Of a `Pace`:
ACK_STEPS: Final = 1
FAIL_STEPS: Final = 8
"""What is failed, given back or prolonged."""
RANGE_STEPS: Final = 4
_STATE_STEPS: Final = 5
PART_STEPS: Final = 1_000
SMALL_STEPS: Final = 4_000
"""What takes no longer is settled at once."""


class Granted(msgspec.Struct, gc=False):
    """Deliveries with consecutive receipts, in columns."""

    first_receipt: int
    record_ids: list[int] | range
    """A range: consecutive offsets of one partition, which can be handed on undecoded."""
    attempts: list[int]
    """Empty: all are first attempts."""
    redelivered: list[bool]
    """Whether it may have been handed out before. Empty: none was."""

    def __len__(self) -> int:
        return len(self.record_ids)

    def receipts(self) -> range:
        return range(self.first_receipt, self.first_receipt + len(self.record_ids))

    def partitions(self) -> list[int]:
        return [record_id >> PARTITION_SHIFT for record_id in self.record_ids]

    def offsets(self) -> list[int]:
        return [record_id & OFFSET_MASK for record_id in self.record_ids]


class Nack(msgspec.Struct, gc=False):
    """Deliveries, `first` to `last`, that failed."""

    first: int
    last: int
    reason: str = ""
    delay_seconds: float | None = None
    """Until the next attempt; None: the group's backoff."""


class Extension(msgspec.Struct, gc=False):
    """Deliveries, `first` to `last`, whose lease shall end so long from now; None: the group's lease."""

    first: int
    last: int
    lease_seconds: float | None = None


class SessionWrite(msgspec.Struct, gc=False):
    """A state that the holder of a session leaves to the next one of its key."""

    key: bytes
    """By `lane.lane_key`."""
    token: int
    state: bytes
    """Up to 256 KiB; empty deletes it."""


class Settlement(msgspec.Struct, gc=False):
    """What a worker says about its deliveries, by ranges of receipts: first and last."""

    acks: Sequence[tuple[int, int]] = ()
    nacks: Sequence[Nack] = ()
    releases: Sequence[tuple[int, int]] = ()
    """Given back unworked: no attempt is counted."""
    extensions: Sequence[Extension] = ()
    """Of deliveries of a session: its lock ends so late at least."""
    states: Sequence[SessionWrite] = ()
    """Written with the acks, or else nothing of the settlement is done."""


class Refusal(msgspec.Struct, gc=False):
    """Receipts of a settlement, `first` to `last`, that were refused."""

    first: int
    last: int
    error: LogbrokerError


Session = tuple[int, bytes]
"""Token and ordering key."""


class Delivered(msgspec.Struct, gc=False):
    """One message to a worker: records of consecutive receipts. See `Deliveries` in queues.proto."""

    first_receipt: int
    count: int
    batches: bytes
    """Whole record batches, one after the other, that hold the records in the order of their receipts."""
    partitions: list[int]
    """By record; of records that are handed on as they lie in the log, only that of the first, as `offsets`."""
    offsets: list[int]
    attempts: list[int]
    """Empty: all are first attempts."""
    redelivered: list[bool]
    """Empty: none was."""
    session: Session | None = None
    granted_at: float = 0.0
    """Monotonic seconds: when their leases began."""


class LetterProducer(msgspec.Struct, frozen=True, array_like=True):
    """One of the group's own producers of dead letters."""

    topic_id: bytes
    """Of the dead-letter topic."""
    producer_id: int
    epoch: int
    base: int
    """The sequence of a letter that is sequence 0 of this producer."""


class SettlementPart(msgspec.Struct, gc=False):
    """Part of a settlement, and how long it takes in steps of a `Pace`."""

    settlement: Settlement
    steps: int


def steps_of(settlement: Settlement) -> int:
    """How long a settlement takes, about."""
    steps = (ACK_STEPS + RANGE_STEPS) * len(settlement.acks) + _STATE_STEPS * len(settlement.states)
    steps += sum(last - first for first, last in settlement.acks) * ACK_STEPS
    for ranges in (settlement.nacks, settlement.extensions):
        steps += sum(FAIL_STEPS * (each.last - each.first + 1) + RANGE_STEPS for each in ranges)
    return steps + sum(FAIL_STEPS * (last - first + 1) + RANGE_STEPS for first, last in settlement.releases)


def parts_of(settlement: Settlement, *, whole_ranges: bool) -> Iterator[SettlementPart]:
    """Yield a settlement in parts that take about a turn each, in the order in which it is carried out.

    One that writes states stays whole, as all of it is done, or nothing. `whole_ranges`: so do ranges of what comes
    back, as the first of a session in such a range brings the others with it.
    """
    if settlement.states:
        yield SettlementPart(settlement, steps_of(settlement))
        return
    gathered, steps = Settlement([], [], [], []), 0
    for name, piece, piece_steps in _pieces(settlement, sys.maxsize if whole_ranges else PART_STEPS // FAIL_STEPS):
        if steps and steps + piece_steps > PART_STEPS:
            yield SettlementPart(gathered, steps)
            gathered, steps = Settlement([], [], [], []), 0
        steps += piece_steps
        getattr(gathered, name).append(piece)
    if steps:
        yield SettlementPart(gathered, steps)


def _pieces(settlement: Settlement, most: int) -> Iterator[tuple[str, Any, int]]:
    """Yield ranges of a settlement, cut where they are long, each with the name of its list and its steps; at most so
    many receipts of a range that comes back."""
    for first, last in settlement.acks:
        for start, end in _cut(first, last, PART_STEPS):
            yield "acks", (start, end), RANGE_STEPS + ACK_STEPS * (end - start + 1)
    for nack in settlement.nacks:
        for start, end in _cut(nack.first, nack.last, most):
            piece = Nack(start, end, nack.reason, nack.delay_seconds)
            yield "nacks", piece, RANGE_STEPS + FAIL_STEPS * (end - start + 1)
    for first, last in settlement.releases:
        for start, end in _cut(first, last, most):
            yield "releases", (start, end), RANGE_STEPS + FAIL_STEPS * (end - start + 1)
    for each in settlement.extensions:
        for start, end in _cut(each.first, each.last, most):
            extension = Extension(start, end, each.lease_seconds)
            yield "extensions", extension, RANGE_STEPS + FAIL_STEPS * (end - start + 1)


def _cut(first: int, last: int, most: int) -> Iterable[tuple[int, int]]:
    if last - first < most:
        return ((first, last),)
    return [(start, min(last, start + most - 1)) for start in range(first, last + 1, most)]


class DeadLetter(msgspec.Struct):
    """A record to append to the dead-letter topic, or what `Queue.replacements` has in its place; with the group's
    producer id, as a batch of its own."""

    record_id: int
    partition: int
    """Of the dead-letter topic."""
    sequence: int
    """The base sequence of the batch."""
    attempts: int
    first_ms: int
    last_ms: int
    reasons: tuple[str, ...]
    producer: LetterProducer | None = None
    """Set apart: its own, whatever producer others have."""


class DeliveryCounts(msgspec.Struct):
    """What became of deliveries in one group epoch."""

    acked: int = 0
    nacked: int = 0
    leases_lost: int = 0
    """Their leases ended, or their workers were lost."""
    expired: int = 0
    """Records that were found to be gone when it was their turn: retention had taken them before they were done."""


class PriorityCounts(msgspec.Struct, frozen=True):
    """Records of one priority."""

    priority: int
    waiting: int
    """Admitted, not done and not in flight."""
    oldest_timestamp_ms: int | None
    """Of the oldest that could be handed out now as one of this priority: a lane counts as what it is ranked. None:
    there is none."""
    delivered: int
    overtaken: int
    """How many times a more urgent record was handed out while an older one of this priority was ready."""


class NoticeKind(enum.Enum):
    """What an operator wants to hear of."""

    BLOCKED = "blocked"
    PARKED = "parked"
    DEAD_LETTERED = "dead-lettered"


class Notice(msgspec.Struct, frozen=True):
    """Something happened to a lane."""

    kind: NoticeKind
    key: bytes | None
    record_id: int
    reason: str


class Outputs(msgspec.Struct):
    """What the shell owes: in this order, commit the events, then append the dead letters and answer what was asked."""

    events: list[StateEvent]
    dead_letters: list[DeadLetter]
    notices: list[Notice]
    lost_sessions: list[tuple[WorkerSession, Loss]]
    """Sessions that ended without their holder's wish: it should hear of it."""
    rescan: bool
    """The index was emptied, as another ordering took effect: scan every partition again, from `Queue.position` on,
    beginning with the generation that the lowest of them lies in."""
    discarded: list[Any]
    """Containers with what was forgotten, for `pacing.let_go`."""
