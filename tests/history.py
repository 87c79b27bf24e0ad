"""History of several processes, as they wrote it down: one file per process, one JSON line per event.

`at` is the machine's monotonic clock, which all its processes share and which no step of the wall clock moves. A line
is one write to a file that is only appended to, so what a process wrote before it was killed or frozen is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import Protocol, TypeVar

import msgspec


class Happening(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One event of one process: one life of a member or a worker, or whoever did it to them."""

    process: str
    at: float


class _Timed(Protocol):
    @property
    def at(self) -> float: ...


_Event = TypeVar("_Event", bound=_Timed)

_encode = msgspec.json.Encoder().encode


class HistoryFile:
    """The hand of one process."""

    def __init__(self, path: Path, process: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._process = process

    def write(self, kind: Callable[..., msgspec.Struct], **fields: object) -> None:
        """Note that this happens now, to this process if `fields` names no other."""
        event = kind(**{"process": self._process, "at": monotonic(), **fields})
        os.write(self._fd, _encode(event) + b"\n")


def read_events(paths: Iterable[Path], decode: Callable[[bytes], _Event]) -> list[_Event]:
    """Return the events of all processes in the order of their times; those of a process keep their own order. The logs
    (*.log) that lie beside the histories are passed over.
    """
    histories = [path for path in paths if path.suffix != ".log"]
    # What follows the last line's end was being written when the process was killed.
    events = [decode(line) for path in histories for line in path.read_bytes().split(b"\n")[:-1]]
    return sorted(events, key=lambda event: event.at)
