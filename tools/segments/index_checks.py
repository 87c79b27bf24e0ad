"""Checks of index entries, made while the batches of the log are read. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from logbroker.storage.index_file import OFFSET_ENTRY, TIME_ENTRY

MAX_FAULTS: Final = 20
"""Maximum number of findings reported for an index. More are not needed, because the whole index is rebuilt."""

_NOWHERE: Final = 2**63 - 1


class IndexFault(msgspec.Struct, frozen=True):
    """A wrong entry."""

    position: int
    """Position of the entry in the index file."""
    reason: str


class _IndexCheck:
    """Checks the entries one by one. Both of their columns must ascend."""

    def __init__(self, content: bytes, entry: struct.Struct, *, strict: bool) -> None:
        """With `strict`, the index must be as this broker writes it, otherwise as Kafka may write it."""
        self.faults: list[IndexFault] = []
        self.loose = 0
        """Number of entries that are right but less precise than possible, as old versions of Kafka write them."""
        self.beyond: tuple[int, int] | None = None
        """Position of the first entry for a batch beyond the end of the log, and the highest offset (relative) of these
        entries. Either the log has lost its end, or the index is damaged."""
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
        self._last = -1
        """Last relative offset of the log so far."""
        self._first, self._second = -1, -1
        self._advance()

    def _advance(self) -> None:
        """Go to the next entry that ascends from the last one."""
        for first, second in self._entries:
            self.entries += 1
            if self._ascends(first, second):
                self._first, self._second = first, second
                return
            self._entry_fault(f"({first}, {second}) does not ascend from ({self._first}, {self._second})")
        self._first = self._second = _NOWHERE

    def _ascends(self, first: int, second: int) -> bool:
        return first > self._first and second > self._second

    def _note_beyond(self, offset: int) -> None:
        first = self.beyond[0] if self.beyond is not None else (self.entries - 1) * self._size
        self.beyond = first, offset  # Offsets ascend.

    def _entry_fault(self, reason: str) -> None:
        self._fault((self.entries - 1) * self._size, reason)

    def _fault(self, position: int, reason: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(IndexFault(position, reason))


class OffsetIndexCheck(_IndexCheck):
    """Checks an offset index. An entry has the position of a batch and the last offset of that batch."""

    def __init__(self, content: bytes, *, strict: bool) -> None:
        super().__init__(content, OFFSET_ENTRY, strict=strict)

    def batch(self, position: int, first: int, last: int) -> None:
        """Check the entries up to a batch at `position` with these relative offsets."""
        self._last = last
        while self._second <= position:
            if self._second < position:
                self._entry_fault(f"it leads to byte {self._second}, where no batch begins")
            elif self._first != last:
                # If Kafka before 4.0 appends several batches, its entry has the last offset of the last batch.
                if self._strict or self._first < first:
                    self._entry_fault(
                        f"it says offset {self._first} (relative), the batch at byte {position} ends at {last}"
                    )
                else:
                    self.loose += 1
            self._advance()

    def skip(self, end: int) -> None:
        """Skip entries that lead into damage. The damage ends at `end`."""
        while self._second < end:
            self._advance()

    def finish(self, end: int) -> None:
        """Check the remaining entries. The log ends at `end`."""
        while self._second != _NOWHERE:
            if self._first > self._last:
                self._note_beyond(self._first)
            else:
                self._entry_fault(f"it leads to byte {self._second}, but the log ends at {end}")
            self._advance()


class TimeIndexCheck(_IndexCheck):
    """Checks a time index. An entry is a timestamp and an offset. It says: no record before the batch that contains
    this offset is younger than this timestamp."""

    def __init__(self, content: bytes, *, strict: bool, ceiling_ms: int = -1) -> None:
        """`ceiling_ms` is the youngest timestamp that the broker knows. A record that was lost in a crash may have had
        it."""
        super().__init__(content, TIME_ENTRY, strict=strict)
        self._ceiling = ceiling_ms
        self._told = -1
        self._largest = -1
        self._blind = False

    def _ascends(self, first: int, second: int) -> bool:
        return first > self._first and (second > self._second or (second == self._second and not self._strict))

    def batch(self, last: int, max_timestamp_ms: int) -> None:
        """Check the entries up to the next batch, which ends at the relative offset `last`."""
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
        """Note that there is damage, so that the timestamps of the damaged batches are unknown."""
        self._blind = True

    def finish(self, *, closed: bool) -> None:
        """Check the remaining entries at the end of the log. The index of a closed log has an entry for its youngest
        record."""
        # An entry of 0 ms may consist of zeros only, like the space that Kafka reserves and does not use.
        told = max(self._told, 0)
        if self._strict and closed and self._second == _NOWHERE and not self._blind and told < self._largest:
            self._fault(
                self.entries * self._size, f"it ends at {self._told} ms, the youngest record is of {self._largest} ms"
            )
        while self._second != _NOWHERE:
            if not self._blind:
                self._note_beyond(self._second)
            self._advance()
