"""The disk's low-water mark: appends are refused while that is still harmless."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from logbroker.errors import DiskFullError

_MEASURE_AGAIN_SECONDS: Final = 0.5


class DiskSpace:
    """How much may still be written before the mark is reached: measured now and then, counted down in between.

    A write that finds the disk full is fatal, since nobody knows what it left, so the mark must leave room for all
    that is written beside the records: indexes, metadata, what was accepted already, and other programs.
    """

    def __init__(self, path: Path, min_free_bytes: int) -> None:
        self._path = path
        self._min_free_bytes = min_free_bytes
        self._room_bytes = 0
        self._measured_at = 0.0
        self.measure()

    def measure(self) -> None:
        """Ask the file system."""
        found = os.statvfs(self._path)
        self._room_bytes = found.f_bavail * found.f_frsize - self._min_free_bytes
        self._measured_at = time.monotonic()

    def take(self, size_bytes: int) -> None:
        """Count what was accepted."""
        self._room_bytes -= size_bytes

    def check(self, size_bytes: int = 0) -> None:
        """Raises DiskFullError if so much more would bring the disk to the mark. Rarely a system call."""
        if self._room_bytes > size_bytes:
            return
        if time.monotonic() - self._measured_at > _MEASURE_AGAIN_SECONDS:
            self.measure()
        if self._room_bytes <= size_bytes:
            free_bytes = max(0, self._room_bytes + self._min_free_bytes)
            raise DiskFullError(
                f"the disk of {self._path} has {free_bytes} bytes left, and {self._min_free_bytes} are kept free"
                " (min_free_disk_bytes); free some space, then try again"
            )
