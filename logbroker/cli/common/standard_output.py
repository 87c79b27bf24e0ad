"""Standard output of a command, its errors, and the check of how much the reader of a pipe has taken.

If the reader of a pipe goes away (`| head`, or a pager that is left), the command ends without an error. If standard
output cannot be written for another reason, the command prints one line and exits with 1. Each case has its own
exception class, which no other code catches by mistake. After such an exception the command writes nothing more, except
that it tries to write the buffered output when it ends.
"""

from __future__ import annotations

import errno
import io
import math
import os
import select
import signal
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from types import FrameType
from typing import Any, Final, TypeVar

if sys.platform != "win32":
    import fcntl
    import termios

T = TypeVar("T")

_FIRST_PAUSE_SECONDS: Final = 0.00005
_LAST_PAUSE_SECONDS: Final = 0.01
_TOLD_AFTER_SECONDS: Final = 5.0
"""The time after which the user is told, once, that the reader of a pipe reads nothing."""
_LAST_WAIT_SECONDS: Final = 0.5
"""The time that a reader has after a stop to make room for buffered output. The rest is dropped."""
_PIECES: Final = 16
"""Records are written in pieces. A piece has one record, or up to 1/16 of the number of records that were written
before."""
_FULL_BYTES: Final = 64 * 1024
"""A disk with less free space counts as full, because file systems keep some blocks for themselves."""

CLOSED: Final = "standard output is closed: let it go into a file, a pipe or /dev/null"


class OutputError(Exception):
    """Standard output cannot be written any more."""


class OutputClosedError(OutputError):
    """Nobody reads standard output any more."""


class OutputFailedError(OutputError):
    """Standard output cannot be written, for example because its disk is full."""


class _Output(io.FileIO):
    """Standard output that raises the errors above."""

    is_missing = False
    """Whether the process was started without standard output (`>&-`)."""
    is_over = False
    """Whether the process is ending. If so, buffered output that cannot be written is dropped."""
    is_torn = False
    """Whether a write was interrupted. How much of it was written is unknown, so nothing may be written after it."""
    waits_until: float | None = None
    """The time (monotonic seconds) until which writes wait for a reader, after a stop was requested."""

    def write(self, data: Any, /) -> int:
        if self.is_torn:
            return memoryview(data).nbytes
        if self.waits_until is not None:
            if not has_room(self.fileno(), self.waits_until - monotonic()):
                return memoryview(data).nbytes
            data = memoryview(data).cast("B")[: select.PIPE_BUF]  # There is room for this many bytes.
        if self.is_missing and not self.is_over:
            raise OutputFailedError(CLOSED)
        try:
            # The result is None if another program has made the pipe non-blocking.
            while (written := super().write(data)) is None:
                select.select([], [self.fileno()], [])
        except OSError as error:
            if self.is_over:
                return memoryview(data).nbytes
            if isinstance(error, BrokenPipeError):
                raise OutputClosedError from None
            raise OutputFailedError(_failed_text(error.errno or 0)) from None
        except BaseException:
            self.is_torn = True
            raise
        return written


