"""One run of the scaling experiment and its results; the grids of runs. No I/O."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from logbroker.tools.experiments import capacity, metrics
from logbroker.tools.experiments.capacity import GROUP, MODES, QUEUE, Service
from logbroker.tools.experiments.keys import SECOND_KEYS, SKEWS, key_shares, partition_shares, sub_lane_shares
from logbroker.tools.experiments.metrics import Finish

KEYS: Final = 100
HOTTEST_KEY: Final = 0
SPLIT_INTO: Final = 8
ASSUMED: Final = {
    GROUP: Service(work_seconds=0, worker_pause_seconds=0.0002, handover_seconds=0.0002),
    QUEUE: Service(work_seconds=0, worker_pause_seconds=0.004, handover_seconds=0.005),
}
"""The assumed costs besides the work, if nothing was measured. They suit two busy cores."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its point in the grid."""

    mode: str
    """group or queue."""
    partitions: int
    consumers: int
    skew: str
    work_ms: float
    split_into: int = 0
    """Number of sub-lanes into which the hottest key is split, in a queue group. 0: it is not split."""


class ScalingRun(Cell, frozen=True, kw_only=True):
    """The result of a run. First a backlog is drained, then a steady load runs at a share of the rate of the drain."""

    records: int
    """Number of records of the backlog."""
    seconds: float
    records_per_second: float
    predicted_records_per_second: float
    """The rate that the model of `capacity` predicts, calibrated with all runs of the mode."""
    idle_share: float
    """The idle share of the consumers' time, in the drain."""
    violations: int
    """Number of records that were finished after a later record of their key or, in a split key, of their second key,
    in both parts."""
    work_ms_mean: float
    worker_pause_ms: float | None
    """The median pause of a consumer between two records, in the drain. None if no consumer had two records."""
    handover_ms: float | None
    """The median pause between two records of the hottest key, in the drain. None if it did not have two records, or is
    split."""
    load_records_per_second: float
    p50_ms: float
    """The median time from the sending of a record to the end of the work on it, under the steady load. `p99_ms` is the
    99th percentile."""
    p99_ms: float
    utilisation: float
    """The busy share of all consumers' time, under the steady load."""
    busiest_utilisation: float
    """The busy share of the consumer that works most."""
    rebalance_ms: float | None
    """Time from the join of the last consumer until all hold their shares. None if no partition moved."""
    hottest_key_share: float
    hottest_partition_share: float
    held: list[list[int]]
    """The partitions of each consumer; empty lists for a queue group."""
    key_counts: list[int]
    """The number of records of each key in the backlog."""


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the whole experiment, as they are stored in JSON."""

    seed: int
    keys: int
    runs: list[ScalingRun]


class Observed(NamedTuple):
    """The events of a run. Records are numbered from 0 in the order of sending, over both parts."""

    keys: Sequence[int]
    """The key of each record. Keys >= KEYS belong to the records of the warm-up."""
    sent_at: Sequence[float]
    """The time at which each record was sent, on the same clock as `finishes`."""
    finishes: Mapping[int, Finish]
    """The first finish of each record, by the number of the record."""
    drained: Sequence[int]
    """The records of the backlog, in the order in which they were finished."""
    loaded: Sequence[int]
    """The records of the steady load, in the order of sending."""
    held: list[list[int]]
    """The partitions of each consumer."""
    rebalance_seconds: float | None


def evaluated(cell: Cell, seen: Observed) -> ScalingRun:
    """Return the metrics of a run, without the prediction."""
    drained = [seen.finishes[record] for record in seen.drained]
    drained_keys = [seen.keys[record] for record in seen.drained]
    counts = [0] * KEYS
    for key in drained_keys:
        counts[key] += 1
    hottest = max(range(KEYS), key=counts.__getitem__)
    shares = [count / len(drained) for count in counts]
    begun, ended = min(finish.begun for finish in drained), drained[-1].finished
    busy = metrics.busy_shares(drained, cell.consumers, begun, ended)
    of_hottest = [0 if key == hottest and not cell.split_into else -1 for key in drained_keys]
    order = sorted(seen.finishes, key=lambda record: seen.finishes[record].finished)
    load_begun, load_ended = seen.sent_at[seen.loaded[0]], seen.sent_at[seen.loaded[-1]]
    load_finishes = [seen.finishes[record] for record in seen.loaded]
    load_busy = metrics.busy_shares(load_finishes, cell.consumers, load_begun, load_ended)
    latencies = [1e3 * (seen.finishes[record].finished - seen.sent_at[record]) for record in seen.loaded]
    return ScalingRun(
        **{name: getattr(cell, name) for name in Cell.__struct_fields__},
        records=len(drained),
        seconds=ended - begun,
        records_per_second=len(drained) / (ended - begun),
        predicted_records_per_second=0.0,
        idle_share=1 - metrics.mean(busy),
        violations=sum(metrics.violations(order, _ordered_within(cell, seen.keys)).values()),
        work_ms_mean=1e3 * metrics.mean([finish.finished - finish.begun for finish in drained]),
        worker_pause_ms=_median_ms(metrics.pauses(drained, [each.worker for each in drained])),
        handover_ms=_median_ms(metrics.pauses(drained, of_hottest)),
        load_records_per_second=len(seen.loaded) / (load_ended - load_begun),
        p50_ms=metrics.percentile(latencies, 0.5),
        p99_ms=metrics.percentile(latencies, 0.99),
        utilisation=metrics.mean(load_busy),
        busiest_utilisation=max(load_busy),
        rebalance_ms=None if seen.rebalance_seconds is None else 1e3 * seen.rebalance_seconds,
        hottest_key_share=max(shares),
        hottest_partition_share=max(partition_shares(shares, cell.partitions)),
        held=seen.held,
        key_counts=counts,
    )


def _ordered_within(cell: Cell, keys: Sequence[int]) -> Sequence[int]:
    """Return the key within which each record is in order. For a split key, it is the second key, as a negative
    number."""
    if not cell.split_into:
        return keys
    numbers = itertools.count()
    return [-1 - next(numbers) % SECOND_KEYS if key == HOTTEST_KEY else key for key in keys]


def _median_ms(seconds: Sequence[float]) -> float | None:
    return 1e3 * statistics.median(seconds) if seconds else None


def quick_grid() -> list[Cell]:
    """Return the most informative runs, which take less than a minute together."""
    cells = _cells(GROUP, (1, 4, 8), (4,), SKEWS, (10.0,))
    cells += _cells(QUEUE, (1, 4), (4,), SKEWS, (10.0,))
    cells += _cells(QUEUE, (1, 4), (4,), ("hot",), (10.0,), SPLIT_INTO)
    for mode in MODES:
        cells += _cells(mode, (4,), (1,), ("uniform",), (10.0,))
    return cells


def default_grid() -> list[Cell]:
    """Return the runs for an experiment of some minutes. Queue groups get fewer partition counts, because partitions do
    not divide their work."""
    consumers, work_ms = (2, 8), (5.0, 20.0)
    cells = _cells(GROUP, (1, 2, 4, 8, 16), consumers, SKEWS, work_ms)
    cells += _cells(QUEUE, (1, 8), consumers, SKEWS, work_ms)
    return cells + _cells(QUEUE, (1, 8), consumers, ("hot",), work_ms, SPLIT_INTO)


def _cells(
    mode: str,
    partitions: Sequence[int],
    consumers: Sequence[int],
    skews: Sequence[str],
    work_ms: Sequence[float],
    split_into: int = 0,
) -> list[Cell]:
    return [
        Cell(mode=mode, partitions=parts, consumers=count, skew=skew, work_ms=work, split_into=split_into)
        for work in work_ms
        for count in consumers
        for skew in skews
        for parts in partitions
    ]


def expected_rate(cell: Cell, service: Service) -> float:
    """Return the expected records/s of a run, to choose its number of records."""
    shares = key_shares(cell.skew, KEYS)
    if cell.mode == QUEUE:
        return capacity.queue_rate(max(_lanes(shares, cell.split_into)), cell.consumers, service)
    held = capacity.dealt(cell.partitions, cell.consumers)
    return capacity.group_rate(capacity.consumer_shares(partition_shares(shares, cell.partitions), held), service)


def _lanes(of_keys: Sequence[float], split_into: int) -> list[float]:
    """Return shares or counts by lane: those of the keys, the first of which is split."""
    if not split_into:
        return list(of_keys)
    return [of_keys[HOTTEST_KEY] * share for share in sub_lane_shares(split_into)] + list(of_keys[1:])


def predicted_rate(run: ScalingRun, service: Service) -> float:
    """Return the predicted records/s at which the backlog of a run is drained."""
    if run.mode == QUEUE:
        return run.records / capacity.queue_drain_seconds(
            _lanes(run.key_counts, run.split_into), run.consumers, service
        )
    shares = [count / run.records for count in run.key_counts]
    return capacity.group_rate(capacity.consumer_shares(partition_shares(shares, run.partitions), run.held), service)


def calibrated(runs: Sequence[ScalingRun], mode: str, work_ms: float) -> Service:
    """Return the cost of a record by the measurements. A pause or handover that no run can show is the assumed one.

    A sleep lasts a little longer than requested, so the work time is increased by this difference. The pauses of a
    worker are taken from runs with uniform keys, in which every worker has enough work. The handovers of a key are
    taken from runs with a hot key, which always has waiting records.
    """
    assumed = ASSUMED[mode]
    longer = [run.work_ms_mean - run.work_ms for run in runs if run.mode == mode]
    pauses = [
        run.worker_pause_ms
        for run in runs
        if run.mode == mode
        and run.worker_pause_ms is not None
        and run.skew == "uniform"
        and (mode == QUEUE or run.partitions >= run.consumers)
    ]
    handovers = [
        run.handover_ms for run in runs if run.mode == mode and run.handover_ms is not None and run.skew == "hot"
    ]
    return Service(
        work_seconds=(work_ms + (statistics.median(longer) if longer else 0)) / 1e3,
        worker_pause_seconds=statistics.median(pauses) / 1e3 if pauses else assumed.worker_pause_seconds,
        handover_seconds=statistics.median(handovers) / 1e3 if handovers else assumed.handover_seconds,
    )


def with_predictions(runs: Sequence[ScalingRun]) -> list[ScalingRun]:
    """Return the runs, each with the prediction of the model."""
    return [
        msgspec.structs.replace(
            run, predicted_records_per_second=predicted_rate(run, calibrated(runs, run.mode, run.work_ms))
        )
        for run in runs
    ]
