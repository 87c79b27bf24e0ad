"""When the scans of queue groups that nobody uses look at what is new: one at a time, and seldom enough.

What a look takes grows with what was appended, for each group anew. So all looks together get a small share of the
event loop, however many groups there are and however much is appended: one group alone is hardly behind the log, and of
a thousand each waits for its turn. A group that somebody needs does not: it is roused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

LOOK_SHARE: Final = 0.03
"""Of the time, at most, goes into looks."""
LEAST_PAUSE_SECONDS: Final = 0.02
"""Between two looks."""
LONGEST_LOOK_SECONDS: Final = 1.0
"""Others wait no longer for one: it may be held up by what cannot be read now."""


class Rests:
    """The groups that rest, of one broker. Everything runs on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._line: deque[asyncio.Future[bool]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._free_at = 0.0
        """When the next look may be."""

    def join(self) -> asyncio.Future[bool]:
        """Return a future that is True when it is this group's turn to look, and to tell `looked`. Who does not want to
        wait any longer settles it with False, or cancels it."""
        turn: asyncio.Future[bool] = self._loop.create_future()
        self._line.append(turn)
        if self._timer is None:
            self._arm()
        return turn

    def looked(self, seconds: float) -> None:
        """A look whose turn it was is over. It took so long, or less: others had their turns meanwhile."""
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
