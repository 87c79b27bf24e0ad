"""Ranks (priorities and timestamps) of the records behind the heads of lanes, by record id.

Ranks are kept in pages of 128 offsets: 9 bytes for each record, and 2 for its share of the page's overhead. A page is
freed when its last rank is taken. So a record that waits for long costs 1.5 KiB if the others of its page are done.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import msgspec

PAGE_SHIFT: Final = 7
_RECORDS: Final = 1 << PAGE_SHIFT
_MASK: Final = _RECORDS - 1
_NO_TIMES: Final = bytes(8 * _RECORDS)


class _Page(msgspec.Struct, gc=False):
    priorities: bytearray
    times: array[int]
    count: int


class Ranks:
    """The ranks of the records behind the heads of lanes."""

    def __init__(self) -> None:
        self._pages: dict[int, _Page] = {}

    @property
    def pages(self) -> int:
        """Number of pages in memory."""
        return len(self._pages)

    def put(self, record_id: int, priority: int, timestamp_ms: int) -> None:
        page = self._pages.get(record_id >> PAGE_SHIFT)
        if page is None:
            page = self._pages[record_id >> PAGE_SHIFT] = _Page(bytearray(_RECORDS), array("q", _NO_TIMES), 0)
        index = record_id & _MASK
        page.priorities[index] = priority
        page.times[index] = timestamp_ms
        page.count += 1

    def take(self, record_id: int) -> tuple[int, int]:
        """Return and forget priority and timestamp of a record."""
        page = self._pages[record_id >> PAGE_SHIFT]
        page.count -= 1
        if not page.count:
            del self._pages[record_id >> PAGE_SHIFT]
        index = record_id & _MASK
        return page.priorities[index], page.times[index]

    @property
    def containers(self) -> list[Any]:
        """The large containers. `clear` replaces them by new ones; the caller of `clear` takes the old ones before, and
        frees them step by step."""
        return [self._pages]

    def clear(self) -> None:
        self._pages = {}
