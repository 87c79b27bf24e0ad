"""Telling operators: a log line for what stands, and for each cause of alarm when it arises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from logbroker.errors import quoted
from logbroker.queues.messages import Notice, NoticeKind
from logbroker.queues.operator import Alarm, AlarmKind, Operator
from logbroker.queues.places import Moment

_log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 10.0


class Alarms:
    """What one queue group has to tell."""

    def __init__(self, group_id: str, operator: Operator, moment: Callable[[], Moment]) -> None:
        self._group_id = group_id
        self._operator = operator
        self._moment = moment
        self._known: set[tuple[AlarmKind, bytes | None, int]] = set()
        self.raised = 0
        """Causes of alarm in this life; one that comes again counts again."""

    def tell(self, notices: Sequence[Notice]) -> None:
        """Log what happened to lanes: one line for those that the same happened to."""
        for kind in NoticeKind:
            told = [notice for notice in notices if notice.kind is kind]
            if told:
                _log.warning(
                    "queue group %s: %d lanes %s, the first of key %s: %s",
                    self._group_id,
                    len(told),
                    kind.value,
                    quoted(told[0].key),
                    quoted(told[0].reason),
                )

    def check(self) -> list[Alarm]:
        """Look for causes of alarm, log those that are new, and return all that there are."""
        alarms = self._operator.alarms(self._moment())
        causes = {(alarm.kind, alarm.key, alarm.place): alarm for alarm in alarms}
        for cause, alarm in causes.items():
            if cause not in self._known:
                self.raised += 1
                _log.warning(
                    "queue group %s: alarm (%s), key %s: %s",
                    self._group_id,
                    alarm.kind.value,
                    quoted(alarm.key),
                    alarm.message,
                )
        self._known = set(causes)
        return alarms

    async def watch(self) -> None:
        """Check again and again, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.check()
