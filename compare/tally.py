"""The progress of all workers together, and the records that were handed out."""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import Final, Self

from compare.load import IDLE_SECONDS
from logbroker.errors import LogbrokerError

_SLOT_BYTES: Final = 8


class Tally:
    """A file that all workers map: a byte for each record, then a count for each worker, written by its owner only.

    There is no lock: a record is in the hands of one worker at a time, or else that is what is to be found out.
    """

    def __init__(self, path: Path, *, worker: int, workers: int, records: int) -> None:
        """`records`: what all workers do together."""
        self._counts = range(records, records + workers * _SLOT_BYTES, _SLOT_BYTES)
        self._own = slice(self._counts[worker], self._counts[worker] + _SLOT_BYTES)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self._counts.stop)
        self._records = records
        self._count = 0
        self._seen = (0, time.monotonic())

    @staticmethod
    def create(path: Path, *, workers: int, records: int) -> None:
        """Make the file: nothing handed out, all counts 0."""
        path.write_bytes(bytes(records + workers * _SLOT_BYTES))

    @property
    def handed(self) -> mmap.mmap:
        """The map with one byte for each record, by its number: whether it was handed to any worker."""
        return self._map

    def add(self, records: int) -> None:
        """Count records that are acknowledged."""
        self._count += records
        self._map[self._own] = self._count.to_bytes(_SLOT_BYTES)

    @property
    def done(self) -> bool:
        """True: all workers together have done all; raises LogbrokerError where nothing has moved for a minute."""
        total = sum(int.from_bytes(self._map[at : at + _SLOT_BYTES]) for at in self._counts)
        seen, since = self._seen
        if total != seen:
            self._seen = (total, time.monotonic())
        elif time.monotonic() > since + IDLE_SECONDS:
            raise LogbrokerError(f"workers stand still at {total:,} of {self._records:,} records")
        return total >= self._records

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()
