"""Loads the state machine of a queue group from its rows, at a start of the broker. A scan of the log then builds the
index."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logbroker.errors import CorruptLogError
from logbroker.queues.machine.leases import COUNTER_BITS, end_of_epoch
from logbroker.queues.machine.queue import Queue
from logbroker.queues.machine.successors import ChunkStore
from logbroker.queues.model.settings import GROUP_TYPE, QueueGroupSettings
from logbroker.queues.state.dead_letter_intents import Route
from logbroker.queues.state.rows import HEADER_ROW, SETTINGS_ROW, decode, decode_header


def load_queue(
    rows: Mapping[bytes, bytes],
    ends: Mapping[int, int],
    *,
    random: Callable[[], float],
    route: Route,
    store: ChunkStore | None = None,
    group_epoch: int | None = None,
) -> Queue:
    """Load the rows that an earlier run of the broker stored. `group_epoch` is the new group epoch; None: one far above
    the last epoch.

    `ends` are the ends of the partitions' logs. State of records at or above them is dropped, and the first outputs
    delete its rows. `Queue.after_crash` is set unless the earlier broker committed `Queue.stop_events` last. The
    partitions must then be scanned from `Queue.position` on. Raises CorruptLogError.
    """
    if HEADER_ROW not in rows or SETTINGS_ROW not in rows:
        raise CorruptLogError("the queue group has no header: its rows are not those of a queue group")
    header = decode_header(rows[HEADER_ROW])
    if header.type != GROUP_TYPE:
        raise CorruptLogError(f"the header is of a {header.type} group, not of a queue group")
    if group_epoch is None:
        group_epoch = end_of_epoch(header.group_epoch) + (1 << COUNTER_BITS)
    if group_epoch < end_of_epoch(header.group_epoch):
        raise CorruptLogError(
            f"epoch {group_epoch} of the queue group is not above its previous epoch, {header.group_epoch}"
        )
    settings = decode(SETTINGS_ROW, rows[SETTINGS_ROW], QueueGroupSettings)
    queue = Queue(header.topic_id, settings, random=random, route=route, store=store, group_epoch=group_epoch)
    queue.previous_epoch = header.group_epoch
    queue.done.load(rows, ends)
    queue.failures.load(rows, ends)
    queue.dead_letters.load(rows, ends)
    queue.stalled.load(rows, ends)
    queue.replacements.load(rows, ends)
    queue.origins.load(rows, ends)
    queue.outbox.load(rows)
    queue.splits.load(rows)
    queue.splitting.load(ends)
    queue.sessions.load(rows)
    queue.after_crash = not queue.redelivery.load(rows, ends, header.group_epoch, queue.done)
    for _ in range(len(queue.redelivery.marks)):
        queue.redelivery.drop_a_mark(queue.done)
    queue.stalled.expect_all()
    queue.admission.load(ends)
    return queue
