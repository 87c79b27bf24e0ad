"""What may be set for a queue group, with every default and bound."""

from __future__ import annotations

import enum
import math
from typing import Final

import msgspec

from logbroker.config import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, MIN_LEASE_SECONDS
from logbroker.errors import InvalidRequestError, quoted


class Ordering(enum.Enum):
    """What order a queue group keeps."""

    NONE = "none"
    """Any record to any worker."""
    KEY = "key"
    """One lane per ordering key; records without one have no order among themselves."""
    SINGLE = "single"
    """One lane; needs a topic with one partition."""


class Priority(enum.Enum):
    """What a queue group hands out first."""

    NONE = "none"
    """First come, first served."""
    STRICT = "strict"
    """The most urgent, then the oldest."""
    WEIGHTED = "weighted"
    """Bands of priorities get their shares; inside a band as with `strict`."""
    AGEING = "ageing"
    """As with `strict`, but what waits gains a level with every `age_seconds`."""


class PriorityRank(enum.Enum):
    """How urgent a lane is."""

    LANE = "lane"
    """As its most urgent record that waits: a head without urgency does not hold back what comes behind it."""
    HEAD = "head"
    """As its head."""


class OnExhausted(enum.Enum):
    """What happens to a record whose attempts are used up."""

    BLOCK = "block"
    """It stays the head of its lane until an operator decides."""
    DEAD_LETTER = "dead-letter"
    """It goes to the dead-letter topic, and its lane goes on."""
    PARK = "park"
    """Its lane is set aside, with what is still to arrive."""


class OnUndecodable(enum.Enum):
    """What happens to a batch that cannot be decoded."""

    STOP = "stop"
    """Its partition is not served any more, from there on."""
    DEAD_LETTER = "dead-letter"
    """It goes to the dead-letter topic as it is, as one record."""


GROUP_TYPE: Final = "queue"
MAX_KEY_HEADER_BYTES: Final = 255
MAX_WEIGHT: Final = 1_000_000

_BOUNDS: Final = {
    "lease_seconds": (MIN_LEASE_SECONDS, MAX_LEASE_SECONDS),
    "max_attempts": (1, 1_000),
    "backoff_initial_seconds": (0.0, MAX_DELAY_SECONDS),
    "backoff_factor": (1.0, 100.0),
    "backoff_cap_seconds": (0.0, MAX_DELAY_SECONDS),
    "backoff_jitter": (0.0, 1.0),
    "grace_seconds": (0.0, 60.0),
    "alarm_share": (0.0, 1.0),
    "alarm_age_seconds": (1.0, 31_536_000.0),
    "max_parked_records": (1, 1 << 40),
    "max_in_flight": (1, 1_000_000),
    "max_ready_records": (1, 1 << 24),
    "max_held_lanes": (1, 10_000_000),
    "max_delayed_records": (1, 10_000_000),
    "age_seconds": (0.001, 31_536_000.0),
}


class QueueGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one queue group; `check` states their bounds."""

    ordering: Ordering = Ordering.KEY
    key_header: str = ""
    """The header that holds the ordering key; "": the record key is it."""
    lease_seconds: float = 30.0
    """0.1 s to 12 h."""
    max_attempts: int = 5
    """1 to 1,000."""
    backoff_initial_seconds: float = 1.0
    """Before the second attempt; up to 7 days."""
    backoff_factor: float = 2.0
    """By which each further backoff is longer; 1 to 100."""
    backoff_cap_seconds: float = 300.0
    """The longest backoff; up to 7 days."""
    backoff_jitter: float = 0.2
    """The share of a backoff that is drawn by lot, so that what failed together does not come back together; 0 to 1."""
    on_exhausted: OnExhausted = OnExhausted.BLOCK
    on_undecodable: OnUndecodable = OnUndecodable.STOP
    dead_letter_topic: str = ""
    grace_seconds: float = 2.0
    """How long a worker whose stream broke keeps what it held; 0 to 60, 0: not at all."""
    alarm_share: float = 0.5
    """The share of what waits above which a lane of over 512 records raises an alarm; 1: never."""
    alarm_age_seconds: float = 3600.0
    """How long a lane may fail or stand, or a record wait, if only for a worker, before it raises an alarm; 1 s to a
    year."""
    max_parked_records: int = 100_000
    """Above it the queue group raises an alarm; nothing is dropped."""
    max_in_flight: int = 10_000
    """Deliveries that one worker may hold; to 1,000,000."""
    max_ready_records: int = 100_000
    """The scan of the log pauses where so many records are ready; to 2^24."""
    max_held_lanes: int = 500_000
    """The scan pauses where so many lanes are blocked or wait for a retry (about 1 KiB each); to 10,000,000."""
    max_delayed_records: int = 500_000
    """The scan pauses where it met so many records whose not-before time lies ahead (about 250 B each)."""
    priority: Priority = Priority.NONE
    priority_rank: PriorityRank = PriorityRank.LANE
    age_seconds: float = 60.0
    """With `ageing`, after so long a record counts as one level more urgent; 1 ms to a year."""
    weights: dict[str, int] = msgspec.field(default_factory=dict)
    """With `weighted`, the share of each band by its name, 0 to 1,000,000; a band of weight 0, or that is left out, is
    served when no other has anything ready. Empty: those of `policy.default_weights`."""

    def check(self) -> None:
        """Raises InvalidRequestError."""
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most or math.isnan(value):
                raise InvalidRequestError(f"{name} is {value}: give {_plain(least)} to {_plain(most)}")
        if self.backoff_initial_seconds > self.backoff_cap_seconds:
            raise InvalidRequestError(
                f"backoff_initial_seconds is {self.backoff_initial_seconds}, above backoff_cap_seconds,"
                f" {self.backoff_cap_seconds}: raise the cap"
            )
        if self.key_header and self.ordering is not Ordering.KEY:
            raise InvalidRequestError(
                f"key_header is {quoted(self.key_header)}, but ordering {self.ordering.value} has no ordering key:"
                " leave it out, or order by key"
            )
        if len(self.key_header.encode()) > MAX_KEY_HEADER_BYTES:
            raise InvalidRequestError(f"key_header has over {MAX_KEY_HEADER_BYTES} bytes: name a shorter header")
        if self.uses_dead_letters != bool(self.dead_letter_topic):
            raise InvalidRequestError(
                "dead-letter, as on_exhausted or on_undecodable, needs a dead_letter_topic"
                if not self.dead_letter_topic
                else f"a dead_letter_topic is of no use with on_exhausted {self.on_exhausted.value} and on_undecodable"
                f" {self.on_undecodable.value}: set dead-letter"
            )
        self._check_priority()

    def _check_priority(self) -> None:
        if self.has_priorities and self.ordering is Ordering.SINGLE:
            raise InvalidRequestError(
                f"priority is {self.priority.value}, but ordering single hands out one record at a time in the order of"
                " the log: order by key or not at all, or leave priority out"
            )
        if not self.weights:
            return
        if self.priority is not Priority.WEIGHTED:
            raise InvalidRequestError(
                f"weights are of no use with priority {self.priority.value}: set weighted, or leave them out"
            )
        for name, weight in self.weights.items():
            if not 0 <= weight <= MAX_WEIGHT:
                raise InvalidRequestError(f"the weight of band {quoted(name)} is {weight}: give 0 to {MAX_WEIGHT:,}")
        if not any(self.weights.values()):
            raise InvalidRequestError("all weights are 0: give at least one band a share")

    @property
    def has_priorities(self) -> bool:
        return self.priority is not Priority.NONE

    @property
    def uses_dead_letters(self) -> bool:
        return self.on_exhausted is OnExhausted.DEAD_LETTER or self.on_undecodable is OnUndecodable.DEAD_LETTER


def check_lease(seconds: float) -> None:
    """Raise InvalidRequestError for a lease that a worker may not ask for."""
    least, most = _BOUNDS["lease_seconds"]
    if not least <= seconds <= most:
        raise InvalidRequestError(f"a lease of {seconds} s cannot be had: ask for {_plain(least)} to {_plain(most)} s")


def check_delay(seconds: float) -> None:
    """Raise InvalidRequestError for a delay that a nack may not ask for."""
    if not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise InvalidRequestError(f"a delay of {seconds} s cannot be had: ask for 0 to {_plain(MAX_DELAY_SECONDS)} s")


def _plain(bound: float) -> str:
    return f"{bound:,.10g}"
