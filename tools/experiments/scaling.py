"""The scaling experiment: several runs, one after the other, each with its own topic, group and consumer processes."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from logbroker.client.admin.admin import Admin
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.producer.producer import Producer
from logbroker.errors import RequestTimeoutError
from logbroker.record.partitioner import PartitionCache
from logbroker.tools.experiments.capacity import QUEUE, Service
from logbroker.tools.experiments.crew import Crew
from logbroker.tools.experiments.keys import draw_keys, key_name, key_shares, second_key
from logbroker.tools.experiments.metrics import Finish
from logbroker.tools.experiments.scaling_run import (
    HOTTEST_KEY,
    KEYS,
    Cell,
    Observed,
    Scaling,
    ScalingRun,
    calibrated,
    evaluated,
    expected_rate,
    with_predictions,
)
from logbroker.tools.experiments.worker_process import WorkerJob

LOAD_SHARE: Final = 0.6
"""The rate of the steady load, as a share of the rate of the drain."""
_SECOND_KEY_HEADER: Final = "second"
_MIN_RECORDS: Final = 40
_MAX_RECORDS: Final = 20_000
_SLACK: Final = 20.0
"""A run may take this many times its planned duration plus a minute."""


async def scale(
    broker: str, grid: Sequence[Cell], *, seconds: float, seed: int, done: Callable[[int], None]
) -> Scaling:
    """Run the grid on a broker ("HOST:PORT"). Each of the two parts of a run takes about `seconds`. `done` is called
    with the number of finished runs."""
    runs: list[ScalingRun] = []
    async with Admin(broker) as admin, QueueAdmin(broker) as queues:
        for number, cell in enumerate(grid):
            runs.append(await _Experiment(broker, admin, queues, cell, f"run-{number}", seed + number).run(seconds))
            done(number + 1)
    return Scaling(seed=seed, keys=KEYS, runs=with_predictions(runs))


class _Experiment:
    """One run."""

    def __init__(self, broker: str, admin: Admin, queues: QueueAdmin, cell: Cell, name: str, seed: int) -> None:
        self._broker = broker
        self._admin = admin
        self._queues = queues
        self._cell = cell
        self._name = name
        self._seed = seed
        self._route = PartitionCache(cell.partitions)
        self._keys: list[int] = []
        """The key of each record, in the order of sending."""
        self._second_keys = itertools.count()
        """The numbers of the next records of the hottest key."""
        self._sent_at: list[float] = []
        self._places: dict[int, list[int]] = defaultdict(list)
        """The record at each offset, by partition."""
        self._finishes: dict[int, Finish] = {}
        """The first finish of each record."""
        self._all_finished = asyncio.Event()

    async def run(self, seconds: float) -> ScalingRun:
        cell = self._cell
        await self._admin.create_topic(self._name, cell.partitions)
        if cell.mode == QUEUE:
            await self._queues.create_queue(self._name, self._name)
        if cell.split_into:
            by = f"header:{_SECOND_KEY_HEADER}"
            await self._queues.split_lane(self._name, key_name(HOTTEST_KEY), by=by, into=cell.split_into)
        async with Crew(self._take) as crew:
            rebalance_seconds = await self._gather(crew)
            async with Producer(self._broker, linger_ms=0) as producer:
                await self._warm(crew, producer)
                drained = await self._drain(crew, producer, seconds)
                loaded = await self._load(crew, producer, len(drained) / _span(drained), seconds)
                held = [sorted(crew.partitions_of(number)) for number in range(cell.consumers)]
        if cell.mode == QUEUE:
            await self._queues.delete_queue(self._name)
        await self._admin.delete_topic(self._name)
        return self._run(drained, loaded, held, rebalance_seconds)

    async def _gather(self, crew: Crew) -> float | None:
        """Start the consumers, the last one when the others hold their shares. Return how long it took until the last
        one held its share."""
        cell = self._cell
        jobs = [
            WorkerJob(
                number=number,
                broker=self._broker,
                group=self._name,
                topic=self._name,
                work_seconds=cell.work_ms / 1e3,
                prefetch=1 if cell.mode == QUEUE else 0,
            )
            for number in range(cell.consumers)
        ]
        if cell.mode == QUEUE:
            crew.hire(jobs)
            await crew.connected(self._queues, self._name)
            return None
        if cell.consumers > 1:
            crew.hire(jobs[:-1])
            await crew.balanced(cell.partitions)
        crew.hire(jobs[-1:])
        balanced_at = await crew.balanced(cell.partitions)
        if not crew.partitions_of(cell.consumers - 1):
            return None
        return balanced_at - crew.joined_at(cell.consumers - 1)

    def _take(self, told: list[Finish]) -> None:
        for finish in told:
            self._finishes.setdefault(self._places[finish.partition][finish.offset], finish)
        if len(self._finishes) == len(self._keys):
            self._all_finished.set()

    async def _send(
        self, producer: Producer, key: int, partition: int | None = None, *, due_at: float | None = None
    ) -> None:
        """Send a record with its key, or without a key to `partition`. `due_at` is the time that counts as its sending,
        or None for now."""
        name = key_name(key) if partition is None else None
        to = self._route[name] if name is not None else partition
        assert to is not None
        self._places[to].append(len(self._keys))
        number = len(self._keys)
        self._keys.append(key)
        self._sent_at.append(monotonic() if due_at is None else due_at)
        headers = ((_SECOND_KEY_HEADER, second_key(next(self._second_keys))),) if key == HOTTEST_KEY else ()
        await producer.send(self._name, b"%d" % number, name, headers=headers, partition=partition)

    async def _warm(self, crew: Crew, producer: Producer) -> None:
        """Let every consumer and the producer process some records before the measurement."""
        for number in range(max(self._cell.partitions, self._cell.consumers)):
            await self._send(producer, KEYS + number, number % self._cell.partitions)
        await self._finished(crew, 0)

    async def _drain(self, crew: Crew, producer: Producer, seconds: float) -> list[Finish]:
        """Send a backlog at once, and wait until it is finished. Return the finishes in the order of time."""
        first = len(self._keys)
        records = _bounded(expected_rate(self._cell, self._assumed()) * seconds)
        for key in draw_keys(key_shares(self._cell.skew, KEYS), records, self._seed):
            await self._send(producer, key)
        await producer.flush()
        await self._finished(crew, seconds)
        drained = (self._finishes[record] for record in range(first, len(self._keys)))
        return sorted(drained, key=lambda finish: finish.finished)

    async def _load(self, crew: Crew, producer: Producer, rate: float, seconds: float) -> list[int]:
        """Send records at a steady rate. Return the numbers of these records."""
        first = len(self._keys)
        wanted = rate * LOAD_SHARE
        keys = draw_keys(key_shares(self._cell.skew, KEYS), _bounded(wanted * seconds), self._seed + 1)
        self._all_finished.clear()
        begun = monotonic()
        for number, key in enumerate(keys):
            due = begun + number / wanted
            ahead = due - monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            # If a record is late because the send before it took long, its latency counts from the time at which it was
            # due.
            await self._send(producer, key, due_at=None if ahead > 0 else due)
        await producer.flush()
        await self._finished(crew, seconds)
        return list(range(first, len(self._keys)))

    async def _finished(self, crew: Crew, seconds: float) -> None:
        limit = 60 + _SLACK * seconds
        deadline = monotonic() + limit
        while len(self._finishes) < len(self._keys):
            self._all_finished.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._all_finished.wait()
            except TimeoutError:
                crew.check()
                if monotonic() > deadline:
                    raise RequestTimeoutError(
                        f"a run with {self._cell} did not end within {limit:.0f} s: is the machine too busy?"
                    ) from None

    def _assumed(self) -> Service:
        return calibrated((), self._cell.mode, self._cell.work_ms)

    def _run(
        self, drained: list[Finish], loaded: list[int], held: list[list[int]], rebalance_seconds: float | None
    ) -> ScalingRun:
        seen = Observed(
            keys=self._keys,
            sent_at=self._sent_at,
            finishes=self._finishes,
            drained=[self._record(finish) for finish in drained],
            loaded=loaded,
            held=held,
            rebalance_seconds=rebalance_seconds,
        )
        return evaluated(self._cell, seen)

    def _record(self, finish: Finish) -> int:
        return self._places[finish.partition][finish.offset]


def _bounded(records: float) -> int:
    return max(_MIN_RECORDS, min(_MAX_RECORDS, round(records)))


def _span(drained: Sequence[Finish]) -> float:
    return drained[-1].finished - min(finish.begun for finish in drained)
