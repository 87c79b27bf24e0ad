"""`logbroker bench convoy`: measures queues per key in the memory of a consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from logbroker.cli.bench.options import setup_of, shared_options
from logbroker.cli.bench.report import Measurement, run
from logbroker.cli.common.arguments import Real, Whole
from logbroker.cli.common.options import number_option
from logbroker.tools.bench.groups import convoy as costs


@click.command()
@number_option("--keys", kind=Whole(1), default=1000, help="Number of keys.")
@number_option("--handlers", kind=Whole(1, 10_000), default=100, help="Handlers that run at once.")
@number_option("--records", kind=Whole(100), default=50_000, help="Records in a round.")
@number_option(
    "--work-ms", kind=Real(0, 1000), default=5.0, metavar="MS", help="Work time per record, in milliseconds."
)
@click.option(
    "--only",
    type=click.Choice(["work", "overhead"]),
    multiple=True,
    help="Run this measurement only. Repeatable.  [default: all]",
)
@shared_options
def convoy(keys: int, handlers: int, records: int, work_ms: float, only: Sequence[str], **shared: Any) -> None:
    """Measure the queues per key of a convoy in one program.

    work: records per second with --work-ms per record, compared with a loop that handles one record at a time; the
    ratio says how many times faster the convoy is. overhead: CPU time per record with an empty handler, compared with a
    loop.

    \b
    Examples:
      logbroker bench convoy
      logbroker bench convoy --only work --keys 100 --handlers 20
    """
    setup = setup_of(shared, 0)
    size = {"keys": keys, "handlers": handlers, "records": records}
    measurements: dict[str, Measurement] = {
        "work": lambda: costs.work(setup, **size, work_ms=work_ms),
        "overhead": lambda: costs.overhead(setup, **size),
    }
    run([measurements[name] for name in only or measurements], **shared)
