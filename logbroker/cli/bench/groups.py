"""`logbroker bench groups` and `logbroker bench queue`: measure the costs of consumer groups and queue groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from logbroker.cli.bench.options import setup_of, shared_options
from logbroker.cli.bench.report import Measurement, run
from logbroker.cli.common.arguments import Real, Whole
from logbroker.cli.common.options import number_option
from logbroker.tools.bench.groups import measurements as group_costs
from logbroker.tools.bench.queues import measurements as queue_costs


@click.command()
@number_option("--members", kind=Whole(2), default=10, help="Members of the small group.")
@number_option("--partitions", kind=Whole(2), default=900, help="Partitions that the small group reads.")
@number_option("--streams", kind=Whole(8), default=200, help="Members of the large group.")
@number_option("--committers", kind=Whole(1), default=16, help="Members that commit offsets.")
@number_option("--changes", kind=Whole(1), default=10, help="Members that join and leave during disturbance.")
@number_option(
    "--seconds",
    kind=Real(0.1),
    default=60.0,
    metavar="SECONDS",
    help="Duration of the measurement disturbance. The measurement commits takes as long, but at most 2 s.",
)
@click.option(
    "--only",
    type=click.Choice(["settle", "crowd", "commits", "disturbance"]),
    multiple=True,
    help="Run this measurement only. Repeatable.  [default: all]",
)
@shared_options
def groups(
    members: int,
    partitions: int,
    streams: int,
    committers: int,
    changes: int,
    seconds: float,
    only: Sequence[str],
    **shared: Any,
) -> None:
    """Measure how consumer groups join, leave, fail and commit.

    settle: how soon a small group reads again after a member joins, dies or freezes. crowd: how soon a large group
    settles, with ten partitions for each member, also at a half and a quarter of its size. commits: how many offset
    commits the broker takes. disturbance: how long other members wait while members join and leave.

    \b
    Examples:
      logbroker bench groups
      logbroker bench groups --only disturbance --seconds 20
    """
    setup = setup_of(shared, seconds)
    size = {"members": members, "partitions": partitions}
    measurements: dict[str, list[Measurement]] = {
        "settle": [
            lambda: group_costs.join(setup, **size),
            lambda: group_costs.takeover(setup, **size, freeze=False),
            lambda: group_costs.takeover(setup, **size, freeze=True),
        ],
        "crowd": [lambda: group_costs.crowd(setup, members=streams, partitions=10 * streams)],
        "commits": [lambda: group_costs.commits(setup, members=committers, seconds=min(seconds, 2.0))],
        "disturbance": [lambda: group_costs.disturbance(setup, partitions=64, changes=changes)],
    }
    run([each for name in only or measurements for each in measurements[name]], **shared)


@click.command()
@number_option("--records", kind=Whole(1000), default=500_000, help="Records of drain and pipeline.")
@number_option("--workers", kind=Whole(1), default=2, help="Worker processes.")
@number_option("--keys", kind=Whole(1), default=10_000, help="Number of ordering keys.")
@number_option("--waiting", kind=Whole(1000), default=5_000_000, help="Maximum number of waiting records.")
@number_option("--blocked", kind=Whole(1000), default=2_000_000, help="Records of the blocked key.")
@number_option(
    "--seconds",
    kind=Real(1),
    default=60.0,
    metavar="SECONDS",
    help="Duration of all rounds of the measurement blocked.",
)
@click.option(
    "--only",
    type=click.Choice(["drain", "distinct", "pipeline", "backlog", "blocked", "restart"]),
    multiple=True,
    help="Run this measurement only. Repeatable.  [default: all]",
)
@shared_options
def queue(
    records: int,
    workers: int,
    keys: int,
    waiting: int,
    blocked: int,
    seconds: float,
    only: Sequence[str],
    **shared: Any,
) -> None:
    """Measure how workers of queue groups take and acknowledge records.

    drain: records per second, with and without order. distinct: the same for a million records, with a thousand and a
    million keys. pipeline: records per second if each ack also sends a record to another topic, compared with acks
    alone. backlog: the cost of a delivery while more and more records wait. blocked: how much a blocked key delays
    other keys. restart: how soon the first delivery comes after a restart, with at least 1,000 keys.

    \b
    Examples:
      logbroker bench queue
      logbroker bench queue --only drain --records 100000
    """
    setup = setup_of(shared, seconds)
    load = {"records": records, "workers": workers}
    million = {"records": 1_000_000, "workers": workers}
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size < waiting] + [waiting]
    acked = min(100_000, waiting * 2 // 5)
    measurements: dict[str, list[Measurement]] = {
        "drain": [
            lambda: queue_costs.drain(setup, ordering="key", keys=keys, **load),
            lambda: queue_costs.drain(setup, ordering="none", keys=keys, **load),
        ],
        "distinct": [
            lambda: queue_costs.drain(setup, ordering="key", keys=1000, **million),
            lambda: queue_costs.drain(setup, ordering="key", keys=1_000_000, **million),
        ],
        "pipeline": [lambda: queue_costs.pipeline(setup, ordering="key", keys=keys, **load)],
        "backlog": [lambda: queue_costs.backlog(setup, sizes=sizes, keys=keys, deliveries=20_000)],
        "blocked": [lambda: queue_costs.blocked(setup, waiting=blocked, keys=1000, records_per_second=2000)],
        "restart": [lambda: queue_costs.restart(setup, records=waiting, keys=keys, acked=acked)],
    }
    run([each for name in only or measurements for each in measurements[name]], **shared)
