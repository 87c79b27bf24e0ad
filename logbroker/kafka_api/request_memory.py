"""The memory for requests of all Kafka connections: a connection reads a large request only when there is room.

Memory is taken for a whole request before the request is read, in the order of arrival. So a request that has arrived
in part needs nothing more, and several of them never wait for each other: each arrives as a whole, or its connection
ends because its client has stopped (`connection`). Either way its memory comes back, and the next in line is served. A
request that has arrived waits for none that has not.

Small requests of a connection that has no other request in flight need no room: they
keep clients alive, and there are only as many of them as connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 16 * 1024
"""Maximum size of a request that needs no room."""


class RequestMemory:
    """Counts the bytes of requests from their first byte to their answer."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = max(total_bytes, 1)
        self.free_bytes = self._total_bytes
        """Free bytes. Negative if small requests, or one request that is larger than all memory, have taken more."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def take(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """Take memory, and return True. If there is no room, return False, and call `granted` once it is taken."""
        if not self._waiting and self._has_room(size_bytes):
            self.free_bytes -= size_bytes
            return True
        self._waiting.append((size_bytes, granted))
        return False

    def hold(self, size_bytes: int) -> None:
        """Take memory for a small request, whether there is room or not."""
        self.free_bytes -= size_bytes

    def release(self, size_bytes: int) -> None:
        """Give memory back, and grant it to those that wait."""
        self.free_bytes += size_bytes
        while self._waiting and self._has_room(self._waiting[0][0]):
            taken_bytes, granted = self._waiting.popleft()
            self.free_bytes -= taken_bytes
            granted()

    def forget(self, granted: Callable[[], None]) -> None:
        """Stop waiting for memory that was asked for with `granted`."""
        self._waiting = deque(each for each in self._waiting if each[1] != granted)

    def _has_room(self, size_bytes: int) -> bool:
        return self.free_bytes >= size_bytes or self.free_bytes >= self._total_bytes
