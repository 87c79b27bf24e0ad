"""`logbroker experiment`: measures what order costs, and what partitions, consumers and keys gain, on this machine."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, TypeVar

import click
import grpc
import msgspec

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType, Real, Whole
from logbroker.cli.common.lines import warn, write_line
from logbroker.cli.common.options import json_option, number_option
from logbroker.cli.common.stops import CLEAN_UP_SECONDS, Interrupter, stops_are_interrupts
from logbroker.cli.demo import read_flights
from logbroker.cli.experiment.view import show_lanes, show_scaling, shown
from logbroker.config import MAX_INT64
from logbroker.embedded_broker import embedded
from logbroker.errors import LogbrokerError
from logbroker.tools.experiments.advice import advice
from logbroker.tools.experiments.lane_words import conclusions
from logbroker.tools.experiments.lanes import STRIPS, drain
from logbroker.tools.experiments.lanes_page import lanes_page
from logbroker.tools.experiments.scaling import scale
from logbroker.tools.experiments.scaling_pictures import HOW_TO_INSTALL, can_draw, draw
from logbroker.tools.experiments.scaling_report import scaling_csv, scaling_page
from logbroker.tools.experiments.scaling_run import default_grid, quick_grid

T = TypeVar("T")

SECONDS: Final = 1.2
"""Approximate duration of each of the two parts of a run: draining a backlog, then a steady load."""
QUICK_SECONDS: Final = 0.8
_ROOM_BYTES: Final = 4 * 1024 * 1024
"""Free disk space that an experiment needs. Its files together are smaller."""


@click.group()
@click.pass_context
def experiment(context: click.Context) -> None:
    """Measure what order costs and what partitions and consumers gain.

    Each experiment runs real worker processes on a real broker on this machine, in a temporary directory.

    \b
    Examples:
      logbroker experiment lanes
      logbroker experiment lanes --work-ms 10 --records 2000 --html lanes.html
      logbroker experiment scaling --quick --out scaling
      logbroker plan --from scaling/scaling.json --rate 400 --work-ms 20
    """
    # A command that a signal stops also ends its broker and removes the directory.
    context.obj = context.with_resource(stops_are_interrupts(Interrupter(CLEAN_UP_SECONDS)))


@experiment.command()
@number_option(
    "--work-ms", kind=Real(0, 10_000), default=2.0, metavar="MS", help="Work time per record, in milliseconds."
)
@number_option("--records", kind=Whole(1), default=10_000, help="Records in each queue group.")
@number_option("--workers", kind=Whole(1, 64), default=8, help="Worker processes of each queue group.")
@click.option("--html", type=PathType(), metavar="FILE", help="Write a page with pictures, too.")
@click.option("--plain", is_flag=True, help="Print a line every two seconds instead of moving bars.")
@json_option
def lanes(work_ms: float, records: int, workers: int, html: Path | None, plain: bool, as_json: bool) -> None:
    """Drain the same records with and without order, and with a hot key.

    Six queue groups drain the same flights side by side, each with its own worker processes. Two have the orderings
    none and single. Four have the ordering key: with 4 keys, with 100 keys, with a hot key that has 80 % of the
    records, and with the same hot key split into 8 sub-lanes by a second key. There are 27,004 flights.

    \b
    Examples:
      logbroker experiment lanes
      logbroker experiment lanes --work-ms 10 --records 2000 --html lanes.html
    """
    rows = [(flight.key or b"", flight.value or b"") for flight in read_flights()]
    if records > len(rows):
        raise click.BadParameter(f"there are {len(rows):,} flights", param_hint="--records")
    rows = rows[:records]
    with _writable(*[html] if html is not None else []), embedded() as broker, shown(plain=plain) as look:
        warn(f"Starting {STRIPS * workers} worker processes...")
        strips = _run(drain(broker.address, rows, workers=workers, work_seconds=work_ms / 1000, look=look))
        metrics = [strip.settle() for strip in strips]
        if html is not None:
            html.write_text(lanes_page(strips, metrics, work_ms), encoding="utf-8")
    if as_json:
        terminal.write_json({"work_ms": work_ms, "strips": metrics})
        return
    show_lanes(metrics)
    terminal.say(*conclusions(metrics))
    write_line("Give --html FILE to get pictures." if html is None else f"Pictures: {html}")


@experiment.command()
@click.option(
    "--quick", is_flag=True, help="Measure only a few combinations: less than a minute instead of some minutes."
)
@click.option(
    "--out",
    type=PathType(file_okay=False),
    default=Path("scaling"),
    show_default=True,
    metavar="DIR",
    help="Directory for metrics, pictures and the report.",
)
@number_option("--seed", kind=Whole(-MAX_INT64, MAX_INT64), default=1, help="Seed of the random keys.")
@json_option
def scaling(quick: bool, out: Path, seed: int, as_json: bool) -> None:
    """Measure what partitions and consumers gain.

    The command runs combinations of partitions, consumers, skew of keys and work time, for a consumer group, a queue
    group by key, and a queue group whose hot key is split. It ends with advice. It writes scaling.json (for `logbroker
    plan`), scaling.csv, report.html, and pictures as SVG and PNG. Pictures need matplotlib: pip install
    'logbroker[experiments]'.

    \b
    Examples:
      logbroker experiment scaling --quick
      logbroker experiment scaling --out scaling --seed 7
    """
    grid = quick_grid() if quick else default_grid()
    out.mkdir(parents=True, exist_ok=True)
    draws = can_draw()
    if not draws:
        warn(HOW_TO_INSTALL)
    files = [out / name for name in ("scaling.json", "scaling.csv", "report.html")]
    with _writable(*files), embedded() as broker, terminal.progress("measuring", len(grid), "runs") as count:
        work = scale(broker.address, grid, seconds=QUICK_SECONDS if quick else SECONDS, seed=seed, done=count)
        found = _run(work)
    (out / "scaling.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    (out / "scaling.csv").write_text(scaling_csv(found), encoding="utf-8")
    pictures = draw(found) if draws else {}
    for name, picture in pictures.items():
        (out / f"{name}.svg").write_bytes(picture.svg)
        (out / f"{name}.png").write_bytes(picture.png)
    report = scaling_page(
        found, {name: picture.svg for name, picture in pictures.items()}, "" if draws else HOW_TO_INSTALL
    )
    (out / "report.html").write_text(report, encoding="utf-8")
    if as_json:
        terminal.write_json(found)
        return
    show_scaling(found.runs)
    terminal.say(
        *advice(found), f"Report: {out / 'report.html'}; metrics: {out / 'scaling.json'}; keys by seed {seed}."
    )


@contextmanager
def _writable(*paths: Path) -> Iterator[None]:
    """Check that files can be written, and that the disk has room for them, before the experiment runs. Raises OSError.
    The files keep their content until they are written. If the experiment fails, files that did not exist before are
    removed."""
    made = [path for path in paths if not path.exists()]
    try:
        for path in paths:
            path.open("ab").close()
        for directory in {path.resolve().parent for path in paths if path.is_file()}:
            _check_room(directory)
        yield
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _check_room(directory: Path) -> None:
    """Raise OSError if the disk has no room for the files of an experiment. The attempt leaves nothing behind."""
    try:
        with TemporaryFile(dir=directory) as file:
            file.write(bytes(_ROOM_BYTES))
            file.flush()
            os.fsync(file.fileno())  # Some file systems say only now that they are full.
    except PermissionError:
        return  # The files exist already, and no others can be created beside them.
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(directory)) from None


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return click.get_current_context().ensure_object(Interrupter).run(work)
    except grpc.RpcError as error:
        raise LogbrokerError(f"the broker failed: {error}") from None
