"""Consumers in virtual time: what a scaling run would see of a group of either kind. No clock, no broker."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Sequence

from logbroker.record.partitioner import partition_for_key
from logbroker.tools.experiments import capacity
from logbroker.tools.experiments.capacity import QUEUE, Service
from logbroker.tools.experiments.keys import draw_keys, key_name, key_shares, second_key
from logbroker.tools.experiments.metrics import Finish
from logbroker.tools.experiments.scaling import LOAD_SHARE
from logbroker.tools.experiments.scaling_run import HOTTEST_KEY, KEYS, Cell, Observed, ScalingRun, evaluated

_JITTER = 0.1
"""Work, pauses and handovers last so much longer or shorter, at most."""


def simulated(cell: Cell, service: Service, records: int, seed: int, placement: str = "") -> ScalingRun:
    """Return the metrics of a run: a backlog of `records`, then as many under the steady load of an experiment."""
    keys = draw_keys(key_shares(cell.skew, KEYS), records, seed)
    backlog = worked_off(cell, service, keys, [0.0] * records, seed, placement)
    ended = max(finish.finished for finish in backlog)
    load_keys = draw_keys(key_shares(cell.skew, KEYS), records, seed + 1)
    load_sent_at = [2 * ended + number * ended / (LOAD_SHARE * records) for number in range(records)]
    load = worked_off(cell, service, load_keys, load_sent_at, seed, placement)
    finishes = dict(enumerate([*backlog, *load]))
    seen = Observed(
        keys=[*keys, *load_keys],
        sent_at=[0.0] * records + load_sent_at,
        finishes=finishes,
        drained=sorted(range(records), key=lambda record: finishes[record].finished),
        loaded=range(records, 2 * records),
        held=_held(cell),
        rebalance_seconds=None,
    )
    return evaluated(cell, seen)


def lag_share(cell: Cell, service: Service, rate: float, records: int, seed: int, placement: str = "") -> float:
    """Return how much longer the work on a steady load takes than its sending, as a share of that; next to nothing
    where the group keeps up."""
    keys = draw_keys(key_shares(cell.skew, KEYS), records, seed)
    sent_at = [number / rate for number in range(records)]
    finishes = worked_off(cell, service, keys, sent_at, seed, placement)
    return (max(finish.finished for finish in finishes) - sent_at[-1]) / sent_at[-1]


def worked_off(
    cell: Cell, service: Service, keys: Sequence[int], sent_at: Sequence[float], seed: int, placement: str = ""
) -> list[Finish]:
    """Return the finish of each record. `placement`: the set of key names, which decides on the partitions."""
    draw = random.Random(seed)
    if cell.mode == QUEUE:
        return _queue(_lanes(cell, keys), sent_at, cell.consumers, service, draw)
    routes = [partition_for_key(key_name(key, placement), cell.partitions) for key in range(KEYS)]
    owners = {partition: owner for owner, partitions in enumerate(_held(cell)) for partition in partitions}
    return _group(sent_at, [owners[routes[key]] for key in keys], service, draw)


def _lanes(cell: Cell, keys: Sequence[int]) -> Sequence[int]:
    """Return the lane of each record: its key, or the sub-lane of its second key."""
    if not cell.split_into:
        return keys
    numbers = itertools.count()
    return [
        KEYS + partition_for_key(second_key(next(numbers)), cell.split_into) if key == HOTTEST_KEY else key
        for key in keys
    ]


def _held(cell: Cell) -> list[list[int]]:
    return capacity.dealt(0 if cell.mode == QUEUE else cell.partitions, cell.consumers)


def _drawn(seconds: float, draw: random.Random) -> float:
    return seconds * draw.uniform(1 - _JITTER, 1 + _JITTER)


def _group(sent_at: Sequence[float], owners: Sequence[int], service: Service, draw: random.Random) -> list[Finish]:
    """Each consumer works off what its partitions have, in the order of sending."""
    free_at = [0.0] * (max(owners) + 1)
    done = []
    for record, owner in enumerate(owners):
        begun = max(sent_at[record], free_at[owner])
        finished = begun + _drawn(service.work_seconds, draw)
        free_at[owner] = finished + _drawn(service.worker_pause_seconds, draw)
        done.append(Finish(0, record, begun, finished, owner))
    return done


def _queue(
    keys: Sequence[int], sent_at: Sequence[float], workers: int, service: Service, draw: random.Random
) -> list[Finish]:
    """A worker that is free takes the key that has been ready the longest; of a key one record at a time."""
    numbers = itertools.count()
    due: list[tuple[float, int, str, int]] = [
        (at, next(numbers), "sent", key) for key, at in zip(keys, sent_at, strict=True)
    ]
    heapq.heapify(due)
    waiting: dict[int, deque[int]] = {key: deque() for key in set(keys)}
    free_keys, free_workers = set(waiting), deque(range(workers))
    line: deque[int] = deque()
    """Keys that are free and have records."""
    done: dict[int, Finish] = {}
    arrived = itertools.count()
    while due:
        now, _, what, who = heapq.heappop(due)
        if what == "sent":
            waiting[who].append(next(arrived))
        if what == "worker":
            free_workers.append(who)
        elif waiting[who] and (what == "key" or who in free_keys):
            free_keys.discard(who)
            line.append(who)
        elif what == "key":
            free_keys.add(who)
        while line and free_workers:
            key, worker = line.popleft(), free_workers.popleft()
            record = waiting[key].popleft()
            finished = now + _drawn(service.work_seconds, draw)
            done[record] = Finish(0, record, now, finished, worker)
            pause, handover = service.worker_pause_seconds, service.handover_seconds
            heapq.heappush(due, (finished + _drawn(pause, draw), next(numbers), "worker", worker))
            heapq.heappush(due, (finished + _drawn(handover, draw), next(numbers), "key", key))
    return [done[record] for record in range(len(keys))]
