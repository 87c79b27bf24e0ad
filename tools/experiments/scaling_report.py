"""The report of the scaling experiment: a CSV file, and an HTML page for people who do not know the project."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from typing import Final

from logbroker.tools.experiments import page
from logbroker.tools.experiments.advice import advice
from logbroker.tools.experiments.scaling_run import Scaling, ScalingRun

_LISTS: Final = ("held", "key_counts")
"""Fields that are left out of the CSV, because they are lists."""

_INTRODUCTION: Final = """
A log of records is split into partitions, and each record has a key: it is about one thing, such as one customer.
All records of a key lie in one partition, in order. In a consumer group each partition belongs to one consumer, so
more partitions let more consumers work; in a queue group by key, any worker takes any key, but only one record of a
key at a time. There a hot key can be split into sub-lanes, which keep the order of a second key. How far does
adding partitions and consumers help, and what do hot keys do to it? Here it was measured: real consumer processes
on a real broker, on one machine, for each combination below. Work takes its time by sleeping.
"""
_RUNS: Final = """
Each run has two parts. First a backlog is drained as fast as possible. This gives the throughput, and the share of
their time in which consumers were idle. Then records arrive at a steady rate, 60 % of this throughput. This gives the
latency p99 (99 of 100 records are finished within it) and the utilisation, the share of their time in which consumers
work. A part lasts about a second, so p99 comes from a few records, or only from the slowest one. There are 100 keys.
Their shares of the records are equal (uniform), follow Zipf's law with exponent 1.1 (the k-th most frequent key is
k^1.1 times rarer than the first), or are 80 % for one key (hot). "split into 8": each record has one of 100 second keys
in a header, by which the hot key is split into 8 sub-lanes.
"""
_TABLE: Final = """
Predicted: the rate by the model of logbroker plan, which knows the cost of a record in these runs. Disorder:
records that were finished after a later record of their key or, where it is split, of their second key. Rebalance:
the time from the join of the last consumer until all hold their share of the partitions, or a dash if no partition
moved.
"""
CAPTIONS: Final = {
    "throughput": "Records per second, by partitions. Where a line is flat, partitions do not help.",
    "latency": "Latency p99 under a steady load, in ms. Lower is better.",
    "idle": "The share of their time in which consumers had nothing to do while a backlog waited.",
    "model": "Throughput as predicted by the model, and as measured; between the dotted lines it is within 20 %.",
}


def scaling_csv(found: Scaling) -> str:
    """Return a CSV text with one row per run."""
    out = io.StringIO()
    names = [name for name in ScalingRun.__struct_fields__ if name not in _LISTS]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for run in found.runs:
        writer.writerow(["" if getattr(run, name) is None else getattr(run, name) for name in names])
    return out.getvalue()


def keys_text(run: ScalingRun) -> str:
    """Return the skew of a run, and its split."""
    return run.skew + (f", split into {run.split_into}" if run.split_into else "")


def scaling_page(found: Scaling, pictures: Mapping[str, bytes], without: str = "") -> str:
    """Return the page. `pictures` has SVG files by their names in `CAPTIONS`. `without` says why there are no
    pictures."""
    parts = [
        page.paragraph(_INTRODUCTION),
        "<h2>What we would advise</h2>",
        page.bullets(advice(found)),
        "<h2>How it was measured</h2>",
        page.paragraph(_RUNS),
    ]
    if without:
        parts.append(page.paragraph(without, "note"))
    for name, picture in pictures.items():
        source = base64.b64encode(picture).decode("ascii")
        parts += [
            f"<h2>{CAPTIONS[name]}</h2>",
            f'<img alt="{CAPTIONS[name]}" src="data:image/svg+xml;base64,{source}">',
        ]
    parts += ["<h2>All runs</h2>", page.paragraph(_TABLE, "note"), _table(found.runs)]
    parts.append(page.paragraph(f"Keys were drawn with seed {found.seed}.", "note"))
    return page.page("Partitions, consumers, keys: what helps", parts)


def _table(runs: Sequence[ScalingRun]) -> str:
    head = ("mode", "partitions", "consumers", "keys", "work ms", "records/s", "predicted", "idle", "p99 ms")
    return page.table(
        (*head, "utilisation", "busiest", "rebalance ms", "disorder"),
        [
            (
                run.mode,
                str(run.partitions),
                str(run.consumers),
                keys_text(run),
                f"{run.work_ms:g}",
                f"{run.records_per_second:,.0f}",
                f"{run.predicted_records_per_second:,.0f}",
                f"{run.idle_share:.0%}",
                f"{run.p99_ms:,.1f}",
                f"{run.utilisation:.0%}",
                f"{run.busiest_utilisation:.0%}",
                "-" if run.rebalance_ms is None else f"{run.rebalance_ms:,.0f}",
                (f"{run.violations:,}", "bad" if run.violations else "good"),
            )
            for run in runs
        ],
    )
