"""The offsets at which a queue group begins, or begins again, in each partition of its topic."""

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
"""Number of partitions in which a time is looked up concurrently."""
UNSEEN_END: Final = 1 << 47
"""Stands for the unknown end of a log: it is above all offsets, and a multiple of the size of a completion page."""
LOOKUP_STEPS: Final = 10
"""Approximate cost of one lookup on the event loop."""


class Rewound(msgspec.Struct, frozen=True):
    """The rewind of one partition, carried out or, in a dry run, only computed."""

    partition: int
    floor_before: int
    floor: int
    standing_records: int = 0
    """Number of records of blocked and parked lanes below the new floor. The records stay where they are, or count as
    done if the operator drops them."""
    skipped_records: int = 0
    """Number of other records below the new floor that are not done. They count as done from now on. It is counted just
    before the rewind."""
    unreadable_records: int = 0
    """Number of these other records that were searched for records of blocked and parked lanes, and could not be read
    because the log is damaged there."""


class StartAt(msgspec.Struct, frozen=True, kw_only=True):
    """The position to begin at. At most one field is set; if none is set, the group begins with the earliest record."""

    latest: bool = False
    timestamp_ms: int | None = None
    """Begin with the first record at or after this time."""
    offset: int | None = None
    """Begin with this offset in every partition, moved into the range of the log."""

    async def offsets(
        self, engine: LogEngine, log: ReadableLog, topic_id: TopicId, partitions: Iterable[int]
    ) -> dict[int, int | LogbrokerError]:
        """Look up the offset at which to begin in each partition. `log` reports the bounds of the partitions.

        A partition that fails gets UnknownTopicError, UnknownPartitionError or PartitionOfflineError in place of its
        offset. Raises InvalidRequestError.
        """
        for name in ("timestamp_ms", "offset"):
            if (getattr(self, name) or 0) < 0:
                raise InvalidRequestError(f"{name} is {getattr(self, name)}: give one that is not negative")
        pace = Pace()
        found: dict[int, int | LogbrokerError] = {}
        numbers = list(dict.fromkeys(partitions))
        unknown = await engine.learn_ends(topic_id, numbers)
        if self.timestamp_ms is None:
            for partition in numbers:
                if self.latest and partition in unknown:
                    found[partition] = unknown[partition]
                    continue
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
        """Return the offset at which to begin in a partition that is offline. Return None if it cannot be known before
        the partition is back.

        An offline partition takes no records before the broker starts again. That start lowers any offset above the end
        of the log to the end. So the highest possible offset means the current end of the log.
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
