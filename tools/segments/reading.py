"""Reads the records of segments, as far as they can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from logbroker.errors import (
    BatchExpandsTooFarError,
    CorruptBatchError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)
from logbroker.record.codec import LogRecord, decode_batch
from logbroker.record.compression import Codec, decompress
from logbroker.record.header import CODEC_MASK, HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, BatchHeader
from logbroker.tools.segments.batch_checks import Fault
from logbroker.tools.segments.locate import SegmentFile
from logbroker.tools.segments.log_file import HEADERS_WINDOW_BYTES, SCAN_WINDOW_BYTES, LogFile
from logbroker.tools.segments.scan import BRIEF_SECONDS, LIVE_SECONDS, LogScan

Progress = Callable[[int], None]
"""A function that is called with the number of bytes read since its last call."""

UNREADABLE: Final = (BatchExpandsTooFarError, CorruptBatchError, UnsupportedCompressionError, UnsupportedFormatError)
"""The exceptions that decoding a batch may raise."""

_MAX_DECODED_BYTES: Final = 1 << 26
"""Maximum size of a decoded batch. Larger batches are reported, but not decoded."""
_PROGRESS_BYTES: Final = 1 << 22


class SegmentBatch(msgspec.Struct, gc=False):
    """A batch and its position in the log."""

    position: int
    header: BatchHeader
    log: LogFile

    def plain(self) -> bytes:
        """Read the batch and return it without compression. Raises one of UNREADABLE."""
        header = self.header
        if header.size_bytes > _MAX_DECODED_BYTES:
            raise BatchExpandsTooFarError(f"the batch has {header.size_bytes} bytes, too many to decode")
        batch = self.log.read(self.position, header.size_bytes)
        if not header.codec:
            return batch
        records = bytes(decompress(Codec(header.codec), batch[HEADER_BYTES:], _MAX_DECODED_BYTES))
        fields = list(msgspec.structs.astuple(header))
        fields[1] = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(records)
        fields[5] &= ~CODEC_MASK
        return HEADER.pack(*fields) + records


class SegmentReading:
    """One pass through the good batches of a segment. Damage is skipped and noted."""

    def __init__(
        self, segment: SegmentFile, progress: Progress, *, live: bool = False, headers_only: bool = False
    ) -> None:
        """`live` says that a broker may be writing to the segment. With `headers_only`, only the headers of batches are
        read, and damage elsewhere is not noticed."""
        self.segment = segment
        self.faults: list[Fault] = []
        self.size_bytes = 0
        self._progress = progress
        self._headers_only = headers_only
        self._patience_seconds = LIVE_SECONDS if live else BRIEF_SECONDS

    def batches(self) -> Iterator[SegmentBatch]:
        """Yield the good batches. Yield none if a running broker has removed the file meanwhile. Raises OSError."""
        try:
            log = LogFile(self.segment.path, HEADERS_WINDOW_BYTES if self._headers_only else SCAN_WINDOW_BYTES)
        except FileNotFoundError:
            return
        with log:
            scan = LogScan(
                log,
                self.segment.base_offset,
                check_crc=not self._headers_only,
                resume=True,
                patience_seconds=self._patience_seconds,
            )
            self.faults = scan.faults
            told = 0
            for position, header in scan.batches():
                yield SegmentBatch(position, header, log)
                if position - told >= _PROGRESS_BYTES:
                    self._progress(position - told)
                    told = position
            self.size_bytes = log.size_bytes
            self._progress(log.size_bytes - told)


def records_of(plain_batch: bytes) -> Iterator[LogRecord]:
    """Decode what `SegmentBatch.plain` returned. Raises one of UNREADABLE."""
    return decode_batch(plain_batch)
