"""Turns for the scans of queue groups that nobody uses now: one group at a time looks for new records in the log.

The cost of a look grows with the number of records that were appended since the last look of the group. All looks
together therefore get a small share of the event loop, however many groups there are. A single group is hardly behind
the log, but a thousand groups wait for their turns. A caller that needs a group rouses it, and does not wait for a
turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

LOOK_SHARE: Final = 0.03
"""Maximum share of the time that looks take."""
LEAST_PAUSE_SECONDS: Final = 0.02
"""Shortest pause between two looks."""
LONGEST_LOOK_SECONDS: Final = 1.0
"""Time after which the next group gets its turn, even if the last look is not over: a slow read may hold it up."""


class Rests:
    """The resting groups of one broker. Everything runs on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._line: deque[asyncio.Future[bool]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._free_at = 0.0
        """Earliest time of the next look (the event loop's clock)."""

    def join(self) -> asyncio.Future[bool]:
        """Return a future that becomes True when it is this group's turn to look and then to call `looked`. A group
        that stops waiting sets it to False or cancels it."""
        turn: asyncio.Future[bool] = self._loop.create_future()
        self._line.append(turn)
        if self._timer is None:
            self._arm()
        return turn

    def looked(self, seconds: float) -> None:
        """Note that a look is over. `seconds`: the time that it took, including other tasks that ran meanwhile."""
        self._free_at = self._loop.time() + seconds / LOOK_SHARE
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            due = max(self._free_at, self._loop.time() + LEAST_PAUSE_SECONDS)
            self._timer = self._loop.call_at(due, self._give_turn)

    def _give_turn(self) -> None:
        self._timer = None
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                self._free_at = self._loop.time() + LONGEST_LOOK_SECONDS
                turn.set_result(True)
                break
        self._arm()
