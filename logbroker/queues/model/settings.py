"""The settings of a queue group, with their defaults, bounds and effects."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Final

import msgspec

from logbroker.config import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, MIN_LEASE_SECONDS
from logbroker.errors import InvalidRequestError, quoted
from logbroker.queues.model.second_key import MAX_SUB_LANES, MIN_SUB_LANES, SecondKey
from logbroker.settings import Setting, bounds_of, described


class Ordering(enum.Enum):
    """Order that a queue group keeps."""

    NONE = "none"
    """Any record goes to any worker, in any order."""
    KEY = "key"
    """Each ordering key has a lane of its own. Records without an ordering key have no order."""
    SINGLE = "single"
    """All records share one lane. The topic must have one partition."""


class Priority(enum.Enum):
    """Policy that decides which record a queue group delivers first."""

    NONE = "none"
    """First come, first served."""
    STRICT = "strict"
    """The most urgent record first; among equally urgent ones, the oldest."""
    WEIGHTED = "weighted"
    """Each band gets its share of the deliveries. Within a band, `strict` applies."""
    AGEING = "ageing"
    """Like `strict`, but a record gains one level for each `age_seconds` that it waits."""


class PriorityRank(enum.Enum):
    """Rule that decides how urgent a lane is."""

    LANE = "lane"
    """A lane is as urgent as its most urgent waiting record, even if that record is not the first."""
    HEAD = "head"
    """A lane is as urgent as its first record."""


class OnExhausted(enum.Enum):
    """Action for a record whose attempts are used up."""

    BLOCK = "block"
    """The record stops its lane until an operator decides about it."""
    DEAD_LETTER = "dead-letter"
    """The record goes to the dead-letter topic, and its lane goes on."""
    PARK = "park"
    """The record's key is set aside, with the records that arrive later, until an operator brings it back."""


class OnUndecodable(enum.Enum):
    """Action for a batch that cannot be decoded."""

    STOP = "stop"
    """The group delivers nothing more of the partition, from this batch on."""
    DEAD_LETTER = "dead-letter"
    """The batch goes to the dead-letter topic unchanged, as one record."""


GROUP_TYPE: Final = "queue"
MAX_KEY_HEADER_BYTES: Final = 255
MAX_WEIGHT: Final = 1_000_000
_DEAD_LETTER_SUFFIX: Final = ".dead-letters"


class QueueGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one queue group."""

    ordering: Annotated[
        Ordering,
        Setting(
            "Order that the group keeps: none delivers any record to any worker; key delivers one record of a key at a"
            " time, in order; single delivers one record at a time and needs a topic with one partition."
        ),
    ] = Ordering.KEY
    key_header: Annotated[
        str,
        Setting(
            "Header that holds the ordering key, instead of the record key.", "a header name", default="the record key"
        ),
    ] = ""
    lease_seconds: Annotated[
        float,
        Setting(
            "How long a worker may hold a record before it settles it or extends the lease. After that, the attempt"
            " counts as failed and the record is delivered again.",
            "seconds",
            MIN_LEASE_SECONDS,
            MAX_LEASE_SECONDS,
        ),
    ] = 30.0
    max_attempts: Annotated[
        int,
        Setting("Number of failed attempts after which on_exhausted applies to a record.", "attempts", 1, 1_000),
    ] = 5
    backoff_initial_seconds: Annotated[
        float, Setting("Delay before the second attempt.", "seconds", 0.0, MAX_DELAY_SECONDS)
    ] = 1.0
    backoff_factor: Annotated[
        float, Setting("Factor by which the delay grows with each further attempt.", "factor", 1.0, 100.0)
    ] = 2.0
    backoff_cap_seconds: Annotated[
        float, Setting("Maximum delay between two attempts.", "seconds", 0.0, MAX_DELAY_SECONDS)
    ] = 300.0
    backoff_jitter: Annotated[
        float,
        Setting(
            "Maximum random share by which a delay is shortened, so that records that failed together do not come back"
            " together.",
            "share",
            0.0,
            1.0,
        ),
    ] = 0.2
    on_exhausted: Annotated[
        OnExhausted,
        Setting(
            "Action for a record whose attempts are used up: block stops its lane at this record until an operator"
            " decides about it; park sets its key aside, with the records that arrive later, until an operator brings"
            " the key back, even after a rewind; dead-letter moves the record to the dead-letter topic, and its lane"
            " goes on."
        ),
    ] = OnExhausted.BLOCK
    on_undecodable: Annotated[
        OnUndecodable,
        Setting(
            "Action for a batch that cannot be decoded: stop ends the delivery of its partition; dead-letter moves the"
            " batch to the dead-letter topic as one record."
        ),
    ] = OnUndecodable.STOP
    dead_letter_topic: Annotated[
        str,
        Setting(
            "Topic for dead letters. The broker creates it if it does not exist, with unlimited retention. A group that"
            " no longer dead-letters keeps the name for the letters that are there, and for a return.",
            "a topic name",
            default="GROUP.dead-letters if dead-letter is set, else none",
        ),
    ] = ""
    grace_seconds: Annotated[
        float,
        Setting(
            "How long a worker keeps its records after its connection breaks; 0: not at all.", "seconds", 0.0, 60.0
        ),
    ] = 2.0
    alarm_share: Annotated[
        float,
        Setting(
            "Share of all waiting records above which a lane with more than 512 of them raises an alarm; 1: never.",
            "share",
            0.0,
            1.0,
        ),
    ] = 0.5
    alarm_age_seconds: Annotated[
        float,
        Setting(
            "An alarm is raised when the oldest record of a partition or of a long lane, or the first failure of a held"
            " lane, is older than this.",
            "seconds",
            1.0,
            31_536_000.0,
        ),
    ] = 3600.0
    max_parked_records: Annotated[
        int,
        Setting(
            "Number of parked records above which an alarm is raised. No record is dropped.", "records", 1, 1 << 40
        ),
    ] = 100_000
    max_in_flight: Annotated[
        int, Setting("Maximum number of unsettled deliveries of one worker.", "records", 1, 1_000_000)
    ] = 10_000
    max_ready_records: Annotated[
        int,
        Setting(
            "The scan of the log pauses at this number of ready records, except in a group with priorities.",
            "records",
            1,
            1 << 24,
        ),
    ] = 100_000
    max_held_lanes: Annotated[
        int,
        Setting(
            "The scan of the log pauses at this number of stalled lanes: blocked, parked, or with a first record that"
            " waits for a retry, its not-before time or the dead-letter topic, or cannot be read from the log now. A"
            " lane takes about 1 KiB.",
            "lanes",
            1,
            10_000_000,
        ),
    ] = 500_000
    max_delayed_records: Annotated[
        int,
        Setting(
            "The scan of the log pauses at this number of records that have a not-before time and wait behind another"
            " record of their lane; a record that is the first of its lane counts as a stalled lane instead. A record"
            " takes about 250 bytes.",
            "records",
            1,
            10_000_000,
        ),
    ] = 500_000
    split_by: Annotated[
        str,
        Setting(
            "Split hot lanes by a second key, and join them again when they are calm: header:NAME takes the second key"
            " from a header, key-suffix:SEPARATOR from the end of the record's key; none gives up the order of a hot"
            " lane.",
            "header:NAME, key-suffix:SEPARATOR or none",
            default="hot lanes are not split",
        ),
    ] = ""
    split_into: Annotated[
        int,
        Setting("Number of sub-lanes of a hot lane, with split_by.", "sub-lanes", MIN_SUB_LANES, MAX_SUB_LANES),
    ] = 16
    split_share: Annotated[
        float,
        Setting(
            "Share of all waiting records above which a lane with more than 512 of them is hot, with split_by.",
            "share",
            0.0,
            1.0,
        ),
    ] = 0.5
    split_age_seconds: Annotated[
        float,
        Setting(
            "How long a lane must be hot before it is split, and its sub-lanes calm before they are joined, with"
            " split_by. Sub-lanes are calm when they have at most one record each on average, and none of them is"
            " stalled.",
            "seconds",
            0.1,
            86_400.0,
        ),
    ] = 10.0
    priority: Annotated[
        Priority,
        Setting(
            "Policy that chooses the next record: none is first come, first served; strict takes the most urgent"
            " record, then the oldest; weighted gives each band its share; ageing makes a record more urgent while it"
            " waits.",
            default="strict if the topic has bands, else none",
        ),
    ] = Priority.NONE
    priority_rank: Annotated[
        PriorityRank,
        Setting(
            "Record that decides how urgent a lane is: with lane, its most urgent waiting record; with head, its first"
            " record."
        ),
    ] = PriorityRank.LANE
    age_seconds: Annotated[
        float,
        Setting(
            "With ageing, the waiting time that makes a record one level more urgent.", "seconds", 0.001, 31_536_000.0
        ),
    ] = 60.0
    weights: Annotated[
        dict[str, int],
        Setting(
            "With weighted, the share of each band, from 0 to 1,000,000. A band that is left out or has the weight 0 is"
            " served when no other band has ready records.",
            "bands with weights",
            default="6, 3, 1 for three bands; else each band twice the weight of the next less urgent one",
        ),
    ] = msgspec.field(default_factory=dict)

    def check(self) -> None:
        """Raise InvalidRequestError for a value out of bounds, or for settings that contradict each other."""
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
        if self.uses_dead_letters and not self.dead_letter_topic:
            raise InvalidRequestError("dead-letter, as on_exhausted or on_undecodable, needs a dead_letter_topic")
        if self.split_by:
            SecondKey.parse(self.split_by).check(self.ordering.value, self.key_header)
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


QUEUE_SETTINGS: Final = tuple(described(QueueGroupSettings))
_BOUNDS: Final = bounds_of(QUEUE_SETTINGS)


def dead_letter_topic_of(group_id: str) -> str:
    """Return the default name of a group's dead-letter topic."""
    return f"{group_id}{_DEAD_LETTER_SUFFIX}"


def is_dead_letter_topic_name(name: str) -> bool:
    """Return whether a name is the default name of some group's dead-letter topic."""
    return name.endswith(_DEAD_LETTER_SUFFIX)


def check_lease(seconds: float) -> None:
    """Raise InvalidRequestError if a worker may not ask for this lease."""
    least, most = _BOUNDS["lease_seconds"]
    if not least <= seconds <= most:
        raise InvalidRequestError(f"a lease of {seconds} s cannot be had: ask for {_plain(least)} to {_plain(most)} s")


def check_delay(seconds: float) -> None:
    """Raise InvalidRequestError if a nack may not ask for this delay."""
    if not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise InvalidRequestError(f"a delay of {seconds} s cannot be had: ask for 0 to {_plain(MAX_DELAY_SECONDS)} s")


def _plain(bound: float) -> str:
    return f"{bound:,.10g}"
