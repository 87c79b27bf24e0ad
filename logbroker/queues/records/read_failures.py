"""Records that could not be read from the log when they were to be handed out. Their lanes wait, and the records are
tried again.

No attempt is counted, because no worker has seen the record. The pauses grow, because each try costs work for all
waiting lanes of the partition. There is no last try, because the cause may go away at any moment. None of this is
stored: after a start of the broker the records are ready again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from logbroker.errors import LogbrokerError
from logbroker.queues.model.record_id import partition_of

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0


class ReadFailure(msgspec.Struct):
    """The records of one partition that could not be read."""

    error: LogbrokerError
    """Error of the last attempt to read one of them."""
    due: float
    """Time (monotonic, s) at which they are tried again."""
    pause_seconds: float
    record_ids: set[int]


class ReadFailures:
    """The records of a queue group that could not be read, and have not become done or readable since."""

    def __init__(self) -> None:
        self.by_partition: dict[int, ReadFailure] = {}
        """Read failures by partition. Read-only for other classes."""

    def add(self, record_id: int, error: LogbrokerError, now_seconds: float) -> float:
        """Note that a record could not be read; return the time at which it is tried again, which all records of the
        partition share."""
        partition = partition_of(record_id)
        failure = self.by_partition.get(partition)
        if failure is None:
            failure = ReadFailure(error, now_seconds + FIRST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS, set())
            self.by_partition[partition] = failure
        elif failure.due <= now_seconds:
            failure.pause_seconds = min(2 * failure.pause_seconds, LONGEST_PAUSE_SECONDS)
            failure.due = now_seconds + failure.pause_seconds
        failure.error = error
        failure.record_ids.add(record_id)
        return failure.due

    def forget_all(self, record_ids: Iterable[int]) -> None:
        """Forget records that were read or are done."""
        for record_id in record_ids if self.by_partition else ():
            partition = partition_of(record_id)
            failure = self.by_partition.get(partition)
            if failure is not None:
                failure.record_ids.discard(record_id)
                if not failure.record_ids:
                    del self.by_partition[partition]

    def error_of(self, record_id: int) -> LogbrokerError | None:
        """Return why the last read of a record failed; None: it did not fail, or the record was not read."""
        failure = self.by_partition.get(partition_of(record_id))
        return failure.error if failure is not None and record_id in failure.record_ids else None

    def due(self, record_id: int) -> float:
        """Return the time at which a record is tried again (monotonic, s); 0: the last read of it did not fail."""
        failure = self.by_partition.get(partition_of(record_id))
        return failure.due if failure is not None and record_id in failure.record_ids else 0.0

    def clear(self) -> None:
        self.by_partition.clear()
