"""Reading a log file that may be of any size, and growing, through one window of bounded size."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final, Self

import google_crc32c

from logbroker.record.header import CRC_START, HEADER_BYTES, BatchHeader, parse_header
from logbroker.storage.files import open_regular
from logbroker.storage.system_calls import pread, pread_into

SCAN_WINDOW_BYTES: Final = 1 << 19
"""The window for reading all bytes. Larger windows leave the CPU's cache."""
HEADERS_WINDOW_BYTES: Final = 4096
"""The window for reading headers only. Small batches share a read, and little of a large batch is read in vain."""

_PIECE_BYTES: Final = 1 << 16
"""Copied at a time for the CRC, which takes nothing but bytes. Larger objects would be given back to the kernel when
they are freed, and their pages faulted in anew."""


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
        """Take note of the file's present size, and forget what was read."""
        self.size_bytes = os.fstat(self._fd).st_size
        self._start = self._end = 0

    def header(self, position: int) -> BatchHeader | None:
        """Parse the 61 bytes at `position`; None: fewer are left."""
        end = position + HEADER_BYTES
        if end > self._end or position < self._start:
            if end > self.size_bytes:
                return None
            self._fill(position)
            if end > self._end:
                return None
        return parse_header(self._window, position - self._start)

    def batch_crc(self, position: int, size_bytes: int) -> int:
        """Compute the CRC-32C of the batch that lies at `position`, however large it is."""
        at, end = position + CRC_START, position + size_bytes
        if end > self._end and size_bytes <= len(self._window):
            self._fill(position)
        crc = 0
        while at < end:
            if not self._start <= at < self._end:
                self._fill(at)
                if at >= self._end:
                    break  # cut short by somebody meanwhile; the CRC will not match
            first = at - self._start
            piece = bytes(self._window[first : min(first + _PIECE_BYTES, end - self._start, self._end - self._start)])
            crc = google_crc32c.extend(crc, piece)
            at += len(piece)
        return crc

    def read(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes`, less only at the end."""
        return pread(self._fd, max(0, min(size_bytes, self.size_bytes - position)), position)

    def _fill(self, position: int) -> None:
        wanted = min(len(self._window), self.size_bytes - position)
        count = pread_into(self._fd, self._window[:wanted], position) if wanted > 0 else 0
        self._start, self._end = position, position + count
