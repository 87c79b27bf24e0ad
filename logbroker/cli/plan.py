"""`logbroker plan`: estimates how many partitions and consumers a load needs, and when a hot key must be split."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType, Real, Whole
from logbroker.cli.common.options import json_option, number_option
from logbroker.errors import InvalidRequestError
from logbroker.texts import size_text
from logbroker.tools.experiments import planning
from logbroker.tools.experiments.capacity import GROUP, MODES, QUEUE, Service
from logbroker.tools.experiments.keys import SKEWS, hot_shares, key_shares
from logbroker.tools.experiments.planning import Demand, Option
from logbroker.tools.experiments.scaling_run import Scaling, ScalingRun, calibrated

MAX_KEYS: Final = 100_000
_SKEW: Final = "uniform"
_MAX_FILE_BYTES: Final = 64 * 1024 * 1024


@click.command()
@number_option("--rate", kind=Real(0, min_open=True), help="Records per second to process.")
@number_option("--work-ms", kind=Real(0), metavar="MS", help="Work time per record, in milliseconds.")
@click.option("--skew", type=click.Choice(SKEWS), help=f"Distribution of records over keys.  [default: {_SKEW}]")
@number_option(
    "--hottest-share",
    kind=Real(0, 1, min_open=True),
    metavar="SHARE",
    help="Share of all records that have the hottest key, instead of --skew.",
)
@number_option("--keys", kind=Whole(1, MAX_KEYS), default=100, help="Number of keys.")
@number_option("--consumers", kind=Whole(1, 1000), help="Number of consumers.  [default: as few as suffice]")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=GROUP,
    show_default=True,
    help='Kind of group: "group" is a consumer group, "queue" is a queue group.',
)
@number_option(
    "--target",
    kind=Real(0, 1, min_open=True),
    default=0.7,
    metavar="SHARE",
    help="Maximum load of the busiest consumer, as a share of its capacity.",
)
@click.option(
    "--from",
    "measured",
    type=PathType(exists=True),
    metavar="FILE",
    help="Measurements: the scaling.json of `logbroker experiment scaling`. A missing --rate or --work-ms is taken from"
    " there.",
)
@json_option
def plan(
    rate: float | None,
    work_ms: float | None,
    skew: str | None,
    hottest_share: float | None,
    keys: int,
    consumers: int | None,
    mode: str,
    target: float,
    measured: Path | None,
    as_json: bool,
) -> None:
    """Estimate how many partitions and consumers a load needs.

    The hottest partition decides: its consumer must keep up. If one key is too hot for that, only a split of this key
    in a queue group helps, and the plan says into how many sub-lanes. Waiting times are a queueing estimate
    (Allen-Cunneen). With --from, the cost of a record is as `logbroker experiment scaling` measured it. Without --from,
    it is an assumption.

    \b
    Examples:
      logbroker plan --rate 400 --work-ms 20
      logbroker plan --rate 400 --work-ms 20 --hottest-share 0.1 --consumers 16
      logbroker plan --rate 400 --work-ms 20 --hottest-share 0.5 --mode queue
      logbroker plan --rate 400 --work-ms 20 --mode queue --from scaling/scaling.json
    """
    if skew is not None and hottest_share is not None:
        raise click.UsageError("give either --skew or --hottest-share: both say how many records the hottest key has")
    measurements = _read(measured) if measured is not None else []
    runs = [run for run in measurements if run.mode == mode]
    if measured is not None and not runs:
        raise InvalidRequestError(f"{measured} has no runs of mode {mode}: measure again, or give another --mode")
    works = {run.work_ms for run in runs}
    if work_ms is None and len(works) == 1:
        work_ms = works.pop()
    if work_ms is None:
        raise click.UsageError("give --work-ms: how long a record takes")
    if rate is None:
        rates = [run.records_per_second for run in runs if run.work_ms == work_ms]
        if not rates:
            raise click.UsageError("give --rate: the records to process per second")
        rate = max(rates)
    service = calibrated(runs, mode, work_ms)
    shares = (
        key_shares(skew or _SKEW, keys) if hottest_share is None else hot_shares(max(hottest_share, 1 / keys), keys)
    )
    demand = Demand(mode=mode, rate=rate, shares=shares, consumers=consumers, target=target)
    found = planning.plan(demand, service)
    split = None
    if not found.fits and planning.hottest_key_utilisation(demand, service) > target:
        split = planning.split_plan(demand, calibrated(measurements, QUEUE, work_ms))
    if as_json:
        bound = planning.hottest_key_rate(demand, service)
        document = {"rate": rate, "work_ms": work_ms, "mode": mode, "service": service, "plan": found}
        terminal.write_json({**document, "hottest_key_records_per_second": bound, "split": split})
        return
    _show(found.options, found.chosen, mode)
    terminal.say(*planning.words(demand, service, found, split), _costs(service, mode, measured))


def _read(path: Path) -> list[ScalingRun]:
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise InvalidRequestError(f"{path} has more than {size_text(_MAX_FILE_BYTES)}")
    try:
        return msgspec.json.decode(content, type=Scaling).runs
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        wrong = str(error)
    except RecursionError:
        wrong = "its values are nested too deep"
    raise InvalidRequestError(f"{path} is not what `logbroker experiment scaling` writes: {wrong}")


def _costs(service: Service, mode: str, measured: Path | None) -> str:
    pause_ms, work_ms = 1e3 * service.worker_pause_seconds, 1e3 * service.work_seconds
    told = f"{work_ms:.2f} ms of work and {pause_ms:.2f} ms between two records of a consumer"
    if mode == QUEUE:
        told += f", {1e3 * service.handover_seconds:.2f} ms between two of a key"
    if measured is not None:
        return f"Measured: {told}."
    return f"Assumed: {told}; `logbroker experiment scaling` measures it."


def _show(options: list[Option], chosen: Option, mode: str) -> None:
    numbers = ("partitions", "workers" if mode == QUEUE else "consumers", "keeps up with", "at work", "busiest", "wait")
    table = terminal.table(*numbers, numbers=numbers)
    shown = options if chosen in options else [*options, chosen]
    for option in sorted(shown, key=lambda each: (each.partitions, -each.consumers)):
        table.add_row(
            str(option.partitions),
            str(option.consumers),
            f"{planning.rate_text(option.records_per_second)}/s",
            f"{option.utilisation:.0%}",
            f"{option.busiest_utilisation:.0%}",
            "grows" if option.wait_ms is None else f"{option.wait_ms:,.1f} ms",
            style="bold" if option is chosen else None,
        )
    terminal.show(table)
