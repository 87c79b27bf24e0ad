"""Deletes the first records of partitions on request.

As retention does, a deletion first asks each holder that still needs some of the records to release them. A queue group
copies the records of stalled lanes before it releases them. A deletion that has begun is completed, even if the caller
is cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logbroker.broker.local_engine.failure import StorageFailure
from logbroker.broker.local_engine.partition import Partition
from logbroker.broker.local_engine.upkeep import Upkeep
from logbroker.errors import LogbrokerError, RecordsNeededError, StorageFailedError

MAX_TRIES: Final = 8
"""Attempts of the holders without any progress, before the deletion is refused."""


class RecordDeletion:
    """The deletions of an engine."""

    def __init__(self, upkeep: Upkeep, failure: StorageFailure) -> None:
        self._upkeep = upkeep
        self._failure = failure
        self._running: set[asyncio.Task[LogbrokerError | None]] = set()

    async def delete_below(self, partition: Partition, offset: int) -> None:
        """Delete the records below a readable offset, durably. Raises RecordsNeededError."""
        while not partition.closed and partition.log.log_start_offset < offset:
            await self._wait_for_holders(partition, offset)
            task = asyncio.create_task(self._outcome(partition, offset), name=f"deletion of {partition.name}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            error = await asyncio.shield(task)
            if error is not None:
                raise error.anew()

    async def close(self) -> None:
        """Wait for the deletions under way."""
        if self._running:
            await asyncio.wait(self._running)

    async def _wait_for_holders(self, partition: Partition, offset: int) -> None:
        tries = 0
        while (reached := self._upkeep.needed_from(partition)) < offset:
            attempts = self._upkeep.ask(partition, offset)
            if attempts:
                await asyncio.wait(list(map(asyncio.ensure_future, attempts)))
            tries = 0 if self._upkeep.needed_from(partition) > reached else tries + 1
            if not attempts or tries == MAX_TRIES:
                raise RecordsNeededError(
                    f"a queue group needs records of {partition.name} from offset {reached} on, and cannot copy those"
                    " of stalled lanes yet; the log of the broker says why"
                )

    async def _outcome(self, partition: Partition, offset: int) -> LogbrokerError | None:
        """Return the error instead of raising it: after a cancellation of the caller, nobody would take the
        exception."""
        try:
            await self._upkeep.delete_below(partition, offset)
        except StorageFailedError as error:
            return self._failure.report(error)
        except LogbrokerError as error:
            return error.as_value()
        return None
