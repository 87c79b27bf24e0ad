"""What the members of a group did, as they wrote it down: one file per process, one JSON line per event.

`at` is the machine's monotonic clock, which all its processes share and which no step of the wall clock moves. A line
is one write to a file that is only appended to, so what a process wrote before it was killed or frozen is there.

What a member's program is told and given it has by right from the moment at which its client looked at that clock, to
see whether it may (`Assigned`, `Delivered`). A process that is frozen just then writes it down when it wakes, and gives
that moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

import msgspec

from logbroker.types import TopicPartition


class _Happening(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    process: str
    """One life of a member, or whoever did it to them."""
    at: float


class Assigned(_Happening, frozen=True):
    """The program was told that it has these partitions, and at which offset each begins."""

    positions: list[tuple[TopicPartition, int]]


class Revoked(_Happening, frozen=True):
    """The program was told that these go, and gets nothing more of them."""

    partitions: list[TopicPartition]


class Lost(_Happening, frozen=True):
    """The program was told that these are somebody else's, since it does not know when."""

    partitions: list[TopicPartition]


class Delivered(_Happening, frozen=True):
    """The program was given these records, at once."""

    records: list[tuple[TopicPartition, int, bytes]]


class Handled(_Happening, frozen=True):
    """The program has done what it does with these records."""

    records: list[tuple[TopicPartition, int]]


class CommitBegun(_Happening, frozen=True):
    """A commit is about to be sent."""

    number: int
    offsets: list[tuple[TopicPartition, int]]
    stale: bool = False
    """A zombie's: of the epoch and the partitions that it had before it was frozen."""


class CommitEnded(_Happening, frozen=True):
    """What became of it. Without an answer it may or may not have taken effect."""

    number: int
    answered: bool
    refused: list[tuple[TopicPartition, str]]
    """With the reasons."""


class Stalled(_Happening, frozen=True):
    """The process did not run for a while, which began at `at` or some time in these seconds after."""

    seconds: float


class Frozen(_Happening, frozen=True):
    """The process stands still: stopped by a signal before `at`, and until it is told to go on."""


class BrokerKilled(_Happening, frozen=True):
    """The broker is about to be killed."""


class BrokerBack(_Happening, frozen=True):
    """It has served again for as long as it waits for members to come back."""


class LookBegun(_Happening, frozen=True):
    """Somebody is about to ask for the committed offsets."""


class LookEnded(_Happening, frozen=True):
    """The committed offsets, some time since the look began."""

    offsets: list[tuple[TopicPartition, int]]


class Outage(_Happening, frozen=True):
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

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class HistoryFile:
    """The hand of one process."""

    def __init__(self, path: Path, process: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._process = process

    def write(self, kind: Callable[..., msgspec.Struct], **fields: object) -> None:
        """Note that this happens now, to this process if `fields` names no other."""
        event = kind(**{"process": self._process, "at": monotonic(), **fields})
        os.write(self._fd, _encode(event) + b"\n")


def read_histories(paths: Iterable[Path]) -> list[Event]:
    """Return the events of all processes in the order of their times; those of a process keep their own order."""
    # What follows the last line's end was being written when the process was killed.
    events = [_decode(line) for path in paths for line in path.read_bytes().split(b"\n")[:-1]]
    return sorted(events, key=lambda event: event.at)
