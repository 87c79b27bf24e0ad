"""`logbroker bench`: measure a broker on this machine, beside the bare server that is its ceiling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from logbroker.cli.bench_report import Measurement, run
from logbroker.cli.options import json_option
from logbroker.tools.bench import footprint, measure
from logbroker.tools.bench import groups as group_costs
from logbroker.tools.bench import queues as queue_costs
from logbroker.tools.bench import recovery as restarts
from logbroker.tools.bench.measure import MIB, Setup
from logbroker.tools.bench.verify import verify_segments

BATCH_SIZES = (16 * 1024, 64 * 1024, MIB)


def _shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option(
            "--directory",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Where the data go; the disk under it is measured.  [default: the temporary directory]",
        ),
        click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="The median counts."),
    ):
        command = option(command)
    return command


_ceiling_option = click.option(
    "--ceiling",
    is_flag=True,
    help="Also run a bare gRPC server that does the same file work, in turn with the broker.",
)
_batch_option = click.option(
    "--batch-bytes",
    "batch_sizes",
    type=click.IntRange(100, MIB),
    multiple=True,
    default=BATCH_SIZES,
    show_default=True,
    help="Repeatable.",
)
_durability_option = click.option("--durability", type=click.Choice(["written", "synced"]), default="written")
_partitions_option = click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)


@click.group()
def bench() -> None:
    """Measure a broker on this machine.

    Each command starts a broker of its own, measures it for some rounds and prints the median with the range. With
    --ceiling the rounds alternate with those of a bare gRPC server that appends and reads the same bytes and does
    nothing else; the ratio says how many times faster it is.

    \b
    Examples:
      logbroker bench produce --ceiling
      logbroker bench produce --durability synced --partitions 100
      logbroker bench produce --records 2000000
      logbroker bench consume --ceiling --json
      logbroker bench latency --ceiling
      logbroker bench startup
      logbroker bench seek --gigabytes 5
      logbroker bench recovery --gigabytes 1 --gigabytes 10
      logbroker bench verify
      logbroker bench groups
      logbroker bench groups --only disturbance --seconds 20
      logbroker bench queue --only drain
    """


@bench.command()
@_batch_option
@_durability_option
@_partitions_option
@click.option("--producers", type=click.IntRange(1), default=8, show_default=True, help="Calls in flight.")
@click.option("--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Of one round.")
@click.option("--records", type=click.IntRange(1), help="Send so many records through one Python Producer instead.")
@click.option("--value-bytes", type=click.IntRange(0, MIB // 2), default=100, show_default=True, help="With --records.")
@_ceiling_option
@_shared_options
def produce(
    batch_sizes: Sequence[int],
    durability: str,
    partitions: int,
    producers: int,
    seconds: float,
    records: int | None,
    value_bytes: int,
    **shared: Any,
) -> None:
    """Append opaque batches, or records through the Python client."""
    setup = _setup(shared, seconds)
    if records is not None:
        run(
            [
                lambda: measure.produce_records(
                    setup, records=records, value_bytes=value_bytes, partitions=partitions, durability=durability
                )
            ],
            **shared,
        )
        return

    def measurement(batch_bytes: int) -> Measurement:
        return lambda: measure.produce(
            setup, batch_bytes=batch_bytes, producers=producers, partitions=partitions, durability=durability
        )

    run([measurement(size) for size in batch_sizes], **shared)


@bench.command()
@_batch_option
@_partitions_option
@click.option("--megabytes", type=click.IntRange(1), default=256, show_default=True, help="To read in a round.")
@click.option(
    "--response-bytes",
    type=click.IntRange(1, 3 * MIB),
    default=MIB,
    show_default=True,
    help="How much one response may hold.",
)
@click.option("--records", type=click.IntRange(1), help="Read so many records through one Python Consumer instead.")
@click.option("--value-bytes", type=click.IntRange(0, MIB // 2), default=100, show_default=True, help="With --records.")
@_ceiling_option
@_shared_options
def consume(
    batch_sizes: Sequence[int],
    partitions: int,
    megabytes: int,
    response_bytes: int,
    records: int | None,
    value_bytes: int,
    **shared: Any,
) -> None:
    """Read opaque batches through a fetch stream, or records through the Python client."""
    setup = _setup(shared, 0)
    if records is not None:
        run(
            [lambda: measure.consume_records(setup, records=records, value_bytes=value_bytes, partitions=partitions)],
            **shared,
        )
        return

    def measurement(batch_bytes: int) -> Measurement:
        return lambda: measure.consume(
            setup,
            batch_bytes=batch_bytes,
            response_bytes=response_bytes,
            partitions=partitions,
            total_bytes=megabytes * 1_000_000,
        )

    run([measurement(size) for size in batch_sizes], **shared)


@bench.command()
@click.option("--count", type=click.IntRange(10), default=500, show_default=True, help="Records of one round.")
@click.option("--durability", type=click.Choice(["written", "synced"]), default="synced", show_default=True)
@_ceiling_option
@_shared_options
def latency(count: int, durability: str, **shared: Any) -> None:
    """Append one 100-byte record at a time. The ceiling of `synced` is the bare server's time and one fdatasync."""
    setup = _setup(shared, 0)
    run([lambda: measure.latency(setup, count=count, durability=durability)], **shared)


