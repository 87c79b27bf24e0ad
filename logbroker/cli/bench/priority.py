"""`logbroker bench priority`: what priorities cost a queue group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from logbroker.cli.bench.options import setup_of, shared_options
from logbroker.cli.bench.report import Measurement, run
from logbroker.cli.common.arguments import Real, Whole
from logbroker.tools.bench.queues import priority as costs
from logbroker.tools.bench.queues import urgent as urgency


@click.command()
@click.option(
    "--partitions",
    "counts",
    type=Whole(1, 10_000),
    multiple=True,
    default=(1, 10, 100, 1000),
    show_default=True,
    help="That are merged. Repeatable.",
)
@click.option("--records", type=Whole(1000), default=200_000, show_default=True, help="That are worked off.")
@click.option("--workers", type=Whole(1), default=2, show_default=True, help="Processes that do it.")
@click.option("--ordering", type=click.Choice(["none", "key"]), default="none", show_default=True)
@click.option("--keys", type=Whole(1), default=10_000, show_default=True, help="With --ordering key.")
@click.option("--waiting", type=Whole(1000), default=1_000_000, show_default=True, help="That wait, beside the merge.")
@click.option("--urgent", type=Whole(100), default=1000, show_default=True, help="Urgent records of a round.")
@click.option(
    "--work-ms",
    "works_ms",
    type=Real(0, 1000),
    multiple=True,
    default=(5, 0),
    show_default=True,
    help="That workers spend on each record before an urgent one. Repeatable.",
)
@click.option(
    "--only",
    type=click.Choice(["merge", "rebuild", "urgent"]),
    multiple=True,
    help="Some of the measurements. Repeatable.",
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
    """Let workers of a queue group take records of mixed priorities and acknowledge them.

    merge: records of ten priorities out of more and more partitions, the most urgent and then the oldest first.
    rebuild: the index of a group over the most partitions after a restart, with the files that it keeps beside the log
    and without. urgent: how soon a record comes that is more urgent than all that wait, with a worker that is free for
    it and without; where the others spend no time on a record, they keep all cores busy.
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
