"""The rate that consumers can keep up with: the hottest consumer, or the hottest key, limits it.

In a consumer group a partition belongs to one consumer, so the consumer with the largest share of the records decides.
In a queue group by key, any worker takes any key, but one record of a key at a time. So the limit is either all workers
together, or the hottest key: each of its records waits until the record before it is settled and synced. If that key is
split, its hottest sub-lane takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

GROUP: Final = "group"
QUEUE: Final = "queue"
MODES: Final = (GROUP, QUEUE)
"""The modes: a consumer group, or a queue group with ordering key."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a record, in seconds."""

    work_seconds: float
    worker_pause_seconds: float
    """The pause between two records of a worker while enough records wait."""
    handover_seconds: float
    """The pause between two records of a key that has enough waiting records. A queue group delivers the second record
    when the first one is settled."""

    @property
    def per_worker(self) -> float:
        return self.work_seconds + self.worker_pause_seconds

    @property
    def per_key(self) -> float:
        return self.work_seconds + self.handover_seconds


def dealt(partitions: int, consumers: int) -> list[list[int]]:
    """Return the partitions of each consumer if the partitions are assigned in turn."""
    return [list(range(consumer, partitions, consumers)) for consumer in range(consumers)]


def consumer_shares(partition_shares: Sequence[float], held: Sequence[Sequence[int]]) -> list[float]:
    """Return each consumer's share of the records. `held` has the partitions of each consumer."""
    return [sum(partition_shares[partition] for partition in partitions) for partitions in held]


def group_rate(shares: Sequence[float], service: Service) -> float:
    """Return the records/s that a consumer group keeps up with. `shares` has each consumer's share of the records."""
    return 1 / (max(shares) * service.per_worker)


def queue_rate(hottest_share: float, workers: int, service: Service) -> float:
    """Return the records/s that a queue group by key keeps up with. `hottest_share` is the share of the hottest lane: a
    key, or a sub-lane of one that is split."""
    return min(workers / service.per_worker, 1 / (hottest_share * service.per_key))


def queue_drain_seconds(counts: Sequence[float], workers: int, service: Service) -> float:
    """Return how long a queue group by key takes for a backlog. `counts` has the number of records of each lane: a
    key, or a sub-lane of one that is split.

    After each record, its lane goes to the end of the line, so the lanes take their turns round by round. A round takes
    as long as the workers need for one record of each remaining lane, and at least as long as one record with its
    handover.
    """
    seconds, done = 0.0, 0.0
    left = sorted(counts)
    for place, count in enumerate(left):
        lanes = len(left) - place
        seconds += (count - done) * max(lanes * service.per_worker / workers, service.per_key)
        done = count
    return seconds
