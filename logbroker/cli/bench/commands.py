"""`logbroker bench`: measures a broker on this machine, and a bare server as its upper limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from logbroker.cli.bench.convoy import convoy
from logbroker.cli.bench.groups import groups, queue
from logbroker.cli.bench.options import setup_of, shared_options
from logbroker.cli.bench.priority import priority
from logbroker.cli.bench.report import Measurement, run
from logbroker.cli.common.arguments import Real, Whole
from logbroker.cli.common.options import number_option
from logbroker.cli.common.stops import CLEAN_UP_SECONDS, Interrupter, stops_are_interrupts
from logbroker.tools.bench.harness import measure
from logbroker.tools.bench.harness.measure import MIB
from logbroker.tools.bench.log import footprint
from logbroker.tools.bench.log import recovery as restarts
from logbroker.tools.bench.log.verify import verify_segments

BATCH_SIZES = (16 * 1024, 64 * 1024, MIB)


_ceiling_option = click.option(
    "--ceiling",
    is_flag=True,
    help="Also measure a bare gRPC server that does the same file work, in turn with the broker.",
)
_batch_option = number_option(
    "--batch-bytes",
    "batch_sizes",
    kind=Whole(100, MIB),
    default=BATCH_SIZES,
    multiple=True,
    metavar="BYTES",
    help="Size of a record batch. Repeatable.",
)
_durability_option = click.option(
    "--durability",
    type=click.Choice(["written", "synced"]),
    default="written",
    show_default=True,
    help="Durability of the topic.",
)
_partitions_option = number_option("--partitions", kind=Whole(1), default=1, help="Number of partitions.")
_value_option = number_option(
    "--value-bytes",
    kind=Whole(0, MIB // 2),
    default=100,
    metavar="BYTES",
    help="Size of a record's value, with --records.",
)


@click.group()
@click.pass_context
def bench(context: click.Context) -> None:
    """Measure the speed of a broker on this machine.

    Each command starts a broker of its own, measures it for some rounds and prints the median with the range. With
    --ceiling, the rounds alternate with rounds of a bare gRPC server, which appends and reads the same bytes and does
    nothing else; the ratio says how many times faster the bare server is.

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
      logbroker bench priority --only merge
      logbroker bench convoy --only work
    """
    # SIGTERM and SIGHUP, like Ctrl-C, end the broker and remove its directory.
    context.obj = context.with_resource(stops_are_interrupts(Interrupter(CLEAN_UP_SECONDS)))


@bench.command()
@_batch_option
@_durability_option
@_partitions_option
@number_option("--producers", kind=Whole(1), default=8, help="Append calls in flight.")
@number_option("--seconds", kind=Real(0.1), default=2.0, metavar="SECONDS", help="Duration of a round.")
@number_option("--records", kind=Whole(1), help="Send N records through one Python Producer instead.")
@_value_option
@_ceiling_option
@shared_options
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
    """Append opaque batches, or records through the Python client.

    \b
    Examples:
      logbroker bench produce --ceiling
      logbroker bench produce --durability synced --partitions 100
      logbroker bench produce --records 2000000
    """
    setup = setup_of(shared, seconds)
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
@number_option("--megabytes", kind=Whole(1), default=256, metavar="MB", help="Data that a round reads.")
@number_option(
    "--response-bytes", kind=Whole(1, 3 * MIB), default=MIB, metavar="BYTES", help="Maximum size of a response."
)
@number_option("--records", kind=Whole(1), help="Read N records through one Python Consumer instead.")
@click.option(
    "--merged",
    is_flag=True,
    help="With --records: read all partitions as one stream in order, and compare that with a plain loop.",
)
@_value_option
@_ceiling_option
@shared_options
def consume(
    batch_sizes: Sequence[int],
    partitions: int,
    megabytes: int,
    response_bytes: int,
    records: int | None,
    merged: bool,
    value_bytes: int,
    **shared: Any,
) -> None:
    """Read opaque batches, or records through the Python client.

    \b
    Examples:
      logbroker bench consume --ceiling --json
      logbroker bench consume --records 2000000
      logbroker bench consume --records 500000 --partitions 8 --merged
    """
    setup = setup_of(shared, 0)
    if merged and records is None:
        raise click.UsageError("--merged needs --records: it reads through the Python client")
    if records is not None:
        read = measure.consume_merged if merged else measure.consume_records
        run([lambda: read(setup, records=records, value_bytes=value_bytes, partitions=partitions)], **shared)
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
@number_option("--count", kind=Whole(10), default=500, help="Records in a round.")
@click.option(
    "--durability",
    type=click.Choice(["written", "synced"]),
    default="synced",
    show_default=True,
    help="Durability of the topic.",
)
@_ceiling_option
@shared_options
def latency(count: int, durability: str, **shared: Any) -> None:
    """Append one 100-byte record at a time.

    With --ceiling and --durability synced, the broker is compared with the bare server's time plus one fdatasync.

    \b
    Examples:
      logbroker bench latency --ceiling
      logbroker bench latency --durability written
    """
    setup = setup_of(shared, 0)
    run([lambda: measure.latency(setup, count=count, durability=durability)], **shared)


@bench.command()
@number_option("--partitions", kind=Whole(1), default=2000, help="Partitions of the second broker.")
@shared_options
def startup(partitions: int, **shared: Any) -> None:
    """Measure how soon brokers start, and their memory.

    The first broker is empty, the second has many partitions.

    \b
    Examples:
      logbroker bench startup
      logbroker bench startup --partitions 10000
    """
    setup = setup_of(shared, 0)
    run([lambda: footprint.startup(setup, partitions=partitions)], **shared)


@bench.command()
@number_option("--gigabytes", kind=Real(0.001), default=5.0, metavar="GB", help="Size of the partition.")
@number_option("--count", kind=Whole(10), default=300, help="Fetches in a round.")
@shared_options
def seek(gigabytes: float, count: int, **shared: Any) -> None:
    """Fetch at random offsets of a large partition, and near its end.

    \b
    Examples:
      logbroker bench seek --gigabytes 5
    """
    setup = setup_of(shared, 0)
    run([lambda: footprint.seek(setup, gigabytes=gigabytes, count=count)], **shared)


@bench.command()
@number_option("--batch-bytes", kind=Whole(100, MIB), default=MIB, metavar="BYTES", help="Size of a record batch.")
@number_option("--seconds", kind=Real(0.1), default=5.0, metavar="SECONDS", help="Duration of a round.")
@shared_options
def stall(batch_bytes: int, seconds: float, **shared: Any) -> None:
    """Measure calls that need no disk, while batches are appended.

    \b
    Examples:
      logbroker bench stall
      logbroker bench stall --batch-bytes 65536 --seconds 10
    """
    setup = setup_of(shared, seconds)
    run([lambda: footprint.stall(setup, batch_bytes=batch_bytes)], **shared)


@bench.command()
@number_option(
    "--gigabytes",
    "sizes",
    kind=Real(0.001),
    default=(1.0,),
    multiple=True,
    metavar="GB",
    help="Size of the data directory; needs as much free disk. Repeatable.",
)
@number_option("--partitions", kind=Whole(1), default=200, help="Number of partitions.")
@number_option(
    "--above-megabytes",
    "unsynced_megabytes",
    kind=Real(0),
    default=(0.0, 64.0),
    multiple=True,
    metavar="MIB",
    help="MiB to append before the kill. The broker may store recovery points meanwhile; recovery then reads less than"
    " this. The row shows how much. Repeatable.",
)
@number_option(
    "--batch-bytes",
    kind=Whole(100, MIB),
    default=64 * 1024,
    metavar="BYTES",
    help="Size of the batches after the recovery points.",
)
@click.option("--cold", is_flag=True, help="Drop the directory from the page cache before each start.")
@shared_options
def recovery(
    sizes: Sequence[float],
    partitions: int,
    unsynced_megabytes: Sequence[float],
    batch_bytes: int,
    cold: bool,
    **shared: Any,
) -> None:
    """Measure the start of a killed broker and of an empty one.

    \b
    Examples:
      logbroker bench recovery --gigabytes 1 --gigabytes 10
      logbroker bench recovery --cold
    """
    setup = setup_of(shared, 0)
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
@number_option(
    "--batch-bytes", kind=Whole(100, MIB), default=64 * 1024, metavar="BYTES", help="Size of a record batch."
)
@number_option("--gigabytes", kind=Real(0.001), default=1.0, metavar="GB", help="Size of all segments.")
@shared_options
def verify(batch_bytes: int, gigabytes: float, **shared: Any) -> None:
    """Measure `logbroker segment verify` on segments in the page cache.

    \b
    Examples:
      logbroker bench verify
      logbroker bench verify --gigabytes 4
    """
    setup = setup_of(shared, 0)
    run([lambda: verify_segments(setup, batch_bytes=batch_bytes, gigabytes=gigabytes)], **shared)


bench.add_command(groups)
bench.add_command(queue)
bench.add_command(priority)
bench.add_command(convoy)
