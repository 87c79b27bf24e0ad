"""Inputs and outputs of a queue group's state machine: deliveries, settlements, events."""

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
from logbroker.record.codec import NewRecord
from logbroker.types import TopicId

MAX_REASON_CHARACTERS: Final = 256
"""Kept length of the reason why a delivery failed; the rest is cut off."""

# Costs in steps of a `Pace`:
ACK_STEPS: Final = 1
FAIL_STEPS: Final = 8
"""Cost of a delivery that is failed, given back or extended."""
RANGE_STEPS: Final = 4
_STATE_STEPS: Final = 5
OUTPUT_STEPS: Final = 15
"""Cost of an output: stamping and appending its batch."""
PART_STEPS: Final = 1_000
SMALL_STEPS: Final = 4_000
"""Cost of the largest settlement that is carried out at once."""


class Granted(msgspec.Struct, gc=False):
    """Deliveries with consecutive receipts, in columns."""

    first_receipt: int
    record_ids: list[int] | range
    """Ids of the records. A range means consecutive offsets of one partition, which can be passed on undecoded."""
    attempts: list[int]
    """Attempt numbers, from 1. Empty: all are first attempts."""
    redelivered: list[bool]
    """Whether each record may have been handed out before. Empty: none was."""

    def __len__(self) -> int:
        return len(self.record_ids)

    def receipts(self) -> range:
        return range(self.first_receipt, self.first_receipt + len(self.record_ids))

    def partitions(self) -> list[int]:
        return [record_id >> PARTITION_SHIFT for record_id in self.record_ids]

    def offsets(self) -> list[int]:
        return [record_id & OFFSET_MASK for record_id in self.record_ids]


class Nack(msgspec.Struct, gc=False):
    """Deliveries that failed: the receipts `first` to `last`."""

    first: int
    last: int
    reason: str = ""
    delay_seconds: float | None = None
    """Wait until the next attempt; None: the group's backoff."""


class Extension(msgspec.Struct, gc=False):
    """Deliveries, `first` to `last`, with the new length of their lease from now; None: the group's lease."""

    first: int
    last: int
    lease_seconds: float | None = None


class SessionWrite(msgspec.Struct, gc=False):
    """A state that the holder of a session stores for the next holder of its key."""

    key: bytes
    """Lane key, as `lane.lane_key` returns it."""
    token: int
    state: bytes
    """Up to 256 KiB; empty deletes the state."""


class Output(msgspec.Struct, array_like=True, gc=False, eq=False):
    """A record batch that a settlement sends to another topic. Outputs are compared by identity, not by content."""

    topic_id: bytes
    partition: int
    generation: int
    """Generation of the topic by which the records were routed; 0: the sender chose the partition."""
    searched_from: int
    """Offset from which the batch is searched for in the partition after a crash: the end of the partition before the
    batch was appended."""
    batch: bytes
    ordering_key: bytes | None = None
    """Key that chooses the partition; None: the keys of the records choose it."""


class AskedOutput(msgspec.Struct):
    """Records for one topic as a worker sends them: a batch, or single records."""

    topic_id: TopicId
    partition: int | None
    """None: each record is routed by its key."""
    generation: int
    """Generation of the topic by which a batch was routed; 0: its partition was chosen by hand; -1: it was routed for
    an earlier topic of this name."""
    batch: bytes | None
    records: Sequence[NewRecord] = ()
    size_bytes: int = 0
    """Size of the batch, or approximate size of the keys, values and headers of the records."""
    ordering_key: bytes | None = None
    """See `Output`."""


class Settlement(msgspec.Struct, gc=False):
    """A worker's acks, nacks, releases, extensions, states and outputs. Ranges of receipts are (first, last)."""

    acks: Sequence[tuple[int, int]] = ()
    nacks: Sequence[Nack] = ()
    releases: Sequence[tuple[int, int]] = ()
    """Deliveries that are given back without having been worked on: no attempt is counted."""
    extensions: Sequence[Extension] = ()
    """Extended leases. For a delivery of a session, the lock of the session is extended, and never shortened."""
    states: Sequence[SessionWrite] = ()
    """States that are written together with the acks: if a state or an ack is refused, the whole settlement is refused.
    Nacks, releases and extensions are refused one by one."""
    outputs: Sequence[Output] = ()
    """Batches that are sent together with the acks: if an output or an ack is refused, the whole settlement is refused.
    A settlement with outputs has at least one ack."""
    are_unseen: bool = False
    """Whether the released deliveries never left the broker. If so, their records are not marked as redelivered."""


class Refusal(msgspec.Struct, gc=False):
    """Receipts of a settlement, `first` to `last`, that are refused."""

    first: int
    last: int
    error: LogbrokerError


Session = tuple[int, bytes]
"""Fencing token and lane key of a session."""


