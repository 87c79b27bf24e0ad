"""Admission of batches that cannot be decoded: each goes to the dead-letter topic as one record for the whole batch."""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.record_id import Moment, record_id_of
from logbroker.queues.model.settings import Ordering
from logbroker.queues.state import failures as retry
from logbroker.record.header import BatchHeader


def admit_undecodable(
    queue: Queue, partition: int, generation: int, header: BatchHeader, error: LogbrokerError, now: Moment
) -> None:
    """Admit a batch that cannot be decoded as one record without an ordering key and with exhausted attempts.

    The record then goes the way of all dead letters: its intent row (see `dead_letter_intents`) is stored, then the
    letter is appended. For the id of the record, `Records.fetch` returns the error again, and `Records.find` the batch.
    Raises ValueError as `Queue.admit` does.
    """
    # A scan may begin in the middle of the batch.
    offset = max(header.base_offset, queue.position(partition))
    record_id = record_id_of(partition, offset)
    if record_id not in queue.done and queue.failures.get(record_id) is None:
        queue.failures.add(record_id, error.message, now.wall_ms)
        queue.failures.set_state(record_id, retry.EXHAUSTED)
        queue.stalled.attention.add(record_id)
        # This mark is stored, unlike the marks for a gap: after a start, the scan skips pages whose records are all
        # done, so it may begin behind the batch and never see it again.
        queue.done.mark_range(record_id + 1, record_id_of(partition, header.next_offset))
    keys = (None,) if queue.settings.ordering is Ordering.KEY else ()
    queue.admit(partition, generation, (offset,), header.next_offset, keys, (), now)
