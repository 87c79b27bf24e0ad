"""A file system in memory of which one call fails, and a partition that lives on it."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence

from logbroker.errors import LogbrokerError
from logbroker.storage.files import Buffer
from tests.faults.crash_disk import MemoryFiles, Op, crash_states
from tests.faults.crash_trace import Trace
from tests.faults.hooked_files import ERRORS, SHORT

CALLS = ("pwritev", "fdatasync", "sync_directory", "open", "rename", "truncate")
PAIRS = [*((call, number) for call in CALLS for number in ERRORS), ("pwritev", SHORT)]
PAIRS.remove(("fdatasync", errno.EMFILE))  # It opens nothing; what lacks a descriptor elsewhere is tried again.


class FailingFiles(MemoryFiles):
    """The `nth` call of one kind fails and does nothing, or writes only the first half."""

    def __init__(self, call: str, error_number: int, nth: int) -> None:
        super().__init__()
        self._call = call
        self._error_number = error_number
        self._left = nth
        self.failed = False
        """Whether it came to that."""

    def _fails(self, call: str, path: str = "") -> bool:
        if call != self._call:
            return False
        self._left -= 1
        if self._left:
            return False
        self.failed = True
        if self._error_number != SHORT:
            raise OSError(self._error_number, os.strerror(self._error_number), path)
        return True

    def open(self, path: str, *, create: bool = False) -> int:
        self._fails("open", path)
        return super().open(path, create=create)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if self._fails("pwritev"):
            whole = b"".join(buffers)
            buffers = [whole[: max(1, len(whole) // 2)]]
        return super().pwritev(fd, buffers, position)

    def fdatasync(self, fd: int) -> None:
        try:
            self._fails("fdatasync")
        except OSError:
            self.ops.append(Op("failed_sync", self._fds[fd]))
            raise
        super().fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        self._fails("sync_directory", path)
        super().sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._fails("rename", source)
        super().rename(source, target)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._fails("truncate")
        super().truncate(fd, size_bytes)


def loses_nothing(seed: int, call: str, error_number: int, nth: int, *, steps: int = 25) -> bool:
    """Let one call fail in the life of a partition; returns whether it came to that.

    Raises AssertionError or LogbrokerError where something is lost then.
    """
    chance = random.Random(seed)
    files = FailingFiles(call, error_number, nth)
    try:
        trace = Trace(seed, files)
    except LogbrokerError:
        return True
    outcome: LogbrokerError | None = None
    try:
        trace.run(steps)
    except LogbrokerError as error:
        outcome = error
    if not files.failed:
        return False
    assert error_number != SHORT or outcome is None, "a short write is gone on with"
    # What a write was cut to is known to nobody: the process ends here, or later by a power cut.
    for state in crash_states(files.ops, len(files.ops), [chance.random()]):
        try:
            trace.check(state)
        except Exception as error:
            error.add_note(f"seed {seed}: {state.about}, after call {nth} of {call} failed: {outcome}")
            raise
    return True
