"""Where a queue group begins, or begins again, in each partition of its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from logbroker.engine import LogEngine, ReadableLog
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.pacing import Pace
from logbroker.types import TopicId

AT_ONCE: Final = 8
"""Partitions in which a time is looked up at once."""
UNSEEN_END: Final = 1 << 47
"""Stands for the end of a log that is not known: above all offsets, and where a page of what is done begins."""
LOOKUP_STEPS: Final = 10
"""That one lookup takes on the event loop, about."""


class Rewound(msgspec.Struct, frozen=True):
    """A partition that begins elsewhere now, or would."""

    partition: int
    floor_before: int
    floor: int
    standing_records: int = 0
    """Of blocked and parked lanes, below the floor: they stay or, where they are dropped, count as done."""


class StartAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin: at most one of the fields is set; none: with the earliest record."""

    latest: bool = False
    timestamp_ms: int | None = None
    """With the first record at or after it."""
    offset: int | None = None
    """The same in every partition; cut to what the log has."""

    async def offsets(
        self, engine: LogEngine, log: ReadableLog, topic_id: TopicId, partitions: Iterable[int]
    ) -> dict[int, int | LogbrokerError]:
        """Look up the offset for each partition in a topic as `log` has it.

        In place of an offset stands UnknownTopicError, UnknownPartitionError or PartitionOfflineError. Raises
        InvalidRequestError.
        """
        for name in ("timestamp_ms", "offset"):
            if (getattr(self, name) or 0) < 0:
                raise InvalidRequestError(f"{name} is {getattr(self, name)}: give one that is not negative")
        pace = Pace()
        found: dict[int, int | LogbrokerError] = {}
        numbers = list(dict.fromkeys(partitions))
        if self.timestamp_ms is None:
            for partition in numbers:
                found[partition] = await self._offset(engine, log, topic_id, partition)
                await pace.step(2)
            return found
        for start in range(0, len(numbers), AT_ONCE):
            part = numbers[start : start + AT_ONCE]
            offsets = await asyncio.gather(*(self._offset(engine, log, topic_id, partition) for partition in part))
            found.update(zip(part, offsets, strict=True))
            await pace.step(LOOKUP_STEPS * len(part))
        return found

    def offset_unseen(self) -> int | None:
        """Return where to begin in a partition that is offline; None: that cannot be said before it is back.

        The first start that finds it again cuts an offset behind the end of its log down to the end, and nothing is
        appended before: so the highest one there is stands for the end as it is now.
        """
        if self.latest:
            return UNSEEN_END
        return None if self.timestamp_ms is not None else self.offset or 0

    async def _offset(
        self, engine: LogEngine, log: ReadableLog, topic_id: TopicId, partition: int
    ) -> int | LogbrokerError:
        try:
            facts = log.partition_facts(topic_id, partition)
            if self.latest:
                return facts.high_watermark
            if self.offset is not None:
                return max(facts.log_start_offset, min(self.offset, facts.high_watermark))
            if self.timestamp_ms is not None:
                offset = (await engine.offset_for_time(topic_id, partition, self.timestamp_ms)).offset
                return facts.high_watermark if offset < 0 else offset
        except LogbrokerError as error:
            return error.as_value()
        return facts.log_start_offset
