"""Spill file for chunks of long lanes: ids of records that are not needed soon.

Each queue group has one temporary file without a name. The system removes the file however the broker ends. The next
start scans the log again. The file is an array of slots of 4 KiB, one chunk each. Free slots are reused, and the file
is closed when none is in use. A chunk that the disk refuses stays in memory. If a chunk cannot be read back, the log is
scanned again: a full or broken disk must not stop a queue group.
"""

from __future__ import annotations

import logging
import os
import tempfile
from array import array
from pathlib import Path
from typing import BinaryIO, Final

from logbroker.queues.model.lane import CHUNK_RECORDS

SLOT_BYTES: Final = CHUNK_RECORDS * 8

_log = logging.getLogger(__name__)


class SpillFile:
    """The `successors.ChunkStore` of one queue group. Its calls take microseconds in the page cache."""

    def __init__(self, directory: Path, name: str) -> None:
        """The file is made in `directory` when it is first needed. `name` is the name of the group for log messages."""
        self._directory = directory
        self._name = name
        self._file: BinaryIO | None = None
        self._slots = 0
        self._free: list[int] = []
        self._in_memory: dict[int, array[int]] = {}
        """Chunks that the disk refused, by their (negative) numbers."""
        self._refused = 0

    def put(self, record_ids: array[int]) -> int:
        """Store a chunk of 512 record ids, and return the number of the chunk."""
        slot = self._free.pop() if self._free else self._slots
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115
            data = record_ids.tobytes()
            written = os.pwrite(self._file.fileno(), data, slot * SLOT_BYTES)
        except OSError as error:
            return self._refuse(slot, record_ids, error.strerror or str(error))
        if written < SLOT_BYTES:
            return self._refuse(slot, record_ids, "it is full")
        self._slots = max(self._slots, slot + 1)
        return slot

    def _refuse(self, slot: int, record_ids: array[int], why: str) -> int:
        if slot < self._slots:
            self._free.append(slot)
        if not self._refused:
            _log.warning(
                "queue group %s: %s takes no more record ids (%s): they stay in memory",
                self._name,
                self._directory,
                why,
            )
        self._refused += 1
        self._in_memory[-self._refused] = record_ids
        return -self._refused

    def take(self, number: int) -> array[int] | None:
        """Return the chunk with this number, and forget it; None: it cannot be read, and must be dropped."""
        if number < 0:
            return self._in_memory.pop(number)
        if self._file is None:
            return None
        why = "it is shorter than what was written"
        try:
            data = os.pread(self._file.fileno(), SLOT_BYTES, number * SLOT_BYTES)
        except OSError as error:
            data, why = b"", error.strerror or str(error)
        if len(data) < SLOT_BYTES:
            _log.warning(
                "queue group %s: its temporary file in %s cannot be read (%s): the log is scanned again",
                self._name,
                self._directory,
                why,
            )
            return None
        self.drop(number)
        return array("q", data)

    def drop(self, number: int) -> None:
        """Forget the chunk with this number."""
        if number < 0:
            del self._in_memory[number]
            return
        self._free.append(number)
        if len(self._free) == self._slots:
            self.close()

    def close(self) -> None:
        """Close the file and lose its contents."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._slots = 0
        self._free.clear()
