"""`logbroker experiment`: what order costs, and what partitions, consumers and keys give, measured on this machine."""

from __future__ import annotations

import asyncio
from typing import Final, TextIO

import click
import grpc

from logbroker.cli import terminal
from logbroker.cli.demo import read_flights
from logbroker.cli.experiment_view import show_lanes, shown
from logbroker.cli.options import json_option
from logbroker.embedded_broker import embedded
from logbroker.errors import LogbrokerError
from logbroker.tools.experiments import lanes as lanes_experiment
from logbroker.tools.experiments.lane_words import conclusions
from logbroker.tools.experiments.lanes_page import lanes_page

# Opened at once: nobody shall wait for an experiment to hear that its file cannot be written.
_FILE: Final = click.File("w", encoding="utf-8", lazy=False)


@click.group()
def experiment() -> None:
    """See what order costs, and what partitions and consumers give, on this machine.

    Each experiment runs real worker processes on a real broker in a temporary directory.

    \b
    Examples:
      logbroker experiment lanes
      logbroker experiment lanes --work-ms 10 --records 2000 --html lanes.html
    """


@experiment.command()
@click.option("--work-ms", type=click.FloatRange(0, 10_000), default=2.0, show_default=True, help="Of each record.")
@click.option("--records", type=click.IntRange(1), default=10_000, show_default=True, help="Of each strip.")
@click.option("--workers", type=click.IntRange(1, 64), default=8, show_default=True, help="Processes of each strip.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write a page with pictures, too.")
@click.option("--plain", is_flag=True, help="A line every two seconds instead of the strips.")
@json_option
def lanes(work_ms: float, records: int, workers: int, html: TextIO | None, plain: bool, as_json: bool) -> None:
    """Drain the same records with no order, in one line, and in order per key, side by side.

    Real flights wait in four queue groups, each with worker processes of its own: ordering none, single, and key with 4
    and with 100 keys. Up to 27,004 records.
    """
    rows = [(flight.key or b"", flight.value or b"") for flight in read_flights()]
    if records > len(rows):
        raise click.BadParameter(f"there are {len(rows):,} flights", param_hint="--records")
    rows = rows[:records]
    click.echo(f"Starting {4 * workers} worker processes...", err=True)
    with embedded() as broker, shown(plain=plain) as look:
        try:
            strips = asyncio.run(
                lanes_experiment.drain(broker.address, rows, workers=workers, work_seconds=work_ms / 1000, look=look)
            )
        except grpc.RpcError as error:
            raise LogbrokerError(f"the broker failed: {error}") from None
    figures = [strip.settle() for strip in strips]
    if html is not None:
        html.write(lanes_page(strips, figures, work_ms))
    if as_json:
        terminal.write_json({"work_ms": work_ms, "strips": figures})
        return
    show_lanes(figures)
    terminal.say(*conclusions(figures))
    click.echo("With --html FILE it draws all this." if html is None else f"Pictures: {html.name}")
