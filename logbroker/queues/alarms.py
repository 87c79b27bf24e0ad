"""Alarms of a queue group: log lines for blocked lanes, parked lanes and dead letters, and for each new cause of
alarm."""

from __future__ import annotations

import asyncio
import logging
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


class Alarms:
    """The alarms of one queue group: finds their causes and logs each new one once."""

    def __init__(self, group_id: str, inspector: Inspector, moment: Callable[[], Moment]) -> None:
        self._group_id = group_id
        self._inspector = inspector
        self._moment = moment
        self._known: set[tuple[AlarmKind, bytes | None, int]] = set()
        self.raised = 0
        """Number of alarms raised in this group epoch; a cause that returns counts again."""

    def tell(self, notices: Sequence[Notice]) -> None:
        """Log the events of lanes: one line for all events of the same kind."""
        for kind in NoticeKind:
            told = [notice for notice in notices if notice.kind is kind]
            if told:
                first = "without a key" if told[0].key is None else f"of key {quoted_key(told[0].key)}"
                what = "record" if kind is NoticeKind.DEAD_LETTERED else "lane"
                count = f"1 {what}" if len(told) == 1 else f"{len(told)} {what}s"
                text = "queue group %s: %s %s, the first %s: %s"
                _log.warning(text, self._group_id, count, kind.value, first, quoted(told[0].reason))

    async def check(self) -> list[Alarm]:
        """Find all current alarms, log the new ones, and return all of them."""
        return await in_turns(self.checking(), Pace())

    def checking(self) -> Steps[list[Alarm]]:
        """See `check`."""
        alarms = yield from self._inspector.find_alarms(self._moment())
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
        """Check again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        pause_seconds = CHECK_SECONDS
        while True:
            await asyncio.sleep(pause_seconds)
            begun = loop.time()
            await self.check()
            pause_seconds = max(CHECK_SECONDS, (loop.time() - begun) / CHECK_SHARE)
