"""Checks of index entries, made while the batches of the log are read. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from logbroker.storage.index_file import OFFSET_ENTRY, TIME_ENTRY

MAX_FAULTS: Final = 20
"""The most findings reported for an index, which is rebuilt anyway."""

_NOWHERE: Final = 2**63 - 1


class IndexFault(msgspec.Struct, frozen=True):
    """A wrong entry."""

    position: int
    """Position of the entry in the index file."""
    reason: str


class _IndexCheck:
    """Takes the entries one by one; both of its columns must ascend."""

    def __init__(self, content: bytes, entry: struct.Struct, *, strict: bool) -> None:
        """`strict`: as this broker writes it; else as Kafka may have."""
        self.faults: list[IndexFault] = []
        self.loose = 0
        """Number of entries that lead to the right place, but say less than they could, as old versions of Kafka write
        them."""
        self.entries = 0
        whole = len(content) - len(content) % entry.size
        if whole < len(content):
            self._fault(whole, f"{len(content) - whole} bytes are left, too few for an entry")
        # Kafka makes index files larger than they need to be, and cuts them when it closes them.
        used = len(content[:whole].rstrip(b"\0"))
        used += -used % entry.size
        self._strict = strict
        self._size = entry.size
        self._entries: Iterator[tuple[int, int]] = entry.iter_unpack(content[:used])
        self._first, self._second = -1, -1
        self._advance()

    def _advance(self) -> None:
        """Go on to the next entry that follows on the last."""
        for first, second in self._entries:
            self.entries += 1
            if self._ascends(first, second):
                self._first, self._second = first, second
                return
            self._entry_fault(f"({first}, {second}) does not ascend from ({self._first}, {self._second})")
        self._first = self._second = _NOWHERE

    def _ascends(self, first: int, second: int) -> bool:
        return first > self._first and second > self._second

    def _entry_fault(self, reason: str) -> None:
        self._fault((self.entries - 1) * self._size, reason)

    def _fault(self, position: int, reason: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(IndexFault(position, reason))


class OffsetIndexCheck(_IndexCheck):
    """An entry names the last offset of the batch that begins at its position."""

    def __init__(self, content: bytes, *, strict: bool) -> None:
        super().__init__(content, OFFSET_ENTRY, strict=strict)

    def batch(self, position: int, first: int, last: int) -> None:
        """Take note of a batch at `position` with these relative offsets."""
        while self._second <= position:
            if self._second < position:
                self._entry_fault(f"it leads to byte {self._second}, where no batch begins")
            elif self._first != last:
                # Kafka before 4.0 indexes an append of several batches by the last of them.
                if self._strict or self._first < first:
                    self._entry_fault(
                        f"it says offset {self._first} (relative), the batch at byte {position} ends at {last}"
                    )
                else:
                    self.loose += 1
            self._advance()

    def skip(self, end: int) -> None:
        """Pass over entries that lead into damage which ends at `end`."""
        while self._second < end:
            self._advance()

    def finish(self, end: int) -> None:
        """Take note that the log ends at `end`."""
        while self._second != _NOWHERE:
            self._entry_fault(f"it leads to byte {self._second}, but the log ends at {end}")
            self._advance()


class TimeIndexCheck(_IndexCheck):
    """An entry says that no record before the batch of its offset is younger than its timestamp."""

    def __init__(self, content: bytes, *, strict: bool, ceiling_ms: int = -1) -> None:
        """`ceiling_ms`: the youngest timestamp as the broker has it; records that a crash took may have had it."""
        super().__init__(content, TIME_ENTRY, strict=strict)
        self._ceiling = ceiling_ms
        self._told = -1
        self._largest = -1
        self._last = -1
        self._blind = False

    def _ascends(self, first: int, second: int) -> bool:
        return first > self._first and (second > self._second or (second == self._second and not self._strict))

    def batch(self, last: int, max_timestamp_ms: int) -> None:
        """Take note of the next batch, which ends at the relative offset `last`."""
        before = self._largest
        if max_timestamp_ms > before:
            self._largest = max_timestamp_ms
        self._last = last
        while self._second <= last:
            self._told = self._first
            if self._blind or self._first in (self._largest, self._ceiling):
                pass
            elif self._first < before:
                self._entry_fault(f"it says {self._first} ms, but a record of {before} ms comes before it")
            elif self._strict:
                self._entry_fault(f"it says {self._first} ms, but the youngest record is of {self._largest} ms")
            else:
                self.loose += 1
            self._advance()

    def skip(self) -> None:
        """Take note of damage: which timestamps were there is not known any more."""
        self._blind = True

    def finish(self, *, closed: bool) -> None:
        """Take note that the log has ended; a closed one has an entry for its youngest record."""
        # An entry of 0 ms may be all zeros, as is what Kafka reserves and does not use.
        told = max(self._told, 0)
        if self._strict and closed and self._second == _NOWHERE and not self._blind and told < self._largest:
            self._fault(
                self.entries * self._size, f"it ends at {self._told} ms, the youngest record is of {self._largest} ms"
            )
        while self._second != _NOWHERE:
            if not self._blind:
                self._entry_fault(f"it leads to offset {self._second} (relative), but the log ends at {self._last}")
            self._advance()