def has_room(fd: int, wait_seconds: float) -> bool:
    """Wait at most this time, and return whether something can be written without waiting for a reader. An error counts
    as room, because the write then reports it. Requires a system with `poll`."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(max(0.0, wait_seconds) * 1000))


def take_standard_streams() -> None:
    """Make standard output of this process raise the errors above. If the process was started without standard input or
    standard error, input is empty and errors are discarded."""
    is_missing = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # Otherwise the next opened file, for example a connection, would get this number.
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            os.set_inheritable(number, True)  # Commands of `queue work --exec` get it, too.
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    before = sys.stdout
    output = _Output(before.fileno(), "w", closefd=False)
    output.is_missing = is_missing
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=bool(before.line_buffering),
    )


def has_standard_output() -> bool:
    """Whether the process was started with standard output."""
    output = _taken()
    return output is None or not output.is_missing


def end_standard_output() -> None:
    """Write the rest of standard output if possible. Ignores errors."""
    output = _taken()
    if output is not None:
        output.is_over = True
        sys.stdout.flush()


def has_lost_reader() -> bool:
    """Whether standard output is a pipe whose reader is gone."""
    fd = _pipe_of(sys.stdout)
    return fd is not None and _has_no_reader(fd)


def output_trouble() -> str:
    """Return why nothing can be written to standard output, such as a full disk; "" if it can be written, or if the
    reason is unknown. A pipe without a reader does not count.

    Nothing is written to find out, because other processes write to the same file.
    """
    try:
        fd = sys.stdout.fileno()
        mode = os.fstat(fd).st_mode
    except (OSError, ValueError):
        return ""
    if stat.S_ISREG(mode):
        disk = os.fstatvfs(fd)
        free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
        is_full = disk.f_blocks > 0 and free * disk.f_frsize < _FULL_BYTES
        return _failed_text(errno.ENOSPC) if is_full else ""
    if stat.S_ISCHR(mode):
        try:
            os.write(fd, b"")  # A device reports its errors even if nothing is written.
        except BlockingIOError:
            return ""
        except OSError as error:
            return _failed_text(error.errno or 0)
    return ""


def _failed_text(number: int) -> str:
    return f"standard output cannot be written: {os.strerror(number)}"


def stop_waiting_for_readers() -> None:
    """Handle a stop: wait a moment for readers to take the buffered output, then drop the rest."""
    output = _taken()
    if output is not None and output.waits_until is None and hasattr(select, "poll"):
        output.waits_until = monotonic() + _LAST_WAIT_SECONDS


def _taken() -> _Output | None:
    output = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return output if isinstance(output, _Output) else None


class TakenOutput:
    """Standard output for records that count as delivered only when the reader has taken them.

    A pipe may hold more than its reader ever reads: with `| head -1`, hundreds of records. So each piece is written
    only after the reader has taken the previous piece, however long that takes. If it takes several seconds,
    `on_slow_reader` is called once with a line for the user.

    Raises OutputFailedError before any record is requested if there is no standard output.
    """

    def __init__(self, on_slow_reader: Callable[[str], object]) -> None:
        if not has_standard_output():
            raise OutputFailedError(CLOSED)
        self._on_slow_reader: Callable[[str], object] | None = on_slow_reader
        self._out = sys.stdout.buffer
        self._fd = _pipe_of(sys.stdout)
        self._written = 0
        """Number of records written so far."""
        self._is_waiting = False
        """Whether the thread is waiting for the next record."""
        self._has_lost_reader = False

    def while_read(self, coming: Iterable[T]) -> Iterator[T]:
        """Yield the items of `coming`. Raises OutputClosedError if the reader of a pipe goes away while no item
        arrives. Without this check, no write would notice it, and a command with `| head -1` would run until a second
        record arrives."""
        with self._watched():
            waited = iter(coming)
            while True:
                # Set the flag first: the reader may go away in between.
                self._is_waiting = True
                if self._has_lost_reader:
                    raise OutputClosedError
                try:
                    each = next(waited)
                except StopIteration:
                    return
                finally:
                    self._is_waiting = False
                yield each

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Within the block, interrupt a wait of this thread when the reader of the pipe ends."""
        if self._fd is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        fd = self._fd
        over, end = os.pipe()

        def watch() -> None:
            poll = select.poll()
            poll.register(fd, 0)  # `poll` reports errors even if no event is requested.
            poll.register(over, select.POLLIN)
            if all(ready != over for ready, _ in poll.poll()):
                signal.pthread_kill(waiting, signal.SIGPIPE)

        waiting = threading.get_ident()
        before = signal.signal(signal.SIGPIPE, self._lost_reader)
        watcher = threading.Thread(target=watch, name="standard-output", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            os.write(end, b"x")
            watcher.join()
            signal.signal(signal.SIGPIPE, before)
            os.close(over)
            os.close(end)

    def _lost_reader(self, number: int, frame: FrameType | None) -> None:
        # Another pipe, such as standard error, may have lost its reader.
        self._has_lost_reader = self._fd is not None and _has_no_reader(self._fd)
        # While a record is being handled, do not interrupt its settlement or commit: `while_read` raises the error
        # before it takes the next record.
        if self._has_lost_reader and self._is_waiting:
            raise OutputClosedError

    def pieces(self, records: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield records in pieces that are written one by one."""
        done = 0
        while done < len(records):
            count = len(records) if self._fd is None else max(1, self._written // _PIECES)
            piece = records[done : done + count]
            done += len(piece)
            self._written += len(piece)
            yield piece

    def write(self, data: bytes) -> None:
        """Write and flush. Raises OutputClosedError and OutputFailedError."""
        self._out.write(data)
        self._out.flush()

    def wait(self, patience_seconds: float | None = None) -> bool:
        """Wait until the reader has taken everything, at most this time if it is given. Return whether it has.

        Raises OutputClosedError if the reader is gone.
        """
        if self._fd is None:
            return True
        begun = monotonic()
        deadline = math.inf if patience_seconds is None else begun + patience_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        while _unread_bytes(self._fd):
            if _has_no_reader(self._fd):
                raise OutputClosedError
            now = monotonic()
            if now >= deadline:
                return False
            if self._on_slow_reader is not None and now >= begun + _TOLD_AFTER_SECONDS:
                self._on_slow_reader("logbroker: waiting for the reader of standard output to take the last record")
                self._on_slow_reader = None
            sleep(pause_seconds)
            pause_seconds = min(_LAST_PAUSE_SECONDS, 2 * pause_seconds)
        return True


def _pipe_of(stream: Any) -> int | None:
    """Return the descriptor of a pipe, if the system reports how many bytes are in it."""
    if sys.platform == "win32":
        return None
    try:
        fd = int(stream.fileno())
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return None
        _unread_bytes(fd)
    except (OSError, ValueError):
        return None
    return fd


if sys.platform == "win32":

    def _unread_bytes(fd: int) -> int:
        return 0

    def _has_no_reader(fd: int) -> bool:
        return False

else:

    def _unread_bytes(fd: int) -> int:
        """Return the number of bytes in a pipe; 0 on systems that do not report it at the writing end."""
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
        return int(count)

    def _has_no_reader(fd: int) -> bool:
        poll = select.poll()
        poll.register(fd, 0)
        return bool(poll.poll(0))
