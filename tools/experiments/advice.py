"""The results of the scaling experiment in words: when more partitions stop helping, which keys are hot, what to
choose."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from logbroker.tools.experiments.capacity import GROUP, QUEUE
from logbroker.tools.experiments.keys import key_name
from logbroker.tools.experiments.scaling_run import Scaling, ScalingRun, calibrated

ENOUGH: Final = 0.9
"""A partition count that reaches this share of the best rate is enough: more partitions hardly help."""

SKEW_NAMES: Final = {
    "uniform": "with keys that are all alike",
    "zipf": "with keys by Zipf's law",
    "hot": "with one key that has 80 %",
}


def advice(found: Scaling) -> list[str]:
    """Return the advice, the choice first."""
    runs = found.runs
    said = [*_choice(runs), *_hot_keys(runs), *_splits(runs), *_knees(runs), *_queue_groups(runs)]
    return [*said, *_order(runs), *_model(runs)]


def knee(runs: Sequence[ScalingRun]) -> ScalingRun:
    """Return the run with the fewest partitions that comes near the best rate of these runs."""
    best = max(run.records_per_second for run in runs)
    return min((run for run in runs if run.records_per_second >= ENOUGH * best), key=lambda run: run.partitions)


def _rows(runs: Sequence[ScalingRun]) -> dict[tuple[int, float, str], list[ScalingRun]]:
    """Return the runs of consumer groups by consumers, work and skew, if several partition counts were tried."""
    rows: dict[tuple[int, float, str], list[ScalingRun]] = defaultdict(list)
    for run in runs:
        if run.mode == GROUP:
            rows[run.consumers, run.work_ms, run.skew].append(run)
    return {row: of_row for row, of_row in rows.items() if len(of_row) > 1}


def _choice(runs: Sequence[ScalingRun]) -> list[str]:
    # One hot key is no reason for more partitions. It is seldom known whether keys are uniform or somewhat skewed.
    rows = [(row[0], of_row) for row, of_row in _rows(runs).items() if row[2] in ("uniform", "zipf")]
    if not rows:
        return []
    consumers = max(count for count, _ in rows)
    shares = worst_shares([of_row for count, of_row in rows if count == consumers])
    partitions = min(count for count, share in shares.items() if share >= ENOUGH * max(shares.values()))
    said = f"For {consumers} consumers in a consumer group, choose {_partitions(partitions)}."
    said += (
        f" Whether keys are alike or follow Zipf's law, that came to {shares[partitions]:.0%} of the best rate or more."
    )
    if partitions > 1:
        said += " With fewer, consumers wait while others work."
    else:
        said += " Here one consumer does it as fast as several."
    if partitions == max(shares):
        said += " More were not tried."
    return [said, "A count can be raised later, but not lowered."]


def worst_shares(rows: Sequence[Sequence[ScalingRun]]) -> dict[int, float]:
    """Return the lowest share of a row's best rate that each partition count reaches. Partition counts that a row lacks
    are left out.

    More partitions are not always faster, because it depends on chance which keys share a partition.
    """
    rates = [{run.partitions: run.records_per_second for run in row} for row in rows]
    counts = set.intersection(*(set(row) for row in rates))
    return {count: min(row[count] / max(row.values()) for row in rates) for count in sorted(counts)}


def _knees(runs: Sequence[ScalingRun]) -> list[str]:
    said: dict[str, list[str]] = defaultdict(list)
    for (consumers, work_ms, skew), of_row in sorted(_rows(runs).items()):
        enough = knee(of_row)
        least = min(of_row, key=lambda run: run.partitions)
        rates = f"{enough.records_per_second:,.0f} records/s"
        if enough is not least:
            rates += f" instead of {least.records_per_second:,.0f} with {least.partitions}"
        said[skew].append(f"at {enough.partitions} for {consumers} consumers with {work_ms:g} ms of work ({rates})")
    return [
        f"{_capital(name)}, partitions stop helping {', '.join(said[skew])}."
        for skew, name in SKEW_NAMES.items()
        if skew in said
    ]


def _hot_keys(runs: Sequence[ScalingRun]) -> list[str]:
    said = []
    for skew in ("zipf", "hot"):
        of_skew = [run for run in runs if run.skew == skew]
        if not of_skew:
            continue
        run = max(of_skew, key=lambda run: run.records)
        hottest = max(range(len(run.key_counts)), key=run.key_counts.__getitem__)
        service = calibrated(runs, GROUP, min(run.work_ms for run in of_skew))
        said.append(
            f"{_capital(SKEW_NAMES[skew])}, {key_name(hottest).decode()} is hot: {run.hottest_key_share:.0%} of the"
            " records. They go one after the other, whoever takes them: however many partitions and consumers there"
            f" are, about {1 / (run.hottest_key_share * service.per_worker):,.0f} records/s of all keys are the most"
            f" that can be processed at {1e3 * service.work_seconds:.1f} ms each."
        )
    return said


def _splits(runs: Sequence[ScalingRun]) -> list[str]:
    """Compare each best run with a split key to the best one of the same queue group without."""
    said = []
    for consumers, work_ms in sorted({(run.consumers, run.work_ms) for run in runs if run.split_into}):
        alike = [run for run in runs if (run.mode, run.consumers, run.work_ms) == (QUEUE, consumers, work_ms)]
        split = max((run for run in alike if run.split_into), key=lambda run: run.records_per_second)
        whole = [run.records_per_second for run in alike if run.skew == split.skew and not run.split_into]
        if whole:
            said.append(
                f"{consumers} workers with {work_ms:g} ms of work: {split.records_per_second:,.0f} records/s with the"
                f" hot key split into {split.split_into}, {max(whole):,.0f} without"
                f" ({split.records_per_second / max(whole):.1f} times as many)"
            )
    if not said:
        return []
    return [f"In a queue group, a split of the hot key lifts that bound, which partitions do not. {'; '.join(said)}."]


def _queue_groups(runs: Sequence[ScalingRun]) -> list[str]:
    said = []
    consumers, work_ms = max(run.consumers for run in runs), min(run.work_ms for run in runs)
    alike = [run for run in runs if (run.consumers, run.work_ms) == (consumers, work_ms)]
    for skew in SKEW_NAMES:
        best = {
            mode: max(of_mode, key=lambda run: run.records_per_second)
            for mode in (GROUP, QUEUE)
            if (of_mode := [run for run in alike if (run.mode, run.skew, run.split_into) == (mode, skew, 0)])
        }
        if len(best) == 2:
            group, queue = (
                f"{best[mode].records_per_second:,.0f} records/s at best ({_partitions(best[mode].partitions)})"
                for mode in (GROUP, QUEUE)
            )
            said.append(
                f"{_capital(SKEW_NAMES[skew])} and {work_ms:g} ms of work, {consumers} consumers of a consumer group"
                f" came to {group}, {consumers} workers of a queue group by key to {queue}."
            )
    return said


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count > 1 else ''}"


def _order(runs: Sequence[ScalingRun]) -> list[str]:
    violations = sum(run.violations for run in runs)
    moved = [run.rebalance_ms for run in runs if run.rebalance_ms is not None]
    verdict = "as promised" if not violations else "THIS MUST NOT HAPPEN"
    said = [
        f"Order: in {len(runs)} runs {violations:,} records were finished after a later one of their key ({verdict})."
    ]
    if moved:
        said.append(
            f"When the last consumer joined, it took {statistics.median(moved):,.0f} ms until all held their share"
            f" (median; {min(moved):,.0f} to {max(moved):,.0f} ms)."
        )
    return said


def _model(runs: Sequence[ScalingRun]) -> list[str]:
    off = [abs(run.predicted_records_per_second / run.records_per_second - 1) for run in runs]
    near = sum(each <= 0.2 for each in off)
    median = statistics.median(off)
    told = "told what a record costs in these runs and which partition each key has"
    off_by = f"{median:.0%} in their median, and by no more than 20 % in {near} of {len(off)}"
    return [f"The model of logbroker plan, {told}, is off by {off_by}."]
