"""`logbroker bench priority`: measures the cost of priorities in a queue group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from logbroker.cli.bench.options import setup_of, shared_options
from logbroker.cli.bench.report import Measurement, run
from logbroker.cli.common.arguments import Real, Whole
from logbroker.cli.common.options import number_option
from logbroker.tools.bench.queues import priority as costs
from logbroker.tools.bench.queues import urgent as urgency


@click.command()
@number_option(
    "--partitions",
    "counts",
    kind=Whole(1, 10_000),
    default=(1, 10, 100, 1000),
    multiple=True,
    help="Number of partitions to merge. Repeatable.",
)
@number_option("--records", kind=Whole(1000), default=200_000, help="Records to drain.")
@number_option("--workers", kind=Whole(1), default=2, help="Worker processes.")
@click.option(
    "--ordering",
    type=click.Choice(["none", "key"]),
    default="none",
    show_default=True,
    help="Order that the group keeps.",
)
@number_option("--keys", kind=Whole(1), default=10_000, help="Number of ordering keys, with --ordering key.")
@number_option(
    "--waiting", kind=Whole(1000), default=1_000_000, help="Waiting records in the measurements rebuild and urgent."
)
@number_option("--urgent", kind=Whole(100), default=1000, help="Urgent records in a round.")
@number_option(
    "--work-ms",
    "works_ms",
    kind=Real(0, 1000),
    default=(5, 0),
    multiple=True,
    metavar="MS",
    help="Work time per record that is not urgent, in milliseconds. Repeatable.",
)
@click.option(
    "--only",
    type=click.Choice(["merge", "rebuild", "urgent"]),
    multiple=True,
    help="Run this measurement only. Repeatable.  [default: all]",
)
@shared_options
def priority(
    counts: Sequence[int],
    records: int,
    workers: int,
    ordering: str,
    keys: int,
    waiting: int,
    urgent: int,
    works_ms: Sequence[float],
    only: Sequence[str],
    **shared: Any,
) -> None:
    """Measure what priorities cost a queue group.

    merge: records per second from a growing number of partitions, delivered by urgency and then by age. rebuild: the
    time to index the waiting records after a restart, with and without the files that the group keeps beside the log.
    urgent: how soon a record that is more urgent than all waiting ones is delivered, with and without a free worker.
    With --work-ms 0, the busy workers use all CPU cores.

    \b
    Examples:
      logbroker bench priority --only merge
      logbroker bench priority --only urgent --work-ms 5
    """
    setup = setup_of(shared, 0)
    sizes = sorted(set(counts))
    measurements: dict[str, Measurement] = {
        "merge": lambda: costs.merge(
            setup, counts=sizes, records=records, workers=workers, ordering=ordering, keys=keys
        ),
        "rebuild": lambda: costs.rebuild(setup, partitions=sizes[-1], waiting=waiting),
        "urgent": lambda: urgency.urgent(setup, waiting=waiting, workers=workers, works_ms=works_ms, count=urgent),
    }
    run([measurements[name] for name in only or measurements], **shared)