@bench.command()
@click.option("--partitions", type=click.IntRange(1), default=2000, show_default=True)
@_shared_options
def startup(partitions: int, **shared: Any) -> None:
    """Start an empty broker, and one with many partitions; time until ready and memory."""
    setup = _setup(shared, 0)
    run([lambda: footprint.startup(setup, partitions=partitions)], **shared)


@bench.command()
@click.option("--gigabytes", type=click.FloatRange(0.001), default=5.0, show_default=True, help="Of the partition.")
@click.option("--count", type=click.IntRange(10), default=300, show_default=True, help="Fetches of one round.")
@_shared_options
def seek(gigabytes: float, count: int, **shared: Any) -> None:
    """Fetch at random offsets of a large partition, and near its end."""
    setup = _setup(shared, 0)
    run([lambda: footprint.seek(setup, gigabytes=gigabytes, count=count)], **shared)


@bench.command()
@click.option("--batch-bytes", type=click.IntRange(100, MIB), default=MIB, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1), default=5.0, show_default=True, help="Of one round.")
@_shared_options
def stall(batch_bytes: int, seconds: float, **shared: Any) -> None:
    """Ask for something that needs no disk while written batches arrive; how long that takes."""
    setup = _setup(shared, seconds)
    run([lambda: footprint.stall(setup, batch_bytes=batch_bytes)], **shared)


@bench.command()
@click.option(
    "--gigabytes",
    "sizes",
    type=click.FloatRange(0.001),
    multiple=True,
    default=(1.0,),
    show_default=True,
    help="Of the data directory. Repeatable; so much disk is needed.",
)
@click.option("--partitions", type=click.IntRange(1), default=200, show_default=True)
@click.option(
    "--above-megabytes",
    "unsynced_megabytes",
    type=click.FloatRange(0),
    multiple=True,
    default=(0.0, 64.0),
    show_default=True,
    help="MiB appended above the recovery points before the kill. Repeatable; the broker keeps it below 256.",
)
@click.option("--batch-bytes", type=click.IntRange(100, MIB), default=64 * 1024, show_default=True, help="Of those.")
@click.option("--cold", is_flag=True, help="Take the directory out of the page cache before each start.")
@_shared_options
def recovery(
    sizes: Sequence[float],
    partitions: int,
    unsynced_megabytes: Sequence[float],
    batch_bytes: int,
    cold: bool,
    **shared: Any,
) -> None:
    """Kill a broker and start it again; time until it serves, beside that of an empty one."""
    setup = _setup(shared, 0)
    run(
        [
            lambda: restarts.recovery(
                setup,
                gigabytes=sizes,
                partitions=partitions,
                unsynced_megabytes=unsynced_megabytes,
                batch_bytes=batch_bytes,
                cold=cold,
            )
        ],
        **shared,
    )


@bench.command()
@click.option("--batch-bytes", type=click.IntRange(100, MIB), default=64 * 1024, show_default=True)
@click.option("--gigabytes", type=click.FloatRange(0.001), default=1.0, show_default=True, help="Of the segments.")
@_shared_options
def verify(batch_bytes: int, gigabytes: float, **shared: Any) -> None:
    """Verify segments that are in the page cache, as `logbroker segment verify` does."""
    setup = _setup(shared, 0)
    run([lambda: verify_segments(setup, batch_bytes=batch_bytes, gigabytes=gigabytes)], **shared)


@bench.command()
@click.option("--members", type=click.IntRange(2), default=10, show_default=True, help="That read, of a small group.")
@click.option("--partitions", type=click.IntRange(2), default=900, show_default=True, help="Of the small group.")
@click.option("--streams", type=click.IntRange(8), default=200, show_default=True, help="Members of a large group.")
@click.option("--committers", type=click.IntRange(1), default=16, show_default=True, help="Members that commit.")
@click.option("--changes", type=click.IntRange(1), default=10, show_default=True, help="Joins and leaves that disturb.")
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Of disturbance, run once."
)
@click.option(
    "--only",
    type=click.Choice(["settle", "crowd", "commits", "disturbance"]),
    multiple=True,
    help="Some of the measurements. Repeatable.",
)
@_shared_options
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
    setup = _setup(shared, seconds)
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


@bench.command()
@click.option("--records", type=click.IntRange(1000), default=500_000, show_default=True, help="That are worked off.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes that do it.")
@click.option("--keys", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--waiting", type=click.IntRange(1000), default=5_000_000, show_default=True, help="The most that wait.")
@click.option(
    "--blocked", type=click.IntRange(1000), default=2_000_000, show_default=True, help="Records of a key that stands."
)
@click.option(
    "--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="Of all rounds beside that key."
)
@click.option(
    "--only",
    type=click.Choice(["drain", "distinct", "backlog", "blocked", "restart"]),
    multiple=True,
    help="Some of the measurements. Repeatable.",
)
@_shared_options
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
    setup = _setup(shared, seconds)
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


def _setup(shared: dict[str, Any], seconds: float) -> Setup:
    ceiling = shared.get("ceiling", False)
    return Setup(rounds=shared["rounds"], seconds=seconds, ceiling=ceiling, directory=shared["directory"])
