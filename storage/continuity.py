"""Continuity of a log: the rules for the headers of successive batches, checked wherever they are read.

The CRC of a batch covers neither its base offset nor its length nor its leader epoch. A flipped bit there, or a swapped
segment file, would silently lead a reader past records. So a batch is read only if it begins exactly where the previous
batch ended, has the leader epoch that the log had there, and lies within its segment.

A log may have gaps if another program wrote it (compaction leaves gaps), or if `segment repair --accept-gaps` has
repaired it. Below `gaps_below`, offsets and epochs need only ascend. No I/O.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import google_crc32c
import msgspec

from logbroker.config import MAX_INT64, MAX_STORED_BATCH_BYTES
from logbroker.errors import CorruptLogError
from logbroker.record.header import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    parse_header,
)
from logbroker.storage.files import Buffer
from logbroker.storage.partition_files import EpochStart

_FIELDS: Final = struct.Struct(">qi5s6xi")
"""Fields of a header: base offset, length, leader epoch with magic, and last offset delta."""
_TAG: Final = struct.Struct(">ib")
"""Leader epoch and magic."""
_MIN_LENGTH: Final = HEADER_BYTES - LENGTH_OVERHEAD_BYTES
_FIRST_EPOCH: Final = 0
DAMAGED_CRC: Final = "has another CRC-32C than its header says"
"""Fault of a batch with a wrong CRC."""


class DamagedLogError(CorruptLogError):
    """Raised for a batch that does not continue its log. Says where the batch is, and which offset belongs there."""

    def __init__(self, path: str, position: int, offset: int, fault: str) -> None:
        super().__init__(
            f"{path}: the batch at byte {position}, where offset {offset} belongs, {fault}; nothing is read from there"
            " to the end of the file. Check the files with `logbroker segment verify`, restore this one from a backup,"
            " and start the broker again"
        )
        self.position = position
        self.offset = offset
        """First offset that cannot be read."""
        self.fault = fault


class Followed(msgspec.Struct, gc=False):
    """The part of a chunk whose batches continue each other."""

    size_bytes: int
    """Size of the whole batches that continue each other."""
    next_offset: int
    """Offset after these batches."""
    fault: str = ""
    """Fault of the next batch; "": it has none."""
    wanted_bytes: int = 0
    """Size of the first batch, if the chunk does not hold it completely; else 0."""


class Continuity:
    """The rules of one log."""

    __slots__ = ("_epochs", "_starts", "gaps_below")

    def __init__(self, epochs: Sequence[EpochStart] = (), gaps_below: int = 0) -> None:
        self._epochs = tuple(epochs)
        self._starts = tuple(map(attrgetter("start_offset"), self._epochs))
        self.gaps_below = gaps_below
        """Offset below which batches may leave gaps before them."""

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written; 0 before the first stored epoch."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index].epoch if index >= 0 else _FIRST_EPOCH

    def may_skip_to(self, offset: int) -> bool:
        """Return whether a batch or a segment may begin at `offset` although the previous one ends earlier."""
        return offset < self.gaps_below

    def fault(self, header: BatchHeader, offset: int, before_epoch: int) -> str:
        """Return why a batch does not continue the log at `offset` after a batch of `before_epoch` (-1: not known), or
        "" if it does."""
        base_offset, epoch = header.base_offset, header.leader_epoch
        if header.magic != MAGIC:
            return f"has magic {header.magic}"
        if header.length < _MIN_LENGTH or header.last_offset_delta < 0:
            return "has no valid header"
        if base_offset != offset and not (base_offset > offset and self.may_skip_to(base_offset)):
            return f"has offset {base_offset}"
        if not self.may_skip_to(base_offset):
            expected = self.epoch_at(base_offset)
            if epoch != expected:
                return f"has leader epoch {epoch}, not {expected}"
            if header.length > MAX_STORED_BATCH_BYTES:
                return f"has a length of {header.length} bytes, more than any batch"
        elif epoch < before_epoch or (self._epochs and epoch > self._epochs[-1].epoch):
            return f"has leader epoch {epoch}, after {before_epoch}"
        return ""

    def _stretch(self, offset: int, end_offset: int) -> tuple[int, int]:
        """Return the leader epoch at `offset`, and the offset where this epoch ends, at most `end_offset`."""
        index = bisect_right(self._starts, offset)
        return self.epoch_at(offset), min(end_offset, self._starts[index] if index < len(self._starts) else MAX_INT64)

    def follow(
        self,
        buffer: Buffer,
        offset: int,
        *,
        max_bytes: int,
        limit_bytes: int,
        end_offset: int,
        exact: bool = True,
    ) -> Followed:
        """Follow the batches of a chunk, which begins at `offset`, up to `max_bytes`.

        The readable part of the segment ends `limit_bytes` after the chunk's first byte, at `end_offset`. The buffer
        must reach this end, or also hold the batch header after `max_bytes`, so that it can be checked. A caller may
        leave out that header if it has checked the header itself. With `exact`, the batch before the chunk is known to
        end at `offset`. Without it, `offset` was read from the header of the first batch; if gaps are allowed, nothing
        proves that this header is right.
        """
        if not self.may_skip_to(offset):
            epoch, sure_below = self._stretch(offset, end_offset)
            position, next_offset = _follow_plain(buffer, offset, epoch, min(max_bytes, len(buffer)))
            behind = len(buffer) - position
            if position and next_offset <= sure_below:
                if position == limit_bytes:
                    if next_offset == end_offset:
                        return Followed(position, next_offset)
                elif behind < HEADER_BYTES:
                    if position == max_bytes:
                        return Followed(position, next_offset)
                elif _continues(buffer, position, limit_bytes, next_offset, end_offset, epoch):
                    return Followed(position, next_offset)
        return self._follow_closely(
            buffer, offset, max_bytes=max_bytes, limit_bytes=limit_bytes, end_offset=end_offset, exact=exact
        )

    def _follow_closely(
        self,
        buffer: Buffer,
        offset: int,
        *,
        max_bytes: int,
        limit_bytes: int,
        end_offset: int,
        exact: bool,
    ) -> Followed:
        """Follow the batches of a chunk that the fast path cannot accept: find the fault, and where it begins."""
        available = len(buffer)
        room = min(max_bytes, available)
        epoch = -1
        position = before = 0
        before_offset = offset
        skipped = before_skipped = not exact and self.may_skip_to(offset)
        while available - position >= HEADER_BYTES:
            header = parse_header(buffer, position)
            end = position + header.size_bytes
            fault = self.fault(header, offset, epoch)
            if not fault and end > limit_bytes:
                fault = "is longer than what is left of its segment"
            if not fault and header.next_offset > end_offset:
                fault = f"ends at offset {header.next_offset}, but its segment at {end_offset}"
            if fault:
                disordered = before_skipped and (header.base_offset < offset or header.next_offset > end_offset)
                return self._blamed(buffer, before, position, before_offset, offset, fault, disordered=disordered)
            if end > room:
                if position:
                    break
                return Followed(0, offset, wanted_bytes=end)
            epoch = header.leader_epoch
            skipped = skipped or header.base_offset != offset
            before, before_offset, before_skipped = position, offset, skipped
            skipped = False
            position, offset = end, header.next_offset
        if position == limit_bytes:
            if offset != end_offset and not (offset < end_offset and self.may_skip_to(end_offset)):
                fault = f"is missing: the segment ends there, and the log goes on at offset {end_offset}"
                return self._blamed(buffer, before, position, before_offset, offset, fault, disordered=before_skipped)
        elif position < max_bytes and available - position < HEADER_BYTES:
            fault = f"is cut off: the file ends after {available - position} bytes of it"
            return self._blamed(buffer, before, position, before_offset, offset, fault)
        return Followed(position, offset)

    @staticmethod
    def _blamed(
        buffer: Buffer,
        before: int,
        position: int,
        before_offset: int,
        offset: int,
        fault: str,
        *,
        disordered: bool = False,
    ) -> Followed:
        """Report the batch at `position` as damaged, or the previous batch if its end was wrong."""
        if position and (disordered or not is_intact(bytes(buffer[before:position]))):
            return Followed(before, before_offset, f"does not lead to the next one, which {fault}")
        return Followed(position, offset, fault)


def _follow_plain(buffer: Buffer, offset: int, epoch: int, room: int) -> tuple[int, int]:
    """Follow batches of one epoch without gaps; return the end of the last one within `room`, and the offset after it.

    This runs for each batch that is read, so it is kept short. It checks that each batch begins where the previous
    header says. The caller checks the end of the last batch.
    """
    unpack, tag = _FIELDS.unpack_from, _TAG.pack(epoch, MAGIC)
    position = 0
    last = room - HEADER_BYTES
    while position <= last:
        base_offset, length, found, delta = unpack(buffer, position)
        if base_offset != offset or found != tag or length < _MIN_LENGTH:
            return 0, offset
        end = position + length + LENGTH_OVERHEAD_BYTES
        if end > room:
            break
        offset += delta + 1
        position = end
    return position, offset


def _continues(buffer: Buffer, position: int, limit_bytes: int, offset: int, end_offset: int, epoch: int) -> bool:
    """Return whether the batch after a chunk continues it."""
    base_offset, length, tag, delta = _FIELDS.unpack_from(buffer, position)
    return (
        (base_offset, tag) == (offset, _TAG.pack(epoch, MAGIC))
        and 0 <= delta < end_offset - offset
        and _MIN_LENGTH <= length <= min(MAX_STORED_BATCH_BYTES, limit_bytes - position - LENGTH_OVERHEAD_BYTES)
    )


def first_damaged(batches: bytes) -> tuple[int, int] | None:
    """Return the position and base offset of the first batch with a wrong CRC, or None if all are right. The batches
    must be whole."""
    position = 0
    while position < len(batches):
        header = parse_header(batches, position)
        end = position + header.size_bytes
        if not is_intact(batches[position:end]):
            return position, header.base_offset
        position = end
    return None


def is_intact(batch: bytes) -> bool:
    """Return whether the CRC of a whole batch matches its bytes."""
    crc: int = google_crc32c.value(batch[CRC_START:])
    return crc == parse_header(batch).crc


ANY_ORDER: Final = Continuity(gaps_below=MAX_INT64)
"""Rules for a log that nothing is known about: offsets need only ascend."""
