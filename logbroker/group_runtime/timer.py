"""A timer that calls the state machine of a group when its next deadline is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from logbroker.group_runtime.deadline_heap import NEVER

LATE_SECONDS: Final = 0.1
"""If a timer is later than this, the process has stalled. The timer then waits for as long as this once more, so that
requests of members and workers are read before their deadlines are checked."""


class Timer:
    """Calls back at the deadlines that it is given. It keeps one deadline at a time, and may call back too early."""

    def __init__(self, on_time: Callable[[], None]) -> None:
        self._on_time = on_time
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._is_stopped = False

    def arm(self, deadline: float) -> None:
        """Call back at this monotonic time or earlier; NEVER: no new deadline."""
        if deadline == NEVER or self._is_stopped:
            return
        if self._handle is not None:
            if self._deadline <= deadline:
                return
            self._handle.cancel()
        self._deadline = deadline
        self._handle = self._loop.call_at(deadline, self._due)

    def stop(self) -> None:
        self._is_stopped = True
        if self._handle is not None:
            self._handle.cancel()

    def _due(self) -> None:
        if self._loop.time() - self._deadline > LATE_SECONDS:
            self._handle = self._loop.call_later(LATE_SECONDS, self._call)
        else:
            self._call()

    def _call(self) -> None:
        self._handle = None
        self._on_time()
