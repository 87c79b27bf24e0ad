"""History of the members of a group, as they wrote it down: see `tests.history`.

What a member's program is told and given it has by right from the moment at which its client looked at that clock, to
see whether it may (`Assigned`, `Delivered`). A process that is frozen just then writes it down when it wakes, and gives
that moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from logbroker.types import TopicPartition
from tests.history import Happening, read_events


class Assigned(Happening, frozen=True):
    """The program was told that it has these partitions, and at which offset each begins."""

    positions: list[tuple[TopicPartition, int]]


class Revoked(Happening, frozen=True):
    """The program was told that these go, and gets nothing more of them."""

    partitions: list[TopicPartition]


class Lost(Happening, frozen=True):
    """The program was told that these are somebody else's, since it does not know when."""

    partitions: list[TopicPartition]


class Delivered(Happening, frozen=True):
    """The program was given these records, at once."""

    records: list[tuple[TopicPartition, int, bytes]]


class Handled(Happening, frozen=True):
    """The program has done what it does with these records."""

    records: list[tuple[TopicPartition, int]]


class CommitBegun(Happening, frozen=True):
    """A commit is about to be sent."""

    number: int
    offsets: list[tuple[TopicPartition, int]]
    done: list[tuple[TopicPartition, list[tuple[int, int]]]] = msgspec.field(default_factory=list)
    """The ranges of offsets beyond these that the commit says are done."""
    stale: bool = False
    """A zombie's: of the epoch and the partitions that it had before it was frozen."""


class CommitEnded(Happening, frozen=True):
    """Outcome of a commit. Without an answer it may or may not have taken effect."""

    number: int
    answered: bool
    refused: list[tuple[TopicPartition, str]]
    """With the reasons."""


class Stalled(Happening, frozen=True):
    """The process did not run for a while, which began at `at` or some time in these seconds after."""

    seconds: float


class Frozen(Happening, frozen=True):
    """The process stands still: stopped by a signal before `at`, and until it is told to go on."""


class BrokerKilled(Happening, frozen=True):
    """The broker is about to be killed."""


class BrokerBack(Happening, frozen=True):
    """It has served again for as long as it waits for members to come back."""


class LookBegun(Happening, frozen=True):
    """Somebody is about to ask for the committed offsets."""


class LookEnded(Happening, frozen=True):
    """The committed offsets, some time since the look began."""

    offsets: list[tuple[TopicPartition, int]]


class Outage(Happening, frozen=True):
    """Between `since` and `at` the broker was killed, and everybody came back in time; nothing else happened."""

    since: float


Event = (
    Assigned
    | Revoked
    | Lost
    | Delivered
    | Handled
    | CommitBegun
    | CommitEnded
    | Stalled
    | Frozen
    | BrokerKilled
    | BrokerBack
    | LookBegun
    | LookEnded
    | Outage
)

_decode = msgspec.json.Decoder(Event).decode


def read_histories(paths: Iterable[Path]) -> list[Event]:
    """Return the events of all processes in the order of their times; those of a process keep their own order."""
    return read_events(paths, _decode)