class Delivered(msgspec.Struct, gc=False):
    """One message to a worker: records with consecutive receipts. See `Deliveries` in queues.proto."""

    first_receipt: int
    count: int
    batches: bytes
    """Whole record batches that contain the records in the order of their receipts."""
    partitions: list[int]
    """Partition of each record. If batches are passed on as they lie in the log, `partitions` and `offsets` have one
    entry, for the first record."""
    offsets: list[int]
    attempts: list[int]
    """Attempt numbers, from 1. Empty: all are first attempts."""
    redelivered: list[bool]
    """Whether each record may have been handed out before. Empty: none was."""
    session: Session | None = None
    granted_at: float = 0.0
    """When the leases began (monotonic seconds)."""


class LetterProducer(msgspec.Struct, frozen=True, array_like=True):
    """One of the group's own producers of dead letters."""

    topic_id: bytes
    """Id of the dead-letter topic."""
    producer_id: int
    epoch: int
    base: int
    """`DeadLetter.sequence` of the letter whose batch has sequence 0 under this producer."""


class SettlementPart(msgspec.Struct, gc=False):
    """A part of a settlement, and its cost in steps of a `Pace`."""

    settlement: Settlement
    steps: int


def steps_of(settlement: Settlement) -> int:
    """Estimate the cost of a settlement, in steps of a `Pace`."""
    steps = OUTPUT_STEPS * len(settlement.outputs)
    steps += (ACK_STEPS + RANGE_STEPS) * len(settlement.acks) + _STATE_STEPS * len(settlement.states)
    steps += sum(last - first for first, last in settlement.acks) * ACK_STEPS
    for ranges in (settlement.nacks, settlement.extensions):
        steps += sum(FAIL_STEPS * (each.last - each.first + 1) + RANGE_STEPS for each in ranges)
    return steps + sum(FAIL_STEPS * (last - first + 1) + RANGE_STEPS for first, last in settlement.releases)


def parts_of(settlement: Settlement, *, whole_ranges: bool) -> Iterator[SettlementPart]:
    """Yield a settlement in parts, in the order in which they are carried out. Each part takes about one turn of the
    event loop.

    A settlement with states or outputs stays whole, because either all of its states, outputs and acks are carried out,
    or none is. `whole_ranges` (the worker has sessions): ranges of nacks, releases and extensions are not cut. If a
    record of a session is given back, all later ones of its range come back with it.
    """
    if settlement.states or settlement.outputs:
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
    """Yield the ranges of a settlement, long ones cut, each with the name of its list and its cost in steps. A piece of
    a nack, release or extension has at most `most` receipts."""
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
    """A dead letter to send: the record `record_id`, or what has replaced it in `Queue.replacements`. Each letter is a
    batch of its own, under a producer id of the group."""

    record_id: int
    partition: int
    """Partition of the dead-letter topic."""
    sequence: int
    """Number of the letter among the group's letters for this partition. The sequence of its batch is this number minus
    `LetterProducer.base`."""
    attempts: int
    first_ms: int
    last_ms: int
    reasons: tuple[str, ...]
    producer: LetterProducer | None = None
    """The producer of this letter if it has one of its own; None: the producer of the other letters."""


class DeliveryCounts(msgspec.Struct):
    """Numbers of deliveries in one group epoch, by outcome."""

    acked: int = 0
    nacked: int = 0
    leases_lost: int = 0
    """Deliveries whose leases ended or whose workers were lost."""
    expired: int = 0
    """Records that were deleted from the log before they were done."""


class PriorityCounts(msgspec.Struct, frozen=True):
    """Records of one priority."""

    priority: int
    waiting: int
    """Admitted, not done and not in flight."""
    oldest_timestamp_ms: int | None
    """Timestamp of the oldest record that could be handed out now with this priority; None: there is none. A lane
    counts once, with the timestamp of its head, and with the priority under which the ready queue keeps the lane."""
    delivered: int
    overtaken: int
    """How often a more urgent record was handed out while an older record of this priority was ready."""


class NoticeKind(enum.Enum):
    """Kinds of events that operators are told of."""

    BLOCKED = "blocked"
    PARKED = "parked"
    DEAD_LETTERED = "dead-lettered"


class Notice(msgspec.Struct, frozen=True):
    """An event of a lane, for the operator."""

    kind: NoticeKind
    key: bytes | None
    record_id: int
    reason: str


class Outputs(msgspec.Struct):
    """The tasks of the group's runtime, in this order: commit the events, append the dead letters and the new entries
    of the outbox, answer the requests."""

    events: list[StateEvent]
    dead_letters: list[DeadLetter]
    outbox: list[Any]
    """New entries of the outbox (`OutboxEntry`)."""
    notices: list[Notice]
    lost_sessions: list[tuple[WorkerSession, Loss]]
    """Sessions that ended against the will of their holders, who should be told."""
    rescan: bool
    """Whether the index was emptied, because another ordering or a rewind took effect. Every partition must then be
    scanned again from `Queue.position` on, beginning with the generation of the lowest position."""
    discarded: list[Any]
    """Containers that are no longer used. Pass them to `pacing.let_go`, which frees them in small steps."""
