"""What goes into a queue group's machine and comes out of it: deliveries, settlements, events."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from logbroker.engine import StateEvent
from logbroker.queues.holders import Session
from logbroker.queues.places import OFFSET_MASK, PARTITION_SHIFT


class Granted(msgspec.Struct, gc=False):
    """Deliveries with consecutive receipts, in columns."""

    first_receipt: int
    places: list[int] | range
    """A range: consecutive offsets of one partition, which can be handed on undecoded."""
    attempts: list[int]
    """Empty: all are first attempts."""
    redelivered: list[bool]
    """Whether it may have been handed out before. Empty: none was."""

    def __len__(self) -> int:
        return len(self.places)

    def receipts(self) -> range:
        return range(self.first_receipt, self.first_receipt + len(self.places))

    def partitions(self) -> list[int]:
        return [place >> PARTITION_SHIFT for place in self.places]

    def offsets(self) -> list[int]:
        return [place & OFFSET_MASK for place in self.places]


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
    """By `lanes.lane_key`."""
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


class LetterProducer(msgspec.Struct, frozen=True, array_like=True):
    """One of the group's own producers of dead letters."""

    topic_id: bytes
    """Of the dead-letter topic."""
    producer_id: int
    epoch: int
    base: int
    """The sequence of a letter that is sequence 0 of this producer."""


class DeadLetter(msgspec.Struct):
    """A record to append to the dead-letter topic, or what `Queue.replacements` has in its place; with the group's
    producer id, as a batch of its own."""

    place: int
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


class Tally(msgspec.Struct):
    """What became of deliveries in one life of a queue group."""

    acked: int = 0
    nacked: int = 0
    leases_lost: int = 0
    """Their leases ended, or their workers were lost."""


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
    place: int
    reason: str


class Outputs(msgspec.Struct):
    """What the shell owes: in this order, commit the events, then append the dead letters and answer what was asked."""

    events: list[StateEvent]
    dead_letters: list[DeadLetter]
    notices: list[Notice]
    lost_sessions: list[Session]
    """Sessions that ended without their holder's wish: it should hear of it."""
    rescan: bool
    """The index was emptied, as another ordering took effect: scan every partition again, from `Queue.position` on,
    beginning with the generation that the lowest of them lies in."""
