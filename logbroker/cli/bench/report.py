"""Runs measurements and reports them as a table or as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import click
import grpc
import uvloop

from logbroker.cli.common import terminal
from logbroker.cli.common.stops import Interrupter
from logbroker.errors import LogbrokerError, RequestTimeoutError
from logbroker.tools.bench.harness.measure import Row

MAX_SECONDS: Final = 600

Measurement = Callable[[], Awaitable[Row | list[Row]]]


def run(measurements: Sequence[Measurement], *, as_json: bool, **_: Any) -> None:
    """Run the measurements one after the other, and show the results."""
    interrupter = click.get_current_context().ensure_object(Interrupter)
    rows: list[Row] = []
    with terminal.progress("measuring", len(measurements), "measurements") as count:
        for done, measurement in enumerate(measurements, 1):
            found = interrupter.run(_awaited(measurement), uvloop.new_event_loop)
            rows += found if isinstance(found, list) else [found]
            count(done)
    if as_json:
        terminal.write_json([_document(row) for row in rows])
        return
    numbers = ("median", "range", "ceiling", "ratio")
    table = terminal.table("measured", "durability", *numbers, "unit", numbers=numbers)
    for row in rows:
        ceiling = "-" if row.ceiling is None else _number(row.ceiling)
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        spread = f"{_number(min(row.rounds))} - {_number(max(row.rounds))}"
        table.add_row(row.name, row.durability, _number(row.value), spread, ceiling, ratio, row.unit)
    terminal.show(table)


async def _awaited(measurement: Measurement) -> Row | list[Row]:
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await measurement()
    except TimeoutError:
        raise RequestTimeoutError(f"the measurement took more than {MAX_SECONDS} s; measure less") from None
    except grpc.RpcError as error:
        raise LogbrokerError(f"the server under measurement failed: {error}") from None


def _document(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "durability": row.durability,
        "unit": row.unit,
        "median": row.value,
        "rounds": row.rounds,
        "ceiling_median": row.ceiling,
        "ceiling_rounds": row.ceiling_rounds,
        "ratio": row.ratio,
    }


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
