"""How far all workers together have come."""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import Final, Self

from logbroker.errors import LogbrokerError
from logbroker.tools.bench.compare.load import IDLE_SECONDS

_SLOT_BYTES: Final = 8


class Tally:
    """Counts in a file that all workers map: one slot each, written by its owner only, so there is no lock."""

    def __init__(self, path: Path, *, worker: int, workers: int, records: int) -> None:
        """`records`: what all workers do together."""
        with path.open("r+b") as file:
            self._slots = mmap.mmap(file.fileno(), workers * _SLOT_BYTES)
        self._own = slice(worker * _SLOT_BYTES, (worker + 1) * _SLOT_BYTES)
        self._workers = workers
        self._records = records
        self._count = 0
        self._seen = (0, time.monotonic())

    @staticmethod
    def create(path: Path, workers: int) -> None:
        """Make the file, with all counts 0."""
        path.write_bytes(bytes(workers * _SLOT_BYTES))

    def add(self, records: int) -> None:
        """Count records that are acknowledged."""
        self._count += records
        self._slots[self._own] = self._count.to_bytes(_SLOT_BYTES)

    @property
    def done(self) -> bool:
        """True: all workers together have done all; raises LogbrokerError where nothing has moved for a minute."""
        counts = [self._slots[at : at + _SLOT_BYTES] for at in range(0, self._workers * _SLOT_BYTES, _SLOT_BYTES)]
        total = sum(int.from_bytes(count) for count in counts)
        seen, since = self._seen
        if total != seen:
            self._seen = (total, time.monotonic())
        elif time.monotonic() > since + IDLE_SECONDS:
            raise LogbrokerError(f"workers stand still at {total:,} of {self._records:,} records")
        return total >= self._records

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._slots.close()
