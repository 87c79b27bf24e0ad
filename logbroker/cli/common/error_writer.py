"""Standard error of commands that must not wait for its reader."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import Final, Self

from logbroker.cli.common.lines import PATIENCE_SECONDS, encoded_line, raw_errors
from logbroker.cli.common.standard_output import has_room

_PIECE_BYTES: Final = 4096
"""Maximum bytes of one write. A full pipe has room for them as soon as its reader has read as many."""
_BEHIND_BYTES: Final = 1024 * 1024
"""Maximum bytes that wait for the reader of our standard error. If more wait, commands have to wait, too."""
_LOOK_SECONDS: Final = 0.25
"""The time between two checks whether the reader stands still."""


class _Told(logging.Handler):
    """Shows warnings as lines of this program."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(f"logbroker: {record.getMessage()}")


class ErrorWriter:
    """Writes to standard error in a thread of its own, so that no other thread waits for its reader.

    A reader *stands still* if it has accepted nothing for a while although output waits for it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        """Number of waiting bytes, including those that are being written."""
        self._dropped_bytes = 0
        """Number of dropped bytes that were not reported yet."""
        self._moved_at = 0.0
        """The time when something was last written, or arrived while nothing was waiting."""
        self._closed = False
        self.is_stopping = False
        """Whether the program is stopping and waits for the running commands. From then on, a reader that stands still
        must not hold them up. Signal handlers set it."""
        self._thread = threading.Thread(target=self._work, name="logbroker-stderr", daemon=True)
        self._thread.start()

    def offer(self, data: bytes) -> bool:
        """Accept data if there is room. Drop data if a stop waits and the reader stands still. Return False if the
        caller must keep the data."""
        with self._changed:
            if self._bytes <= _BEHIND_BYTES:
                self._put(data)
            elif self.is_stopping and self._stands_still():
                self._dropped_bytes += len(data)
            else:
                return False
            return True

    def offer_or_drop(self, data: bytes) -> None:
        """Accept data if there is room, and else drop it."""
        with self._changed:
            if self._bytes <= _BEHIND_BYTES:
                self._put(data)
            else:
                self._dropped_bytes += len(data)

    def write(self, data: bytes) -> None:
        """Wait for room, and accept data."""
        with self._changed:
            while self._bytes > _BEHIND_BYTES and not self._closed:
                self._changed.wait()
            self._put(data)

    def write_last(self, data: bytes, until: Callable[[], bool] = lambda: False) -> None:
        """Wait for room, and accept data. Drop the data if the reader stands still or `until` returns True."""
        with self._changed:
            while self._bytes > _BEHIND_BYTES and not self._closed:
                if self._stands_still() or until():
                    self._dropped_bytes += len(data)
                    return
                self._changed.wait(_LOOK_SECONDS)
            self._put(data)

    def tell(self, text: str) -> None:
        """Accept a line of this program, as `write_last` does."""
        self.write_last(encoded_line(text))

    @contextmanager
    def telling(self, log: logging.Logger) -> Iterator[None]:
        """Within the block, show the warnings of a logger on standard error, even if it is no terminal."""
        told = _Told(self.tell)
        log.addHandler(told)
        try:
            yield
        finally:
            log.removeHandler(told)

    def close(self) -> None:
        """Write the waiting data, as long as the reader does not stand still."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        while self._thread.is_alive() and not self._stands_still():
            self._thread.join(_LOOK_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _stands_still(self) -> bool:
        return self._bytes > 0 and monotonic() - self._moved_at >= PATIENCE_SECONDS

    def _put(self, data: bytes) -> None:
        if data and not self._closed:
            self._tell_dropped()
            self._append(data)

    def _tell_dropped(self) -> None:
        if self._dropped_bytes:
            count, self._dropped_bytes = self._dropped_bytes, 0
            self._append(encoded_line(f"logbroker: {count:,} bytes of standard error were dropped: nobody read them"))

    def _append(self, data: bytes) -> None:
        if not self._bytes:
            self._moved_at = monotonic()
        self._waiting.append(data)
        self._bytes += len(data)
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._tell_dropped()
                    if not self._waiting:
                        if self._closed:
                            return
                        self._changed.wait()
                data = self._waiting.popleft()
            done = 0
            while done < len(data):
                written = _write_some(raw_errors().fileno(), data, done)
                done += written
                if written:
                    with self._changed:
                        self._bytes -= written
                        self._moved_at = monotonic()
                        self._changed.notify_all()


def _write_some(fd: int, data: bytes, start: int) -> int:
    """Write the next piece of data and return how many bytes are done. A piece ends at a line end if it contains
    one."""
    end = start + _PIECE_BYTES
    if end < len(data):
        end = data.rfind(b"\n", start, end) + 1 or end
    try:
        return os.write(fd, data[start:end])
    except BlockingIOError:  # Another program has made the pipe non-blocking.
        has_room(fd, _LOOK_SECONDS)
        return 0
    except OSError:  # Nobody reads it any more.
        return len(data) - start
