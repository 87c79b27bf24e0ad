"""A queue group at hand, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logbroker.queues.machine.load import load_queue
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Granted, Nack, Outputs, Settlement
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import QueueGroupSettings

TOPIC_ID = bytes(range(16))


def at(seconds: float) -> Moment:
    """A moment of clocks that run alike."""
    return Moment(seconds, int(seconds * 1000))


def new_queue(partitions: int = 1, **settings: Any) -> Queue:
    settings = {"backoff_jitter": 0.0, **settings}
    queue = Queue(TOPIC_ID, QueueGroupSettings(**settings), random=lambda: 0.0, route=lambda key: 0)
    for partition in range(partitions):
        queue.open_partition(partition, 0)
    queue.begin_generation(1, ())
    return queue


def admit(
    queue: Queue, keys: Sequence[bytes | None], *, start: int = 0, partition: int = 0, seconds: float = 0
) -> None:
    end = start + len(keys)
    queue.admit(partition, 1, range(start, end), end, keys, (), at(seconds))


def record_ids(granted: Sequence[Granted]) -> list[int]:
    return [record_id for piece in granted for record_id in piece.record_ids]


def receipts(granted: Sequence[Granted]) -> list[int]:
    return [receipt for piece in granted for receipt in piece.receipts()]


def ack(queue: Queue, granted: Sequence[Granted], seconds: float = 0, worker_id: str = "w") -> None:
    acks = [(receipt, receipt) for receipt in receipts(granted)]
    assert queue.settle(worker_id, Settlement(acks=acks), at(seconds)) == []


def nack(queue: Queue, granted: Sequence[Granted], seconds: float = 0, delay_seconds: float | None = None) -> None:
    nacks = [Nack(receipt, receipt, "broken", delay_seconds) for receipt in receipts(granted)]
    assert queue.settle("w", Settlement(nacks=nacks), at(seconds)) == []


def commit(queue: Queue, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Keep the rows that a queue owes, and return them."""
    return keep(queue.take_outputs(), rows)


def keep(outputs: Outputs, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    for event in outputs.events:
        if event.value is None:
            del rows[event.key]
        else:
            rows[event.key] = event.value
    return rows


def restart(rows: Mapping[bytes, bytes], end: int) -> Queue:
    """Another group epoch of a queue over one partition."""
    queue = load_queue(rows, {0: end}, random=lambda: 0.0, route=lambda key: 0)
    queue.begin_generation(1, ())
    return queue
