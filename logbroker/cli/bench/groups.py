"""`logbroker bench groups` and `logbroker bench queue`: what consumer groups and queue groups cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from logbroker.cli.bench.options import setup_of, shared_options
from logbroker.cli.bench.report import Measurement, run
from logbroker.cli.common.arguments import Real, Whole
from logbroker.tools.bench.groups import measurements as group_costs
from logbroker.tools.bench.queues import measurements as queue_costs


@click.command()
@click.option("--members", type=Whole(2), default=10, show_default=True, help="That read, of a small group.")
@click.option("--partitions", type=Whole(2), default=900, show_default=True, help="Of the small group.")
@click.option("--streams", type=Whole(8), default=200, show_default=True, help="Members of a large group.")
@click.option("--committers", type=Whole(1), default=16, show_default=True, help="Members that commit.")
@click.option("--changes", type=Whole(1), default=10, show_default=True, help="Joins and leaves that disturb.")
@click.option("--seconds", type=Real(0.1), default=60.0, show_default=True, help="Of disturbance, run once.")
@click.option(
    "--only",
    type=click.Choice(["settle", "crowd", "commits", "disturbance"]),
    multiple=True,
    help="Some of the measurements. Repeatable.",
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
    """Let members of consumer groups join, leave, die, freeze and commit.

    The large group has ten partitions for each member, and is measured also at a half and a quarter of its size.
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
@click.option("--records", type=Whole(1000), default=500_000, show_default=True, help="That are worked off.")
@click.option("--workers", type=Whole(1), default=2, show_default=True, help="Processes that do it.")
@click.option("--keys", type=Whole(1), default=10_000, show_default=True)
@click.option("--waiting", type=Whole(1000), default=5_000_000, show_default=True, help="The most that wait.")
@click.option("--blocked", type=Whole(1000), default=2_000_000, show_default=True, help="Records of a key that stands.")
@click.option("--seconds", type=Real(1), default=60.0, show_default=True, help="Of all rounds beside that key.")
@click.option(
    "--only",
    type=click.Choice(["drain", "distinct", "backlog", "blocked", "restart"]),
    multiple=True,
    help="Some of the measurements. Repeatable.",
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
    """Let workers of queue groups take records and acknowledge them.

    drain: with and without order. distinct: a million keys beside a thousand. backlog: the cost of a delivery while
    more and more waits. blocked: whom a key that stands disturbs. restart: how soon the first delivery comes.
    """
    setup = setup_of(shared, seconds)
    load = {"records": records, "workers": workers}
    million = {"records": 1_000_000, "workers": workers}
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size < waiting] + [waiting]
    measurements: dict[str, list[Measurement]] = {
        "drain": [
            lambda: queue_costs.drain(setup, ordering="key", keys=keys, **load),
            lambda: queue_costs.drain(setup, ordering="none", keys=keys, **load),
        ],
        "distinct": [
            lambda: queue_costs.drain(setup, ordering="key", keys=1000, **million),
            lambda: queue_costs.drain(setup, ordering="key", keys=1_000_000, **million),
        ],
        "backlog": [lambda: queue_costs.backlog(setup, sizes=sizes, keys=keys, deliveries=20_000)],
        "blocked": [lambda: queue_costs.blocked(setup, waiting=blocked, keys=1000, records_per_second=2000)],
        "restart": [lambda: queue_costs.restart(setup, records=waiting, keys=keys, acked=100_000)],
    }
    run([each for name in only or measurements for each in measurements[name]], **shared)
