"""Figures of the queue machine: CPU time per record and memory. `python -m tests.queues.speed` prints them."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence

from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import Settlement
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import Ordering, QueueGroupSettings

NOW = Moment(0.0, 0)
BATCH = 1000


def new_queue(ordering: Ordering) -> Queue:
    settings = QueueGroupSettings(ordering=ordering, max_in_flight=1_000_000)
    queue = Queue(bytes(16), settings, random=random.random, route=lambda key: 0)
    queue.open_partition(0, 0)
    queue.begin_generation(1, ())
    queue.take_outputs()
    return queue


def admit(queue: Queue, keys: Sequence[bytes], records: int, start: int = 0) -> float:
    """Admit records whose keys go round, in batches; return microseconds per record."""
    columns = [
        [keys[index % len(keys)] for index in range(base, base + BATCH)]
        for base in range(start, start + records, BATCH)
    ]
    begun = time.process_time()
    for number, column in enumerate(columns):
        base = start + number * BATCH
        queue.admit(0, 1, range(base, base + BATCH), base + BATCH, column, (), NOW)
    return (time.process_time() - begun) / records * 1e6


def admit_runs(queue: Queue, records: int) -> float:
    begun = time.process_time()
    for base in range(0, records, BATCH):
        queue.admit(0, 1, range(base, base + BATCH), base + BATCH, (), (), NOW)
    return (time.process_time() - begun) / records * 1e6


def deliver(queue: Queue, records: int) -> tuple[float, float]:
    """Take and acknowledge records, in batches; return microseconds per record of each."""
    taking = acknowledging = 0.0
    left = records
    while left > 0:
        begun = time.process_time()
        granted = queue.take("w", BATCH, NOW)
        middle = time.process_time()
        left -= sum(map(len, granted))
        acks = [(piece.first_receipt, piece.first_receipt + len(piece) - 1) for piece in granted]
        assert queue.settle("w", Settlement(acks=acks), NOW) == []
        queue.take_outputs()
        taking += middle - begun
        acknowledging += time.process_time() - middle
    return taking / records * 1e6, acknowledging / records * 1e6


def keys_of(count: int) -> list[bytes]:
    return [b"key-%07d" % number for number in range(count)]


def memory_mb(fill: Callable[[Queue], object]) -> float:
    """Return the memory of a queue after `fill`, with the keys of its lanes."""
    queue = new_queue(Ordering.KEY)
    gc.collect()
    tracemalloc.start()
    try:
        fill(queue)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()


def fill_lanes(queue: Queue, lanes: int) -> None:
    """One record for each of many keys."""
    for base in range(0, lanes, BATCH):
        column = [b"key-%07d" % number for number in range(base, base + BATCH)]
        queue.admit(0, 1, range(base, base + BATCH), base + BATCH, column, (), NOW)


def fill_deep(queue: Queue, lanes: int, records: int) -> None:
    """Many records for few keys."""
    keys = keys_of(lanes)
    for base in range(0, records, BATCH):
        column = [keys[index % lanes] for index in range(base, base + BATCH)]
        queue.admit(0, 1, range(base, base + BATCH), base + BATCH, column, (), NOW)


def main() -> None:
    for lanes, records in ((10_000, 500_000), (1_000, 500_000), (1_000_000, 1_000_000)):
        queue = new_queue(Ordering.KEY)
        admitting = admit(queue, keys_of(lanes), records)
        taking, acknowledging = deliver(queue, min(records, 300_000))
        print(f"key, {lanes:>9,} keys: admit {admitting:.2f} take {taking:.2f} ack {acknowledging:.2f} us/record")  # noqa: T201
    queue = new_queue(Ordering.NONE)
    admitting = admit_runs(queue, 1_000_000)
    taking, acknowledging = deliver(queue, 1_000_000)
    print(f"none: admit {admitting:.3f} take {taking:.3f} ack {acknowledging:.3f} us/record")  # noqa: T201
    for backlog in (10_000, 100_000, 1_000_000, 5_000_000):
        queue = new_queue(Ordering.KEY)
        fill_deep(queue, 1_000, backlog)
        print(f"backlog {backlog:>9,}: take and ack {sum(deliver(queue, 10_000)):.2f} us/record")  # noqa: T201
    print(f"1,000,000 lanes: {memory_mb(lambda queue: fill_lanes(queue, 1_000_000)):.0f} MB")  # noqa: T201
    print(f"5,000,000 records in 1,000 lanes: {memory_mb(lambda q: fill_deep(q, 1_000, 5_000_000)):.0f} MB")  # noqa: T201


if __name__ == "__main__":
    main()
