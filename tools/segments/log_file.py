"""Reads a log file through one window of bounded size. The file may be of any size, and may be growing."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final, Self

import google_crc32c

from logbroker.record.header import CRC_START, HEADER_BYTES, BatchHeader, parse_header
from logbroker.storage.files import named, open_regular
from logbroker.storage.system_calls import pread, pread_into

SCAN_WINDOW_BYTES: Final = 1 << 19
"""The window for reading all bytes. Larger windows leave the CPU's cache."""
HEADERS_WINDOW_BYTES: Final = 4096
"""The window for reading headers only. Several small batches share a read, and of a large batch few needless bytes are
read."""

_PIECE_BYTES: Final = 1 << 16
"""Number of bytes that are copied at once for the CRC, which needs a `bytes` object. The memory of larger objects would
go back to the kernel each time, and cost page faults the next time."""


class LogFile:
    """A log file, open for reading only. The window is one buffer that is filled again and again."""

    def __init__(self, path: str, window_bytes: int = SCAN_WINDOW_BYTES) -> None:
        """Raises OSError."""
        self.path = path
        self._fd = open_regular(path)
        self._window = memoryview(bytearray(window_bytes))
        self._start = 0
        self._end = 0
        self.size_bytes = 0
        """The size at the last `refresh`. Nothing beyond it is read."""
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def refresh(self) -> None:
        """Look up the current size of the file, and empty the window."""
        self.size_bytes = os.fstat(self._fd).st_size
        self._start = self._end = 0

    def header(self, position: int) -> BatchHeader | None:
        """Parse the batch header (61 bytes) at `position`. Return None if fewer bytes are left."""
        end = position + HEADER_BYTES
        if end > self._end or position < self._start:
            if end > self.size_bytes:
                return None
            self._fill(position)
            if end > self._end:
                return None
        return parse_header(self._window, position - self._start)

    def batch_crc(self, position: int, size_bytes: int) -> int:
        """Compute the CRC-32C of the batch at `position`, which may be larger than the window."""
        at, end = position + CRC_START, position + size_bytes
        if end > self._end and size_bytes <= len(self._window):
            self._fill(position)
        crc = 0
        while at < end:
            if not self._start <= at < self._end:
                self._fill(at)
                if at >= self._end:
                    break  # Somebody has cut the file meanwhile: the CRC will not match.
            first = at - self._start
            piece = bytes(self._window[first : min(first + _PIECE_BYTES, end - self._start, self._end - self._start)])
            crc = google_crc32c.extend(crc, piece)
            at += len(piece)
        return crc

    def read(self, position: int, size_bytes: int) -> bytes:
        """Read `size_bytes`, or fewer at the end of the file."""
        with named(self.path):
            return pread(self._fd, max(0, min(size_bytes, self.size_bytes - position)), position)

    def _fill(self, position: int) -> None:
        wanted = min(len(self._window), self.size_bytes - position)
        with named(self.path):
            count = pread_into(self._fd, self._window[:wanted], position) if wanted > 0 else 0
        self._start, self._end = position, position + count
