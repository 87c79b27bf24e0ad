"""Alarms of a queue group: log lines for blocked lanes, parked lanes and dead letters, at most one a minute of each
kind, and for each new cause of alarm."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from logbroker.errors import quoted, quoted_key
from logbroker.pacing import Pace, Steps, in_turns
from logbroker.queues.machine.inspect import Alarm, AlarmKind, Inspector
from logbroker.queues.model.messages import Notice, NoticeKind
from logbroker.queues.model.record_id import Moment

_log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 10.0
CHECK_SHARE: Final = 0.01
"""Maximum share of the time that checks take. Each check examines all held lanes, all long lanes, and the oldest
record of each partition."""
MAX_LINES: Final = 20
"""Maximum number of log lines that one check writes."""
SUMMARY_SECONDS: Final = 60.0
"""Minimum time between two log lines for events of the same kind. The events between are counted, and told together: a
stream of dead letters hides no other warnings."""


class Alarms:
    """The alarms of one queue group: finds their causes and logs each new one once."""

    def __init__(
        self,
        group_id: str,
        inspector: Inspector,
        retention_alarms: Callable[[], Steps[list[Alarm]]],
        moment: Callable[[], Moment],
    ) -> None:
        self._group_id = group_id
        self._inspector = inspector
        self._retention_alarms = retention_alarms
        self._moment = moment
        self._untold = {kind: _Untold() for kind in NoticeKind}
        self._known: set[tuple[AlarmKind, bytes | None, int]] = set()
        self.raised = 0
        """Number of alarms raised in this group epoch; a cause that returns counts again."""

    def tell(self, notices: Sequence[Notice]) -> None:
        """Log the events of lanes: one line for all events of the same kind. If the last line of this kind is less than
        SUMMARY_SECONDS old, `watch` logs the events later."""
        for notice in notices:
            self._untold[notice.kind].add(notice)
        self._tell_due()

    def _tell_due(self, *, all_left: bool = False) -> None:
        """Log the events that have waited long enough, or all that are left."""
        now = self._moment().seconds
        for kind, untold in self._untold.items():
            if (events := untold.take(now, all_left=all_left)) is not None:
                count, is_more, told = events
                first = "without a key" if told.key is None else f"of key {quoted_key(told.key)}"
                what = "record" if kind is NoticeKind.DEAD_LETTERED else "lane"
                what = f"{'more ' if is_more else ''}{what}{'' if count == 1 else 's'}"
                text = "queue group %s: %d %s %s, the first %s: %s"
                _log.warning(text, self._group_id, count, what, kind.value, first, quoted(told.reason))

    async def check(self) -> list[Alarm]:
        """Find all current alarms, log the new ones, and return all of them."""
        return await in_turns(self.checking(), Pace())

    def checking(self) -> Steps[list[Alarm]]:
        """See `check`."""
        alarms = yield from self._inspector.find_alarms(self._moment())
        alarms += yield from self._retention_alarms()
        causes = {(alarm.kind, alarm.key, alarm.record_id): alarm for alarm in alarms}
        new = [alarm for cause, alarm in causes.items() if cause not in self._known]
        self.raised += len(new)
        for alarm in new[:MAX_LINES]:
            key = "" if alarm.key is None else f", key {quoted_key(alarm.key)}"
            _log.warning("queue group %s: alarm (%s)%s: %s", self._group_id, alarm.kind.value, key, alarm.message)
        if len(new) > MAX_LINES:
            _log.warning("queue group %s: %d more alarms", self._group_id, len(new) - MAX_LINES)
        self._known = set(causes)
        return alarms

    async def watch(self) -> None:
        """Check, and log the events that are due, again and again. Log all that are left when cancelled."""
        loop = asyncio.get_running_loop()
        next_check = 0.0
        try:
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                self._tell_due()
                if (begun := loop.time()) >= next_check:
                    await self.check()
                    next_check = loop.time() + (loop.time() - begun) / CHECK_SHARE
        finally:
            self._tell_due(all_left=True)


class _Untold:
    """The events of one kind that are not in the log yet."""

    def __init__(self) -> None:
        self._count = 0
        self._first: Notice | None = None
        self._told_at = -math.inf
        self._have_waited = False
        """Whether they follow a log line, so that they are more of what it told."""

    def add(self, notice: Notice) -> None:
        self._first = self._first or notice
        self._count += 1

    def take(self, now: float, *, all_left: bool) -> tuple[int, bool, Notice] | None:
        """Return the number of events, whether they are more of the same, and the first one; None: there is nothing to
        log at this monotonic time."""
        if self._first is None:
            return None
        if now < self._told_at + SUMMARY_SECONDS:
            self._have_waited = True
            if not all_left:
                return None
        taken = (self._count, self._have_waited, self._first)
        self._count, self._first, self._told_at, self._have_waited = 0, None, now, False
        return taken
