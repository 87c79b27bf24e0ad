"""The low-water mark of the disk: writes are refused before the disk is so full that a write could fail.

free space                      refused
above min_free_disk_bytes       nothing
below it                        writes that take room: appends, topics, partitions, groups, producers, settlements
                                with outputs
below half of it                also writes that process existing records: commits of offsets, sessions, other
                                settlements

Free files (inodes) are checked in the same way, against KEPT_FILES. Indexes of new segments are created later, without
a check, so they are counted as soon as the segment exists. Writes that make room, or that follow from earlier
decisions, are never refused.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from logbroker.engine import DiskUse
from logbroker.errors import DiskFullError
from logbroker.texts import size_text

_log = logging.getLogger(__name__)

_MEASURE_AGAIN_SECONDS: Final = 0.1
KEPT_FILES: Final = 1000
"""Number of files that are kept free for writes that are never refused. A start creates one file (issued-numbers) and,
after a crash, up to three in each partition whose log it cuts. If even these files do not suffice, indexes stay in
memory."""
FILES_OF_PARTITION: Final = 6
"""Directory, partition.metadata, leader-epoch-checkpoint, and the three files of the first segment."""
FILES_OF_SEGMENT: Final = 3
_RESERVE: Final = {DiskUse.TAKES_ROOM: 1.0, DiskUse.USES_RESERVE: 0.5}
"""Share of `min_free_disk_bytes` and of KEPT_FILES that each use of the disk must leave free."""

_REFUSED: Final = {
    DiskUse.TAKES_ROOM: "writes that take room are refused",
    DiskUse.USES_RESERVE: "commits and acks are refused, too, and queue groups hand out nothing",
}


class DiskSpace:
    """Free bytes and files of the disk: measured now and then, and counted down in between.

    A write that finds the disk full is fatal, because it may have left a part of its bytes. So the mark must leave room
    for everything else that may be written: accepted appends, indexes, metadata, and the files of other programs.
    """

    def __init__(
        self,
        path: Path,
        min_free_bytes: int,
        created_files: Callable[[], int] = lambda: 0,
        owed_files: Callable[[], int] = lambda: 0,
        directory_fd: int = -1,
    ) -> None:
        """`created_files` and `owed_files`: see HandleCache. `directory_fd`: descriptor of the directory, to measure it
        wherever it is moved; -1: measure what is at the path."""
        self._path = path
        self._directory_fd = directory_fd
        self._created_files = created_files
        self._owed_files = owed_files
        self._created_before = 0
        """Number of created files at the last measurement."""
        self._min_free_bytes = min_free_bytes
        self._free_bytes = 0
        self._free_files: float = 0
        self._unwritten_bytes = 0
        """Bytes counted by `with taken(...)` statements that still run. They may not be on the disk yet, so each
        measurement subtracts them."""
        self._measured_at = 0.0
        self._refused: dict[DiskUse, dict[str, int]] = {}
        """Uses whose refusal was logged, each with the smallest number of bytes and files that was refused. The log
        says that there is room again only when that much fits; otherwise both messages could alternate."""
        self._told_full: set[tuple[DiskUse, str]] = set()
        """Uses, and what they lack, of which the log says that nothing is left."""
        self.measure()

    def measure(self) -> None:
        """Measure the free bytes and files of the file system."""
        found = os.statvfs(self._path if self._directory_fd < 0 else self._directory_fd)
        self._free_bytes = found.f_bavail * found.f_frsize - self._unwritten_bytes
        # Some file systems (Btrfs, some of networks) have no limit on files, and report a total of 0.
        self._free_files = found.f_favail if found.f_files else math.inf
        self._created_before = self._created_files()
        self._measured_at = time.monotonic()
        if self._refused:
            self._tell_of_room()

    def _tell_of_room(self) -> None:
        if self._has_room(DiskUse.TAKES_ROOM):
            self._refused.clear()
            self._told_full.clear()
            left = self._files_left()
            files = "" if math.isinf(left) else f" and room for {left:,.0f} more files (inodes)"
            _log.warning("the disk of %s has room again: %s%s", self._path, size_text(self._free_bytes), files)
        elif DiskUse.USES_RESERVE in self._refused and self._has_room(DiskUse.USES_RESERVE):
            del self._refused[DiskUse.USES_RESERVE]
            self._told_full -= {each for each in self._told_full if each[0] is DiskUse.USES_RESERVE}
            _log.warning(
                "the disk of %s has room for commits and acks again: %s; writes that take room are still refused",
                self._path,
                size_text(self._free_bytes),
            )

    def _has_room(self, use: DiskUse) -> bool:
        refused = self._refused.get(use, {})
        return (
            self._free_bytes - self._kept_by(use) > refused.get("bytes", 0)
            and self._files_left() - refused.get("files", 0) >= KEPT_FILES * _RESERVE[use]
        )

    def take(self, size_bytes: int, files: int = 0) -> None:
        """Count bytes and files that were accepted."""
        self._free_bytes -= size_bytes
        self._free_files -= files

    @contextmanager
    def taken(self, size_bytes: int) -> Iterator[None]:
        """Count bytes that were accepted and will be written by the end of the `with` statement."""
        self.take(size_bytes)
        self._unwritten_bytes += size_bytes
        try:
            yield
        finally:
            self._unwritten_bytes -= size_bytes

    def check(self, size_bytes: int = 0, use: DiskUse = DiskUse.TAKES_ROOM, files: int = 0) -> None:
        """Raise DiskFullError if a write of this many bytes or files would leave less free space than `use` must leave
        (`_RESERVE`). With `files` 0, free files do not matter. Makes a few system calls a second."""
        # Other programs write, too, and each of them may fill the disk in a second.
        if time.monotonic() - self._measured_at > _MEASURE_AGAIN_SECONDS:
            self.measure()
        kept_bytes = self._min_free_bytes if use is DiskUse.TAKES_ROOM else self._kept_by(use)
        if self._free_bytes - kept_bytes <= size_bytes:
            is_full = self._free_bytes <= kept_bytes
            raise self._refusal(self._bytes_text(kept_bytes), use, "bytes", size_bytes, is_full=is_full)
        if files and self._files_left() - files < (kept_files := int(KEPT_FILES * _RESERVE[use])):
            is_full = self._files_left() <= kept_files
            raise self._refusal(self._files_text(files, kept_files), use, "files", files, is_full=is_full)

    def _files_left(self) -> float:
        return self._free_files - (self._created_files() - self._created_before) - self._owed_files()

    def _kept_by(self, use: DiskUse) -> int:
        return int(self._min_free_bytes * _RESERVE[use])

    def _bytes_text(self, kept_bytes: int) -> str:
        return (
            f"the disk of {self._path} has {size_text(max(0, self._free_bytes))} left, and {size_text(kept_bytes)} are"
            f" kept free for other writes (min_free_disk_bytes is {self._min_free_bytes}); delete topics or groups,"
            " lower retention.bytes or retention.ms of topics, or free some space on the disk, then try again"
        )

    def _files_text(self, files: int, kept_files: int) -> str:
        return (
            f"the disk of {self._path} has room for {max(0, self._files_left()):.0f} more files (inodes), this takes up"
            f" to {files}, and {kept_files} are kept free for writes that make room; delete topics, lower"
            " retention.bytes or retention.ms of topics, or delete files on the disk, then try again"
        )

    def _refusal(self, text: str, use: DiskUse, what: str, asked: int, *, is_full: bool) -> DiskFullError:
        """Log a refusal, unless the log says so already. `is_full`: anything would be refused, however little."""
        refused = self._refused.setdefault(use, {})
        least = refused.get(what)
        # The first refusal may be of a request that no disk could take, which says little about the disk. So a later
        # refusal is logged, too, if it is of at most half as much.
        if least is None or (2 * asked <= least and (use, what) not in self._told_full):
            _log.warning("%s: %s", _REFUSED[use], text)
            if is_full:
                self._told_full.add((use, what))
        refused[what] = asked if least is None else min(asked, least)
        return DiskFullError(text)
